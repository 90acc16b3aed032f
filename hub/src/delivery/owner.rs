//! Which shards this hub owns: it takes them over and lets them go, while its workers deliver for the others.

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Mutex;
    use std::time::Duration;

    use async_trait::async_trait;
    use resync_core::websub::TopicUrl;
    use tokio::join;
    use tokio::task::yield_now;

    use super::super::sender::testing::{Subscriber, settings, until};
    use super::*;
    use crate::delivery::{Command, Delivery, Elsewhere, NoAnswer};
    use crate::egress::Guard;
    use crate::store::{self, Engine, Keyring, Offset, Subscription, SubscriptionId};
    use crate::subscriptions::StopDeliveries;

    fn open(folder: &Path) -> Arc<dyn Store> {
        store::open(Engine::Fjall, folder, Keyring::none(), 0).unwrap()
    }

    fn topic() -> TopicUrl {
        "http://source.example/t".parse().unwrap()
    }

    /// Deliveries over this store, without a shard.
    async fn workers(store: &Arc<dyn Store>) -> Delivery {
        let guard = Guard::open_to(&["127.0.0.0/8", "::1/128"]);
        Delivery::start(Arc::clone(store), guard, settings()).await.unwrap()
    }

    async fn append(store: &Arc<dyn Store>) {
        store.append(store::posted(&topic(), "changed"), Duration::ZERO).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shard_that_is_let_go_leaves_its_progress_to_the_next_owner_which_repeats_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let mut subscriber = Subscriber::that_answers(0).await;
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let (first, second) = (workers(&store).await, workers(&store).await);
        first.owner().take(shard).await.unwrap();
        assert_eq!(first.counters().subscriptions(), 1);
        append(&store).await;
        append(&store).await;
        assert_eq!(subscriber.notified().await, 1);
        subscriber.answer(2);
        assert_eq!(first.owner().let_go(shard).await, Ok(LetGo::Saved));
        // Of the second it began the request, or not.
        let counters = first.counters();
        let done = counters.totals().delivered;
        assert!((1..=2).contains(&done), "{done}: what was under way has ended, and is counted");
        assert_eq!((counters.subscriptions(), counters.hosts()), (0, 0));
        assert_eq!(counters.checkpoint_age(Instant::now()), Duration::ZERO);
        let again = store.release(shard, Epoch(1)).await;
        assert!(matches!(again, Err(StoreError::Fenced)), "it is released: {again:?}");

        append(&store).await;
        subscriber.answer(9);
        second.owner().take(shard).await.unwrap();
        let counters = second.counters();
        until(|| counters.totals().delivered == 3 - done).await;
        first.stop().await;
        second.stop().await;
        let later: Vec<_> =
            std::iter::from_fn(|| subscriber.seen()).filter(|line| line.contains(" id=")).collect();
        assert_eq!(later.len(), 2, "each came once: {later:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_under_way_for_too_long_is_cut_and_made_again_by_the_next_owner() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let mut subscriber = Subscriber::that_answers(0).await;
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let (first, second) = (workers(&store).await, workers(&store).await);
        first.owner().take(shard).await.unwrap();
        append(&store).await;
        assert_eq!(subscriber.notified().await, 1);
        assert_eq!(first.owner().let_go(shard).await, Ok(LetGo::Saved));
        assert_eq!(first.counters().totals().delivered, 0);
        second.owner().take(shard).await.unwrap();
        assert_eq!(subscriber.notified().await, 1);
        // The first one waits for an answer, too.
        subscriber.answer(2);
        let counters = second.counters();
        until(|| counters.totals().delivered == 1).await;
        first.stop().await;
        second.stop().await;
    }

    /// Each notification comes in at another moment of the handover: before, while and after the state is read.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shard_that_changes_hands_while_notifications_come_in_misses_none_and_repeats_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let mut subscriber = Subscriber::start().await;
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let mut owners = [workers(&store).await, workers(&store).await];
        owners[0].owner().take(shard).await.unwrap();
        for number in 1..=40 {
            let (owner, next) = (owners[0].owner(), owners[1].owner());
            let handover = async {
                assert_eq!(owner.let_go(shard).await, Ok(LetGo::Saved));
                next.take(shard).await.unwrap();
            };
            let comes_in = async {
                for _ in 0..number {
                    yield_now().await;
                }
                append(&store).await;
            };
            join!(handover, comes_in);
            assert_eq!(subscriber.notified().await, number);
            owners.swap(0, 1);
        }
        for owner in owners {
            owner.stop().await;
        }
        assert_eq!(subscriber.seen(), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shard_comes_back_to_who_let_it_go_and_is_its_own_once_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let mut subscriber = Subscriber::start().await;
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let delivery = workers(&store).await;
        let owner = delivery.owner();
        assert_eq!(owner.let_go(shard).await, Err(NotOwned(shard)));
        for number in 1..=3 {
            owner.take(shard).await.unwrap();
            assert!(matches!(owner.take(shard).await, Err(NotTaken::Here(of)) if of == shard));
            append(&store).await;
            assert_eq!(subscriber.notified().await, number);
            assert_eq!(owner.let_go(shard).await, Ok(LetGo::Saved));
            assert_eq!(owner.let_go(shard).await, Err(NotOwned(shard)));
        }
        delivery.stop().await;
        assert_eq!(owner.let_go(shard).await, Err(NotOwned(shard)));
        assert!(matches!(owner.take(shard).await, Err(NotTaken::Stopped(_))));
    }

    /// Notes for which shards it has something to do.
    #[derive(Debug, Default)]
    struct Noted {
        shards: Mutex<BTreeSet<Shard>>,
        /// It cannot read what waits.
        fails: bool,
    }

    impl Noted {
        fn has(&self, shard: Shard) -> bool {
            self.shards.lock().unwrap().contains(&shard)
        }
    }

    #[async_trait]
    impl WaitingWork for Noted {
        async fn take(&self, shards: &[Shard]) -> Result<(), StoreError> {
            self.shards.lock().unwrap().extend(shards);
            if self.fails { Err(StoreError::Closed) } else { Ok(()) }
        }

        fn let_go(&self, shard: Shard) {
            self.shards.lock().unwrap().remove(&shard);
        }
    }

    /// Deliveries over this store, with all shards and with this to do in them.
    async fn owner_of_all(store: &Arc<dyn Store>, noted: &Arc<Noted>) -> Result<Delivery, NotTaken> {
        let waiting: Arc<dyn WaitingWork> = noted.clone();
        workers(store).await.take_all(vec![waiting]).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_waits_in_a_shard_is_taken_up_with_it_and_let_go_with_it_whoever_takes_it_away() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let mut subscriber = Subscriber::that_answers(0).await;
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let noted = Arc::new(Noted::default());
        let delivery = owner_of_all(&store, &noted).await.unwrap();
        let owner = delivery.owner();
        assert!(noted.shards.lock().unwrap().iter().eq(&store.all_shards()));
        assert_eq!(owner.let_go(shard).await, Ok(LetGo::Saved));
        assert!(!noted.has(shard));
        assert_eq!(noted.shards.lock().unwrap().len(), usize::from(store.shards()) - 1);

        owner.take(shard).await.unwrap();
        assert!(noted.has(shard));
        append(&store).await;
        assert_eq!(subscriber.notified().await, 1);
        store.claim(shard).await.unwrap();
        subscriber.answer(1);
        assert!(matches!(owner.let_go(shard).await, Ok(LetGo::Fenced) | Err(NotOwned(_))));
        assert!(!noted.has(shard));
        delivery.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shard_in_which_what_waits_cannot_be_read_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let noted = Arc::new(Noted { fails: true, ..Noted::default() });
        let taken = owner_of_all(&store, &noted).await;
        assert!(matches!(taken, Err(NotTaken::Store(StoreError::Closed))), "{taken:?}");
        assert!(noted.shards.lock().unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_lets_a_shard_go_that_was_taken_from_it_is_told_so_and_may_take_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let mut subscriber = Subscriber::that_answers(0).await;
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let delivery = workers(&store).await;
        let owner = delivery.owner();
        owner.take(shard).await.unwrap();
        append(&store).await;
        assert_eq!(subscriber.notified().await, 1);
        store.claim(shard).await.unwrap();
        // The answer is progress, which the store refuses: at a checkpoint before the last one, or at that.
        subscriber.answer(1);
        assert!(matches!(owner.let_go(shard).await, Ok(LetGo::Fenced) | Err(NotOwned(_))));
        owner.take(shard).await.unwrap();
        assert_eq!(subscriber.notified().await, 1, "its answer was not saved");
        subscriber.answer(1);
        delivery.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_is_over_by_the_clock_of_the_store_however_the_computers_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let subscriber = Subscriber::start().await;
        let (shard, Subscription { lease_end, .. }) =
            store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let delivery = workers(&store).await;
        delivery.owner().take(shard).await.unwrap();
        let (counters, clock) = (delivery.counters(), store.clock());
        assert_eq!(counters.subscriptions(), 1);
        let left = lease_end.to_system_time().duration_since(clock.system_time()).unwrap();
        clock.put_ahead(left + Duration::from_secs(1));
        until(|| counters.subscriptions() == 0).await;
        clock.put_ahead(Duration::ZERO);
        until(|| counters.subscriptions() == 1).await;
        delivery.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_asked_of_a_hub_that_owns_a_part_is_answered_for_that_part_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let subscriber = Subscriber::start().await;
        let (shard, Subscription { id, topic, .. }) =
            store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let delivery = workers(&store).await;
        delivery.owner().take(shard).await.unwrap();
        let (operator, others) = (delivery.operator(), usize::from(store.shards()) - 1);
        let in_force = operator.in_force().await.unwrap();
        assert_eq!((in_force.of_this_hub(), in_force.of_all()), (1, Err(Elsewhere(others))));
        assert_eq!(operator.place_of(id).await.unwrap().found(), Ok(Some((shard, topic))));
        let unknown = SubscriptionId(id.0 + 1);
        assert_eq!(operator.place_of(unknown).await.unwrap().found(), Err(Elsewhere(others)));
        let replay = Command::Replay { topic, subscription: None, from: Offset(0) };
        let replayed = operator.execute(&replay).await.unwrap();
        assert_eq!((replayed.of_this_hub(), replayed.of_all()), (1, Err(Elsewhere(others))));
        assert_eq!(operator.halt(shard, id).await, Ok(()));
        let other = Shard((shard.0 + 1) % store.shards());
        assert_eq!(operator.halt(other, id).await, Err(NotOwned(other)));

        let replay = || Command::Replay { topic, subscription: Some(id), from: Offset(0) };
        assert!(operator.execute_in(shard, replay()).await.is_ok());
        let not_owned = NoAnswer::NotOwned(NotOwned(other));
        assert_eq!(operator.execute_in(other, replay()).await, Err(not_owned));
        assert!(operator.progress(shard, topic, id).await.unwrap().is_some());
        assert_eq!(operator.progress(other, topic, id).await, Err(not_owned));
        delivery.stop().await;
        assert_eq!(operator.execute_in(shard, replay()).await, Err(NoAnswer::Stopped(Stopped)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shard_that_cannot_be_read_is_not_taken_and_delivery_does_not_start() {
        let folder = tempfile::tempdir().unwrap();
        let subscriber = Subscriber::start().await;
        let store = open(folder.path());
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        drop(store);
        store::damage_subscription(folder.path());
        let store = open(folder.path());
        let delivery = workers(&store).await;
        for _ in 0..2 {
            let taken = delivery.owner().take(shard).await;
            assert!(matches!(taken, Err(NotTaken::Store(StoreError::Damaged { .. }))), "{taken:?}");
        }
        let taken = delivery.take_all(Vec::new()).await;
        assert!(matches!(taken, Err(NotTaken::Store(StoreError::Damaged { .. }))), "{taken:?}");
    }
}
