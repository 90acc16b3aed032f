//! The embedded store: one writer thread over an ordered key-value engine.
//!
//! | file | subject |
//! |---|---|
//! | `engine`, `fjall`, `sled` | what an engine must do, and the two that do it |
//! | `directory`, `journals` | lock and format of the data directory; what crashes leave of fjall's journals |
//! | `key`, `layout`, `codec` | keys; fields of each kind of record; their bytes |
//! | `memory`, `accounts`, `cache`, `shared`, `standing` | what is held in memory, and reading |
//! | `weights` | what the logs of earlier versions weigh |
//! | `transaction`, `writer` | commands, and the thread that commits them in groups |
//! | `check` | whether every record can be read, and agrees with the others |
//! | `repair` | mending what `check` finds |
//! | `tap`, `copy`, `restore` | backups: of a store that changes meanwhile, of one that is closed, and back |
//! | `room` | how much the disk can still take |

mod accounts;
mod cache;
mod check;
mod codec;
mod copy;
mod directory;
mod engine;
mod fjall;
mod journals;
mod key;
mod layout;
mod memory;
mod missed;
mod repair;
mod restore;
mod room;
mod shared;
#[cfg(feature = "sled")]
mod sled;
mod standing;
mod tap;
mod transaction;
mod weights;
mod writer;

#[cfg(test)]
mod fairness;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use resync_core::lock::FileLock;
use resync_core::websub::{CallbackUrl, TopicUrl};
use tokio::sync::{Semaphore, mpsc};

pub(super) use self::check::check;
pub(super) use self::copy::back_up;
use self::engine::{Batch, Engine, Keys, Space};
use self::layout::{Address, Encryption, Foundation, Stated};
use self::memory::Ledger;
pub(super) use self::repair::repair;
pub(super) use self::restore::{restore, restore_stream, verify};
use self::room::Room;
use self::shared::Shared;
#[cfg(test)]
pub(crate) use self::testing::{damage_log, damage_subscription, damage_subscription_index};
use self::transaction::Slice;
use self::writer::{Kind, Writer};
use super::{
    Accounted, Activation, Ahead, Appended, BackupError, Chain, Checkpoint, Copied, Denial, Ended, Epoch,
    Gap, Keep, Keyring, Meters, Missed, NewDenial, NewNotification, NewRequest, Notification, Offset, Pair,
    Payer, PendingRequest, Ping, Recipient, RequestId, Result, Shard, ShardState, Shares, Skip, Slot,
    Standing, Store, StoreError, StoreEvent, Subscription, SubscriptionId, Topic, TopicId, Trimmed, Uptime,
    Usage, Validators,
};
use crate::store::{VerifiedSubscription, VerifiedUnsubscription};
use crate::trace_context::TraceContext;

/// Shards of a new store. Enough to divide the work among the cores of a large machine, few enough to scan them all.
const SHARDS: u16 = 16;
/// Records that retention or a replay removes in one command, so that publishers wait for milliseconds at most. In tests so few that
/// whatever is removed takes several.
const SLICE: usize = if cfg!(test) { 3 } else { 1024 };
/// Topics that are forgotten in one command, each with records in every shard.
const IDLE: usize = 32;
/// Records that are looked at in one command when secrets are rewritten.
const RESEALED: usize = 1024;
/// Bytes of what anybody's pings have fetched that wait for the writer at once, and so come into one commit. What is larger waits alone: a
/// post waits for the one that is being written and the one behind it, not for as many as there are.
const STRANGE_BYTES: u32 = 256 * 1024;
/// About how many bytes a small command writes, beside URLs that strangers chose.
const SMALL: usize = 512;

/// Opens or makes the store in `directory`.
pub(super) fn open(
    engine: super::Engine,
    directory: &Path,
    keys: Keyring,
    reserve: u64,
) -> Result<Arc<dyn Store>> {
    let lock = directory::take(engine, directory)?;
    let opened = open_engine(engine, directory)?;
    directory::migrate(engine, directory)?;
    directory::settle(engine, directory)?;
    let store = Embedded::over(opened, keys, Some(lock), Room::on_disk(directory, reserve))?;
    tracing::info!(
        engine = engine.name(),
        directory = %directory.display(),
        topics = store.shared.topics().len(),
        bytes = store.shared.engine.disk_size()?,
        "store opened"
    );
    Ok(Arc::new(store))
}

/// Opens what is in `directory`, which no hub may be using, until the lock is dropped. What is no store is not made one.
fn open_stopped(engine: super::Engine, directory: &Path) -> Result<(FileLock, Box<dyn Engine>)> {
    if !directory.join(engine.name()).is_dir() {
        let (name, directory) = (engine.name(), directory.display());
        return Err(StoreError::Read(format!("there is no store of engine {name} in {directory}")));
    }
    let lock = directory::take(engine, directory)?;
    Ok((lock, open_engine(engine, directory)?))
}

fn open_engine(engine: super::Engine, directory: &Path) -> Result<Box<dyn Engine>> {
    let data = directory.join(engine.name());
    Ok(match engine {
        super::Engine::Fjall => Box::new(fjall::Fjall::open(&data)?),
        #[cfg(feature = "sled")]
        super::Engine::Sled => Box::new(sled::Sled::open(&data)?),
    })
}

#[derive(Debug)]
struct Embedded {
    /// First, so that it ends before the engine closes.
    writer: Writer,
    shared: Arc<Shared>,
    shards: u16,
    /// Held while keys change: one change at a time.
    changing_keys: tokio::sync::Mutex<()>,
    /// Bytes of what anybody's pings have fetched that may wait for the writer.
    strange_bytes: Semaphore,
}

impl Embedded {
    fn over(engine: Box<dyn Engine>, keys: Keyring, lock: Option<FileLock>, room: Room) -> Result<Self> {
        let Foundation { shards } = match memory::foundation(engine.as_ref())? {
            Some(foundation) => foundation,
            None => found(engine.as_ref(), &keys)?,
        };
        prepare_encryption(engine.as_ref(), &keys)?;
        weights::weigh(engine.as_ref(), &keys)?;
        let ledger = Ledger::load(engine.as_ref(), &keys, shards)?;
        let shared = Arc::new(Shared::new(engine, keys, shards, lock)?);
        let writer = Writer::start(shared.clone(), ledger, shards, room)?;
        let strange_bytes = Semaphore::new(STRANGE_BYTES as usize);
        Ok(Self { writer, shared, shards, changing_keys: tokio::sync::Mutex::default(), strange_bytes })
    }

    async fn note_encryption(&self, encryption: Encryption) -> Result<()> {
        let note = move |transaction: &mut transaction::Transaction<'_>| {
            transaction.set_encryption(&encryption);
            Ok(())
        };
        self.writer.run(Kind::Essential, SMALL, note).await
    }

    /// Repeats a command from where it says to go on, until there is no such place.
    async fn in_slices<F>(&self, command: F) -> Result<()>
    where
        F: Fn(&mut transaction::Transaction<'_>, Vec<u8>) -> Result<Option<Vec<u8>>> + Copy + Send + 'static,
    {
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            next = self.writer.run(Kind::Essential, SMALL, move |t| command(t, from)).await?;
        }
        Ok(())
    }

    /// Removes notifications from logs until there are no more to remove, and what was skipped of them. Each slice goes on with the aim
    /// of the one before.
    async fn remove_slices<F>(&self, remove: F) -> Result<Trimmed>
    where
        F: Fn(&mut transaction::Transaction<'_>, Option<u64>) -> Result<Slice> + Copy + Send + 'static,
    {
        let (mut trimmed, mut aim) = (Trimmed::default(), None);
        loop {
            let slice = self.writer.run(Kind::Essential, SMALL, move |t| remove(t, aim)).await?;
            aim = slice.aim;
            trimmed.notifications += slice.trimmed.notifications;
            trimmed.bytes += slice.trimmed.bytes;
            trimmed.early += slice.trimmed.early;
            self.forget_skips(slice.topics).await?;
            if !slice.more {
                return Ok(trimmed);
            }
        }
    }

    /// Forgets what was skipped of notifications that these logs no longer hold. It is looked for in every shard of each topic, which
    /// is too much for the writer; that removes what was found, of all topics together.
    async fn forget_skips(&self, firsts: BTreeMap<TopicId, Offset>) -> Result<()> {
        let (firsts, shards, mut next) = (Arc::new(firsts), self.shards, Some(Vec::new()));
        while let Some(from) = next {
            let firsts = Arc::clone(&firsts);
            let skips = self.read(move |shared| shared.skips_before(&firsts, shards, &from, SLICE)).await?;
            next = skips.last().filter(|_| skips.len() == SLICE).cloned();
            if !skips.is_empty() {
                let forget = move |transaction: &mut transaction::Transaction<'_>| {
                    transaction.forget_skips(skips);
                    Ok(())
                };
                self.writer.run(Kind::Essential, SMALL, forget).await?;
            }
        }
        Ok(())
    }

    /// Reads that may take long run where they hold up nobody.
    async fn read<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> Result<T> + Send + 'static,
    {
        let shared = self.shared.clone();
        let task = tokio::task::spawn_blocking(move || read(&shared));
        task.await.map_err(|error| StoreError::Read(error.to_string()))?
    }
}

fn found(engine: &dyn Engine, keys: &Keyring) -> Result<Foundation> {
    let foundation = Foundation { shards: SHARDS };
    let encryption = Encryption::wholly(keys);
    let mut batch = Batch::default();
    batch.put(Space::Meta, key::FOUNDATION.to_vec(), codec::seal(keys, key::FOUNDATION, &foundation));
    batch.put(Space::Meta, key::ENCRYPTION.to_vec(), codec::seal(keys, key::ENCRYPTION, &encryption));
    engine.commit(&batch)?;
    Ok(foundation)
}

/// Makes sure that every secret can be read with these keys, and notes the one that will be written with.
fn prepare_encryption(engine: &dyn Engine, keys: &Keyring) -> Result<()> {
    let encryption = memory::encryption(engine)?;
    let widened = widen(&encryption, keys)?;
    if widened != encryption {
        let mut batch = Batch::default();
        batch.put(Space::Meta, key::ENCRYPTION.to_vec(), codec::seal(keys, key::ENCRYPTION, &widened));
        engine.commit(&batch)?;
    }
    Ok(())
}

/// A store that was encrypted once is not opened for writing secrets as they are.
fn widen(encryption: &Encryption, keys: &Keyring) -> Result<Encryption> {
    match encryption.missing(keys).as_slice() {
        [] => Ok(encryption.widened(keys)),
        missing => Err(StoreError::SecretsKey { missing: missing.to_vec() }),
    }
}

#[async_trait]
impl Store for Embedded {
    fn shards(&self) -> u16 {
        self.shards
    }

    fn health(&self) -> Result<()> {
        self.shared.health()
    }

    async fn answers(&self) -> Result<()> {
        self.writer.answers().await
    }

    async fn broken(&self) {
        self.shared.broken().await;
    }

    fn usage(&self) -> Usage {
        self.shared.usage()
    }

    fn meters(&self) -> Meters {
        self.shared.meters.clone()
    }

    fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent> {
        self.shared.watch()
    }

    async fn topic(&self, url: &TopicUrl) -> Result<Option<Topic>> {
        let topics = self.shared.topics();
        Ok(topics.id(url).and_then(|id| topics.get(id)).map(|state| state.topic.clone()))
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        Ok(self.shared.topics().iter().map(|state| state.topic.clone()).collect())
    }

    async fn append(&self, notification: NewNotification, remember: Duration) -> Result<Appended> {
        let bytes = usize::try_from(notification.weight()).unwrap_or(usize::MAX);
        let _turn = match notification.payer {
            Payer::Strangers(_) => {
                let share = u32::try_from(bytes).map_or(STRANGE_BYTES, |bytes| bytes.min(STRANGE_BYTES));
                // Nobody closes it.
                self.strange_bytes.acquire_many(share).await.ok()
            }
            Payer::Publishers => None,
        };
        self.writer
            .run(Kind::Growing, bytes, move |transaction| transaction.append(notification, remember))
            .await
    }

    async fn notification_from(&self, topic: TopicId, offset: Offset) -> Result<Option<Arc<Notification>>> {
        let Some(found) = self.shared.first_from(topic, offset) else { return Ok(None) };
        if let Some(notification) = self.shared.cached_notification(topic, found) {
            return Ok(Some(notification));
        }
        // Until the reading is over, even where this caller goes away: two readers would have a copy each.
        let turn = self.shared.turn_to_read(topic, found).await;
        if let Some(failed) = &*turn {
            return Err(failed.clone());
        }
        if let Some(notification) = self.shared.cached_notification(topic, found) {
            return Ok(Some(notification));
        }
        self.read(move |shared| shared.read_in_turn(topic, found, turn)).await
    }

    async fn first_since(&self, topic: TopicId, since: DateTime) -> Result<Offset> {
        self.read(move |shared| shared.first_since(topic, since)).await
    }

    async fn trim(&self, older_than: DateTime, shares: Shares) -> Result<Trimmed> {
        let trimmed = self.remove_slices(move |t, aim| t.trim(older_than, shares, aim, SLICE)).await?;
        self.in_slices(move |t, from| t.forget_gaps(older_than, from, SLICE)).await?;
        let now = DateTime::now();
        self.in_slices(move |t, from| t.forget_idempotency(now, from, SLICE)).await?;
        for topics in self.shared.idle().chunks(IDLE).map(<[TopicId]>::to_vec) {
            self.writer.run(Kind::Essential, SMALL, move |t| t.forget_topics(&topics, SLICE)).await?;
        }
        Ok(trimmed)
    }

    async fn make_room(&self, shares: Shares) -> Result<Trimmed> {
        if self.shared.topics().taken().strangers <= shares.strangers {
            return Ok(Trimmed::default());
        }
        self.remove_slices(move |t, aim| t.make_room(shares, aim, SLICE)).await
    }

    async fn uptime(&self) -> Result<Option<Uptime>> {
        self.shared.get(key::UPTIME)
    }

    async fn put_uptime(&self, uptime: Uptime) -> Result<()> {
        self.writer
            .run(Kind::Essential, SMALL, move |transaction| {
                transaction.put_uptime(&uptime);
                Ok(())
            })
            .await
    }

    async fn chain(&self, topic: TopicId) -> Result<Option<Chain>> {
        self.shared.get(&key::topic(topic))
    }

    async fn standing(&self, topic: TopicId, offset: Offset) -> Result<Standing> {
        let shards = self.shards;
        self.read(move |shared| standing::standing(shared, shards, topic, offset)).await
    }

    async fn validators(&self, topic: TopicId, version: Offset) -> Result<Option<Validators>> {
        let known = self.shared.get::<Stated>(&key::topic(topic))?;
        Ok(known.filter(|known| known.version == version).map(|known| known.validators))
    }

    async fn put_validators(&self, topic: TopicId, version: Offset, validators: Validators) -> Result<()> {
        self.writer
            .run(Kind::Essential, SMALL, move |transaction| {
                transaction.put_validators(topic, version, validators);
                Ok(())
            })
            .await
    }

    async fn put_ping(&self, topic: TopicUrl, trace: Option<TraceContext>) -> Result<Ping> {
        let bytes = SMALL + topic.as_str().len();
        self.writer.run(Kind::Growing, bytes, move |transaction| Ok(transaction.put_ping(topic, trace))).await
    }

    async fn remove_ping(&self, ping: &Ping) -> Result<()> {
        let ping = ping.clone();
        self.writer.run(Kind::Essential, SMALL, move |transaction| transaction.remove_ping(&ping)).await
    }

    async fn pings(&self) -> Result<Vec<Ping>> {
        let mut pings: Vec<Ping> = self.read(|shared| shared.list(&Keys::all()).collect()).await?;
        pings.sort_by_key(|ping| ping.id);
        Ok(pings)
    }

    async fn put_request(&self, request: NewRequest) -> Result<PendingRequest> {
        let bytes = SMALL + request.topic.as_str().len() + request.callback.as_str().len();
        self.writer.run(Kind::Growing, bytes, move |transaction| Ok(transaction.put_request(request))).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<PendingRequest>> {
        self.shared.get(&key::request(id))
    }

    async fn remove_request(&self, request: &PendingRequest) -> Result<()> {
        let request = request.clone();
        self.writer
            .run(Kind::Essential, SMALL, move |transaction| {
                transaction.remove_request(&request);
                Ok(())
            })
            .await
    }

    async fn request_ids(&self) -> Result<Vec<RequestId>> {
        let id = |request: Result<PendingRequest>| request.map(|request| request.id);
        self.read(move |shared| shared.list(&Keys::all()).map(id).collect()).await
    }

    async fn requests(&self) -> Result<Vec<PendingRequest>> {
        self.read(|shared| shared.list(&Keys::all()).collect()).await
    }

    async fn deny(&self, denial: NewDenial) -> Result<Option<Denial>> {
        self.writer.run(Kind::Essential, SMALL, move |transaction| transaction.deny(denial)).await
    }

    async fn remove_denial(&self, denial: &Denial) -> Result<()> {
        let denial = denial.clone();
        self.writer.run(Kind::Essential, SMALL, move |transaction| transaction.remove_denial(&denial)).await
    }

    async fn denial(&self, pair: Pair) -> Result<Option<Denial>> {
        self.shared.get(pair.as_bytes())
    }

    async fn denied(&self) -> Result<Vec<Pair>> {
        let of = |denial: Result<Denial>| {
            denial.map(|denial| (denial.id, Pair::of(&denial.topic, &denial.callback)))
        };
        let read = self.read(move |shared| shared.list(&Keys::all()).map(of).collect::<Result<Vec<_>>>());
        let mut waiting = read.await?;
        waiting.sort_by_key(|(id, _)| *id);
        Ok(waiting.into_iter().map(|(_, pair)| pair).collect())
    }

    async fn denials(&self) -> Result<Vec<Denial>> {
        let mut denials: Vec<Denial> = self.read(|shared| shared.list(&Keys::all()).collect()).await?;
        denials.sort_by_key(|denial| denial.id);
        Ok(denials)
    }

    async fn activate(&self, verified: VerifiedSubscription) -> Result<Activation> {
        self.writer.run(Kind::Essential, SMALL, move |transaction| transaction.activate(&verified)).await
    }

    async fn deactivate(&self, verified: VerifiedUnsubscription) -> Result<Activation> {
        self.writer.run(Kind::Essential, SMALL, move |transaction| transaction.deactivate(&verified)).await
    }

    fn accounted(&self, client: Option<IpAddr>, topic: &TopicUrl, callback: &CallbackUrl) -> Accounted {
        self.shared.accounted(client, topic, callback)
    }

    async fn end(&self, shard: Shard, topic: TopicId, id: SubscriptionId, why: Ended) -> Result<()> {
        self.writer
            .run(Kind::Essential, SMALL, move |transaction| transaction.end(shard, topic, id, why))
            .await
    }

    async fn end_unreadable(&self, shard: Shard, topic: TopicId, id: SubscriptionId) -> Result<bool> {
        let address = Address { shard, topic, id };
        // Not in the transaction: publishers would wait for it.
        let pair = self.read(move |shared| shared.pair_at(address)).await?;
        self.writer
            .run(Kind::Essential, SMALL, move |transaction| transaction.end_unreadable(address, pair))
            .await
    }

    async fn subscription(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Option<Subscription>> {
        self.shared.get(&key::subscription(shard, topic, id))
    }

    async fn recipient(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
        ahead: Ahead,
        keep: Keep,
    ) -> Result<Option<Arc<Recipient>>> {
        // A few small records: handing them to another thread would take longer than reading them.
        self.shared.recipient(shard, topic, id, ahead, keep)
    }

    async fn ids(&self, shard: Shard) -> Result<Vec<(TopicId, SubscriptionId)>> {
        self.read(move |shared| shared.ids(shard)).await
    }

    async fn slots_after(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Slot>> {
        let mut range = Keys::prefix(match of {
            Some(topic) => key::shard_topic(shard, topic),
            None => key::shard(shard),
        });
        if let Some((topic, id)) = after {
            range.from =
                range.from.max(key::subscription(shard, topic, SubscriptionId(id.0.saturating_add(1))));
        }
        self.read(move |shared| shared.slots_in(&range, limit)).await
    }

    async fn subscription_of(&self, pair: Pair) -> Result<Option<Subscription>> {
        self.shared.subscription_of(pair)
    }

    async fn claim(&self, shard: Shard) -> Result<Epoch> {
        self.writer.run(Kind::Essential, SMALL, move |transaction| Ok(transaction.claim(shard))).await
    }

    async fn load_shard(&self, shard: Shard) -> Result<ShardState> {
        self.read(move |shared| shared.load_shard(shard)).await
    }

    async fn checkpoint(&self, shard: Shard, epoch: Epoch, checkpoint: Checkpoint) -> Result<()> {
        let Checkpoint { watermarks, laggards, skips, gaps, .. } = &checkpoint;
        let records = watermarks.len() + laggards.len() + skips.len() + gaps.len();
        let progress = Arc::new(checkpoint);
        let saved = Arc::clone(&progress);
        let mut left = self
            .writer
            .run(Kind::Essential, SMALL + records * 64, move |t| t.checkpoint(shard, epoch, &saved, SLICE))
            .await?;
        while let Some((replayed, from)) = left.pop() {
            let saved = Arc::clone(&progress);
            let next = self
                .writer
                .run(Kind::Essential, SMALL, move |t| {
                    t.forget_replayed((shard, epoch), &saved, &replayed, from, SLICE)
                })
                .await?;
            left.extend(next.map(|next| (replayed, next)));
        }
        Ok(())
    }

    async fn rotate_secrets(&self, keys: Keyring) -> Result<u64> {
        let _changing = self.changing_keys.lock().await;
        let encryption = self.read(|shared| memory::encryption(shared.engine.as_ref())).await?;
        let widened = widen(&encryption, &keys)?;
        let done = Encryption::wholly(&keys);
        if encryption == done && self.shared.keys().writes_with() == keys.writes_with() {
            self.shared.set_keys(keys);
            return Ok(0);
        }
        self.note_encryption(widened).await?;
        self.shared.set_keys(keys);
        let mut secrets = 0;
        for space in [Space::Requests, Space::Subscriptions] {
            let mut next = Some(Vec::new());
            while let Some(from) = next {
                let resealed = self
                    .writer
                    .run(Kind::Essential, RESEALED * SMALL, move |t| t.reseal(space, from, RESEALED))
                    .await?;
                secrets += resealed.secrets;
                next = resealed.next;
            }
        }
        self.note_encryption(done).await?;
        Ok(secrets)
    }

    async fn back_up(
        &self,
        beside: Vec<PathBuf>,
        mut out: Box<dyn Write + Send>,
    ) -> std::result::Result<Copied, BackupError> {
        let shared = self.shared.clone();
        let task = tokio::task::spawn_blocking(move || copy::running(&shared, &beside, &mut *out));
        task.await.map_err(|error| StoreError::Read(error.to_string()))?
    }

    async fn skips(
        &self,
        shard: Shard,
        after: Option<(TopicId, Offset, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Skip>> {
        let mut range = Keys::prefix(key::shard(shard));
        if let Some((topic, offset, id)) = after {
            range.from = key::skip(shard, topic, offset, SubscriptionId(id.0.saturating_add(1)));
        }
        self.read(move |shared| shared.list(&range).take(limit).collect()).await
    }

    async fn missed(&self, shard: Shard, of: &Subscription, limit: usize) -> Result<Missed> {
        let sought = missed::Sought::new(shard, of);
        self.read(move |shared| sought.missed(shared, limit)).await
    }

    async fn gaps(&self, after: Option<Gap>, limit: usize) -> Result<Vec<Gap>> {
        let mut range = Keys::all();
        if let Some(last) = after {
            // No other key lies between a key and itself with a byte more.
            range.from = [key::gap(&last).as_slice(), &[0]].concat();
        }
        self.read(move |shared| shared.list(&range).take(limit).collect()).await
    }

    async fn pause(&self, topic: TopicId) -> Result<bool> {
        self.writer.run(Kind::Essential, SMALL, move |transaction| Ok(transaction.pause(topic))).await
    }

    async fn resume(&self, topic: TopicId) -> Result<()> {
        self.writer
            .run(Kind::Essential, SMALL, move |transaction| {
                transaction.resume(topic);
                Ok(())
            })
            .await
    }

    async fn paused(&self) -> Result<Vec<TopicId>> {
        self.read(Shared::paused).await
    }
}
