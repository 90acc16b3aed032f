//! Commands reach the owner of each shard, whichever hub that is: this one carries them out in its own shards, and orders them elsewhere.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_common::backoff::Backoff;
use resync_core::datetime::DateTime;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::scheduler::Command;
use super::sender::{NoAnswer, Operator, PartialAnswer};
use crate::store::{Order, OrderEvent, OrderId, Shard, Store, StoreError, SubscriptionId};
use crate::subscriptions::{NotOwned, StopDeliveries};

/// How long the owners of other shards have for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses until it is looked for answers where nobody tells of any, and for owners that are gone. Hundreds may wait at once.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LATEST_LOOK: Duration = Duration::from_secs(2);

/// Why a command is not carried out, or nobody knows whether it is.
#[derive(Debug, thiserror::Error)]
pub enum NotExecuted {
    /// A shard gives no answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The order cannot be given.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Carries out commands in all shards. Clones do the same.
#[derive(Clone, Debug)]
pub struct Orders {
    store: Arc<dyn Store>,
    operator: Operator,
}

impl Orders {
    /// `operator` reaches the shards of this hub.
    pub(super) fn new(store: Arc<dyn Store>, operator: Operator) -> Self {
        Self { store, operator }
    }

    /// Carries out a command in all shards; returns, once that is durable, how many subscriptions it concerns in those that have answered.
    ///
    /// # Errors
    /// [`NotExecuted`]
    pub async fn execute(&self, command: &Command) -> Result<PartialAnswer<usize>, NotExecuted> {
        let here = self.operator.execute(command).await.map_err(NoAnswer::from)?.of_this_hub();
        let mut answers: BTreeMap<Shard, usize> = here.into_iter().collect();
        let mut others = self.store.all_shards();
        let all = others.len();
        others.retain(|shard| !answers.contains_key(shard));
        if !others.is_empty() {
            answers.extend(self.ask(&others, Order::Execute(command.clone())).await?);
        }
        let elsewhere = all.saturating_sub(answers.len());
        Ok(PartialAnswer::new(answers.into_values().sum(), elsewhere))
    }

    /// Carries out a command in this shard alone, which has all that the command is about; returns, once that is durable, how many
    /// subscriptions it concerns.
    ///
    /// # Errors
    /// [`NotExecuted`]
    pub async fn execute_in(&self, shard: Shard, command: Command) -> Result<usize, NotExecuted> {
        let not_owned = match self.operator.execute_in(shard, command.clone()).await {
            Err(NoAnswer::NotOwned(not_owned)) => not_owned,
            executed => return Ok(executed?),
        };
        let answers = self.ask(&[shard], Order::Execute(command)).await?;
        let answer = answers.first().map(|(_, subscriptions)| *subscriptions);
        answer.ok_or_else(|| NoAnswer::from(not_owned).into())
    }

    /// Orders something from the owners of these shards; returns the answers of those who gave one in time.
    async fn ask(&self, shards: &[Shard], order: Order) -> Result<Vec<(Shard, usize)>, StoreError> {
        let mut events = self.store.watch_orders();
        let until = DateTime::from_system_time(self.store.clock().system_time() + PATIENCE);
        let id = self.store.order(shards, order, until).await?;
        // After that the answers are those that have come.
        let waited = timeout(PATIENCE, self.wait(id, shards, &mut events)).await;
        let answers = self.store.answers_to(id).await;
        if let Err(error) = self.store.withdraw_order(id).await {
            warn!(%error, "an order to other hubs is not withdrawn: it may still be carried out");
        }
        waited.unwrap_or(Ok(()))?;
        answers
    }

    /// Returns when all owners of these shards have answered. Nobody waits for a shard that nobody owns.
    async fn wait(
        &self,
        id: OrderId,
        shards: &[Shard],
        events: &mut mpsc::UnboundedReceiver<OrderEvent>,
    ) -> Result<(), StoreError> {
        let mut pauses = Backoff::new(FIRST_LOOK, LATEST_LOOK);
        loop {
            // Before the answers: an owner that is gone by now has given its answer before.
            let owned = self.store.owned_until(shards).await?;
            let (answers, now) = (self.store.answers_to(id).await?, self.store.now());
            let has_answered = |shard: Shard| answers.iter().any(|(of, _)| *of == shard);
            let mut owned = shards.iter().zip(owned);
            if owned.all(|(shard, until)| has_answered(*shard) || until.is_none_or(|until| until <= now)) {
                return Ok(());
            }
            tokio::select! {
                () = answered(id, events) => {}
                () = sleep(pauses.after_failure()) => {}
            }
        }
    }

    /// Returns when the owner of this shard has ended what was under way, or there is no such owner any more.
    async fn halt_elsewhere(&self, shard: Shard, subscription: SubscriptionId) -> Result<bool, StoreError> {
        if !self.ask(&[shard], Order::Halt(subscription)).await?.is_empty() {
            return Ok(true);
        }
        // Whoever claims it later reads there that the subscription has ended.
        let (owned, now) = (self.store.owned_until(&[shard]).await?, self.store.now());
        Ok(owned.into_iter().flatten().all(|until| until <= now))
    }
}

#[async_trait]
impl StopDeliveries for Orders {
    async fn halt(&self, shard: Shard, subscription: SubscriptionId) -> Result<(), NotOwned> {
        let here = self.operator.halt(shard, subscription).await;
        let not_owned = match here {
            // As long as others may not take this hub for dead, no other delivers for its shards.
            Ok(()) if self.store.may_begin() => return Ok(()),
            Ok(()) => NotOwned(shard),
            Err(not_owned) => not_owned,
        };
        match self.halt_elsewhere(shard, subscription).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(not_owned),
            Err(error) => {
                warn!(%error, shard = shard.0, "the owner of a shard cannot be told to stop deliveries");
                Err(not_owned)
            }
        }
    }
}

/// Returns when an owner has answered this order, or may have. What happens to those of others is none of its business: each would look for as many.
async fn answered(id: OrderId, events: &mut mpsc::UnboundedReceiver<OrderEvent>) {
    while let Some(event) = events.recv().await {
        if event == OrderEvent::Answered(id) || event == OrderEvent::Resync {
            return;
        }
    }
    // Nobody tells of any more.
    pending::<()>().await;
}

#[cfg(test)]
impl Orders {
    /// Of a delivery that has stopped.
    pub(crate) fn of_nobody(store: Arc<dyn Store>) -> Self {
        Self::new(store, Operator::of_nobody())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn whoever_waits_for_an_answer_looks_where_it_may_have_come_and_not_for_those_of_others() {
        let (told, mut events) = mpsc::unbounded_channel();
        let [own, other] = [1, 2].map(OrderId);
        for (event, may_be_it) in [
            (OrderEvent::Given(vec![Shard(1)]), false),
            (OrderEvent::Answered(other), false),
            (OrderEvent::Answered(own), true),
            (OrderEvent::Resync, true),
        ] {
            told.send(event.clone()).unwrap();
            assert_eq!(answered(own, &mut events).now_or_never().is_some(), may_be_it, "{event:?}");
        }
        drop(told);
        assert!(answered(own, &mut events).now_or_never().is_none(), "it is looked now and then");
    }
}
