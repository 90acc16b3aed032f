//! Random operations against a model that keeps everything in plain maps, with reopening in between.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use resync_core::websub::{CallbackUrl, TopicUrl};

use super::{LEASE, Place, at, behind, gone, posted, read, topic, within};
use crate::store::{
    Activation, Appended, Checkpoint, ContentKind, Engine, Epoch, Intent, Laggard, NewNotification,
    NewRequest, Offset, PendingRequest, Ping, PingClient, Shard, Skip, Store, StoreError, Subscription,
    SubscriptionId, Trimmed, Watermark,
};
use crate::store::{VerifiedSubscription, VerifiedUnsubscription};
use crate::trace_context::TraceContext;

/// Idempotency keys are forgotten by the wall clock, everything else by the clock of the model: in the future they last.
const START: i64 = 4_000_000_000;
const REMEMBER: i64 = 5;
const TOPICS: usize = 3;
const CALLBACKS: usize = 4;

/// A topic and a callback by their numbers.
type Pair = (usize, usize);

#[derive(Clone, Debug)]
enum Operation {
    Append {
        topic: usize,
        bytes: usize,
        kind: ContentKind,
        key: Option<u8>,
    },
    Trim {
        age: i64,
        max_bytes: u64,
    },
    Ask {
        pair: Pair,
        subscribe: bool,
    },
    /// Verification of the newest request, or of the one before it.
    Verify {
        pair: Pair,
        newest: bool,
    },
    Refuse {
        pair: Pair,
        newest: bool,
    },
    End {
        fenced: bool,
        pair: Pair,
    },
    Claim {
        shard: u16,
    },
    Checkpoint {
        pair: Pair,
        paused: bool,
        late: bool,
        cursor: u64,
    },
    Ping {
        topic: usize,
        put: bool,
    },
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let pair = || (0..TOPICS, 0..CALLBACKS);
    let kind = prop_oneof![Just(ContentKind::Posted), Just(ContentKind::Fetched)];
    let bytes = prop_oneof![4 => 0..300_usize, 1 => 60_000..200_000_usize];
    prop_oneof![
        6 => (0..TOPICS, bytes, kind, any::<Option<bool>>()).prop_map(|(topic, bytes, kind, key)| {
            Operation::Append { topic, bytes, kind, key: key.map(u8::from) }
        }),
        1 => (0..30_i64, 0..300_000_u64).prop_map(|(age, max_bytes)| Operation::Trim { age, max_bytes }),
        4 => (pair(), prop::bool::weighted(0.8)).prop_map(|(pair, subscribe)| Operation::Ask { pair, subscribe }),
        5 => (pair(), prop::bool::weighted(0.8)).prop_map(|(pair, newest)| Operation::Verify { pair, newest }),
        1 => (pair(), any::<bool>()).prop_map(|(pair, newest)| Operation::Refuse { pair, newest }),
        1 => (pair(), any::<bool>()).prop_map(|(pair, fenced)| Operation::End { pair, fenced }),
        1 => (0..16_u16).prop_map(|shard| Operation::Claim { shard }),
        4 => (pair(), prop::bool::weighted(0.2), any::<bool>(), 0..9_u64)
            .prop_map(|(pair, paused, late, cursor)| Operation::Checkpoint { pair, paused, late, cursor }),
        1 => (0..TOPICS, any::<bool>()).prop_map(|(topic, put)| Operation::Ping { topic, put }),
        1 => Just(Operation::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    shards: u16,
    now: i64,
    topics: BTreeMap<usize, Log>,
    /// The last offset of all topics that were forgotten.
    floor: u64,
    keys: BTreeMap<(usize, u8), (u64, i64, Bytes)>,
    asked: BTreeMap<Pair, Vec<PendingRequest>>,
    waiting: BTreeMap<Pair, PendingRequest>,
    /// The subscriptions in force, as read when they began, and their laggards.
    subscriptions: BTreeMap<Pair, (Subscription, Option<Laggard>)>,
    newest_subscription: SubscriptionId,
    epochs: BTreeMap<Shard, Epoch>,
    watermarks: BTreeMap<(Shard, usize), Watermark>,
    skips: BTreeMap<(Shard, usize, u64, SubscriptionId), Skip>,
    pings: BTreeMap<usize, Ping>,
}

#[derive(Default)]
struct Log {
    head: u64,
    latest: u64,
    held: BTreeMap<u64, (Bytes, i64)>,
}

fn topic_of(number: usize) -> TopicUrl {
    topic(&format!("t{number}"))
}

/// What a notification with this body weighs.
fn weight(topic: usize, body: &Bytes) -> u64 {
    posted(&topic_of(topic), body.clone()).weight()
}

/// Every other second something comes in a trace.
fn trace_of(now: i64) -> Option<TraceContext> {
    let value = format!("00-{now:032x}-{now:016x}-01");
    TraceContext::parse(value.as_bytes()).filter(|_| now % 2 == 0)
}

fn callback_of(number: usize) -> CallbackUrl {
    CallbackUrl::parse(&format!("http://d{number}.example/cb")).unwrap()
}

impl Model {
    fn shard_of(&self, pair: Pair) -> Shard {
        Shard::of(&callback_of(pair.1), self.shards)
    }

    async fn apply(&mut self, store: &dyn Store, operation: Operation) {
        self.now += 1;
        match operation {
            Operation::Append { topic, bytes, kind, key } => {
                self.append(store, topic, bytes, kind, key).await;
            }
            Operation::Trim { age, max_bytes } => self.trim(store, self.now - age, max_bytes).await,
            Operation::Ask { pair, subscribe } => self.ask(store, pair, subscribe).await,
            Operation::Verify { pair, newest } => self.verify(store, pair, newest).await,
            Operation::Refuse { pair, newest } => {
                let Some(request) = self.request(pair, newest) else { return };
                store.remove_request(&request).await.unwrap();
                if self.waiting.get(&pair) == Some(&request) {
                    self.waiting.remove(&pair);
                }
            }
            Operation::End { pair, fenced } => self.end(store, pair, fenced).await,
            Operation::Claim { shard } => {
                let epoch = store.claim(Shard(shard)).await.unwrap();
                let before = self.epochs.insert(Shard(shard), epoch).unwrap_or_default();
                assert!(before < epoch);
            }
            Operation::Checkpoint { pair, paused, late, cursor } => {
                self.checkpoint(store, pair, paused, late, cursor).await;
            }
            Operation::Ping { topic, put: true } => {
                let ping =
                    store.put_ping(topic_of(topic), trace_of(self.now), PingClient::default()).await.unwrap();
                let waiting = self.pings.get(&topic).and_then(|waiting| waiting.trace);
                self.pings.insert(topic, Ping { trace: ping.trace.or(waiting), ..ping });
            }
            Operation::Ping { topic, put: false } => {
                let Some(ping) = self.pings.remove(&topic) else { return };
                store.remove_ping(&ping).await.unwrap();
            }
            Operation::Reopen => unreachable!("the test reopens"),
        }
    }

    /// The owner of its shard ends a subscription, or one who is its owner no more tries to.
    async fn end(&mut self, store: &dyn Store, pair: Pair, fenced: bool) {
        let shard = self.shard_of(pair);
        let current = self.epochs.get(&shard).copied().unwrap_or_default();
        let Some((subscription, _)) = self.subscriptions.get(&pair) else { return };
        let (topic, id, why) = (subscription.topic, subscription.id, gone(subscription));
        let epoch = if fenced { Epoch(current.0.wrapping_sub(1)) } else { current };
        let outcome = store.end(shard, epoch, topic, id, why).await;
        if fenced {
            assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
            return;
        }
        outcome.unwrap();
        self.subscriptions.remove(&pair);
    }

    async fn append(
        &mut self,
        store: &dyn Store,
        topic: usize,
        bytes: usize,
        kind: ContentKind,
        key: Option<u8>,
    ) {
        let body = Bytes::from(vec![self.now.to_le_bytes()[0]; bytes]);
        let new = NewNotification {
            kind,
            received_at: at(START + self.now),
            idempotency_key: key.map(|key| format!("key {key}")),
            interval: None,
            trace: trace_of(self.now),
            ..posted(&topic_of(topic), body.clone())
        };
        let appended = store.append(new, Duration::from_secs(REMEMBER.unsigned_abs())).await.unwrap();
        let seen = key.and_then(|key| self.keys.get(&(topic, key)));
        if let Some((offset, _, before)) = seen.filter(|(_, seen, _)| seen + REMEMBER > self.now) {
            let same = matches!(appended, Appended::Repeated(id) if id.offset == *offset);
            let reused = matches!(appended, Appended::KeyReused(id) if id.offset == *offset);
            assert!(if *before == body { same } else { reused }, "{appended:?}");
            return;
        }
        let now = self.now;
        let log = self.log(topic);
        log.head += 1;
        if kind == ContentKind::Fetched {
            log.latest = log.head;
        }
        log.held.insert(log.head, (body.clone(), now));
        let head = log.head;
        assert!(matches!(appended, Appended::New(id) if id.offset == head), "{appended:?}");
        if let Some(key) = key {
            self.keys.insert((topic, key), (head, now, body));
        }
    }

    fn log(&mut self, topic: usize) -> &mut Log {
        let begun = Log { head: self.floor, ..Log::default() };
        self.topics.entry(topic).or_insert(begun)
    }

    async fn trim(&mut self, store: &dyn Store, older_than: i64, max_bytes: u64) {
        let trimmed = store.trim(at(START + older_than), within(max_bytes)).await.unwrap();
        let (mut notifications, mut bytes, mut early) = (0, 0, 0);
        let mut shortened = BTreeMap::new();
        let subscribed: BTreeSet<_> = self.subscriptions.keys().map(|(topic, _)| *topic).collect();
        loop {
            let weight_of = |topic: &usize, log: &Log| -> u64 {
                log.held.values().map(|(body, _)| weight(*topic, body)).sum()
            };
            let total: u64 = self.topics.iter().map(|(topic, log)| weight_of(topic, log)).sum();
            let kept = |log: &Log| log.held.values().next().map(|(_, received)| *received);
            let owed = |topic: &usize| usize::from(subscribed.contains(topic));
            let more_than_owed = || self.topics.iter().filter(|(topic, log)| log.held.len() > owed(topic));
            let oldest = more_than_owed().min_by_key(|(_, log)| kept(log));
            let largest = more_than_owed().max_by_key(|(topic, log)| {
                let for_nobody = weight_of(topic, log) > 0 && owed(topic) == 0;
                (for_nobody, weight_of(topic, log), Reverse(kept(log)))
            });
            let is_old = |log: &Log| kept(log).is_some_and(|received| received < older_than);
            let victim = oldest.filter(|(_, log)| is_old(log));
            let Some(victim) = victim.or(largest.filter(|_| total > max_bytes)) else { break };
            let topic = *victim.0;
            early += u64::from(!is_old(victim.1));
            let entry = self.topics.get_mut(&topic).unwrap().held.first_entry().unwrap();
            notifications += 1;
            let offset = *entry.key();
            bytes += weight(topic, &entry.remove().0);
            shortened.insert(topic, offset + 1);
        }
        assert_eq!(trimmed, Trimmed { notifications, bytes, early });
        self.skips
            .retain(|(_, topic, offset, _), _| shortened.get(topic).is_none_or(|first| offset >= first));
        self.forget(&subscribed);
    }

    /// Nothing stays of topics that nobody needs.
    fn forget(&mut self, subscribed: &BTreeSet<usize>) {
        let named: BTreeSet<_> = self.keys.keys().map(|(topic, _)| *topic).collect();
        self.topics.retain(|topic, log| {
            let stays = !log.held.is_empty() || subscribed.contains(topic) || named.contains(topic);
            self.floor = if stays { self.floor } else { self.floor.max(log.head) };
            stays
        });
        self.watermarks.retain(|(_, topic), _| self.topics.contains_key(topic));
        self.skips.retain(|(_, topic, ..), _| self.topics.contains_key(topic));
    }

    async fn ask(&mut self, store: &dyn Store, pair: Pair, subscribe: bool) {
        let intent =
            if subscribe { Intent::Subscribe { lease: Some(9), secret: None } } else { Intent::Unsubscribe };
        let new = NewRequest {
            client: None,
            topic: topic_of(pair.0),
            callback: callback_of(pair.1),
            intent,
            verify_token: None,
            received_at: at(START + self.now),
        };
        let request = store.put_request(new).await.unwrap();
        self.asked.entry(pair).or_default().push(request.clone());
        self.waiting.insert(pair, request);
    }

    fn request(&self, pair: Pair, newest: bool) -> Option<PendingRequest> {
        self.asked.get(&pair)?.iter().rev().nth(usize::from(!newest)).cloned()
    }

    async fn verify(&mut self, store: &dyn Store, pair: Pair, newest: bool) {
        let Some(request) = self.request(pair, newest) else { return };
        let waits = self.waiting.get(&pair) == Some(&request);
        let outcome = match request.intent {
            Intent::Unsubscribe => store.deactivate(VerifiedUnsubscription::assumed(request.clone())).await,
            Intent::Subscribe { .. } => {
                let verified = VerifiedSubscription::assumed(request.clone(), LEASE, at(START + self.now));
                store.activate(verified).await
            }
        };
        assert_eq!(matches!(outcome.unwrap(), Activation::Done), waits);
        if !waits {
            return;
        }
        self.waiting.remove(&pair);
        if request.intent == Intent::Unsubscribe {
            self.subscriptions.remove(&pair);
            return;
        }
        let read = store.find_subscription(&request.topic, &request.callback).await.unwrap().unwrap();
        let head = self.log(pair.0).head;
        if let Some((known, _)) = self.subscriptions.get_mut(&pair) {
            assert_eq!((read.id, read.start), (known.id, known.start));
            *known = read;
        } else {
            assert!(read.id > self.newest_subscription);
            assert_eq!(read.start, Offset(head));
            self.newest_subscription = read.id;
            self.subscriptions.insert(pair, (read, None));
        }
    }

    /// One pair is late or caught up, one notification is skipped for it, and the watermark moves.
    async fn checkpoint(&mut self, store: &dyn Store, pair: Pair, paused: bool, late: bool, cursor: u64) {
        let shard = self.shard_of(pair);
        let Some((subscription, lag)) = self.subscriptions.get_mut(&pair) else { return };
        let laggard = behind(subscription, cursor);
        let watermark = Watermark { done: Offset(cursor), sweep: None };
        let skip = Skip {
            topic: subscription.topic,
            subscription: subscription.id,
            offset: Offset(cursor),
            at: at(START + self.now),
            class: laggard.class,
            status: None,
        };
        let place = (subscription.topic, subscription.id);
        let progress = Checkpoint {
            watermarks: vec![(subscription.topic, watermark)],
            laggards: if late { vec![laggard] } else { vec![] },
            caught_up: if late { vec![] } else { vec![place] },
            skips: vec![skip],
            gaps: vec![],
            replayed: vec![],
        };
        let current = self.epochs.get(&shard).copied();
        let epoch = if paused {
            Epoch(current.unwrap_or_default().0.wrapping_sub(1))
        } else {
            current.unwrap_or(Epoch(1))
        };
        let outcome = store.checkpoint(shard, epoch, progress).await;
        if paused || current.is_none() {
            assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
            return;
        }
        outcome.unwrap();
        *lag = late.then_some(laggard);
        self.watermarks.insert((shard, pair.0), watermark);
        self.skips.insert((shard, pair.0, cursor, subscription.id), skip);
    }

    async fn compare(&self, store: &dyn Store) {
        self.compare_logs(store).await;
        let mut waiting: Vec<_> = self.waiting.values().cloned().collect();
        waiting.sort_by_key(|request| request.id);
        assert_eq!(store.requests(&store.all_shards()).await.unwrap(), waiting);
        let mut pings: Vec<_> = self.pings.values().cloned().collect();
        pings.sort_by_key(|ping| ping.id);
        assert_eq!(store.pings(&store.all_shards()).await.unwrap(), pings);
        for pair in (0..TOPICS).flat_map(|topic| (0..CALLBACKS).map(move |callback| (topic, callback))) {
            let found = store.find_subscription(&topic_of(pair.0), &callback_of(pair.1)).await.unwrap();
            assert_eq!(found.as_ref(), self.subscriptions.get(&pair).map(|(subscription, _)| subscription));
        }
        for shard in store.all_shards() {
            self.compare_shard(store, shard).await;
        }
    }

    async fn compare_logs(&self, store: &dyn Store) {
        let listed = store.topics(None, usize::MAX).await.unwrap();
        let urls = listed.iter().map(|topic| topic.url.clone());
        assert!(urls.eq(self.topics.keys().map(|number| topic_of(*number))), "{listed:?}");
        let ids: Vec<_> = listed.iter().map(|topic| topic.id).collect();
        assert_eq!(store.topics_of(&ids).await.unwrap(), listed);
        for (number, log) in &self.topics {
            let topic = store.topic(&topic_of(*number)).await.unwrap().unwrap();
            let first = log.held.first_key_value().map_or(log.head + 1, |(first, _)| *first);
            assert_eq!((topic.first.0, topic.head.0, topic.latest.0), (first, log.head, log.latest));
            for offset in 0..=log.head + 1 {
                let read = read(store, topic.id, Offset(offset)).await;
                let kept = log.held.get(&offset);
                assert!(
                    read.as_ref().map(|read| &read.body) == kept.map(|(body, _)| body),
                    "{number}/{offset}"
                );
                let came = |(_, received): &(Bytes, i64)| (at(START + received), trace_of(*received));
                assert_eq!(read.map(|read| (read.received_at, read.trace)), kept.map(came));
            }
        }
    }

    async fn compare_shard(&self, store: &dyn Store, shard: Shard) {
        let mut state = store.load_shard(shard).await.unwrap();
        state.slots.sort_by_key(|slot| slot.id);
        state.laggards.sort_by_key(|laggard| laggard.subscription);
        let mut here: Vec<_> =
            self.subscriptions.iter().filter(|(pair, _)| self.shard_of(**pair) == shard).collect();
        here.sort_by_key(|(_, (subscription, _))| subscription.id);
        let slots = state.slots.iter().map(|slot| (slot.id, slot.topic, slot.start, slot.lease_end));
        assert!(slots.eq(here.iter().map(|(_, (s, _))| (s.id, s.topic, s.start, s.lease_end))));
        assert_eq!(state.laggards, here.iter().filter_map(|(_, (_, laggard))| *laggard).collect::<Vec<_>>());
        assert_eq!(
            store.skips(shard, None, usize::MAX).await.unwrap().len(),
            self.skips.keys().filter(|key| key.0 == shard).count()
        );
        for topic in &state.topics {
            let number = (0..TOPICS).find(|number| topic_of(*number) == topic.url).unwrap();
            let read =
                state.watermarks.iter().find(|(id, _)| *id == topic.id).map(|(_, watermark)| watermark);
            assert_eq!(read, self.watermarks.get(&(shard, number)));
        }
    }
}

fn agrees(place: &Place, operations: Vec<Operation>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut store = place.open().await;
        let mut model = Model { shards: store.shards(), ..Model::default() };
        for operation in operations {
            if matches!(operation, Operation::Reopen) {
                model.compare(&*store).await;
                store = place.reopen(store).await;
            } else {
                model.apply(&*store, operation).await;
            }
        }
        model.compare(&*store).await;
        let store = place.reopen(store).await;
        model.compare(&*store).await;
        drop(store);
        // The model's checkpoints are made up, also those of topics without notifications.
        let faults = place.faults().into_iter().filter(|fault| !fault.contains("further than its log"));
        assert_eq!(faults.collect::<Vec<_>>(), [""; 0]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn fjall_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..120)) {
        agrees(&Place::embedded(Engine::Fjall), operations);
    }

    #[cfg(feature = "sled")]
    #[test]
    fn sled_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..120)) {
        agrees(&Place::embedded(Engine::Sled), operations);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..120)) {
        if let Some(place) = Place::in_postgres() {
            agrees(&place, operations);
        }
    }
}
