//! The logs of topics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;

use crate::store::{
    Appended, Chain, NewNotification, Notification, Offset, Result, Shares, Topic, TopicId, Trimmed, Uptime,
};

/// Topics and their logs.
#[async_trait]
pub trait Log: std::fmt::Debug + Send + Sync + 'static {
    /// The topic with this URL, if anybody published to it or subscribed and retention has left anything of that.
    async fn topic(&self, url: &TopicUrl) -> Result<Option<Topic>>;

    /// At most `limit` topics with the bounds of their logs, in the order of their URLs ([`TopicUrl`] has it by its key), beginning
    /// after this one, whether that is still there or not. There may be a million: whoever looks at all of them does so page by page.
    /// A topic that is made or forgotten meanwhile may be on a page or not.
    async fn topics(&self, after: Option<&TopicUrl>, limit: usize) -> Result<Vec<Topic>>;

    /// Those of these topics that there are, in this order.
    async fn topics_of(&self, ids: &[TopicId]) -> Result<Vec<Topic>>;

    /// Appends to the topic's log, which is made if need be; returns once the record is durable.
    ///
    /// After [`StoreError::Write`](crate::store::StoreError::Write) nobody knows whether the notification is in the log; after any other error it is not.
    ///
    /// A notification whose idempotency key was seen on this topic within `remember` is not appended again: the first one's
    /// identity is returned. A key that was used for another body within that time is refused.
    async fn append(&self, notification: NewNotification, remember: Duration) -> Result<Appended>;

    /// The first notification at or after this offset that the log still holds; `None` when there is none yet.
    async fn notification_from(&self, topic: TopicId, offset: Offset) -> Result<Option<Arc<Notification>>>;

    /// The first offset whose notification came in at this moment or later, by the clock as it was then: one that was set back
    /// may have marked later ones as earlier. After the last offset when there is none. Reads the log from its beginning.
    async fn first_since(&self, topic: TopicId, since: DateTime) -> Result<Offset>;

    /// When each of these notifications came in; `None` where the log does not hold it.
    async fn received_at(&self, of: Vec<(TopicId, Offset)>) -> Result<Vec<Option<DateTime>>>;

    /// How the topic's Change Notifications follow each other; `None` when there never was one.
    async fn chain(&self, topic: TopicId) -> Result<Option<Chain>>;

    /// Forgets notifications received before `older_than`, then those that have to make room until the logs weigh no more than the
    /// shares allow. Of topics that a publisher speaks for these are the oldest of whichever topic's log weighs most, first of topics
    /// without subscriptions; the newest notification of each topic with a subscription is kept. Of all others see
    /// [`Log::make_room`]. A topic without one of which nothing is left, nor any
    /// idempotency key, is forgotten unless it is paused: should it come back, it has another identity and its log begins behind
    /// the last offset of all that were forgotten. Gaps that were found before `older_than` are forgotten too.
    async fn trim(&self, older_than: DateTime, shares: Shares) -> Result<Trimmed>;

    /// Forgets notifications of topics that no publisher speaks for, if these take more than their share: the oldest of the topic that
    /// takes most, of the host that takes most, on the network that takes most. Where nothing else is left, the newest of a topic
    /// goes too.
    async fn make_room(&self, shares: Shares) -> Result<Trimmed>;

    /// When the hub was up, as it was written down last; `None` in a store that never knew.
    async fn uptime(&self) -> Result<Option<Uptime>>;

    /// When any other hub of this store was up last that was so already at the time of [`Log::uptime`], by its heartbeats; `None`: there is none. One
    /// that has stopped says nothing any more.
    async fn others_seen(&self) -> Result<Option<DateTime>>;

    /// Writes down when the hub was up.
    async fn put_uptime(&self, uptime: Uptime) -> Result<()>;
}
