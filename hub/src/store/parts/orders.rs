//! Orders to the owners of shards.

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use tokio::sync::mpsc;

use crate::store::{Epoch, Order, OrderEvent, OrderId, Result, Shard};

/// Orders to the owners of shards, whichever hubs they are, and their answers. A hub gives one for shards that it does not own itself.
/// They need not outlive the hub that gave them.
#[async_trait]
pub trait Orders: std::fmt::Debug + Send + Sync + 'static {
    /// What happens to orders from now on. An order is told after every [`StoreEvent`](crate::store::StoreEvent) that was durable before it
    /// was given.
    fn watch_orders(&self) -> mpsc::UnboundedReceiver<OrderEvent>;

    /// Gives an order to the owner of each of these shards: to whoever owns it when the order is taken, until this moment.
    /// It can be taken later by as long as it has waited to be given.
    async fn order(&self, to: &[Shard], order: Order, until: DateTime) -> Result<OrderId>;

    /// Takes the orders that wait for the owner of this shard, the oldest first. Each is taken once, so that nothing is done twice: one
    /// that was taken by a hub which then dies is never answered.
    ///
    /// # Errors
    /// [`StoreError::Fenced`](crate::store::StoreError::Fenced) when there are any and `epoch` is not the newest of this shard.
    async fn take_orders(&self, shard: Shard, epoch: Epoch) -> Result<Vec<(OrderId, Order)>>;

    /// Says that an order was carried out in this shard, and how many subscriptions it concerned there. Nobody may wait for that any more.
    async fn answer_order(&self, order: OrderId, shard: Shard, subscriptions: usize) -> Result<()>;

    /// The answers to an order so far.
    async fn answers_to(&self, order: OrderId) -> Result<Vec<(Shard, usize)>>;

    /// Nobody waits for answers to an order any more: it is forgotten, and where it was not taken yet it is not carried out.
    async fn withdraw_order(&self, order: OrderId) -> Result<()>;

    /// Until when each of these shards has an owner, unless that renews its lease; `None`: it was released, or never claimed.
    async fn owned_until(&self, of: &[Shard]) -> Result<Vec<Option<DateTime>>>;
}
