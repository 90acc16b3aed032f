//! What the subscriber itself may know of its subscription, so that it sees why nothing arrives: its own lease, its own deliveries, and
//! nothing of others, of the hub's network or of what failed in resolving a name (D-20).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Desk, Failed, Lasting, SubscriptionDetail};
use crate::delivery::{Came, Note};
use crate::store::SubscriptionId;

/// A lease that ends so soon wants to be renewed.
const SOON: Duration = Duration::from_secs(24 * 3_600);

/// Which subscription a status page is about: its number, and the moment of its first verification. Where a store was restored from
/// a backup, numbers are given once more; the moment keeps a page from showing its owner the subscription of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId {
    subscription: SubscriptionId,
    since: DateTime,
}

impl PageId {
    pub(super) fn new(subscription: SubscriptionId, since: DateTime) -> Self {
        Self { subscription, since }
    }

    /// What its ticket is made of: no notification has such a name.
    fn name(self) -> String {
        format!("subscription {self}")
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.subscription.0, self.since.unix_millis())
    }
}

impl FromStr for PageId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (subscription, since) = text.split_once('.').ok_or(())?;
        let since = DateTime::from_unix_millis(since.parse().map_err(|_| ())?).map_err(|_| ())?;
        let id = Self { subscription: SubscriptionId(subscription.parse().map_err(|_| ())?), since };
        // One page has one name.
        if id.to_string() == text { Ok(id) } else { Err(()) }
    }
}

/// What a subscriber sees of its subscription.
#[derive(Clone, Debug)]
pub struct OwnView {
    /// Its topic, its lease, how far it is.
    pub detail: SubscriptionDetail,
    /// What became of the last attempts, newest first.
    pub attempts: Vec<OwnAttempt>,
    /// What would help, the most likely first.
    pub advice: Vec<String>,
}

/// An attempt, in words for whoever owns the callback.
#[derive(Clone, Debug)]
pub struct OwnAttempt {
    /// When it ended.
    pub at: String,
    /// What was sent.
    pub notification: String,
    /// The first has number 1.
    pub attempt: u16,
    /// What came of it.
    pub came: String,
    /// It was delivered.
    pub delivered: bool,
}

impl Desk {
    /// The URL of a page, below this beginning.
    pub fn page_url(&self, base: &str, page: PageId) -> String {
        format!("{base}subscriptions/{page}?ticket={}", self.tickets.of(page.name()))
    }

    /// Whether this is the ticket to that page.
    pub fn admits(&self, ticket: &str, page: PageId) -> bool {
        self.tickets.admits(ticket, page.name())
    }

    /// What the owner of this page may see; `None` where the subscription is over.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn own_view(&self, page: PageId) -> Result<Option<OwnView>, Failed> {
        let mut detail = match self.subscription(page.subscription.0).await {
            Ok(detail) => detail,
            Err(Failed::Unknown(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if detail.created_at != page.since.to_string() {
            return Ok(None);
        }
        // Its words are for the operator.
        detail.attempts_noted.clear();
        let notes = self.notes.of(page.subscription);
        let advice = advice(&detail, notes.first());
        Ok(Some(OwnView { advice, attempts: notes.into_iter().map(OwnAttempt::from).collect(), detail }))
    }

    /// The page of the subscription of this pair, for whoever knows its secret; `None` whatever it is that is wrong.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn page_by_secret(
        &self,
        topic: &TopicUrl,
        callback: &CallbackUrl,
        secret: &str,
    ) -> Result<Option<PageId>, Failed> {
        let found = self.store.find_subscription(topic, callback).await?;
        let found = found.filter(|found| found.lease_end > DateTime::now());
        let kept = found.as_ref().and_then(|found| found.secret.as_ref());
        // As long for a subscription that is not there, so that the time of the answer does not tell.
        let expected = Sha256::digest(kept.map_or(&[][..], |kept| kept.as_bytes()));
        let is_known = bool::from(Sha256::digest(secret.as_bytes()).ct_eq(&expected)) && kept.is_some();
        Ok(found.filter(|_| is_known).map(|found| PageId::new(found.id, found.created_at)))
    }
}

impl From<Note> for OwnAttempt {
    fn from(note: Note) -> Self {
        Self {
            at: note.at.to_string(),
            notification: note.notification.to_string(),
            attempt: note.attempt,
            delivered: note.came == Came::Delivered,
            came: words(note.came),
        }
    }
}

/// What came of an attempt. An address that may not be contacted reads like one where nobody is.
fn words(came: Came) -> String {
    match came {
        Came::Delivered => "delivered".to_owned(),
        Came::Answered(status) => format!("the callback answered {status}"),
        Came::TooLate => "no complete answer came in time".to_owned(),
        Came::Unreached => "no connection, or it broke off before there was an answer".to_owned(),
        Came::HeldBack => "held back: the callback's name leads to where it has not confirmed".to_owned(),
        Came::Unsent => "the hub could not send it then".to_owned(),
    }
}

fn advice(detail: &SubscriptionDetail, last: Option<&Note>) -> Vec<String> {
    let mut advice = Vec::new();
    if detail.behind > 0 {
        if detail.paused {
            advice.push(
                "The operator of the hub has paused this topic. Deliveries go on when it is resumed."
                    .to_owned(),
            );
        }
        advice.extend(last.and_then(|last| remedy(last.came)).map(str::to_owned));
        advice.push("Nothing has to be asked for again: the hub tries by itself, and what is published meanwhile waits in its log.".to_owned());
    } else if detail.done_through <= detail.subscription.start {
        advice.push(
            "Nothing was published to this topic since the subscription began. Ask the Source whether it publishes to this hub, and to exactly this topic."
                .to_owned(),
        );
    } else {
        advice.push(
            "The callback has answered 2xx to everything. If nothing arrived, look behind it: a proxy, a queue or a login page may answer in its place."
                .to_owned(),
        );
    }
    if !detail.skipped.is_empty() || !detail.lost.is_empty() {
        advice.push("Something was missed and does not come by itself. Catch up from the hub's log, or synchronise with the Source.".to_owned());
    }
    if let Some(left) = left_of(&detail.subscription.lease_end).filter(|left| *left < SOON) {
        advice.push(format!("The lease ends in {}: renew it by subscribing again.", Lasting(left)));
    }
    advice
}

fn left_of(end: &str) -> Option<Duration> {
    let end: DateTime = end.parse().ok()?;
    end.to_system_time().duration_since(DateTime::now().to_system_time()).ok()
}

/// What the owner of a callback can do about this.
fn remedy(came: Came) -> Option<&'static str> {
    Some(match came {
        Came::Answered(status) => match status.as_u16() {
            300..=399 => "Redirects are not followed. Subscribe again with the URL that they lead to.",
            401 | 403 | 407 => {
                "Something in front of the callback asks for a login or refuses the hub. Let POST requests to the callback pass."
            }
            404 => {
                "There is nothing at the callback's path any more. Put it back, or subscribe again with another callback."
            }
            405 | 415 => {
                "The callback takes no POST of this type. It has to take POST requests of any Content-Type."
            }
            410 => "The callback says that it is gone. A second 410 ends the subscription.",
            413 => {
                "The notification is too large for the callback or a proxy in front of it. Raise that limit."
            }
            408 | 425 | 429 => "The callback asks for fewer requests. The hub slows down and tries again.",
            500..=599 => "The callback's own server fails. Its log at the times below says why.",
            _ => "The callback has to answer 2xx.",
        },
        Came::TooLate => "Answer with 2xx first, and do the work after that.",
        Came::Unreached => {
            "See whether the callback can be reached from outside: its name, its address, its port, its firewall, its certificate."
        }
        Came::HeldBack => {
            "The callback's name has come to lead elsewhere. Subscribe again, so that it confirms there; then everything is sent."
        }
        Came::Delivered | Came::Unsent => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_name() {
        let id: PageId = "7.1763800000123".parse().unwrap();
        assert_eq!(id.to_string(), "7.1763800000123");
        for other in ["7", "07.1763800000123", "7.01763800000123", "+7.1763800000123", "7.x", "7.1.2", ""] {
            assert!(other.parse::<PageId>().is_err(), "{other}");
        }
    }

    #[test]
    fn d20_what_may_not_be_contacted_reads_like_what_is_not_there() {
        let all = [Came::Unreached, Came::TooLate, Came::HeldBack, Came::Unsent].map(words).concat();
        for word in ["private", "loopback", "forbidden", "address", "resolve", "DNS", "127."] {
            assert!(!all.contains(word), "{word}: {all}");
        }
    }
}
