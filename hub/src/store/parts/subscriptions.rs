//! Subscriptions in force.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use resync_core::websub::{CallbackUrl, TopicUrl};

use crate::store::{
    Activation, CachePolicy, ClientUsage, Ended, Epoch, ReadAhead, Recipient, Result, Search, SearchResult,
    Shard, Subscription, SubscriptionId, SubscriptionKey, SubscriptionSummary, TopicId, VerifiedSubscription,
    VerifiedUnsubscription,
};

/// Subscriptions in force: how they begin and end, and their records.
#[async_trait]
pub trait Subscriptions: std::fmt::Debug + Send + Sync + 'static {
    /// What this client has the hub keep, and all clients together, and whether a subscription to this topic at this callback would
    /// bring a topic or a callback origin that the hub does not know.
    async fn accounted(
        &self,
        client: Option<IpAddr>,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<ClientUsage>;

    /// Puts a verified subscription in force: new, or in the place of the one with the same topic and callback, which keeps
    /// its identity and its cursor (W-061). A new one starts at the offset that the topic's log has at this moment.
    ///
    /// Only a request that still waits has a say: one that was replaced, removed or applied already changes nothing (D-17).
    async fn activate(&self, verified: VerifiedSubscription) -> Result<Activation>;

    /// Ends the subscription that a verified unsubscribe request names; unknown ones are no error (D-07).
    async fn deactivate(&self, verified: VerifiedUnsubscription) -> Result<Activation>;

    /// Ends a subscription for another reason, as the owner of its shard has found. Unknown ones are no error. One that may have been
    /// renewed after the caller had seen its end stays: one that has [`Ended::Expired`] ends only if its lease is over by the store's
    /// clock, and one that is [`Ended::Gone`] only if its lease is the one under which it was asked last.
    ///
    /// # Errors
    /// [`StoreError::Fenced`](crate::store::StoreError::Fenced) when `epoch` is not the newest of this shard.
    async fn end(
        &self,
        shard: Shard,
        epoch: Epoch,
        topic: TopicId,
        id: SubscriptionId,
        why: Ended,
    ) -> Result<()>;

    /// Ends a subscription whose record cannot be read, with what leads to it and a request that waits for its pair: who it was
    /// nobody knows any more. Returns whether there was one: any other stays as it is. Looks through the whole index.
    async fn end_unreadable(&self, shard: Shard, topic: TopicId, id: SubscriptionId) -> Result<bool>;

    /// The whole record of one subscription.
    async fn subscription(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Option<Subscription>>;

    /// To whom a delivery goes, and what will be asked for after that.
    async fn recipient(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
        ahead: ReadAhead,
        keep: CachePolicy,
    ) -> Result<Option<Arc<Recipient>>>;

    /// The subscription of this pair.
    async fn find_subscription(
        &self,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<Option<Subscription>> {
        self.subscription_of(SubscriptionKey::of(topic, callback)).await
    }

    /// The same by the hash of topic and callback, for those who do not name a callback.
    async fn subscription_of(&self, key: SubscriptionKey) -> Result<Option<Subscription>>;

    /// The subscriptions of a shard in the order of topics and ids, also those whose records cannot be read, for whoever only looks:
    /// commits pass while they are listed.
    async fn ids(&self, shard: Shard) -> Result<Vec<(TopicId, SubscriptionId)>>;

    /// The topic of a subscription of this shard, also if its record cannot be read. Takes little room, however many there are.
    async fn topic_of(&self, shard: Shard, id: SubscriptionId) -> Result<Option<TopicId>>;

    /// How many subscriptions each of these topics has.
    async fn subscribers(&self, of: &[TopicId]) -> Result<Vec<u64>>;

    /// Looks for subscriptions in a shard, in the order of topics and ids, beginning after this one.
    async fn search(
        &self,
        shard: Shard,
        after: Option<(TopicId, SubscriptionId)>,
        search: Search,
    ) -> Result<SearchResult>;

    /// At most `limit` subscriptions of a shard, or of one topic in it, in the order of topics and ids, beginning after this one.
    async fn slots_after(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<SubscriptionSummary>>;
}
