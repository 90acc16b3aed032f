//! Commands of retention. Each removes a bounded slice, so that publishers never wait for a large cleaning.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use resync_core::datetime::DateTime;

use super::Transaction;
use crate::store::embedded::engine::{Keys, Space};
use crate::store::embedded::key;
use crate::store::embedded::layout::{LogRecord, Remembered, TopicState};
use crate::store::{Offset, Result, Shard, StoreError, TopicId, Trimmed, Uptime};

/// What one command removed.
#[derive(Debug, Default)]
pub(in super::super) struct Slice {
    pub(in super::super) trimmed: Trimmed,
    /// The topics whose logs became shorter, with their new first offsets.
    pub(in super::super) topics: BTreeMap<TopicId, Offset>,
    /// There may be more to remove.
    pub(in super::super) more: bool,
}

/// What is about to be removed.
#[derive(Debug, Default)]
struct Cut {
    /// What all bodies take then.
    bytes: u64,
    changed: HashMap<TopicId, TopicState>,
    victims: Vec<Victim>,
    trimmed: Trimmed,
}

/// A notification that may go.
#[derive(Debug)]
struct Victim {
    topic: TopicId,
    offset: Offset,
    parts: u64,
}

impl Transaction<'_> {
    /// Removes at most `limit` notifications: those received before `older_than`, and while bodies take more than `max_bytes` the
    /// oldest ones of the topic whose bodies take most: nobody's log shall be short because another's is long. The newest of each
    /// topic stays.
    pub(in super::super) fn trim(
        &mut self,
        older_than: DateTime,
        max_bytes: u64,
        limit: usize,
    ) -> Result<Slice> {
        let mut cut = Cut { bytes: self.states().map(|state| state.bytes).sum(), ..Cut::default() };
        let mut more = false;
        let old = |state: &TopicState| state.oldest.is_some_and(|oldest| oldest < older_than);
        let mut oldest: BinaryHeap<_> = self.states().filter(|state| old(state)).filter_map(by_age).collect();
        while !more && let Some(Reverse((_, topic))) = oldest.pop() {
            more = cut.victims.len() == limit;
            if !more {
                oldest
                    .extend(Some(self.shorten(&mut cut, topic)?).filter(|state| old(state)).and_then(by_age));
            }
        }
        let mut largest = BinaryHeap::new();
        if cut.bytes > max_bytes && !more {
            let states = self.states().map(|state| cut.changed.get(&state.topic.id).unwrap_or(state));
            largest.extend(states.filter_map(by_size));
        }
        while !more
            && cut.bytes > max_bytes
            && let Some((_, _, topic)) = largest.pop()
        {
            more = cut.victims.len() == limit;
            if !more {
                largest.extend(by_size(self.shorten(&mut cut, topic)?));
                cut.trimmed.early += 1;
            }
        }
        let Cut { changed, victims, mut trimmed, .. } = cut;
        trimmed.notifications = victims.len() as u64;
        let topics = changed.iter().map(|(id, state)| (*id, state.topic.first)).collect();
        self.staged.topics.extend(changed);
        for victim in victims {
            self.remove_notification(&victim);
        }
        Ok(Slice { trimmed, topics, more })
    }

    pub(in super::super) fn put_uptime(&mut self, uptime: &Uptime) {
        self.put(key::UPTIME.to_vec(), uptime);
    }

    /// Forgets at most `limit` skips of notifications before `first`; returns whether there may be more.
    pub(in super::super) fn forget_skips(
        &mut self,
        topic: TopicId,
        first: Offset,
        limit: usize,
    ) -> Result<bool> {
        let mut keys = Vec::new();
        for shard in (0..self.shards).map(Shard) {
            let range = Keys::between(key::shard_topic(shard, topic), key::skips_from(shard, topic, first));
            for record in self.engine.scan(Space::Skips, &range).take(limit - keys.len()) {
                keys.push(record?.0);
            }
        }
        let more = keys.len() == limit;
        for key in keys {
            self.batch.remove(Space::Skips, key.to_vec());
        }
        Ok(more)
    }

    /// Forgets at most `limit` gaps that were found before `older_than`; returns whether there may be more.
    pub(in super::super) fn forget_gaps(&mut self, older_than: DateTime, limit: usize) -> Result<bool> {
        let range = Keys::between(Vec::new(), key::expiry_until(older_than));
        let found: Result<Vec<_>> = self.engine.scan(Space::Gaps, &range).take(limit).collect();
        let found = found?;
        for (key, _) in &found {
            self.batch.remove(Space::Gaps, key.to_vec());
        }
        Ok(found.len() == limit)
    }

    /// Forgets at most `limit` idempotency keys that have expired at `now`; returns whether there may be more.
    pub(in super::super) fn forget_idempotency(&mut self, now: DateTime, limit: usize) -> Result<bool> {
        let range = Keys::between(Vec::new(), key::expiry_until(now));
        let mut expired = Vec::new();
        for record in self.engine.scan(Space::IdempotencyExpiry, &range).take(limit) {
            let expiry = record?.0;
            let name = key::idempotency_of_expiry(&expiry);
            // The same name may have been used anew since then.
            let current = self
                .get::<Remembered>(&name)?
                .is_some_and(|seen| key::expiry(seen.expires, &name) == *expiry);
            expired.push((expiry, current.then_some(name)));
        }
        let more = expired.len() == limit;
        for (expiry, name) in expired {
            self.batch.remove(Space::IdempotencyExpiry, expiry.to_vec());
            if let Some(name) = name {
                self.batch.remove(Space::Idempotency, name);
            }
        }
        Ok(more)
    }

    /// Every topic as this group leaves it.
    fn states(&self) -> impl Iterator<Item = &TopicState> {
        let untouched = self.topics.iter().filter(|state| !self.staged.topics.contains_key(&state.topic.id));
        untouched.chain(self.staged.topics.values())
    }

    /// Takes the oldest notification from a topic's log.
    fn shorten<'c>(&self, cut: &'c mut Cut, topic: TopicId) -> Result<&'c TopicState> {
        let known = cut.changed.remove(&topic).or_else(|| self.topic_state(topic).cloned());
        let mut state = known.ok_or_else(|| StoreError::Damaged {
            space: Space::Topics.name(),
            reason: format!("topic {:016x} is missing", topic.0),
        })?;
        let (before, offset) = (state.bytes, state.topic.first);
        let Extent { bytes: removed, parts, places } = self.extent(topic, offset)?;
        state.bytes = state.bytes.saturating_sub(removed);
        self.begin_at(&mut state, Offset(offset.0.saturating_add(places)))?;
        cut.victims.push(Victim { topic, offset, parts });
        cut.trimmed.bytes += removed;
        cut.bytes = cut.bytes.saturating_sub(before.saturating_sub(state.bytes));
        Ok(cut.changed.entry(topic).or_insert(state))
    }

    /// What the oldest record of a log takes. One that cannot be read has no known length: it goes with whatever parts there are.
    fn extent(&self, topic: TopicId, offset: Offset) -> Result<Extent> {
        match self.log_record(topic, offset) {
            Ok(LogRecord { body, .. }) => {
                Ok(Extent { bytes: body.len(), parts: body.parts(), places: body.places() })
            }
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(%error, topic = topic.0, offset = offset.0, "retention removes what nobody can read");
                let parts = self.engine.scan(Space::Bodies, &Keys::prefix(key::log(topic, offset)));
                let last = parts.last().transpose()?.and_then(|(key, _)| key::part_of_body(&key));
                Ok(Extent { bytes: 0, parts: last.map_or(0, |last| last + 1), places: 1 })
            }
            Err(error) => Err(error),
        }
    }

    /// Lets a log begin with this notification. One that cannot be read is as old as the one before it.
    fn begin_at(&self, state: &mut TopicState, first: Offset) -> Result<()> {
        state.topic.first = first;
        match self.log_record(state.topic.id, state.topic.first) {
            Ok(record) => {
                state.oldest = Some(record.received_at);
                if state.topic.first == state.topic.newest() {
                    // Where the length of something removed was not known, it is no longer counted.
                    state.bytes = record.body.len();
                }
                Ok(())
            }
            // A restore leaped over all the rest.
            Err(StoreError::Damaged { .. }) if state.topic.first > state.topic.head => {
                state.oldest = None;
                Ok(())
            }
            Err(StoreError::Damaged { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn log_record(&self, topic: TopicId, offset: Offset) -> Result<LogRecord> {
        let key = key::log(topic, offset);
        self.get(&key)?.ok_or_else(|| StoreError::Damaged {
            space: Space::Log.name(),
            reason: format!("key {}: the log should hold it, but it is missing", hex::encode(&key)),
        })
    }

    fn remove_notification(&mut self, victim: &Victim) {
        let Victim { topic, offset, parts } = *victim;
        self.batch.remove(Space::Log, key::log(topic, offset));
        for part in 0..parts {
            self.batch.remove(Space::Bodies, key::body(topic, offset, part));
        }
    }
}

/// What a record of a log takes: bytes of body, parts of it elsewhere, places in the log.
struct Extent {
    bytes: u64,
    parts: u64,
    places: u64,
}

/// When the oldest notification of the topic came in, if it is not the only one.
fn by_age(state: &TopicState) -> Option<Reverse<(DateTime, TopicId)>> {
    let oldest = state.oldest.filter(|_| state.topic.first < state.topic.newest())?;
    Some(Reverse((oldest, state.topic.id)))
}

/// How much the bodies of the topic take, and of equals which has the oldest notification.
fn by_size(state: &TopicState) -> Option<(u64, Reverse<DateTime>, TopicId)> {
    let Reverse((oldest, id)) = by_age(state)?;
    Some((state.bytes, Reverse(oldest), id))
}
