//! How the workers are reached: what one may be asked for, and which of them has a shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use resync_common::locks::lock;
use tokio::sync::{mpsc, oneshot};

use super::letting_go::{LetGo, Reply};
use super::owned_shard::OwnedShard;
use crate::delivery::scheduler::{Command, Now};
use crate::store::{Epoch, Shard, SubscriptionId};
use crate::subscriptions::NotOwned;
use crate::waiting_work::WaitingWork;

/// Delivery has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("delivery has stopped")]
pub struct Stopped;

/// What a worker is asked for.
pub(crate) enum WorkerMessage {
    /// To be answered at once.
    Query(Query),
    /// To be answered with all that was durable before.
    UpToDateQuery(Query),
    /// For this shard or for all, to be answered once it is durable, with the number of subscriptions that it concerns in each.
    Command(Command, Option<Shard>, oneshot::Sender<Vec<(Shard, usize)>>),
    /// To be answered once nothing is under way to this subscription, which has ended.
    Cancel(Shard, SubscriptionId, oneshot::Sender<Result<(), NotOwned>>),
    /// The address to which the name of this origin leads now was confirmed.
    Confirmed(Arc<str>),
    /// This shard is about to be read: what happens from now on is kept for it. To be answered once that is so.
    Expect(Shard, oneshot::Sender<()>),
    /// The shard that was expected.
    TakeOver(Box<OwnedShard>),
    /// The shard that was expected does not come.
    Abandon(Shard),
    /// To be answered once this shard is given up.
    LetGo(Shard, Reply),
}

/// A shard that its worker gives up by itself, and how that goes.
pub(crate) type GivenUp = (Shard, oneshot::Receiver<Result<(LetGo, Epoch), NotOwned>>);

/// Looks at the shards of a worker, as they are now, and answers.
pub(super) type Query = Box<dyn FnOnce(&[OwnedShard], Now) + Send>;

/// The workers of this hub. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Workers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    senders: Vec<mpsc::UnboundedSender<WorkerMessage>>,
    /// How many the store has.
    shards: u16,
    /// The shards that this hub owns or is about to take over.
    assigned: Mutex<BTreeMap<Shard, Assigned>>,
    /// What else is done for these shards. It reaches the workers itself, so it is kept elsewhere.
    waiting: OnceLock<Vec<Weak<dyn WaitingWork>>>,
    /// Who takes over again what a worker gives up by itself.
    given_up: OnceLock<mpsc::UnboundedSender<GivenUp>>,
}

/// Where a shard is.
#[derive(Clone, Copy, Debug)]
struct Assigned {
    /// The number of its worker.
    worker: usize,
    /// With which this hub owns it; `None`: it is being taken over.
    epoch: Option<Epoch>,
}

impl Workers {
    /// Those that take messages from these, for a store with so many shards. No shard is assigned yet.
    pub(crate) fn new(senders: Vec<mpsc::UnboundedSender<WorkerMessage>>, shards: u16) -> Self {
        let (assigned, waiting, given_up) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        Self(Arc::new(Shared { senders, shards, assigned, waiting, given_up }))
    }

    /// From now on it is told there which shards workers give up by themselves. The first call counts.
    pub(crate) fn set_given_up(&self, given_up: mpsc::UnboundedSender<GivenUp>) {
        let _ = self.0.given_up.set(given_up);
    }

    /// A worker gives a shard up by itself.
    pub(super) fn give_up(&self, given_up: GivenUp) {
        if let Some(sender) = self.0.given_up.get() {
            // When delivery stops, nobody takes it again.
            let _ = sender.send(given_up);
        }
    }

    /// From now on this is taken up and let go with the shards, as long as it is kept. The first call counts.
    pub(crate) fn set_waiting_work(&self, waiting: &[Arc<dyn WaitingWork>]) {
        let _ = self.0.waiting.set(waiting.iter().map(Arc::downgrade).collect());
    }

    /// What is taken up and let go with the shards.
    pub(crate) fn waiting_work(&self) -> Vec<Arc<dyn WaitingWork>> {
        self.0.waiting.get().into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Nothing else is done for this shard any more.
    pub(crate) fn end_waiting_work(&self, shard: Shard) {
        self.waiting_work().iter().for_each(|waiting| waiting.let_go(shard));
    }

    /// How many shards the store has.
    pub(crate) fn shards(&self) -> u16 {
        self.0.shards
    }

    /// Each of them.
    pub(super) fn senders(&self) -> &[mpsc::UnboundedSender<WorkerMessage>] {
        &self.0.senders
    }

    /// Assigns a shard to the worker that has the fewest; returns its number. `None`: it is assigned already.
    pub(crate) fn assign(&self, shard: Shard) -> Option<usize> {
        let mut assigned = self.assigned();
        if assigned.contains_key(&shard) {
            return None;
        }
        let mut shards = vec![0_usize; self.0.senders.len()];
        assigned.values().for_each(|assigned| shards[assigned.worker] += 1);
        // The first of those that have equally few: so all shards of a store are dealt out in turn.
        let worker = (0..shards.len()).min_by_key(|worker| shards[*worker])?;
        assigned.insert(shard, Assigned { worker, epoch: None });
        Some(worker)
    }

    /// A shard is handed over to the worker to which it is assigned.
    pub(crate) fn hand_over(&self, shard: Shard, epoch: Epoch) {
        if let Some(assigned) = self.assigned().get_mut(&shard) {
            assigned.epoch = Some(epoch);
        }
    }

    /// No worker has this shard any more, so nothing else is done for it either. Only who was to bring it, or its worker, may say so: somebody
    /// else might mean a shard that has come back meanwhile.
    pub(crate) fn release(&self, shard: Shard) {
        self.end_waiting_work(shard);
        // Only now it may come back.
        self.assigned().remove(&shard);
    }

    /// To the worker with this number.
    pub(crate) fn send(&self, worker: usize, message: WorkerMessage) -> Result<(), Stopped> {
        self.0.senders.get(worker).ok_or(Stopped)?.send(message).map_err(|_| Stopped)
    }

    /// The number of the worker that has this shard, or is about to.
    pub(crate) fn worker_of(&self, shard: Shard) -> Result<usize, NotOwned> {
        self.assigned().get(&shard).map(|assigned| assigned.worker).ok_or(NotOwned(shard))
    }

    /// The shards that this hub has, or is about to.
    pub(crate) fn all_assigned(&self) -> BTreeSet<Shard> {
        self.assigned().keys().copied().collect()
    }

    /// The shards that this hub has, with the epochs of its claims.
    pub(crate) fn owned(&self) -> BTreeMap<Shard, Epoch> {
        let assigned = self.assigned();
        assigned.iter().filter_map(|(shard, assigned)| Some((*shard, assigned.epoch?))).collect()
    }

    fn assigned(&self) -> MutexGuard<'_, BTreeMap<Shard, Assigned>> {
        // What it guards is complete between any two statements.
        lock(&self.0.assigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many workers, and what reaches each.
    fn workers(number: usize) -> (Workers, Vec<mpsc::UnboundedReceiver<WorkerMessage>>) {
        let (senders, messages) = (0..number).map(|_| mpsc::unbounded_channel()).unzip();
        (Workers::new(senders, 16), messages)
    }

    #[test]
    fn a_shard_goes_to_the_worker_that_has_the_fewest_and_to_one_worker_only() {
        let (workers, _messages) = workers(3);
        let first: Vec<_> = (0..7).map(|shard| workers.assign(Shard(shard)).unwrap()).collect();
        assert_eq!(first, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(workers.assign(Shard(4)), None, "somebody has it");
        workers.release(Shard(1));
        workers.release(Shard(4));
        assert_eq!(workers.worker_of(Shard(4)), Err(NotOwned(Shard(4))));
        assert_eq!(workers.assign(Shard(9)), Some(1), "it has none left");
        assert_eq!(workers.worker_of(Shard(9)), Ok(1));
        workers.hand_over(Shard(9), Epoch(2));
        assert_eq!(
            workers.owned(),
            BTreeMap::from([(Shard(9), Epoch(2))]),
            "the others are being taken over"
        );
    }
}
