//! A hub that stops while another one is up.

use super::*;
use crate::store::InMemory;

/// A hub that owns all shards. From now on another one is up.
async fn hub_beside_another() -> (InMemory, Arc<dyn Store>, Delivery) {
    let (store, memory) = store::in_memory();
    let delivery = workers(&store).await.take_all(Vec::new()).await.unwrap();
    memory.share_among(2);
    (memory, store, delivery)
}

/// Each shard was released once.
fn assert_all_released(memory: &InMemory, store: &Arc<dyn Store>) {
    let mut released = memory.released();
    released.sort_unstable();
    assert_eq!(released, store.all_shards());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_stops_hands_over_what_is_idle_before_the_requests_in_other_shards_have_ended() {
    let (store, memory) = store::in_memory();
    let mut subscriber = Subscriber::that_answers(0).await;
    let (busy, _) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
    let delivery = workers(&store).await.take_all(Vec::new()).await.unwrap();
    append(&store).await;
    assert_eq!(subscriber.notified().await, 1);
    memory.share_among(2);
    let owner = delivery.owner();
    delivery.stop().await;
    assert_eq!(memory.announced_stops(), 1);
    let mut released = memory.released();
    assert_eq!(released.pop(), Some(busy), "it is the last one");
    released.push(busy);
    released.sort_unstable();
    assert_eq!(released, store.all_shards(), "each was released once");
    assert!(owner.0.workers.all_assigned().is_empty());
    assert!(matches!(owner.take(busy).await, Err(NotTaken::Stopped(_))));

    memory.share_among(0);
    let next = workers(&store).await;
    next.owner().take(busy).await.unwrap();
    assert_eq!(subscriber.notified().await, 1, "what was cut is made again");
    // The first one waits for an answer, too.
    subscriber.answer(2);
    let counters = next.counters();
    until(|| counters.totals().delivered == 1).await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_cannot_tell_the_others_of_its_stop_hands_its_shards_over_all_the_same() {
    let (memory, store, delivery) = hub_beside_another().await;
    memory.refuse_stop();
    delivery.stop().await;
    assert_eq!(memory.announced_stops(), 1);
    assert_all_released(&memory, &store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_whose_store_does_not_answer_at_its_stop_ends_as_if_it_were_the_only_one() {
    let (memory, store, delivery) = hub_beside_another().await;
    memory.hang_spread();
    delivery.stop().await;
    assert_eq!(memory.announced_stops(), 0);
    assert_all_released(&memory, &store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_stops_releases_a_shard_that_it_is_reading_and_waits_no_longer_for_it() {
    for hubs in [0, 2] {
        let (store, memory) = store::in_memory();
        let delivery = workers(&store).await;
        let owner = delivery.owner();
        memory.share_among(hubs);
        memory.hang_loads();
        let stopping = async {
            until(|| memory.hanging_loads() == 1).await;
            delivery.stop().await;
        };
        let (taken, ()) = join!(owner.take(Shard(3)), stopping);
        assert!(matches!(taken, Err(NotTaken::CalledOff(_) | NotTaken::Stopped(_))), "{taken:?}");
        assert_eq!(memory.released(), [Shard(3)]);
    }
}
