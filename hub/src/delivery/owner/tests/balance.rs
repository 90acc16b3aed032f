//! A hub among others, over a store that says so.

use resync_harness::PATIENCE;

use super::*;
use crate::store::{InMemory, Order, OrderEvent, Uptime};

/// A hub that owns this shard alone: another one owns all others.
async fn hub_with(shard: Shard) -> (InMemory, Arc<dyn Store>, Delivery) {
    let (store, memory) = store::in_memory();
    for other in store.all_shards() {
        memory.own_elsewhere(other, other != shard);
    }
    memory.share_among(1);
    let delivery = workers(&store).await.take_all(Vec::new()).await.unwrap();
    assert_eq!(delivery.owner().0.workers.all_assigned(), BTreeSet::from([shard]));
    (memory, store, delivery)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_whose_word_had_lapsed_begins_nothing_before_it_has_let_go_what_was_taken_from_it() {
    let (memory, store, delivery) = hub_with(Shard(3)).await;
    let owner = delivery.owner();
    assert!(store.may_begin());
    memory.own_elsewhere(Shard(3), true);
    memory.lapse();
    until(|| store.may_begin()).await;
    assert!(owner.0.workers.all_assigned().is_empty());

    memory.lapse();
    until(|| store.may_begin()).await;
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_taking_takes_long_holds_up_no_other_that_is_to_be_let_go() {
    let (memory, _, delivery) = hub_with(Shard(3)).await;
    let owner = delivery.owner();
    let held = memory.hold();
    memory.own_elsewhere(Shard(4), false);
    until(|| owner.0.workers.all_assigned().contains(&Shard(4))).await;
    memory.own_elsewhere(Shard(3), true);
    until(|| !owner.0.workers.all_assigned().contains(&Shard(3))).await;
    drop(held);
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_is_taken_at_once_where_another_hub_says_that_the_spread_changes() {
    let (store, memory) = store::in_memory();
    for shard in store.all_shards() {
        memory.own_elsewhere(shard, true);
    }
    memory.share_among(1);
    let delivery = workers(&store).await;
    let owner = delivery.owner();
    // By itself it looks only after the test.
    owner.balance(2 * PATIENCE);
    memory.own_elsewhere(Shard(3), false);
    memory.change_spread();
    until(|| owner.0.workers.owned().contains_key(&Shard(3))).await;
    delivery.stop().await;
}

/// The clock of a promoted server is ahead: the hubs that are left give their words by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_this_hub_has_seen_the_clock_jump_a_shard_that_it_takes_over_is_in_doubt_although_hubs_were_up()
{
    let (_memory, store, delivery) = hub_with(Shard(3)).await;
    let owner = delivery.owner();
    append(&store).await;
    let is_up = || store.put_uptime(Uptime { seen: store.now(), clock_jumps: Vec::new() });
    is_up().await.unwrap();
    assert_eq!(owner.doubt().await.unwrap(), None);
    store.clock().put_ahead(Duration::from_secs(7_200));
    is_up().await.unwrap();
    assert_eq!(doubt(store.as_ref()).await.unwrap(), None);
    assert!(owner.doubt().await.unwrap().is_some());
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_whose_word_has_lapsed_halts_nothing_alone_since_another_may_deliver_for_the_shard_it_still_has()
 {
    let (store, memory) = store::in_memory();
    let subscriber = Subscriber::start().await;
    let (shard, subscription) = store::subscribe(&*store, &topic(), &subscriber.callback("")).await;
    let delivery = workers(&store).await;
    delivery.owner().take(shard).await.unwrap();
    let orders = delivery.orders();
    assert_eq!(orders.halt(shard, subscription.id).await, Ok(()), "it owns the shard");
    let of_another = store.claim(shard).await.unwrap();
    memory.lapse();
    assert_eq!(delivery.operator().halt(shard, subscription.id).await, Ok(()), "it has not heard of that");

    let mut events = store.watch_orders();
    let mut halting = pin!(orders.halt(shard, subscription.id));
    let event = tokio::select! {
        halted = &mut halting => panic!("{halted:?}, before the other hub was asked"),
        event = events.recv() => event,
    };
    assert_eq!(event, Some(OrderEvent::Given(vec![shard])));
    let taken = store.take_orders(shard, of_another).await.unwrap();
    let [(order, Order::Halt(of))] = taken[..] else { panic!("{taken:?}") };
    assert_eq!(of, subscription.id);
    store.answer_order(order, shard, 0).await.unwrap();
    assert_eq!(halting.await, Ok(()));
    delivery.stop().await;
}
