//! Limits the bytes of bodies in memory: a budget for each way in which they come in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use resync_common::locks::lock;
use resync_core::address::customer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::egress::BodyMemory;

/// Bytes are counted in units of this size, rounded up.
const UNIT: usize = 1_024;

/// The share of one client is one of so many parts of a budget.
const PARTS: usize = 4;
/// Of the budget for forms it is no less than the longest form, in bytes.
const LEAST_OF_FORMS: usize = 64 * 1_024;

/// How long a fetch waits for others to release their bytes. A limited number of fetches soon do.
const FETCH_PATIENCE: Duration = Duration::from_secs(5);

/// A budget for each way in which bodies come into memory.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Content that publishers post.
    pub posts: BodyBudget,
    /// Forms, which anybody may send. Half as much.
    pub forms: FormBudget,
    /// Topics that are fetched after a ping.
    pub fetches: BodyBudget,
    /// Logs that are read again (catching up).
    pub pages: BodyBudget,
}

impl Budgets {
    /// Budgets of so many bytes (`[publish] body_memory`); forms have half of it.
    pub fn new(bytes: u64) -> Self {
        let budget = || BodyBudget::new(bytes);
        Self { posts: budget(), forms: FormBudget::new(bytes / 2), fetches: budget(), pages: budget() }
    }
}

/// The bytes that all bodies of one kind may have together. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    semaphore: Arc<Semaphore>,
    /// Held while a reservation waits to grow. Two that did could wait for each other.
    growing: Arc<tokio::sync::Mutex<()>>,
    /// All its units.
    whole: usize,
    /// The shares of clients, as long as there are reservations of them.
    shares: Arc<Mutex<HashMap<IpAddr, ClientShare>>>,
}

/// The share of a client, a budget of its own, and how many reservations there are of it.
#[derive(Debug)]
struct ClientShare {
    budget: BodyBudget,
    reservations: usize,
}

/// A budget of which no client may have more than its share. Clones share it.
#[derive(Clone, Debug)]
pub struct FormBudget(BodyBudget);

/// Bytes of the budget that are reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    all: Part,
    of_client: ClientPart,
}

/// What a reservation takes of the share of a client.
#[derive(Debug)]
enum ClientPart {
    /// Nothing.
    None,
    /// As much as of the budget: it grows and shrinks along.
    Growing(ShareReservation),
    /// What [`Reservation::hold_for`] was told, until it is dropped.
    Fixed { _share: ShareReservation },
}

/// Bytes that are reserved of the share of a client.
#[derive(Debug)]
struct ShareReservation {
    part: Part,
    client: IpAddr,
    of: BodyBudget,
}

/// Bytes that are reserved of one budget.
#[derive(Debug)]
struct Part {
    budget: BodyBudget,
    held: Option<OwnedSemaphorePermit>,
}

/// Other bodies use up the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory for bodies of this kind is used up: try again, or raise [publish] body_memory")]
pub struct BudgetExhausted;

impl BodyBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: u64) -> Self {
        Self::of_units(units(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    fn of_units(units: usize) -> Self {
        let whole = units.min(Semaphore::MAX_PERMITS);
        let semaphore = Arc::new(Semaphore::new(whole));
        Self { semaphore, growing: Arc::default(), whole, shares: Arc::default() }
    }

    /// A reservation of nothing yet.
    pub fn reserve(&self) -> Reservation {
        Reservation { all: Part::of(self.clone()), of_client: ClientPart::None }
    }

    /// The units of the share of one client.
    fn share_units(&self) -> usize {
        self.whole / PARTS
    }

    /// A reservation of nothing yet of the share of a client, which has so many units.
    fn reserve_of_share(&self, client: IpAddr, units: usize) -> ShareReservation {
        let client = customer(client);
        let mut shares = lock(&self.shares);
        let fresh = || ClientShare { budget: Self::of_units(units), reservations: 0 };
        let share = shares.entry(client).or_insert_with(fresh);
        share.reservations += 1;
        ShareReservation { part: Part::of(share.budget.clone()), client, of: self.clone() }
    }
}

impl Drop for ShareReservation {
    fn drop(&mut self) {
        let mut shares = lock(&self.of.shares);
        if let Some(share) = shares.get_mut(&self.client) {
            share.reservations -= 1;
            if share.reservations == 0 {
                shares.remove(&self.client);
            }
        }
    }
}

impl FormBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(BodyBudget::new(bytes))
    }

    /// A reservation of nothing yet, for a form of this client.
    pub fn reserve(&self, client: IpAddr) -> Reservation {
        let Self(all) = self;
        let share = all.reserve_of_share(client, all.share_units().max(units(LEAST_OF_FORMS)));
        Reservation { of_client: ClientPart::Growing(share), ..all.reserve() }
    }
}

impl Reservation {
    /// Makes the reservation at least this large, waiting up to `patience` for other bodies of the client, and as long for those of
    /// others. Of several reservations that want to grow, one waits and the others fail at once, so that one of them succeeds.
    ///
    /// # Errors
    /// [`BudgetExhausted`]; what was reserved before stays.
    pub async fn grow_to(&mut self, bytes: usize, patience: Duration) -> Result<(), BudgetExhausted> {
        if let ClientPart::Growing(share) = &mut self.of_client {
            share.part.grow_to_units(units(bytes), patience).await?;
        }
        self.all.grow_to_units(units(bytes), patience).await
    }

    /// [`Self::grow_to`] for what has to be sent even if it is larger than the whole budget: then it reserves all of it. Who wants more
    /// than a quarter of the budget at a time does not wait, since everybody would wait behind it.
    ///
    /// # Errors
    /// [`BudgetExhausted`]; what was reserved before stays, as with [`Self::grow_to`].
    pub async fn grow_to_or_all(&mut self, bytes: usize, patience: Duration) -> Result<(), BudgetExhausted> {
        let most = self.all.budget.whole.saturating_mul(UNIT);
        let bytes = bytes.min(most);
        let missing = units(bytes).saturating_sub(self.all.held());
        let patience = if missing > self.all.budget.share_units() { Duration::ZERO } else { patience };
        self.grow_to(bytes, patience).await
    }

    /// Counts so many bytes for this client until the reservation is dropped. All that a client holds is at most a quarter of the
    /// budget; only what is all that it holds may be larger.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the client holds too much already.
    pub fn hold_for(&mut self, client: IpAddr, bytes: usize) -> Result<(), BudgetExhausted> {
        // What was counted before is counted anew.
        self.of_client = ClientPart::None;
        let whole = self.all.budget.share_units().max(1);
        let mut share = self.all.budget.reserve_of_share(client, whole);
        share.part.grow_at_once(units(bytes).min(whole)).map_err(|_| BudgetExhausted)?;
        self.of_client = ClientPart::Fixed { _share: share };
        Ok(())
    }

    /// Gives back all bytes beyond this.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.all.shrink_to_units(units(bytes));
        if let ClientPart::Growing(share) = &mut self.of_client {
            share.part.shrink_to_units(units(bytes));
        }
    }
}

impl Part {
    fn of(budget: BodyBudget) -> Self {
        Self { budget, held: None }
    }

    fn shrink_to_units(&mut self, units: usize) {
        let spare = self.held().saturating_sub(units);
        if let Some(held) = &mut self.held {
            drop(held.split(spare));
        }
    }

    fn held(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    async fn grow_to_units(&mut self, units: usize, patience: Duration) -> Result<(), BudgetExhausted> {
        if let Err(missing) = self.grow_at_once(units) {
            let missing = u32::try_from(missing).map_err(|_| BudgetExhausted)?;
            let more = self.wait_for(missing, patience).await?;
            self.add(more);
        }
        Ok(())
    }

    /// If it would have to wait, nothing is reserved; the error says how many units are missing.
    fn grow_at_once(&mut self, units: usize) -> Result<(), usize> {
        let missing = units.saturating_sub(self.held());
        if missing > 0 {
            let count = u32::try_from(missing).map_err(|_| missing)?;
            let more = Arc::clone(&self.budget.semaphore).try_acquire_many_owned(count);
            self.add(more.map_err(|_| missing)?);
        }
        Ok(())
    }

    fn add(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
    }

    async fn wait_for(
        &self,
        missing: u32,
        patience: Duration,
    ) -> Result<OwnedSemaphorePermit, BudgetExhausted> {
        let _growing = match self.held() {
            0 => None,
            _ => Some(self.budget.growing.try_lock().map_err(|_| BudgetExhausted)?),
        };
        let waiting = Arc::clone(&self.budget.semaphore).acquire_many_owned(missing);
        timeout(patience, waiting).await.map_err(|_| BudgetExhausted)?.map_err(|_| BudgetExhausted)
    }
}

/// A fetched topic reserves bytes as it comes in.
#[async_trait]
impl BodyMemory for Reservation {
    async fn reserve(&mut self, bytes: usize) -> bool {
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
        let client = IpAddr::from([192, 0, 2, 1]);
        let mut forms = budgets.forms.reserve(client);
        forms.grow_to(2 * 1_024, AT_ONCE).await.unwrap();
        assert_eq!(budgets.forms.reserve(client).grow_to(1, AT_ONCE).await, Err(BudgetExhausted));
        for other in [&budgets.posts, &budgets.fetches, &budgets.pages] {
            other.reserve().grow_to(4 * 1_024, AT_ONCE).await.unwrap();
        }
    }

    #[tokio::test]
    async fn one_client_with_many_forms_gets_a_quarter_of_their_memory_and_leaves_others_the_rest() {
        let forms = FormBudget::new(1 << 20);
        let of = |site: u16, network: u16| IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 1]);
        let mut held = Vec::new();
        for network in 0..20 {
            let mut form = forms.reserve(of(1, network));
            if form.grow_to(64 * 1_024, AT_ONCE).await.is_ok() {
                held.push(form);
            }
        }
        assert_eq!(held.len(), 4);
        for site in 2..=4 {
            let mut other = forms.reserve(of(site, 0));
            other.grow_to(256 * 1_024, AT_ONCE).await.unwrap();
            held.push(other);
        }
        drop(held);
        forms.reserve(of(1, 0)).grow_to(256 * 1_024, AT_ONCE).await.unwrap();
    }

    #[tokio::test]
    async fn what_one_body_holds_another_has_to_wait_for() {
        let budget = BodyBudget::new(3 * 1_024);
        let (mut one, mut other) = (budget.reserve(), budget.reserve());
        one.grow_to(2_000, AT_ONCE).await.unwrap();
        one.grow_to(100, AT_ONCE).await.unwrap();
        other.grow_to(1_024, AT_ONCE).await.unwrap();
        assert_eq!(other.grow_to(1_025, AT_ONCE).await, Err(BudgetExhausted));
        assert_eq!(one.grow_to(2_049, AT_ONCE).await, Err(BudgetExhausted));
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
        assert_eq!(tokio::join!(first, second), (Ok(()), Err(BudgetExhausted)));
    }

    #[tokio::test]
    async fn what_is_given_back_others_can_take_and_what_is_too_large_takes_all() {
        let budget = BodyBudget::new(3 * 1_024);
        let (mut one, mut other) = (budget.reserve(), budget.reserve());
        one.grow_to_or_all(1 << 20, AT_ONCE).await.unwrap();
        assert_eq!(other.grow_to_or_all(1, AT_ONCE).await, Err(BudgetExhausted));
        one.shrink_to(2_000);
        other.grow_to(1_024, AT_ONCE).await.unwrap();
        assert_eq!(other.grow_to(1_025, AT_ONCE).await, Err(BudgetExhausted));
    }

    #[test]
    fn one_client_holds_a_quarter_or_a_single_larger_one_and_others_are_as_free_as_before() {
        let budget = BodyBudget::new(8 * 1_024);
        let hold = |last: u8, bytes: usize| {
            let mut reservation = budget.reserve();
            reservation.hold_for([192, 0, 2, last].into(), bytes).map(|()| reservation)
        };
        let (one, two) = (hold(1, 1_024).unwrap(), hold(1, 1_024).unwrap());
        assert_eq!(hold(1, 1).err(), Some(BudgetExhausted));
        let large = hold(2, 1 << 20).unwrap();
        assert_eq!(hold(2, 1).err(), Some(BudgetExhausted));
        drop(two);
        let three = hold(1, 1_024).unwrap();
        drop((one, three, large));
        assert!(lock(&budget.shares).is_empty(), "nobody is remembered who holds nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_behind_what_is_larger_than_a_quarter() {
        let (budget, patience) = (BodyBudget::new(8 * 1_024), Duration::from_secs(5));
        let (mut held, mut large, mut small) = (budget.reserve(), budget.reserve(), budget.reserve());
        held.grow_to(1_024, AT_ONCE).await.unwrap();
        let refused = large.grow_to_or_all(1 << 20, patience);
        let taken = small.grow_to_or_all(1_024, patience);
        tokio::select! {
            biased;
            refused = refused => assert_eq!(refused, Err(BudgetExhausted)),
            () = tokio::time::sleep(patience / 2) => panic!("it waited"),
        }
        taken.await.unwrap();
    }
}
