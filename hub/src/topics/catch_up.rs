//! Catching up: what the log still holds of a topic is read again, as it was delivered or as a Change List.
//!
//! Whoever was away, or has found a gap, need not wait for the Source. The proof that somebody may read is the secret of a
//! subscription to the topic in force, or a publisher's token for it.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;
use resync_core::document::{
    Capability, Document, Entry, Header, Link, Metadata, RawDocument, Relation, Root,
};
use resync_core::rules::Violations;
use resync_core::websub::{Secret, Signature, SignatureMethod, SigningKey, TopicUrl};
use resync_core::xml::{self, MAX_ENTRIES, Options};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::budget::{BodyBudget, BudgetSpent, Reserved};
use crate::store::{Notification, Offset, Pair, Rule, Store, StoreError, Topic, TopicId};

/// A page ends with the notification that brings what it weighs above this. A Change List ends with the one before; for it
/// everything read counts, Change Notification or not.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Notifications read for a Change List at most, whatever becomes of them.
const MOST_READ: usize = 10_000;
/// Topics share so many turns.
const TURNS: usize = 64;
/// How long a reader waits for room in memory, or for its turn.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// How far in the future a signed query may end.
const LONGEST_PROOF: Duration = Duration::from_secs(3_600);
/// Queries are signed with a key of their own: the HMAC, with this, of the secret. A delivery is signed the other way round, so
/// that no body makes the hub compute it.
const PURPOSE: &str = "resync-hub catch-up";
/// What stands before the signature of a query.
const SIGNATURE: &str = "&signature=";

/// Reads logs again.
#[derive(Clone, Debug)]
pub struct CatchUp {
    store: Arc<dyn Store>,
    budget: BodyBudget,
    /// One Change List of a topic is made at a time, since that reads and parses much.
    turns: Arc<[Mutex<()>; TURNS]>,
}

/// A part of a topic's log.
#[derive(Debug)]
pub struct Page {
    /// The topic with the bounds of its log.
    pub topic: Topic,
    /// In the order of the log.
    pub notifications: Vec<Arc<Notification>>,
    /// There is more after the last one.
    pub more: bool,
    /// What the notifications take in memory.
    pub room: Reserved,
}

/// The changes of a topic as a Change List.
#[derive(Debug)]
pub struct List {
    /// XML.
    pub bytes: Vec<u8>,
    /// What they take in memory.
    pub room: Reserved,
}

/// Why nothing can be read. Every text says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// Neither token nor signature, or not the right one.
    #[error(
        "reading notifications again needs Authorization: Bearer with a token for the topic, or a query with subscription, expires (Unix time, at most an hour ahead) and, last, signature: the HMAC of the query before &signature= with a key made from the subscription's secret, written like X-Hub-Signature; the hub's documentation on the protocol has an example"
    )]
    NoProof,
    /// Nobody ever published to this topic or subscribed.
    #[error("the hub knows no such topic")]
    UnknownTopic,
    /// The log has let go of what comes next.
    #[error(
        "the log no longer holds what comes after that offset: it begins at {first}; synchronise with the Source, or go on with after={}",
        first.0.saturating_sub(1)
    )]
    Expired {
        /// The oldest notification that the log holds.
        first: Offset,
    },
    /// A Change List can be made of Change Notifications only.
    #[error("the topic has no Change Notifications that a Change List could be made of")]
    NoChanges,
    /// The notifications do not name the Capability List, which every Change List points up to (RS-053).
    #[error(
        "no Change List can be made: the topic's Change Notifications name no Capability List, neither by Link rel=\"resourcesync\" nor by rs:ln rel=\"up\""
    )]
    NoCapabilityList,
    /// The notifications were taken, but together they make no valid list.
    #[error("the Change Notifications make no valid Change List:\n{0}")]
    List(Violations),
    /// There is no room in memory now.
    #[error(transparent)]
    Busy(#[from] BudgetSpent),
    /// Others wait for Change Lists of this topic too.
    #[error("the hub is making other Change Lists of this topic: try again")]
    Turn,
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CatchUp {
    /// `budget` bounds what pages take in memory.
    pub fn new(store: Arc<dyn Store>, budget: BodyBudget) -> Self {
        Self { store, budget, turns: Arc::new(std::array::from_fn(|_| Mutex::default())) }
    }

    /// Whether a query is signed with the secret of a subscription in force. `query` is the query as it was sent.
    ///
    /// # Errors
    /// [`NotRead::NoProof`], whatever it is that is missing: the answer must not tell who is subscribed.
    pub async fn check_proof(&self, query: &str, topic: &TopicUrl) -> Result<(), NotRead> {
        let (signed, signature) = query.rsplit_once(SIGNATURE).ok_or(NotRead::NoProof)?;
        let value = |wanted: &str| {
            let mut pairs = url::form_urlencoded::parse(signed.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
        };
        let expires = value("expires").and_then(|text| text.parse().ok()).ok_or(NotRead::NoProof)?;
        if !is_soon(Duration::from_secs(expires)) {
            return Err(NotRead::NoProof);
        }
        let pair = value("subscription").and_then(|text| Pair::parse(&text)).ok_or(NotRead::NoProof)?;
        let in_force = self.store.subscription_of(pair).await?.filter(|subscription| {
            subscription.topic_url == *topic && subscription.lease_end > DateTime::now()
        });
        let secret = in_force.and_then(|subscription| subscription.secret).ok_or(NotRead::NoProof)?;
        // A form may write the = of the signature as %3D.
        let signature = Signature::parse(&signature.replace("%3D", "=")).map_err(|_| NotRead::NoProof)?;
        signature.verify(&own_key(&secret), signed.as_bytes()).map_err(|_| NotRead::NoProof)
    }

    /// At most `limit` notifications after this offset; without one, from the oldest that the log holds.
    ///
    /// # Errors
    /// [`NotRead`]
    pub async fn page(&self, topic: &TopicUrl, after: Option<Offset>, limit: usize) -> Result<Page, NotRead> {
        let url = topic;
        let topic = self.store.topic(url).await?.ok_or(NotRead::UnknownTopic)?;
        let mut next = beginning(&topic, after)?;
        let (mut notifications, mut bytes, mut room) = (Vec::new(), 0, self.budget.reserve());
        while next <= topic.head && notifications.len() < limit && bytes < PAGE_BYTES {
            let Some(notification) = self.store.notification_from(topic.id, next).await? else {
                // A restore leaped over what is left, and nothing was posted since then.
                next = topic.head.next();
                break;
            };
            if notifications.is_empty() && after.is_some() && notification.offset > next {
                // Retention may have removed it a moment ago; what the log still goes back to, a restore leaped over.
                let first = self.store.topic(url).await?.map_or(notification.offset, |topic| topic.first);
                if first > next {
                    return Err(NotRead::Expired { first: notification.offset });
                }
            }
            bytes += weight(&notification);
            room.grow_to_at_most_all(bytes, ROOM_TIMEOUT).await?;
            next = notification.offset.next();
            notifications.push(notification);
        }
        Ok(Page { more: next <= topic.head, topic, notifications, room })
    }

    /// The changes after this offset as a Change List: of the newest Change Notifications as many as follow each other without
    /// a break. Its `from` tells how far back that is, so that it never claims to know what was never told (CN-008).
    ///
    /// # Errors
    /// [`NotRead`]
    pub async fn change_list(&self, topic: &TopicUrl, after: Option<Offset>) -> Result<List, NotRead> {
        let topic = self.store.topic(topic).await?.ok_or(NotRead::UnknownTopic)?;
        let chain = self.store.chain(topic.id).await?.ok_or(NotRead::NoChanges)?;
        let oldest = beginning(&topic, after)?;
        let _turn = self.turn(topic.id).await?;
        let mut run = Run { from: chain.until, until: chain.until, up: None, parts: Vec::new() };
        let (mut bytes, mut kept, mut entries, mut room) = (0, 0, 0, self.budget.reserve());
        let mut offset = chain.offset;
        for _ in 0..MOST_READ {
            // At least the newest one is read, since it names the Capability List.
            if offset < oldest.min(chain.offset) || offset.0 == 0 {
                break;
            }
            let found = self.store.notification_from(topic.id, offset).await?;
            let Some(notification) = found.filter(|found| found.offset == offset) else { break };
            let weight = weight(&notification);
            bytes += weight;
            let is_enough = offset < oldest || bytes > PAGE_BYTES;
            if is_enough && offset < chain.offset {
                break;
            }
            if let Some((changes, up)) = compute(move || changes(&notification)).await {
                run.up = run.up.or(up);
                entries += changes.entries.len();
                // An entry of a few dozen bytes takes many times as much once it is read.
                let parsed = changes.entries.capacity() * size_of::<Entry>();
                if is_enough || entries > MAX_ENTRIES || !run.put_before(changes) {
                    break;
                }
                kept += weight + parsed;
                room.grow_to_at_most_all(kept, ROOM_TIMEOUT).await?;
            }
            offset = Offset(offset.0 - 1);
        }
        let bytes = compute(|| run.into_list().map(|list| xml::write(&list))).await?;
        room.grow_to_at_most_all(bytes.len(), ROOM_TIMEOUT).await?;
        room.shrink_to(bytes.len());
        Ok(List { bytes, room })
    }

    async fn turn(&self, topic: TopicId) -> Result<MutexGuard<'_, ()>, NotRead> {
        let place = usize::try_from(topic.0 % TURNS as u64).unwrap_or_default();
        timeout(ROOM_TIMEOUT, self.turns[place].lock()).await.map_err(|_| NotRead::Turn)
    }
}

impl Page {
    /// The page written out by `write`, with the room that it takes from now on. It is written twice, the first time to know how
    /// long it becomes: text is escaped, and may take six times as much.
    ///
    /// # Errors
    /// [`NotRead::Busy`], before anything is written.
    pub async fn encode<T: Send + 'static>(
        self,
        write: impl Fn(&Self, &mut dyn Write) -> io::Result<T> + Send + 'static,
    ) -> Result<(Vec<u8>, T, Reserved), NotRead> {
        let (mut page, write, length) = compute(move || {
            let mut counted = Counted(0);
            // A count does not fail.
            let _ = write(&self, &mut counted);
            (self, write, counted.0)
        })
        .await;
        let read: usize = page.notifications.iter().map(|notification| weight(notification)).sum();
        page.room.grow_to_at_most_all(read + length, ROOM_TIMEOUT).await?;
        compute(move || {
            let mut bytes = Vec::with_capacity(length);
            let more = write(&page, &mut bytes).map_err(|error| StoreError::Read(error.to_string()))?;
            let Self { notifications, mut room, .. } = page;
            drop(notifications);
            room.shrink_to(bytes.len());
            Ok((bytes, more, room))
        })
        .await
    }
}

/// How much is written.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn weight(notification: &Notification) -> usize {
    usize::try_from(notification.weight()).unwrap_or(usize::MAX)
}

/// Runs what takes long where it holds up nobody.
async fn compute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // It is never aborted, so that only a panic ends it early.
    spawn_blocking(work).await.unwrap_or_else(|fault| std::panic::resume_unwind(fault.into_panic()))
}

/// Change Notifications that follow each other, gathered from the newest to the oldest.
struct Run {
    from: DateTime,
    until: DateTime,
    up: Option<String>,
    parts: Vec<RawDocument>,
}

impl Run {
    /// Whether this one ends where the run begins; then the run begins with it.
    fn put_before(&mut self, changes: RawDocument) -> bool {
        let Metadata { from: Some(from), until: Some(until), .. } = changes.header.metadata else {
            return false;
        };
        if until != self.from {
            return false;
        }
        self.from = from;
        self.parts.push(changes);
        true
    }

    fn into_list(self) -> Result<Document, NotRead> {
        let up = self.up.ok_or(NotRead::NoCapabilityList)?;
        let mut header = Header::new(Root::UrlSet, Capability::ChangeList);
        header.metadata.from = Some(self.from);
        header.metadata.until = Some(self.until);
        header.links.push(Link::new(Relation::Up, up));
        let entries = self.parts.into_iter().rev().flat_map(|part| part.entries).collect();
        Document::try_from(RawDocument { header, entries }).map_err(NotRead::List)
    }
}

/// Where reading begins.
fn beginning(topic: &Topic, after: Option<Offset>) -> Result<Offset, NotRead> {
    let first = topic.first;
    match after {
        Some(after) if after.0.saturating_add(1) < first.0 => Err(NotRead::Expired { first }),
        Some(after) => Ok(Offset(after.0.saturating_add(1))),
        None => Ok(first),
    }
}

/// The Change Notification, if it is one that was posted, with its Capability List. It was checked when it was taken. What was
/// fetched stands in no chain: the topic may have shown what was posted before.
fn changes(notification: &Notification) -> Option<(RawDocument, Option<String>)> {
    if notification.rule == Rule::Latest {
        return None;
    }
    let changes = xml::read_with(&notification.body, Options::PLAIN).ok()?.document;
    if changes.header.capability() != Some(&Capability::ChangeNotification) {
        return None;
    }
    let linked = changes.header.link(&Relation::Up).map(|link| link.href.clone());
    let up = linked.or_else(|| notification.links.resourcesync.clone());
    Some((changes, up))
}

/// 64 hexadecimal digits.
fn own_key(secret: &Secret) -> Secret {
    let purpose = Secret::new(PURPOSE).expect("a short text is a secret");
    let signature = SigningKey::new(SignatureMethod::Sha256, &purpose).sign(secret.as_bytes()).to_string();
    Secret::new(signature.split_once('=').map_or("", |(_, digits)| digits)).expect("64 digits are a secret")
}

fn is_soon(expires: Duration) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    expires >= now && expires <= now + LONGEST_PROOF
}
