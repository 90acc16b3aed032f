//! Orders to the owners of shards: who takes them, and how often.

use std::time::Duration;

use resync_core::datetime::DateTime;

use super::{Place, at, on_every_engine};
use crate::store::{
    Command, Epoch, Offset, Order, OrderEvent, OrderId, Shard, Store, StoreError, SubscriptionId, Target,
    TopicId,
};

on_every_engine!(
    an_order_is_taken_once_by_the_owner_of_each_shard_and_its_answers_are_kept_until_it_is_withdrawn,
    orders_are_taken_in_their_order_and_as_they_were_given,
    who_owns_a_shard_no_more_takes_no_order_for_it,
    an_order_whose_time_is_over_or_that_was_withdrawn_is_not_carried_out,
    a_shard_has_an_owner_from_its_claim_to_its_release,
);

const ONE: Shard = Shard(1);
const TWO: Shard = Shard(2);

fn halt(subscription: u64) -> Order {
    Order::Halt(SubscriptionId(subscription))
}

/// Long after whatever this test does.
fn later(store: &dyn Store) -> DateTime {
    DateTime::from_system_time(store.now().to_system_time() + Duration::from_secs(3_600))
}

fn told(events: &mut tokio::sync::mpsc::UnboundedReceiver<OrderEvent>) -> Vec<OrderEvent> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

async fn an_order_is_taken_once_by_the_owner_of_each_shard_and_its_answers_are_kept_until_it_is_withdrawn(
    place: Place,
) {
    let store = place.open().await;
    let epochs = [store.claim(ONE).await.unwrap(), store.claim(TWO).await.unwrap()];
    let mut events = store.watch_orders();
    let id = store.order(&[ONE, TWO], halt(7), later(&*store)).await.unwrap();
    assert_eq!(told(&mut events), [OrderEvent::Given(vec![ONE, TWO])]);
    for (shard, epoch) in [ONE, TWO].into_iter().zip(epochs) {
        assert_eq!(store.take_orders(shard, epoch).await.unwrap(), [(id, halt(7))]);
        assert_eq!(store.take_orders(shard, epoch).await.unwrap(), []);
    }
    assert_eq!(store.answers_to(id).await.unwrap(), []);
    store.answer_order(id, TWO, 3).await.unwrap();
    assert_eq!(told(&mut events), [OrderEvent::Answered(id)]);
    store.answer_order(id, ONE, 0).await.unwrap();
    let mut answers = store.answers_to(id).await.unwrap();
    answers.sort_unstable();
    assert_eq!(answers, [(ONE, 0), (TWO, 3)]);
    store.withdraw_order(id).await.unwrap();
    assert_eq!(store.answers_to(id).await.unwrap(), []);
    store.answer_order(id, ONE, 1).await.unwrap();
    assert_eq!(store.answers_to(id).await.unwrap(), [], "nobody waits for it");
}

async fn orders_are_taken_in_their_order_and_as_they_were_given(place: Place) {
    let store = place.open().await;
    let epoch = store.claim(ONE).await.unwrap();
    let (topic, from) = (TopicId(5), Offset(3));
    let commands = [
        Command::Retry(Target::Topic(topic)),
        Command::Retry(Target::Subscription(SubscriptionId(9))),
        Command::Retry(Target::Host("https://destination.example".to_owned())),
        Command::Skip(SubscriptionId(9)),
        Command::Replay { topic, subscription: None, from },
        Command::Replay { topic, subscription: Some(SubscriptionId(9)), from },
    ];
    let orders: Vec<_> = commands.into_iter().map(Order::Execute).chain([halt(9)]).collect();
    let mut given: Vec<(OrderId, Order)> = Vec::new();
    for order in orders {
        let id = store.order(&[ONE], order.clone(), later(&*store)).await.unwrap();
        assert!(given.iter().all(|(other, _)| *other != id));
        given.push((id, order));
    }
    assert_eq!(store.take_orders(ONE, epoch).await.unwrap(), given);
}

async fn who_owns_a_shard_no_more_takes_no_order_for_it(place: Place) {
    let store = place.open().await;
    let first = store.claim(ONE).await.unwrap();
    let id = store.order(&[ONE], halt(7), later(&*store)).await.unwrap();
    let second = store.claim(ONE).await.unwrap();
    let taken = store.take_orders(ONE, first).await;
    assert!(matches!(taken, Err(StoreError::Fenced)), "{taken:?}");
    assert_eq!(store.take_orders(ONE, second).await.unwrap(), [(id, halt(7))], "it was left");
}

async fn an_order_whose_time_is_over_or_that_was_withdrawn_is_not_carried_out(place: Place) {
    let store = place.open().await;
    let epoch = store.claim(ONE).await.unwrap();
    store.order(&[ONE], halt(7), at(1)).await.unwrap();
    let id = store.order(&[ONE], halt(8), later(&*store)).await.unwrap();
    store.withdraw_order(id).await.unwrap();
    assert_eq!(store.take_orders(ONE, epoch).await.unwrap(), []);
}

async fn a_shard_has_an_owner_from_its_claim_to_its_release(place: Place) {
    let store = place.open().await;
    let owned = async || -> Vec<bool> {
        let until = store.owned_until(&[ONE, TWO]).await.unwrap();
        until.into_iter().map(|until| until.is_some_and(|until| until > store.now())).collect()
    };
    assert_eq!(owned().await, [false, false]);
    let epoch = store.claim(TWO).await.unwrap();
    assert_eq!(owned().await, [false, true]);
    assert!(store.release(TWO, Epoch(epoch.0 + 1)).await.is_err());
    assert_eq!(owned().await, [false, true], "somebody else may not release it");
    store.release(TWO, epoch).await.unwrap();
    assert_eq!(owned().await, [false, false]);
}
