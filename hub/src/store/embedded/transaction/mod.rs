//! A group of commands on its way to one commit: each sees what the earlier ones have done, and nothing is real before the
//! engine has taken the whole.
//!
//! A command that fails must leave nothing behind in the group, so every command reads whatever can fail before it writes.

mod encryption;
mod log;
mod progress;
mod retention;
mod strangers;
mod subscriptions;

pub(super) use retention::Slice;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use resync_core::websub::TopicUrl;

use super::accounts::SubscriptionChange;
use super::engine::{Batch, Change, Engine, Space};
use super::memory::{Ledger, Topics};
use crate::store::encoding::codec::{self, Record};
use crate::store::encoding::key::{self, Pair};
use crate::store::encoding::layout::{Counters, Floor, TopicState};
use crate::store::records::after;
use crate::store::{
    Epoch, Keyring, Notification, Offset, Payer, RequestId, Result, Shard, StoreError, StoreEvent,
    SubscriptionId, Topic, TopicId,
};

pub(super) struct Transaction<'a> {
    engine: &'a dyn Engine,
    topics: &'a Topics,
    ledger: &'a Ledger,
    keys: &'a Keyring,
    shards: u16,
    batch: Batch,
    staged: Staged,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// It waits, and is of this client.
    Of(Option<IpAddr>),
    /// It no longer waits.
    No,
}

/// What memory will hold once the commit has succeeded.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// `None`: it is forgotten.
    pub(super) topics: HashMap<TopicId, Option<TopicState>>,
    /// How many subscriptions more they have, or fewer.
    subscriptions: HashMap<TopicId, i64>,
    /// What became of them, in this order.
    pub(super) subscription_changes: Vec<SubscriptionChange>,
    new_topics: HashMap<Box<str>, TopicId>,
    pub(super) pending: BTreeMap<(Pair, RequestId), Pending>,
    pub(super) counters: Option<Counters>,
    pub(super) epochs: HashMap<Shard, Epoch>,
    pub(super) floor: Option<Floor>,
    pub(super) notifications: Vec<Arc<Notification>>,
    pub(super) changed_subscriptions: Vec<(Shard, TopicId, SubscriptionId)>,
    pub(super) events: Vec<StoreEvent>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        engine: &'a dyn Engine,
        topics: &'a Topics,
        ledger: &'a Ledger,
        keys: &'a Keyring,
        shards: u16,
    ) -> Self {
        Self { engine, topics, ledger, keys, shards, batch: Batch::default(), staged: Staged::default() }
    }

    /// What to commit, and what to remember then.
    pub(super) fn finish(mut self) -> (Batch, Staged) {
        let staged = std::mem::take(&mut self.staged);
        for (id, state) in &staged.topics {
            match state {
                Some(state) => self.put(key::topic(*id), state),
                None => self.batch.remove(Space::Topics, key::topic(*id)),
            }
        }
        for (shard, epoch) in &staged.epochs {
            self.put(key::epoch(*shard), epoch);
        }
        if let Some(counters) = &staged.counters {
            self.put(key::COUNTERS.to_vec(), counters);
        }
        if let Some(floor) = &staged.floor {
            self.put(key::FLOOR.to_vec(), floor);
        }
        (self.batch, staged)
    }

    fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        let value = match self.batch.change(R::SPACE, key) {
            Some(Change::Put(value)) => Some(Bytes::copy_from_slice(value)),
            Some(Change::Remove) => None,
            None => self.engine.get(R::SPACE, key)?,
        };
        value.map(|value| codec::open(self.keys, key, &value)).transpose()
    }

    fn exists(&self, space: Space, key: &[u8]) -> Result<bool> {
        match self.batch.change(space, key) {
            Some(change) => Ok(*change != Change::Remove),
            None => Ok(self.engine.get(space, key)?.is_some()),
        }
    }

    fn put<R: Record>(&mut self, key: Vec<u8>, record: &R) {
        let value = codec::seal(self.keys, &key, record);
        self.batch.put(R::SPACE, key, value);
    }

    fn topic_id(&self, url: &TopicUrl) -> Option<TopicId> {
        let known = self.staged.new_topics.get(url.key()).copied().or_else(|| self.topics.id(url));
        known.filter(|id| self.topic_state(*id).is_some())
    }

    fn topic_state(&self, id: TopicId) -> Option<&TopicState> {
        match self.staged.topics.get(&id) {
            Some(staged) => staged.as_ref(),
            None => self.topics.get(id),
        }
    }

    fn is_subscribed(&self, id: TopicId) -> bool {
        let change = self.staged.subscriptions.get(&id).copied().unwrap_or_default();
        self.topics.subscriptions(id).saturating_add_signed(change) > 0
    }

    /// The topic with this URL, made if need be, ready to be changed.
    fn topic_mut(&mut self, url: &TopicUrl) -> &mut TopicState {
        let known = self.topic_id(url);
        let id = known.unwrap_or_else(|| self.new_topic_id());
        if known.is_none() {
            self.staged.new_topics.insert(url.key().into(), id);
        }
        let (topics, Floor(floor)) = (self.topics, self.floor());
        let state = self.staged.topics.entry(id).or_default();
        state.get_or_insert_with(|| topics.get(id).cloned().unwrap_or_else(|| empty(id, url, floor)))
    }

    fn new_topic_id(&self) -> TopicId {
        loop {
            let id = TopicId::random();
            if self.topic_state(id).is_none() {
                return id;
            }
        }
    }

    fn counters(&mut self) -> &mut Counters {
        self.staged.counters.get_or_insert(self.ledger.counters)
    }

    fn floor(&self) -> Floor {
        self.staged.floor.unwrap_or(self.ledger.floor)
    }

    /// Refuses a shard's owner that has a successor.
    pub(super) fn check_owner(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        if epoch == self.epoch(shard) { Ok(()) } else { Err(StoreError::Fenced) }
    }

    fn epoch(&self, shard: Shard) -> Epoch {
        self.staged.epochs.get(&shard).or_else(|| self.ledger.epochs.get(&shard)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
impl Transaction<'_> {
    /// The subscription that changed last.
    pub(super) fn newest_subscription(&self) -> (TopicId, SubscriptionId) {
        self.staged.changed_subscriptions.last().map(|(_, topic, id)| (*topic, *id)).unwrap()
    }

    pub(super) fn keeps_laggard(&self, shard: Shard, topic: TopicId, id: SubscriptionId) -> bool {
        self.exists(Space::Laggards, &key::subscription(shard, topic, id)).unwrap()
    }
}

/// A topic whose log begins behind this offset.
fn empty(id: TopicId, url: &TopicUrl, floor: Offset) -> TopicState {
    let topic = Topic {
        id,
        url: url.clone(),
        first: floor.next(),
        head: floor,
        latest: Offset(0),
        posted: Offset(0),
    };
    TopicState { topic, bytes: 0, oldest: None, payer: Payer::Strangers(None) }
}
