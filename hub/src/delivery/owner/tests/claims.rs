//! Claims that nobody waits for, claims that are refused, and releases.

use std::pin::Pin;

use super::*;
use crate::store::InMemory;

/// A hub that owns no shard, over a store in memory with one subscription.
struct Unclaimed {
    store: Arc<dyn Store>,
    memory: InMemory,
    subscriber: Subscriber,
    shard: Shard,
    delivery: Delivery,
}

impl Unclaimed {
    async fn start() -> Self {
        let (store, memory) = store::in_memory();
        let subscriber = Subscriber::start().await;
        let (shard, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
        let delivery = workers(&store).await;
        Self { store, memory, subscriber, shard, delivery }
    }

    /// It takes the shard, and sends the first notification. It stops then.
    async fn assert_delivers(mut self) {
        self.delivery.owner().take(self.shard).await.unwrap();
        append(&self.store).await;
        assert_eq!(self.subscriber.notified().await, 1);
        self.delivery.stop().await;
    }
}

/// Takes this shard until its claim is on the way. The store has to hold commits up.
async fn until_claimed(memory: &InMemory, mut taking: Pin<&mut impl Future<Output = Result<(), NotTaken>>>) {
    let before = memory.commits();
    while memory.commits() == before {
        assert!(taking.as_mut().now_or_never().is_none(), "its claim is not made yet");
        yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_on_its_way_when_nobody_waits_for_it_any_more_is_released_before_the_next() {
    let hub = Unclaimed::start().await;
    let (owner, shard) = (hub.delivery.owner(), hub.shard);
    let held = hub.memory.hold();
    {
        let mut taking = pin!(owner.take(shard));
        until_claimed(&hub.memory, taking.as_mut()).await;
    }
    assert!(matches!(owner.take(shard).await, Err(NotTaken::Here(of)) if of == shard), "not twice");
    drop(held);
    until(|| owner.0.workers.worker_of(shard).is_err()).await;
    assert_released(&hub.store, shard).await;
    hub.assert_delivers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_let_go_while_its_claim_is_on_the_way_is_released_and_delivered_for_by_nobody() {
    let hub = Unclaimed::start().await;
    let (owner, shard) = (hub.delivery.owner(), hub.shard);
    let held = hub.memory.hold();
    let mut taking = pin!(owner.take(shard));
    until_claimed(&hub.memory, taking.as_mut()).await;
    let mut letting_go = pin!(owner.let_go(shard));
    assert!(letting_go.as_mut().now_or_never().is_none(), "nobody knows yet what comes of the claim");
    drop(held);
    let (taken, let_go) = join!(taking, letting_go);
    assert!(matches!(taken, Err(NotTaken::CalledOff(of)) if of == shard), "{taken:?}");
    assert_eq!(let_go, Ok(LetGo::Saved));
    assert_released(&hub.store, shard).await;
    assert_eq!(owner.let_go(shard).await, Err(NotOwned(shard)));
    hub.assert_delivers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_let_go_while_it_is_read_is_released_at_once() {
    let hub = Unclaimed::start().await;
    let (owner, shard) = (hub.delivery.owner(), hub.shard);
    hub.memory.hang_loads();
    let letting_go = async {
        until(|| hub.memory.hanging_loads() == 1).await;
        owner.let_go(shard).await
    };
    let (taken, let_go) = join!(owner.take(shard), letting_go);
    assert!(matches!(taken, Err(NotTaken::CalledOff(of)) if of == shard), "{taken:?}");
    assert_eq!(let_go, Ok(LetGo::Saved));
    assert_released(&hub.store, shard).await;
    hub.delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_stops_releases_all_its_shards_after_their_last_checkpoints() {
    let Scene { folder: _folder, store, mut subscriber, shard, .. } =
        Scene::of(Subscriber::that_answers(0).await).await;
    let first = workers(&store).await.take_all(Vec::new()).await.unwrap();
    append(&store).await;
    assert_eq!(subscriber.notified().await, 1);
    subscriber.answer(1);
    first.stop().await;
    for shard in store.all_shards() {
        assert_released(&store, shard).await;
    }
    assert_goes_on(&store, shard, &mut subscriber, workers(&store).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_another_hub_owns_is_tried_until_it_is_released_while_the_others_are_delivered_for() {
    let (store, memory) = store::in_memory();
    let (mut here, mut elsewhere) = (Subscriber::start().await, Subscriber::start().await);
    let shard_of = |of: &Subscriber| Shard::of(&of.callback(""), store.shards());
    while shard_of(&here) == shard_of(&elsewhere) {
        here = Subscriber::start().await;
    }
    for subscriber in [&here, &elsewhere] {
        store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
    }
    let owned = shard_of(&elsewhere);
    memory.own_elsewhere(owned, true);
    let taken = workers(&store).await.owner().take(owned).await;
    assert!(matches!(taken, Err(NotTaken::Store(StoreError::Owned))), "{taken:?}");

    let noted = Arc::new(Noted::default());
    let delivery = owner_of_all(&store, &noted).await.unwrap();
    append(&store).await;
    assert_eq!(here.notified().await, 1);
    let refused = memory.refused_claims();
    until(|| memory.refused_claims() > refused + 1).await;
    assert_eq!((elsewhere.seen(), delivery.counters().subscriptions()), (None, 1));
    assert!(!noted.has(owned) && noted.has(shard_of(&here)), "nor is anything else done for it");

    memory.own_elsewhere(owned, false);
    assert_eq!(elsewhere.notified().await, 1);
    assert!(noted.has(owned));
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_another_hub_owns_is_not_taken_later_once_it_was_let_go() {
    let (store, memory) = store::in_memory();
    let owned = Shard(3);
    memory.own_elsewhere(owned, true);
    let delivery = workers(&store).await.take_all(Vec::new()).await.unwrap();
    let owner = delivery.owner();
    // It is told how a try has ended that was under way.
    let _ = owner.let_go(owned).await;
    memory.own_elsewhere(owned, false);
    assert!(!owner.take_refused().await, "it is not wanted any more");
    until(|| owner.0.workers.worker_of(owned).is_err()).await;
    delivery.stop().await;
}
