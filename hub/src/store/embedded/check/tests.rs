//! Stores that are whole, and stores of which something was changed or taken.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use tokio::runtime;

use super::super::Embedded;
use super::super::engine::{Batch, Engine as _, Keys};
use super::super::reserve::DiskReserve;
use super::super::testing::Fragile;
use super::*;
use crate::store::VerifiedSubscription;
use crate::store::encoding::layout::{Address, TopicState};
use crate::store::encoding::{codec, key};
use crate::store::{
    Checkpoint, ContentKind, FailureClass, Fetches, Intent, Laggard, Log, NewNotification, NewRequest,
    NotificationLinks, Offset, Payer, PingClient, Progress, Requests, Shard, Subscription, Subscriptions,
    Watermark,
};
use crate::trace_context::TraceContext;

const HOUR: Duration = Duration::from_secs(3_600);

pub(in crate::store::embedded) fn topic() -> TopicUrl {
    "https://source.example/t".parse().unwrap()
}

pub(in crate::store::embedded) fn callback(number: usize) -> CallbackUrl {
    format!("https://d{number}.example/").parse().unwrap()
}

pub(in crate::store::embedded) fn over(engine: &Fragile) -> Embedded {
    Embedded::over(Box::new(engine.clone()), Keyring::none(), None, DiskReserve::new(|| None, 0)).unwrap()
}

async fn append(store: &Embedded, body: Vec<u8>) {
    let notification = NewNotification {
        topic: topic(),
        content_type: Bytes::from_static(b"text/plain"),
        links: NotificationLinks::default(),
        body: body.into(),
        kind: ContentKind::Posted,
        payer: Payer::Publishers,
        idempotency_key: Some("key".into()),
        interval: None,
        validators: None,
        received_at: DateTime::now(),
        trace: Some(TraceContext::begin()),
    };
    store.append(NewNotification { idempotency_key: None, ..notification }, HOUR).await.unwrap();
}

pub(in crate::store::embedded) async fn subscribe(store: &Embedded, number: usize) -> Subscription {
    let intent = Intent::Subscribe { lease: None, secret: None };
    let request = NewRequest {
        topic: topic(),
        callback: callback(number),
        intent,
        verify_token: None,
        received_at: DateTime::now(),
        client: None,
    };
    let request = store.put_request(request).await.unwrap();
    store.activate(VerifiedSubscription::assumed(request, HOUR, DateTime::now())).await.unwrap();
    store.find_subscription(&topic(), &callback(number)).await.unwrap().unwrap()
}

/// A store in which something of nearly everything is.
pub(in crate::store::embedded) async fn filled() -> Fragile {
    let engine = Fragile::default();
    let store = over(&engine);
    for number in 0..3 {
        subscribe(&store, number).await;
    }
    for length in [10, 200_000, 20, 30] {
        append(&store, vec![b'x'; length]).await;
    }
    let request = NewRequest {
        topic: topic(),
        callback: callback(9),
        intent: Intent::Unsubscribe,
        verify_token: None,
        received_at: DateTime::now(),
        client: None,
    };
    store.put_request(request).await.unwrap();
    store.put_ping(topic(), Some(TraceContext::begin()), PingClient::default()).await.unwrap();
    let (shard, of) = place(&store, 0).await;
    let epoch = store.claim(shard).await.unwrap();
    let laggard = Laggard {
        topic: of.topic,
        subscription: of.id,
        cursor: Offset(1),
        streak_failures: 1,
        next_attempt: DateTime::now(),
        pause: Duration::ZERO,
        failing: None,
        class: FailureClass::Refused,
    };
    let watermarks = vec![(of.topic, Watermark { done: Offset(4), sweep: None })];
    let checkpoint = Checkpoint { watermarks, laggards: vec![laggard], ..Checkpoint::default() };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    drop(store);
    engine
}

/// Where a subscription is.
async fn place(store: &Embedded, number: usize) -> (Shard, Subscription) {
    let of = store.find_subscription(&topic(), &callback(number)).await.unwrap().unwrap();
    for shard in (0..store.shards()).map(Shard) {
        if store.subscription(shard, of.topic, of.id).await.unwrap().is_some() {
            return (shard, of);
        }
    }
    unreachable!("it is in a shard")
}

fn faults(engine: &Fragile) -> Vec<Fault> {
    inspect(engine, &Keyring::none()).unwrap().1
}

/// Every record of a space.
fn every(engine: &Fragile, space: Space) -> impl Iterator<Item = (Bytes, Bytes)> {
    engine.scan(space, &Keys::all()).map(Result::unwrap)
}

pub(in crate::store::embedded) fn records(engine: &Fragile) -> Vec<(Space, Bytes, Bytes)> {
    let of = |space| every(engine, space).map(move |(key, value)| (space, key, value));
    Space::ALL.into_iter().flat_map(|space| of(space).collect::<Vec<_>>()).collect()
}

pub(in crate::store::embedded) fn change(engine: &Fragile, change: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::default();
    change(&mut batch);
    engine.commit(&batch).unwrap();
}

/// What is wrong without one of the records of a space.
fn without(engine: &Fragile, space: Space, number: usize) -> Vec<Fault> {
    let key = every(engine, space).nth(number).unwrap().0;
    change(engine, |batch| batch.remove(space, key.to_vec()));
    faults(engine)
}

fn is_missing(fault: &Fault, offset: u64) -> bool {
    fault.to_string()
        == format!("notification {offset} of topic https://source.example/t: missing or damaged")
}

#[tokio::test]
async fn a_store_that_is_whole_has_no_faults_and_is_not_changed() {
    let engine = filled().await;
    let before = records(&engine);
    let commits = engine.commits();
    let found = findings(&engine, &Keyring::none()).unwrap();
    assert_eq!(found, Findings { records: before.len() as u64, faults: vec![] });
    assert_eq!(engine.commits(), commits);
}

#[tokio::test]
async fn a_notification_that_is_missing_or_lacks_a_part_is_named() {
    for (space, number, offset) in [(Space::Log, 0, 1), (Space::Log, 3, 4), (Space::Bodies, 2, 2)] {
        let faults = without(&filled().await, space, number);
        assert!(matches!(&faults[..], [fault] if is_missing(fault, offset)), "{faults:?}");
    }
    let faults = without(&filled().await, Space::Log, 1);
    assert!(is_missing(&faults[0], 2));
    assert!(
        faults.len() > 1
            && faults[1..].iter().all(|fault| matches!(fault, Fault::Stray { space: Space::Bodies, .. }))
    );
}

#[tokio::test]
async fn what_a_topic_notes_of_its_log_is_compared() {
    let engine = filled().await;
    let (key, value) = every(&engine, Space::Topics).next().unwrap();
    let right: TopicState = codec::open(&Keyring::none(), &key, &value).unwrap();
    let put = |state: &TopicState| {
        change(&engine, |batch| {
            batch.put(Space::Topics, key.to_vec(), codec::seal(&Keyring::none(), &key, state));
        });
    };
    put(&TopicState { bytes: right.bytes + 1, ..right.clone() });
    assert_eq!(faults(&engine), [Fault::Summary(Box::new(right.clone()))]);
    let mut short = right.clone();
    short.topic.head = Offset(3);
    put(&short);
    assert_eq!(
        faults(&engine),
        [Fault::Summary(Box::new(right)), Fault::ReadAhead(Box::new(short), Offset(4))]
    );
}

#[tokio::test]
async fn a_subscription_and_its_entry_in_the_index_lead_to_each_other() {
    let found = without(&filled().await, Space::SubscriptionIndex, 0);
    assert!(matches!(found.as_slice(), [Fault::Unindexed { .. }]), "{found:?}");

    let engine = filled().await;
    let late = every(&engine, Space::Laggards).next().unwrap().0;
    let place = every(&engine, Space::Subscriptions).position(|(key, _)| key == late).unwrap();
    let strays = without(&engine, Space::Subscriptions, place);
    assert!(strays.iter().all(|fault| matches!(fault, Fault::Stray { .. })), "{strays:?}");
    assert_eq!(strays.len(), 2, "the index and the laggard");

    let engine = filled().await;
    let mut index = every(&engine, Space::SubscriptionIndex);
    let ((one, _), (_, elsewhere)) = (index.next().unwrap(), index.next().unwrap());
    let address: Address =
        codec::open(&Keyring::none(), &index_key(&engine, &elsewhere), &elsewhere).unwrap();
    drop(index);
    change(&engine, |batch| {
        batch.put(Space::SubscriptionIndex, one.to_vec(), codec::seal(&Keyring::none(), &one, &address));
    });
    let found = faults(&engine);
    assert!(matches!(found.as_slice(), [Fault::Unindexed { .. }, Fault::Stray { .. }]), "{found:?}");
}

fn index_key(engine: &Fragile, of: &Bytes) -> Bytes {
    every(engine, Space::SubscriptionIndex).find(|(_, value)| value == of).unwrap().0
}

#[tokio::test]
async fn subscriptions_without_a_topic_and_a_store_without_a_foundation_are_told_of() {
    let engine = filled().await;
    let orphans = without(&engine, Space::Topics, 0);
    assert_eq!(orphans.iter().filter(|fault| matches!(fault, Fault::NoTopic { .. })).count(), 1);
    change(&engine, |batch| batch.remove(Space::Meta, key::FOUNDATION.to_vec()));
    assert!(faults(&engine).contains(&Fault::NoFoundation));
}

#[tokio::test]
async fn numbers_that_would_be_given_out_once_more_are_told_of() {
    let engine = filled().await;
    change(&engine, |batch| batch.remove(Space::Meta, key::COUNTERS.to_vec()));
    assert!(matches!(faults(&engine)[..], [Fault::Numbers(_)]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_byte_anywhere_is_found(
        which in any::<prop::sample::Index>(),
        byte in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
    ) {
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let engine = runtime.block_on(filled());
        let all = records(&engine);
        let (space, key, value) = which.get(&all);
        let mut value = value.to_vec();
        let place = byte.index(value.len());
        value[place] ^= flip;
        change(&engine, |batch| batch.put(*space, key.to_vec(), value));
        // Whether the keys are the right ones is asked before anything else.
        if (*space, &key[..]) == (Space::Meta, key::ENCRYPTION) {
            prop_assert!(inspect(&engine, &Keyring::none()).is_err());
        } else {
            let found = faults(&engine);
            let is_told = |fault: &Fault| matches!(fault, Fault::Unreadable { space: of, .. } if of == space);
            prop_assert!(found.iter().any(is_told), "{found:?}");
        }
    }
}
