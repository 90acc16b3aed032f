//! Every record comes back, and nothing that is read can panic.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Secret, TopicUrl, VerifyToken};

use super::super::codec::{Decoder, Fields, Record, open, open_beginning, seal};
use super::super::space::Space;
use super::*;
use crate::store::{
    Chain, ChainBreak, ClockJump, ContentKind, Denial, DenialId, Epoch, Failing, FailureClass, Gap, Intent,
    Keyring, Laggard, NotificationLinks, Offset, Payer, PendingRequest, Ping, PingClient, PingId, RequestId,
    Shard, Skip, Subscription, SubscriptionId, SubscriptionSummary, Sweep, Topic, TopicId, Uptime,
    Validators, Watermark,
};
use crate::trace_context::TraceContext;

fn time() -> impl Strategy<Value = DateTime> {
    (-60_000_000_000_i64..250_000_000_000)
        .prop_map(|seconds| DateTime::from_unix_millis(seconds * 1000 + 1).unwrap())
}

fn class() -> impl Strategy<Value = FailureClass> {
    prop::sample::select(vec![
        FailureClass::NotFailed,
        FailureClass::Refused,
        FailureClass::Trouble,
        FailureClass::Gone,
        FailureClass::Unsent,
    ])
}

fn topic_url() -> impl Strategy<Value = TopicUrl> {
    "https?://[a-z]{1,20}\\.example(:[1-9][0-9]{0,3})?/([a-z~._?=&-]|%[0-9A-Fa-f]{2}){0,40}"
        .prop_filter_map("no URL", |text| TopicUrl::parse(&text).ok())
}

fn callback_url() -> impl Strategy<Value = CallbackUrl> {
    topic_url().prop_map(|url| CallbackUrl::parse(url.as_str()).unwrap())
}

fn secret() -> impl Strategy<Value = Option<Secret>> {
    prop::option::of("\\PC{1,40}".prop_map(|text| Secret::new(text).unwrap()))
}

fn trace() -> impl Strategy<Value = Option<TraceContext>> {
    prop::option::of((1_u128.., 1_u64..).prop_map(|(trace, span)| {
        let value = format!("00-{trace:032x}-{span:016x}-01");
        TraceContext::parse(value.as_bytes()).unwrap()
    }))
}

prop_compose! {
    fn subscription()(
        id in any::<u64>(), topic in any::<u64>(), start in any::<u64>(), callback in callback_url(),
        topic_url in topic_url(), secret in secret(), lease in any::<u32>(), times in (time(), time(), time()),
        address in any::<Option<IpAddr>>(),
        client in any::<Option<IpAddr>>(),
    ) -> Subscription {
        Subscription {
            id: SubscriptionId(id), topic: TopicId(topic), callback, topic_url, secret,
            lease: Duration::from_secs(lease.into()), lease_end: times.0, address, client,
            start: Offset(start),
            created_at: times.1, verified_at: times.2,
        }
    }
}

prop_compose! {
    fn request()(
        id in any::<u64>(), topic in topic_url(), callback in callback_url(), received_at in time(),
        subscribe in any::<bool>(), lease in any::<Option<u64>>(), secret in secret(),
        client in any::<Option<IpAddr>>(), token in prop::option::of("\\PC{1,50}"),
    ) -> PendingRequest {
        let intent = if subscribe { Intent::Subscribe { lease, secret } } else { Intent::Unsubscribe };
        let verify_token = token.map(|text| VerifyToken::new(&text).unwrap());
        PendingRequest { id: RequestId(id), topic, callback, intent, verify_token, received_at, client }
    }
}

prop_compose! {
    fn log_record()(
        latest in any::<bool>(), received_at in time(), content_type in any::<Vec<u8>>(), hubs in any::<Vec<String>>(),
        canonical in any::<String>(), resourcesync in any::<Option<String>>(), body in any::<Result<Vec<u8>, u64>>(),
        trace in trace(),
    ) -> LogRecord {
        LogRecord {
            kind: if latest { ContentKind::Fetched } else { ContentKind::Posted },
            received_at,
            content_type: content_type.into(),
            links: NotificationLinks { hubs, canonical, resourcesync },
            body: body.map_or_else(|bytes| Body::Parts { bytes }, |body| Body::Here(body.into())),
            trace,
        }
    }
}

prop_compose! {
    fn laggard()(
        numbers in any::<(u64, u64, u64, u16)>(), next_attempt in time(), pause in any::<Duration>(),
        failing in prop::option::of((time(), any::<Duration>())), class in class(),
    ) -> Laggard {
        let (topic, subscription, cursor, streak_failures) = numbers;
        Laggard {
            topic: TopicId(topic), subscription: SubscriptionId(subscription), cursor: Offset(cursor), streak_failures,
            next_attempt, pause, failing: failing.map(|(since, lasted)| Failing { since, lasted }), class,
        }
    }
}

prop_compose! {
    fn skip()(
        numbers in any::<(u64, u64, u64)>(), at in time(), class in class(), status in any::<Option<u16>>(),
    ) -> Skip {
        let (topic, subscription, offset) = numbers;
        Skip { topic: TopicId(topic), subscription: SubscriptionId(subscription), offset: Offset(offset), at, class, status }
    }
}

prop_compose! {
    fn watermark()(topic in any::<u64>(), done in any::<u64>(), sweep in any::<Option<(u64, u64)>>()) -> TopicWatermark {
        let sweep = sweep.map(|(target, through)| Sweep { target: Offset(target), through: SubscriptionId(through) });
        TopicWatermark(TopicId(topic), Watermark { done: Offset(done), sweep })
    }
}

prop_compose! {
    fn topic_state()(
        numbers in any::<(u64, u64, u64, u64, u64)>(), url in topic_url(), oldest in prop::option::of(time()),
        payer in any::<Option<Option<IpAddr>>>(),
    ) -> TopicState {
        let (id, first, head, latest, bytes) = numbers;
        let topic = Topic { id: TopicId(id), url, first: Offset(first), head: Offset(head), latest: Offset(latest), posted: Offset(head) };
        TopicState { topic, bytes, oldest, payer: payer.map_or(Payer::Publishers, Payer::Strangers) }
    }
}

prop_compose! {
    fn chain()(
        numbers in any::<(u64, u64)>(), until in time(), breaks in prop::collection::vec((any::<u64>(), time(), time()), 0..5),
    ) -> Chain {
        let breaks = breaks.into_iter().map(|(offset, ended, started)| ChainBreak { offset: Offset(offset), ended, started });
        Chain { offset: Offset(numbers.0), until, broken: numbers.1, breaks: breaks.collect() }
    }
}

prop_compose! {
    fn stated()(
        url in any::<String>(), etag in any::<Option<Vec<u8>>>(), last_modified in any::<Option<Vec<u8>>>(), digest in any::<[u8; 32]>(),
    ) -> StoredValidators {
        let validators = Validators { url, etag: etag.map(Bytes::from), last_modified: last_modified.map(Bytes::from), digest };
        StoredValidators { version: Offset(digest[0].into()), validators }
    }
}

fn comes_back<R: Record + Debug + PartialEq>(record: &R) {
    let stored = Bytes::from(seal(&Keyring::none(), b"key", record));
    assert_eq!(&open::<R>(&Keyring::none(), b"key", &stored).unwrap(), record);
}

proptest! {
    #[test]
    fn every_record_comes_back(
        subscription in subscription(), request in request(), log_record in log_record(), laggard in laggard(),
        skip in skip(), watermark in watermark(), topic in topic_state(), address in any::<(u16, u64, u64)>(),
        times in (time(), time()), chain in chain(), stated in stated(),
    ) {
        comes_back(&subscription);
        comes_back(&request);
        let place = (Shard(address.0), TopicId(address.1), SubscriptionId(address.2));
        comes_back(&Denial {
            id: DenialId(address.1), topic: request.topic.clone(), callback: request.callback.clone(), reason: "why".into(),
            ended: (address.0 % 2 == 0).then_some(place),
        });
        comes_back(&log_record);
        comes_back(&laggard);
        comes_back(&skip);
        let Skip { topic: of, subscription: to, offset, at, .. } = skip;
        comes_back(&Gap { topic: of, subscription: to, from: offset, to: Offset(address.1), at });
        comes_back(&watermark);
        comes_back(&topic);
        comes_back(&Ping {
            id: PingId(address.1), topic: topic.topic.url.clone(), trace: log_record.trace,
            client: PingClient { network: request.client, is_trusted: address.0 % 2 == 0 },
        });
        comes_back(&Epoch(address.1));
        let jump = ClockJump { length: Duration::from_secs(address.1), up_since: Duration::from_millis(address.2) };
        comes_back(&Uptime { seen: times.0, clock_jumps: vec![jump; usize::from(address.0 % 4)] });
        comes_back(&Counters { subscription: SubscriptionId(address.1), request: address.2, ping: address.1 ^ 1 });
        comes_back(&Address { shard: Shard(address.0), topic: TopicId(address.1), id: SubscriptionId(address.2) });
        comes_back(&IdempotencyRecord { offset: Offset(address.1), body: Bytes::from_static(b"digest"), seen_at: times.0, expires: times.1 });
        comes_back(&Foundation { shards: address.0.max(1) });
        comes_back(&Expiry);
        comes_back(&chain);
        comes_back(&stated);
    }

    #[test]
    fn urls_come_back_as_they_were_written(subscription in subscription()) {
        let stored = Bytes::from(seal(&Keyring::none(), b"key", &subscription));
        let read: Subscription = open(&Keyring::none(), b"key", &stored).unwrap();
        prop_assert_eq!(read.callback.as_str(), subscription.callback.as_str());
        prop_assert_eq!(read.topic_url.as_str(), subscription.topic_url.as_str());
    }

    #[test]
    fn a_slot_is_the_beginning_of_its_subscription(subscription in subscription()) {
        let stored = Bytes::from(seal(&Keyring::none(), b"key", &subscription));
        let slot = open_beginning(&Keyring::none(), Space::Subscriptions, b"key", &stored, SubscriptionSummary::decode).unwrap();
        let Subscription { id, topic, start, lease_end, address, .. } = subscription;
        let origin = subscription.callback.origin().into();
        prop_assert_eq!(slot, SubscriptionSummary { id, topic, origin, start, lease_end, address });
    }

    #[test]
    fn a_recipient_is_what_a_delivery_needs_of_its_subscription(subscription in subscription()) {
        let stored = Bytes::from(seal(&Keyring::none(), b"key", &subscription));
        let read = |fields: &mut Decoder| recipient_of(fields, None);
        let recipient =
            open_beginning(&Keyring::none(), Space::Subscriptions, b"key", &stored, read).unwrap();
        let Subscription { id, topic, callback, topic_url, secret, .. } = subscription;
        prop_assert_eq!((recipient.id, recipient.topic, recipient.secret), (id, topic, secret));
        prop_assert_eq!(recipient.callback, callback.as_str().as_bytes());
        prop_assert_eq!(recipient.topic_url.as_str(), topic_url.as_str());
    }

    #[test]
    fn a_trace_takes_26_bytes_and_none_takes_none(record in log_record()) {
        let size = |trace| seal(&Keyring::none(), b"key", &LogRecord { trace, ..record.clone() }).len();
        let some = TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        prop_assert_eq!(size(some), size(None) + 26);
    }

    #[test]
    fn a_notification_weighs_at_least_what_its_records_take(record in log_record()) {
        let stored = seal(&Keyring::none(), &[7; 16], &record).len() as u64 + 16;
        let (elsewhere, is_there) = match record.body {
            Body::Here(_) => (0, true),
            Body::Parts { bytes } => (bytes, true),
            Body::Hole { .. } => (0, false),
        };
        if is_there {
            prop_assert!(stored.saturating_add(elsewhere) <= record.weight(), "{stored} and {elsewhere}");
        } else {
            prop_assert_eq!(record.weight(), 0);
        }
    }

    #[test]
    fn arbitrary_fields_never_panic(bytes in any::<Vec<u8>>()) {
        let keys = Keyring::none();
        let _ = Subscription::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = PendingRequest::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = LogRecord::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Laggard::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Skip::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Gap::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = TopicWatermark::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = TopicState::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = IdempotencyRecord::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Address::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Part::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Chain::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Uptime::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = StoredValidators::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Ping::decode(&mut Decoder::over(bytes.clone(), &keys));
        let _ = Foundation::decode(&mut Decoder::over(bytes, &keys));
    }
}
