//! Appending and reading.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use resync_core::websub::TopicUrl;

use super::{
    DAY, Place, append, at, callback, is_new, named, on_every_engine, posted, read, subscribe, the, told,
    topic, within,
};
use crate::store::{
    Chain, ChainBreak, ContentKind, Interval, NewNotification, NotificationLinks, Offset, Store, StoreEvent,
    Topic, TopicId, Validators,
};
use crate::trace_context::TraceContext;

on_every_engine!(
    the_first_since_a_moment_is_found_although_the_clock_was_set_back,
    a_notification_is_read_as_it_was_appended,
    a_body_of_any_size_comes_back_byte_for_byte,
    what_the_log_does_not_hold_is_none,
    the_time_of_a_notification_is_read_without_its_body,
    a_topic_is_the_same_under_percent_encoded_unreserved_characters_w073,
    topics_have_random_identities,
    topics_are_listed_in_pages_in_the_order_of_their_urls,
    a_list_goes_on_after_a_topic_that_was_forgotten_meanwhile,
    topics_are_found_by_their_identities_in_the_order_in_which_they_are_asked_for,
    fetched_versions_move_the_latest_offset,
    concurrent_appends_get_dense_offsets_and_are_all_durable,
    events_are_told_in_the_order_of_the_log_to_everybody,
    a_repetition_is_recognised_in_the_same_group,
    a_repetition_is_recognised_after_reopening,
    a_repetition_after_its_time_is_a_new_notification,
    the_same_key_on_another_topic_is_another_notification,
    a_very_long_idempotency_key_is_taken,
    cn008_a_chain_remembers_where_it_was_broken,
    cn008_a_repeated_notification_does_not_break_the_chain,
    validators_are_found_again_after_reopening,
);

async fn a_notification_is_read_as_it_was_appended(place: Place) {
    let store = place.open().await;
    let new = NewNotification {
        content_type: Bytes::from_static(b"text/xml; charset=\"utf-8\"\xFF"),
        links: NotificationLinks {
            hubs: vec!["https://hub.example/a".into(), "https://hub.example/b".into()],
            canonical: "https://source.example/self?x=%7E".into(),
            resourcesync: Some("https://source.example/capabilitylist.xml".into()),
        },
        kind: ContentKind::Fetched,
        received_at: "2026-01-03T09:00:00.123456789Z".parse().unwrap(),
        trace: TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ..posted(&topic("t"), "<urlset/>\0\0")
    };
    let (id, offset) = append(&*store, new.clone()).await;
    assert_eq!(offset, Offset(1));
    let cached = read(&*store, id, offset).await.unwrap();

    let store = place.reopen(store).await;
    let read = read(&*store, id, offset).await.unwrap();
    assert_eq!(read, cached);
    assert_eq!((read.topic, read.offset), (id, offset));
    assert_eq!(read.content_type, new.content_type);
    assert_eq!(read.links, new.links);
    assert_eq!(read.body, new.body);
    assert_eq!(read.kind, new.kind);
    assert_eq!(read.received_at, new.received_at);
    assert!(read.trace.is_some() && read.trace == new.trace);
}

async fn a_body_of_any_size_comes_back_byte_for_byte(place: Place) {
    const PART: usize = 64 * 1024;
    let mut store = place.open().await;
    let mut bodies = Vec::new();
    for size in [0, 1, PART - 1, PART, PART + 1, 2 * PART, 5 * 1024 * 1024 + 7] {
        // Zeros and every other byte, at no period that a part could hide.
        let body: Bytes = (0..=u8::MAX).chain([0]).cycle().take(size).collect();
        let (id, offset) = append(&*store, posted(&topic("t"), body.clone())).await;
        bodies.push((id, offset, body));
    }
    for _ in 0..2 {
        for (id, offset, body) in &bodies {
            let read = read(&*store, *id, *offset).await.unwrap();
            assert!(read.body == *body, "{} bytes", body.len());
        }
        store = place.reopen(store).await;
    }
}

async fn what_the_log_does_not_hold_is_none(place: Place) {
    let store = place.open().await;
    let (id, offset) = append(&*store, posted(&topic("t"), "x")).await;
    assert!(store.notification_from(id, offset.next()).await.unwrap().is_none());
    assert!(store.notification_from(TopicId(id.0 ^ 1), offset).await.unwrap().is_none());
    assert!(store.topic(&topic("other")).await.unwrap().is_none());
}

async fn a_topic_is_the_same_under_percent_encoded_unreserved_characters_w073(place: Place) {
    let store = place.open().await;
    append(&*store, posted(&topic("~t"), "1")).await;
    append(&*store, posted(&topic("%7Et"), "2")).await;
    let store = place.reopen(store).await;
    append(&*store, posted(&topic("%7et"), "3")).await;
    let topics = store.topics(None, usize::MAX).await.unwrap();
    assert_eq!(topics.len(), 1);
    assert_eq!(topics[0].url.as_str(), "https://source.example/~t");
    assert_eq!(topics[0].head, Offset(3));
}

async fn topics_have_random_identities(place: Place) {
    let store = place.open().await;
    let mut seen = BTreeSet::new();
    for number in 0..20 {
        let (id, _) = append(&*store, posted(&topic(&number.to_string()), "x")).await;
        assert!(id.0 != 0 && i64::try_from(id.0).is_ok());
        seen.insert(id);
    }
    assert_eq!(seen.len(), 20);
    let other = place.another();
    let (id, _) = append(&*other.open().await, posted(&topic("0"), "x")).await;
    assert!(!seen.contains(&id));
}

/// All topics, in pages of so many.
async fn listed(store: &dyn Store, limit: usize) -> Vec<Topic> {
    let (mut all, mut after) = (Vec::new(), None::<TopicUrl>);
    loop {
        let page = store.topics(after.as_ref(), limit).await.unwrap();
        assert!(page.len() <= limit);
        let Some(last) = page.last() else { return all };
        after = Some(last.url.clone());
        all.extend(page);
    }
}

async fn topics_are_listed_in_pages_in_the_order_of_their_urls(place: Place) {
    let mut store = place.open().await;
    assert_eq!(listed(&*store, 1).await, []);
    // As they are compared (W-073), not as they are written.
    let written =
        ["http://a.example/z", "http://a.example/%7E", "HTTP://b.example:80/1", "http://b.example/2"];
    for number in [2, 0, 3, 1] {
        append(&*store, posted(&written[number].parse().unwrap(), "x")).await;
    }
    for _ in 0..2 {
        for limit in [1, 2, 3, 4, 5, usize::MAX] {
            let all = listed(&*store, limit).await;
            assert_eq!(all.iter().map(|topic| topic.url.as_str()).collect::<Vec<_>>(), written);
            assert!(all.iter().all(|topic| topic.head == Offset(1)));
        }
        assert_eq!(store.topics(None, 0).await.unwrap(), []);
        let nowhere = store.topics(Some(&topic("nowhere")), usize::MAX).await.unwrap();
        assert_eq!(nowhere, [], "they all stand before it");
        store = place.reopen(store).await;
    }
}

async fn a_list_goes_on_after_a_topic_that_was_forgotten_meanwhile(place: Place) {
    let store = place.open().await;
    for (second, name) in [(1, "b"), (9, "a"), (9, "c")] {
        append(&*store, NewNotification { received_at: at(second), ..posted(&topic(name), "x") }).await;
    }
    let page = store.topics(None, 2).await.unwrap();
    assert_eq!(page.iter().map(|topic| &topic.url).collect::<Vec<_>>(), [&topic("a"), &topic("b")]);
    store.trim(at(5), within(u64::MAX)).await.unwrap();
    assert_eq!(store.topic(&topic("b")).await.unwrap(), None);
    let rest = store.topics(Some(&page[1].url), 2).await.unwrap();
    assert_eq!(rest, [the(&*store, &topic("c")).await]);
    // It comes back as another one, in its place.
    append(&*store, posted(&topic("%62"), "x")).await;
    let again = listed(&*store, 1).await;
    assert_eq!(
        again.iter().map(|topic| &topic.url).collect::<Vec<_>>(),
        ["a", "b", "c"].map(topic).each_ref()
    );
    assert_ne!(again[1].id, page[1].id);
}

async fn topics_are_found_by_their_identities_in_the_order_in_which_they_are_asked_for(place: Place) {
    let store = place.open().await;
    for name in ["a", "b", "c"] {
        append(&*store, posted(&topic(name), "x")).await;
    }
    subscribe(&*store, &topic("d"), &callback("d")).await;
    let store = place.reopen(store).await;
    let [a, c, d] =
        [the(&*store, &topic("a")).await, the(&*store, &topic("c")).await, the(&*store, &topic("d")).await];
    let asked = [d.id, TopicId(7), a.id, c.id];
    assert_eq!(store.topics_of(&asked).await.unwrap(), [d, a, c]);
    assert_eq!(store.topics_of(&[]).await.unwrap(), []);
    assert_eq!(store.topics_of(&[TopicId(7)]).await.unwrap(), []);
}

async fn fetched_versions_move_the_latest_offset(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    append(&*store, posted(&url, "posted")).await;
    assert_eq!(the(&*store, &url).await.latest, Offset(0));
    append(&*store, NewNotification { kind: ContentKind::Fetched, ..posted(&url, "fetched") }).await;
    append(&*store, posted(&url, "posted")).await;
    let store = place.reopen(store).await;
    let topic = the(&*store, &url).await;
    assert_eq!((topic.first, topic.latest, topic.head), (Offset(1), Offset(2), Offset(3)));
    assert_eq!(topic.posted, Offset(3));
}

async fn concurrent_appends_get_dense_offsets_and_are_all_durable(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let appends = (0..256).map(|number| append(&*store, posted(&url, format!("body {number}"))));
    let places = join_all(appends).await;
    let offsets: BTreeSet<_> = places.iter().map(|(_, offset)| offset.0).collect();
    assert_eq!(offsets, (1..=256).collect());

    let store = place.reopen(store).await;
    assert_eq!(the(&*store, &url).await.head, Offset(256));
    for (number, (id, offset)) in places.into_iter().enumerate() {
        let read = read(&*store, id, offset).await.unwrap();
        assert_eq!(read.body, format!("body {number}"));
    }
}

async fn events_are_told_in_the_order_of_the_log_to_everybody(place: Place) {
    let store = place.open().await;
    let mut first = store.watch();
    let mut second = store.watch();
    let closed = store.watch();
    drop(closed);
    let url = topic("t");
    join_all((0..50).map(|number| append(&*store, posted(&url, number.to_string())))).await;
    for events in [told(&mut first), told(&mut second)] {
        let offsets = events.iter().map(|event| match event {
            StoreEvent::Appended { offset, kind: ContentKind::Posted, .. } => offset.0,
            other => panic!("{other:?}"),
        });
        assert!(offsets.eq(1..=50));
    }
    assert!(told(&mut store.watch()).is_empty());
}

async fn a_repetition_is_recognised_in_the_same_group(place: Place) {
    let store = place.open().await;
    let new = named(posted(&topic("t"), "x"), "key", at(1_000));
    let outcomes = join_all((0..32).map(|_| store.append(new.clone(), DAY))).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|outcome| is_new(**outcome)).count(), 1);
    assert!(outcomes.iter().all(|outcome| outcome.id().offset == 1));
    assert_eq!(the(&*store, &topic("t")).await.head, Offset(1));
}

async fn a_repetition_is_recognised_after_reopening(place: Place) {
    let store = place.open().await;
    let first = store.append(named(posted(&topic("t"), "x"), "key", at(1_000)), DAY).await.unwrap();
    let store = place.reopen(store).await;
    let again = store.append(named(posted(&topic("t"), "x"), "key", at(2_000)), DAY).await.unwrap();
    assert!(is_new(first) && !is_new(again));
    assert_eq!(first.id(), again.id());
}

async fn a_repetition_after_its_time_is_a_new_notification(place: Place) {
    let store = place.open().await;
    let remember = Duration::from_secs(10);
    let outcomes = [
        store.append(named(posted(&topic("t"), "x"), "key", at(1_000)), remember).await.unwrap(),
        store.append(named(posted(&topic("t"), "x"), "key", at(1_009)), remember).await.unwrap(),
        store.append(named(posted(&topic("t"), "x"), "key", at(1_010)), remember).await.unwrap(),
        store.append(named(posted(&topic("t"), "x"), "key", at(1_011)), remember).await.unwrap(),
    ];
    assert_eq!(outcomes.map(is_new), [true, false, true, false]);
    assert_eq!(outcomes.map(|outcome| outcome.id().offset), [1, 1, 2, 2]);
}

async fn the_same_key_on_another_topic_is_another_notification(place: Place) {
    let store = place.open().await;
    assert!(is_new(store.append(named(posted(&topic("a"), "x"), "key", at(1)), DAY).await.unwrap()));
    assert!(is_new(store.append(named(posted(&topic("b"), "x"), "key", at(1)), DAY).await.unwrap()));
}

async fn a_very_long_idempotency_key_is_taken(place: Place) {
    let store = place.open().await;
    let key = "k".repeat(100_000);
    assert!(is_new(store.append(named(posted(&topic("t"), "x"), &key, at(1)), DAY).await.unwrap()));
    assert!(!is_new(store.append(named(posted(&topic("t"), "x"), &key, at(1)), DAY).await.unwrap()));
}

fn change_notification(url: &TopicUrl, from: i64, until: i64) -> NewNotification {
    let interval = Some(Interval { from: at(from), until: at(until) });
    NewNotification { interval, ..posted(url, format!("{from} to {until}")) }
}

async fn cn008_a_chain_remembers_where_it_was_broken(place: Place) {
    let store = place.open().await;
    let (url, plain) = (topic("changes"), topic("plain"));
    for (from, until) in [(10, 20), (20, 30), (45, 50), (50, 60), (55, 70)] {
        append(&*store, change_notification(&url, from, until)).await;
        append(&*store, posted(&plain, "no interval")).await;
    }
    append(&*store, posted(&url, "no Change Notification")).await;
    let store = place.reopen(store).await;
    let breaks = vec![
        ChainBreak { offset: Offset(3), ended: at(30), started: at(45) },
        ChainBreak { offset: Offset(5), ended: at(60), started: at(55) },
    ];
    let expected = Chain { offset: Offset(5), until: at(70), broken: 2, breaks };
    let chain = async |url| store.chain(the(&*store, url).await.id).await.unwrap();
    assert_eq!(chain(&url).await, Some(expected));
    assert_eq!(chain(&plain).await, None);
}

async fn cn008_a_repeated_notification_does_not_break_the_chain(place: Place) {
    let store = place.open().await;
    let url = topic("changes");
    for (from, until) in [(10, 20), (10, 20), (20, 30)] {
        append(&*store, named(change_notification(&url, from, until), &from.to_string(), at(4_000_000_000)))
            .await;
    }
    let chain = store.chain(the(&*store, &url).await.id).await.unwrap().unwrap();
    assert_eq!((chain.offset, chain.broken), (Offset(2), 0));
}

async fn validators_are_found_again_after_reopening(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let (id, first) = append(&*store, posted(&url, "x")).await;
    assert_eq!(store.validators(id, first).await.unwrap(), None);
    let validators = Validators {
        url: "https://source.example/t?moved".into(),
        etag: Some(Bytes::from_static(b"W/\"\xFF\"")),
        last_modified: None,
        digest: [7; 32],
    };
    store.put_validators(id, first, validators.clone()).await.unwrap();
    let store = place.reopen(store).await;
    assert_eq!(store.validators(id, first).await.unwrap().as_ref(), Some(&validators));
    let fetched = NewNotification { validators: Some(validators.clone()), ..posted(&url, "y") };
    let (_, second) = append(&*store, fetched).await;
    let store = place.reopen(store).await;
    assert_eq!(
        store.validators(id, second).await.unwrap(),
        Some(validators),
        "written with the notification"
    );
    assert_eq!(store.validators(id, first).await.unwrap(), None, "they are about the newer one");
}

async fn the_first_since_a_moment_is_found_although_the_clock_was_set_back(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    subscribe(&*store, &url, &callback("d")).await;
    let mut id = TopicId(0);
    // Two hours of a clock that goes wrong, then the right time again.
    for seconds in [10, 20, 7_230, 7_240, 50, 60, 70] {
        let new = NewNotification { received_at: at(seconds), ..posted(&url, "x") };
        id = append(&*store, new).await.0;
    }
    append(&*store, NewNotification { received_at: at(100), ..posted(&topic("u"), "x") }).await;
    for (since, expected) in [(0, 1), (20, 2), (21, 3), (55, 3), (7_235, 4), (9_000, 8)] {
        assert_eq!(store.first_since(id, at(since)).await.unwrap(), Offset(expected), "{since}");
    }
    store.trim(at(0), within(0)).await.unwrap();
    assert_eq!(store.first_since(id, at(0)).await.unwrap(), Offset(7));
}

async fn the_time_of_a_notification_is_read_without_its_body(place: Place) {
    let store = place.open().await;
    let sent = NewNotification { received_at: at(1_700_000_000), ..posted(&topic("t"), vec![7; 200_000]) };
    let (id, offset) = append(&*store, sent).await;
    let store = place.reopen(store).await;
    let asked = vec![(id, offset), (id, offset.next()), (id, Offset(0)), (TopicId(7), offset)];
    assert_eq!(store.received_at(asked).await.unwrap(), [Some(at(1_700_000_000)), None, None, None]);
}
