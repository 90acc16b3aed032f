//! How many bytes of bodies the hub holds in memory at once. What comes in by one way takes nothing from another.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::egress::Room;

/// Bytes are counted in units of this size, rounded up.
const UNIT: usize = 1_024;

/// How long a fetch waits for others to leave room, which a bounded number of fetches soon do.
const FETCH_PATIENCE: Duration = Duration::from_secs(5);

/// A budget for each way by which bodies come into memory.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Content that publishers post.
    pub posts: BodyBudget,
    /// Forms, which anybody may send. Half as much.
    pub forms: BodyBudget,
    /// Topics that are fetched after a ping.
    pub fetches: BodyBudget,
    /// Logs read again.
    pub pages: BodyBudget,
}

impl Budgets {
    /// So many bytes (`[publish] body_memory`) for each but forms.
    pub fn new(bytes: u64) -> Self {
        let budget = || BodyBudget::new(bytes);
        Self { posts: budget(), forms: BodyBudget::new(bytes / 2), fetches: budget(), pages: budget() }
    }
}

/// The bytes that the bodies of one kind may take together.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    semaphore: Arc<Semaphore>,
    /// Held by the one who waits for more than it has. Two who did so could wait for each other.
    growing: Arc<tokio::sync::Mutex<()>>,
    /// Units of the whole.
    whole: usize,
}

/// Bytes that are taken from the budget until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    budget: BodyBudget,
    held: Option<OwnedSemaphorePermit>,
}

/// Other bodies hold all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub holds as many bodies of this kind in memory as it may ([publish] body_memory)")]
pub struct BudgetSpent;

impl BodyBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let whole = units(bytes).min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(whole)), growing: Arc::default(), whole }
    }

    /// A reservation of nothing yet.
    pub fn reserve(&self) -> Reserved {
        Reserved { budget: self.clone(), held: None }
    }
}

impl Reserved {
    /// Makes the reservation at least so large, waiting for other bodies to leave no longer than `patience`. Where all is taken,
    /// one of those that hold a part already waits and the others fail at once, so that one of them gets through.
    ///
    /// # Errors
    /// [`BudgetSpent`] when there is no more room; what was reserved before stays.
    pub async fn grow_to(&mut self, bytes: usize, patience: Duration) -> Result<(), BudgetSpent> {
        self.grow_to_units(units(bytes), patience).await
    }

    /// The same for what must go out even if it is larger than the whole budget: then it waits for the whole.
    ///
    /// # Errors
    /// [`BudgetSpent`] when others do not leave in time; what was reserved before stays.
    pub async fn grow_to_at_most_all(&mut self, bytes: usize, patience: Duration) -> Result<(), BudgetSpent> {
        self.grow_to_units(units(bytes).min(self.budget.whole), patience).await
    }

    /// Gives back what is more than this.
    pub fn shrink_to(&mut self, bytes: usize) {
        let spare = self.held().saturating_sub(units(bytes));
        if let Some(held) = &mut self.held {
            drop(held.split(spare));
        }
    }

    fn held(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    async fn grow_to_units(&mut self, units: usize, patience: Duration) -> Result<(), BudgetSpent> {
        let Some(missing) = units.checked_sub(self.held()).filter(|missing| *missing > 0) else {
            return Ok(());
        };
        let missing = u32::try_from(missing).map_err(|_| BudgetSpent)?;
        let more = match Arc::clone(&self.budget.semaphore).try_acquire_many_owned(missing) {
            Ok(more) => more,
            Err(_) => self.wait_for(missing, patience).await?,
        };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }

    async fn wait_for(&self, missing: u32, patience: Duration) -> Result<OwnedSemaphorePermit, BudgetSpent> {
        let _growing = match self.held() {
            0 => None,
            _ => Some(self.budget.growing.try_lock().map_err(|_| BudgetSpent)?),
        };
        let waiting = Arc::clone(&self.budget.semaphore).acquire_many_owned(missing);
        timeout(patience, waiting).await.map_err(|_| BudgetSpent)?.map_err(|_| BudgetSpent)
    }
}

/// A topic takes room as it comes in.
#[async_trait]
impl Room for Reserved {
    async fn hold(&mut self, bytes: usize) -> bool {
        self.grow_to(bytes, FETCH_PATIENCE).await.is_ok()
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    #[tokio::test]
    async fn who_fills_one_budget_leaves_the_others_as_they_were() {
        let budgets = Budgets::new(4 * 1_024);
        let mut forms = budgets.forms.reserve();
        forms.grow_to(2 * 1_024, AT_ONCE).await.unwrap();
        assert_eq!(budgets.forms.reserve().grow_to(1, AT_ONCE).await, Err(BudgetSpent));
        for other in [&budgets.posts, &budgets.fetches, &budgets.pages] {
            other.reserve().grow_to(4 * 1_024, AT_ONCE).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_one_body_holds_another_has_to_wait_for() {
        let budget = BodyBudget::new(3 * 1_024);
        let (mut one, mut other) = (budget.reserve(), budget.reserve());
        one.grow_to(2_000, AT_ONCE).await.unwrap();
        one.grow_to(100, AT_ONCE).await.unwrap();
        other.grow_to(1_024, AT_ONCE).await.unwrap();
        assert_eq!(other.grow_to(1_025, AT_ONCE).await, Err(BudgetSpent));
        assert_eq!(one.grow_to(2_049, AT_ONCE).await, Err(BudgetSpent));
        drop(other);
        one.grow_to(3_072, AT_ONCE).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_bodies_that_each_hold_a_part_one_gets_the_whole() {
        let budget = BodyBudget::new(4 * 1_024);
        let (mut one, mut other) = (budget.reserve(), budget.reserve());
        one.grow_to(2_048, AT_ONCE).await.unwrap();
        other.grow_to(2_048, AT_ONCE).await.unwrap();
        let patience = Duration::from_secs(5);
        let first = async { one.grow_to(4_096, patience).await };
        let second = async {
            let grown = other.grow_to(4_096, patience).await;
            drop(other);
            grown
        };
        assert_eq!(tokio::join!(first, second), (Ok(()), Err(BudgetSpent)));
    }

    #[tokio::test]
    async fn what_is_given_back_others_can_take_and_what_is_too_large_takes_all() {
        let budget = BodyBudget::new(3 * 1_024);
        let (mut one, mut other) = (budget.reserve(), budget.reserve());
        one.grow_to_at_most_all(1 << 20, AT_ONCE).await.unwrap();
        assert_eq!(other.grow_to_at_most_all(1, AT_ONCE).await, Err(BudgetSpent));
        one.shrink_to(2_000);
        other.grow_to(1_024, AT_ONCE).await.unwrap();
        assert_eq!(other.grow_to(1_025, AT_ONCE).await, Err(BudgetSpent));
    }
}
