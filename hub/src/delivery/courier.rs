//! One attempt, from the records to the outcome: build the request, send it, say what the answer means.

use std::cell::RefCell;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, LINK, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, Method, Request};
use http_body_util::Full;
use lru::LruCache;
use resync_core::datetime::DateTime;
use resync_core::websub::{LinkHeader, SignatureMethod, SigningKey, TopicUrl, WEBHOOK_ATTEMPT, WEBHOOK_ID};
use tracing::{debug, warn};

use super::addressed::{self, Addressed, Addresses, Unaddressable};
use super::asking::{Asked, Asking, Confirmations};
use super::attempt::{Attempt, Find, Finished};
use super::editions::Editions;
use super::lanes::Lane;
use super::large::Large;
use super::meters::Meters;
use super::notes::{Came, Note, Notes};
use super::schedule::Outcome;
use super::spans::describe;
use crate::config::Prefixes;
use crate::egress::{self, EgressClient, EgressError, ReadLimit, Reverified, Route, Withheld};
use crate::store::{
    Keep, Notification, Offset, Recipient, Rule, Shard, Store, StoreError, SubscriptionId, Topic, TopicId,
};
use crate::telemetry::{SpanKind, TRACEPARENT, TraceContext, Tracer};
use crate::weighted_cache::WeightedCache;

/// More of an answer is not even read (W-156).
const ANSWER_READ: ReadLimit = ReadLimit::Discard(16 * 1024);

/// The header of a signed delivery (W-166).
const SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature");

/// A name has several addresses at most, each of which may have to be asked.
const QUESTIONS: usize = 4;

const ATTEMPT: HeaderName = HeaderName::from_static(WEBHOOK_ATTEMPT);

/// Carries deliveries out.
#[derive(Debug)]
pub(super) struct Courier {
    store: Arc<dyn Store>,
    client: EgressClient,
    asking: Asking,
    addresses: Addresses,
    editions: Editions,
    heads: Heads,
    large: Large,
    meters: Meters,
    told: Told<Offset>,
    unreadable: Told<SubscriptionId>,
    notes: Notes,
    tracer: Tracer,
}

/// What was told to be damaged: notifications, which everybody comes across who is owed them, and subscriptions, each again and again.
#[derive(Debug)]
struct Told<K: Eq + Hash>(RefCell<LruCache<(TopicId, K), ()>>);

/// So many are remembered, by their numbers: where there are more, it is no longer a few records that are damaged.
const TOLD: NonZeroUsize = NonZeroUsize::new(1_024).expect("1024 is not zero");

impl<K: Eq + Hash> Told<K> {
    fn nothing() -> Self {
        Self(RefCell::new(LruCache::new(TOLD)))
    }

    /// Whether this was not told yet; it is from now on.
    fn is_news(&self, topic: TopicId, one: K) -> bool {
        self.0.borrow_mut().put((topic, one), ()).is_none()
    }
}

/// The header fields that all requests of a notification share, made once: by topic and offset.
#[derive(Debug)]
struct Heads(Mutex<WeightedCache<(TopicId, Offset), HeaderMap>>);

/// Bytes of header fields that are kept: of the usual size those of some thousand notifications, more than are on their way at once.
const HEADS: usize = 4 * 1024 * 1024;
/// What one takes beside the links and the content type.
const HEAD: usize = 1_024;

impl Heads {
    fn new() -> Self {
        Self(Mutex::new(WeightedCache::new(HEADS)))
    }

    fn of(&self, notification: &Notification) -> Result<HeaderMap, http::Error> {
        let key = (notification.topic, notification.offset);
        // Nothing in here can panic half-way.
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(head) = made.get(&key) {
            return Ok(head.clone());
        }
        let head = head(notification)?;
        let texts = head.values().map(HeaderValue::len).sum::<usize>();
        made.put(key, head.clone(), HEAD + texts);
        Ok(head)
    }
}

impl Courier {
    pub(super) fn new(
        store: Arc<dyn Store>,
        client: EgressClient,
        method: SignatureMethod,
        entry_diff: Prefixes,
        (meters, notes, tracer): (Meters, Notes, Tracer),
        confirmations: Confirmations,
        large: Large,
    ) -> Self {
        let asking = Asking::new(Arc::clone(&store), client.clone(), method, meters.clone(), confirmations);
        Self {
            store,
            client,
            asking,
            addresses: Addresses::new(method),
            editions: Editions::new(entry_diff),
            heads: Heads::new(),
            large,
            meters,
            told: Told::nothing(),
            unreadable: Told::nothing(),
            notes,
            tracer,
        }
    }

    /// Makes the attempt, and says whom it was sent to if it got that far. Never fails: whatever happens is an outcome.
    pub(super) async fn carry(&self, shard: Shard, attempt: &Attempt) -> (Finished, Option<IpAddr>) {
        let mut reached = None;
        match self.try_carry(shard, attempt, &mut reached).await {
            Ok(finished) => (finished, reached),
            Err(error) => {
                warn!(%error, topic = attempt.topic.0, offset = attempt.offset.0, "delivery postponed: store unreadable");
                (Finished::Postponed, reached)
            }
        }
    }

    async fn try_carry(
        &self,
        shard: Shard,
        attempt: &Attempt,
        reached: &mut Option<IpAddr>,
    ) -> Result<Finished, StoreError> {
        let Attempt { topic, subscription, ahead, keep, .. } = *attempt;
        let recipient = match self.store.recipient(shard, topic, subscription, ahead, keep).await {
            Ok(Some(recipient)) => recipient,
            Ok(None) => return Ok(Finished::Vanished),
            Err(error @ StoreError::Damaged { .. }) => {
                if self.unreadable.is_news(topic, subscription) {
                    warn!(%error, topic = topic.0, subscription = subscription.0, "subscription cannot be read and gets nothing: deny it, so that it can be made again, or repair the store");
                }
                return Ok(Finished::Unreadable);
            }
            Err(error) => return Err(error),
        };
        // First attempts find theirs in memory mostly; what had no room is read again only where it has.
        if attempt.place.lane != Lane::First
            && self.large.refuses(topic, attempt.sought(), attempt.place.lane)
        {
            return Ok(Finished::Postponed);
        }
        let notification = match self.owed(&recipient.topic_url, attempt).await? {
            Ok(notification) => notification,
            Err(without) => return Ok(without),
        };
        // Until it is answered.
        let Some(_room) = self.large.room(&notification, attempt.place.lane) else {
            debug!(id = %notification.id(), subscription = subscription.0, "delivery postponed: other large notifications are under way");
            return Ok(Finished::Postponed);
        };
        let body = self.editions.body(self.store.as_ref(), &recipient, &notification).await?;
        Ok(self.send(shard, attempt, &recipient, &notification, body, reached).await)
    }

    /// The notification that this attempt is about; what the attempt comes to where there is none that can be read.
    async fn owed(
        &self,
        topic: &TopicUrl,
        attempt: &Attempt,
    ) -> Result<Result<Arc<Notification>, Finished>, StoreError> {
        let mut sought = attempt.sought();
        loop {
            let found = match self.store.notification_from(attempt.topic, sought).await {
                Ok(Some(found)) => found,
                Ok(None) => {
                    let Some(log) = self.store.topic(topic).await? else {
                        return Ok(Err(Finished::Postponed));
                    };
                    return Ok(Err(match log {
                        // All of it had to make room, the newest too.
                        Topic { first, .. } if first > sought => Finished::Gap { from: sought, next: first },
                        Topic { head, .. } if head >= sought => Finished::Passed { next: head.next() },
                        Topic { .. } => Finished::Postponed,
                    }));
                }
                Err(error @ StoreError::Damaged { .. }) => {
                    let first = self.first(topic, sought).await?;
                    return Ok(Err(self.without(attempt, sought, first, &error)));
                }
                Err(error) => return Err(error),
            };
            match attempt.judge(sought, found.offset, found.rule) {
                Find::Send => return Ok(Ok(found)),
                Find::Gap => {
                    // What the log still goes back to was not removed: a restore leaped over it.
                    let (from, next) = (sought, found.offset);
                    let leapt = self.first(topic, next).await? <= sought;
                    let finished =
                        if leapt { Finished::Passed { next } } else { Finished::Gap { from, next } };
                    return Ok(Err(finished));
                }
                Find::Later => return Ok(Err(Finished::Superseded)),
                Find::Pass => sought = found.offset.next(),
            }
        }
    }

    /// With which notification the log of a topic begins; this one where there is no such topic.
    async fn first(&self, topic: &TopicUrl, otherwise: Offset) -> Result<Offset, StoreError> {
        Ok(self.store.topic(topic).await?.map_or(otherwise, |topic| topic.first))
    }

    /// What an attempt comes to that was to find this notification in a log that begins with `first`, and found what cannot be
    /// read. That never will be readable again, and must not hold up what is.
    fn without(&self, attempt: &Attempt, sought: Offset, first: Offset, error: &StoreError) -> Finished {
        match attempt.judge(sought, sought.max(first), Rule::Every) {
            Find::Later => Finished::Superseded,
            Find::Gap => Finished::Gap { from: sought, next: first },
            Find::Send | Find::Pass => {
                if self.told.is_news(attempt.topic, sought) {
                    warn!(%error, topic = attempt.topic.0, offset = sought.0, "notification is lost");
                }
                Finished::Gap { from: sought, next: sought.next() }
            }
        }
    }

    async fn send(
        &self,
        shard: Shard,
        attempt: &Attempt,
        recipient: &Arc<Recipient>,
        notification: &Notification,
        body: Bytes,
        reached: &mut Option<IpAddr>,
    ) -> Finished {
        let number = attempt.number;
        let answered = |outcome| Finished::Answered { offset: notification.offset, outcome };
        let mut span = self.tracer.begin_below(notification.trace, "deliver", SpanKind::Client);
        let content = Content { notification, body, trace: span.passed_on() };
        let (begun, answer) = match self.request_from(shard, attempt, recipient, content, reached).await {
            Ok(Some(asked)) => asked,
            Ok(None) => return Finished::Vanished,
            Err(error) => {
                let id = notification.id();
                warn!(%id, subscription = recipient.id.0, %error, "delivery cannot be expressed as a request");
                span.fail(|| error.to_string());
                span.end();
                return answered(Outcome::unreachable());
            }
        };
        let finished = match &answer {
            Ok(answer) => {
                if answer.status.is_success() {
                    self.editions.acknowledge(recipient, notification);
                }
                answered(Outcome::of_status(answer.status, retry_after(&answer.headers)))
            }
            // For want of something on this side.
            Err(EgressError::NoFileDescriptors) => Finished::Postponed,
            Err(EgressError::Unconfirmed(Withheld::RateLimit(wait))) => Finished::HeldBack(*wait),
            Err(EgressError::Unconfirmed(Withheld::AwaitingReverification)) => Finished::Undecided,
            Err(EgressError::Interrupted(_)) => answered(Outcome::cut()),
            Err(_) => answered(Outcome::unreachable()),
        };
        self.meters.attempted(&answer, begun.elapsed(), notification, number);
        describe(span, &answer, recipient, notification, number);
        log(&answer, recipient, notification, number);
        if let Some(note) = note(&answer, notification, number) {
            self.notes.put(recipient.id, note);
        }
        finished
    }

    /// Makes the request; when, and what came of it; `None` where the subscription has ended meanwhile. An address that has not
    /// confirmed is asked first whether it wants it. What says no gets it like all that was not asked for, and where nobody is
    /// there, nothing is sent.
    async fn request_from(
        &self,
        shard: Shard,
        attempt: &Attempt,
        recipient: &Arc<Recipient>,
        content: Content<'_>,
        reached: &mut Option<IpAddr>,
    ) -> Result<Option<(Instant, Result<egress::Answer, EgressError>)>, Unaddressable> {
        let Attempt { keep, number, .. } = *attempt;
        let mut way = Route::Reverify(recipient.id.0);
        for _ in 0..=QUESTIONS {
            let (addressed, request) = self.request(recipient, keep, content.clone(), number)?;
            let begun = Instant::now();
            let sent = self.client.send_to(&addressed.target, request, ANSWER_READ, way, reached).await;
            let question = match sent {
                Err(EgressError::ReverifyFirst(question)) => question,
                answer => return Ok(Some((begun, answer))),
            };
            // A seldom way: boxed, it takes no room in every delivery under way.
            match Box::pin(self.asking.ask(shard, attempt, question)).await {
                Asked::Done(Reverified::Confirmed(address)) => way = Route::Pinned(address),
                Asked::Done(Reverified::Refused | Reverified::Unreachable) => {}
                Asked::Done(Reverified::NotSent) => break,
                Asked::Gone => return Ok(None),
            }
        }
        Ok(Some((Instant::now(), Err(EgressError::Unconfirmed(Withheld::AwaitingReverification)))))
    }

    fn request(
        &self,
        recipient: &Arc<Recipient>,
        keep: Keep,
        Content { notification, body, trace }: Content<'_>,
        number: u16,
    ) -> Result<(Arc<Addressed>, Request<Full<Bytes>>), Unaddressable> {
        let addressed = self.addresses.of(recipient, keep)?;
        let mut head = self.heads.of(notification)?;
        if let Some(trace) = trace {
            head.insert(TRACEPARENT, trace.header());
        }
        let request = request(addressed.key.as_ref(), head, body, number)?;
        Ok((addressed, request))
    }
}

/// What a subscriber gets with one attempt.
#[derive(Clone)]
struct Content<'a> {
    notification: &'a Notification,
    /// Of a feed, what is new to the subscriber.
    body: Bytes,
    trace: Option<TraceContext>,
}

/// What is worth a note: a failure, and a success after one.
fn note(
    answer: &Result<egress::Answer, EgressError>,
    notification: &Notification,
    attempt: u16,
) -> Option<Note> {
    let failure = match answer {
        Ok(answer) if answer.status.is_success() && attempt <= 1 => return None,
        Ok(answer) if answer.status.is_success() => None,
        Ok(answer) => Some(format!("the callback answered {}", answer.status)),
        Err(error) => Some(error.to_string()),
    };
    let (at, came) = (DateTime::now(), Came::of(answer));
    Some(Note { at, notification: notification.id(), attempt, failure, came })
}

fn log(
    answer: &Result<egress::Answer, EgressError>,
    recipient: &Recipient,
    notification: &Notification,
    number: u16,
) {
    let (id, subscriber) = (notification.id(), recipient.id.0);
    match answer {
        Ok(answer) if answer.status.is_success() => {
            debug!(%id, subscription = subscriber, attempt = number, status = answer.status.as_u16(), "delivered");
        }
        Ok(answer) => {
            warn!(%id, subscription = subscriber, attempt = number, status = answer.status.as_u16(), "delivery refused");
        }
        // Whoever turns names brings about many of these: they are counted (`held_back`).
        Err(error @ EgressError::Unconfirmed(_)) => {
            debug!(%id, subscription = subscriber, attempt = number, %error, "delivery held back");
        }
        Err(error) => {
            let origin = addressed::read(&recipient.callback).map(|callback| callback.origin()).ok();
            warn!(%id, subscription = subscriber, attempt = number, origin, %error, "delivery failed");
        }
    }
}

/// The header fields of a notification, with the identity that lets a Destination recognise repetitions. Those that differ by
/// request have their places, so that no copy has to grow.
fn head(notification: &Notification) -> Result<HeaderMap, http::Error> {
    let mut head = HeaderMap::with_capacity(8);
    for differs in [HOST, CONTENT_LENGTH, ATTEMPT, SIGNATURE] {
        head.insert(differs, HeaderValue::from_static(""));
    }
    if notification.trace.is_some() {
        head.insert(TRACEPARENT, HeaderValue::from_static(""));
    }
    // A copy: what was read from the store is a part of the whole record, which would stay with it.
    head.insert(CONTENT_TYPE, HeaderValue::from_bytes(&notification.content_type)?);
    head.insert(LINK, HeaderValue::from_maybe_shared(Bytes::from(links(notification).to_string()))?);
    head.insert(WEBHOOK_ID, HeaderValue::from_maybe_shared(Bytes::from(notification.id().to_string()))?);
    head.insert(USER_AGENT, HeaderValue::from_static(egress::USER_AGENT));
    Ok(head)
}

/// The delivery request of WebSub section 7, but for its target.
fn request(
    key: Option<&SigningKey>,
    mut head: HeaderMap,
    body: Bytes,
    number: u16,
) -> Result<Request<Full<Bytes>>, http::Error> {
    head.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    head.insert(ATTEMPT, HeaderValue::from(number));
    match key {
        Some(key) => {
            let signature = key.sign(&body).to_string();
            head.insert(SIGNATURE, HeaderValue::from_maybe_shared(Bytes::from(signature))?);
        }
        None => drop(head.remove(SIGNATURE)),
    }
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = head;
    Ok(request)
}

/// Hubs first, in the order in which the Source gave them (D-12, H-09).
fn links(notification: &Notification) -> LinkHeader {
    let links = &notification.links;
    let header = links.hubs.iter().fold(LinkHeader::default(), |header, hub| header.push(hub, "hub"));
    let header = header.push(&links.canonical, "self");
    match &links.resourcesync {
        Some(capability_list) => header.push(capability_list, "resourcesync"),
        None => header,
    }
}

/// `Retry-After` as seconds or as a date; anything else is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok()
}

#[cfg(test)]
mod tests {
    use resync_core::websub::Secret;

    use super::*;
    use crate::delivery::breaker::BreakerPolicy;
    use crate::delivery::hosts::{Hosts, Neighbours, Place};
    use crate::delivery::lanes::Lane;
    use crate::egress::Guard;
    use crate::store::{self, Ahead, Credentials, Engine, Keyring, NotificationLinks, Shares, Subscription};
    use crate::topics::{BodyBudget, CatchUp};

    fn recipient(secret: Option<&str>) -> Arc<Recipient> {
        Arc::new(Recipient {
            id: SubscriptionId(7),
            topic: TopicId(0xabc),
            callback: Bytes::from_static(b"http://destination.example/cb?id=7&x=a%20b"),
            topic_url: "http://source.example/framework/".parse().unwrap(),
            secret: secret.map(|secret| Secret::new(secret).unwrap()),
        })
    }

    fn notification() -> Notification {
        Notification {
            topic: TopicId(0xabc),
            offset: Offset(5),
            content_type: Bytes::from_static(b"text/plain;charset=UTF-8"),
            links: NotificationLinks {
                hubs: vec!["http://hub.example/websub/".to_owned()],
                canonical: "http://source.example/framework/".to_owned(),
                resourcesync: Some("http://source.example/capabilitylist.xml".to_owned()),
            },
            body: Bytes::from_static(b"Gr\xc3\xbc\xc3\x9fe\n"),
            rule: Rule::Every,
            received_at: DateTime::now(),
            trace: None,
        }
    }

    fn made(secret: Option<&str>, body: Bytes, number: u16) -> Request<Full<Bytes>> {
        let addressed = Addressed::new(&recipient(secret), SignatureMethod::Sha256).unwrap();
        request(addressed.key.as_ref(), head(&notification()).unwrap(), body, number).unwrap()
    }

    #[test]
    fn w080_w141_w145_w166_a_delivery_is_a_post_with_the_topics_type_links_and_signature() {
        let request = made(Some("s3cr3t"), notification().body, 2);
        let header = |name: &str| request.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(request.method(), "POST");
        assert_eq!(header("content-type"), "text/plain;charset=UTF-8");
        assert_eq!(
            header("link"),
            "<http://hub.example/websub/>; rel=\"hub\", <http://source.example/framework/>; rel=\"self\", \
             <http://source.example/capabilitylist.xml>; rel=\"resourcesync\""
        );
        assert_eq!(
            header("x-hub-signature"),
            "sha256=a7b730e30c5f1b3f41b47c1c24253616889a65a57a8ca56929106f55ae627bbd"
        );
        assert_eq!(header("webhook-id"), "0000000000000abc.5");
        assert_eq!(header("webhook-attempt"), "2");
    }

    #[test]
    fn h10_without_a_secret_there_is_no_signature() {
        assert!(made(None, Bytes::new(), 1).headers().get("x-hub-signature").is_none());
    }

    #[test]
    fn w061_a_renewed_subscription_is_made_ready_anew() {
        let addresses = Addresses::new(SignatureMethod::Sha256);
        let (before, renewed) = (recipient(Some("s3cr3t")), recipient(Some("another")));
        for keep in [Keep::Ready, Keep::Nothing] {
            let signature = |recipient: &Arc<Recipient>| {
                let key = addresses.of(recipient, keep).unwrap();
                key.key.as_ref().unwrap().sign(b"news").to_string()
            };
            assert_eq!(signature(&before), signature(&before));
            assert_ne!(signature(&before), signature(&renewed));
        }
    }

    #[test]
    fn of_damaged_records_that_are_come_across_in_turn_each_is_told_once() {
        let told = Told::nothing();
        let sweep = || [1, 5, 9].map(|offset| told.is_news(TopicId(1), Offset(offset)));
        assert_eq!(sweep(), [true; 3]);
        assert_eq!(sweep(), [false; 3]);
        assert!(told.is_news(TopicId(2), Offset(1)));
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let hint = |value: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]));
        assert_eq!(hint("120"), Some(Duration::from_secs(120)));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        assert!(
            hint(&soon)
                .is_some_and(|pause| pause <= Duration::from_secs(90) && pause > Duration::from_secs(80))
        );
        assert_eq!(hint("whenever"), None);
    }

    fn courier(store: Arc<dyn Store>) -> Courier {
        let second = Duration::from_secs(1);
        let client = EgressClient::new(Guard::open_to(&[]), second, second, 1);
        let (confirmations, _) = tokio::sync::mpsc::unbounded_channel();
        let method = SignatureMethod::Sha256;
        Courier::new(
            store,
            client,
            method,
            Prefixes::default(),
            Default::default(),
            confirmations,
            Large::default(),
        )
    }

    fn attempt(topic: TopicId, offset: u64) -> Attempt {
        let second = Duration::from_secs(1);
        let breaker = BreakerPolicy { failures: 1, open: second, open_max: second };
        Attempt {
            topic,
            subscription: SubscriptionId(7),
            offset: Offset(offset),
            latest: Offset(0),
            newest_only: false,
            number: 1,
            place: Place {
                lane: Lane::First,
                is_proven: false,
                takes_long: false,
                is_probe: false,
                begun: Instant::now(),
            },
            probe: false,
            was_delivered: false,
            ahead: Ahead::Topic,
            keep: Keep::Ready,
            host: Hosts::new(1, breaker, Neighbours::of(1, 1))
                .join(&"http://destination.example".into(), None),
            confirmations: 0,
            lease_end: DateTime::now(),
        }
    }

    /// A store with so many notifications, of which retention has left the newest ones, and the first of these is damaged.
    async fn damaged(posts: usize, left: usize) -> (tempfile::TempDir, Arc<dyn Store>, TopicUrl, TopicId) {
        let directory = tempfile::tempdir().unwrap();
        let url: TopicUrl = "http://source.example/framework/".parse().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let mut topic = TopicId(0);
        for _ in 0..posts {
            topic = TopicId(store.append(store::posted(&url, "1"), Duration::ZERO).await.unwrap().id().topic);
        }
        let publishers = left as u64 * store::posted(&url, "1").weight();
        let shares = Shares { publishers, strangers: 0 };
        store.trim(DateTime::from_system_time(SystemTime::UNIX_EPOCH), shares).await.unwrap();
        drop(store);
        store::damage_log(directory.path());
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        (directory, store, url, topic)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_notification_that_cannot_be_read_is_a_gap_of_one() {
        let (_directory, store, url, topic) = damaged(2, 2).await;
        let courier = courier(store);
        let gap = Finished::Gap { from: Offset(1), next: Offset(2) };
        assert_eq!(courier.owed(&url, &attempt(topic, 1)).await.unwrap().unwrap_err(), gap);
        let next = courier.owed(&url, &attempt(topic, 2)).await.unwrap().unwrap();
        assert_eq!(next.offset, Offset(2));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_subscription_that_cannot_be_read_is_not_asked_for_every_second() {
        let directory = tempfile::tempdir().unwrap();
        let open = || store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topic: TopicUrl = "http://source.example/framework/".parse().unwrap();
        let callback = "http://destination.example/d".parse().unwrap();
        let store = open();
        let (shard, Subscription { topic, id, .. }) = store::subscribe(&*store, &topic, &callback).await;
        drop(store);
        store::damage_subscription(directory.path());
        let courier = courier(open());
        let attempt = Attempt { subscription: id, ..attempt(topic, 1) };
        assert_eq!(courier.carry(shard, &attempt).await, (Finished::Unreadable, None));
        assert!(!courier.unreadable.is_news(topic, id), "it was told");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_cannot_be_read_behind_a_gap_is_reached_in_one_step() {
        let (_directory, store, url, topic) = damaged(9, 3).await;
        let courier = courier(store);
        for (sought, next) in [(1, 7), (7, 8)] {
            let gap = Finished::Gap { from: Offset(sought), next: Offset(next) };
            assert_eq!(courier.owed(&url, &attempt(topic, sought)).await.unwrap().unwrap_err(), gap);
        }
        let newest = Attempt { newest_only: true, latest: Offset(4), ..attempt(topic, 1) };
        assert_eq!(courier.owed(&url, &newest).await.unwrap().unwrap_err(), Finished::Superseded);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_restore_leaps_over_is_no_gap_and_readers_of_the_log_go_on_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, file] = ["old", "new", "backup"].map(|name| folder.path().join(name));
        let url: TopicUrl = "http://source.example/framework/".parse().unwrap();
        let store = store::open(Engine::Fjall, &old, Keyring::none(), 0).unwrap();
        for _ in 0..2 {
            store.append(store::posted(&url, "1"), Duration::ZERO).await.unwrap();
        }
        store.back_up(Vec::new(), Box::new(std::fs::File::create(&file).unwrap())).await.unwrap();
        store::restore(Engine::Fjall, &new, &Keyring::none(), Credentials::Restored, &file).unwrap();
        let restored = store::open(Engine::Fjall, &new, Keyring::none(), 0).unwrap();
        let (topic, courier) = (store.topic(&url).await.unwrap().unwrap().id, courier(Arc::clone(&restored)));
        let pages = CatchUp::new(Arc::clone(&restored), BodyBudget::new(1_000_000));
        let passed = Finished::Passed { next: Offset((1 << 32) + 1) };
        assert_eq!(courier.owed(&url, &attempt(topic, 3)).await.unwrap().unwrap_err(), passed);
        let nothing = pages.page(&url, Some(Offset(2)), 10).await.unwrap();
        assert!(nothing.notifications.is_empty() && !nothing.more);

        let next =
            Offset(restored.append(store::posted(&url, "2"), Duration::ZERO).await.unwrap().id().offset);
        assert_eq!(courier.owed(&url, &attempt(topic, 3)).await.unwrap().unwrap_err(), passed);
        assert_eq!(courier.owed(&url, &attempt(topic, next.0)).await.unwrap().unwrap().offset, next);
        // One that has read what the old hub took after the backup, too.
        for after in [2, 3, 1_000] {
            let page = pages.page(&url, Some(Offset(after)), 10).await.unwrap();
            assert_eq!(page.notifications.iter().map(|one| one.offset).collect::<Vec<_>>(), [next]);
            assert!(!page.more);
        }
    }
}
