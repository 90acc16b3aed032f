//! What was acknowledged and still has to be done: pings and requests.

use futures_util::future::join_all;
use resync_core::datetime::DateTime;
use resync_core::websub::{TopicUrl, VerifyToken};

use super::{
    PINGED_BY, Place, activate, ask, ask_from, ask_to_subscribe, at, callback, deactivate, on_every_engine,
    owned_by_hubs, pinged, secret, topic, waiting,
};
use crate::store::{
    Activation, DenialScope, Intent, NewDenial, NewRequest, PendingRequest, Ping, PingClient, Shard,
    SubscriptionCounts,
};
use crate::trace_context::TraceContext;

on_every_engine!(
    pings_wait_until_they_are_removed,
    a_newer_ping_replaces_the_older_one_of_its_topic,
    a_waiting_trace_is_replaced_by_another_only,
    whose_a_waiting_ping_is_outlives_the_hub_and_a_stranger_takes_no_trust_from_it,
    requests_are_kept_as_they_came_oldest_first,
    a_newer_request_replaces_the_older_one_of_its_pair_d17,
    removing_a_replaced_request_leaves_the_newer_one,
    request_identities_are_never_given_twice,
    a_request_is_gone_once_it_was_applied,
    a_replaced_request_changes_nothing_even_after_the_newer_one_was_applied_d17,
    a_removed_request_changes_nothing,
    requests_of_other_clients_for_a_pair_wait_beside_each_other,
    a_denied_pair_forgets_what_everybody_asked_for_it,
    requests_are_listed_by_the_shards_of_their_callbacks,
    pings_are_listed_by_the_shards_of_their_topics_origins,
    of_many_requests_at_once_each_gets_its_own_answer,
    a_pair_that_several_have_asked_for_and_confirmed_at_once_has_one_subscription,
);

async fn pings_wait_until_they_are_removed(place: Place) {
    let store = place.open().await;
    let b = store.put_ping(topic("~b"), None, PingClient::default()).await.unwrap();
    let trace = TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let a = store.put_ping(topic("a"), trace, PingClient::default()).await.unwrap();
    assert!(trace.is_some() && a.trace == trace);
    let store = place.reopen(store).await;
    assert_eq!(pinged(&*store).await, [b.clone(), a.clone()]);
    store.remove_ping(&a).await.unwrap();
    store.remove_ping(&a).await.unwrap();
    let store = place.reopen(store).await;
    assert_eq!(pinged(&*store).await, [b]);
}

async fn a_waiting_trace_is_replaced_by_another_only(place: Place) {
    let mut store = place.open().await;
    let [first, other] = [TraceContext::begin(), TraceContext::begin()].map(Some);
    for (put, kept) in [(first, first), (None, first), (other, other), (None, other)] {
        let ping = store.put_ping(topic("t"), put, PingClient::default()).await.unwrap();
        assert_eq!(ping.trace, put);
        store = place.reopen(store).await;
        assert_eq!(pinged(&*store).await, [Ping { trace: kept, ..ping }]);
    }
}

async fn whose_a_waiting_ping_is_outlives_the_hub_and_a_stranger_takes_no_trust_from_it(place: Place) {
    let mut store = place.open().await;
    for (by, kept) in PINGED_BY {
        let ping = store.put_ping(topic("t"), None, by).await.unwrap();
        assert_eq!(ping.client, by);
        store = place.reopen(store).await;
        assert_eq!(pinged(&*store).await, [Ping { client: kept, ..ping }]);
    }
}

async fn a_newer_ping_replaces_the_older_one_of_its_topic(place: Place) {
    let store = place.open().await;
    let older = store.put_ping(topic("~t"), None, PingClient::default()).await.unwrap();
    let store = place.reopen(store).await;
    let newer = store.put_ping(topic("%7Et"), None, PingClient::default()).await.unwrap();
    assert!(older.id < newer.id);
    store.remove_ping(&older).await.unwrap();
    assert_eq!(pinged(&*store).await, std::slice::from_ref(&newer));
    store.remove_ping(&newer).await.unwrap();
    assert!(pinged(&*store).await.is_empty());
}

async fn requests_are_kept_as_they_came_oldest_first(place: Place) {
    let store = place.open().await;
    let intents = [
        (Intent::Subscribe { lease: Some(u64::MAX), secret: Some(secret("s")) }, "a token"),
        (Intent::Unsubscribe, ""),
        (Intent::Subscribe { lease: None, secret: None }, ""),
    ];
    let mut requests = Vec::new();
    for (number, (intent, token)) in (0..).zip(intents) {
        let callback = callback(&format!("%7E{number}"));
        let new = NewRequest {
            client: Some([192, 0, 2, 1].into()),
            topic: topic("t"),
            callback,
            intent,
            verify_token: VerifyToken::new(token).ok(),
            received_at: at(number),
        };
        requests.push(store.put_request(new).await.unwrap());
    }
    let store = place.reopen(store).await;
    let waiting = waiting(&*store).await;
    assert_eq!(waiting, requests);
    assert_eq!(waiting[0].callback.as_str(), "https://destination.example/%7E0");
}

async fn a_newer_request_replaces_the_older_one_of_its_pair_d17(place: Place) {
    let store = place.open().await;
    let older = ask_to_subscribe(&*store, &topic("t"), &callback("~d"), "older").await;
    let newer = ask_to_subscribe(&*store, &topic("t"), &callback("%7Ed"), "newer").await;
    let other = ask_to_subscribe(&*store, &topic("t"), &callback("e"), "other").await;
    assert!(older.id < newer.id);
    let store = place.reopen(store).await;
    assert_eq!(waiting(&*store).await, [newer, other]);
}

async fn removing_a_replaced_request_leaves_the_newer_one(place: Place) {
    let store = place.open().await;
    let older = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "older").await;
    let newer = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "newer").await;
    store.remove_request(&older).await.unwrap();
    assert_eq!(waiting(&*store).await, std::slice::from_ref(&newer));
    store.remove_request(&newer).await.unwrap();
    let store = place.reopen(store).await;
    assert!(waiting(&*store).await.is_empty());
}

async fn request_identities_are_never_given_twice(place: Place) {
    let store = place.open().await;
    let first = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "s").await;
    store.remove_request(&first).await.unwrap();
    let store = place.reopen(store).await;
    let second = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "s").await;
    assert!(first.id < second.id);
}

async fn a_request_is_gone_once_it_was_applied(place: Place) {
    let store = place.open().await;
    let request = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "s").await;
    assert!(matches!(activate(&*store, &request, at(0)).await, Activation::Done));
    let goodbye = ask(&*store, &topic("t"), &callback("d"), Intent::Unsubscribe).await;
    assert!(matches!(deactivate(&*store, &goodbye).await, Activation::Done));
    assert!(waiting(&*store).await.is_empty());
    let store = place.reopen(store).await;
    assert!(waiting(&*store).await.is_empty());
}

async fn a_replaced_request_changes_nothing_even_after_the_newer_one_was_applied_d17(place: Place) {
    let store = place.open().await;
    let (topic, callback) = (topic("t"), callback("d"));
    let hello = ask_to_subscribe(&*store, &topic, &callback, "s").await;
    let goodbye = ask(&*store, &topic, &callback, Intent::Unsubscribe).await;
    assert!(matches!(activate(&*store, &hello, at(0)).await, Activation::Superseded));
    assert!(matches!(deactivate(&*store, &goodbye).await, Activation::Done));
    let store = place.reopen(store).await;
    assert!(matches!(activate(&*store, &hello, at(0)).await, Activation::Superseded));
    assert!(store.find_subscription(&topic, &callback).await.unwrap().is_none());
}

async fn a_removed_request_changes_nothing(place: Place) {
    let store = place.open().await;
    let request = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "s").await;
    store.remove_request(&request).await.unwrap();
    assert!(matches!(activate(&*store, &request, at(0)).await, Activation::Superseded));
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_none());
}

async fn requests_of_other_clients_for_a_pair_wait_beside_each_other(place: Place) {
    let store = place.open().await;
    let (topic, callback) = (topic("t"), callback("d"));
    let [subscriber, stranger] = [1, 2].map(|last| Some([192, 0, 2, last].into()));
    let subscribe = |key| Intent::Subscribe { lease: None, secret: Some(secret(key)) };
    let older = ask_from(&*store, subscriber, &topic, &callback, subscribe("older")).await;
    let others = ask_from(&*store, stranger, &topic, &callback, Intent::Unsubscribe).await;
    let newer = ask_from(&*store, subscriber, &topic, &callback, subscribe("newer")).await;
    let store = place.reopen(store).await;
    assert_eq!(waiting(&*store).await, [others.clone(), newer.clone()]);
    assert_eq!(store.request(older.id).await.unwrap(), None, "it was replaced by its own client");
    assert_eq!(store.request(newer.id).await.unwrap().as_ref(), Some(&newer));
    store.remove_request(&others).await.unwrap();
    assert!(matches!(activate(&*store, &newer, at(0)).await, Activation::Done));
    assert!(matches!(deactivate(&*store, &others).await, Activation::Superseded), "it was refused");
    let last = ask_from(&*store, stranger, &topic, &callback, Intent::Unsubscribe).await;
    assert!(matches!(deactivate(&*store, &last).await, Activation::Done), "what is confirmed last counts");
}

async fn a_denied_pair_forgets_what_everybody_asked_for_it(place: Place) {
    let store = place.open().await;
    let (topic, callback) = (topic("t"), callback("d"));
    for last in [1, 2, 3] {
        let client = Some([192, 0, 2, last].into());
        ask_from(&*store, client, &topic, &callback, Intent::Unsubscribe).await;
    }
    let one = ask_from(&*store, Some([192, 0, 2, 1].into()), &topic, &callback, Intent::Unsubscribe).await;
    let denial =
        |scope| NewDenial { topic: topic.clone(), callback: callback.clone(), reason: String::new(), scope };
    assert!(store.deny(denial(DenialScope::Request(one.id))).await.unwrap().is_some());
    assert_eq!(waiting(&*store).await.len(), 2, "those of others wait");
    assert!(store.deny(denial(DenialScope::Everything)).await.unwrap().is_some());
    let store = place.reopen(store).await;
    assert!(waiting(&*store).await.is_empty());
}

async fn requests_are_listed_by_the_shards_of_their_callbacks(place: Place) {
    let store = place.open().await;
    let mut all = Vec::new();
    for number in 0..60 {
        let callback = format!("https://d{}.example/{number}", number % 30).parse().unwrap();
        all.push(ask(&*store, &topic("t"), &callback, Intent::Unsubscribe).await);
    }
    let store = place.reopen(store).await;
    for of in owned_by_hubs(&*store) {
        let is_here = |callback| of.contains(&Shard::of(callback, store.shards()));
        let wanted: Vec<_> = all.iter().filter(|request| is_here(&request.callback)).cloned().collect();
        let shard = |request: &PendingRequest| Shard::of(&request.callback, store.shards());
        let ids: Vec<_> = wanted.iter().map(|request| (shard(request), request.id)).collect();
        assert_eq!(store.requests(&of).await.unwrap(), wanted, "{of:?}");
        assert_eq!(store.request_ids(&of).await.unwrap(), ids, "{of:?}");
    }
}

async fn pings_are_listed_by_the_shards_of_their_topics_origins(place: Place) {
    let store = place.open().await;
    let topic = |text: String| -> TopicUrl { text.parse().unwrap() };
    let mut all = Vec::new();
    for number in 0..60 {
        let topic = topic(format!("https://s{}.example/{number}", number % 30));
        all.push(store.put_ping(topic, None, PingClient::default()).await.unwrap());
    }
    let store = place.reopen(store).await;
    let shard = |topic: &TopicUrl| Shard::that_fetches(topic, store.shards());
    for of in owned_by_hubs(&*store) {
        let wanted: Vec<_> = all.iter().filter(|ping| of.contains(&shard(&ping.topic))).cloned().collect();
        assert_eq!(store.pings(&of).await.unwrap(), wanted, "{of:?}");
    }
    for number in 0..30 {
        let one = topic(format!("https://s{number}.example/a"));
        let other = topic(format!("HTTPS://S{number}.example:443/b?c"));
        assert_eq!(shard(&one), shard(&other), "one origin has one owner");
        let callback = one.as_str().parse().unwrap();
        assert_eq!(shard(&one), Shard::of(&callback, store.shards()), "also where it is a callback's");
    }
}

async fn of_many_requests_at_once_each_gets_its_own_answer(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let callbacks: Vec<_> = (0..200).map(|number| callback(&number.to_string())).collect();
    let asking =
        callbacks.iter().map(|callback| ask_to_subscribe(&*store, &url, callback, callback.as_str()));
    let mut asked = join_all(asking).await;
    asked.sort_by_key(|request| request.id.0);
    assert_eq!(waiting(&*store).await, asked);
    let confirmed = join_all(asked.iter().map(|request| activate(&*store, request, DateTime::now()))).await;
    assert!(confirmed.iter().all(|outcome| matches!(outcome, Activation::Done)), "{confirmed:?}");
    let store = place.reopen(store).await;
    for callback in &callbacks {
        let found = store.find_subscription(&url, callback).await.unwrap().unwrap();
        assert_eq!((&found.callback, found.secret), (callback, Some(secret(callback.as_str()))));
    }
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn a_pair_that_several_have_asked_for_and_confirmed_at_once_has_one_subscription(place: Place) {
    let store = place.open().await;
    let (url, callback) = (topic("t"), callback("d"));
    let asking = (0..20).map(|last| {
        let intent = Intent::Subscribe { lease: None, secret: None };
        ask_from(&*store, Some([192, 0, 2, last].into()), &url, &callback, intent)
    });
    let asked = join_all(asking).await;
    let each_twice = asked.iter().chain(&asked);
    let confirmed = join_all(each_twice.map(|request| activate(&*store, request, DateTime::now()))).await;
    let done = confirmed.iter().filter(|outcome| matches!(outcome, Activation::Done)).count();
    assert_eq!(done, 20, "each request counts once");
    let found = store.find_subscription(&url, &callback).await.unwrap().unwrap();
    let usage = store.accounted(found.client, &url, &callback).await.unwrap();
    let once = SubscriptionCounts { subscriptions: 1, topics: 1, hosts: 1 };
    assert_eq!((usage.of_client, usage.in_all), (once, once), "it counts for who was first");
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}
