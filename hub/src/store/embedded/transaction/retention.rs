//! Commands of retention. Each removes a bounded slice, so that publishers never wait for a large cleaning, and the next goes on
//! where it stopped: what is removed lies there for a while, and walking over it once more takes longer with every slice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use resync_core::datetime::DateTime;

use super::Transaction;
use crate::store::embedded::engine::{Keys, Space};
use crate::store::embedded::memory::LogBytes;
use crate::store::encoding::codec;
use crate::store::encoding::key;
use crate::store::encoding::layout::{Floor, IdempotencyRecord, LogRecord, TopicState};
use crate::store::room::{self, BySize};
use crate::store::{Offset, Payer, Result, Shard, Shares, StoreError, TopicId, Trimmed, Uptime};

/// What one command removed.
#[derive(Debug, Default)]
pub(in super::super) struct Slice {
    pub(in super::super) trimmed: Trimmed,
    /// The topics whose logs became shorter, with their new first offsets.
    pub(in super::super) topics: BTreeMap<TopicId, Offset>,
    /// There may be more to remove.
    pub(in super::super) more: bool,
    /// What strangers may keep, where the next slice goes on to make room among theirs.
    pub(in super::super) aim: Option<u64>,
}

/// What is about to be removed.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// What all logs weigh then.
    pub(super) left: LogBytes,
    /// What strangers may keep, once room is made among them.
    pub(super) aim: Option<u64>,
    pub(super) changed: HashMap<TopicId, TopicState>,
    victims: Vec<Victim>,
    pub(super) trimmed: Trimmed,
    /// What the first notifications of shortened logs take.
    firsts: HashMap<TopicId, Extent>,
    /// Bytes of records that were read.
    read: u64,
}

impl Cut {
    /// Whether one command may not remove any more.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.victims.len() == limit || self.read >= READ
    }
}

/// Bytes of records that are read in one command, and about what one takes without a body, or its removal.
const READ: u64 = 4 * 1024 * 1024;
const RECORD: u64 = 512;

/// A notification that may go.
#[derive(Debug)]
struct Victim {
    topic: TopicId,
    offset: Offset,
    parts: u64,
}

impl Transaction<'_> {
    /// Removes at most `limit` notifications: those received before `older_than`, then those that have to make room. Of topics that a
    /// publisher speaks for these are the oldest ones of the topic whose log weighs most, first of topics without subscriptions:
    /// nobody's log shall be short because another's is long. The newest of each topic with a subscription stays. `aim` is that of the
    /// slice before.
    pub(in super::super) fn trim(
        &mut self,
        older_than: DateTime,
        shares: Shares,
        aim: Option<u64>,
        limit: usize,
    ) -> Result<Slice> {
        let mut cut = self.begin_to_cut(aim);
        let more = self.remove_old(&mut cut, older_than, limit)?
            || self.make_publishers_room(&mut cut, shares.publishers, limit)?
            || self.make_strangers_room(&mut cut, shares.strangers, limit)?;
        Ok(self.carry_out(cut, more))
    }

    /// Removes at most `limit` notifications of strangers, if theirs take more than their share, or than the aim of the slice before.
    pub(in super::super) fn make_room(
        &mut self,
        shares: Shares,
        aim: Option<u64>,
        limit: usize,
    ) -> Result<Slice> {
        let mut cut = self.begin_to_cut(aim);
        let more = self.make_strangers_room(&mut cut, shares.strangers, limit)?;
        Ok(self.carry_out(cut, more))
    }

    fn begin_to_cut(&self, aim: Option<u64>) -> Cut {
        let mut left = self.topics.log_bytes();
        for (id, state) in &self.staged.topics {
            if let Some(known) = self.topics.get(*id) {
                left.subtract(known.payer, known.bytes);
            }
            if let Some(state) = state {
                left.add(state);
            }
        }
        Cut { left, aim, ..Cut::default() }
    }

    fn remove_old(&self, cut: &mut Cut, older_than: DateTime, limit: usize) -> Result<bool> {
        // Nobody is owed anything of a stranger's topic that nobody is subscribed to.
        let for_nobody =
            |state: &TopicState| state.payer != Payer::Publishers && !self.is_subscribed(state.topic.id);
        let old =
            |state: &TopicState| state.oldest.is_some_and(|oldest| oldest < older_than) || for_nobody(state);
        let mut oldest: BinaryHeap<_> =
            self.states().filter(|state| old(state)).filter_map(|state| self.by_age(state)).collect();
        while let Some(Reverse((_, topic))) = oldest.pop() {
            if cut.is_full(limit) {
                return Ok(true);
            }
            let left = Some(self.shorten(cut, topic)?).filter(|state| old(state));
            oldest.extend(left.and_then(|state| self.by_age(state)));
        }
        Ok(false)
    }

    fn make_publishers_room(&self, cut: &mut Cut, most: u64, limit: usize) -> Result<bool> {
        if cut.left.publishers <= most {
            return Ok(false);
        }
        let states = self.states().map(|state| cut.changed.get(&state.topic.id).unwrap_or(state));
        let spoken_for = states.filter(|state| state.payer == Payer::Publishers);
        let mut largest: BinaryHeap<_> = spoken_for.filter_map(|state| self.by_size(state)).collect();
        while cut.left.publishers > most
            && let Some((.., topic)) = largest.pop()
        {
            if cut.is_full(limit) {
                return Ok(true);
            }
            let left = self.shorten(cut, topic)?;
            largest.extend(self.by_size(left));
            cut.trimmed.early += 1;
        }
        Ok(false)
    }

    fn carry_out(&mut self, cut: Cut, more: bool) -> Slice {
        let Cut { changed, victims, mut trimmed, aim, .. } = cut;
        trimmed.notifications = victims.len() as u64;
        let topics = changed.iter().map(|(id, state)| (*id, state.topic.first)).collect();
        for (id, _) in changed.iter().filter(|(_, state)| state.topic.first > state.topic.head) {
            // With them the next fetch would find that nothing has changed, and the log would not get again what it no longer holds.
            self.batch.remove(Space::Validators, key::topic(*id));
        }
        self.staged.topics.extend(changed.into_iter().map(|(id, state)| (id, Some(state))));
        for victim in victims {
            self.remove_notification(&victim);
        }
        Slice { trimmed, topics, more, aim }
    }

    pub(in super::super) fn put_uptime(&mut self, uptime: &Uptime) {
        self.put(key::UPTIME.to_vec(), uptime);
    }

    pub(in super::super) fn forget_skips(&mut self, keys: Vec<Vec<u8>>) {
        for key in keys {
            self.batch.remove(Space::Skips, key);
        }
    }

    /// Forgets at most `limit` gaps that were found before `older_than`, from this key on; returns where to go on.
    pub(in super::super) fn forget_gaps(
        &mut self,
        older_than: DateTime,
        from: Vec<u8>,
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let range = Keys::between(from, key::expiry_until(older_than));
        let found = self.engine.scan(Space::Gaps, &range).take(limit);
        let keys = found.map(|record| Ok(record?.0.to_vec())).collect::<Result<_>>()?;
        Ok(self.remove_all(Space::Gaps, keys, limit))
    }

    /// Removes these keys; where there are as many as were looked for, the last one is where to go on.
    fn remove_all(&mut self, space: Space, keys: Vec<Vec<u8>>, limit: usize) -> Option<Vec<u8>> {
        let last = keys.last().filter(|_| keys.len() == limit).cloned();
        for key in keys {
            self.batch.remove(space, key);
        }
        last
    }

    /// Forgets at most `limit` idempotency keys that have expired at `now`, from this expiry on; returns where to go on.
    pub(in super::super) fn forget_idempotency(
        &mut self,
        now: DateTime,
        from: Vec<u8>,
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let range = Keys::between(from, key::expiry_until(now));
        let mut expired = Vec::new();
        for record in self.engine.scan(Space::IdempotencyExpiry, &range).take(limit) {
            let expiry = record?.0;
            let name = key::idempotency_of_expiry(&expiry);
            // The same name may have been used anew since then.
            let current = self
                .get::<IdempotencyRecord>(&name)?
                .is_some_and(|seen| key::expiry(seen.expires, &name) == *expiry);
            expired.push((expiry.to_vec(), current.then_some(name)));
        }
        let (expiries, names): (_, Vec<_>) = expired.into_iter().unzip();
        for name in names.into_iter().flatten() {
            self.batch.remove(Space::Idempotency, name);
        }
        Ok(self.remove_all(Space::IdempotencyExpiry, expiries, limit))
    }

    /// Forgets those of these topics that nobody subscribes to, of whose log nothing is left, whose publishers may use every
    /// idempotency key anew, and that are not paused. The next topic with such a URL is another one, and its log begins behind
    /// theirs. One of which more than `limit` skips are left is shortened by these only.
    pub(in super::super) fn forget_topics(&mut self, topics: &[TopicId], limit: usize) -> Result<()> {
        let mut forgotten = Vec::new();
        for id in topics {
            if let Some(head) = self.end_of_idle(*id)? {
                forgotten.push((*id, head, self.skips_of_topic(*id, limit)?));
            }
        }
        for (id, head, skips) in forgotten {
            let all = skips.len() < limit;
            for key in skips {
                self.batch.remove(Space::Skips, key);
            }
            if all {
                self.forget_topic(id, head);
            }
        }
        Ok(())
    }

    /// Where the log of a topic ended of which nothing is left and that nobody needs.
    fn end_of_idle(&self, id: TopicId) -> Result<Option<Offset>> {
        let ended = self.topic_state(id).map(|state| &state.topic).filter(|topic| topic.first > topic.head);
        let Some(topic) = ended.filter(|_| !self.is_subscribed(id)) else { return Ok(None) };
        let mut is_needed = self.exists(Space::Meta, &key::paused(id))?
            || self.has_any(Space::Idempotency, key::topic(id))?;
        // A store whose subscriptions are of topics that are missing could not be opened: what was counted is looked up.
        for shard in (0..self.shards).map(Shard) {
            is_needed = is_needed || self.has_any(Space::Subscriptions, key::shard_topic(shard, id))?;
        }
        Ok((!is_needed).then_some(topic.head))
    }

    /// Whether any key began so before this group.
    fn has_any(&self, space: Space, prefix: Vec<u8>) -> Result<bool> {
        Ok(self.engine.scan(space, &Keys::prefix(prefix)).next().transpose()?.is_some())
    }

    fn skips_of_topic(&self, id: TopicId, limit: usize) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for shard in (0..self.shards).map(Shard) {
            let range = Keys::prefix(key::shard_topic(shard, id));
            for record in self.engine.scan(Space::Skips, &range).take(limit - keys.len()) {
                keys.push(record?.0.to_vec());
            }
        }
        Ok(keys)
    }

    fn forget_topic(&mut self, id: TopicId, head: Offset) {
        self.staged.floor = Some(Floor(self.floor().0.max(head)));
        self.staged.topics.insert(id, None);
        self.batch.remove(Space::Chains, key::topic(id));
        self.batch.remove(Space::Validators, key::topic(id));
        for shard in (0..self.shards).map(Shard) {
            self.batch.remove(Space::Watermarks, key::shard_topic(shard, id));
        }
    }

    /// Every topic as this group leaves it.
    pub(super) fn states(&self) -> impl Iterator<Item = &TopicState> {
        let untouched = self.topics.iter().filter(|state| !self.staged.topics.contains_key(&state.topic.id));
        untouched.chain(self.staged.topics.values().flatten())
    }

    fn by_age(&self, state: &TopicState) -> Option<Reverse<(DateTime, TopicId)>> {
        room::by_age(state, self.is_subscribed(state.topic.id))
    }

    fn by_size(&self, state: &TopicState) -> Option<BySize> {
        room::by_size(state, self.is_subscribed(state.topic.id))
    }

    /// Takes the oldest notification from a topic's log.
    pub(super) fn shorten<'c>(&self, cut: &'c mut Cut, topic: TopicId) -> Result<&'c TopicState> {
        let known = cut.changed.remove(&topic).or_else(|| self.topic_state(topic).cloned());
        let missing = || codec::damaged(Space::Topics, &key::topic(topic), "it is missing");
        let mut state = known.ok_or_else(missing)?;
        let (before, offset) = (state.bytes, state.topic.first);
        let known = cut.firsts.remove(&topic);
        let Extent { bytes: removed, parts, places } = match known {
            Some(extent) => extent,
            None => self.extent(topic, offset)?,
        };
        state.bytes = state.bytes.saturating_sub(removed);
        let next = self.begin_at(&mut state, Offset(offset.0.saturating_add(places)))?;
        cut.firsts.extend(next.map(|extent| (topic, extent)));
        cut.read += if parts > 0 { parts * RECORD } else { removed + RECORD };
        cut.victims.push(Victim { topic, offset, parts });
        cut.trimmed.bytes += removed;
        cut.left.subtract(state.payer, before.saturating_sub(state.bytes));
        Ok(cut.changed.entry(topic).or_insert(state))
    }

    /// What the oldest record of a log takes. One that cannot be read has no known length: it goes with whatever parts there are.
    fn extent(&self, topic: TopicId, offset: Offset) -> Result<Extent> {
        match self.log_record(topic, offset) {
            Ok(record) => Ok(Extent::of(&record)),
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(%error, topic = topic.0, offset = offset.0, "retention removes a notification that cannot be read");
                let mut parts = self.engine.scan(Space::Bodies, &Keys::prefix(key::log(topic, offset)));
                let last = parts.next_back().transpose()?.and_then(|(key, _)| key::place_of_body(&key));
                Ok(Extent { bytes: 0, parts: last.map_or(0, |(.., last)| last + 1), places: 1 })
            }
            Err(error) => Err(error),
        }
    }

    /// Lets a log begin with this notification, and tells what that takes. One that cannot be read is as old as the one before it.
    fn begin_at(&self, state: &mut TopicState, first: Offset) -> Result<Option<Extent>> {
        state.topic.first = first;
        if first > state.topic.head {
            // Nothing is left, also of what a restore leaped over.
            (state.oldest, state.bytes) = (None, 0);
            return Ok(None);
        }
        match self.log_record(state.topic.id, first) {
            Ok(record) => {
                state.oldest = Some(record.received_at);
                if first == state.topic.newest() {
                    // Where the length of something removed was not known, it is no longer counted.
                    state.bytes = record.weight();
                }
                Ok(Some(Extent::of(&record)))
            }
            Err(StoreError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn log_record(&self, topic: TopicId, offset: Offset) -> Result<LogRecord> {
        let key = key::log(topic, offset);
        let missing = || codec::damaged(Space::Log, &key, "the log should hold it, but it is missing");
        self.get(&key)?.ok_or_else(missing)
    }

    fn remove_notification(&mut self, victim: &Victim) {
        let Victim { topic, offset, parts } = *victim;
        self.batch.remove(Space::Log, key::log(topic, offset));
        for part in 0..parts {
            self.batch.remove(Space::Bodies, key::body(topic, offset, part));
        }
    }
}

/// What a record of a log takes: its weight, parts of its body elsewhere, places in the log.
#[derive(Debug)]
struct Extent {
    bytes: u64,
    parts: u64,
    places: u64,
}

impl Extent {
    fn of(record: &LogRecord) -> Self {
        Self { bytes: record.weight(), parts: record.body.parts(), places: record.body.places() }
    }
}
