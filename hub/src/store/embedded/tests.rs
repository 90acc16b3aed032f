//! What the conformance suite cannot see from outside: groups, failed commits, and damaged records.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Secret, TopicUrl};

use super::engine::{Batch, Engine, Keys, Space};
use super::memory::{Ledger, Topics};
use super::reserve::DiskReserve;
#[cfg(feature = "sled")]
use super::sled::Sled;
use super::testing::{Fragile, damage, over};
use super::transaction::Transaction;
use super::{Embedded, SHARDS, SLICE, fjall::Fjall};
use crate::store::encoding::key;
use crate::store::encoding::layout::Body;
use crate::store::{
    self, Activation, Admin, Appended, Checkpoint, ContentKind, Ended, FailureClass, Intent, Keyring,
    Laggard, Log, NewNotification, NewRequest, NotificationLinks, Offset, Payer, PendingRequest, Progress,
    Requests, Shard, Shares, Skip, StoreError, StoreEvent, Subscriptions, TopicId,
};
use crate::store::{VerifiedSubscription, VerifiedUnsubscription};

const DAY: Duration = Duration::from_secs(86_400);

fn topic() -> TopicUrl {
    TopicUrl::parse("https://source.example/t").unwrap()
}

fn callback() -> CallbackUrl {
    CallbackUrl::parse("https://destination.example/d").unwrap()
}

fn posted(body: impl Into<Bytes>, key: Option<&str>) -> NewNotification {
    NewNotification {
        topic: topic(),
        content_type: Bytes::from_static(b"application/xml"),
        links: NotificationLinks::default(),
        body: body.into(),
        kind: ContentKind::Posted,
        payer: Payer::Publishers,
        idempotency_key: key.map(Into::into),
        interval: None,
        validators: None,
        received_at: DateTime::now(),
        trace: None,
    }
}

fn asked(intent: Intent) -> NewRequest {
    NewRequest {
        topic: topic(),
        callback: callback(),
        intent,
        verify_token: None,
        received_at: DateTime::now(),
        client: None,
    }
}

const SUBSCRIBE: Intent = Intent::Subscribe { lease: None, secret: None };

fn verified(request: &PendingRequest) -> VerifiedSubscription {
    VerifiedSubscription::assumed(request.clone(), DAY, DateTime::now())
}

/// The store notices by itself that its trouble is over.
async fn until_well(store: &Embedded) {
    while store.health().is_err() {
        tokio::task::yield_now().await;
    }
}

/// Applies commands to one group on an empty store.
fn in_one_group<T>(commands: impl FnOnce(&mut Transaction<'_>) -> T) -> (T, Vec<StoreEvent>) {
    let engine = Fragile::default();
    let topics = Topics::default();
    let keys = Keyring::none();
    let ledger = Ledger::load(&engine, &keys, SHARDS).unwrap();
    let mut transaction = Transaction::new(&engine, &topics, &ledger, &keys, SHARDS);
    let outcome = commands(&mut transaction);
    (outcome, transaction.finish().1.events)
}

#[test]
fn a_repetition_is_recognised_within_a_group() {
    let (outcomes, events) = in_one_group(|group| {
        [posted("1", Some("a")), posted("1", Some("a")), posted("2", Some("a")), posted("3", Some("b"))]
            .map(|new| group.append(new, DAY).unwrap())
    });
    let expected = matches!(
        outcomes,
        [Appended::New(_), Appended::Repeated(_), Appended::KeyReused(_), Appended::New(_)]
    );
    assert!(expected, "{outcomes:?}");
    assert_eq!(outcomes.map(|outcome| outcome.id().offset), [1, 1, 1, 2]);
    assert_eq!(events.len(), 2);
}

#[test]
fn a_subscription_begins_after_the_notifications_of_its_group() {
    let ((), events) = in_one_group(|group| {
        group.append(posted("1", None), DAY).unwrap();
        let request = group.put_request(asked(SUBSCRIBE));
        group.activate(&verified(&request)).unwrap();
        group.append(posted("2", None), DAY).unwrap();
    });
    let [
        StoreEvent::Appended { .. },
        StoreEvent::Subscribed { slot, topic, .. },
        StoreEvent::Appended { offset, .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((slot.start, topic.head, *offset), (Offset(1), Offset(1), Offset(2)));
}

#[test]
fn the_newest_request_of_a_group_counts_d17() {
    let ((first, second), events) = in_one_group(|group| {
        let hello = group.put_request(asked(SUBSCRIBE));
        let goodbye = group.put_request(asked(Intent::Unsubscribe));
        let second = group.deactivate(&VerifiedUnsubscription::assumed(goodbye)).unwrap();
        (group.activate(&verified(&hello)).unwrap(), second)
    });
    assert!(matches!((first, second), (Activation::Superseded, Activation::Done)));
    assert!(events.is_empty());
}

#[test]
fn a_subscription_that_ended_in_the_group_gets_no_laggard() {
    in_one_group(|group| {
        let request = group.put_request(asked(SUBSCRIBE));
        let verified = verified(&request);
        group.activate(&verified).unwrap();
        let shard = Shard::of(&callback(), SHARDS);
        let epoch = group.claim(shard);
        let (topic, id) = group.newest_subscription();
        let laggard = Laggard {
            topic,
            subscription: id,
            cursor: Offset(0),
            streak_failures: 1,
            next_attempt: DateTime::now(),
            pause: Duration::ZERO,
            failing: None,
            class: FailureClass::Trouble,
        };
        let progress = Checkpoint { laggards: vec![laggard], ..Checkpoint::default() };
        group.checkpoint(shard, epoch, &progress, 1).unwrap();
        assert!(group.keeps_laggard(shard, topic, id));
        let lease_end = DateTime::from_system_time(verified.asked_at().to_system_time() + verified.lease());
        group.end(shard, epoch, topic, id, Ended::Gone { lease_end }, DateTime::now()).unwrap();
        group.checkpoint(shard, epoch, &progress, 1).unwrap();
        assert!(!group.keeps_laggard(shard, topic, id));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_during_a_commit_shares_the_next_one() {
    let engine = Fragile::default();
    let store = over(&engine);
    let before = engine.commits();
    // Fewer than the channel operations that tokio grants a task at once.
    let mut appends: Vec<_> = (0..100).map(|_| store.append(posted("x", None), DAY)).collect();
    let held = engine.hold();
    assert!((&mut appends[0]).now_or_never().is_none());
    while engine.commits() == before {
        std::thread::yield_now();
    }
    for append in &mut appends[1..] {
        assert!(append.now_or_never().is_none());
    }
    drop(held);
    let outcomes = join_all(appends).await;
    assert_eq!(engine.commits(), before + 2);
    let offsets = outcomes.into_iter().map(|outcome| outcome.unwrap().id().offset);
    assert!(offsets.eq(1..=100));
}

#[tokio::test]
async fn of_what_strangers_have_the_hub_keep_each_commit_takes_little_so_that_a_post_waits_for_little() {
    let engine = Fragile::default();
    let store = over(&engine);
    let large = Bytes::from(vec![b'x'; super::STRANGE_BYTES as usize]);
    let fetched = |number: u32| NewNotification {
        topic: TopicUrl::parse(&format!("https://blog.example/{number}")).unwrap(),
        payer: Payer::Strangers(None),
        ..posted(large.clone(), None)
    };
    let before = engine.commits();
    let all = join_all((0..8).map(|number| store.append(fetched(number), DAY)));
    let post = async {
        store.append(posted("news", None), DAY).await.unwrap();
        engine.commits() - before
    };
    let (all, commits) = tokio::join!(all, post);
    assert!(all.iter().all(Result::is_ok));
    assert!(commits <= 3, "the post came with commit {commits}");
    assert!(engine.commits() - before >= 8, "each takes one of these");
}

#[tokio::test]
async fn a_failed_commit_leaves_memory_as_the_disk_is() {
    let engine = Fragile::default();
    let store = over(&engine);
    store.append(posted("1", Some("first")), DAY).await.unwrap();
    let waiting = store.put_request(asked(SUBSCRIBE)).await.unwrap();
    let epoch = store.claim(Shard(0)).await.unwrap();
    let mut events = store.watch();

    engine.set_full(true);
    let failed = store.append(posted("2", Some("second")), DAY).await;
    assert!(matches!(failed, Err(StoreError::Write(_))), "{failed:?}");
    assert!(matches!(store.health(), Err(StoreError::Write(_))), "the operator can see it");
    assert!(store.put_request(asked(Intent::Unsubscribe)).await.is_err());
    assert!(store.activate(verified(&waiting)).await.is_err());
    assert!(store.claim(Shard(0)).await.is_err());
    let known = store.topic(&topic()).await.unwrap().unwrap();
    assert_eq!(known.head, Offset(1));
    assert!(store.notification_from(known.id, Offset(2)).await.unwrap().is_none());
    assert!(store.find_subscription(&topic(), &callback()).await.unwrap().is_none());
    assert!(events.try_recv().is_err());

    engine.set_full(false);
    until_well(&store).await;
    let again = store.append(posted("2", Some("second")), DAY).await.unwrap();
    assert!(matches!(again, Appended::New(id) if id.offset == 2), "{again:?}");
    store.checkpoint(Shard(0), epoch, Checkpoint::default()).await.unwrap();
    assert!(matches!(store.activate(verified(&waiting)).await.unwrap(), Activation::Done));
    assert!(matches!(events.try_recv(), Ok(StoreEvent::Appended { offset: Offset(2), .. })));
}

#[tokio::test]
async fn the_writer_answers_where_the_disk_refuses_writes_and_not_while_one_hangs() {
    let engine = Fragile::default();
    let store = over(&engine);
    engine.set_full(true);
    assert!(matches!(store.append(posted("1", None), DAY).await, Err(StoreError::Write(_))));
    store.answers().await.unwrap();
    engine.set_full(false);
    until_well(&store).await;

    let before = engine.commits();
    let held = engine.hold();
    let mut append = store.append(posted("2", None), DAY);
    assert!((&mut append).now_or_never().is_none());
    while engine.commits() == before {
        std::thread::yield_now();
    }
    let mut answer = store.answers();
    assert!((&mut answer).now_or_never().is_none());
    drop(held);
    answer.await.unwrap();
    append.await.unwrap();
}

#[tokio::test]
async fn memory_follows_a_commit_that_failed_and_turns_out_to_be_on_the_disk() {
    let engine = Fragile::default();
    let store = over(&engine);
    let waiting = store.put_request(asked(SUBSCRIBE)).await.unwrap();
    let mut events = store.watch();
    engine.keep_failed();
    engine.set_full(true);
    let failed = store.append(posted("1", Some("first")), DAY).await;
    assert!(matches!(failed, Err(StoreError::Write(_))), "{failed:?}");
    engine.set_full(false);
    until_well(&store).await;
    assert!(matches!(events.try_recv(), Ok(StoreEvent::Appended { offset: Offset(1), .. })));
    let again = store.append(posted("1", Some("first")), DAY).await.unwrap();
    assert!(matches!(again, Appended::Repeated(id) if id.offset == 1), "{again:?}");

    engine.set_full(true);
    assert!(store.activate(verified(&waiting)).await.is_err());
    engine.set_full(false);
    until_well(&store).await;
    assert!(matches!(store.activate(verified(&waiting)).await.unwrap(), Activation::Superseded));
    let subscription = store.find_subscription(&topic(), &callback()).await.unwrap().unwrap();
    assert_eq!(subscription.start, Offset(1));
    let slots = store.load_shard(Shard::of(&callback(), SHARDS)).await.unwrap().slots;
    assert_eq!(slots.len(), 1, "what the opening read of the shard is no longer true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_writer_has_died_says_so_to_whoever_waits_for_it() {
    let engine = Fragile::default();
    let store = over(&engine);
    store.append(posted("1", None), DAY).await.unwrap();
    assert!(store.broken().now_or_never().is_none());
    engine.panic_next();
    let lost = store.append(posted("2", None), DAY).await;
    assert!(matches!(lost, Err(StoreError::Closed)), "{lost:?}");
    store.broken().await;
    assert!(matches!(store.health(), Err(StoreError::Closed)));
}

#[tokio::test]
async fn a_disk_that_is_nearly_full_takes_nothing_new_and_keeps_the_progress_of_delivery() {
    let (engine, free) = (Fragile::default(), Arc::new(AtomicU64::new(1_000)));
    let disk = Arc::clone(&free);
    let room = DiskReserve::new(move || Some(disk.load(Ordering::SeqCst)), 100);
    let store = Embedded::over(Box::new(engine), Keyring::none(), None, room).unwrap();
    let epoch = store.claim(Shard(0)).await.unwrap();
    store.append(posted("1", None), DAY).await.unwrap();
    free.store(99, Ordering::SeqCst);
    let refused = loop {
        // What was looked at a moment ago is not looked at again.
        if let Err(error) = store.append(posted("2", None), DAY).await {
            break error;
        }
    };
    assert!(matches!(refused, StoreError::Full { free: 99, reserve: 100 }), "{refused:?}");
    assert!(matches!(store.health(), Err(StoreError::Full { .. })));
    assert!(matches!(store.put_request(asked(SUBSCRIBE)).await, Err(StoreError::Full { .. })));
    store.checkpoint(Shard(0), epoch, Checkpoint::default()).await.unwrap();
    store.trim(DateTime::now(), Shares::of(0)).await.unwrap();
    free.store(100, Ordering::SeqCst);
    until_well(&store).await;
    store.append(posted("3", None), DAY).await.unwrap();
}

#[test]
fn the_disk_is_not_asked_before_each_command_unless_much_is_written() {
    let looks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&looks);
    let mut room = DiskReserve::new(move || Some(1_000 + counted.fetch_add(1, Ordering::SeqCst)), 80);
    for _ in 0..10_000 {
        assert!(room.check(0).is_none());
    }
    let few = looks.load(Ordering::SeqCst);
    assert!((1..10_000).contains(&few), "it was asked {few} times");
    for more in 1..=3 {
        assert!(room.check(10).is_none());
        assert_eq!(looks.load(Ordering::SeqCst), few + more);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_may_wait_is_refused_and_progress_is_not() {
    let engine = Fragile::default();
    let store = over(&engine);
    let epoch = store.claim(Shard(0)).await.unwrap();
    let held = engine.hold();
    let large = Bytes::from(vec![0; 30_000_000]);
    let mut waiting: Vec<_> = (0..4).map(|_| store.append(posted(large.clone(), None), DAY)).collect();
    let mut refused = 0;
    for append in &mut waiting {
        refused += usize::from(matches!(append.now_or_never(), Some(Err(StoreError::Busy))));
    }
    assert!((1..=2).contains(&refused), "{refused} refused; the writer may have taken one already");
    let mut progress = store.checkpoint(Shard(0), epoch, Checkpoint::default());
    assert!((&mut progress).now_or_never().is_none());
    drop(held);
    progress.await.unwrap();
}

#[tokio::test]
async fn a_command_that_fails_takes_nobody_of_its_group_along() {
    let engine = Fragile::default();
    let store = over(&engine);
    let held = engine.hold();
    let mut first = store.append(posted("1", None), DAY);
    assert!((&mut first).now_or_never().is_none());
    let (_, refused, second) = {
        let mut refused = store.checkpoint(Shard(0), crate::store::Epoch(9), Checkpoint::default());
        let mut second = store.append(posted("2", None), DAY);
        assert!((&mut refused).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(held);
        tokio::join!(first, refused, second)
    };
    assert!(matches!(refused, Err(StoreError::Fenced)));
    assert_eq!(second.unwrap().id().offset, 2);
}

#[tokio::test]
async fn retention_leaves_nothing_behind() {
    let engine = Fragile::default();
    let store = over(&engine);
    let long_ago = DateTime::from_unix_millis(0).unwrap();
    let mut weight = 0;
    for body in [vec![0; 300_000], vec![1; 10], vec![2; 10]] {
        let new = NewNotification { received_at: long_ago, ..posted(body, Some("key")) };
        weight += new.weight();
        store.append(new, Duration::ZERO).await.unwrap();
    }
    let trimmed = store.trim(DateTime::now(), Shares::of(u64::MAX)).await.unwrap();
    assert_eq!((trimmed.notifications, trimmed.bytes), (3, weight));
    for space in Space::ALL.into_iter().filter(|space| *space != Space::Meta) {
        assert_eq!(engine.scan(space, &Keys::all()).count(), 0, "{space:?}");
    }
}

#[tokio::test]
async fn each_slice_of_retention_begins_where_the_one_before_it_ended() {
    let engine = Fragile::default();
    let store = over(&engine);
    let long_ago = DateTime::from_unix_millis(0).unwrap();
    for number in 0..3 * SLICE {
        let new = NewNotification { received_at: long_ago, ..posted("", Some(&number.to_string())) };
        store.append(new, Duration::ZERO).await.unwrap();
    }
    store.trim(long_ago, Shares::of(u64::MAX)).await.unwrap();
    assert_eq!(engine.scan(Space::Idempotency, &Keys::all()).count(), 0);
    let scans = engine.scans(Space::IdempotencyExpiry);
    assert_eq!(scans.len(), 4);
    let removed = |keys: &[Keys]| keys.is_sorted_by(|one, next| one.from < next.from);
    assert!(removed(&scans), "none walks over what is gone: {scans:?}");
}

#[tokio::test]
async fn what_was_skipped_in_many_logs_is_forgotten_in_one_command() {
    let engine = Fragile::default();
    let store = over(&engine);
    let (old, new) = (DateTime::from_unix_millis(1_000).unwrap(), DateTime::from_unix_millis(2_000).unwrap());
    let mut skips = Vec::new();
    for number in 0..SLICE {
        let url = TopicUrl::parse(&format!("https://source.example/{number}")).unwrap();
        let (_, subscription) = store::subscribe(&store, &url, &callback()).await;
        for received_at in [old, new] {
            let new = NewNotification { received_at, ..store::posted(&url, "") };
            store.append(new, Duration::ZERO).await.unwrap();
        }
        skips.push(Skip {
            topic: subscription.topic,
            subscription: subscription.id,
            offset: Offset(1),
            at: new,
            class: FailureClass::Trouble,
            status: None,
        });
    }
    let shard = Shard::of(&callback(), SHARDS);
    let epoch = store.claim(shard).await.unwrap();
    store.checkpoint(shard, epoch, Checkpoint { skips, ..Checkpoint::default() }).await.unwrap();
    let before = engine.commits();
    assert_eq!(store.trim(new, Shares::of(u64::MAX)).await.unwrap().notifications, SLICE as u64);
    assert_eq!(engine.scan(Space::Skips, &Keys::all()).count(), 0);
    assert_eq!(engine.commits() - before, 2, "one for the logs, one for what was skipped");
}

#[tokio::test]
async fn a_topic_is_forgotten_only_with_the_last_of_what_was_skipped_of_it() {
    let engine = Fragile::default();
    let store = over(&engine);
    let (shard, subscription) = store::subscribe(&store, &topic(), &callback()).await;
    let epoch = store.claim(shard).await.unwrap();
    let skip = |offset| Skip {
        topic: subscription.topic,
        subscription: subscription.id,
        offset: Offset(offset),
        at: subscription.lease_end,
        class: FailureClass::Trouble,
        status: None,
    };
    let skips = (1..=SLICE as u64 + 1).map(skip).collect();
    store.checkpoint(shard, epoch, Checkpoint { skips, ..Checkpoint::default() }).await.unwrap();
    let gone = Ended::Gone { lease_end: subscription.lease_end };
    store.end(shard, epoch, subscription.topic, subscription.id, gone).await.unwrap();
    for (left, topics) in [(1, 1), (0, 0)] {
        store.trim(DateTime::now(), Shares::of(u64::MAX)).await.unwrap();
        assert_eq!(engine.scan(Space::Skips, &Keys::all()).count(), left);
        assert_eq!(store.topics(None, usize::MAX).await.unwrap().len(), topics);
    }
}

#[tokio::test]
async fn large_notifications_are_forgotten_in_smaller_slices() {
    let engine = Fragile::default();
    let store = over(&engine);
    for _ in 0..200 {
        store.append(posted(vec![1; Body::PART], None), DAY).await.unwrap();
    }
    let before = engine.commits();
    let trimmed = store.trim(DateTime::from_unix_millis(0).unwrap(), Shares::of(0)).await.unwrap();
    assert_eq!(trimmed.notifications, 200);
    assert!(engine.commits() - before >= 3, "12.5 MiB were read in one command");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_ask_at_once_for_what_is_too_large_to_be_kept_ready_share_one_copy() {
    const PARTS: usize = 17 * 16;
    let engine = Fragile::default();
    let store = over(&engine);
    let id = store.append(posted(vec![1; PARTS * Body::PART], None), DAY).await.unwrap().id();
    let asked = (0..100).map(|_| store.notification_from(TopicId(id.topic), Offset(id.offset)));
    let found: Vec<_> = join_all(asked).await.into_iter().map(|found| found.unwrap().unwrap()).collect();
    assert!(found.iter().all(|one| Arc::ptr_eq(one, &found[0])));
    assert_eq!(engine.parts_read(), PARTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_wait_for_what_cannot_be_read_share_one_failure_and_the_next_one_reads_anew() {
    let engine = Fragile::default();
    let id = over(&engine).append(posted(vec![1; 3 * Body::PART], None), DAY).await.unwrap().id();
    let (topic, offset) = (TopicId(id.topic), Offset(id.offset));
    let last = key::body(topic, offset, 2);
    let part = engine.get(Space::Bodies, &last).unwrap().unwrap().to_vec();
    let change = |change: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::default();
        change(&mut batch);
        engine.commit(&batch).unwrap();
    };
    change(&|batch| batch.remove(Space::Bodies, last.clone()));

    let store = over(&engine);
    let before = engine.parts_read();
    let read_lock = store.shared.lock_to_read(topic, offset).await;
    // Fewer than the operations that tokio grants a task at once.
    let mut asked: Vec<_> = (0..50).map(|_| store.notification_from(topic, offset)).collect();
    for one in &mut asked {
        assert!(one.now_or_never().is_none(), "it waits");
    }
    drop(read_lock);
    for outcome in join_all(asked).await {
        is_damage_of(outcome, "log");
    }
    assert_eq!(engine.parts_read() - before, 3);

    change(&|batch| batch.put(Space::Bodies, last.clone(), part.clone()));
    assert!(store.notification_from(topic, offset).await.unwrap().is_some());
}

/// Opens the engine below the store that is in `directory`.
type OpenEngine = fn(&Path) -> Box<dyn Engine>;

const ENGINES: &[(crate::store::Engine, OpenEngine)] = &[
    (crate::store::Engine::Fjall, |directory| Box::new(Fjall::open(&directory.join("fjall")).unwrap())),
    #[cfg(feature = "sled")]
    (crate::store::Engine::Sled, |directory| Box::new(Sled::open(&directory.join("sled")).unwrap())),
];

fn is_damage_of<T: std::fmt::Debug>(outcome: Result<T, StoreError>, space: &str) {
    match outcome {
        Err(StoreError::Damaged { space: named, .. }) => assert_eq!(named, space),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_damaged_record_is_named() {
    for &(engine, open_engine) in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let store = super::open(engine, directory.path(), Keyring::none(), 0).unwrap();
        let id = store.append(posted(vec![1; 70_000], None), DAY).await.unwrap().id();
        let request = store.put_request(asked(SUBSCRIBE)).await.unwrap();
        store.activate(verified(&request)).await.unwrap();
        store.put_request(asked(SUBSCRIBE)).await.unwrap();
        drop(store);

        let raw = open_engine(directory.path());
        damage(raw.as_ref(), Space::Log);
        damage(raw.as_ref(), Space::Subscriptions);
        drop(raw);
        let store = super::open(engine, directory.path(), Keyring::none(), 0).unwrap();
        is_damage_of(store.notification_from(TopicId(id.topic), Offset(1)).await, "log");
        is_damage_of(store.find_subscription(&topic(), &callback()).await, "subscriptions");
        is_damage_of(store.load_shard(Shard::of(&callback(), SHARDS)).await, "subscriptions");
        drop(store);

        for space in [Space::Requests, Space::Topics, Space::Meta] {
            damage(open_engine(directory.path()).as_ref(), space);
            is_damage_of(super::open(engine, directory.path(), Keyring::none(), 0), space.name());
            // The second flip repairs the first.
            damage(open_engine(directory.path()).as_ref(), space);
        }
    }
}

#[tokio::test]
async fn retention_goes_on_over_a_notification_that_cannot_be_read() {
    for &(engine, open_engine) in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let store = super::open(engine, directory.path(), Keyring::none(), 0).unwrap();
        let other: TopicUrl = "https://source.example/other".parse().unwrap();
        for topic in [topic(), other.clone()] {
            let request = store.put_request(NewRequest { topic, ..asked(SUBSCRIBE) }).await.unwrap();
            store.activate(verified(&request)).await.unwrap();
        }
        for _ in 0..3 {
            store.append(posted(vec![1; 70_000], None), DAY).await.unwrap();
            store
                .append(NewNotification { topic: other.clone(), ..posted(vec![2; 9], None) }, DAY)
                .await
                .unwrap();
        }
        drop(store);
        damage(open_engine(directory.path()).as_ref(), Space::Log);
        let store = super::open(engine, directory.path(), Keyring::none(), 0).unwrap();
        let trimmed = store
            .trim(DateTime::from_unix_millis(i64::from(u32::MAX) * 1000).unwrap(), Shares::of(u64::MAX))
            .await;
        assert_eq!(trimmed.unwrap().notifications, 4);
        assert!(store.topics(None, usize::MAX).await.unwrap().iter().all(|topic| topic.first == topic.head));
        let other = NewNotification { topic: other, ..posted(vec![2; 9], None) };
        assert_eq!(store.usage().log_bytes, posted(vec![1; 70_000], None).weight() + other.weight());
        drop(store);
        assert_eq!(super::check(engine, directory.path(), &Keyring::none()).unwrap().faults, [""; 0]);
    }
}

#[tokio::test]
async fn a_missing_part_of_a_body_is_damage() {
    for &(engine, open_engine) in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let store = super::open(engine, directory.path(), Keyring::none(), 0).unwrap();
        let id = store.append(posted(vec![1; 200_000], None), DAY).await.unwrap().id();
        drop(store);
        let raw = open_engine(directory.path());
        let mut batch = Batch::default();
        batch.remove(Space::Bodies, key::body(TopicId(id.topic), Offset(id.offset), 2));
        raw.commit(&batch).unwrap();
        drop(raw);
        let store = super::open(engine, directory.path(), Keyring::none(), 0).unwrap();
        is_damage_of(store.notification_from(TopicId(id.topic), Offset(1)).await, "log");
    }
}

#[test]
fn engines_keep_spaces_apart_and_keys_in_order() {
    for (_, open_engine) in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let engine = open_engine(directory.path());
        let mut batch = Batch::default();
        for space in Space::ALL {
            for key in [&[0xFF, 0xFF][..], &[1, 2], &[1], &[1, 0xFF], &[2]] {
                batch.put(space, key.to_vec(), vec![space.tag()]);
            }
        }
        engine.commit(&batch).unwrap();
        for space in Space::ALL {
            let keys = |range: Keys| -> Vec<Vec<u8>> {
                engine
                    .scan(space, &range)
                    .map(Result::unwrap)
                    .inspect(|(_, value)| assert_eq!(value[..], [space.tag()]))
                    .map(|(key, _)| key.to_vec())
                    .collect()
            };
            assert_eq!(keys(Keys::all()), [&[1][..], &[1, 2], &[1, 0xFF], &[2], &[0xFF, 0xFF]]);
            assert_eq!(keys(Keys::prefix(vec![1])), [&[1][..], &[1, 2], &[1, 0xFF]]);
            assert_eq!(keys(Keys::between(vec![1, 2], vec![2])), [[1, 2], [1, 0xFF]]);
            assert!(keys(Keys::between(vec![2], vec![1])).is_empty());
            let backwards = engine.scan(space, &Keys::prefix(vec![1])).rev();
            let backwards: Vec<_> = backwards.map(|record| record.unwrap().0.to_vec()).collect();
            assert_eq!(backwards, [&[1, 0xFF][..], &[1, 2], &[1]]);
        }
        assert!(engine.disk_size().unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_that_breaks_off_anywhere_is_finished_by_the_next_one() {
    let (old, new) = (Keyring::generate(), Keyring::generate());
    let both = Keyring::parse(&format!("{new} {old}")).unwrap();
    for survived in 0..6 {
        let engine = Fragile::default();
        let keys = Keyring::parse(&old).unwrap();
        let store =
            Embedded::over(Box::new(engine.clone()), keys, None, DiskReserve::new(|| None, 0)).unwrap();
        let requests = (0..super::RESEALED + 10).map(|number| store.put_request(nth_request(number)));
        assert!(join_all(requests).await.iter().all(Result::is_ok));

        engine.break_after(survived);
        let broken = store.rotate_secrets(both.clone()).await;
        drop(store);
        engine.set_full(false);
        // A new life, which needs both keys as long as the rotation has not said that it is done.
        let store =
            Embedded::over(Box::new(engine.clone()), both.clone(), None, DiskReserve::new(|| None, 0))
                .unwrap();
        assert_eq!(
            store.requests(&store.all_shards()).await.unwrap().len(),
            super::RESEALED + 10,
            "after {survived} commits"
        );
        store.rotate_secrets(both.clone()).await.unwrap();
        drop(store);
        let store = Embedded::over(
            Box::new(engine),
            Keyring::parse(&new).unwrap(),
            None,
            DiskReserve::new(|| None, 0),
        )
        .unwrap();
        assert_eq!(
            store.requests(&store.all_shards()).await.unwrap().len(),
            super::RESEALED + 10,
            "{broken:?}"
        );
    }
}

fn nth_request(number: usize) -> NewRequest {
    let secret = Secret::new(format!("secret {number}")).unwrap();
    let callback = format!("https://destination.example/{number}").parse().unwrap();
    NewRequest { callback, ..asked(Intent::Subscribe { lease: None, secret: Some(secret) }) }
}

/// Fills half of a notification's body in the journal with zeros, as a power cut can.
fn tear(journal: &Path, body: &[u8]) {
    let mut bytes = std::fs::read(journal).unwrap();
    let middle = &body[body.len() / 2..body.len() / 2 + 64];
    let at = bytes
        .windows(middle.len())
        .position(|found| found == middle)
        .expect("random bytes are kept as they are");
    bytes[at..at + middle.len()].fill(0);
    std::fs::write(journal, bytes).unwrap();
}

#[tokio::test]
async fn a_torn_last_batch_is_dropped_and_any_other_damage_is_refused() {
    for torn in [1, 0] {
        let folder = tempfile::tempdir().unwrap();
        let open = || super::open(crate::store::Engine::Fjall, folder.path(), Keyring::none(), 0);
        let bodies: [Vec<u8>; 2] = std::array::from_fn(|_| (0..20_000).map(|_| fastrand::u8(..)).collect());
        let store = open().unwrap();
        for body in &bodies {
            store.append(posted(body.clone(), None), DAY).await.unwrap();
        }
        drop(store);
        tear(&folder.path().join("fjall/0.jnl"), &bodies[torn]);
        match open() {
            Ok(store) => {
                assert_eq!(torn, 1, "a batch in the middle was dropped");
                let known = store.topic(&topic()).await.unwrap().unwrap();
                assert_eq!(known.head, Offset(1));
                let first = store.notification_from(known.id, Offset(1)).await.unwrap().unwrap();
                assert_eq!(first.body, bodies[0]);
            }
            Err(error) => {
                assert_eq!(torn, 0, "{error}");
                let before = std::fs::read(folder.path().join("fjall/0.jnl")).unwrap();
                assert!(open().is_err());
                assert_eq!(before, std::fs::read(folder.path().join("fjall/0.jnl")).unwrap());
            }
        }
    }
}
