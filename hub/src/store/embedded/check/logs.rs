//! Whether each log is whole from its first notification to its last, and whether its topic knows what is in it.

use std::collections::HashMap;

use resync_core::datetime::DateTime;

use super::{every, number, stray};
use crate::store::embedded::codec;
use crate::store::embedded::engine::{Engine, Space};
use crate::store::embedded::key;
use crate::store::embedded::layout::{LogRecord, Part, TopicState};
use crate::store::embedded::weights;
use crate::store::{Fault, Keyring, Offset, Result, Topic, TopicId};

pub(super) type Topics = HashMap<TopicId, TopicState>;

/// Every topic that can be read.
pub(super) fn topics(engine: &dyn Engine, keys: &Keyring) -> Topics {
    let mut topics = HashMap::new();
    for (key, value) in every(engine, Space::Topics) {
        if let Ok(state) = codec::open::<TopicState>(keys, &key, &value) {
            topics.insert(state.topic.id, state);
        }
    }
    topics
}

/// The end of a log as far as it is whole.
#[derive(Debug)]
struct Run {
    first: Offset,
    /// What should come next.
    next: Offset,
    /// As the topic counts them.
    bytes: u64,
    oldest: Option<DateTime>,
}

pub(super) fn check(
    engine: &dyn Engine,
    keys: &Keyring,
    topics: &Topics,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let unweighed = weights::unweighed(engine, keys);
    let mut runs: HashMap<TopicId, Run> = HashMap::new();
    for (key, value) in every(engine, Space::Log) {
        let place = number(&key, 0).map(TopicId).zip(number(&key, 8).map(Offset));
        let known = place.and_then(|(topic, offset)| Some((topics.get(&topic)?, offset)));
        let Some((state, offset)) = known.filter(|(state, offset)| *offset >= state.topic.first) else {
            faults.push(stray(Space::Log, &key));
            continue;
        };
        // What cannot be read was told of already; here it is missing.
        let Ok(notification) = codec::open::<LogRecord>(keys, &key, &value) else { continue };
        let topic = state.topic.id;
        let parts = notification.body.parts();
        if !(0..parts).all(|part| is_there(engine, keys, &key::body(topic, offset, part))) {
            continue;
        }
        let run = runs.entry(topic).or_insert_with(|| Run::begin(state.topic.first));
        if run.next != offset {
            *run = Run::begin(offset);
        }
        run.next = Offset(offset.0.saturating_add(notification.body.places()));
        run.bytes += if unweighed.contains(&topic) { notification.body.len() } else { notification.weight() };
        run.oldest = run.oldest.or(Some(notification.received_at));
    }
    for state in topics.values() {
        let run = runs.remove(&state.topic.id).unwrap_or_else(|| Run::begin(state.topic.first));
        faults.extend(run.judge(state));
    }
    check_bodies(engine, keys, faults)
}

impl Run {
    fn begin(first: Offset) -> Self {
        Self { first, next: first, bytes: 0, oldest: None }
    }

    /// What is wrong with the log, or else with the topic's own idea of it.
    fn judge(self, state: &TopicState) -> Option<Fault> {
        let Topic { first, head, ref url, .. } = state.topic;
        let topic = url.as_str().to_owned();
        let end = head.next();
        if self.next < end {
            return Some(Fault::Hole { topic, offset: head });
        }
        if self.first > first {
            return Some(Fault::Hole { topic, offset: Offset(self.first.0 - 1) });
        }
        let agrees = self.next == end && self.bytes == state.bytes && self.oldest == state.oldest;
        (!agrees).then_some(Fault::Summary { topic })
    }
}

fn is_there(engine: &dyn Engine, keys: &Keyring, key: &[u8]) -> bool {
    let found = engine.get(Space::Bodies, key).ok().flatten();
    found.is_some_and(|value| codec::open::<Part>(keys, key, &value).is_ok())
}

/// Parts of bodies that are in no log.
fn check_bodies(engine: &dyn Engine, keys: &Keyring, faults: &mut Vec<Fault>) -> Result<()> {
    // The parts of a body stand together.
    let mut last: Option<(Vec<u8>, u64)> = None;
    for (key, _) in every(engine, Space::Bodies) {
        let (Some(log), Some(part)) = (key.get(..16), number(&key, 16)) else {
            faults.push(stray(Space::Bodies, &key));
            continue;
        };
        if last.as_ref().is_none_or(|(of, _)| of != log) {
            let record = engine.get(Space::Log, log)?;
            let parts = record.and_then(|value| codec::open::<LogRecord>(keys, log, &value).ok());
            last = Some((log.to_vec(), parts.map_or(0, |record| record.body.parts())));
        }
        if last.as_ref().is_none_or(|(_, parts)| part >= *parts) {
            faults.push(stray(Space::Bodies, &key));
        }
    }
    Ok(())
}
