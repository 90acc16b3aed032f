//! Orders and their answers in memory: an embedded store has one hub, and with that hub they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use resync_common::locks::lock;
use resync_core::datetime::DateTime;
use tokio::sync::mpsc;

use crate::store::{Epoch, Order, OrderEvent, OrderId, Shard};

/// For how many milliseconds answers may still be asked for when the time of an order is over.
const KEPT: i64 = 60_000;

/// The orders, and which shards have an owner that could take one.
#[derive(Debug, Default)]
pub(super) struct Orders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    given: BTreeMap<OrderId, Given>,
    /// By the shards that are claimed: the epochs of their owners.
    owned: BTreeMap<Shard, Epoch>,
    watchers: Vec<mpsc::UnboundedSender<OrderEvent>>,
}

#[derive(Debug)]
struct Given {
    order: Order,
    until: DateTime,
    /// Where it was not taken yet.
    to: BTreeSet<Shard>,
    answers: BTreeMap<Shard, usize>,
}

impl Orders {
    /// A shard was claimed.
    pub(super) fn claimed(&self, shard: Shard, epoch: Epoch) {
        let mut state = self.state();
        let owner = state.owned.entry(shard).or_insert(epoch);
        *owner = epoch.max(*owner);
    }

    /// The owner with this epoch has released the shard.
    pub(super) fn released(&self, shard: Shard, epoch: Epoch) {
        let mut state = self.state();
        if state.owned.get(&shard) == Some(&epoch) {
            state.owned.remove(&shard);
        }
    }

    pub(super) fn is_owned(&self, shard: Shard) -> bool {
        self.state().owned.contains_key(&shard)
    }

    pub(super) fn watch(&self) -> mpsc::UnboundedReceiver<OrderEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().watchers.push(sender);
        receiver
    }

    /// Forgets older ones that nobody has withdrawn, too.
    pub(super) fn give(&self, to: &[Shard], order: Order, until: DateTime, now: DateTime) -> OrderId {
        let mut state = self.state();
        state.given.retain(|_, given| given.until.unix_millis().saturating_add(KEPT) >= now.unix_millis());
        state.last += 1;
        let id = OrderId(state.last);
        let given = Given { order, until, to: to.iter().copied().collect(), answers: BTreeMap::new() };
        state.given.insert(id, given);
        state.tell(&OrderEvent::Given(to.to_vec()));
        id
    }

    /// Whether any order waits for the owner of this shard.
    pub(super) fn has_any(&self, shard: Shard) -> bool {
        self.state().given.values().any(|given| given.to.contains(&shard))
    }

    /// Takes the orders for the owner of this shard; those whose time is over are left out.
    pub(super) fn take(&self, shard: Shard, now: DateTime) -> Vec<(OrderId, Order)> {
        let mut state = self.state();
        let waiting = state.given.iter_mut().filter_map(|(id, given)| {
            let is_taken = given.to.remove(&shard) && now <= given.until;
            is_taken.then(|| (*id, given.order.clone()))
        });
        waiting.collect()
    }

    pub(super) fn answer(&self, id: OrderId, shard: Shard, subscriptions: usize) {
        let mut state = self.state();
        if let Some(given) = state.given.get_mut(&id) {
            given.answers.insert(shard, subscriptions);
            state.tell(&OrderEvent::Answered(id));
        }
    }

    pub(super) fn answers(&self, id: OrderId) -> Vec<(Shard, usize)> {
        let state = self.state();
        let answers = state.given.get(&id).map(|given| &given.answers);
        answers.into_iter().flatten().map(|(shard, subscriptions)| (*shard, *subscriptions)).collect()
    }

    pub(super) fn withdraw(&self, id: OrderId) {
        self.state().given.remove(&id);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What it guards is complete between any two statements.
        lock(&self.0)
    }
}

impl State {
    fn tell(&mut self, event: &OrderEvent) {
        self.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
    }
}
