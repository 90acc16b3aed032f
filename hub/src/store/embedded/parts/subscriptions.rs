//! Subscriptions in force in the embedded store.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use resync_core::websub::{CallbackUrl, TopicUrl};

use super::super::Embedded;
use super::super::search::part_of_shard;
use crate::store::encoding::key;
use crate::store::encoding::layout::Address;
use crate::store::{
    Activation, CachePolicy, ClientUsage, Clock, Ended, Epoch, ReadAhead, Recipient, Result, Search,
    SearchResult, Shard, Subscription, SubscriptionId, SubscriptionKey, SubscriptionSummary, Subscriptions,
    TopicId, VerifiedSubscription, VerifiedUnsubscription,
};

#[async_trait]
impl Subscriptions for Embedded {
    async fn accounted(
        &self,
        client: Option<IpAddr>,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<ClientUsage> {
        Ok(self.shared.accounted(client, topic, callback))
    }

    async fn activate(&self, verified: VerifiedSubscription) -> Result<Activation> {
        self.try_change(move |t| t.activate(&verified)).await
    }

    async fn deactivate(&self, verified: VerifiedUnsubscription) -> Result<Activation> {
        self.try_change(move |t| t.deactivate(&verified)).await
    }

    async fn end(
        &self,
        shard: Shard,
        epoch: Epoch,
        topic: TopicId,
        id: SubscriptionId,
        why: Ended,
    ) -> Result<()> {
        let now = self.now();
        self.try_change(move |t| t.end(shard, epoch, topic, id, why, now)).await
    }

    async fn end_unreadable(&self, shard: Shard, topic: TopicId, id: SubscriptionId) -> Result<bool> {
        let address = Address { shard, topic, id };
        // Not in the transaction: publishers would wait for it.
        let pair = self.read(move |shared| shared.pair_at(address)).await?;
        self.try_change(move |t| t.end_unreadable(address, pair)).await
    }

    async fn subscription(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Option<Subscription>> {
        self.shared.get(&key::subscription(shard, topic, id))
    }

    async fn recipient(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
        ahead: ReadAhead,
        keep: CachePolicy,
    ) -> Result<Option<Arc<Recipient>>> {
        // A few small records: handing them to another thread would take longer than reading them.
        self.shared.recipient(shard, topic, id, ahead, keep)
    }

    async fn subscription_of(&self, key: SubscriptionKey) -> Result<Option<Subscription>> {
        self.shared.subscription_of(key)
    }

    async fn ids(&self, shard: Shard) -> Result<Vec<(TopicId, SubscriptionId)>> {
        self.read(move |shared| shared.ids(shard)).await
    }

    async fn topic_of(&self, shard: Shard, id: SubscriptionId) -> Result<Option<TopicId>> {
        self.read(move |shared| shared.topic_of(shard, id)).await
    }

    async fn subscribers(&self, of: &[TopicId]) -> Result<Vec<u64>> {
        Ok(self.shared.subscribers(of))
    }

    async fn search(
        &self,
        shard: Shard,
        after: Option<(TopicId, SubscriptionId)>,
        search: Search,
    ) -> Result<SearchResult> {
        let range = part_of_shard(shard, None, after);
        self.read(move |shared| shared.search(&range, &search)).await
    }

    async fn slots_after(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<SubscriptionSummary>> {
        let range = part_of_shard(shard, of, after);
        self.read(move |shared| shared.slots_in(&range, limit)).await
    }
}
