//! The progress of delivery.

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use crate::store::{
    Accepted, Checkpoint, Epoch, Gap, Laggard, Lapse, Missed, NotificationProgress, Offset, Result, Shard,
    ShardState, Skip, Spread, StoreEvent, Subscription, SubscriptionId, TopicId,
};

/// The progress of delivery, by shard. Each shard has one owner, which writes with its epoch.
#[async_trait]
pub trait Progress: std::fmt::Debug + Send + Sync + 'static {
    /// How many shards the subscriptions are divided into; fixed when the store is made.
    fn shards(&self) -> u16;

    /// All of them, for who owns them all or asks about everything.
    fn all_shards(&self) -> Vec<Shard> {
        (0..self.shards()).map(Shard).collect()
    }

    /// What happens from now on, in the order in which it became durable. Each receiver gets every event.
    ///
    /// A reader that calls this before [`Progress::load_shard`] misses nothing; it may see an event that the loaded state
    /// already holds, so events must be applied idempotently.
    fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent>;

    /// What other hubs accept from now on, and in which shards: their owners take it up. Where something is missed, a
    /// [`StoreEvent::Resync`] says so. An embedded store has no other hubs.
    fn watch_accepted(&self) -> mpsc::UnboundedReceiver<(Shard, Accepted)>;

    /// How the shards are spread over the hubs now; `None`: this hub is the only one, and owns them all.
    async fn spread(&self) -> Result<Option<Spread>>;

    /// Changes when another hub has released a shard, or stops: then it is worth a look how they are spread. So it is now and then in any case,
    /// since a dead hub says nothing. An embedded store has no other hubs.
    fn watch_spread(&self) -> watch::Receiver<()>;

    /// This hub stops: from now on the others share its shards, as it releases them, and they hear of that at once. Before that each of them owns
    /// its share, and would take nothing that is released. An embedded store has no other hubs.
    async fn announce_stop(&self) -> Result<()>;

    /// Whether this hub is to own no shards while another one can. All hubs know that within a second. It is not, unless this says so. Asks
    /// nobody; an embedded store has no other hubs.
    fn set_drained(&self, is_drained: bool);

    /// Whether this hub may begin something for its shards. Soon after it may not, others take it for dead; from then on it may not before that
    /// [`Lapse`] is settled. Asks nobody.
    fn may_begin(&self) -> bool;

    /// The lapse because of which this hub may begin nothing. What [`Progress::spread`] says that is asked after this tells what was lost by it.
    fn lapse(&self) -> Option<Lapse>;

    /// What was lost by this lapse is let go. Does nothing where there was another one since.
    fn settle(&self, lapse: Lapse);

    /// Takes the shard over: every earlier epoch of it is refused from now on.
    ///
    /// # Errors
    /// [`StoreError::Owned`](crate::store::StoreError::Owned) when another hub owns it that is not taken for dead. An embedded store has one
    /// hub only, and refuses none.
    async fn claim(&self, shard: Shard) -> Result<Epoch>;

    /// Gives the shard up: this epoch, too, is refused from now on, and any hub may claim the shard.
    ///
    /// # Errors
    /// [`StoreError::Fenced`](crate::store::StoreError::Fenced) when `epoch` is not the newest of this shard.
    async fn release(&self, shard: Shard, epoch: Epoch) -> Result<()>;

    /// Everything that a shard's owner needs to go on where the last one stopped.
    async fn load_shard(&self, shard: Shard) -> Result<ShardState>;

    /// Saves the progress of delivery, all of it or nothing. Laggards of a subscription that has ended are left out. Where a
    /// replay covers thousands of skips, the last of these are forgotten in steps of their own, before this returns: after a crash between two steps some are still
    /// listed, although what they are about is delivered again.
    ///
    /// # Errors
    /// [`StoreError::Fenced`](crate::store::StoreError::Fenced) when `epoch` is not the newest of this shard.
    async fn checkpoint(&self, shard: Shard, epoch: Epoch, checkpoint: Checkpoint) -> Result<()>;

    /// At most `limit` laggards of a shard, or of one topic in it, in the order of topics and ids, beginning after this one; as the last
    /// checkpoints have them, for whoever only looks.
    async fn laggards_of(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Laggard>>;

    /// How far the topic's subscriptions are with this notification, as the last checkpoints have it. Takes time in
    /// proportion to the number of subscriptions.
    async fn standing(&self, topic: TopicId, offset: Offset) -> Result<NotificationProgress>;

    /// Notifications that were given up for a subscription of this shard, at most `limit`, in the order of topics, offsets and
    /// subscriptions, beginning after this one.
    async fn skips(
        &self,
        shard: Shard,
        after: Option<(TopicId, Offset, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<Skip>>;

    /// Notifications that subscriptions have lost, at most `limit`, in the order in which that was found, beginning after this
    /// one. They are forgotten with what came in at that time.
    async fn gaps(&self, after: Option<Gap>, limit: usize) -> Result<Vec<Gap>>;

    /// What was given up for one subscription, and what it has lost, the newest first; looks at the newest `limit` records of
    /// either kind, of all subscriptions, and at none from before it began.
    async fn missed(&self, shard: Shard, of: &Subscription, limit: usize) -> Result<Missed>;
}
