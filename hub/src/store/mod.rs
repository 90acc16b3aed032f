//! Storage: what the hub needs to remember, as one small trait. No engine's type leaves this folder.
//!
//! The trait speaks of notifications, subscriptions, watermarks and laggards, so that an embedded key-value engine and a
//! replicated database can both stand behind it. Every method that changes something returns only when the change is
//! durable: what was acknowledged survives `kill -9` and, as far as the engine keeps its promise, a power cut.
//!
//! The unit of ownership is the *shard* (a hash of the callback's origin): whoever claims a shard gets an epoch, and a
//! checkpoint that carries an older epoch is refused, so a paused owner cannot write over its successor.

mod backup;
mod embedded;
mod error;
mod findings;
mod keyring;
mod meters;
mod records;
mod verified;

#[cfg(test)]
mod conformance;

use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use tokio::sync::mpsc;

pub use backup::{BESIDE, BackupError, Copied, Credentials, Header};
#[cfg(test)]
pub(crate) use conformance::{posted, subscribe};
#[cfg(test)]
pub(crate) use embedded::{damage_log, damage_subscription, damage_subscription_index};
pub use error::StoreError;
pub use findings::{Fault, Findings, Mended, Repaired};
pub use keyring::{KeyId, Keyring, KeyringError};
pub use meters::Meters;
pub use records::{
    Account, Accounted, Activation, Ahead, Appended, Chain, ChainBreak, Checkpoint, Denial, DenialId, Ended,
    Epoch, FailureClass, Founded, Gap, Intent, Interval, Keep, Laggard, Leap, Missed, NewDenial,
    NewNotification, NewRequest, Notification, NotificationLinks, Offset, Pair, Payer, PendingRequest, Ping,
    PingId, Recipient, Refusal, Replayed, RequestId, Rule, Shard, ShardState, Shares, Skip, Slot, Standing,
    StoreEvent, Subscription, SubscriptionId, Sweep, Topic, TopicId, Trimmed, Uptime, Usage, Validators,
    Watermark,
};
pub use verified::{Confirmation, NotConfirmed, VerifiedSubscription, VerifiedUnsubscription};

pub use crate::config::Engine;
use crate::trace_context::TraceContext;

/// The file in the data folder that says what made the store; it belongs to the hub's user, as the folder itself need not.
pub const MARK: &str = "engine";

/// The result of every storage operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Opens (or creates) the embedded store in `directory`. Subscribers' secrets are written with the first of `keys`, and read
/// with all of them; those that are kept otherwise stay so until [`Store::rotate_secrets`]. While the disk has fewer than
/// `reserve` bytes free, nothing new is taken in.
///
/// # Errors
/// [`StoreError::Locked`] when another process has it open, [`StoreError::Format`] when a newer version wrote it,
/// [`StoreError::OtherEngine`] when it was made by the other engine, [`StoreError::SecretsKey`] when a key that its secrets need
/// is not given.
pub fn open(engine: Engine, directory: &Path, keys: Keyring, reserve: u64) -> Result<Arc<dyn Store>> {
    embedded::open(engine, directory, keys, reserve)
}

/// Looks at every record of the store in `directory`, which no hub may be using. No record is changed; opening an engine finishes
/// what a crash has left of its files.
///
/// # Errors
/// As [`open`], and [`StoreError::Read`] where there is no store.
pub fn check(engine: Engine, directory: &Path, keys: &Keyring) -> Result<Findings> {
    embedded::check(engine, directory, keys)
}

/// Mends the store in `directory`, which no hub may be using: records that cannot be read are removed, what follows from others is made
/// anew, and what is lost by that is said. A store that is whole is not changed.
///
/// # Errors
/// As [`check`]; what the engine itself cannot read is not mended.
pub fn repair(engine: Engine, directory: &Path, keys: &Keyring) -> Result<Repaired> {
    embedded::repair(engine, directory, keys)
}

/// Writes a backup of the store in `directory`, which no hub may be using, and of the files `beside` it that exist. It needs no
/// keys: secrets stay as they are kept.
///
/// # Errors
/// [`BackupError`]; [`StoreError::Locked`] where a hub is using it, which can be asked itself ([`Store::back_up`]).
pub fn back_up(
    engine: Engine,
    directory: &Path,
    beside: &[PathBuf],
    out: &mut dyn Write,
) -> std::result::Result<Copied, BackupError> {
    embedded::back_up(engine, directory, beside, out)
}

/// Reads a whole backup and restores nothing.
///
/// # Errors
/// [`BackupError`] when it could not be restored.
pub fn verify(backup: impl Read) -> std::result::Result<(Header, Copied), BackupError> {
    embedded::verify(backup)
}

/// Makes the store in `directory` anew from a backup, whatever engine that comes from. The whole backup is read before anything is
/// written, and again while it is written. A restore that was not finished leaves a folder that no hub opens. Beside the store it makes
/// files of [`BESIDE`] only.
///
/// # Errors
/// [`BackupError`]; [`BackupError::NotEmpty`] where there is something already, [`StoreError::SecretsKey`] where a key that the
/// secrets need is not given.
pub fn restore(
    engine: Engine,
    directory: &Path,
    keys: &Keyring,
    credentials: Credentials,
    backup: &Path,
) -> std::result::Result<(Header, Findings), BackupError> {
    embedded::restore(engine, directory, (keys, credentials), backup)
}

/// The same from what can be read once only. A part of a backup leaves nothing.
///
/// # Errors
/// As [`restore`].
pub fn restore_stream(
    engine: Engine,
    directory: &Path,
    keys: &Keyring,
    credentials: Credentials,
    backup: impl Read,
) -> std::result::Result<(Header, Findings), BackupError> {
    embedded::restore_stream(engine, directory, (keys, credentials), backup)
}

/// What the hub needs of its storage.
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// How many shards the subscriptions are divided into; fixed when the store is made.
    fn shards(&self) -> u16;

    /// What happens from now on, in the order in which it became durable. Each receiver gets every event.
    ///
    /// A reader that calls this before [`Store::load_shard`] misses nothing; it may see an event that the loaded state
    /// already holds, so events must be applied idempotently.
    fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent>;

    /// Whether the store takes writes.
    ///
    /// # Errors
    /// [`StoreError::Write`] when the last write failed and [`StoreError::Full`] when the disk nearly is: nothing is
    /// acknowledged until that is over, which the store notices by itself. [`StoreError::Busy`] when a write takes too long.
    fn health(&self) -> Result<()>;

    /// Returns when the writer has come to what waits now, whether the disk takes it or not.
    ///
    /// # Errors
    /// [`StoreError::Closed`] when nothing will be written any more.
    async fn answers(&self) -> Result<()>;

    /// Waits until the store has died by a fault of ours: it will take nothing any more, whatever is done about the disk.
    async fn broken(&self);

    /// What the store holds. Asks nothing of the disk.
    fn usage(&self) -> Usage;

    /// What the store measures.
    fn meters(&self) -> Meters;

    // Topics and their logs.

    /// The topic with this URL, if anybody published to it or subscribed and retention has left anything of that.
    async fn topic(&self, url: &TopicUrl) -> Result<Option<Topic>>;
    /// Every topic with the bounds of its log.
    async fn topics(&self) -> Result<Vec<Topic>>;
    /// Appends to the topic's log, which is made if need be; returns once the record is durable.
    ///
    /// After [`StoreError::Write`] nobody knows whether the notification is in the log; after any other error it is not.
    ///
    /// A notification whose idempotency key was seen on this topic within `remember` is not appended again: the first one's
    /// identity is returned. A key that was used for another body within that time is refused.
    async fn append(&self, notification: NewNotification, remember: Duration) -> Result<Appended>;
    /// The first notification at or after this offset that the log still holds; `None` when there is none yet.
    async fn notification_from(&self, topic: TopicId, offset: Offset) -> Result<Option<Arc<Notification>>>;
    /// The first offset whose notification came in at this moment or later, by the clock as it was then: one that was set back
    /// may have marked later ones as earlier. After the last offset when there is none. Reads the log from its beginning.
    async fn first_since(&self, topic: TopicId, since: DateTime) -> Result<Offset>;
    /// Forgets notifications received before `older_than`, then those that have to make room until the logs weigh no more than the
    /// shares allow. Of topics that a publisher speaks for these are the oldest of whichever topic's log weighs most, first of topics
    /// without subscriptions; the newest notification of each topic with a subscription is kept. Of all others see
    /// [`Store::make_room`]. A topic without one of which nothing is left, nor any
    /// idempotency key, is forgotten unless it is paused: should it come back, it has another identity and its log begins behind
    /// the last offset of all that were forgotten. Gaps that were found before `older_than` are forgotten too.
    async fn trim(&self, older_than: DateTime, shares: Shares) -> Result<Trimmed>;
    /// Forgets notifications of topics that no publisher speaks for, if these take more than their share: the oldest of the topic that
    /// takes most, of the host that takes most, on the network that takes most. Where nothing else is left, the newest of a topic
    /// goes too.
    async fn make_room(&self, shares: Shares) -> Result<Trimmed>;
    /// When the hub was up, as it was written down last; `None` in a store that never knew.
    async fn uptime(&self) -> Result<Option<Uptime>>;
    /// Writes down when the hub was up.
    async fn put_uptime(&self, uptime: Uptime) -> Result<()>;

    /// How the topic's Change Notifications follow each other; `None` when there never was one.
    async fn chain(&self, topic: TopicId) -> Result<Option<Chain>>;
    /// How far the topic's subscriptions are with this notification, as the last checkpoints have it. Takes time in
    /// proportion to the number of subscriptions.
    async fn standing(&self, topic: TopicId, offset: Offset) -> Result<Standing>;

    // Pings that were acknowledged and not yet acted on.

    /// What the topic said about this version when it was fetched last; `None` when that was another version, or never.
    async fn validators(&self, topic: TopicId, version: Offset) -> Result<Option<Validators>>;
    /// Remembers what the topic says now about this version, which an earlier fetch appended.
    async fn put_validators(&self, topic: TopicId, version: Offset, validators: Validators) -> Result<()>;

    /// Remembers that this topic has to be fetched, and in which trace; replaces an older ping of the same topic, but for the trace of
    /// that where the new one has none.
    async fn put_ping(&self, topic: TopicUrl, trace: Option<TraceContext>) -> Result<Ping>;
    /// Forgets a ping that was served. One that was replaced meanwhile is left alone.
    async fn remove_ping(&self, ping: &Ping) -> Result<()>;
    /// All that wait; read at start.
    async fn pings(&self) -> Result<Vec<Ping>>;

    // Requests that were acknowledged and not yet verified.

    /// Remembers a request before it is acknowledged. It replaces an older one of the same client for the same topic and callback
    /// (D-17), and none of others: they may not mean what its subscriber means.
    async fn put_request(&self, request: NewRequest) -> Result<PendingRequest>;
    /// One that waits, as long as it does.
    async fn request(&self, id: RequestId) -> Result<Option<PendingRequest>>;
    /// Forgets a request that failed verification. One that was replaced meanwhile is left alone.
    async fn remove_request(&self, request: &PendingRequest) -> Result<()>;
    /// The identities of all that wait, oldest first; read at start.
    async fn request_ids(&self) -> Result<Vec<RequestId>>;
    /// All that wait, oldest first.
    async fn requests(&self) -> Result<Vec<PendingRequest>>;

    // Denials that were acknowledged and not yet told.

    /// Ends the subscription of the pair and forgets what waits for it, and remembers that the callback has to be told. `None`
    /// when there is neither, or when the request that is denied no longer waits, confirmed or not: nothing was changed. Denying a request leaves
    /// a subscription in force as it is (W-062): the request is forgotten, and `None` says that there is nothing to tell.
    async fn deny(&self, denial: NewDenial) -> Result<Option<Denial>>;
    /// Forgets a denial that was told. One that was replaced meanwhile is left alone.
    async fn remove_denial(&self, denial: &Denial) -> Result<()>;
    /// That of the pair which waits to be told.
    async fn denial(&self, pair: Pair) -> Result<Option<Denial>>;
    /// The pairs of all that wait, those of the oldest first; read at start.
    async fn denied(&self) -> Result<Vec<Pair>>;
    /// All that wait, oldest first.
    async fn denials(&self) -> Result<Vec<Denial>>;

    // Subscriptions.

    /// What this client has the hub keep, and all clients together, and whether a subscription to this topic at this callback would
    /// bring a topic or a callback origin that the hub does not know. Asks nothing of the disk.
    fn accounted(&self, client: Option<IpAddr>, topic: &TopicUrl, callback: &CallbackUrl) -> Accounted;
    /// Puts a verified subscription in force: new, or in the place of the one with the same topic and callback, which keeps
    /// its identity and its cursor (W-061). A new one starts at the offset that the topic's log has at this moment.
    ///
    /// Only a request that still waits has a say: one that was replaced, removed or applied already changes nothing (D-17).
    async fn activate(&self, verified: VerifiedSubscription) -> Result<Activation>;
    /// Ends the subscription that a verified unsubscribe request names; unknown ones are no error (D-07).
    async fn deactivate(&self, verified: VerifiedUnsubscription) -> Result<Activation>;
    /// Ends a subscription for another reason. Unknown ones are no error. One that may have been renewed after the caller had seen
    /// its end stays: one that has [`Ended::Expired`] ends only if its lease is over by the wall clock, and one that is
    /// [`Ended::Gone`] only if its lease is the one under which it was asked last.
    async fn end(&self, shard: Shard, topic: TopicId, id: SubscriptionId, why: Ended) -> Result<()>;
    /// Ends a subscription whose record cannot be read, with what leads to it and a request that waits for its pair: who it was
    /// nobody knows any more. Returns whether there was one: any other stays as it is. Looks through the whole index.
    async fn end_unreadable(&self, shard: Shard, topic: TopicId, id: SubscriptionId) -> Result<bool>;
    /// The whole record of one subscription.
    async fn subscription(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Option<Subscription>>;
    /// To whom a delivery goes, and what will be asked for after that.
    async fn recipient(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
        ahead: Ahead,
        keep: Keep,
    ) -> Result<Option<Arc<Recipient>>>;
    /// The subscription of this pair.
    async fn find_subscription(
        &self,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<Option<Subscription>> {
        self.subscription_of(Pair::of(topic, callback)).await
    }
    /// The same by the hash of the pair, for those who do not name a callback.
    async fn subscription_of(&self, pair: Pair) -> Result<Option<Subscription>>;

    /// The subscriptions of a shard in the order of topics and ids, also those whose records cannot be read, for whoever only looks:
    /// commits pass while they are listed.
    async fn ids(&self, shard: Shard) -> Result<Vec<(TopicId, SubscriptionId)>>;

    /// At most `limit` subscriptions of a shard, or of one topic in it, in the order of topics and ids, beginning after this one.
    async fn slots_after(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Slot>>;

    // Secrets.

    /// From now on secrets are written with the first of these keys. Those that are kept otherwise are rewritten in bounded
    /// steps, between which everything else goes on; returns how many. What a crash interrupts is finished by the next call.
    ///
    /// # Errors
    /// [`StoreError::SecretsKey`] when a key that is still needed is not among them; then nothing has changed.
    async fn rotate_secrets(&self, keys: Keyring) -> Result<u64>;

    // Copies.

    /// Writes a backup of everything as of one moment after this was called, while everything else goes on, and of the files
    /// `beside` the store that exist.
    async fn back_up(
        &self,
        beside: Vec<PathBuf>,
        out: Box<dyn Write + Send>,
    ) -> std::result::Result<Copied, BackupError>;

    // The state of delivery.

    /// Takes the shard over: every earlier epoch of it is refused from now on.
    async fn claim(&self, shard: Shard) -> Result<Epoch>;
    /// Everything that a shard's owner needs to go on where the last one stopped.
    async fn load_shard(&self, shard: Shard) -> Result<ShardState>;
    /// Saves the progress of delivery, all of it or nothing. Laggards of a subscription that has ended are left out. Where a
    /// replay covers thousands of skips, the last of these are forgotten in steps of their own, before this returns: after a crash between two steps some are still
    /// listed, although what they are about is delivered again.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when `epoch` is not the newest of this shard.
    async fn checkpoint(&self, shard: Shard, epoch: Epoch, checkpoint: Checkpoint) -> Result<()>;
    /// Notifications that were given up for a subscription of this shard, at most `limit`, in the order of topics, offsets and
    /// subscriptions, beginning after this one.
    async fn skips(
        &self,
        shard: Shard,
        after: Option<(TopicId, Offset, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Skip>>;
    /// Notifications that subscriptions have lost, at most `limit`, in the order in which that was found, beginning after this
    /// one. They are forgotten with what came in at that time.
    async fn gaps(&self, after: Option<Gap>, limit: usize) -> Result<Vec<Gap>>;
    /// What was given up for one subscription, and what it has lost, the newest first; looks at the newest `limit` records of
    /// either kind, of all subscriptions, and at none from before it began.
    async fn missed(&self, shard: Shard, of: &Subscription, limit: usize) -> Result<Missed>;
    /// Delivers nothing of this topic until it is resumed. Its log goes on, and so does retention. Returns whether the topic exists:
    /// one that was forgotten cannot be paused.
    async fn pause(&self, topic: TopicId) -> Result<bool>;
    /// Lets deliveries of this topic go on.
    async fn resume(&self, topic: TopicId) -> Result<()>;
    /// All topics that are paused.
    async fn paused(&self) -> Result<Vec<TopicId>>;
}
