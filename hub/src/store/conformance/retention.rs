//! Retention: what may be forgotten, and nothing else.

use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;

use super::{
    Place, UNCLAIMED, append, at, callback, gone, is_new, named, on_every_engine, posted, read, subscribe,
    the, topic, within,
};
use crate::store::{
    Checkpoint, ClockJump, FailureClass, NewNotification, Offset, Shard, Shares, Skip, Store, StoreEvent,
    TopicId, Trimmed, Uptime, Watermark,
};

on_every_engine!(
    old_notifications_are_forgotten,
    the_newest_of_each_topic_with_a_subscription_is_kept,
    what_nobody_is_subscribed_to_makes_room_first_and_grows_old,
    a_topic_that_nobody_needs_is_forgotten_and_comes_back_as_another,
    a_topic_that_somebody_needs_is_not_forgotten,
    the_largest_log_makes_room_first,
    large_bodies_are_forgotten_whole,
    more_than_one_slice_is_forgotten_at_once,
    trimming_an_empty_store_does_nothing,
    what_is_kept_survives_trimming_and_reopening,
    offsets_go_on_after_trimming,
    skips_go_with_their_notifications,
    expired_idempotency_keys_are_forgotten,
    idempotency_keys_outlive_their_notifications,
    when_the_hub_was_up_is_found_again_after_reopening,
);

const EVERYTHING: Shares = Shares { publishers: u64::MAX, strangers: u64::MAX };

/// What a notification of this topic weighs, with a body of so many bytes.
fn weight(name: &str, bytes: usize) -> u64 {
    posted(&topic(name), vec![7; bytes]).weight()
}

async fn append_at(store: &dyn Store, topic: &TopicUrl, seconds: i64, bytes: usize) -> TopicId {
    let new = NewNotification { received_at: at(seconds), ..posted(topic, vec![7; bytes]) };
    append(store, new).await.0
}

async fn held(store: &dyn Store, topic: TopicId, offsets: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    let mut held = Vec::new();
    for offset in offsets {
        if read(store, topic, Offset(offset)).await.is_some() {
            held.push(offset);
        }
    }
    held
}

async fn old_notifications_are_forgotten(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let mut id = TopicId(0);
    for second in 1..=5 {
        id = append_at(&*store, &url, second, 10).await;
    }
    let trimmed = store.trim(at(3), EVERYTHING).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 2, bytes: 2 * weight("t", 10), early: 0 });
    assert_eq!(the(&*store, &url).await.first, Offset(3));
    assert_eq!(held(&*store, id, 1..=5).await, [3, 4, 5]);
    let next = store.notification_from(id, Offset(1)).await.unwrap().unwrap();
    assert_eq!(next.offset, Offset(3));
    assert_eq!(store.trim(at(3), EVERYTHING).await.unwrap(), Trimmed::default());
}

async fn the_newest_of_each_topic_with_a_subscription_is_kept(place: Place) {
    let store = place.open().await;
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        subscribe(&*store, &topic(name), &callback("d")).await;
        append_at(&*store, &topic(name), 1, 10).await;
        ids.push(append_at(&*store, &topic(name), 2, 10).await);
    }
    let trimmed = store.trim(DateTime::now(), within(0)).await.unwrap();
    assert_eq!(trimmed.notifications, 2);
    for id in ids {
        assert_eq!(held(&*store, id, 1..=2).await, [2]);
    }
}

/// Whoever pings many addresses and ends their subscriptions must not fill the log for good.
async fn what_nobody_is_subscribed_to_makes_room_first_and_grows_old(place: Place) {
    let store = place.open().await;
    let (_, ended) = subscribe(&*store, &topic("left"), &callback("d")).await;
    subscribe(&*store, &topic("owed"), &callback("d")).await;
    let owed = append_at(&*store, &topic("owed"), 1, 500).await;
    append_at(&*store, &topic("owed"), 2, 500).await;
    let left = append_at(&*store, &topic("left"), 3, 100).await;
    let (large, small) = (weight("owed", 500), weight("left", 100));
    store.trim(at(0), within(2 * large)).await.unwrap();
    assert_eq!((held(&*store, owed, 1..=2).await, held(&*store, left, 1..=1).await), (vec![2], vec![1]));
    let shard = Shard::of(&callback("d"), store.shards());
    append_at(&*store, &topic("owed"), 4, 500).await;
    store.end(shard, UNCLAIMED, ended.topic, ended.id, gone(&ended)).await.unwrap();
    let store = place.reopen(store).await;
    let trimmed = store.trim(at(0), within(2 * large)).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 1, bytes: small, early: 1 });
    assert_eq!(held(&*store, owed, 2..=3).await, [2, 3]);

    append_at(&*store, &topic("left"), 5, 100).await;
    let trimmed = store.trim(at(6), EVERYTHING).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 2, bytes: large + small, early: 0 });
    assert_eq!(held(&*store, owed, 2..=3).await, [3]);
    assert_eq!(store.usage().log_bytes, large);
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn a_topic_that_nobody_needs_is_forgotten_and_comes_back_as_another(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let (shard, subscription) = subscribe(&*store, &url, &callback("d")).await;
    for second in 1..=3 {
        append_at(&*store, &url, second, 1).await;
    }
    let id = subscription.topic;
    let epoch = store.claim(shard).await.unwrap();
    let checkpoint = || {
        let done = Watermark { done: Offset(3), sweep: None };
        Checkpoint { watermarks: vec![(id, done)], ..Checkpoint::default() }
    };
    store.checkpoint(shard, epoch, checkpoint()).await.unwrap();
    store.end(shard, epoch, id, subscription.id, gone(&subscription)).await.unwrap();
    store.trim(at(4), EVERYTHING).await.unwrap();
    assert_eq!(store.topic(&url).await.unwrap(), None);
    assert_eq!(store.usage().topics, 0);
    // Whoever delivered does not know it yet.
    store.checkpoint(shard, epoch, checkpoint()).await.unwrap();
    let store = place.reopen(store).await;
    assert_eq!(store.topics(None, usize::MAX).await.unwrap(), []);
    let (again, offset) = append(&*store, posted(&url, "x")).await;
    assert_ne!(again, id, "what it was called before stays unique");
    assert_eq!(offset, Offset(4), "who has read the log up to 3 goes on behind that");
    let (_, subscription) = subscribe(&*store, &topic("other"), &callback("d")).await;
    assert_eq!(subscription.start, Offset(3));
    let store = place.reopen(store).await;
    assert_eq!(held(&*store, again, 1..=5).await, [4]);
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn a_topic_that_somebody_needs_is_not_forgotten(place: Place) {
    let store = place.open().await;
    let names = ["named", "paused", "subscribed"].map(topic);
    let day = Duration::from_secs(86_400);
    store.append(named(posted(&names[0], "x"), "key", DateTime::now()), day).await.unwrap();
    let paused = append_at(&*store, &names[1], 1, 1).await;
    store.pause(paused).await.unwrap();
    subscribe(&*store, &names[2], &callback("d")).await;
    let before = store.topics(None, usize::MAX).await.unwrap().len();
    let next_week = DateTime::from_system_time(SystemTime::now() + 7 * day);
    store.trim(next_week, EVERYTHING).await.unwrap();
    let store = place.reopen(store).await;
    assert_eq!((before, store.topics(None, usize::MAX).await.unwrap().len()), (3, 3));
    store.resume(paused).await.unwrap();
    store.trim(next_week, EVERYTHING).await.unwrap();
    assert_eq!(store.topic(&names[1]).await.unwrap(), None);
    for url in [&names[0], &names[2]] {
        assert!(store.topic(url).await.unwrap().is_some(), "{url:?}");
    }
}

async fn the_largest_log_makes_room_first(place: Place) {
    let store = place.open().await;
    for name in ["modest", "greedy"] {
        subscribe(&*store, &topic(name), &callback("d")).await;
    }
    let modest = append_at(&*store, &topic("modest"), 1, 100).await;
    append_at(&*store, &topic("modest"), 2, 100).await;
    let mut greedy = TopicId(0);
    for second in 3..=7 {
        greedy = append_at(&*store, &topic("greedy"), second, 100).await;
    }
    let each = weight("greedy", 100);
    let trimmed = store.trim(at(0), within(5 * each + each / 2)).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 2, bytes: 2 * each, early: 2 });
    assert_eq!(held(&*store, greedy, 1..=5).await, [3, 4, 5]);
    assert_eq!(held(&*store, modest, 1..=2).await, [1, 2]);
    // Of equals it is the one with the oldest notification, and what is old goes before anything else.
    store.trim(at(0), within(3 * each + each / 2)).await.unwrap();
    assert_eq!(held(&*store, greedy, 1..=5).await, [4, 5]);
    assert_eq!(held(&*store, modest, 1..=2).await, [2]);
    let trimmed = store.trim(at(7), within(2 * each)).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 1, bytes: each, early: 0 });
}

async fn large_bodies_are_forgotten_whole(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let id = append_at(&*store, &url, 1, 1_000_000).await;
    append_at(&*store, &url, 2, 10).await;
    assert_eq!(
        store.trim(at(2), EVERYTHING).await.unwrap(),
        Trimmed { notifications: 1, bytes: weight("t", 1_000_000), early: 0 }
    );
    let store = place.reopen(store).await;
    assert_eq!(held(&*store, id, 1..=2).await, [2]);
}

async fn more_than_one_slice_is_forgotten_at_once(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    subscribe(&*store, &url, &callback("d")).await;
    let appends = (1..=2_500).map(|second| append_at(&*store, &url, second, 1));
    futures_util::future::join_all(appends).await;
    let trimmed = store.trim(at(10_000), EVERYTHING).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 2_499, bytes: 2_499 * weight("t", 1), early: 0 });
    assert_eq!(the(&*store, &url).await.first, Offset(2_500));
}

async fn trimming_an_empty_store_does_nothing(place: Place) {
    let store = place.open().await;
    assert_eq!(store.trim(DateTime::now(), within(0)).await.unwrap(), Trimmed::default());
    subscribe(&*store, &topic("t"), &callback("d")).await;
    assert_eq!(store.trim(DateTime::now(), within(0)).await.unwrap(), Trimmed::default());
    assert_eq!(the(&*store, &topic("t")).await.first, Offset(1));
}

async fn what_is_kept_survives_trimming_and_reopening(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    for second in 1..=4 {
        append_at(&*store, &url, second, 100).await;
    }
    store.trim(at(2), EVERYTHING).await.unwrap();
    let store = place.reopen(store).await;
    let topic = the(&*store, &url).await;
    assert_eq!((topic.first, topic.head), (Offset(2), Offset(4)));
    let each = weight("t", 100);
    // The bytes and the age of what is left were kept too.
    assert_eq!(
        store.trim(at(3), EVERYTHING).await.unwrap(),
        Trimmed { notifications: 1, bytes: each, early: 0 }
    );
    assert_eq!(
        store.trim(at(0), within(2 * each - 1)).await.unwrap(),
        Trimmed { notifications: 1, bytes: each, early: 1 }
    );
    assert_eq!(held(&*store, topic.id, 1..=4).await, [4]);
}

async fn offsets_go_on_after_trimming(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    subscribe(&*store, &url, &callback("d")).await;
    for second in 1..=3 {
        append_at(&*store, &url, second, 1).await;
    }
    store.trim(DateTime::now(), within(0)).await.unwrap();
    let store = place.reopen(store).await;
    let mut events = store.watch();
    append_at(&*store, &url, 4, 1).await;
    assert!(matches!(events.try_recv(), Ok(StoreEvent::Appended { offset: Offset(4), .. })));
}

async fn skips_go_with_their_notifications(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    for second in 1..=3 {
        append_at(&*store, &url, second, 1).await;
    }
    let (shard, subscription) = subscribe(&*store, &url, &callback("d")).await;
    let epoch = store.claim(shard).await.unwrap();
    let skip = |offset| Skip {
        topic: subscription.topic,
        subscription: subscription.id,
        offset: Offset(offset),
        at: at(9),
        class: FailureClass::Trouble,
        status: None,
    };
    let checkpoint = Checkpoint { skips: (1..=3).map(skip).collect(), ..Checkpoint::default() };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    store.trim(at(3), EVERYTHING).await.unwrap();
    assert_eq!(store.skips(shard, None, 10).await.unwrap(), [skip(3)]);
}

async fn expired_idempotency_keys_are_forgotten(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let minute = Duration::from_secs(60);
    let now = DateTime::now();
    let past = at(1_000);
    store.append(named(posted(&url, "x"), "old", past), minute).await.unwrap();
    store.append(named(posted(&url, "x"), "new", now), minute).await.unwrap();
    // Seen long ago, then again just now: only the older sighting has expired.
    store.append(named(posted(&url, "x"), "both", past), minute).await.unwrap();
    store.append(named(posted(&url, "x"), "both", now), minute).await.unwrap();
    store.trim(at(0), EVERYTHING).await.unwrap();
    let store = place.reopen(store).await;
    // By their own times all of these would still be repetitions.
    let again = |key, at| store.append(named(posted(&url, "x"), key, at), minute);
    assert!(is_new(again("old", past).await.unwrap()));
    assert!(!is_new(again("new", now).await.unwrap()));
    assert!(!is_new(again("both", now).await.unwrap()));
}

async fn idempotency_keys_outlive_their_notifications(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let now = DateTime::now();
    let day = Duration::from_secs(86_400);
    let first = store.append(named(posted(&url, "x"), "key", now), day).await.unwrap();
    append(&*store, posted(&url, "y")).await;
    store.trim(at(0), within(0)).await.unwrap();
    assert!(read(&*store, TopicId(first.id().topic), Offset(1)).await.is_none());
    let again = store.append(named(posted(&url, "x"), "key", now), day).await.unwrap();
    assert!(!is_new(again));
    assert_eq!(again.id(), first.id());
}

async fn when_the_hub_was_up_is_found_again_after_reopening(place: Place) {
    let store = place.open().await;
    assert_eq!(store.uptime().await.unwrap(), None);
    let leap = ClockJump { length: Duration::from_secs(90), up_since: Duration::from_secs(7) };
    for uptime in [
        Uptime { seen: at(5), clock_jumps: Vec::new() },
        Uptime { seen: at(6), clock_jumps: vec![leap, leap] },
    ] {
        store.put_uptime(uptime.clone()).await.unwrap();
        assert_eq!(store.uptime().await.unwrap(), Some(uptime));
    }
    let store = place.reopen(store).await;
    assert_eq!(store.uptime().await.unwrap(), Some(Uptime { seen: at(6), clock_jumps: vec![leap, leap] }));
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}
