//! Reading notifications from logs, each by one reader at a time.

use std::sync::Arc;

use bytes::BytesMut;
use resync_core::datetime::DateTime;

use super::engine::{Keys, Space};
use super::shared::Shared;
use crate::store::cache::ReadLock;
use crate::store::encoding::codec;
use crate::store::encoding::key;
use crate::store::encoding::layout::{Body, Empty, LogRecord, Part, received_at_of};
use crate::store::{Notification, Offset, Result, TopicId};

/// What is at a place of a log.
enum Assembled {
    Whole(Notification),
    /// Nothing that anybody is owed; the log goes on with `next`.
    Leap {
        next: Offset,
    },
    Missing,
}

impl Shared {
    /// The first offset at or after this one that the log of the topic holds.
    pub(super) fn first_from(&self, topic: TopicId, offset: Offset) -> Option<Offset> {
        let topics = self.topics();
        let topic = &topics.get(topic)?.topic;
        Some(offset.max(topic.first)).filter(|offset| *offset <= topic.head)
    }

    pub(super) fn cached_notification(&self, topic: TopicId, offset: Offset) -> Option<Arc<Notification>> {
        self.notifications.get(topic, offset)
    }

    /// Only the owner of the lock reads this notification. The lock is released however that ends.
    pub(super) async fn lock_to_read(&self, topic: TopicId, offset: Offset) -> ReadLock {
        self.notifications.lock_to_read(topic, offset).await
    }

    /// Reads the notification under its lock. All who wait for the lock get its error.
    pub(super) fn read_locked(
        &self,
        topic: TopicId,
        offset: Offset,
        read_lock: ReadLock,
    ) -> Result<Option<Arc<Notification>>> {
        let read = self.read_notification_from(topic, offset);
        if let Err(error) = &read {
            self.notifications.fail(topic, offset, read_lock, error);
        }
        read
    }

    /// Reads the first notification at or after an offset.
    fn read_notification_from(&self, topic: TopicId, offset: Offset) -> Result<Option<Arc<Notification>>> {
        let mut sought = self.first_from(topic, offset);
        while let Some(offset) = sought {
            if let Some(known) = self.cached_notification(topic, offset) {
                return Ok(Some(known));
            }
            match self.assemble(topic, offset)? {
                Assembled::Whole(notification) => {
                    let notification = Arc::new(notification);
                    self.notifications.put(notification.clone());
                    return Ok(Some(notification));
                }
                Assembled::Leap { next } => {
                    sought = self.first_from(topic, next);
                    continue;
                }
                Assembled::Missing => {}
            }
            // Retention may have removed it a moment ago, and memory be about to follow.
            let _still = self.still();
            sought = self.first_from(topic, offset);
            if sought == Some(offset) {
                if let Some(next) = self.behind_leap(topic, offset)? {
                    sought = self.first_from(topic, next);
                    continue;
                }
                let reason = "the log should hold all of it, but a part is missing";
                return Err(codec::damaged(Space::Log, &key::log(topic, offset), reason));
            }
        }
        Ok(None)
    }

    /// When this notification came in; `None` where the log does not hold it, or it cannot be read.
    pub(super) fn received_at(&self, topic: TopicId, offset: Offset) -> Result<Option<DateTime>> {
        if self.first_from(topic, offset) != Some(offset) {
            return Ok(None);
        }
        let key = key::log(topic, offset);
        let Some(value) = self.engine.get(Space::Log, &key)? else { return Ok(None) };
        Ok(codec::open_beginning(&self.keys(), Space::Log, &key, &value, received_at_of).ok())
    }

    /// The first offset whose notification came in at this moment or later; one that cannot be read is passed.
    pub(super) fn first_since(&self, topic: TopicId, since: DateTime) -> Result<Offset> {
        let keys = self.keys();
        for record in self.engine.scan(Space::Log, &Keys::prefix(key::topic(topic))) {
            let (key, value) = record?;
            let received_at = codec::open_beginning(&keys, Space::Log, &key, &value, received_at_of).ok();
            if let (Some((_, offset)), true) = (key::place_of_log(&key), received_at >= Some(since)) {
                return Ok(offset);
            }
        }
        Ok(self.topics().get(topic).map_or(Offset(0), |state| state.topic.head.next()))
    }

    /// Where the log goes on behind a place that a restore leaped over; `None` where this is no such place.
    fn behind_leap(&self, topic: TopicId, offset: Offset) -> Result<Option<Offset>> {
        let Some(before) = offset.0.checked_sub(1).map(Offset) else { return Ok(None) };
        let head = self.topics().get(topic).map(|state| state.topic.head);
        let Some(head) = head.filter(|head| *head >= offset) else { return Ok(None) };
        let behind = Keys::between(key::log(topic, offset), key::log(topic, head.next()));
        let record = self.engine.scan(Space::Log, &behind).next().transpose()?;
        let next = match record {
            Some((key, _)) => key::place_of_log(&key).map(|(_, place)| place),
            None => Some(head.next()),
        };
        // What is missing for another reason does not end where a leap does.
        Ok(next.filter(|next| before.leaps_to(Offset(next.0.saturating_sub(1)))))
    }

    fn assemble(&self, topic: TopicId, offset: Offset) -> Result<Assembled> {
        let key = key::log(topic, offset);
        let Some(record) = self.get::<LogRecord>(&key)? else { return Ok(Assembled::Missing) };
        let body = match &record.body {
            Body::Hole { length, why: Empty::Leapt } => {
                return Ok(Assembled::Leap { next: Offset(offset.0.saturating_add(*length)) });
            }
            Body::Hole { why: Empty::Lost, .. } => {
                return Err(codec::damaged(Space::Log, &key, "a repair found it damaged"));
            }
            Body::Here(body) => body.clone(),
            Body::Parts { .. } => {
                let mut body =
                    BytesMut::with_capacity(usize::try_from(record.body.len()).unwrap_or_default());
                for number in 0..record.body.parts() {
                    let Some(Part(part)) = self.get(&key::body(topic, offset, number))? else {
                        return Ok(Assembled::Missing);
                    };
                    body.extend_from_slice(&part);
                }
                body.freeze()
            }
        };
        let LogRecord { kind, received_at, content_type, links, trace, .. } = record;
        let notification =
            Notification { topic, offset, content_type, links, body, kind, received_at, trace };
        Ok(Assembled::Whole(notification))
    }
}
