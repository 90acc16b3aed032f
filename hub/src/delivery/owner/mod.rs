//! Which shards this hub owns: it takes them over and lets them go, while its workers deliver for the others.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::load::{doubt, load};
use super::scheduler::{Now, WorkerState};
use super::sender::{Counters, LetGo, Owned, Settings, Stopped, WorkerMessage, Workers};
use crate::completion::run_to_completion;
use crate::store::{Epoch, Shard, Store, StoreError};
use crate::subscriptions::NotOwned;
use crate::waiting_work::WaitingWork;

/// Why a shard is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// It is here already.
    #[error("this hub delivers for shard {} already, or is about to", .0.0)]
    Here(Shard),
    /// It cannot be claimed or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Delivery has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Takes shards over and lets them go. Clones do the same.
#[derive(Clone, Debug)]
pub struct Owner(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    settings: Settings,
    counters: Arc<Counters>,
    workers: Workers,
    /// By worker, what its shards have in common.
    states: Vec<WorkerState>,
    /// Shards are loaded on all cores, but not all at once: what the store hands over takes more room than what is kept of it.
    loads: Arc<Semaphore>,
}

impl Owner {
    /// The owner of no shard yet. `states` has one for each of the workers.
    pub(super) fn new(
        store: Arc<dyn Store>,
        settings: Settings,
        counters: Arc<Counters>,
        workers: Workers,
        states: Vec<WorkerState>,
    ) -> Self {
        let loads = Arc::new(Semaphore::new(states.len()));
        Self(Arc::new(Shared { store, settings, counters, workers, states, loads }))
    }

    /// Takes a shard over from whoever owned it, and what waits in it. When this returns, deliveries go on where they were left; where it
    /// fails, or is not waited for, this hub does nothing for the shard.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub async fn take(&self, shard: Shard) -> Result<(), NotTaken> {
        let taking = self.expect(shard).await?;
        // Each time: the clock may have jumped since the start.
        let doubted_until = doubt(self.0.store.as_ref()).await?;
        let owned = taking.load(doubted_until).await?;
        self.take_up(&[shard]).await?;
        taking.hand_over(owned)
    }

    /// The same for all shards of the store, with this work in them from now on. Nothing is delivered before all are loaded, which
    /// deliveries would hold up.
    pub(super) async fn take_all(&self, waiting: &[Arc<dyn WaitingWork>]) -> Result<(), NotTaken> {
        self.0.workers.set_waiting_work(waiting);
        let shards: Vec<_> = (0..self.0.workers.shards()).map(Shard).collect();
        let all = try_join_all(shards.iter().map(|shard| self.expect(*shard))).await?;
        let doubted_until = doubt(self.0.store.as_ref()).await?;
        if let Some(until) = doubted_until {
            let seconds = until.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(seconds, "the hub was down, or the clock is wrong: no lease ends for so long");
        }
        let loaded = try_join_all(all.iter().map(|taking| taking.load(doubted_until))).await?;
        self.take_up(&shards).await?;
        all.into_iter().zip(loaded).try_for_each(|(taking, owned)| taking.hand_over(owned))
    }

    /// Lets a shard go: makes no more requests for it, waits a little for those under way, saves the progress, releases it for other hubs, and
    /// only then returns. It takes three seconds at most beside that, and goes on also where it is not waited for.
    ///
    /// # Errors
    /// [`NotOwned`]
    pub async fn let_go(&self, shard: Shard) -> Result<LetGo, NotOwned> {
        let worker = self.0.workers.worker_of(shard)?;
        let (reply, outcome) = oneshot::channel();
        let sent = self.0.workers.send(worker, WorkerMessage::LetGo(shard, reply));
        sent.map_err(|Stopped| NotOwned(shard))?;
        let store = Arc::clone(&self.0.store);
        run_to_completion(async move {
            // A worker that has ended owns nothing any more.
            let (how, epoch) = outcome.await.unwrap_or(Err(NotOwned(shard)))?;
            if how == LetGo::Saved {
                release(store.as_ref(), shard, epoch).await;
            }
            Ok::<_, NotOwned>(how)
        })
        .await
    }

    /// Takes up what else waits in these shards, which are claimed.
    async fn take_up(&self, shards: &[Shard]) -> Result<(), StoreError> {
        for waiting in self.0.workers.waiting_work() {
            waiting.take(shards).await?;
        }
        Ok(())
    }

    /// Has a worker keep for this shard what happens from now on.
    async fn expect(&self, shard: Shard) -> Result<Taking, NotTaken> {
        let worker = self.0.workers.assign(shard).ok_or(NotTaken::Here(shard))?;
        let taking = Taking { of: self.clone(), shard, worker, is_handed_over: false };
        let (reply, is_kept) = oneshot::channel();
        self.0.workers.send(worker, WorkerMessage::Expect(shard, reply))?;
        // Only what is read after this may be handed over: an event that came before is in it.
        is_kept.await.map_err(|_| Stopped)?;
        Ok(taking)
    }
}

/// Lets other hubs claim a shard at once. Otherwise they do when they take this one for dead.
async fn release(store: &dyn Store, shard: Shard, epoch: Epoch) {
    match store.release(shard, epoch).await {
        // Somebody has taken it over by now.
        Ok(()) | Err(StoreError::Fenced) => {}
        Err(error) => tracing::warn!(shard = shard.0, %error, "shard not released"),
    }
}

/// A shard that is being taken over, which its worker expects. Unless it is handed over, the worker hears at last that it does not come.
struct Taking {
    of: Owner,
    shard: Shard,
    worker: usize,
    is_handed_over: bool,
}

impl Taking {
    /// Claims and loads it, beside the workers.
    async fn load(&self, doubted_until: Option<Instant>) -> Result<Owned, NotTaken> {
        let Self { of: Owner(owner), shard, worker, .. } = self;
        let turn = Arc::clone(&owner.loads).acquire_owned().await.map_err(|_| Stopped)?;
        let (owner, shard, state) = (Arc::clone(owner), *shard, owner.states[*worker].clone());
        // Who is not waited for claims nothing any more: somebody else may own the shard by then.
        let mut loading = JoinSet::new();
        loading.spawn(async move {
            let _turn = turn;
            load(owner.store.as_ref(), shard, &owner.settings, doubted_until, state).await
        });
        match loading.join_next().await {
            Some(Ok(owned)) => Ok(owned?),
            Some(Err(error)) => Err(StoreError::Read(error.to_string()).into()),
            None => Err(Stopped.into()),
        }
    }

    /// Lets its worker deliver for it.
    fn hand_over(mut self, owned: Owned) -> Result<(), NotTaken> {
        let Shared { store, counters, workers, .. } = self.of.0.as_ref();
        let (shard, scheduler, now) = (self.shard, &owned.scheduler, Now::read(store.clock()));
        counters.set_gauges(shard, scheduler.laggard_count(), scheduler.open_breakers());
        counters.set_subscriptions(shard, scheduler.in_force(now), scheduler.hosts());
        counters.set_saved(shard, now.monotonic);
        workers.send(self.worker, WorkerMessage::TakeOver(Box::new(owned)))?;
        self.is_handed_over = true;
        Ok(())
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if !self.is_handed_over {
            let workers = &self.of.0.workers;
            // A worker that has ended expects nothing.
            let _ = workers.send(self.worker, WorkerMessage::Abandon(self.shard));
            // Only now it may be expected once more.
            workers.release(self.shard);
        }
    }
}
