//! Whether each log is whole from its first notification to its last, and whether its topic's record agrees with it.

use std::collections::{BTreeMap, HashMap};

use resync_core::datetime::DateTime;

use super::{Check, Fault};
use crate::store::embedded::engine::Space;
use crate::store::encoding::codec;
use crate::store::encoding::key;
use crate::store::encoding::layout::{Body, LogRecord, Part, TopicState};
use crate::store::{ContentKind, Offset, Payer, Result, TopicId};

pub(super) type Topics = HashMap<TopicId, TopicState>;

/// A log as far as it was looked at.
struct Run<'a> {
    noted: &'a TopicState,
    /// What should come next.
    next: Offset,
    is_whole: bool,
    bytes: u64,
    oldest: Option<DateTime>,
    latest: Offset,
    posted: Offset,
}

impl Check<'_> {
    /// Every topic that can be read.
    pub(super) fn topics(&self) -> Topics {
        self.each::<TopicState>().map(|(_, state)| (state.topic.id, state)).collect()
    }

    pub(super) fn check_logs(&mut self, topics: &Topics) -> Result<()> {
        let mut runs: BTreeMap<_, _> = topics.iter().map(|(id, noted)| (*id, Run::begin(noted))).collect();
        for (key, value) in self.every(Space::Log) {
            let known = key::place_of_log(&key).and_then(|(id, offset)| Some((runs.get_mut(&id)?, offset)));
            let Some((run, offset)) = known.filter(|(run, offset)| *offset >= run.next) else {
                self.stray(Space::Log, key);
                continue;
            };
            self.faults.extend(run.missing_up_to(offset));
            // One that cannot be read was named already; here it is missing.
            let record = codec::open::<LogRecord>(self.records.keys(), &key, &value).ok();
            match record.filter(|record| self.has_all_parts(run.noted.topic.id, offset, record)) {
                Some(record) => run.add(offset, &record),
                None => self.faults.extend(run.missing_up_to(Offset(offset.0.saturating_add(1)))),
            }
        }
        for mut run in runs.into_values() {
            self.faults.extend(run.missing_up_to(run.noted.topic.head.next()));
            self.faults.extend(run.disagreement());
        }
        self.check_bodies()
    }

    fn has_all_parts(&self, topic: TopicId, offset: Offset, record: &LogRecord) -> bool {
        let is_there = |part| self.records.get::<Part>(&key::body(topic, offset, part));
        (0..record.body.parts()).all(|part| is_there(part).is_ok_and(|part| part.is_some()))
    }

    /// Parts of bodies that are in no log.
    fn check_bodies(&mut self) -> Result<()> {
        // The parts of a body stand together.
        let mut last = None;
        for (key, _) in self.every(Space::Bodies) {
            let Some((topic, offset, part)) = key::place_of_body(&key) else {
                self.stray(Space::Bodies, key);
                continue;
            };
            let parts = match last {
                Some((of, parts)) if of == (topic, offset) => parts,
                _ => {
                    let record = self.records.get::<LogRecord>(&key::log(topic, offset))?;
                    record.map_or(0, |record| record.body.parts())
                }
            };
            last = Some(((topic, offset), parts));
            if part >= parts {
                self.stray(Space::Bodies, key);
            }
        }
        Ok(())
    }
}

impl<'a> Run<'a> {
    fn begin(noted: &'a TopicState) -> Self {
        let none = Offset::default();
        Self {
            noted,
            next: noted.topic.first,
            is_whole: true,
            bytes: 0,
            oldest: None,
            latest: none,
            posted: none,
        }
    }

    fn add(&mut self, offset: Offset, record: &LogRecord) {
        self.next = Offset(offset.0.saturating_add(record.body.places()));
        self.bytes += record.weight();
        self.oldest.get_or_insert(record.received_at);
        match (&record.body, record.kind) {
            (Body::Hole { .. }, _) => {}
            (_, ContentKind::Fetched) => self.latest = offset,
            (_, ContentKind::Posted) => self.posted = offset,
        }
    }

    /// Nothing whole is before this place.
    fn missing_up_to(&mut self, end: Offset) -> Option<Fault> {
        if self.next >= end {
            return None;
        }
        self.is_whole = false;
        let (topic, from) = (&self.noted.topic, std::mem::replace(&mut self.next, end));
        Some(Fault::Missing { topic: topic.id, url: topic.url.clone(), from, to: Offset(end.0 - 1) })
    }

    /// What the topic's record should be, where it is not; of a log that is not whole nobody knows.
    fn disagreement(self) -> Option<Fault> {
        let mut found = self.noted.clone();
        found.topic.head = Offset(self.next.0 - 1);
        found.topic.latest = found.topic.latest.max(self.latest);
        found.topic.posted = found.topic.posted.max(self.posted);
        (found.bytes, found.oldest) = (self.bytes, self.oldest);
        if found.topic.posted > Offset(0) {
            // Whoever posts speaks for the topic.
            found.payer = Payer::Publishers;
        }
        (self.is_whole && found != *self.noted).then(|| Fault::Summary(Box::new(found)))
    }
}
