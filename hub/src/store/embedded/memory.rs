//! What is held in memory: the bounds of every log for all readers, and what only the writer needs.
//!
//! Both hold exactly what is durable: they change after a commit has succeeded and never before.

use std::collections::HashMap;

use super::codec;
use super::engine::{Engine, Keys, Space};
use super::key::{self, Pair, pair};
use super::layout::{Counters, Encryption, Foundation, TopicState};
use crate::store::keyring::Keyring;
use crate::store::{Epoch, PendingRequest, RequestId, Result, Shard, TopicId};

/// Every topic.
#[derive(Debug, Default)]
pub(super) struct Topics {
    by_id: HashMap<TopicId, TopicState>,
    by_key: HashMap<Box<str>, TopicId>,
}

impl Topics {
    pub(super) fn load(engine: &dyn Engine) -> Result<Self> {
        let mut topics = Self::default();
        for record in engine.scan(Space::Topics, &Keys::all()) {
            let (key, value) = record?;
            topics.put(codec::open(&Keyring::none(), &key, &value)?);
        }
        Ok(topics)
    }

    pub(super) fn put(&mut self, state: TopicState) {
        if let Some(known) = self.by_id.get_mut(&state.topic.id) {
            *known = state;
        } else {
            self.by_key.insert(state.topic.url.key().into(), state.topic.id);
            self.by_id.insert(state.topic.id, state);
        }
    }

    pub(super) fn get(&self, id: TopicId) -> Option<&TopicState> {
        self.by_id.get(&id)
    }

    /// The topic whose URL has this key (W-073).
    pub(super) fn id(&self, key: &str) -> Option<TopicId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TopicState> {
        self.by_id.values()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// What the writer knows without asking the engine.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The newest waiting request of each pair.
    pub(super) pending: HashMap<Pair, RequestId>,
    pub(super) counters: Counters,
    /// The newest epoch of each shard that was ever claimed.
    pub(super) epochs: HashMap<Shard, Epoch>,
}

impl Ledger {
    pub(super) fn load(engine: &dyn Engine, keys: &Keyring, shards: u16) -> Result<Self> {
        let counters = get(engine, Space::Meta, key::COUNTERS)?.unwrap_or_default();
        let mut epochs = HashMap::new();
        for shard in (0..shards).map(Shard) {
            if let Some(epoch) = get(engine, Space::Meta, &key::epoch(shard))? {
                epochs.insert(shard, epoch);
            }
        }
        let mut pending = HashMap::new();
        for record in engine.scan(Space::Requests, &Keys::all()) {
            let (key, value) = record?;
            let request: PendingRequest = codec::open(keys, &key, &value)?;
            pending.insert(pair(&request.topic, &request.callback), request.id);
        }
        Ok(Self { pending, counters, epochs })
    }
}

/// What was decided when the store was made, if it was made.
pub(super) fn foundation(engine: &dyn Engine) -> Result<Option<Foundation>> {
    get(engine, Space::Meta, key::FOUNDATION)
}

/// Under which keys the store's secrets are kept; a store that does not say keeps them as they are.
pub(super) fn encryption(engine: &dyn Engine) -> Result<Encryption> {
    Ok(get(engine, Space::Meta, key::ENCRYPTION)?.unwrap_or_else(|| Encryption::wholly(&Keyring::none())))
}

/// A record without secrets.
fn get<R: codec::Record>(engine: &dyn Engine, space: Space, key: &[u8]) -> Result<Option<R>> {
    engine.get(space, key)?.map(|value| codec::open(&Keyring::none(), key, &value)).transpose()
}
