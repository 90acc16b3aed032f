//! What is held in memory: the bounds of every log for all readers, and what only the writer needs.
//!
//! Both hold exactly what is durable: they change after a commit has succeeded and never before.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::OnceLock;

use resync_core::websub::TopicUrl;

use super::accounts::Accounts;
use super::engine::{Engine, Keys, Space};
use crate::store::encoding::codec;
use crate::store::encoding::key::{self, Pair, pair};
use crate::store::encoding::layout::{Counters, Encryption, Floor, Foundation, TopicState};
use crate::store::keyring::Keyring;
use crate::store::{
    Epoch, Payer, PendingRequest, RequestId, Result, Shard, SubscriptionCounts, Topic, TopicId,
};

/// Every topic, and what clients have the hub keep.
#[derive(Debug, Default)]
pub(super) struct Topics {
    by_id: HashMap<TopicId, TopicState>,
    /// By their keys; each shares its URL with the topic.
    by_key: HashMap<TopicUrl, TopicId>,
    /// The same in the order of their URLs, for whoever reads page by page, from the first page on: a start would take longer with it.
    in_order: OnceLock<BTreeMap<TopicUrl, TopicId>>,
    log_bytes: LogBytes,
    pub(super) accounts: Accounts,
}

/// What the logs of all topics weigh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogBytes {
    /// Of those that a publisher speaks for.
    pub(super) publishers: u64,
    /// Of all others.
    pub(super) strangers: u64,
}

impl LogBytes {
    pub(super) fn add(&mut self, state: &TopicState) {
        *self.of(state.payer) += state.bytes;
    }

    pub(super) fn subtract(&mut self, payer: Payer, bytes: u64) {
        let of = self.of(payer);
        *of = of.saturating_sub(bytes);
    }

    fn of(&mut self, payer: Payer) -> &mut u64 {
        match payer {
            Payer::Publishers => &mut self.publishers,
            Payer::Strangers(_) => &mut self.strangers,
        }
    }
}

impl Topics {
    /// Without the subscriptions, which are counted by whoever reads them.
    pub(super) fn load(engine: &dyn Engine) -> Result<Self> {
        let (mut topics, none) = (Self::default(), Keyring::none());
        for record in engine.scan(Space::Topics, &Keys::all()) {
            let (key, value) = record?;
            topics.put(codec::open(&none, &key, &value)?);
        }
        Ok(topics)
    }

    pub(super) fn put(&mut self, state: TopicState) {
        self.log_bytes.add(&state);
        if let Some(known) = self.by_id.get_mut(&state.topic.id) {
            self.log_bytes.subtract(known.payer, known.bytes);
            *known = state;
        } else {
            self.by_key.insert(state.topic.url.clone(), state.topic.id);
            if let Some(in_order) = self.in_order.get_mut() {
                in_order.insert(state.topic.url.clone(), state.topic.id);
            }
            self.by_id.insert(state.topic.id, state);
        }
    }

    pub(super) fn remove(&mut self, id: TopicId) {
        let Some(TopicState { topic, bytes, payer, .. }) = self.by_id.remove(&id) else { return };
        self.log_bytes.subtract(payer, bytes);
        // The URL may be another topic's already, which came after this one.
        if self.id(&topic.url) == Some(id) {
            self.by_key.remove(&topic.url);
            if let Some(in_order) = self.in_order.get_mut() {
                in_order.remove(&topic.url);
            }
        }
    }

    pub(super) fn subscriptions(&self, id: TopicId) -> u64 {
        self.accounts.of_topic(id)
    }

    pub(super) fn log_bytes(&self) -> LogBytes {
        self.log_bytes
    }

    /// What all clients together have the hub keep.
    pub(super) fn in_all(&self) -> SubscriptionCounts {
        let (subscriptions, hosts) = (self.accounts.subscriptions(), self.accounts.hosts());
        SubscriptionCounts { subscriptions, topics: self.by_id.len() as u64, hosts }
    }

    pub(super) fn get(&self, id: TopicId) -> Option<&TopicState> {
        self.by_id.get(&id)
    }

    /// The topic whose URL has the same key (W-073).
    pub(super) fn id(&self, url: &TopicUrl) -> Option<TopicId> {
        self.by_key.get(url).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TopicState> {
        self.by_id.values()
    }

    /// At most `limit` topics in the order of their URLs, beginning after this one.
    pub(super) fn page(&self, after: Option<&TopicUrl>, limit: usize) -> impl Iterator<Item = &Topic> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.in_order
            .get_or_init(|| self.by_key.iter().map(|(url, id)| (url.clone(), *id)).collect())
            .range::<TopicUrl, _>((from, Bound::Unbounded))
            .filter_map(|(_, id)| self.get(*id))
            .map(|state| &state.topic)
            .take(limit)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// What a request that waits takes here.
const WAITING_BYTES: usize = 64;
const _: () = assert!(size_of::<((Pair, RequestId), Option<IpAddr>)>() <= WAITING_BYTES);

/// What the writer knows without asking the engine.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The waiting requests of each pair, of each client at most one, by its network.
    pub(super) pending: BTreeMap<(Pair, RequestId), Option<IpAddr>>,
    pub(super) counters: Counters,
    /// The newest epoch of each shard that was ever claimed.
    pub(super) epochs: HashMap<Shard, Epoch>,
    /// Behind which the logs of new topics begin.
    pub(super) floor: Floor,
}

impl Ledger {
    pub(super) fn load(engine: &dyn Engine, keys: &Keyring, shards: u16) -> Result<Self> {
        let counters = get(engine, Space::Meta, key::COUNTERS)?.unwrap_or_default();
        let floor = get(engine, Space::Meta, key::FLOOR)?.unwrap_or_default();
        let mut epochs = HashMap::new();
        for shard in (0..shards).map(Shard) {
            if let Some(epoch) = get(engine, Space::Meta, &key::epoch(shard))? {
                epochs.insert(shard, epoch);
            }
        }
        let mut pending = BTreeMap::new();
        for record in engine.scan(Space::Requests, &Keys::all()) {
            let (key, value) = record?;
            let request: PendingRequest = codec::open(keys, &key, &value)?;
            pending.insert((pair(&request.topic, &request.callback), request.id), request.client);
        }
        Ok(Self { pending, counters, epochs, floor })
    }
}

/// What was decided when the store was made, if it was made.
pub(super) fn foundation(engine: &dyn Engine) -> Result<Option<Foundation>> {
    get(engine, Space::Meta, key::FOUNDATION)
}

/// Under which keys the store's secrets are stored; a store that does not say keeps them as they are.
pub(super) fn encryption(engine: &dyn Engine) -> Result<Encryption> {
    Ok(get(engine, Space::Meta, key::ENCRYPTION)?.unwrap_or_else(|| Encryption::wholly(&Keyring::none())))
}

/// A record without secrets.
fn get<R: codec::Record>(engine: &dyn Engine, space: Space, key: &[u8]) -> Result<Option<R>> {
    engine.get(space, key)?.map(|value| codec::open(&Keyring::none(), key, &value)).transpose()
}
