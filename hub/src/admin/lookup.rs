//! Where a subscription is: in which shard, whoever delivers for that.

use super::{AdminService, Failed};
use crate::store::{Shard, Subscription, SubscriptionId, TopicId};

impl AdminService {
    /// The shard and the topic of a subscription in force.
    pub(super) async fn place_of(&self, id: SubscriptionId) -> Result<(Shard, TopicId), Failed> {
        let place = match self.operator.place_of(id).await?.found() {
            Ok(place) => place,
            // Others may deliver to it: then the store has it.
            Err(_) => self.stored_place_of(id).await?,
        };
        place.ok_or(Failed::Unknown("subscription"))
    }

    /// The record of a subscription in force, and its shard.
    pub(super) async fn record(&self, id: SubscriptionId) -> Result<(Shard, Subscription), Failed> {
        let (shard, topic) = self.place_of(id).await?;
        let found = self.store.subscription(shard, topic, id).await?;
        Ok((shard, found.ok_or(Failed::Unknown("subscription"))?))
    }

    /// Asks about each shard in turn.
    async fn stored_place_of(&self, id: SubscriptionId) -> Result<Option<(Shard, TopicId)>, Failed> {
        for shard in self.store.all_shards() {
            let Some(topic) = self.store.topic_of(shard, id).await? else { continue };
            let found = self.store.subscription(shard, topic, id).await?;
            let in_force = found.is_some_and(|found| found.lease_end > self.store.now());
            return Ok(in_force.then_some((shard, topic)));
        }
        Ok(None)
    }
}
