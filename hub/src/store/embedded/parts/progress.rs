//! The progress of delivery in the embedded store.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use super::super::engine::Keys;
use super::super::search::part_of_shard;
use super::super::writer::Kind;
use super::super::{Embedded, SLICE, SMALL};
use super::super::{missed, standing};
use crate::store::encoding::key;
use crate::store::{
    Accepted, Checkpoint, Epoch, Gap, Laggard, Lapse, Missed, NotificationProgress, Offset, Progress, Result,
    Shard, ShardState, Skip, Spread, StoreEvent, Subscription, SubscriptionId, TopicId,
};

#[async_trait]
impl Progress for Embedded {
    fn shards(&self) -> u16 {
        self.shards
    }

    fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent> {
        self.shared.watch()
    }

    fn watch_accepted(&self) -> mpsc::UnboundedReceiver<(Shard, Accepted)> {
        let (_, nothing) = mpsc::unbounded_channel();
        nothing
    }

    async fn spread(&self) -> Result<Option<Spread>> {
        #[cfg(test)]
        self.other_hub.unless_spread_hangs().await;
        #[cfg(test)]
        if let Some(spread) = self.other_hub.spread(self.all_shards()) {
            return Ok(Some(spread));
        }
        Ok(None)
    }

    /// Nothing ever changes.
    fn watch_spread(&self) -> watch::Receiver<()> {
        #[cfg(test)]
        if let Some(changes) = self.other_hub.watch_spread() {
            return changes;
        }
        watch::channel(()).1
    }

    async fn announce_stop(&self) -> Result<()> {
        #[cfg(test)]
        self.other_hub.hear_of_stop()?;
        Ok(())
    }

    /// It has no other hubs.
    fn set_drained(&self, _: bool) {}

    fn may_begin(&self) -> bool {
        #[cfg(test)]
        if self.other_hub.lapse().is_some() {
            return false;
        }
        true
    }

    fn lapse(&self) -> Option<Lapse> {
        #[cfg(test)]
        if let Some(lapse) = self.other_hub.lapse() {
            return Some(lapse);
        }
        None
    }

    /// It has none.
    fn settle(&self, _: Lapse) {
        #[cfg(test)]
        self.other_hub.set_lapse(false);
    }

    async fn claim(&self, shard: Shard) -> Result<Epoch> {
        #[cfg(test)]
        self.other_hub.check(shard)?;
        let epoch = self.change(move |t| t.claim(shard)).await?;
        #[cfg(test)]
        self.other_hub.claimed(shard, epoch);
        self.orders.claimed(shard, epoch);
        Ok(epoch)
    }

    async fn release(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.try_change(move |t| t.release(shard, epoch)).await?;
        #[cfg(test)]
        self.other_hub.released(shard);
        self.orders.released(shard, epoch);
        Ok(())
    }

    async fn load_shard(&self, shard: Shard) -> Result<ShardState> {
        #[cfg(test)]
        self.other_hub.unless_loads_hang().await;
        self.read(move |shared| shared.load_shard(shard)).await
    }

    async fn checkpoint(&self, shard: Shard, epoch: Epoch, checkpoint: Checkpoint) -> Result<()> {
        let Checkpoint { watermarks, laggards, skips, gaps, .. } = &checkpoint;
        let records = watermarks.len() + laggards.len() + skips.len() + gaps.len();
        let progress = Arc::new(checkpoint);
        let saved = Arc::clone(&progress);
        let mut left = self
            .writer
            .run(Kind::Essential, SMALL + records * 64, move |t| t.checkpoint(shard, epoch, &saved, SLICE))
            .await?;
        while let Some((replayed, from)) = left.pop() {
            let saved = Arc::clone(&progress);
            let next = self
                .try_change(move |t| t.forget_replayed((shard, epoch), &saved, &replayed, from, SLICE))
                .await?;
            left.extend(next.map(|next| (replayed, next)));
        }
        Ok(())
    }

    async fn laggards_of(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Laggard>> {
        let range = part_of_shard(shard, of, after);
        self.read(move |shared| shared.list(&range).take(limit).collect()).await
    }

    async fn standing(&self, topic: TopicId, offset: Offset) -> Result<NotificationProgress> {
        let shards = self.shards;
        self.read(move |shared| standing::standing(shared, shards, topic, offset)).await
    }

    async fn skips(
        &self,
        shard: Shard,
        after: Option<(TopicId, Offset, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Skip>> {
        let mut range = Keys::prefix(key::shard(shard));
        if let Some((topic, offset, id)) = after {
            range.from = key::skip(shard, topic, offset, SubscriptionId(id.0.saturating_add(1)));
        }
        self.read(move |shared| shared.list(&range).take(limit).collect()).await
    }

    async fn gaps(&self, after: Option<Gap>, limit: usize) -> Result<Vec<Gap>> {
        let mut range = Keys::all();
        if let Some(last) = after {
            // No other key lies between a key and itself with a byte more.
            range.from = [key::gap(&last).as_slice(), &[0]].concat();
        }
        self.read(move |shared| shared.list(&range).take(limit).collect()).await
    }

    async fn missed(&self, shard: Shard, of: &Subscription, limit: usize) -> Result<Missed> {
        let sought = missed::MissedQuery::new(shard, of);
        self.read(move |shared| sought.missed(shared, limit)).await
    }
}
