//! Shards that come and go, over a real store and real callbacks.

mod accepted;
mod again;
mod balance;
mod claims;
mod handover;
mod orders;
#[cfg(feature = "postgres")]
mod several;

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use resync_core::websub::TopicUrl;
use tempfile::TempDir;
use tokio::join;
use tokio::task::yield_now;

use super::super::sender::testing::{Subscriber, until, workers};
use super::*;
use crate::delivery::{Command, Delivery, Elsewhere, NoAnswer, Owed};
use crate::store::{self, Accepted, Engine, Epoch, Keyring, Offset, Subscription, SubscriptionId};
use crate::subscriptions::StopDeliveries;

fn open(folder: &Path) -> Arc<dyn Store> {
    store::open(Engine::Fjall, folder, Keyring::none(), 0).unwrap()
}

fn topic() -> TopicUrl {
    "http://source.example/t".parse().unwrap()
}

async fn append(store: &Arc<dyn Store>) {
    store.append(store::posted(&topic(), "changed"), Duration::ZERO).await.unwrap();
}

/// A store with one subscription.
struct Scene {
    folder: TempDir,
    store: Arc<dyn Store>,
    subscriber: Subscriber,
    subscription: Subscription,
    shard: Shard,
}

impl Scene {
    /// The subscription is this one's.
    async fn of(subscriber: Subscriber) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let (shard, subscription) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        Self { folder, store, subscriber, subscription, shard }
    }

    /// A hub that owns the shard, and has sent the first notification. It waits for the answer.
    async fn begun() -> (Self, Delivery) {
        let mut scene = Self::of(Subscriber::that_answers(0).await).await;
        let delivery = workers(&scene.store).await;
        delivery.owner().take(scene.shard).await.unwrap();
        append(&scene.store).await;
        assert_eq!(scene.subscriber.notified().await, 1);
        (scene, delivery)
    }
}

/// The first owner of the shard has released it.
async fn assert_released(store: &Arc<dyn Store>, shard: Shard) {
    let again = store.release(shard, Epoch(1)).await;
    assert!(matches!(again, Err(StoreError::Fenced)), "it is released: {again:?}");
}

/// The next owner goes on behind the first notification. It stops then.
async fn assert_goes_on(store: &Arc<dyn Store>, shard: Shard, subscriber: &mut Subscriber, next: Delivery) {
    next.owner().take(shard).await.unwrap();
    append(store).await;
    assert_eq!(subscriber.notified().await, 2, "the first is not repeated");
    subscriber.answer(1);
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_let_go_leaves_its_progress_to_the_next_owner_which_repeats_nothing() {
    let Scene { folder: _folder, store, mut subscriber, shard, .. } =
        Scene::of(Subscriber::that_answers(0).await).await;
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
    assert_released(&store, shard).await;

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
    let (scene, first) = Scene::begun().await;
    let Scene { folder: _folder, store, mut subscriber, shard, .. } = scene;
    let second = workers(&store).await;
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
    let Scene { folder: _folder, store, mut subscriber, shard, .. } =
        Scene::of(Subscriber::start().await).await;
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

/// Each comes in at another moment of the handover, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_subscribes_and_what_is_paused_while_a_shard_changes_hands_is_known_to_its_next_owner() {
    let Scene { folder: _folder, store, mut subscriber, subscription, shard } =
        Scene::of(Subscriber::start().await).await;
    let paused = subscription.topic;
    let mut owners = [workers(&store).await, workers(&store).await];
    owners[0].owner().take(shard).await.unwrap();
    for number in 1..=20 {
        let (owner, next) = (owners[0].owner(), owners[1].owner());
        let handover = async {
            assert_eq!(owner.let_go(shard).await, Ok(LetGo::Saved));
            next.take(shard).await.unwrap();
        };
        let callback = subscriber.callback(&number.to_string());
        let comes_in = async {
            for _ in 0..number {
                yield_now().await;
            }
            store::subscribe(&*store, &topic(), &callback).await;
            assert!(store.pause(paused).await.unwrap());
        };
        join!(handover, comes_in);
        append(&store).await;
        let Owed { in_turn, behind, paused: held_back } =
            owners[1].operator().owed().await.unwrap().of_this_hub();
        assert_eq!((in_turn + behind, held_back), (number + 1, number + 1));
        store.resume(paused).await.unwrap();
        let mut told = BTreeSet::new();
        while told.len() <= number {
            let line = subscriber.next().await;
            if line.contains(" id=") {
                assert!(told.insert(line.clone()), "twice: {line}");
            }
        }
        owners.swap(0, 1);
    }
    for owner in owners {
        owner.stop().await;
    }
    assert_eq!(subscriber.seen(), None);
}

/// In one thread, so that nothing goes on behind its back when it ends.
#[tokio::test]
async fn a_shard_whose_taking_ends_at_whatever_moment_is_free_for_others_and_for_who_took_it() {
    let Scene { folder: _folder, store, mut subscriber, shard, .. } =
        Scene::of(Subscriber::start().await).await;
    let (first, second) = (workers(&store).await, workers(&store).await);
    let (owner, other) = (first.owner(), second.owner());
    let (mut number, mut polls) = (0, 1);
    let taken = loop {
        {
            let mut taking = pin!(owner.take(shard));
            let mut taken = None;
            for _ in 0..polls {
                taken = taking.as_mut().now_or_never();
                if taken.is_some() {
                    break;
                }
                yield_now().await;
            }
            if let Some(taken) = taken {
                break taken;
            }
        }
        other.take(shard).await.unwrap();
        until(|| owner.0.workers.worker_of(shard).is_err()).await;
        number += 1;
        append(&store).await;
        assert_eq!(subscriber.notified().await, number);
        assert_eq!(other.let_go(shard).await, Ok(LetGo::Saved));
        polls *= 2;
    };
    taken.unwrap();
    append(&store).await;
    assert_eq!(subscriber.notified().await, number + 1);
    first.stop().await;
    second.stop().await;
    assert_eq!(subscriber.seen(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_let_go_while_its_hub_stops_is_saved_and_released_too() {
    let (scene, first) = Scene::begun().await;
    let Scene { folder: _folder, store, mut subscriber, shard, .. } = scene;
    let (owner, second) = (first.owner(), workers(&store).await);
    let mut letting_go = pin!(owner.let_go(shard));
    assert!(letting_go.as_mut().now_or_never().is_none(), "a request is under way");
    // Its worker has begun to let it go before it answers this.
    first.operator().answers().await.unwrap();
    let stopping = async {
        subscriber.answer(1);
        first.stop().await;
    };
    assert_eq!(join!(letting_go, stopping).0, Ok(LetGo::Saved));
    assert_released(&store, shard).await;

    assert_goes_on(&store, shard, &mut subscriber, second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_nothing_holds_no_shard_that_is_let_go_and_what_is_not_saved_is_repeated() {
    let (store, memory) = store::in_memory();
    let mut subscriber = Subscriber::that_answers(0).await;
    let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
    let (first, second) = (workers(&store).await, workers(&store).await);
    first.owner().take(shard).await.unwrap();
    append(&store).await;
    assert_eq!(subscriber.notified().await, 1);
    memory.set_full(true);
    subscriber.answer(1);
    assert_eq!(first.owner().let_go(shard).await, Ok(LetGo::Unsaved));
    assert!(second.owner().take(shard).await.is_err(), "nobody can claim it");
    memory.set_full(false);
    until(|| store.health().is_ok()).await;
    second.owner().take(shard).await.unwrap();
    assert_eq!(subscriber.notified().await, 1);
    subscriber.answer(1);
    let counters = second.counters();
    until(|| counters.totals().delivered == 1).await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_comes_back_to_who_let_it_go_and_is_its_own_once_only() {
    let Scene { folder: _folder, store, mut subscriber, shard, .. } =
        Scene::of(Subscriber::start().await).await;
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
    /// Where other hubs have accepted something.
    accepted: Mutex<Vec<Shard>>,
    /// It cannot read what waits.
    fails: bool,
    /// So many more times it cannot read what others have accepted.
    failures: Mutex<u32>,
}

impl Noted {
    fn has(&self, shard: Shard) -> bool {
        self.shards.lock().unwrap().contains(&shard)
    }

    fn note_accepted(&self, shard: Shard) -> Result<(), StoreError> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(StoreError::Read("a block is damaged".to_owned()));
        }
        self.accepted.lock().unwrap().push(shard);
        Ok(())
    }
}

#[async_trait]
impl WaitingWork for Noted {
    async fn take(&self, shards: &[Shard]) -> Result<(), StoreError> {
        self.shards.lock().unwrap().extend(shards);
        if self.fails { Err(StoreError::Closed) } else { Ok(()) }
    }

    async fn take_up(&self, shard: Shard, _: &[Accepted]) -> Result<(), StoreError> {
        self.note_accepted(shard)
    }

    async fn take_up_all(&self, shard: Shard) -> Result<(), StoreError> {
        self.note_accepted(shard)
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
    let Scene { folder: _folder, store, mut subscriber, shard, .. } =
        Scene::of(Subscriber::that_answers(0).await).await;
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
    let (scene, delivery) = Scene::begun().await;
    let Scene { folder: _folder, store, mut subscriber, shard, .. } = scene;
    let owner = delivery.owner();
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
    let Scene { folder: _folder, store, shard, subscription: Subscription { lease_end, .. }, .. } =
        Scene::of(Subscriber::start().await).await;
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
    let Scene { folder: _folder, store, shard, subscription: Subscription { id, topic, .. }, .. } =
        Scene::of(Subscriber::start().await).await;
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
    assert_eq!(replayed.clone().of_this_hub(), [(shard, 1)]);
    assert_eq!(replayed.of_all(), Err(Elsewhere(others)));
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
