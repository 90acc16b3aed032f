//! The logs of topics in the embedded store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;

use super::super::writer::Kind;
use super::super::{Embedded, IDLE, SLICE, STRANGE_BYTES};
use crate::store::encoding::key;
use crate::store::{
    Appended, Chain, Clock, Log, NewNotification, Notification, Offset, Payer, Result, Shares, Topic,
    TopicId, Trimmed, Uptime,
};

#[async_trait]
impl Log for Embedded {
    async fn topic(&self, url: &TopicUrl) -> Result<Option<Topic>> {
        let topics = self.shared.topics();
        Ok(topics.id(url).and_then(|id| topics.get(id)).map(|state| state.topic.clone()))
    }

    async fn topics(&self, after: Option<&TopicUrl>, limit: usize) -> Result<Vec<Topic>> {
        Ok(self.shared.topics().page(after, limit).cloned().collect())
    }

    async fn topics_of(&self, ids: &[TopicId]) -> Result<Vec<Topic>> {
        let topics = self.shared.topics();
        Ok(ids.iter().filter_map(|id| topics.get(*id)).map(|state| state.topic.clone()).collect())
    }

    async fn append(&self, notification: NewNotification, remember: Duration) -> Result<Appended> {
        let bytes = usize::try_from(notification.weight()).unwrap_or(usize::MAX);
        let _permit = match notification.payer {
            Payer::Strangers(_) => {
                let share = u32::try_from(bytes).map_or(STRANGE_BYTES, |bytes| bytes.min(STRANGE_BYTES));
                // Nobody closes it.
                self.strange_bytes.acquire_many(share).await.ok()
            }
            Payer::Publishers => None,
        };
        self.writer.run(Kind::Growing, bytes, move |t| t.append(notification, remember)).await
    }

    async fn notification_from(&self, topic: TopicId, offset: Offset) -> Result<Option<Arc<Notification>>> {
        let Some(found) = self.shared.first_from(topic, offset) else { return Ok(None) };
        if let Some(notification) = self.shared.cached_notification(topic, found) {
            return Ok(Some(notification));
        }
        // Held until the notification is read, even if this caller goes away: two readers would have a copy each.
        let read_lock = self.shared.lock_to_read(topic, found).await;
        if let Some(failed) = &*read_lock {
            return Err(failed.clone());
        }
        if let Some(notification) = self.shared.cached_notification(topic, found) {
            return Ok(Some(notification));
        }
        self.read(move |shared| shared.read_locked(topic, found, read_lock)).await
    }

    async fn first_since(&self, topic: TopicId, since: DateTime) -> Result<Offset> {
        self.read(move |shared| shared.first_since(topic, since)).await
    }

    async fn received_at(&self, of: Vec<(TopicId, Offset)>) -> Result<Vec<Option<DateTime>>> {
        self.read(move |shared| {
            of.iter().map(|(topic, offset)| shared.received_at(*topic, *offset)).collect()
        })
        .await
    }

    async fn chain(&self, topic: TopicId) -> Result<Option<Chain>> {
        self.shared.get(&key::topic(topic))
    }

    async fn trim(&self, older_than: DateTime, shares: Shares) -> Result<Trimmed> {
        let trimmed = self.remove_slices(move |t, aim| t.trim(older_than, shares, aim, SLICE)).await?;
        self.in_slices(move |t, from| t.forget_gaps(older_than, from, SLICE)).await?;
        let now = self.now();
        self.in_slices(move |t, from| t.forget_idempotency(now, from, SLICE)).await?;
        for topics in self.shared.idle().chunks(IDLE).map(<[TopicId]>::to_vec) {
            self.try_change(move |t| t.forget_topics(&topics, SLICE)).await?;
        }
        Ok(trimmed)
    }

    async fn make_room(&self, shares: Shares) -> Result<Trimmed> {
        if self.shared.topics().log_bytes().strangers <= shares.strangers {
            return Ok(Trimmed::default());
        }
        self.remove_slices(move |t, aim| t.make_room(shares, aim, SLICE)).await
    }

    async fn uptime(&self) -> Result<Option<Uptime>> {
        self.shared.get(key::UPTIME)
    }

    /// It has no other hubs.
    async fn others_seen(&self) -> Result<Option<DateTime>> {
        Ok(None)
    }

    async fn put_uptime(&self, uptime: Uptime) -> Result<()> {
        self.change(move |t| t.put_uptime(&uptime)).await
    }
}
