//! What readers and the writer share: the engine, the bounds of the logs, the caches, and who listens.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

use resync_common::locks::{lock, read, write};
use resync_core::lock::FileLock;
use resync_core::websub::{CallbackUrl, TopicUrl};
use tokio::sync::{mpsc, watch};

use super::capture::Capture;
use super::engine::{Batch, Change, Engine, Keys, Space};
use super::memory::{LogBytes, Topics};
use super::summaries::{Origins, Summaries};
use super::transaction::Staged;
use crate::store::cache::{Notifications, Recipients};
use crate::store::encoding::codec::{self, Fields as _, Record};
use crate::store::encoding::key::{self, Pair};
use crate::store::encoding::layout::{Address, PausedTopic, TopicWatermark, recipient_of};
use crate::store::{
    self, Additions, CachePolicy, ClientUsage, Keyring, Laggard, Offset, ReadAhead, Recipient, Result, Shard,
    ShardState, StoreError, StoreEvent, Subscription, SubscriptionCounts, SubscriptionId,
    SubscriptionSummary, Topic, TopicId, Usage,
};

/// A commit that takes longer than this means that the log cannot keep up.
const STALLED: Duration = Duration::from_secs(5);
/// Recipients that are read at once of one topic, and of several: far fewer than are kept.
const AHEAD_IN_TOPIC: usize = 32;
const AHEAD_IN_SHARD: usize = 128;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: Box<dyn Engine>,
    keys: RwLock<Keyring>,
    topics: RwLock<Topics>,
    summaries: Summaries,
    pub(super) notifications: Notifications,
    recipients: Recipients,
    /// Unbounded, since a commit must not wait for whoever listens: an event has some hundred bytes, whatever strangers wrote, and
    /// is taken faster than the commit that it tells of is made.
    watchers: Mutex<Vec<mpsc::UnboundedSender<StoreEvent>>>,
    /// Who copies the store while it changes.
    captures: Mutex<Vec<Weak<Capture>>>,
    /// Held by a commit from its beginning until memory has followed it. Readers who hold it see both in agreement.
    gate: RwLock<()>,
    /// Why the store takes nothing, or nothing that makes it grow.
    trouble: Mutex<Option<StoreError>>,
    /// Whether nothing will ever be committed any more.
    broken: watch::Sender<bool>,
    /// When the commit under way began.
    commit_began: Mutex<Option<Instant>>,
    pub(super) meters: store::Meters,
    /// Nothing is told: what a store never does, but one that hubs share may.
    #[cfg(test)]
    is_mute: std::sync::atomic::AtomicBool,
    /// After the engine, so that the directory is free only when the engine has closed its files.
    _lock: Option<FileLock>,
}

impl Shared {
    pub(super) fn new(
        engine: Box<dyn Engine>,
        keys: Keyring,
        shards: u16,
        lock: Option<FileLock>,
    ) -> Result<Self> {
        let mut topics = Topics::load(engine.as_ref())?;
        let summaries = Summaries::read(engine.as_ref(), shards, &mut topics.accounts)?;
        Ok(Self {
            topics: RwLock::new(topics),
            summaries,
            engine,
            keys: RwLock::new(keys),
            notifications: Notifications::default(),
            recipients: Recipients::new(shards),
            watchers: Mutex::default(),
            captures: Mutex::default(),
            gate: RwLock::default(),
            trouble: Mutex::default(),
            broken: watch::Sender::new(false),
            commit_began: Mutex::default(),
            meters: store::Meters::default(),
            #[cfg(test)]
            is_mute: std::sync::atomic::AtomicBool::new(false),
            _lock: lock,
        })
    }

    pub(super) fn topics(&self) -> RwLockReadGuard<'_, Topics> {
        read(&self.topics)
    }

    /// The keys of secrets, as they are now.
    pub(super) fn keys(&self) -> Keyring {
        read(&self.keys).clone()
    }

    /// From now on secrets are written with the first of these keys.
    pub(super) fn set_keys(&self, keys: Keyring) {
        *write(&self.keys) = keys;
    }

    pub(super) fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.watchers).push(sender);
        receiver
    }

    /// From now on whatever is committed is also in this capture, as long as it is kept.
    pub(super) fn start_capture(&self) -> Arc<Capture> {
        let capture = Arc::new(Capture::default());
        lock(&self.captures).push(Arc::downgrade(&capture));
        capture
    }

    fn capture(&self, batch: &Batch) {
        lock(&self.captures)
            .retain(|capture| capture.upgrade().inspect(|capture| capture.take(batch)).is_some());
    }

    /// Nothing is committed while this is held, for as long as a few records take to be read.
    pub(super) fn still(&self) -> RwLockReadGuard<'_, ()> {
        read(&self.gate)
    }

    /// Makes the batch durable; only then memory follows and the events are told.
    pub(super) fn commit(&self, batch: &Batch, staged: &mut Staged, commands: usize) -> Result<()> {
        let _gate = write(&self.gate);
        if !batch.is_empty() {
            let began = Instant::now();
            *lock(&self.commit_began) = Some(began);
            let outcome = self.engine.commit(batch);
            *lock(&self.commit_began) = None;
            self.meters.committed(commands, began.elapsed());
            self.summaries.follow(batch);
            outcome?;
            self.capture(batch);
        }
        self.follow(staged);
        Ok(())
    }

    /// After a commit that failed: the engine goes back to what the disk holds. If that is the whole of the commit after all,
    /// memory follows it. Succeeds only once a write has succeeded; tells whether the commit is in force.
    pub(super) fn recover(&self, batch: &Batch, staged: &mut Staged) -> Result<bool> {
        let _gate = write(&self.gate);
        self.engine.recover()?;
        // An engine writes a batch as a whole. Where every record is as the batch would have left it, that is its state.
        let in_force = self.holds(batch)?;
        if in_force {
            // What a failed sync leaves in the system's cache may never reach the disk: it is written once more.
            self.engine.commit(batch)?;
            self.capture(batch);
            self.follow(staged);
        } else {
            self.engine.commit(&self.proof()?)?;
        }
        Ok(in_force)
    }

    fn holds(&self, batch: &Batch) -> Result<bool> {
        for (space, key, change) in batch.iter() {
            let found = self.engine.get(space, key)?;
            let agrees = match change {
                Change::Put(value) => found.as_deref() == Some(value.as_slice()),
                Change::Remove => found.is_none(),
            };
            if !agrees {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A batch that changes nothing, to see whether the engine takes writes.
    fn proof(&self) -> Result<Batch> {
        let mut batch = Batch::default();
        if let Some(value) = self.engine.get(Space::Meta, key::FOUNDATION)? {
            batch.put(Space::Meta, key::FOUNDATION.to_vec(), value.to_vec());
        }
        Ok(batch)
    }

    fn follow(&self, staged: &mut Staged) {
        let mut topics = write(&self.topics);
        for (id, state) in staged.topics.drain() {
            match state {
                Some(state) => topics.put(state),
                None => topics.remove(id),
            }
        }
        staged.subscription_changes.drain(..).for_each(|change| topics.accounts.follow(change));
        drop(topics);
        staged.notifications.drain(..).for_each(|notification| self.notifications.put(notification));
        self.recipients.forget(&staged.changed_subscriptions);
        self.tell(&staged.events);
    }

    /// Whether the store takes everything that is asked of it.
    pub(super) fn health(&self) -> Result<()> {
        if let Some(trouble) = lock(&self.trouble).clone() {
            return Err(trouble);
        }
        let began = *lock(&self.commit_began);
        if began.is_some_and(|began| began.elapsed() > STALLED) { Err(StoreError::Busy) } else { Ok(()) }
    }

    /// Why the store takes nothing, or nothing that makes it grow.
    pub(super) fn set_trouble(&self, trouble: Option<StoreError>) {
        *lock(&self.trouble) = trouble;
    }

    /// The writer has died: no command will be answered any more.
    pub(super) fn set_broken(&self) {
        self.set_trouble(Some(StoreError::Closed));
        self.broken.send_replace(true);
    }

    pub(super) async fn broken(&self) {
        // It fails only where this is gone, which it is not.
        let _ = self.broken.subscribe().wait_for(|broken| *broken).await;
    }

    /// Whether anything is told from now on.
    #[cfg(test)]
    pub(super) fn set_mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, std::sync::atomic::Ordering::SeqCst);
    }

    pub(super) fn tell(&self, events: &[StoreEvent]) {
        #[cfg(test)]
        if self.is_mute.load(std::sync::atomic::Ordering::SeqCst) {
            return;
        }
        if !events.is_empty() {
            lock(&self.watchers)
                .retain(|watcher| events.iter().all(|event| watcher.send(event.clone()).is_ok()));
        }
    }

    pub(super) fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        self.engine.get(R::SPACE, key)?.map(|value| codec::open(&self.keys(), key, &value)).transpose()
    }

    /// Every record of a range.
    pub(super) fn list<'s, R: Record>(&'s self, keys: &Keys) -> impl Iterator<Item = Result<R>> + use<'s, R> {
        let keyring = self.keys();
        self.engine.scan(R::SPACE, keys).map(move |record| {
            let (key, value) = record?;
            codec::open(&keyring, &key, &value)
        })
    }

    /// To whom a delivery goes. On the way to one record a few more cost little, so what will be asked for next is read with it.
    pub(super) fn recipient(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
        ahead: ReadAhead,
        keep: CachePolicy,
    ) -> Result<Option<Arc<Recipient>>> {
        let reading = match self.recipients.get(shard, (topic, id), keep) {
            Ok(recipient) => return Ok(Some(recipient)),
            Err(reading) => reading,
        };
        let (within, at_most) = match ahead {
            ReadAhead::Topic => (key::shard_topic(shard, topic), AHEAD_IN_TOPIC),
            ReadAhead::Shard => (key::shard(shard), AHEAD_IN_SHARD),
        };
        let range = Keys { from: key::subscription(shard, topic, id), to: Keys::prefix(within).to };
        let mut records = self.recipients_in(&range).take(at_most);
        let sought = records.next().transpose()?.filter(|found| (found.topic, found.id) == (topic, id));
        let Some(sought) = sought.map(Arc::new) else { return Ok(None) };
        // What is wrong with the next ones is told to those who ask for them.
        let next: Vec<_> = records.map_while(Result::ok).map(Arc::new).collect();
        self.recipients.put(shard, &sought, next, keep, reading);
        Ok(Some(sought))
    }

    /// They stand by topic, so that the URL of each topic is looked up once.
    fn recipients_in(&self, range: &Keys) -> impl Iterator<Item = Result<Recipient>> {
        let (keys, mut last) = (self.keys(), None::<(TopicId, TopicUrl)>);
        self.engine.scan(Space::Subscriptions, range).map(move |record| {
            let (key, value) = record?;
            let topic = key::topic_in_shard(&key);
            if last.as_ref().map(|(known, _)| *known) != topic {
                last = topic.and_then(|id| Some((id, self.topics().get(id)?.topic.url.clone())));
            }
            let known = last.as_ref().map(|(_, url)| url);
            codec::open_beginning(&keys, Space::Subscriptions, &key, &value, |fields| {
                recipient_of(fields, known)
            })
        })
    }

    pub(super) fn subscription_of(&self, pair: store::SubscriptionKey) -> Result<Option<Subscription>> {
        match self.get(pair.as_bytes())? {
            Some(Address { shard, topic, id }) => self.get(&key::subscription(shard, topic, id)),
            None => Ok(None),
        }
    }

    /// The pair whose entry in the index leads here.
    pub(super) fn pair_at(&self, address: Address) -> Result<Option<Pair>> {
        let keys = self.keys();
        for record in self.engine.scan(Space::SubscriptionIndex, &Keys::all()) {
            let (key, value) = record?;
            // An entry that cannot be read leads nowhere.
            if codec::open(&keys, &key, &value).is_ok_and(|entry: Address| entry == address) {
                return Ok(Pair::try_from(&key[..]).ok());
            }
        }
        Ok(None)
    }

    pub(super) fn usage(&self) -> Usage {
        let topics = self.topics();
        let LogBytes { publishers, strangers } = topics.log_bytes();
        Usage {
            topics: topics.len(),
            log_bytes: publishers + strangers,
            strangers_bytes: strangers,
            oldest: topics.iter().filter_map(|state| state.oldest).min(),
        }
    }

    /// What a client has the hub keep, as one more subscription would find it.
    pub(super) fn accounted(
        &self,
        client: Option<IpAddr>,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> ClientUsage {
        let topics = self.topics();
        let known = topics.id(topic);
        let subscribed = known.map_or(0, |id| topics.subscriptions(id));
        let accounts = &topics.accounts;
        let at_host = accounts.at(accounts.host(callback.origin().as_bytes()));
        ClientUsage {
            of_client: client.map_or_else(SubscriptionCounts::default, |client| accounts.of(client)),
            in_all: topics.in_all(),
            new_to_client: Additions { topic: subscribed == 0, host: at_host == 0 },
            new_to_hub: Additions { topic: known.is_none(), host: at_host == 0 },
        }
    }

    /// Topics without a subscription, of whose log nothing is left.
    pub(super) fn idle(&self) -> Vec<TopicId> {
        let topics = self.topics();
        let empty = topics.iter().map(|state| &state.topic).filter(|topic| topic.first > topic.head);
        empty.map(|topic| topic.id).filter(|id| topics.subscriptions(*id) == 0).collect()
    }

    /// At most `limit` skips of notifications before these first ones, from this key on.
    pub(super) fn skips_before(
        &self,
        firsts: &BTreeMap<TopicId, Offset>,
        shards: u16,
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for shard in (0..shards).map(Shard) {
            for (topic, first) in firsts {
                let begin = key::shard_topic(shard, *topic).max(from.to_vec());
                let end = key::skips_from(shard, *topic, *first);
                if begin >= end {
                    continue;
                }
                for record in self.engine.scan(Space::Skips, &Keys::between(begin, end)) {
                    if keys.len() == limit {
                        return Ok(keys);
                    }
                    keys.push(record?.0.to_vec());
                }
            }
        }
        Ok(keys)
    }

    /// Topics of which nothing is delivered for now.
    pub(super) fn paused(&self) -> Result<Vec<TopicId>> {
        let marks = Keys::prefix(key::PAUSED.to_vec());
        self.list(&marks).map(|mark| mark.map(|PausedTopic(topic)| topic)).collect()
    }

    /// The subscriptions of a shard, by their keys.
    pub(super) fn ids(&self, shard: Shard) -> Result<Vec<(TopicId, SubscriptionId)>> {
        self.ids_in(shard).collect()
    }

    /// The topic of a subscription of this shard, by its key.
    pub(super) fn topic_of(&self, shard: Shard, id: SubscriptionId) -> Result<Option<TopicId>> {
        let is_it = |found: &Result<(TopicId, SubscriptionId)>| match found {
            Ok((_, known)) => *known == id,
            Err(_) => true,
        };
        Ok(self.ids_in(shard).find(is_it).transpose()?.map(|(topic, _)| topic))
    }

    fn ids_in(&self, shard: Shard) -> impl Iterator<Item = Result<(TopicId, SubscriptionId)>> {
        let records = self.engine.scan(Space::Subscriptions, &Keys::prefix(key::shard(shard)));
        let places = records.map(|record| record.map(|(key, _)| key::place_of_subscription(&key)));
        places.filter_map(Result::transpose).map(|place| place.map(|(_, topic, id)| (topic, id)))
    }

    /// At most so many subscriptions of a range.
    pub(super) fn slots_in(&self, range: &Keys, limit: usize) -> Result<Vec<SubscriptionSummary>> {
        let keys = self.keys();
        let (mut slots, mut origins) = (Vec::new(), Origins::default());
        for record in self.engine.scan(Space::Subscriptions, range).take(limit) {
            let (key, value) = record?;
            let mut slot = codec::open_beginning(
                &keys,
                Space::Subscriptions,
                &key,
                &value,
                SubscriptionSummary::decode,
            )?;
            origins.share(&mut slot);
            slots.push(slot);
        }
        Ok(slots)
    }

    /// The shard as of one commit: none passes while it is read.
    pub(super) fn load_shard(&self, shard: Shard) -> Result<ShardState> {
        let _still = self.still();
        let range = Keys::prefix(key::shard(shard));
        let slots = match self.summaries.take(shard) {
            Some(slots) => slots,
            None => self.slots_in(&range, usize::MAX)?,
        };
        let known = self.topics();
        // The slots of a topic stand together.
        let topics = slots
            .chunk_by(|one, other| one.topic == other.topic)
            .map(|slots| {
                let topic = slots[0].topic;
                let missing = || codec::damaged(Space::Topics, &key::topic(topic), "it is missing");
                Ok(known.get(topic).ok_or_else(missing)?.topic.clone())
            })
            .collect::<Result<Vec<_>>>()?;
        // They are in the order of their ids, like everything that is scanned.
        let is_subscribed = |topic| topics.binary_search_by_key(&topic, |known: &Topic| known.id).is_ok();
        let watermarks = self
            .list::<TopicWatermark>(&range)
            .map(|mark| mark.map(|TopicWatermark(topic, watermark)| (topic, watermark)))
            .filter(|mark| mark.as_ref().map_or(true, |(topic, _)| is_subscribed(*topic)))
            .collect::<Result<_>>()?;
        let laggards = self.list::<Laggard>(&range).collect::<Result<_>>()?;
        let paused = self.paused()?;
        Ok(ShardState { slots, topics, watermarks, laggards, paused })
    }
}
