//! Several hubs over one database.

use resync_core::datetime::DateTime;
use resync_harness::eventually;

use super::*;
use crate::store::{Order, SharedDatabase};

/// A hub that owns its share.
async fn hub(database: &SharedDatabase, name: &str) -> (Arc<dyn Store>, Delivery) {
    let store = database.hub(name).await;
    let delivery = workers(&store).await.take_all(Vec::new()).await.unwrap();
    (store, delivery)
}

/// Until these hubs deliver for so many subscriptions, each for its share of the shards.
async fn until_shared(hubs: &[(Arc<dyn Store>, Delivery)], subscriptions: usize) {
    let all: Vec<_> = hubs.iter().map(|(_, delivery)| (delivery.counters(), delivery.owner())).collect();
    let most = usize::from(hubs[0].0.shards()).div_ceil(hubs.len());
    until(|| {
        let counted: usize = all.iter().map(|(counters, _)| counters.subscriptions()).sum();
        let is_fair = all.iter().all(|(_, owner)| owner.0.workers.all_assigned().len() <= most);
        counted == subscriptions && is_fair
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hubs_share_the_shards_and_who_is_left_goes_on_where_another_has_stopped() {
    let Some(database) = SharedDatabase::new() else { return };
    let mut hubs = vec![hub(&database, "first").await];
    let mut subscribers = Vec::new();
    for _ in 0..12 {
        let subscriber = Subscriber::start().await;
        store::subscribe(&*hubs[0].0, &topic(), &subscriber.callback("")).await;
        subscribers.push(subscriber);
    }
    until_shared(&hubs, 12).await;
    for (name, notifications) in [("second", 1), ("third", 2)] {
        hubs.push(hub(&database, name).await);
        until_shared(&hubs, 12).await;
        append(&hubs[0].0).await;
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.notified().await, notifications);
        }
    }
    let (first, delivery) = hubs.remove(0);
    delivery.stop().await;
    until_shared(&hubs, 12).await;
    // Its store may take longer to close.
    drop(first);
    append(&hubs[1].0).await;
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.notified().await, 3);
    }
    for (_, delivery) in hubs {
        delivery.stop().await;
    }
    for subscriber in &mut subscribers {
        let repeated: Vec<_> =
            std::iter::from_fn(|| subscriber.seen()).filter(|line| line.contains(" id=")).collect();
        assert!(repeated.is_empty(), "{repeated:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hubs_that_stop_at_once_leave_all_shards_to_the_next() {
    let Some(database) = SharedDatabase::new() else { return };
    let hubs = [hub(&database, "first").await, hub(&database, "second").await];
    until_shared(&hubs, 0).await;
    let [(first, one), (second, other)] = hubs;
    join!(one.stop(), other.stop());
    // Their stores may take longer to close.
    drop((first, second));
    let (store, next) = hub(&database, "third").await;
    until(|| next.owner().0.workers.owned().len() == usize::from(store.shards())).await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_cannot_be_answered_keeps_no_other_from_being_carried_out() {
    let Some(database) = SharedDatabase::new() else { return };
    let store = database.hub("owning").await;
    let delivery = workers(&store).await;
    let (shard, skip) = (Shard(3), || Order::Execute(Command::Skip(SubscriptionId(9))));
    let until = DateTime::from_system_time(store.now().to_system_time() + Duration::from_secs(3_600));
    let first = store.order(&[shard], skip(), until).await.unwrap();
    let second = store.order(&[shard], skip(), until).await.unwrap();
    let refusal = format!("CHECK (subscriptions IS NULL OR act <> {})", first.0);
    database.sql(&format!("ALTER TABLE hub.act_shard ADD {refusal}"));
    delivery.owner().take(shard).await.unwrap();
    eventually("the second one is answered", async || {
        store.answers_to(second).await.unwrap() == [(shard, 0)]
    })
    .await;
    assert_eq!(store.answers_to(first).await.unwrap(), []);
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_hub_has_accepted_is_taken_up_by_the_owner_of_its_shard() {
    let Some(database) = SharedDatabase::new() else { return };
    let (owning, accepting) = (database.hub("owning").await, database.hub("accepting").await);
    let noted = Arc::new(Noted::default());
    let delivery = owner_of_all(&owning, &noted).await.unwrap();
    let shards: Vec<_> = noted.shards.lock().unwrap().iter().copied().collect();
    let url =
        |port: u32| -> TopicUrl { format!("http://source.example:{}/t", 1_000 + port).parse().unwrap() };
    let is_here = |url: &TopicUrl| shards.contains(&Shard::that_fetches(url, owning.shards()));
    let url = (0..10_000).map(url).find(is_here).unwrap();
    let ping = accepting.put_ping(url, None, store::PingClient::default()).await.unwrap();
    let shard = Shard::that_fetches(&ping.topic, owning.shards());
    until(|| noted.accepted.lock().unwrap().contains(&shard)).await;
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_lets_go_what_another_has_taken_from_it_also_where_nothing_happens() {
    let Some(database) = SharedDatabase::new() else { return };
    let (store, delivery) = hub(&database, "first").await;
    let owner = delivery.owner();
    assert_eq!(owner.0.workers.all_assigned().len(), usize::from(store.shards()));
    database.sql(
        "INSERT INTO hub.node (id, name, version, alive_until) VALUES (9, 'other', '', now() + interval '5 seconds'); \
         UPDATE hub.shard SET owner = 9, epoch = epoch + 1",
    );
    until(|| owner.0.workers.all_assigned().is_empty()).await;
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_drained_hands_its_shards_over_and_has_its_share_again_when_that_ends() {
    let Some(database) = SharedDatabase::new() else { return };
    let hubs = [hub(&database, "first").await, hub(&database, "second").await];
    let shards = || [0, 1].map(|number: usize| hubs[number].1.owner().0.workers.all_assigned().len());
    let all = usize::from(hubs[0].0.shards());
    hubs[0].0.set_drained(true);
    until(|| shards() == [0, all]).await;
    assert_eq!(hubs[0].1.counters().here(), [], "it owes nothing any more");
    hubs[0].0.set_drained(false);
    until(|| shards() == [all / 2; 2]).await;
    for (_, delivery) in hubs {
        delivery.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hub_owns_without_knowing_and_what_it_has_without_owning_is_set_right() {
    let Some(database) = SharedDatabase::new() else { return };
    let hubs = [hub(&database, "first").await, hub(&database, "second").await];
    let owned = |number: usize| hubs[number].1.owner().0.workers.owned();
    let half = usize::from(hubs[0].0.shards()) / 2;
    until(|| [0, 1].iter().all(|number| owned(*number).len() == half)).await;
    let (Shard(of_first), _) = owned(0).pop_first().unwrap();
    let (Shard(moved), before) = owned(1).pop_first().unwrap();
    let (Shard(nobodys), then) = owned(1).pop_last().unwrap();
    database.sql(&format!(
        "UPDATE hub.shard SET owner = NULL, epoch = epoch + 1 WHERE shard = {nobodys}; \
         UPDATE hub.shard SET owner = (SELECT o.owner FROM hub.shard o WHERE o.shard = {of_first}), epoch = epoch + 1 \
         WHERE shard = {moved}"
    ));
    until(|| {
        let all = [owned(0), owned(1)];
        let epoch = |number: u16| all.iter().find_map(|owned| owned.get(&Shard(number)).copied());
        let is_fair = all.iter().all(|owned| owned.len() == half);
        is_fair && epoch(moved) > Some(before) && epoch(nobodys) > Some(then)
    })
    .await;
    for (_, delivery) in hubs {
        delivery.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_starts_beside_another_takes_the_time_for_passed() {
    let Some(database) = SharedDatabase::new() else { return };
    let first = database.hub("first").await;
    append(&first).await;
    assert!(doubt(first.as_ref()).await.unwrap().is_some(), "nobody knows when a hub was up");
    let second = database.hub("second").await;
    assert_eq!(doubt(second.as_ref()).await.unwrap(), None, "the first one is");
}
