//! What a store never tells, and has everybody read again.

use super::*;
use crate::store::{DenialScope, NewDenial};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_never_told_is_delivered_once_the_shards_are_read_again_and_nothing_is_repeated() {
    let (store, memory) = store::in_memory();
    let (mut known, mut new) = (Subscriber::start().await, Subscriber::start().await);
    let (shard, _) = store::subscribe(&*store, &topic(), &known.callback("")).await;
    let noted = Arc::new(Noted::default());
    let delivery = owner_of_all(&store, &noted).await.unwrap();
    append(&store).await;
    assert_eq!(known.notified().await, 1);
    let counters = delivery.counters();
    until(|| counters.totals().delivered == 1).await;

    memory.lose_events(true);
    append(&store).await;
    store::subscribe(&*store, &topic(), &new.callback("")).await;
    append(&store).await;
    memory.lose_events(false);
    assert_eq!((known.notified().await, new.notified().await), (2, 3));
    assert_eq!(known.notified().await, 3);
    until(|| noted.has(shard)).await;
    append(&store).await;
    assert_eq!((known.notified().await, new.notified().await), (4, 4));
    until(|| counters.totals().delivered == 6).await;
    delivery.stop().await;
    for subscriber in [&mut known, &mut new] {
        let repeated: Vec<_> =
            std::iter::from_fn(|| subscriber.seen()).filter(|line| line.contains(" id=")).collect();
        assert!(repeated.is_empty(), "{repeated:?}");
    }
    for shard in store.all_shards() {
        let left = store.owned_until(&[shard]).await.unwrap();
        assert_eq!(left, [None], "{shard:?} is released");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_to_whose_end_was_never_told_once_the_shards_are_read_again() {
    let (store, memory) = store::in_memory();
    let mut subscriber = Subscriber::start().await;
    let (_, subscription) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
    let delivery = workers(&store).await.take_all(Vec::new()).await.unwrap();
    let counters = delivery.counters();
    assert_eq!(counters.subscriptions(), 1);
    memory.lose_events(true);
    let Subscription { topic_url, callback, .. } = subscription;
    let scope = DenialScope::Everything;
    let denial = NewDenial { topic: topic_url, callback, reason: String::new(), scope };
    assert!(store.deny(denial).await.unwrap().is_some());
    memory.lose_events(false);
    until(|| counters.subscriptions() == 0).await;
    append(&store).await;
    delivery.stop().await;
    assert_eq!(subscriber.seen(), None);
}
