//! Denials: what they end, and that they are told until they are told (W-098, W-102).

use super::{
    Place, activate, ask_to_subscribe, at, callback, on_every_engine, owned_by_hubs, subscribe, told, topic,
    untold, waiting,
};
use crate::store::{
    Activation, Denial, DenialScope, NewDenial, Shard, StoreEvent, SubscriptionKey, WaitingDenial,
};

on_every_engine!(
    a_denial_ends_the_subscription_and_waits_to_be_told,
    a_denial_takes_the_waiting_request_with_it,
    only_the_newest_request_of_a_pair_can_be_denied,
    w062_a_denied_request_leaves_the_subscription_in_force,
    d17_a_renewal_that_was_confirmed_and_denied_ends_the_subscription_but_no_newer_request,
    where_there_is_nothing_there_is_nothing_to_deny,
    a_newer_denial_of_a_pair_replaces_the_older_one,
    denials_are_listed_by_the_shards_of_their_callbacks,
);

fn denial(name: &str, scope: DenialScope) -> NewDenial {
    NewDenial { topic: topic("t"), callback: callback(name), reason: "because".into(), scope }
}

async fn a_denial_ends_the_subscription_and_waits_to_be_told(place: Place) {
    let store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("~d")).await;
    let mut events = store.watch();
    let denied = store.deny(denial("%7Ed", DenialScope::Everything)).await.unwrap().unwrap();
    assert_eq!(denied.ended, Some((shard, subscription.topic, subscription.id)));
    assert_eq!(denied.callback.as_str(), subscription.callback.as_str(), "told as the subscriber wrote it");
    assert!(matches!(told(&mut events)[..], [StoreEvent::Unsubscribed { .. }]));
    assert!(store.find_subscription(&topic("t"), &callback("~d")).await.unwrap().is_none());
    drop(events);
    let store = place.reopen(store).await;
    assert_eq!(untold(&*store).await, std::slice::from_ref(&denied));
    assert!(store.load_shard(shard).await.unwrap().slots.is_empty());
    store.remove_denial(&denied).await.unwrap();
    let store = place.reopen(store).await;
    assert!(untold(&*store).await.is_empty());
}

async fn a_denial_takes_the_waiting_request_with_it(place: Place) {
    let store = place.open().await;
    let renewal = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "s").await;
    let denied = store.deny(denial("d", DenialScope::Everything)).await.unwrap().unwrap();
    assert_eq!(denied.ended, None);
    assert!(waiting(&*store).await.is_empty());
    assert!(matches!(activate(&*store, &renewal, at(0)).await, Activation::Superseded));
}

async fn only_the_newest_request_of_a_pair_can_be_denied(place: Place) {
    let store = place.open().await;
    let older = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "older").await;
    let newer = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "newer").await;
    assert!(store.deny(denial("d", DenialScope::Request(older.id))).await.unwrap().is_none());
    assert_eq!(waiting(&*store).await, std::slice::from_ref(&newer));
    assert!(store.deny(denial("d", DenialScope::Request(newer.id))).await.unwrap().is_some());
    assert!(waiting(&*store).await.is_empty());
}

async fn w062_a_denied_request_leaves_the_subscription_in_force(place: Place) {
    let store = place.open().await;
    let (_, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let renewal = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "a stranger's").await;
    let mut events = store.watch();
    assert!(store.deny(denial("d", DenialScope::Request(renewal.id))).await.unwrap().is_none());
    assert!(told(&mut events).is_empty());
    assert!(waiting(&*store).await.is_empty());
    assert!(untold(&*store).await.is_empty(), "it is not told what is not so");
    drop(events);
    let store = place.reopen(store).await;
    let still = store.find_subscription(&topic("t"), &callback("d")).await.unwrap().unwrap();
    assert_eq!((still.id, still.lease_end), (subscription.id, subscription.lease_end));
}

async fn d17_a_renewal_that_was_confirmed_and_denied_ends_the_subscription_but_no_newer_request(
    place: Place,
) {
    let store = place.open().await;
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let older = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "older").await;
    let newer = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "newer").await;
    assert!(store.deny(denial("d", DenialScope::Confirmed(older.id))).await.unwrap().is_none());
    assert_eq!(waiting(&*store).await, std::slice::from_ref(&newer));
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_some());
    let denied = store.deny(denial("d", DenialScope::Confirmed(newer.id))).await.unwrap().unwrap();
    assert!(denied.ended.is_some());
    assert!(waiting(&*store).await.is_empty());
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_none());
}

async fn where_there_is_nothing_there_is_nothing_to_deny(place: Place) {
    let store = place.open().await;
    assert!(store.deny(denial("d", DenialScope::Everything)).await.unwrap().is_none());
    assert!(untold(&*store).await.is_empty(), "nobody is told who never asked (B-33)");
}

async fn a_newer_denial_of_a_pair_replaces_the_older_one(place: Place) {
    let store = place.open().await;
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let older = store.deny(denial("d", DenialScope::Everything)).await.unwrap().unwrap();
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let newer = store.deny(denial("d", DenialScope::Everything)).await.unwrap().unwrap();
    store.remove_denial(&older).await.unwrap();
    assert_eq!(untold(&*store).await, [newer]);
}

async fn denials_are_listed_by_the_shards_of_their_callbacks(place: Place) {
    let store = place.open().await;
    let mut all = Vec::new();
    for number in 0..60 {
        let callback = format!("https://d{}.example/{number}", number % 30).parse().unwrap();
        ask_to_subscribe(&*store, &topic("t"), &callback, "s").await;
        let denied = NewDenial { callback, ..denial("", DenialScope::Everything) };
        all.extend(store.deny(denied).await.unwrap());
    }
    let store = place.reopen(store).await;
    for of in owned_by_hubs(&*store) {
        let is_here = |callback| of.contains(&Shard::of(callback, store.shards()));
        let wanted: Vec<_> = all.iter().filter(|denial| is_here(&denial.callback)).cloned().collect();
        let without_texts = |denial: &Denial| WaitingDenial {
            shard: Shard::of(&denial.callback, store.shards()),
            id: denial.id,
            key: SubscriptionKey::of(&denial.topic, &denial.callback),
        };
        assert_eq!(store.denials(&of).await.unwrap(), wanted, "{of:?}");
        let waiting: Vec<_> = wanted.iter().map(without_texts).collect();
        assert_eq!(store.denied(&of).await.unwrap(), waiting, "{of:?}");
    }
}
