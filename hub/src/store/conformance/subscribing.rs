//! Subscriptions: beginning, renewal and end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use resync_core::datetime::DateTime;

use super::{
    LEASE, Place, UNCLAIMED, activate, append, ask, ask_to_subscribe, at, behind, callback, deactivate, gone,
    on_every_engine, posted, secret, subscribe, the, told, topic,
};
use crate::store::{
    Activation, CachePolicy, Checkpoint, Ended, Intent, Offset, ReadAhead, Recipient, Search, Shard, Store,
    StoreEvent, Subscription, SubscriptionId, SubscriptionSummary, TopicId,
};

on_every_engine!(
    a_subscription_begins_at_the_head_of_the_log,
    a_subscription_may_come_before_the_first_notification,
    a_renewal_keeps_identity_and_cursor_and_brings_the_new_secret_w061,
    a_request_changes_nothing_before_it_is_verified,
    percent_encoded_unreserved_characters_make_no_second_subscription_w073,
    a_hundred_parallel_requests_for_one_pair_end_as_one_subscription_b34,
    an_unsubscribed_pair_is_gone_with_its_laggard,
    unsubscribing_the_unknown_is_no_error_d07,
    subscribing_again_after_the_end_is_a_new_subscription,
    an_expired_subscription_ends,
    a_renewed_lease_does_not_expire,
    a_lease_is_over_by_the_clock_of_the_store_and_no_moment_before,
    a_subscriber_that_is_gone_ends_at_once,
    a_subscriber_that_says_yes_after_it_was_gone_stays,
    ending_the_unknown_is_no_error,
    events_carry_the_new_state,
    a_renewal_is_seen_at_once,
    what_was_read_ahead_is_as_new_as_what_is_asked_for,
    a_recipient_has_callback_and_topic_exactly_as_they_were_written,
    subscriptions_are_listed_in_pages_of_all_topics_and_of_one,
    a_search_looks_at_no_more_than_it_may_and_goes_on_where_it_stopped,
);

async fn a_subscription_begins_at_the_head_of_the_log(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    for number in 0..3 {
        append(&*store, posted(&url, number.to_string())).await;
    }
    let asked_at = at(1_700_000_000);
    let request = ask_to_subscribe(&*store, &url, &callback("d"), "s").await;
    append(&*store, posted(&url, "while it was verified")).await;
    activate(&*store, &request, asked_at).await;

    let store = place.reopen(store).await;
    let subscription = store.find_subscription(&url, &callback("d")).await.unwrap().unwrap();
    assert_eq!(subscription.start, Offset(4));
    assert_eq!(subscription.topic, the(&*store, &url).await.id);
    assert_eq!(subscription.secret, Some(secret("s")));
    assert_eq!(subscription.lease, LEASE);
    assert_eq!(subscription.lease_end, at(1_700_003_600));
    assert_eq!((subscription.created_at, subscription.verified_at), (asked_at, asked_at));
    let shard = Shard::of(&callback("d"), store.shards());
    assert_eq!(
        store.subscription(shard, subscription.topic, subscription.id).await.unwrap(),
        Some(subscription)
    );
}

async fn a_subscription_may_come_before_the_first_notification(place: Place) {
    let store = place.open().await;
    let (_, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    assert_eq!(subscription.start, Offset(0));
    let topic = the(&*store, &topic("t")).await;
    assert_eq!((topic.first, topic.head, topic.latest), (Offset(1), Offset(0), Offset(0)));
    let (id, offset) = append(&*store, posted(&topic.url, "x")).await;
    assert_eq!((id, offset), (topic.id, Offset(1)));
}

async fn a_renewal_keeps_identity_and_cursor_and_brings_the_new_secret_w061(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let (shard, first) = subscribe(&*store, &url, &callback("d")).await;
    for number in 0..5 {
        append(&*store, posted(&url, number.to_string())).await;
    }
    let epoch = store.claim(shard).await.unwrap();
    let laggard = behind(&first, 2);
    let checkpoint = Checkpoint { laggards: vec![laggard], ..Checkpoint::default() };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();

    let request = ask_to_subscribe(&*store, &url, &callback("d"), "second secret").await;
    activate(&*store, &request, at(2_000_000_000)).await;
    let store = place.reopen(store).await;
    let renewed = store.find_subscription(&url, &callback("d")).await.unwrap().unwrap();
    assert_eq!((renewed.id, renewed.topic, renewed.start), (first.id, first.topic, first.start));
    assert_eq!(renewed.created_at, first.created_at);
    assert_eq!(renewed.verified_at, at(2_000_000_000));
    assert_eq!(renewed.lease_end, at(2_000_003_600));
    assert_eq!(renewed.secret, Some(secret("second secret")));
    let state = store.load_shard(shard).await.unwrap();
    assert_eq!(state.laggards, [laggard]);
    assert_eq!(state.slots.len(), 1);
}

async fn a_request_changes_nothing_before_it_is_verified(place: Place) {
    let store = place.open().await;
    let (_, before) = subscribe(&*store, &topic("t"), &callback("d")).await;
    ask_to_subscribe(&*store, &topic("t"), &callback("d"), "second secret").await;
    ask(&*store, &topic("t"), &callback("d"), Intent::Unsubscribe).await;
    let store = place.reopen(store).await;
    assert_eq!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap(), Some(before));
}

async fn percent_encoded_unreserved_characters_make_no_second_subscription_w073(place: Place) {
    let store = place.open().await;
    let (shard, first) = subscribe(&*store, &topic("~t"), &callback("~d")).await;
    let (same_shard, second) = subscribe(&*store, &topic("%7Et"), &callback("%7ed")).await;
    assert_eq!((shard, first.id), (same_shard, second.id));
    assert_eq!(store.load_shard(shard).await.unwrap().slots.len(), 1);
    // Deliveries go to what the subscriber wrote last, and it is told its own spelling of the topic (W-190, D-01).
    assert_eq!(second.callback.as_str(), "https://destination.example/%7ed");
    assert_eq!(second.topic_url.as_str(), "https://source.example/%7Et");
}

async fn a_hundred_parallel_requests_for_one_pair_end_as_one_subscription_b34(place: Place) {
    let store = place.open().await;
    let (url, callback) = (topic("t"), callback("d"));
    let requests: Vec<_> = (0..100).map(|number| format!("secret {number}")).collect();
    let requests = join_all(requests.iter().map(|key| ask_to_subscribe(&*store, &url, &callback, key))).await;
    let outcomes = join_all(requests.iter().map(|request| activate(&*store, request, at(0)))).await;
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Activation::Done)).count(), 1);
    let newest = requests.iter().max_by_key(|request| request.id).unwrap();
    let Intent::Subscribe { secret, .. } = &newest.intent else { unreachable!() };
    let subscription = store.find_subscription(&url, &callback).await.unwrap().unwrap();
    assert_eq!(subscription.secret, *secret);
    assert_eq!(all_slots(&*store).await.len(), 1);
}

async fn an_unsubscribed_pair_is_gone_with_its_laggard(place: Place) {
    let mut store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let (_, neighbour) = subscribe(&*store, &topic("t"), &callback("e")).await;
    let epoch = store.claim(shard).await.unwrap();
    let laggards = vec![behind(&subscription, 0), behind(&neighbour, 0)];
    store.checkpoint(shard, epoch, Checkpoint { laggards, ..Checkpoint::default() }).await.unwrap();

    let goodbye = ask(&*store, &topic("t"), &callback("d"), Intent::Unsubscribe).await;
    deactivate(&*store, &goodbye).await;
    for _ in 0..2 {
        assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_none());
        let (topic, id) = (subscription.topic, subscription.id);
        assert!(store.subscription(shard, topic, id).await.unwrap().is_none());
        assert!(
            recipient(&*store, shard, &subscription, ReadAhead::Topic, CachePolicy::Keep).await.is_none()
        );
        let state = store.load_shard(shard).await.unwrap();
        assert_eq!(state.slots.len(), 1);
        assert_eq!(state.laggards, [behind(&neighbour, 0)]);
        store = place.reopen(store).await;
    }
}

async fn unsubscribing_the_unknown_is_no_error_d07(place: Place) {
    let store = place.open().await;
    let mut events = store.watch();
    let goodbye = ask(&*store, &topic("t"), &callback("d"), Intent::Unsubscribe).await;
    assert!(matches!(deactivate(&*store, &goodbye).await, Activation::Done));
    assert!(told(&mut events).is_empty());
}

async fn subscribing_again_after_the_end_is_a_new_subscription(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let (shard, first) = subscribe(&*store, &url, &callback("d")).await;
    store.end(shard, UNCLAIMED, first.topic, first.id, gone(&first)).await.unwrap();
    append(&*store, posted(&url, "x")).await;
    let store = place.reopen(store).await;
    let (_, second) = subscribe(&*store, &url, &callback("d")).await;
    assert!(first.id < second.id);
    assert_eq!(second.start, Offset(1));
}

async fn an_expired_subscription_ends(place: Place) {
    let store = place.open().await;
    let request = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "s").await;
    activate(&*store, &request, at(1_000)).await;
    let subscription = store.find_subscription(&topic("t"), &callback("d")).await.unwrap().unwrap();
    let shard = Shard::of(&callback("d"), store.shards());
    let mut events = store.watch();
    store.end(shard, UNCLAIMED, subscription.topic, subscription.id, Ended::Expired).await.unwrap();
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_none());
    let events = told(&mut events);
    assert!(
        matches!(events[..], [StoreEvent::Unsubscribed { shard: of, topic, id }]
            if (of, topic, id) == (shard, subscription.topic, subscription.id)),
        "{events:?}"
    );
}

async fn a_renewed_lease_does_not_expire(place: Place) {
    let store = place.open().await;
    let request = ask_to_subscribe(&*store, &topic("t"), &callback("d"), "s").await;
    activate(&*store, &request, at(1_000)).await;
    let (shard, renewed) = subscribe(&*store, &topic("t"), &callback("d")).await;
    store.end(shard, UNCLAIMED, renewed.topic, renewed.id, Ended::Expired).await.unwrap();
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_some());
}

/// W-123. Whoever finds it over may be a hub whose own clock is fast.
async fn a_lease_is_over_by_the_clock_of_the_store_and_no_moment_before(place: Place) {
    let store = place.open().await;
    let now = store.now();
    let ago = |time: Duration| DateTime::from_system_time(now.to_system_time() - time);
    for (name, asked_at, is_over) in [
        ("over", ago(LEASE), true),
        ("minute", ago(LEASE.saturating_sub(Duration::from_secs(60))), false),
        ("new", now, false),
    ] {
        let request = ask_to_subscribe(&*store, &topic("t"), &callback(name), "s").await;
        activate(&*store, &request, asked_at).await;
        let found = async || store.find_subscription(&topic("t"), &callback(name)).await.unwrap();
        let subscription = found().await.unwrap();
        let shard = Shard::of(&callback(name), store.shards());
        store.end(shard, UNCLAIMED, subscription.topic, subscription.id, Ended::Expired).await.unwrap();
        assert_eq!(found().await.is_none(), is_over, "{name}");
    }
    assert!(store.now() >= now);
}

async fn a_subscriber_that_is_gone_ends_at_once(place: Place) {
    let store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    store.end(shard, UNCLAIMED, subscription.topic, subscription.id, gone(&subscription)).await.unwrap();
    let store = place.reopen(store).await;
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_none());
    assert!(store.load_shard(shard).await.unwrap().slots.is_empty());
}

/// W-151: the yes counts that comes after the 410, also where the clock says otherwise.
async fn a_subscriber_that_says_yes_after_it_was_gone_stays(place: Place) {
    let store = place.open().await;
    let (url, callback) = (topic("t"), callback("d"));
    let verify = async |second| {
        let request = ask_to_subscribe(&*store, &url, &callback, "s").await;
        activate(&*store, &request, at(second)).await
    };
    verify(1_060).await;
    let shard = Shard::of(&callback, store.shards());
    let found = async || store.find_subscription(&url, &callback).await.unwrap();
    let mut asked = found().await.unwrap();
    for second in [1_061, 1_000] {
        verify(second).await;
        store.end(shard, UNCLAIMED, asked.topic, asked.id, gone(&asked)).await.unwrap();
        asked = found().await.expect("it has said yes since");
    }
    store.end(shard, UNCLAIMED, asked.topic, asked.id, gone(&asked)).await.unwrap();
    assert!(found().await.is_none());
}

async fn ending_the_unknown_is_no_error(place: Place) {
    let store = place.open().await;
    let gone = Ended::Gone { lease_end: at(0) };
    store.end(Shard(0), UNCLAIMED, TopicId(7), SubscriptionId(7), gone).await.unwrap();
}

async fn events_carry_the_new_state(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    append(&*store, posted(&url, "x")).await;
    let mut events = store.watch();
    let (shard, subscription) = subscribe(&*store, &url, &callback("d")).await;
    store.end(shard, UNCLAIMED, subscription.topic, subscription.id, gone(&subscription)).await.unwrap();
    let slot = SubscriptionSummary {
        id: subscription.id,
        topic: subscription.topic,
        origin: "https://destination.example".into(),
        start: Offset(1),
        lease_end: subscription.lease_end,
        address: subscription.address,
    };
    let bounds = the(&*store, &url).await;
    let events = told(&mut events);
    let [StoreEvent::Subscribed { shard: of, slot: told, topic }, StoreEvent::Unsubscribed { .. }] =
        &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((*of, told, &**topic), (shard, &slot, &bounds));
}

async fn a_renewal_is_seen_at_once(place: Place) {
    let store = place.open().await;
    let (shard, first) = subscribe(&*store, &topic("t"), &callback("d")).await;
    for number in 0..20 {
        let key = format!("secret {number}");
        let request = ask_to_subscribe(&*store, &topic("t"), &callback("d"), &key).await;
        activate(&*store, &request, DateTime::now()).await;
        for keep in KEEP {
            let read = recipient(&*store, shard, &first, ReadAhead::Topic, keep).await.unwrap();
            assert_eq!(read.secret, Some(secret(&key)));
        }
    }
}

async fn what_was_read_ahead_is_as_new_as_what_is_asked_for(place: Place) {
    let store = place.open().await;
    let mut all = Vec::new();
    for url in ["s", "t"] {
        for name in ["a", "b", "c", "d"] {
            all.push(subscribe(&*store, &topic(url), &callback(name)).await);
        }
    }
    let store = place.reopen(store).await;
    for (ahead, keep) in reads() {
        for (shard, first) in &all {
            let read = recipient(&*store, *shard, first, ahead, keep).await.unwrap();
            assert_eq!((read.topic, read.id), (first.topic, first.id));
            assert_eq!(
                (&*read.callback, &read.topic_url),
                (first.callback.as_str().as_bytes(), &first.topic_url)
            );
            for (shard, other) in &all {
                let key = format!("{ahead:?} after {}", first.id.0);
                let request = ask_to_subscribe(&*store, &other.topic_url, &other.callback, &key).await;
                activate(&*store, &request, DateTime::now()).await;
                let read = recipient(&*store, *shard, other, ahead, keep).await.unwrap();
                assert_eq!(read.secret, Some(secret(&key)));
            }
        }
    }
    let (shard, ended) = &all[1];
    let now = store.find_subscription(&ended.topic_url, &ended.callback).await.unwrap().unwrap();
    store.end(*shard, UNCLAIMED, ended.topic, ended.id, gone(&now)).await.unwrap();
    for (ahead, keep) in reads() {
        assert!(recipient(&*store, *shard, ended, ahead, keep).await.is_none());
    }
}

/// W-190: also where it was read for another one.
async fn a_recipient_has_callback_and_topic_exactly_as_they_were_written(place: Place) {
    let store = place.open().await;
    let mut all = Vec::new();
    for (url, name) in [("t", "a?x=%7e"), ("%74", "b?y=+"), ("t", "c#z")] {
        all.push(subscribe(&*store, &topic(url), &callback(name)).await);
    }
    let store = place.reopen(store).await;
    for (ahead, keep) in reads() {
        for (shard, one) in &all {
            let read = recipient(&*store, *shard, one, ahead, keep).await.unwrap();
            assert_eq!(&*read.callback, one.callback.as_str().as_bytes());
            assert_eq!(read.topic_url.as_str(), one.topic_url.as_str());
            assert_eq!(read.secret, one.secret);
        }
    }
}

const KEEP: [CachePolicy; 2] = [CachePolicy::Keep, CachePolicy::Drop];

fn reads() -> impl Iterator<Item = (ReadAhead, CachePolicy)> {
    [ReadAhead::Topic, ReadAhead::Shard].into_iter().flat_map(|ahead| KEEP.map(|keep| (ahead, keep)))
}

async fn recipient(
    store: &dyn Store,
    shard: Shard,
    of: &Subscription,
    ahead: ReadAhead,
    keep: CachePolicy,
) -> Option<Arc<Recipient>> {
    store.recipient(shard, of.topic, of.id, ahead, keep).await.unwrap()
}

async fn subscriptions_are_listed_in_pages_of_all_topics_and_of_one(place: Place) {
    let store = place.open().await;
    let mut shard = Shard(0);
    for number in 0..7 {
        let name = format!("d{number}");
        (shard, _) = subscribe(&*store, &topic(["t", "u"][number % 2]), &callback(&name)).await;
    }
    let of = the(&*store, &topic("t")).await.id;
    for (of, count) in [(None, 7), (Some(of), 4), (Some(TopicId(7)), 0)] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.slots_after(shard, of, after, 2).await.unwrap();
            assert!(page.len() <= 2);
            let Some(last) = page.last() else { break };
            after = Some((last.topic, last.id));
            found.extend(page);
        }
        let wanted = store.load_shard(shard).await.unwrap().slots;
        let wanted: Vec<_> = wanted.into_iter().filter(|slot| of.is_none_or(|of| slot.topic == of)).collect();
        assert_eq!((found.len(), &found), (count, &wanted));
    }
}

async fn all_slots(store: &dyn Store) -> Vec<SubscriptionSummary> {
    let mut slots = Vec::new();
    for shard in (0..store.shards()).map(Shard) {
        let loaded = store.load_shard(shard).await.unwrap().slots;
        let ids: Vec<_> = loaded.iter().map(|slot| (slot.topic, slot.id)).collect();
        assert_eq!(store.ids(shard).await.unwrap(), ids);
        for (topic, id) in ids {
            assert_eq!(store.topic_of(shard, id).await.unwrap(), Some(topic));
            let other = Shard((shard.0 + 1) % store.shards());
            assert_eq!(store.topic_of(other, id).await.unwrap(), None);
        }
        slots.extend(loaded);
    }
    slots
}

async fn a_search_looks_at_no_more_than_it_may_and_goes_on_where_it_stopped(place: Place) {
    let store = place.open().await;
    let mut shard = Shard(0);
    for number in 0..7 {
        let name = format!("{}/D{number}", ["one", "two"][number % 2]);
        (shard, _) = subscribe(&*store, &topic(["t", "U"][number / 4]), &callback(&name)).await;
    }
    let of = the(&*store, &topic("U")).await.id;
    assert_eq!(store.subscribers(&[of, TopicId(7)]).await.unwrap(), [3, 0]);
    for (part, whole, count) in [
        ("s://destination.ex", "", 7),
        ("/d6", "/D6", 0),
        ("one/d", "https://destination.example/one/D", 0),
        ("nobody", "https://destination.example/one/D6", 1),
        ("nobody", "https://destination.example/one/D3", 0),
        ("source.example/u", "https://destination.example/one/D6", 3),
        ("source.example/u", "https://destination.example/one/D0", 4),
        ("source.example/u", "", 3),
        ("source.example", "", 7),
        ("", "", 7),
    ] {
        let search = Search { part: part.into(), callback: whole.into(), most: 2, look_at: 3 };
        let (mut found, mut looked_at, mut after) = (HashSet::new(), 0, None);
        loop {
            let part = store.search(shard, after, search.clone()).await.unwrap();
            assert!(part.looked_at <= 3 && part.found.len() <= 2);
            looked_at += part.looked_at;
            found.extend(part.found.into_iter().map(|one| one.id));
            after = part.stopped_at;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((found.len(), looked_at), (count, 7), "{part} {whole}");
    }
}
