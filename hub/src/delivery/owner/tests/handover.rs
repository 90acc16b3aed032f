//! A hub that stops while another one is up.

use super::*;

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
