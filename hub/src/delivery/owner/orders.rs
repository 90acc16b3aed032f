//! Carries out what other hubs order from the owners of this one's shards.

use tracing::warn;

use super::Owner;
use crate::delivery::sender::Operator;
use crate::store::{Order, OrderEvent, Shard, StoreError};
use crate::subscriptions::StopDeliveries;

impl Owner {
    /// Carries out the orders for this hub's shards until delivery stops.
    pub(in crate::delivery) fn follow_orders(&self) {
        let (owner, mut events) = (self.clone(), self.0.store.watch_orders());
        self.0.background.spawn_until_stopped(async move {
            while let Some(event) = events.recv().await {
                match event {
                    OrderEvent::Given(shards) => {
                        for shard in shards {
                            owner.look_for_orders(shard);
                        }
                    }
                    // Those that were given unseen.
                    OrderEvent::Resync => {
                        for shard in owner.0.store.all_shards() {
                            owner.look_for_orders(shard);
                        }
                    }
                    OrderEvent::Answered(_) => {}
                }
            }
        });
    }

    /// Carries out what waits for the owner of this shard, if that is here.
    pub(super) fn look_for_orders(&self, shard: Shard) {
        if self.0.workers.worker_of(shard).is_err() {
            return;
        }
        let owner = self.clone();
        self.0.background.spawn(async move {
            if let Err(error) = owner.carry_out_orders(shard).await {
                warn!(shard = shard.0, %error, "what another hub orders cannot be read or answered");
            }
        });
    }

    async fn carry_out_orders(&self, shard: Shard) -> Result<(), StoreError> {
        let operator = Operator::new(self.0.workers.clone());
        // Where it is on its way to another owner, they wait for that.
        let Ok(epoch) = operator.epoch_of(shard).await else { return Ok(()) };
        let orders = match self.0.store.take_orders(shard, epoch).await {
            Err(StoreError::Fenced) => return Ok(()),
            taken => taken?,
        };
        let mut answered = Ok(());
        for (id, order) in orders {
            let concerned = match order {
                Order::Execute(command) => operator.execute_in(shard, command).await.ok(),
                Order::Halt(subscription) => {
                    // Where the shard is gone, nothing is under way here, and its next owner knows of the end.
                    let _ = operator.halt(shard, subscription).await;
                    Some(0)
                }
            };
            // What was not carried out is not answered.
            if let Some(subscriptions) = concerned {
                // All are taken by now: where one cannot be answered, nobody else carries out those behind it.
                answered = answered.and(self.0.store.answer_order(id, shard, subscriptions).await);
            }
        }
        answered
    }
}
