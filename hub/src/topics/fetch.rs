//! Pings: a publisher says that a topic changed, and the hub fetches the topic itself (W-132, C-04, C-05).
//!
//! A ping is durable before it is acknowledged and forgotten only after the topic was fetched or given up. Pings that come
//! while the topic is being fetched are one more fetch, however many they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::budget::BodyBudget;
use super::discover::{discover_in, notification_links};
use super::fan_out::FanOut;
use super::get::{Fetched, TopicClient, Unfetched};
use super::intake::{self, Refused};
use super::oversized::{Oversized, check_content_type};
use super::shares::SharedLog;
use super::turns::Turns;
use crate::egress::{EgressError, RedirectError};
use crate::places::{Asker, Bounds, Lane, Place, Places, Share, Slow};
use crate::store::{
    NewNotification, Notification, Offset, Payer, Ping, Rule, Store, StoreError, Topic, Validators,
};
use crate::telemetry::{OpenSpan, SpanKind, TraceContext, Tracer};

/// Fetches at once: in all, on slow networks, on one network and for one client. Of a slow one, or one with many names, nobody
/// else should notice.
const ALL: Share = Share { most: 32, strangers: 24 };
const SLOW: Slow = Slow { known: 6, strangers: 8 };
const ON_ONE_NETWORK: Share = Share { most: 8, strangers: 6 };
const FOR_ONE_CLIENT: Share = Share { most: 16, strangers: 6 };
/// Pauses before a topic that cannot be fetched is tried again; then the ping is given up, or left for the next start where the
/// store is to blame. What the hub itself lacks is waited for with the longest of them, however long that takes: the ping was
/// acknowledged.
const AGAIN_AFTER: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(300)];

/// Pings of one request that are accepted at once.
const ACCEPTED_AT_ONCE: usize = 128;

/// Takes pings in.
#[derive(Clone, Debug)]
pub struct Pings {
    store: Arc<dyn Store>,
    fetching: mpsc::UnboundedSender<Pinged>,
}

/// A ping on its way.
#[derive(Clone, Debug)]
pub struct Pinged {
    ping: Ping,
    asker: Asker,
}

impl Pinged {
    /// A ping that an earlier life left undone; whose it was is forgotten.
    pub fn left(ping: Ping) -> Self {
        Self { ping, asker: Asker { client: None, lane: Lane::Stranger } }
    }
}

impl Pings {
    /// `fetching` gets each ping once it is durable.
    pub fn new(store: Arc<dyn Store>, fetching: mpsc::UnboundedSender<Pinged>) -> Self {
        Self { store, fetching }
    }

    /// Which of these topics a ping makes the hub fetch. One that nobody ever subscribed to needs none (C-04).
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn fetched(&self, topics: Vec<TopicUrl>) -> Result<Vec<TopicUrl>, StoreError> {
        let mut fetched = Vec::new();
        for topic in topics {
            if self.store.topic(&topic).await?.is_some() {
                fetched.push(topic);
            } else {
                debug!(topic = topic.as_str(), "ping for a topic without subscriptions");
            }
        }
        Ok(fetched)
    }

    /// Accepts pings of topics that are to be fetched, many at once, so that they share the store's syncs.
    ///
    /// # Errors
    /// [`StoreError`] where one was not accepted; the others may have been.
    pub async fn accept_all(
        &self,
        topics: Vec<TopicUrl>,
        asker: Asker,
        trace: Option<TraceContext>,
    ) -> Result<(), StoreError> {
        for some in topics.chunks(ACCEPTED_AT_ONCE) {
            let accepting = some.iter().map(|topic| self.accept(topic.clone(), asker, trace));
            join_all(accepting).await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    /// Accepts a ping of a topic that is to be fetched, in this trace. When this returns, a crash no longer loses it. Those who are
    /// known, by a token, do not queue behind strangers.
    ///
    /// # Errors
    /// [`StoreError`], which leaves nothing behind.
    pub async fn accept(
        &self,
        topic: TopicUrl,
        asker: Asker,
        trace: Option<TraceContext>,
    ) -> Result<(), StoreError> {
        let ping = self.store.put_ping(topic, trace).await?;
        // At shutdown nobody listens any more; the ping is durable and waits for the next start.
        let _ = self.fetching.send(Pinged { ping, asker });
        Ok(())
    }
}

/// Fetches pinged topics.
#[derive(Clone, Debug)]
pub struct Fetching {
    store: Arc<dyn Store>,
    log: SharedLog,
    client: TopicClient,
    budget: BodyBudget,
    public_hub: Arc<str>,
    turns: Turns,
    places: Places,
    fan_out: FanOut,
    tracer: Tracer,
}

/// Why subscribers get nothing now.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Topic(#[from] Unfetched),
    #[error(transparent)]
    Oversized(#[from] Oversized),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Failed {
    /// The topic says more about itself than is passed on. It will say the same again until its owner changes that.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Oversized(_) | Self::Topic(Unfetched::Redirect(RedirectError::TooLong { .. })))
    }

    /// The topic is not to blame: the hub lacks something.
    fn is_shortage(&self) -> bool {
        use StoreError::{Busy, Closed, Full, Read, Write};
        matches!(
            self,
            Self::Store(Full { .. } | Busy | Write(_) | Read(_) | Closed)
                | Self::Topic(Unfetched::Egress(EgressError::Exhausted | EgressError::NoRoom))
        )
    }
}

/// What becomes of a ping when nobody tries any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It is forgotten.
    Nothing,
    /// It stays in the store for the next start, before which somebody may have mended that.
    Ping,
}

impl From<&Failed> for Left {
    fn from(error: &Failed) -> Self {
        match error {
            Failed::Store(_) => Self::Ping,
            Failed::Topic(_) | Failed::Oversized(_) => Self::Nothing,
        }
    }
}

/// How often one ping's topic could not be fetched, and for whose reasons.
#[derive(Debug, Default)]
struct Patience {
    failures: usize,
    shortages: usize,
}

impl Patience {
    /// The pause after this failure; `None`: the ping is given up.
    fn after(&mut self, error: &Failed) -> Option<Duration> {
        if error.is_refusal() {
            return None;
        }
        let [.., longest] = AGAIN_AFTER;
        let (count, beyond) = if error.is_shortage() {
            (&mut self.shortages, Some(longest))
        } else {
            (&mut self.failures, None)
        };
        let pause = AGAIN_AFTER.get(*count).copied().or(beyond);
        *count += 1;
        pause
    }
}

impl Fetching {
    /// `public_hub` stands in deliveries of topics that name no hub (D-12). `fan_out` bounds what pings without a token have sent.
    /// With `by_client` no client has more than its share of what is fetched at once.
    pub fn new(
        log: SharedLog,
        client: TopicClient,
        budget: BodyBudget,
        public_hub: Arc<str>,
        fan_out: FanOut,
        by_client: bool,
        tracer: Tracer,
    ) -> Self {
        let client_share = by_client.then_some(FOR_ONE_CLIENT);
        let bounds = Bounds { all: ALL, slow: SLOW, here: ON_ONE_NETWORK, client: client_share };
        let (turns, places) = (Turns::default(), Places::new(bounds));
        let store = Arc::clone(log.store());
        Self { store, log, client, budget, public_hub, turns, places, fan_out, tracer }
    }

    /// Fetches whatever is pinged, until `stop` turns true.
    pub async fn run(self, pings: mpsc::UnboundedReceiver<Pinged>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.fetch_all(pings) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn fetch_all(&self, mut pings: mpsc::UnboundedReceiver<Pinged>) {
        let mut tasks = JoinSet::new();
        while let Some(Pinged { ping, asker }) = pings.recv().await {
            if self.turns.joins(&ping, asker) {
                continue;
            }
            let fetching = self.clone();
            tasks.spawn(async move {
                let turns = fetching.turns.clone();
                turns.serve(ping, |ping, askers| fetching.clone().serve(ping, askers)).await;
            });
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn serve(self, ping: Ping, askers: Vec<Asker>) {
        if self.fetch_patiently(&ping, &askers).await == Left::Ping {
            return;
        }
        if let Err(error) = self.store.remove_ping(&ping).await {
            warn!(topic = ping.topic.as_str(), %error, "ping not removed: the topic is fetched again at the next start");
        }
    }

    async fn fetch_patiently(&self, ping: &Ping, askers: &[Asker]) -> Left {
        let topic = &ping.topic;
        let mut patience = Patience::default();
        loop {
            while let Err(owed) = self.fan_out.admit_fetch(topic, askers, Instant::now()) {
                debug!(topic = topic.as_str(), owed = owed.as_secs(), "ping waits for what others had sent");
                if timeout(owed, self.turns.until_newer(ping)).await.is_ok() {
                    self.turns.put_back(ping, askers);
                    return Left::Nothing;
                }
            }
            let result = {
                let mut place = self.place(ping, askers).await;
                let mut span = self.tracer.begin_below(ping.trace, "fetch", SpanKind::Client);
                // Boxed: many topics wait, one for each that is pinged, and few are fetched.
                let result = Box::pin(self.fetch_once(topic, askers, &mut place, &mut span)).await;
                describe(span, topic, &result);
                result
            };
            let Err(error) = result else { return Left::Nothing };
            let Some(pause) = patience.after(&error) else {
                let left = Left::from(&error);
                let until = if left == Left::Ping { "until the next start" } else { "for good" };
                warn!(topic = topic.as_str(), %error, until, "topic not fetched: ping given up");
                return left;
            };
            warn!(topic = topic.as_str(), %error, again_in = pause.as_secs(), "topic not fetched");
            if timeout(pause, self.turns.until_newer(ping)).await.is_ok() {
                self.turns.put_back(ping, askers);
                debug!(topic = topic.as_str(), "pinged again: fetching at once");
                return Left::Nothing;
            }
        }
    }

    /// The topic's place among all that are fetched: the first that one of those gets who pinged it, or who do so meanwhile. So
    /// nobody can keep a topic waiting by pinging it with a full share.
    async fn place(&self, ping: &Ping, askers: &[Asker]) -> Place {
        let here = self.client.whereabouts(ping.topic.url()).await;
        let waiting = |asker: &Asker| self.places.place(*asker, &here);
        let mut waits: FuturesUnordered<_> = askers.iter().map(waiting).collect();
        let mut joined = 0;
        loop {
            tokio::select! {
                Some(place) = waits.next() => return place,
                more = self.turns.until_joined(ping, joined) => {
                    joined += more.len();
                    waits.extend(more.iter().filter(|asker| !askers.contains(asker)).map(waiting));
                }
            }
        }
    }

    async fn fetch_once(
        &self,
        topic: &TopicUrl,
        askers: &[Asker],
        place: &mut Place,
        span: &mut OpenSpan,
    ) -> Result<(), Failed> {
        let Some(known) = self.store.topic(topic).await? else { return Ok(()) };
        // What could not be written down is not asked for either: a full disk may last, and a topic be large.
        self.store.health()?;
        let validators = self.store.validators(known.id, known.latest).await?;
        let mut room = self.budget.reserve();
        let Some(fetched) = self.client.get(topic.url(), validators.as_ref(), &mut room, place).await? else {
            debug!(topic = topic.as_str(), "topic asked: unchanged");
            return Ok(());
        };
        let posted = self.held(&known, known.posted).await?;
        let now = fetched.validators();
        if self.is_unchanged(&known, (validators.as_ref(), &now), posted.as_deref(), &fetched).await? {
            debug!(topic = topic.as_str(), "topic fetched: unchanged");
            if validators.as_ref() != Some(&now) {
                self.store.put_validators(known.id, known.latest, now).await?;
            }
            return Ok(());
        }
        if let Some(Err(refused)) = posted.map(|posted| goes_with(&posted, &fetched)) {
            warn!(topic = topic.as_str(), %refused, "topic fetched: what is there is not what is posted, and is not sent");
            return Ok(());
        }
        let payer = self.log.payer(&known, askers, fetched.from);
        let found = self.notification(topic, fetched, now).await?;
        let new = NewNotification { trace: span.context(), payer, ..found };
        let bytes = new.weight();
        if let Err(too_large) = self.log.fits(known.posted.0 > 0, payer, bytes) {
            warn!(topic = topic.as_str(), %too_large, "topic fetched: there is no room in the log for what is there, and it is not sent");
            return Ok(());
        }
        let append = span.child("append", SpanKind::Internal);
        let appended = self.store.append(new, Duration::ZERO).await;
        append.end_with(&appended);
        let appended = appended?;
        span.note("websub.notification", || appended.id().to_string());
        // Not before: what could not be written is fetched again, and goes out once.
        self.fan_out.take(topic, known.id, bytes, askers).await;
        info!(id = %appended.id(), topic = topic.as_str(), bytes, "topic fetched: new content");
        // Before the next fetch gets this one's place: what is beyond the share is what these places hold at most.
        if let Err(error) = self.log.make_room().await {
            warn!(%error, "strangers have more than their share of the log: the next fetch makes room");
        }
        Ok(())
    }

    /// Content that the subscribers have got already is not sent again (B-31), be it that it was fetched before or that it was
    /// posted, which a Source may show at its topic (FN-032). Nor is the nothing that it may show instead: without an
    /// element there is no XML.
    async fn is_unchanged(
        &self,
        topic: &Topic,
        (before, now): (Option<&Validators>, &Validators),
        posted: Option<&Notification>,
        fetched: &Fetched,
    ) -> Result<bool, StoreError> {
        let body = &fetched.answer.body;
        if posted.is_some_and(|posted| posted.body == *body) {
            return Ok(true);
        }
        if body.is_empty() && (topic.posted.0 > 0 || intake::is_xml(&intake::essence(content_type(fetched))))
        {
            return Ok(true);
        }
        if let Some(before) = before {
            return Ok(before.digest == now.digest);
        }
        Ok(self.held(topic, topic.latest).await?.is_some_and(|newest| newest.body == *body))
    }

    /// What the log has at an offset, if there ever was anything and it is still held.
    async fn held(&self, topic: &Topic, offset: Offset) -> Result<Option<Arc<Notification>>, StoreError> {
        if offset.0 == 0 {
            return Ok(None);
        }
        let found = self.store.notification_from(topic.id, offset).await?;
        Ok(found.filter(|found| found.offset == offset))
    }

    /// What the topic says about itself goes out as it says it (W-147, D-11, D-12).
    async fn notification(
        &self,
        topic: &TopicUrl,
        fetched: Fetched,
        validators: Validators,
    ) -> Result<NewNotification, Oversized> {
        let content_type = content_type(&fetched);
        check_content_type(content_type)?;
        let content_type = Bytes::copy_from_slice(content_type);
        let found = discover_in(&fetched).await?;
        let Fetched { url, answer, .. } = fetched;
        Ok(NewNotification {
            topic: topic.clone(),
            content_type,
            links: notification_links(found, &url, &self.public_hub)?,
            body: answer.body,
            rule: Rule::Latest,
            payer: Payer::Strangers(None),
            idempotency_key: None,
            interval: None,
            validators: Some(validators),
            received_at: DateTime::now(),
            trace: None,
        })
    }
}

/// What an operator wants to know of a fetch.
fn describe(mut span: OpenSpan, topic: &TopicUrl, result: &Result<(), Failed>) {
    span.note("http.request.method", || "GET");
    span.note("server.address", || topic.url().host_str().unwrap_or_default().to_owned());
    span.note("websub.topic", || topic.as_str().to_owned());
    if let Err(Failed::Topic(Unfetched::Status(status))) = result {
        span.note("http.response.status_code", || status.as_u16());
    }
    span.end_with(result);
}

/// Destinations of a topic whose Source posts ResourceSync notifications get nothing else: whoever pings must not be able to send them
/// whatever page the Source has there.
fn goes_with(posted: &Notification, fetched: &Fetched) -> Result<(), Refused> {
    match posted.links.resourcesync {
        Some(_) => intake::check_notification(content_type(fetched), &fetched.answer.body),
        None => Ok(()),
    }
}

fn content_type(fetched: &Fetched) -> &[u8] {
    fetched.answer.headers.get(CONTENT_TYPE).map_or(b"application/octet-stream", HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::iter;
    use std::path::Path;

    use http::StatusCode;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::PublishPolicy;
    use crate::delivery::Operator;
    use crate::egress::{EgressClient, Guard};
    use crate::meters::Meters as _;
    use crate::store::{self, Engine, Keyring};
    use crate::topics::Authority;

    #[test]
    fn a_ping_is_never_given_up_for_what_the_hub_itself_lacks() {
        let shortages = [
            Failed::Store(StoreError::Full { free: 1, reserve: 2 }),
            Failed::Store(StoreError::Busy),
            Failed::Store(StoreError::Write("no space is left".to_owned())),
            Failed::Store(StoreError::Read("input/output error".to_owned())),
            Failed::Store(StoreError::Closed),
            Failed::Topic(Unfetched::Egress(EgressError::Exhausted)),
            Failed::Topic(Unfetched::Egress(EgressError::NoRoom)),
        ];
        for error in shortages {
            let mut patience = Patience::default();
            let pauses: Vec<_> = (0..1_000).map(|_| patience.after(&error)).collect();
            assert_eq!(pauses[..3], AGAIN_AFTER.map(Some), "{error}");
            assert!(pauses[3..].iter().all(|pause| *pause == Some(AGAIN_AFTER[2])), "{error}");
        }
    }

    #[test]
    fn a_damaged_record_is_met_no_more_than_three_times_more_and_the_ping_stays_for_a_mended_store() {
        let damaged = Failed::Store(StoreError::Damaged { space: "log", reason: "its checksum".to_owned() });
        let mut patience = Patience::default();
        let pauses: Vec<_> = (0..4).map(|_| patience.after(&damaged)).collect();
        assert_eq!(pauses[..3], AGAIN_AFTER.map(Some));
        assert_eq!((pauses[3], Left::from(&damaged)), (None, Left::Ping));
        assert_eq!(Left::from(&Failed::Topic(Unfetched::Redirects)), Left::Nothing);
    }

    #[test]
    fn a_topic_that_says_too_much_of_itself_is_not_asked_again_until_it_is_pinged_again() {
        let too_long = RedirectError::TooLong { length: 60_000 };
        for error in [Failed::Oversized(Oversized::Links), Failed::Topic(Unfetched::Redirect(too_long))] {
            assert_eq!(Patience::default().after(&error), None, "{error}");
            assert_eq!(Left::from(&error), Left::Nothing);
        }
    }

    #[tokio::test]
    async fn a_ping_that_names_many_topics_shares_syncs_of_the_disk_and_wakes_all_their_fetches() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let (fetching, mut pinged) = mpsc::unbounded_channel();
        let pings = Pings::new(Arc::clone(&store), fetching);
        let topics: Vec<TopicUrl> =
            (0..1_000).map(|number| format!("http://source.example/{number}").parse().unwrap()).collect();
        let asker = Asker { client: None, lane: Lane::Stranger };
        pings.accept_all(topics.clone(), asker, None).await.unwrap();
        assert_eq!(store.pings().await.unwrap().len(), topics.len());
        let woken = iter::from_fn(|| pinged.try_recv().ok()).map(|one| one.ping.topic.to_string());
        assert_eq!(woken.collect::<HashSet<_>>(), topics.iter().map(ToString::to_string).collect());
        assert!(syncs(&*store) < 100, "{} syncs", syncs(&*store));
    }

    /// How often the store has synced the disk.
    fn syncs(store: &dyn Store) -> u64 {
        let mut registry = Registry::default();
        store.meters().register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("log_fsync_seconds_count "));
        count.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }

    #[test]
    fn a_topic_that_cannot_be_fetched_is_tried_three_times_more_whatever_the_hub_lacked_meanwhile() {
        let gone = Failed::Topic(Unfetched::Status(StatusCode::NOT_FOUND));
        let mut patience = Patience::default();
        for pause in AGAIN_AFTER {
            assert_eq!(patience.after(&gone), Some(pause));
            assert!(patience.after(&Failed::Store(StoreError::Busy)).is_some());
        }
        assert_eq!(patience.after(&gone), None);
    }

    fn fetching(store: &Arc<dyn Store>) -> Fetching {
        let short = Duration::from_secs(5);
        let client = EgressClient::new(Guard::open_to(&["127.0.0.0/8"]), short, short, 1);
        let tokens = Path::new("no tokens");
        let authority = Authority::new(PublishPolicy::Open, tokens).unwrap();
        Fetching::new(
            SharedLog::new(Arc::clone(store), authority, 1_000_000),
            TopicClient::new(client, 1_024),
            BodyBudget::new(1_000_000),
            "http://hub.example/websub/".into(),
            FanOut::new(false, 0, Arc::new(Operator::of_nobody())),
            false,
            Tracer::default(),
        )
    }

    /// As many may wait as there are topics.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_that_waits_to_be_fetched_takes_few_kilobytes() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let ping = store.put_ping("http://source.example/t".parse().unwrap(), None).await.unwrap();
        let takes = size_of_val(&fetching(&store).serve(ping, Vec::new()));
        assert!(takes <= 4 * 1_024, "{takes}");
    }

    /// What is large would be got again and again while the disk is full, and none of it kept.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_is_not_asked_for_while_the_store_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let source = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let topic: TopicUrl = format!("http://{}/t", source.local_addr().unwrap()).parse().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let callback = "http://destination.example/d".parse().unwrap();
        store::subscribe(&*store, &topic, &callback).await;
        drop(store);
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), u64::MAX).unwrap();
        store.put_ping(topic.clone(), None).await.unwrap_err();

        let fetching = fetching(&store);
        let here = fetching.client.whereabouts(topic.url()).await;
        let mut place = fetching.places.place(Asker { client: None, lane: Lane::Known }, &here).await;
        let mut span = fetching.tracer.begin_below(None, "fetch", SpanKind::Client);
        tokio::select! {
            fetched = fetching.fetch_once(&topic, &[], &mut place, &mut span) => {
                let full = matches!(fetched, Err(Failed::Store(StoreError::Full { .. })));
                assert!(full, "{fetched:?}");
            }
            _ = source.accept() => panic!("the Source was asked"),
        }
    }
}
