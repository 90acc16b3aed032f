//! A shard that is being taken over: it is claimed, read and handed to its worker. Where that ends early, at whatever moment, what was claimed
//! is released, and until it is known what comes of a claim that was sent the shard is not taken again: of two claims of one hub the
//! store might carry out the older one last.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use resync_common::backoff::Backoff;
use resync_common::locks::lock;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{NotTaken, Owner, Shared};
use crate::delivery::load::load;
use crate::delivery::scheduler::Now;
use crate::delivery::sender::{LetGo, OwnedShard, Ownership, Stopped, WorkerMessage};
use crate::store::{Epoch, Shard, StoreError};
use crate::subscriptions::NotOwned;

/// Where to say that a shard which was to be let go while it was taken over is not here.
pub(super) type CalledOff = oneshot::Sender<Result<LetGo, NotOwned>>;

/// The pause before a claim of which nobody knows what came is made once more, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A shard that is being taken over, which its worker expects. Unless it is handed over, the worker hears at last that it does not come.
pub(super) struct Taking {
    of: Owner,
    pub(super) shard: Shard,
    worker: usize,
    /// The claim, once it is on its way and until it is known what came of it.
    sent: Option<BoxFuture<'static, Result<Epoch, StoreError>>>,
    /// The shard is this hub's.
    claimed: Option<Epoch>,
    is_handed_over: bool,
    /// Dropped when all is over.
    end: Option<oneshot::Sender<()>>,
}

impl Owner {
    /// Has a worker keep for this shard what happens from now on.
    pub(super) async fn expect(&self, shard: Shard) -> Result<Taking, NotTaken> {
        let worker = self.0.workers.assign(shard).ok_or(NotTaken::Here(shard))?;
        self.0.takings().insert(shard, Vec::new());
        let of = self.clone();
        let (sent, claimed, is_handed_over, end) = (None, None, false, None);
        let taking = Taking { of, shard, worker, sent, claimed, is_handed_over, end };
        // Who hands all shards over has found this one, or is found here.
        if self.is_stopping() {
            return Err(Stopped.into());
        }
        let (reply, is_kept) = oneshot::channel();
        self.0.workers.send(worker, WorkerMessage::Expect(shard, reply))?;
        // Only what is read after this may be handed over: an event that came before is in it.
        is_kept.await.map_err(|_| Stopped)?;
        Ok(taking)
    }
}

impl Taking {
    /// Where to wait until the shard is here, or may be taken again. Nothing is sent there.
    pub(super) fn end(&mut self) -> oneshot::Receiver<()> {
        let (end, over) = oneshot::channel();
        self.end = Some(end);
        over
    }

    /// Claims and loads it, beside the workers.
    pub(super) async fn load(&mut self, doubted_until: Option<Instant>) -> Result<OwnedShard, NotTaken> {
        let owner = Arc::clone(&self.of.0);
        let turn = Arc::clone(&owner.loads).acquire_owned().await.map_err(|_| Stopped)?;
        let ownership = Ownership { shard: self.shard, epoch: self.claim().await? };
        let state = owner.states[self.worker].clone();
        let mut loading = JoinSet::new();
        loading.spawn(async move {
            let _turn = turn;
            load(owner.store.as_ref(), ownership, &owner.settings, doubted_until, state).await
        });
        match loading.join_next().await {
            Some(Ok(owned)) => Ok(owned?),
            Some(Err(error)) => Err(StoreError::Read(error.to_string()).into()),
            None => Err(Stopped.into()),
        }
    }

    /// Lets its worker deliver for it.
    pub(super) fn hand_over(mut self, owned: OwnedShard) -> Result<(), NotTaken> {
        let Shared { store, counters, workers, .. } = self.of.0.as_ref();
        let (shard, scheduler, now) = (self.shard, &owned.scheduler, Now::read(store.clock()));
        // Who lets it go finds it here, or at its worker.
        let mut takings = self.of.0.takings();
        if takings.get(&shard).is_some_and(|called_off| !called_off.is_empty()) {
            return Err(NotTaken::CalledOff(shard));
        }
        counters.set_gauges(shard, scheduler.laggard_count(), scheduler.open_breakers());
        counters.set_subscriptions(shard, scheduler.in_force(now), scheduler.hosts());
        counters.set_saved(shard, now.monotonic);
        workers.hand_over(shard, owned.ownership.epoch);
        workers.send(self.worker, WorkerMessage::TakeOver(Box::new(owned)))?;
        counters.count_taken();
        takings.remove(&shard);
        drop(takings);
        self.is_handed_over = true;
        // Those that were given while nobody was here.
        self.of.look_for_orders(shard);
        Ok(())
    }

    /// Who is not waited for before this claims nothing: somebody else may own the shard by then.
    async fn claim(&mut self) -> Result<Epoch, StoreError> {
        let (owner, shard) = (Arc::clone(&self.of.0), self.shard);
        let sent = self.sent.insert(Box::pin(async move { owner.store.claim(shard).await }));
        let claimed = sent.await;
        self.sent = None;
        self.claimed = claimed.as_ref().ok().copied();
        claimed
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if self.is_handed_over {
            return;
        }
        let (owner, shard, worker) = (Arc::clone(&self.of.0), self.shard, self.worker);
        let (sent, claimed, end) = (self.sent.take(), self.claimed, self.end.take());
        if sent.is_none() && claimed.is_none() {
            return owner.abandon(shard, worker);
        }
        // Before anybody else may begin it.
        owner.workers.end_waiting_work(shard);
        self.of.0.background.spawn(async move {
            let epoch = match sent {
                Some(sent) => owner.outcome(shard, sent.await).await,
                None => claimed,
            };
            let is_released = match epoch {
                Some(epoch) => owner.release(shard, epoch).await,
                None => true,
            };
            owner.abandon(shard, worker);
            drop(end);
            if let Some(epoch) = epoch
                && !is_released
            {
                owner.release_again(shard, epoch).await;
            }
        });
    }
}

impl Shared {
    /// The epoch of a claim for which nobody waits any more, if it was carried out. What is not known cannot be released: then it is
    /// claimed once more.
    async fn outcome(&self, shard: Shard, mut claimed: Result<Epoch, StoreError>) -> Option<Epoch> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while matches!(claimed, Err(StoreError::Write(_) | StoreError::Unknown(_)))
            && self.background.pause(backoff.after_failure()).await
        {
            claimed = self.store.claim(shard).await;
        }
        claimed.ok()
    }

    /// Has a taking of this shard end that is under way. Returns where to hear that it has; `None` where there is none.
    pub(super) fn call_off(&self, shard: Shard) -> Option<oneshot::Receiver<Result<LetGo, NotOwned>>> {
        let mut takings = self.takings();
        let called_off = takings.get_mut(&shard)?;
        let (waits, answer) = oneshot::channel();
        called_off.push(waits);
        self.calling_off.notify_waiters();
        Some(answer)
    }

    /// Does this for a shard that is being taken over, and ends it where that is to be let go, or where delivery stops: to read one may take a
    /// minute.
    pub(super) async fn unless_called_off<T>(
        &self,
        shard: Shard,
        work: impl Future<Output = Result<T, NotTaken>>,
    ) -> Result<T, NotTaken> {
        tokio::select! {
            // So that nothing is claimed that is to be let go already.
            biased;
            () = self.called_off(shard) => Err(NotTaken::CalledOff(shard)),
            () = self.background.stopped() => Err(Stopped.into()),
            done = work => done,
        }
    }

    /// Returns when this shard, which is being taken over, is to be let go.
    async fn called_off(&self, shard: Shard) {
        loop {
            // Before it is looked: who calls it off after that wakes this.
            let next = self.calling_off.notified();
            if self.is_called_off(shard) {
                return;
            }
            next.await;
        }
    }

    /// Whether this shard is being taken over although it is to be let go.
    pub(super) fn is_called_off(&self, shard: Shard) -> bool {
        self.takings().get(&shard).is_some_and(|called_off| !called_off.is_empty())
    }

    pub(super) fn takings(&self) -> MutexGuard<'_, BTreeMap<Shard, Vec<CalledOff>>> {
        // What it guards is complete between any two statements.
        lock(&self.takings)
    }

    /// The shard does not come: it may be taken again, and who let it go meanwhile hears that it is not here.
    fn abandon(&self, shard: Shard, worker: usize) {
        // A worker that has ended expects nothing.
        let _ = self.workers.send(worker, WorkerMessage::Abandon(shard));
        let called_off = self.takings().remove(&shard).unwrap_or_default();
        // Only now it may be expected once more.
        self.workers.release(shard);
        for waits in called_off {
            // A caller that is gone needs no answer.
            let _ = waits.send(Ok(LetGo::Saved));
        }
    }
}
