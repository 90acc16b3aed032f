//! Repairs a damaged store. `restore` cannot stand in for it: one record that cannot be read keeps the hub from starting, every backup
//! taken since has that record too, and an older one lacks all that was acknowledged since. This loses only what cannot be read.
//!
//! What is wrong is what `check` says. Each fault is fixed for itself, and the check is repeated until it finds nothing. So a
//! repair that is interrupted anywhere is finished by the next one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;

use super::SHARDS;
use super::check::{self, Fault};
use super::closed::Closed;
use super::engine::Space;
use crate::store::encoding::key;
use crate::store::encoding::layout::{
    Address, Empty, Floor, Foundation, LogRecord, TopicState, TopicWatermark,
};
use crate::store::{
    self, FailureClass, Keyring, Laggard, Offset, Payer, RepairStep, Repaired, Result, Shard, StoreError,
    Subscription, Topic, TopicId, Watermark,
};

/// Faults that follow from others come up when those are fixed: far fewer times than this.
const ROUNDS: usize = 16;

/// Repairs the store in `directory`, which no hub may be using: records that cannot be read are removed, what follows from others is made
/// anew, and what is lost by that is said. A store that is whole is not changed.
///
/// # Errors
/// As [`check`](super::check()); what the engine itself cannot read is not repaired.
pub fn repair(engine: store::Engine, directory: &Path, keys: &Keyring) -> Result<Repaired> {
    let (_lock, opened) = super::open_stopped(engine, directory)?;
    repair_records(Closed::new(opened.as_ref(), keys))
}

fn repair_records(records: Closed<'_>) -> Result<Repaired> {
    let (engine, keys) = (records.engine(), records.keys());
    let mut repair = Repair { records, steps: Vec::new(), strays: BTreeMap::new() };
    for _ in 0..ROUNDS {
        let (_, mut faults) = check::inspect(engine, keys)?;
        if faults.is_empty() {
            break;
        }
        // What the engine cannot read would seem to be missing.
        if let Some(damaged) = faults.iter().find(|fault| matches!(fault, Fault::Engine { .. })) {
            return Err(StoreError::Read(format!("{damaged}; its own files are damaged: restore a backup")));
        }
        // Logs and progress seem to belong to nothing as long as their topics have no records.
        let comes_first = |fault: &Fault| matches!(fault, Fault::NoFoundation | Fault::NoTopic { .. });
        if faults.iter().any(comes_first) {
            faults.retain(comes_first);
        }
        faults.into_iter().try_for_each(|fault| repair.fix(fault))?;
        repair.end_of_round()?;
    }
    let steps = repair.steps;
    Ok(Repaired { steps, left: check::findings(engine, keys)? })
}

/// A repair under way.
struct Repair<'a> {
    records: Closed<'a>,
    steps: Vec<RepairStep>,
    /// How many records of each kind were removed in this round because they belonged to nothing.
    strays: BTreeMap<Space, u64>,
}

impl Repair<'_> {
    fn lost(&mut self, what: impl Into<String>) {
        self.steps.push(RepairStep::Lost(what.into()));
    }

    fn rebuilt(&mut self, what: impl Into<String>) {
        self.steps.push(RepairStep::Rebuilt(what.into()));
    }

    fn fix(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Engine { .. } => Ok(()),
            Fault::Unreadable { space, key, .. } => self.unreadable(space, &key),
            Fault::NoFoundation => {
                self.rebuilt("the number of shards");
                self.records.put(key::FOUNDATION.to_vec(), &Foundation { shards: SHARDS })
            }
            Fault::Stray { space, key } => {
                *self.strays.entry(space).or_default() += 1;
                self.records.remove(space, &key)
            }
            Fault::Missing { topic, url, from, to } => self.missing(topic, &url, from, to),
            Fault::Summary(state) => {
                self.rebuilt(format!("the record of topic {} from its log", state.topic.url.as_str()));
                self.records.put(key::topic(state.topic.id), &*state)
            }
            // No number up to there is given to another notification: who has seen it would take that for a repetition.
            Fault::ReadAhead(mut state, offset) => {
                state.topic.head = offset;
                self.records.put(key::topic(state.topic.id), &*state)
            }
            Fault::NoTopic { topic, url, start } => self.topic(topic, url, start),
            Fault::Unindexed { pair, address } => self.index(&pair, address),
            Fault::Numbers(used) => {
                self.rebuilt("the numbers that were given out last");
                self.records.put(key::COUNTERS.to_vec(), &used)
            }
        }
    }

    fn end_of_round(&mut self) -> Result<()> {
        for (space, count) in std::mem::take(&mut self.strays) {
            let removed = format!("{count} records of {} that belonged to nothing", space.name());
            if matches!(space, Space::Log | Space::Subscriptions) {
                self.lost(removed);
            } else {
                self.rebuilt(format!("the {} without {removed}", space.name()));
            }
        }
        self.records.finish()
    }

    /// Notes in a log that nothing is there: subscribers that are owed it have a gap, but for what a restore had leaped over.
    fn missing(&mut self, topic: TopicId, url: &TopicUrl, from: Offset, to: Offset) -> Result<()> {
        let why = if Offset(from.0.saturating_sub(1)).leaps_to(to) { Empty::Leapt } else { Empty::Lost };
        let fault = Fault::Missing { topic, url: url.clone(), from, to };
        match why {
            Empty::Lost => self.lost(format!("{fault}; subscribers that had not got it have a gap")),
            Empty::Leapt => self.rebuilt(format!("the mark of a restore: {fault}")),
        }
        self.records.put(key::log(topic, from), &LogRecord::hole(to.0 - from.0 + 1, why, DateTime::now()))
    }

    /// Of two subscriptions for the same topic and callback the younger one counts.
    fn index(&mut self, pair: &key::Pair, address: Address) -> Result<()> {
        let found: Option<Address> = self.records.get(pair)?;
        let key = |at: Address| key::subscription(at.shard, at.topic, at.id);
        let other = match found {
            Some(other) => {
                self.records.get::<Subscription>(&key(other))?.filter(|one| check::pair(one) == *pair)
            }
            None => None,
        };
        let (counts, older) = match found.zip(other) {
            Some((other, _)) if other.id > address.id => (other, Some(address)),
            Some((other, _)) => (address, Some(other)),
            None => (address, None),
        };
        match older {
            Some(older) => {
                self.lost(format!(
                    "subscription {}: {} is for the same topic and callback",
                    older.id.0, counts.id.0
                ));
                self.records.remove(Space::Subscriptions, &key(older))?;
            }
            None => self.rebuilt(format!("the index of subscription {}", counts.id.0)),
        }
        self.records.put(pair.to_vec(), &counts)
    }

    /// Where retention had cut the log nobody knows. What is in it is looked at in the next round.
    fn topic(&mut self, id: TopicId, url: TopicUrl, newest_start: Offset) -> Result<()> {
        self.rebuilt(format!("the record of topic {}", url.as_str()));
        let (mut first, mut head) = (None, newest_start);
        for record in self.records.all(Space::Log) {
            let (key, _) = record?;
            if let Some((_, offset)) = key::place_of_log(&key).filter(|(topic, _)| *topic == id) {
                let places = self.records.get::<LogRecord>(&key)?.map_or(1, |record| record.body.places());
                first = first.or(Some(offset));
                head = head.max(Offset(offset.0.saturating_add(places - 1)));
            }
        }
        // No number up to here is given to another notification: who has seen it would take that for a repetition.
        for record in self.records.each() {
            let (_, TopicWatermark(topic, watermark)) = record?;
            head = if topic == id { head.max(watermark.furthest()) } else { head };
        }
        for record in self.records.each::<Laggard>() {
            let (_, laggard) = record?;
            head = if laggard.topic == id { head.max(laggard.cursor) } else { head };
        }
        let none = Offset::default();
        let topic = Topic { id, url, first: first.unwrap_or(head.next()), head, latest: none, posted: none };
        let payer = Payer::Strangers(None);
        self.records.put(key::topic(id), &TopicState { topic, bytes: 0, oldest: None, payer })
    }

    /// Replaces what cannot be read where something follows from its place, and else removes it.
    fn unreadable(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let topic = key::topic_of(space, key).map(key::topic);
        let state = topic.map(|topic| self.records.get::<TopicState>(&topic)).transpose()?.flatten();
        let is_replaced = match (space, &state) {
            (Space::Watermarks, Some(state)) => self.watermark(key, state)?,
            (Space::Laggards, Some(state)) => self.laggard(key, state)?,
            (Space::Meta, _) if key == key::FLOOR => self.floor()?,
            _ => false,
        };
        if is_replaced {
            return Ok(());
        }
        if space == Space::IdempotencyExpiry {
            self.records.remove(Space::Idempotency, &key::idempotency_of_expiry(key))?;
        }
        match loss(space, key, &name(state.as_ref())) {
            Some(what) => self.lost(what),
            // What is missing in a log is found there.
            None if matches!(space, Space::Log | Space::Bodies) => {}
            None => self.rebuilt(format!("the {} without a record that could not be read", space.name())),
        }
        self.records.remove(space, key)
    }

    fn watermark(&mut self, key: &[u8], state: &TopicState) -> Result<bool> {
        let (id, done) = (state.topic.id, before(state));
        let is_one = key.len() == key::shard_topic(Shard(0), id).len();
        if is_one {
            let topic = name(Some(state));
            self.rebuilt(format!("how far a shard of topic {topic} was: it gets again what the log holds"));
            let watermark = TopicWatermark(id, Watermark { done, sweep: None });
            self.records.put(key.to_vec(), &watermark)?;
        }
        Ok(is_one)
    }

    /// Whoever was behind, nobody knows how far, gets again what the log holds.
    fn laggard(&mut self, key: &[u8], state: &TopicState) -> Result<bool> {
        let Some(Subscription { id, topic, start, .. }) = self.records.get(key)? else { return Ok(false) };
        let url = name(Some(state));
        self.rebuilt(format!(
            "how far subscription {} of topic {url} was: it gets again what the log holds",
            id.0
        ));
        let laggard = Laggard {
            topic,
            subscription: id,
            cursor: before(state).max(start).min(state.topic.head),
            streak_failures: 0,
            next_attempt: DateTime::now(),
            pause: Duration::ZERO,
            failing: None,
            class: FailureClass::NotFailed,
        };
        self.records.put(key.to_vec(), &laggard)?;
        Ok(true)
    }

    fn floor(&mut self) -> Result<bool> {
        let mut highest = Offset::default();
        for record in self.records.each::<TopicState>() {
            highest = highest.max(record?.1.topic.head);
        }
        self.rebuilt("where the logs of new topics begin: far behind all that are known");
        self.records.put(key::FLOOR.to_vec(), &Floor(highest.leap()))?;
        Ok(true)
    }
}

/// Everything before the log is done.
fn before(state: &TopicState) -> Offset {
    Offset(state.topic.first.0.saturating_sub(1))
}

fn name(state: Option<&TopicState>) -> String {
    state.map_or_else(|| "of unknown URL".to_owned(), |state| state.topic.url.as_str().to_owned())
}

/// What is lost with a record that cannot be read, unless it follows from others.
fn loss(space: Space, key: &[u8], topic: &str) -> Option<String> {
    Some(match space {
        Space::Meta if key.starts_with(key::PAUSED) => "a topic is no longer paused".to_owned(),
        Space::Meta if key == key::UPTIME => {
            "when the hub was up: retention counts from the next start on".to_owned()
        }
        Space::Topics => "the record of a topic without subscriptions".to_owned(),
        Space::Requests => {
            "a request that waited for verification: its subscriber has to ask again".to_owned()
        }
        Space::Subscriptions => {
            let id = key::place_of_subscription(key).map_or(0, |(.., id)| id.0);
            format!("subscription {id} of topic {topic}: its subscriber has to subscribe again")
        }
        Space::Pings => "a ping: its topic is fetched when it is pinged again".to_owned(),
        Space::Skips => format!("the record of a notification of topic {topic} that was given up"),
        Space::Gaps => "the record of a gap".to_owned(),
        Space::Idempotency | Space::IdempotencyExpiry => {
            "an idempotency key: a notification that is repeated under it counts as a new one".to_owned()
        }
        Space::Chains => format!("how the Change Notifications of topic {topic} followed each other so far"),
        Space::Validators => {
            format!("the validators of topic {topic}: the next fetch takes all of its content")
        }
        Space::Denials => "a denial: its callback is not informed".to_owned(),
        Space::Meta
        | Space::Log
        | Space::Bodies
        | Space::SubscriptionIndex
        | Space::Watermarks
        | Space::Laggards => return None,
    })
}

#[cfg(test)]
mod tests;
