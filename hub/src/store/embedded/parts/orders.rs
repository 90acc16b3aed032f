//! Orders to the owners of shards in the embedded store.

use std::time::Duration;

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use tokio::sync::mpsc;

use super::super::Embedded;
use crate::store::{Clock, Epoch, Order, OrderEvent, OrderId, Orders, Result, Shard};

/// For how long a shard is surely owned: an owner in this process needs to renew nothing.
const LEASE: Duration = Duration::from_secs(5);

#[async_trait]
impl Orders for Embedded {
    fn watch_orders(&self) -> mpsc::UnboundedReceiver<OrderEvent> {
        self.orders.watch()
    }

    async fn order(&self, to: &[Shard], order: Order, until: DateTime) -> Result<OrderId> {
        Ok(self.orders.give(to, order, until, self.now()))
    }

    async fn take_orders(&self, shard: Shard, epoch: Epoch) -> Result<Vec<(OrderId, Order)>> {
        if !self.orders.has_any(shard) {
            return Ok(Vec::new());
        }
        self.try_change(move |t| t.check_owner(shard, epoch)).await?;
        Ok(self.orders.take(shard, self.now()))
    }

    async fn answer_order(&self, order: OrderId, shard: Shard, subscriptions: usize) -> Result<()> {
        self.orders.answer(order, shard, subscriptions);
        Ok(())
    }

    async fn answers_to(&self, order: OrderId) -> Result<Vec<(Shard, usize)>> {
        Ok(self.orders.answers(order))
    }

    async fn withdraw_order(&self, order: OrderId) -> Result<()> {
        self.orders.withdraw(order);
        Ok(())
    }

    async fn owned_until(&self, of: &[Shard]) -> Result<Vec<Option<DateTime>>> {
        let until = DateTime::from_system_time(self.clock().system_time() + LEASE);
        Ok(of.iter().map(|shard| self.orders.is_owned(*shard).then_some(until)).collect())
    }
}
