//! What the subscriber itself may know of its subscription, so that it sees why nothing arrives: its own lease, its own deliveries, and
//! nothing of others, of the hub's network or of what failed in resolving a name (D-20).

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{AdminService, By, Failed, Lasting, StatusPage, SubscriptionDetail};
use crate::delivery::{AttemptOutcome, RecordedAttempt};
use crate::store::{Shard, Subscription, SubscriptionId};
use crate::topics::Tickets;

/// A lease that ends so soon wants to be renewed.
const SOON: Duration = Duration::from_secs(24 * 3_600);
/// How long a visit lasts.
const VISIT: Duration = Duration::from_secs(3_600);

/// The subscription of a status page: its number, and the time of its first verification. After a restore numbers are used again; with
/// the time, no page shows its owner another subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId {
    subscription: SubscriptionId,
    since: DateTime,
}

impl PageId {
    pub(super) fn new(subscription: SubscriptionId, since: DateTime) -> Self {
        Self { subscription, since }
    }

    pub(super) fn subscription(self) -> SubscriptionId {
        self.subscription
    }

    /// The name that its ticket is for, with the random part of a replaced address. No notification has such a name.
    fn name(self, replaced: Option<&str>) -> String {
        match replaced {
            None => format!("subscription {self}"),
            Some(part) => format!("subscription {self} address {part}"),
        }
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
    /// Whether it goes well.
    pub grade: Grade,
    /// Its state as a sentence.
    pub standing: String,
    /// What would help, the most likely first.
    pub advice: Vec<String>,
}

/// How well a subscription fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// It has got everything.
    Good,
    /// Something waits, or was missed.
    Fair,
    /// The last attempt failed.
    Bad,
}

/// An attempt, described for the subscriber.
#[derive(Clone, Debug)]
pub struct OwnAttempt {
    /// When it ended.
    pub at: String,
    /// The notification.
    pub notification: String,
    /// The first has number 1.
    pub attempt: u16,
    /// What came of it.
    pub came: String,
    /// It was delivered.
    pub delivered: bool,
}

impl AdminService {
    /// The URL of a page, below this beginning.
    pub fn page_url(&self, base: &str, page: PageId) -> String {
        format!("{base}subscriptions/{page}?ticket={}", self.tickets.of(self.name_of(page)))
    }

    /// Whether this is the ticket to that page.
    pub fn admits(&self, ticket: &str, page: PageId) -> bool {
        self.tickets.admits(ticket, self.name_of(page))
    }

    /// What opens that page for a while, and for how long.
    pub fn begin_visit(&self, page: PageId) -> (String, Duration) {
        // By the clock that all hubs of the store have: another one may be asked whether this is over.
        let end = self.store.clock().system_time() + VISIT;
        (visit(&self.tickets, &self.name_of(page), end), VISIT)
    }

    /// Whether this opens that page now.
    pub fn is_visit(&self, visit: &str, page: PageId) -> bool {
        is_visit(&self.tickets, visit, &self.name_of(page), self.store.clock().system_time())
    }

    /// What forms carry that are sent during this visit; nobody else can know it.
    pub fn form_word(&self, visit: &str) -> String {
        self.tickets.of(format_args!("form of {visit}"))
    }

    /// Whether this is the word of that visit's forms.
    pub fn is_form_word(&self, word: &str, visit: &str) -> bool {
        self.tickets.admits(word, format_args!("form of {visit}"))
    }

    fn name_of(&self, page: PageId) -> String {
        page.name(self.addresses.part(page).as_deref())
    }

    /// Gives the page of a subscription another address; the one of before opens nothing any more, and who visits it is out.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn replace_address(&self, by: By, id: u64) -> Result<StatusPage, Failed> {
        let (_, found) = self.record(SubscriptionId(id)).await?;
        let page = PageId::new(found.id, found.created_at);
        let replaced = |service: Self| async move {
            service.addresses.replace(page).await.map_err(|error| Failed::unnoted(&error))
        };
        self.audited(by, "replace address", &format!("subscription {id}"), replaced).await?;
        Ok(StatusPage { status_page: self.page_url(&self.hub_url, page) })
    }

    /// Whether this subscription's page has a replaced address.
    pub(super) fn has_other_address(&self, of: &Subscription) -> bool {
        self.addresses.part(PageId::new(of.id, of.created_at)).is_some()
    }

    /// Forgets replaced addresses of subscriptions that have ended; on failure the next start does it.
    pub async fn forget_addresses(&self) {
        if let Err(error) = self.forget_those_over().await {
            tracing::warn!(%error, "old addresses of pages not removed: their subscriptions have ended");
        }
    }

    async fn forget_those_over(&self) -> Result<(), Failed> {
        let mut over = self.addresses.pages();
        for shard in (0..self.store.shards()).map(Shard) {
            if over.is_empty() {
                break;
            }
            for (topic, id) in self.store.ids(shard).await? {
                if !over.iter().any(|page| page.subscription == id) {
                    continue;
                }
                let found = self.store.subscription(shard, topic, id).await?;
                let page = found.map(|found| PageId::new(found.id, found.created_at).to_string());
                over.retain(|one| page.as_ref() != Some(&one.to_string()));
            }
        }
        self.addresses.forget(over).await.map_err(|error| Failed::unnoted(&error))
    }

    /// What the owner of this page may see; `None` if the subscription has ended.
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
        detail.recent_attempts.clear();
        let notes = self.notes.of(page.subscription);
        let failure = last_failure(&detail, notes.first());
        let (grade, standing) = standing(&detail, failure.is_some());
        let advice = advice(&detail, failure, self.store.now());
        let attempts = notes.into_iter().map(OwnAttempt::from).collect();
        Ok(Some(OwnView { detail, attempts, grade, standing, advice }))
    }

    /// The page of this pair's subscription, given its secret; `None` for any mistake.
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
        let found = found.filter(|found| found.lease_end > self.store.now());
        let kept = found.as_ref().and_then(|found| found.secret.as_ref());
        // As long for a subscription that is not there, so that the time of the answer does not tell.
        let expected = Sha256::digest(kept.map_or(&[][..], |kept| kept.as_bytes()));
        let is_known = bool::from(Sha256::digest(secret.as_bytes()).ct_eq(&expected)) && kept.is_some();
        Ok(found.filter(|_| is_known).map(|found| PageId::new(found.id, found.created_at)))
    }
}

/// What opens the page of this name until then. It says itself how long, so that nothing is kept of it here.
fn visit(tickets: &Tickets, page: &str, until: SystemTime) -> String {
    let until = unix_seconds(until);
    format!("{until}.{}", tickets.of(format_args!("visit until {until}: {page}")))
}

fn is_visit(tickets: &Tickets, visit: &str, page: &str, now: SystemTime) -> bool {
    let Some((until, ticket)) = visit.split_once('.') else { return false };
    until.parse().is_ok_and(|until: u64| unix_seconds(now) < until)
        && tickets.admits(ticket, format_args!("visit until {until}: {page}"))
}

fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl From<RecordedAttempt> for OwnAttempt {
    fn from(note: RecordedAttempt) -> Self {
        Self {
            at: note.at.to_string(),
            notification: note.notification.to_string(),
            attempt: note.attempt,
            delivered: note.outcome == AttemptOutcome::Delivered,
            came: words(note.outcome),
        }
    }
}

/// The result of an attempt. A forbidden address reads like an unreachable one.
pub(super) fn words(outcome: AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Delivered => "delivered".to_owned(),
        AttemptOutcome::Answered(status) => format!("the callback answered {status}"),
        AttemptOutcome::TimedOut => "no complete answer came in time".to_owned(),
        AttemptOutcome::Unreachable => "no connection, or it broke before an answer came".to_owned(),
        AttemptOutcome::Unconfirmed => {
            "limited: the callback's name now leads to a server that has not confirmed".to_owned()
        }
        AttemptOutcome::Unsent => "the hub could not send it then".to_owned(),
    }
}

/// What the last attempt came to, unless something was delivered since: successes that follow no failure of their own are not noted.
fn last_failure(detail: &SubscriptionDetail, last: Option<&RecordedAttempt>) -> Option<AttemptOutcome> {
    let last = last.filter(|last| last.outcome != AttemptOutcome::Delivered)?;
    (detail.failing_since.is_some() || last.notification.offset >= detail.done_through)
        .then_some(last.outcome)
}

fn has_missed(detail: &SubscriptionDetail) -> bool {
    !detail.skipped.is_empty() || !detail.lost.is_empty()
}

/// A subscription without backlog may have skips: "everything" is said only if all is known to be delivered.
fn standing(detail: &SubscriptionDetail, fails: bool) -> (Grade, String) {
    let fails = fails || detail.failing_since.is_some();
    let (grade, words) = match (fails, detail.behind > 0) {
        (true, true) => (Grade::Bad, detail.waits.as_str()),
        (true, false) => (Grade::Bad, "Nothing waits, but the hub gave up the last notification."),
        (false, true) => (Grade::Fair, detail.waits.as_str()),
        (false, false) if has_missed(detail) => {
            (Grade::Fair, "Nothing waits, but something was missed before.")
        }
        (false, false) if detail.search_incomplete => {
            (Grade::Fair, "Nothing waits. Whether something was missed earlier is unknown.")
        }
        (false, false) => (Grade::Good, "Everything was delivered."),
    };
    (grade, words.to_owned())
}

fn advice(detail: &SubscriptionDetail, failure: Option<AttemptOutcome>, now: DateTime) -> Vec<String> {
    let mut advice = Vec::new();
    let mut say = |words: &str| advice.push(words.to_owned());
    let is_late = detail.behind > 0;
    if is_late && detail.paused {
        say("The operator of the hub has paused this topic. Deliveries go on when it is resumed.");
    }
    if let Some(remedy) = failure.and_then(remedy) {
        say(remedy);
    }
    if is_late {
        say(
            "You need not do anything: the hub tries again by itself, and new notifications wait in its log.",
        );
    }
    if has_missed(detail) {
        say(
            "Something was missed and will not be delivered. Catch up from the hub's log, or synchronise with the Source.",
        );
    } else if detail.search_incomplete {
        say(
            "The hub gave up so much that only the newest part was searched for this page. Synchronise with the Source, or ask the hub's operator.",
        );
    } else if !is_late && failure.is_none() && detail.failing_since.is_none() {
        say(if detail.done_through <= detail.subscription.start {
            "Nothing was published to this topic since the subscription began. Ask the Source whether it publishes to this hub, and to exactly this topic."
        } else {
            "The callback answered 2xx to everything. If nothing arrived, look behind it: a proxy, a queue or a login page may have answered instead."
        });
    }
    if let Some(left) = left_of(&detail.subscription.lease_end, now).filter(|left| *left < SOON) {
        say(&format!("The lease ends in {}: renew it by subscribing again.", Lasting(left)));
    }
    advice
}

fn left_of(end: &str, now: DateTime) -> Option<Duration> {
    let end: DateTime = end.parse().ok()?;
    end.to_system_time().duration_since(now.to_system_time()).ok()
}

/// What the owner of a callback can do about this.
pub(super) fn remedy(outcome: AttemptOutcome) -> Option<&'static str> {
    Some(match outcome {
        AttemptOutcome::Answered(status) => match status.as_u16() {
            300..=399 => "Redirects are not followed. Subscribe again with the URL to which they lead.",
            401 | 403 | 407 => {
                "Something in front of the callback asks for a login or refuses the hub. Let POST requests to the callback pass."
            }
            404 => {
                "The callback's path no longer exists. Restore it, or subscribe again with another callback."
            }
            405 | 415 => {
                "The callback refuses this POST. It has to accept POST requests with any Content-Type."
            }
            410 => {
                "The callback says that it is gone. A notification that is answered so twice ends the subscription."
            }
            413 => {
                "The notification is too large for the callback or a proxy in front of it. Raise that limit."
            }
            408 | 425 | 429 => "The callback asks for fewer requests. The hub slows down and tries again.",
            500..=599 => "The callback's server fails. See its log at the times below.",
            _ => "The callback has to answer 2xx.",
        },
        AttemptOutcome::TimedOut => "Answer 2xx first, and do the work afterwards.",
        AttemptOutcome::Unreachable => {
            "Check whether the callback can be reached from outside: name, address, port, firewall, certificate."
        }
        AttemptOutcome::Unconfirmed => {
            "The callback's name now resolves to another address. Subscribe again, so that this address confirms; then everything is sent."
        }
        AttemptOutcome::Delivered | AttemptOutcome::Unsent => return None,
    })
}

#[cfg(test)]
mod tests {
    use resync_core::websub::Secret;

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
    fn a_visit_opens_its_page_only_and_ends() {
        let (tickets, begun) =
            (Tickets::new(Secret::random()), UNIX_EPOCH + Duration::from_secs(1_763_800_000));
        let given = visit(&tickets, "one", begun + VISIT);
        let opens = |visit: &str, page, now| is_visit(&tickets, visit, page, now);
        assert!(opens(&given, "one", begun) && opens(&given, "one", begun + VISIT - Duration::from_secs(1)));
        assert!(!opens(&given, "one", begun + VISIT) && !opens(&given, "other", begun));
        let (until, ticket) = given.split_once('.').unwrap();
        let longer = format!("{}.{ticket}", until.parse::<u64>().unwrap() + 1);
        for forged in [longer.as_str(), ticket, until, "", &format!("+{given}")] {
            assert!(!opens(forged, "one", begun), "{forged}");
        }
    }

    #[test]
    fn d20_what_may_not_be_contacted_reads_like_what_is_not_there() {
        let all = [
            AttemptOutcome::Unreachable,
            AttemptOutcome::TimedOut,
            AttemptOutcome::Unconfirmed,
            AttemptOutcome::Unsent,
        ]
        .map(words)
        .concat();
        for word in ["private", "loopback", "forbidden", "address", "resolve", "DNS", "127."] {
            assert!(!all.contains(word), "{word}: {all}");
        }
    }
}
