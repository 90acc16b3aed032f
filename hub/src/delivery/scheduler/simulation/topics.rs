//! The topics of the simulated world: what is published, and what retention forgets.

use super::*;
use crate::store::Topic;

impl World {
    pub(super) fn publish(&mut self) {
        let topic = self.any_topic();
        self.publish_to(topic);
    }

    pub(super) fn publish_to(&mut self, topic: TopicId) {
        let kind = match topic {
            FETCHED => ContentKind::Fetched,
            MIXED if self.rng.bool() => ContentKind::Fetched,
            _ => ContentKind::Posted,
        };
        self.durable.logs.entry(topic).or_default().push(kind);
        let (offset, bytes) = (self.topic(topic).head, 1 << self.rng.u32(0..=20));
        let event = StoreEvent::Appended { topic, offset, kind, bytes };
        self.scheduler.apply(&event);
    }

    /// Retention forgets everything but the newest notification; of what is fetched for strangers that may have to make room too.
    pub(super) fn trim(&mut self) {
        let topic = self.any_topic();
        let head = self.topic(topic).head;
        let all = topic == FETCHED && self.rng.bool();
        let first = if all { head.next() } else { head.max(Offset(1)) };
        // What is forgotten does not come back.
        let first = first.max(self.first(topic));
        self.durable.firsts.insert(topic, first);
        self.seen.emptied += usize::from(all);
    }

    pub(super) fn any_topic(&mut self) -> TopicId {
        TopicId(self.rng.u64(1..=TOPICS))
    }

    pub(super) fn topic(&self, id: TopicId) -> Topic {
        let log = self.durable.logs.get(&id).map_or([].as_slice(), Vec::as_slice);
        let newest = |of| log.iter().rposition(|kind| *kind == of).map_or(0, |index| index as u64 + 1);
        Topic {
            id,
            url: "http://source.example/t".parse().unwrap(),
            first: self.first(id),
            head: Offset(log.len() as u64),
            latest: Offset(newest(ContentKind::Fetched)),
            posted: Offset(newest(ContentKind::Posted)),
        }
    }

    pub(super) fn kind(&self, topic: TopicId, offset: Offset) -> ContentKind {
        self.durable.logs[&topic][usize::try_from(offset.0).unwrap() - 1]
    }

    pub(super) fn first(&self, id: TopicId) -> Offset {
        self.durable.firsts.get(&id).copied().unwrap_or(Offset(1))
    }
}
