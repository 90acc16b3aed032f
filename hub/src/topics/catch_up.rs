//! Catching up: reads the log of a topic again, as it was delivered or as a Change List.
//!
//! A Destination that was away or found a gap need not wait for the Source. It proves that it may read with the secret of a
//! subscription in force, or with a publisher's token for the topic.

use std::io::{self, Write};
use std::net::IpAddr;
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

use super::budget::{BodyBudget, BudgetExhausted, Reservation};
use crate::store::{ContentKind, Notification, Offset, Store, StoreError, SubscriptionKey, Topic, TopicId};

/// A page ends before the notification with which its notifications would exceed this, as they are held or as they are written; it
/// always has one. A Change List ends before the one that exceeds it as well, and everything that was read for it counts.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Notifications that are read for a Change List at most.
const MOST_READ: usize = 10_000;
/// Locks for Change Lists. Each topic has one, by its id.
const LOCKS: usize = 64;
/// How long a reader waits for memory, or for the lock of its topic.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);
/// How far in the future a signed query may end.
const LONGEST_PROOF: Duration = Duration::from_secs(3_600);
/// Queries are signed with a key of their own: the HMAC, with this, of the secret. A delivery is signed the other way round, so
/// that no body makes the hub compute it.
const PURPOSE: &str = "resync-hub catch-up";
/// What precedes the signature of a query.
const SIGNATURE: &str = "&signature=";

/// Writes a notification as it stands in a page.
pub type WriteNotification = fn(&Notification, &mut dyn Write) -> io::Result<()>;

/// Reads logs again.
#[derive(Clone, Debug)]
pub struct CatchUp {
    store: Arc<dyn Store>,
    budget: BodyBudget,
    /// One Change List of a topic is made at a time, since that reads and parses much.
    locks: Arc<[Mutex<()>; LOCKS]>,
}

/// A part of a topic's log.
#[derive(Debug)]
pub struct Page {
    /// The topic with the bounds of its log.
    pub topic: Topic,
    /// In the order of the log.
    pub notifications: Vec<Arc<Notification>>,
    /// How many bytes these take as they are written, with a byte between each two.
    pub written: usize,
    /// There is more after the last one.
    pub more: bool,
    /// The memory of the notifications.
    pub reservation: Reservation,
}

/// The changes of a topic as a Change List.
#[derive(Debug)]
pub struct List {
    /// XML.
    pub bytes: Vec<u8>,
    /// Their memory.
    pub reservation: Reservation,
}

/// Why nothing can be read. Every message says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum CatchUpError {
    /// Neither token nor signature, or not the right one.
    #[error(
        "reading notifications again needs Authorization: Bearer with a token for the topic, or a query with subscription, expires (Unix time, at most an hour ahead) and, last, signature: the HMAC of the query before &signature= with a key made from the subscription's secret, written like X-Hub-Signature; the hub's documentation on the protocol has an example"
    )]
    NoProof,
    /// Nobody ever published to this topic or subscribed.
    #[error("the hub knows no such topic")]
    UnknownTopic,
    /// The log no longer holds what comes next.
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
    /// The notifications were accepted, but together they make no valid list.
    #[error("the Change Notifications make no valid Change List:\n{0}")]
    List(Violations),
    /// The memory for pages is used up.
    #[error(transparent)]
    Busy(#[from] BudgetExhausted),
    /// Other Change Lists of this topic are being made.
    #[error("the hub is making other Change Lists of this topic: try again later")]
    TopicBusy,
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CatchUp {
    /// `budget` limits the memory of pages.
    pub fn new(store: Arc<dyn Store>, budget: BodyBudget) -> Self {
        Self { store, budget, locks: Arc::new(std::array::from_fn(|_| Mutex::default())) }
    }

    /// Whether a query is signed with the secret of a subscription in force. `query` is the query as it was sent.
    ///
    /// # Errors
    /// [`CatchUpError::NoProof`], whatever it is that is missing: the answer must not tell who is subscribed.
    pub async fn check_proof(&self, query: &str, topic: &TopicUrl) -> Result<(), CatchUpError> {
        let (signed, signature) = query.rsplit_once(SIGNATURE).ok_or(CatchUpError::NoProof)?;
        let value = |wanted: &str| {
            let mut pairs = url::form_urlencoded::parse(signed.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
        };
        let expires = value("expires").and_then(|text| text.parse().ok()).ok_or(CatchUpError::NoProof)?;
        if !is_soon(Duration::from_secs(expires)) {
            return Err(CatchUpError::NoProof);
        }
        let key = value("subscription")
            .and_then(|text| SubscriptionKey::parse(&text))
            .ok_or(CatchUpError::NoProof)?;
        let in_force = self.store.subscription_of(key).await?.filter(|subscription| {
            subscription.topic_url == *topic && subscription.lease_end > self.store.now()
        });
        let secret = in_force.and_then(|subscription| subscription.secret).ok_or(CatchUpError::NoProof)?;
        // A form may write the = of the signature as %3D.
        let signature =
            Signature::parse(&signature.replace("%3D", "=")).map_err(|_| CatchUpError::NoProof)?;
        signature.verify(&own_key(&secret), signed.as_bytes()).map_err(|_| CatchUpError::NoProof)
    }

    /// At most `limit` notifications after this offset; without one, from the oldest that the log holds. `write` tells how long
    /// they become.
    ///
    /// # Errors
    /// [`CatchUpError`]
    pub async fn page(
        &self,
        topic: &TopicUrl,
        after: Option<Offset>,
        limit: usize,
        write: WriteNotification,
    ) -> Result<Page, CatchUpError> {
        let url = topic;
        let topic = self.store.topic(url).await?.ok_or(CatchUpError::UnknownTopic)?;
        let mut next = beginning(&topic, after)?;
        let (mut read, mut bytes) = (Vec::new(), 0);
        let mut reservation = self.budget.reserve();
        while next <= topic.head && read.len() < limit && bytes < PAGE_BYTES {
            let Some(notification) = self.store.notification_from(topic.id, next).await? else {
                // A restore skipped the offsets that are left, and nothing was posted since.
                next = topic.head.next();
                break;
            };
            if read.is_empty() && after.is_some() && notification.offset > next {
                // Retention may have removed it a moment ago. If not, a restore skipped these offsets.
                let first = self.store.topic(url).await?.map_or(notification.offset, |topic| topic.first);
                if first > next {
                    return Err(CatchUpError::Expired { first: notification.offset });
                }
            }
            let weight = weight(&notification);
            if bytes + weight > PAGE_BYTES && !read.is_empty() {
                break;
            }
            bytes += weight;
            reservation.grow_to_or_all(bytes, MEMORY_TIMEOUT).await?;
            next = notification.offset.next();
            read.push(notification);
        }
        let count = read.len();
        let (notifications, written) = compute(move || fitting(read, write)).await;
        if let Some(last) = notifications.last().filter(|_| notifications.len() < count) {
            next = last.offset.next();
            reservation.shrink_to(held(&notifications));
        }
        Ok(Page { more: next <= topic.head, topic, notifications, written, reservation })
    }

    /// The changes after this offset as a Change List: of the newest Change Notifications, as many as follow each other without a gap.
    /// Its `from` says how far back that is, so that it claims nothing that no notification listed (CN-008).
    ///
    /// It counts as held by `client`.
    ///
    /// # Errors
    /// [`CatchUpError`]
    pub async fn change_list(
        &self,
        topic: &TopicUrl,
        after: Option<Offset>,
        client: IpAddr,
    ) -> Result<List, CatchUpError> {
        let topic = self.store.topic(topic).await?.ok_or(CatchUpError::UnknownTopic)?;
        let chain = self.store.chain(topic.id).await?.ok_or(CatchUpError::NoChanges)?;
        let oldest = beginning(&topic, after)?;
        let _lock = self.lock(topic.id).await?;
        let mut run = Run { from: chain.until, until: chain.until, up: None, parts: Vec::new() };
        let (mut bytes, mut kept, mut entries) = (0, 0, 0);
        let mut reservation = self.budget.reserve();
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
                reservation.grow_to_or_all(kept, MEMORY_TIMEOUT).await?;
            }
            offset = Offset(offset.0 - 1);
        }
        let bytes = compute(|| run.into_list().map(|list| xml::write(&list))).await?;
        reservation.hold_for(client, bytes.len())?;
        reservation.grow_to_or_all(bytes.len(), MEMORY_TIMEOUT).await?;
        reservation.shrink_to(bytes.len());
        Ok(List { bytes, reservation })
    }

    async fn lock(&self, topic: TopicId) -> Result<MutexGuard<'_, ()>, CatchUpError> {
        let index = usize::try_from(topic.0 % LOCKS as u64).unwrap_or_default();
        timeout(MEMORY_TIMEOUT, self.locks[index].lock()).await.map_err(|_| CatchUpError::TopicBusy)
    }
}

impl Page {
    /// The page as `write` writes it with these notifications, with the memory that it takes from now on. Its length is known before:
    /// that of the notifications, and of the page without them. It counts as held by `client`.
    ///
    /// # Errors
    /// [`CatchUpError::Busy`], before anything is written.
    pub async fn encode(
        mut self,
        client: IpAddr,
        write: impl Fn(&Self, &[Arc<Notification>], &mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<(Vec<u8>, Reservation), CatchUpError> {
        let length = self.written + count(|counted| write(&self, &[], counted));
        self.reservation.hold_for(client, length)?;
        self.reservation.grow_to_or_all(held(&self.notifications) + length, MEMORY_TIMEOUT).await?;
        compute(move || {
            let mut bytes = Vec::with_capacity(length);
            write(&self, &self.notifications, &mut bytes)
                .map_err(|error| StoreError::Read(error.to_string()))?;
            let Self { notifications, mut reservation, .. } = self;
            drop(notifications);
            reservation.shrink_to(bytes.len());
            Ok((bytes, reservation))
        })
        .await
    }
}

/// Counts what is written.
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

/// How many bytes this writes.
fn count(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> usize {
    let mut counted = Counted(0);
    // A count does not fail.
    let _ = write(&mut counted);
    counted.0
}

/// The notifications of a page, the first of these, and how many bytes they take as they are written, with a byte between each two. Escaped
/// text may take six times as much as it is held with.
fn fitting(mut read: Vec<Arc<Notification>>, write: WriteNotification) -> (Vec<Arc<Notification>>, usize) {
    let (mut fit, mut written) = (0, 0);
    for notification in &read {
        let with_it = written + usize::from(fit > 0) + count(|counted| write(notification, counted));
        if with_it > PAGE_BYTES && fit > 0 {
            break;
        }
        written = with_it;
        fit += 1;
    }
    read.truncate(fit);
    (read, written)
}

/// The memory of notifications.
fn held(notifications: &[Arc<Notification>]) -> usize {
    notifications.iter().map(|notification| weight(notification)).sum()
}

fn weight(notification: &Notification) -> usize {
    usize::try_from(notification.weight()).unwrap_or(usize::MAX)
}

/// Runs work that takes long on a blocking thread.
async fn compute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // It is never aborted, so that only a panic ends it early.
    spawn_blocking(work).await.unwrap_or_else(|fault| std::panic::resume_unwind(fault.into_panic()))
}

/// Change Notifications that follow each other, collected from the newest to the oldest.
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

    fn into_list(self) -> Result<Document, CatchUpError> {
        let up = self.up.ok_or(CatchUpError::NoCapabilityList)?;
        let mut header = Header::new(Root::UrlSet, Capability::ChangeList);
        header.metadata.from = Some(self.from);
        header.metadata.until = Some(self.until);
        header.links.push(Link::new(Relation::Up, up));
        let entries = self.parts.into_iter().rev().flat_map(|part| part.entries).collect();
        Document::try_from(RawDocument { header, entries }).map_err(CatchUpError::List)
    }
}

/// Where reading begins.
fn beginning(topic: &Topic, after: Option<Offset>) -> Result<Offset, CatchUpError> {
    let first = topic.first;
    match after {
        Some(after) if after.0.saturating_add(1) < first.0 => Err(CatchUpError::Expired { first }),
        Some(after) => Ok(Offset(after.0.saturating_add(1))),
        None => Ok(first),
    }
}

/// The document and its Capability List, if this is a posted Change Notification; it was checked when it was accepted. What was
/// fetched does not count: the topic may have shown what was posted before.
fn changes(notification: &Notification) -> Option<(RawDocument, Option<String>)> {
    if notification.kind == ContentKind::Fetched {
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
