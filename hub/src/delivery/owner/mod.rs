//! Which shards this hub owns: it takes them over and lets them go, while its workers deliver for the others.

mod accepted;
mod again;
mod background;
mod balance;
mod handover;
mod orders;
mod refused;
mod release;
mod taking;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::future::{join_all, try_join_all};
use resync_common::locks::lock;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use self::background::Background;
use self::taking::{CalledOff, Taking};
use super::load::doubt;
use super::scheduler::{Clock, Now, WorkerState};
use super::sender::{Counters, LetGo, Settings, Stopped, WorkerMessage, Workers};
use crate::store::{Shard, Store, StoreError};
use crate::subscriptions::NotOwned;
use crate::waiting_work::WaitingWork;

/// Why a shard is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// It is here already.
    #[error("this hub delivers for shard {} already, or is about to", .0.0)]
    Here(Shard),
    /// It was let go meanwhile.
    #[error("shard {} was let go while it was taken over", .0.0)]
    CalledOff(Shard),
    /// It cannot be claimed or read. [`StoreError::Owned`]: another hub has to release it first.
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
    /// The shards that are being taken over, each with those who let it go meanwhile.
    takings: Mutex<BTreeMap<Shard, Vec<CalledOff>>>,
    /// One of them is let go.
    calling_off: Notify,
    /// Those that are wanted here, and that another hub owns.
    refused: Mutex<BTreeSet<Shard>>,
    /// The wall clock as this hub has seen it.
    clock: Mutex<Clock>,
    /// Somebody tries these.
    is_trying: AtomicBool,
    /// This hub stops: it hands its shards over, and takes none.
    is_stopping: AtomicBool,
    /// Another hub was faster with a shard: how they are spread is to be looked at again.
    was_refused: Notify,
    background: Background,
}

impl Owner {
    /// The owner of no shard yet. `states` has one for each of the workers; `stop` says since when delivery stops.
    pub(super) fn new(
        store: Arc<dyn Store>,
        settings: Settings,
        counters: Arc<Counters>,
        workers: Workers,
        states: Vec<WorkerState>,
        stop: watch::Receiver<Option<Instant>>,
    ) -> Self {
        let (loads, background) = (Arc::new(Semaphore::new(states.len())), Background::new(stop));
        let (takings, refused) = (Mutex::default(), Mutex::default());
        let clock = Mutex::new(Clock::new(Now::read(store.clock()), None));
        let (sender, given_up) = mpsc::unbounded_channel();
        workers.set_given_up(sender);
        let owner = Self(Arc::new(Shared {
            store,
            settings,
            counters,
            workers,
            states,
            loads,
            takings,
            calling_off: Notify::new(),
            refused,
            clock,
            is_trying: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            was_refused: Notify::new(),
            background,
        }));
        owner.take_again(given_up);
        owner
    }

    /// Takes a shard over from whoever owned it, and what waits in it. When this returns, deliveries go on where they were left; where it
    /// fails, or is not waited for, this hub does nothing for the shard, and has released what it had claimed before it takes the shard again.
    /// After [`StoreError::Write`] and [`StoreError::Unknown`] nobody knows whether it was claimed: it has to be taken again.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub async fn take(&self, shard: Shard) -> Result<(), NotTaken> {
        let taking = self.expect(shard).await?;
        self.complete(taking).await
    }

    async fn complete(&self, mut taking: Taking) -> Result<(), NotTaken> {
        let over = taking.end();
        let taken = self.bring(taking).await;
        // Where that has failed, what was claimed is released before it may be tried again.
        let _ = over.await;
        taken
    }

    async fn bring(&self, mut taking: Taking) -> Result<(), NotTaken> {
        let shard = taking.shard;
        let bringing = async {
            // Each time: the clock may have jumped since the start.
            let doubted_until = self.doubt().await?;
            let owned = taking.load(doubted_until).await?;
            self.take_up(&[shard]).await?;
            Ok::<_, NotTaken>(owned)
        };
        let owned = self.0.unless_called_off(shard, bringing).await?;
        taking.hand_over(owned)
    }

    /// Takes all shards of the store over, with this work in them from now on; where other hubs share the store, this one's share, now and whenever
    /// another hub comes or goes. Nothing is delivered before all are loaded, which deliveries would hold up. Those that another hub owns are
    /// taken over when it has released them.
    pub(super) async fn take_all(&self, waiting: &[Arc<dyn WaitingWork>]) -> Result<(), NotTaken> {
        self.0.workers.set_waiting_work(waiting);
        let spread = self.0.store.spread().await?;
        if let Some(spread) = &spread {
            self.0.settings.hubs.set(spread.sharing);
        }
        let shards = spread.as_ref().map_or_else(|| self.0.store.all_shards(), |spread| self.wanted(spread));
        let mut all = try_join_all(shards.into_iter().map(|shard| self.expect(shard))).await?;
        let doubted_until = self.doubt().await?;
        if let Some(until) = doubted_until {
            let seconds = until.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(seconds, "the hub was down, or the clock is wrong: no lease ends for so long");
        }
        let loading =
            all.iter_mut().map(|taking| self.0.unless_called_off(taking.shard, taking.load(doubted_until)));
        let loaded = join_all(loading).await;
        let (mut here, mut refused) = (Vec::new(), Vec::new());
        for (taking, loaded) in all.into_iter().zip(loaded) {
            match loaded {
                Ok(owned) => here.push((taking, owned)),
                Err(NotTaken::Store(StoreError::Owned)) => refused.push(taking.shard),
                Err(NotTaken::CalledOff(_)) => {}
                Err(not_taken) => return Err(not_taken),
            }
        }
        let shards: Vec<_> = here.iter().map(|(taking, _)| taking.shard).collect();
        self.take_up(&shards).await?;
        for (taking, owned) in here {
            match taking.hand_over(owned) {
                Ok(()) | Err(NotTaken::CalledOff(_)) => {}
                Err(not_taken) => return Err(not_taken),
            }
        }
        if spread.is_some() {
            self.balance(balance::EVERY);
        } else {
            self.take_later(refused);
        }
        Ok(())
    }

    /// Lets a shard go: makes no more requests for it, waits a little for those under way, saves the progress, releases it for other hubs, and
    /// only then returns. It takes three seconds at most beside that, and goes on also where it is not waited for. A shard that is being taken over
    /// is released as soon as its claim was made; there is nothing to save then.
    ///
    /// # Errors
    /// [`NotOwned`]
    pub async fn let_go(&self, shard: Shard) -> Result<LetGo, NotOwned> {
        self.0.refused().remove(&shard);
        if let Some(called_off) = self.0.call_off(shard) {
            // Where nothing runs any more, nothing is here.
            return called_off.await.unwrap_or(Err(NotOwned(shard)));
        }
        let worker = self.0.workers.worker_of(shard)?;
        let (reply, given_up) = oneshot::channel();
        let sent = self.0.workers.send(worker, WorkerMessage::LetGo(shard, reply));
        sent.map_err(|Stopped| NotOwned(shard))?;
        let (released, how) = oneshot::channel();
        let owner = Arc::clone(&self.0);
        self.0.background.spawn(async move {
            // A worker that has ended owns nothing any more. Nobody may wait for the answers.
            let (how, epoch) = match given_up.await.unwrap_or(Err(NotOwned(shard))) {
                Ok(given_up) => given_up,
                Err(not_owned) => {
                    let _ = released.send(Err(not_owned));
                    return;
                }
            };
            let is_released = how == LetGo::Fenced || owner.release(shard, epoch).await;
            let _ = released.send(Ok(how));
            if !is_released {
                owner.release_again(shard, epoch).await;
            }
        });
        how.await.unwrap_or(Err(NotOwned(shard)))
    }

    /// Waits for what goes on after the workers have ended.
    pub(super) async fn finish(&self) {
        self.0.background.finish().await;
    }

    /// Until when no lease ends in a shard that is taken over now. To the store a jump of the clock that the hubs share looks like time in which
    /// they were up.
    async fn doubt(&self) -> Result<Option<Instant>, StoreError> {
        let by_the_store = doubt(self.0.store.as_ref()).await?;
        Ok(by_the_store.max(self.0.look_at_clock()))
    }

    /// Takes up what else waits in these shards, which are claimed.
    async fn take_up(&self, shards: &[Shard]) -> Result<(), StoreError> {
        for waiting in self.0.workers.waiting_work() {
            waiting.take(shards).await?;
        }
        Ok(())
    }
}

impl Shared {
    /// Until when the wall clock is in doubt by what this hub has seen.
    fn look_at_clock(&self) -> Option<Instant> {
        // What it guards is complete between any two statements.
        lock(&self.clock).doubted_until(Now::read(self.store.clock()))
    }
}
