//! Fetches topics that were pinged (W-132, C-04, C-05).
//!
//! A ping is forgotten only after its topic was fetched or given up. All pings that come while the topic is being fetched share one
//! more fetch.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use resync_common::backoff::jittered;
use resync_core::media_type::is_generic_xml;
use resync_core::websub::TopicUrl;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::budget::BodyBudget;
use super::discover::{discover_in, notification_links};
use super::fan_out::FanOutLimit;
use super::fetch_failure::{FetchFailure, PingOutcome, Retries};
use super::intake::{self, Refused};
use super::length_limits::{Oversized, check_content_type};
use super::log_shares::LogShares;
use super::pings::AcceptedPing;
use super::single_flight::SingleFlight;
use super::topic_client::{FetchError, Fetched, SLOW, TOTAL, TopicClient};
use crate::concurrency::{Client, ConcurrencyLimits, Limit, Limiter, Permit};
use crate::store::{
    Accepted, ContentKind, NewNotification, Notification, Offset, Payer, Ping, PingId, Shard, Store,
    StoreError, Topic, Validators,
};
use crate::telemetry::{OpenSpan, SpanKind, Tracer};
use crate::waiting_work::{JobQueues, JobRunner, WaitingWork};

/// Fetches at once on one network and for one client.
const ON_ONE_NETWORK: Limit = Limit { total: 8, strangers: 6 };
const FOR_ONE_CLIENT: Limit = Limit { total: 16, strangers: 6 };
/// Lookups of topics' hosts at once; those of one host and of one client have the limits of fetches. Each lookup takes sockets, and a
/// name that nobody answers for takes seconds.
const LOOKUPS: Limit = Limit { total: 256, strangers: 192 };
/// A lookup that takes longer is slow. A query that got lost is repeated after two seconds, and that is nobody's fault.
const SLOW_LOOKUP: Duration = Duration::from_millis(2_500);
/// The shortest pause before somebody sees whether the host of a redirect may be asked: any number of topics may wait for it.
const REDIRECT_PAUSE: Duration = Duration::from_secs(1);

/// Fetches pinged topics.
#[derive(Clone, Debug)]
pub struct Fetcher {
    store: Arc<dyn Store>,
    log: LogShares,
    client: TopicClient,
    budget: BodyBudget,
    public_hub: Arc<str>,
    flights: SingleFlight,
    lookups: Limiter,
    limiter: Limiter,
    fan_out: FanOutLimit,
    tracer: Tracer,
}

impl Fetcher {
    /// `public_hub` is named in deliveries of topics that name no hub (D-12). `fan_out` limits what pings without a token have sent.
    /// With `by_client` each client has a limit of its own.
    pub fn new(
        log: LogShares,
        client: TopicClient,
        budget: BodyBudget,
        public_hub: Arc<str>,
        fan_out: FanOutLimit,
        by_client: bool,
        tracer: Tracer,
    ) -> Self {
        let client_share = by_client.then_some(FOR_ONE_CLIENT);
        let limiter = |total| {
            Limiter::new(ConcurrencyLimits { total, slow: SLOW, peer: ON_ONE_NETWORK, client: client_share })
        };
        let (flights, lookups, limiter) = (SingleFlight::default(), limiter(LOOKUPS), limiter(TOTAL));
        let store = Arc::clone(log.store());
        Self { store, log, client, budget, public_hub, flights, lookups, limiter, fan_out, tracer }
    }

    /// Fetches what was pinged in the shards of this hub, which comes by these queues.
    pub fn in_shards(self, queues: JobQueues<AcceptedPing>) -> Arc<dyn WaitingWork> {
        queues.run_by(self)
    }

    async fn fetch_all(self, mut pings: mpsc::UnboundedReceiver<AcceptedPing>) {
        let mut tasks = JoinSet::new();
        while let Some(AcceptedPing { ping, client }) = pings.recv().await {
            if self.flights.join(&ping, client) {
                continue;
            }
            let fetcher = self.clone();
            tasks.spawn(async move {
                let flights = fetcher.flights.clone();
                flights.serve(ping, |ping, clients| fetcher.clone().serve(ping, clients)).await;
            });
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn serve(self, ping: Ping, clients: Vec<Client>) {
        if self.fetch_with_retries(&ping, &clients).await == PingOutcome::Keep {
            return;
        }
        if let Err(error) = self.store.remove_ping(&ping).await {
            warn!(topic = ping.topic.as_str(), %error, "ping not removed: the topic is fetched again at the next start");
        }
    }

    async fn fetch_with_retries(&self, ping: &Ping, clients: &[Client]) -> PingOutcome {
        let topic = &ping.topic;
        let (mut retries, mut paid) = (Retries::default(), None::<String>);
        loop {
            while let Err(owed) = self.fan_out.admit_fetch(topic, clients, Instant::now()) {
                debug!(
                    topic = topic.as_str(),
                    wait = owed.as_secs(),
                    "ping waits: [limits] ping_fan_out is used up"
                );
                if self.flights.is_pinged_within(owed, ping, clients).await {
                    return PingOutcome::Done;
                }
            }
            let result = {
                let paid = paid.take();
                let mut permit = self.permit(ping, clients).await;
                let mut span = self.tracer.begin_below(ping.trace, "fetch", SpanKind::Client);
                let paid = paid.as_deref();
                // Boxed: many topics wait, and few are fetched.
                let result = Box::pin(self.fetch_once(topic, clients, paid, &mut permit, &mut span)).await;
                describe(span, topic, &result);
                result
            };
            let error = match result {
                Ok(()) => return PingOutcome::Done,
                Err(FetchFailure::Topic(FetchError::RedirectLimited { host, wait })) => {
                    if !self.pay_for_redirect(&host, wait, ping, clients).await {
                        return PingOutcome::Done;
                    }
                    paid = Some(host);
                    continue;
                }
                Err(error) => error,
            };
            let Some(pause) = retries.after(&error) else {
                let left = PingOutcome::from(&error);
                let until = if left == PingOutcome::Keep { "until the next start" } else { "for good" };
                warn!(topic = topic.as_str(), %error, until, "topic not fetched: ping given up");
                return left;
            };
            warn!(topic = topic.as_str(), %error, retry_in = pause.as_secs(), "topic not fetched");
            if self.flights.is_pinged_within(pause, ping, clients).await {
                debug!(topic = topic.as_str(), "pinged again: fetched at once");
                return PingOutcome::Done;
            }
        }
    }

    /// Waits until the host of a redirect may be asked for these clients, and counts that; `false`: the topic was pinged again, and the
    /// next round is for them too. The topic's own host is not asked meanwhile.
    async fn pay_for_redirect(
        &self,
        host: &str,
        mut wait: Duration,
        ping: &Ping,
        clients: &[Client],
    ) -> bool {
        debug!(
            topic = ping.topic.as_str(),
            host,
            wait = wait.as_secs(),
            "ping waits: the topic redirects to a host whose [limits] ping_host is used up"
        );
        loop {
            let pause = jittered(wait.max(REDIRECT_PAUSE));
            if self.flights.is_pinged_within(pause, ping, clients).await {
                return false;
            }
            match self.client.admit_redirect(host, clients) {
                Ok(()) => return true,
                Err(longer) => wait = longer,
            }
        }
    }

    /// A permit to fetch the topic.
    async fn permit(&self, ping: &Ping, clients: &[Client]) -> Permit {
        // Boxed, so that the fetch does not keep the room of the lookup.
        let peer = Box::pin(self.peer(ping, clients)).await;
        self.first_permit(&self.limiter, &peer, ping, clients).await
    }

    /// The peer of the topic for concurrency limits.
    async fn peer(&self, ping: &Ping, clients: &[Client]) -> String {
        let url = ping.topic.url();
        let host = url.host_str().unwrap_or_default();
        let permit = self.first_permit(&self.lookups, host, ping, clients).await;
        let asked_at = Instant::now();
        let peer = self.client.peer(url).await;
        note_slowness(&permit, asked_at.elapsed());
        peer
    }

    /// The first permit that one of the clients gets that pinged the topic, also meanwhile. So nobody can keep a topic waiting by
    /// pinging it with its own limit used up.
    async fn first_permit(&self, limiter: &Limiter, peer: &str, ping: &Ping, clients: &[Client]) -> Permit {
        let waiting = |client: &Client| limiter.acquire(*client, peer);
        let mut waits: FuturesUnordered<_> = clients.iter().map(waiting).collect();
        let mut joined = 0;
        loop {
            tokio::select! {
                Some(permit) = waits.next() => return permit,
                more = self.flights.until_joined(ping, joined) => {
                    joined += more.len();
                    waits.extend(more.iter().filter(|client| !clients.contains(client)).map(waiting));
                }
            }
        }
    }

    async fn fetch_once(
        &self,
        topic: &TopicUrl,
        clients: &[Client],
        paid: Option<&str>,
        permit: &mut Permit,
        span: &mut OpenSpan,
    ) -> Result<(), FetchFailure> {
        let Some(known) = self.store.topic(topic).await? else { return Ok(()) };
        // What cannot be stored is not fetched: a full disk may last, and a topic be large.
        self.store.health()?;
        let validators = self.store.validators(known.id, known.latest).await?;
        let mut memory = self.budget.reserve();
        let known_as = validators.as_ref();
        let got = self.client.get(topic.url(), known_as, &mut memory, permit, clients, paid).await?;
        let Some(fetched) = got else {
            debug!(topic = topic.as_str(), "topic not modified");
            return Ok(());
        };
        let posted = self.held(&known, known.posted).await?;
        let now = fetched.validators();
        if self.is_unchanged(&known, known_as, &now, posted.as_deref(), &fetched).await? {
            debug!(topic = topic.as_str(), "topic fetched: same content");
            if known_as != Some(&now) {
                self.store.put_validators(known.id, known.latest, now).await?;
            }
            return Ok(());
        }
        if let Some(Err(refused)) = posted.map(|posted| goes_with(&posted, &fetched)) {
            warn!(topic = topic.as_str(), %refused, "topic fetched, but not sent: its Source posts ResourceSync notifications, and this is none");
            return Ok(());
        }
        self.append(&known, fetched, now, clients, span).await
    }

    /// Appends new content to the log, unless it is too large for that.
    async fn append(
        &self,
        known: &Topic,
        fetched: Fetched,
        now: Validators,
        clients: &[Client],
        span: &mut OpenSpan,
    ) -> Result<(), FetchFailure> {
        let topic = &known.url;
        let payer = self.log.payer(known, clients, fetched.from);
        let found = self.notification(topic, fetched, now).await?;
        let new = NewNotification { trace: span.context(), payer, ..found };
        let bytes = new.weight();
        if let Err(too_large) = self.log.fits(known.posted.0 > 0, payer, bytes) {
            warn!(topic = topic.as_str(), %too_large, "topic fetched, but not sent: too large for the log");
            return Ok(());
        }
        // Before it is appended: what cannot be counted is fetched again.
        let bytes_to_send = self.fan_out.bytes_to_send(known.id, bytes, clients).await?;
        let append = span.child("append", SpanKind::Internal);
        let appended = self.store.append(new, Duration::ZERO).await;
        append.end_with(&appended);
        let appended = appended?;
        span.note("websub.notification", || appended.id().to_string());
        // Not before: what could not be stored is fetched again, and sent once.
        self.fan_out.charge(topic, bytes_to_send, clients);
        info!(id = %appended.id(), topic = topic.as_str(), bytes, "topic fetched: new content");
        // Before the next fetch gets this permit: so the log exceeds the share at most by what is fetched at once.
        if let Err(error) = self.log.make_room().await {
            warn!(%error, "log not trimmed to the strangers' share: the next fetch tries again");
        }
        Ok(())
    }

    /// Content that the subscribers have is not sent again (B-31): what was fetched before, or what was posted, which a Source may
    /// show at its topic (FN-032). Nor is an empty body that it may show instead, since there is no XML without an element.
    async fn is_unchanged(
        &self,
        topic: &Topic,
        before: Option<&Validators>,
        now: &Validators,
        posted: Option<&Notification>,
        fetched: &Fetched,
    ) -> Result<bool, StoreError> {
        let body = &fetched.answer.body;
        if posted.is_some_and(|posted| posted.body == *body) {
            return Ok(true);
        }
        if body.is_empty() && (topic.posted.0 > 0 || is_generic_xml(content_type(fetched))) {
            return Ok(true);
        }
        if let Some(before) = before {
            return Ok(before.digest == now.digest);
        }
        Ok(self.held(topic, topic.latest).await?.is_some_and(|flight| flight.body == *body))
    }

    /// The notification at an offset, if the log still holds it.
    async fn held(&self, topic: &Topic, offset: Offset) -> Result<Option<Arc<Notification>>, StoreError> {
        if offset.0 == 0 {
            return Ok(None);
        }
        let found = self.store.notification_from(topic.id, offset).await?;
        Ok(found.filter(|found| found.offset == offset))
    }

    /// The notification of a fetched topic, with the links and content type that it has (W-147, D-11, D-12).
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
            kind: ContentKind::Fetched,
            payer: Payer::Strangers(None),
            idempotency_key: None,
            interval: None,
            validators: Some(validators),
            received_at: self.store.now(),
            trace: None,
        })
    }
}

#[async_trait]
impl JobRunner for Fetcher {
    type Job = AcceptedPing;

    fn run(&self, pings: mpsc::UnboundedReceiver<AcceptedPing>) -> BoxFuture<'static, ()> {
        // Flights of its own: one that is cut must not be joined later.
        Box::pin(Self { flights: SingleFlight::default(), ..self.clone() }.fetch_all(pings))
    }

    async fn enqueue_waiting(
        &self,
        shards: &[Shard],
        queues: &JobQueues<AcceptedPing>,
    ) -> Result<(), StoreError> {
        for ping in self.store.pings(shards).await? {
            let shard = Shard::that_fetches(&ping.topic, self.store.shards());
            queues.send(shard, AcceptedPing::recovered(ping));
        }
        Ok(())
    }

    async fn jobs(&self, shard: Shard, accepted: &[Accepted]) -> Result<Vec<AcceptedPing>, StoreError> {
        let pings = accepted.iter().filter_map(|accepted| match accepted {
            Accepted::Ping(id) => Some(*id),
            Accepted::Request(_) | Accepted::Denial(_) => None,
        });
        let sought: HashSet<PingId> = pings.collect();
        if sought.is_empty() {
            return Ok(Vec::new());
        }
        let waiting = self.store.pings(&[shard]).await?;
        let found = waiting.into_iter().filter(|ping| sought.contains(&ping.id));
        Ok(found.map(AcceptedPing::recovered).collect())
    }
}

/// Remembers a name that took long to look up, and for which client: it may have any number of them.
fn note_slowness(permit: &Permit, took: Duration) {
    let slow = took > SLOW_LOOKUP;
    permit.set_slow(slow);
    if slow {
        permit.set_client_slow();
    }
}

/// Describes a fetch in its span.
fn describe(mut span: OpenSpan, topic: &TopicUrl, result: &Result<(), FetchFailure>) {
    span.note("http.request.method", || "GET");
    span.note("server.address", || topic.url().host_str().unwrap_or_default().to_owned());
    span.note("websub.topic", || topic.as_str().to_owned());
    if let Err(FetchFailure::Topic(FetchError::Status(status))) = result {
        span.note("http.response.status_code", || status.as_u16());
    }
    span.end_with(result);
}

/// Destinations of a topic whose Source posts ResourceSync notifications get nothing else: a stranger's ping must not send them
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
    use std::iter;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UdpSocket};
    use tokio::sync::watch;
    use tokio::time::timeout;

    use super::*;
    use crate::concurrency::ClientClass;
    use crate::config::PublishPolicy;
    use crate::egress::{EgressClient, Guard, TlsRoots};
    use crate::rate_limiter::SharedRateLimiter;
    use crate::store::{self, Engine, Keyring, PingClient};
    use crate::topics::{Authority, RedirectLimit};

    /// How long a test waits for what must come.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn stranger(last: u8) -> Client {
        Client { network: Some([192, 0, 2, last].into()), class: ClientClass::Stranger }
    }

    fn fetcher(store: &Arc<dyn Store>) -> Fetcher {
        fetcher_behind(store, Guard::open_to(&["127.0.0.0/8"]), false)
    }

    fn fetcher_behind(store: &Arc<dyn Store>, guard: Guard, by_client: bool) -> Fetcher {
        let short = Duration::from_secs(5);
        let client = EgressClient::new(guard, short, short, 1);
        let authority = Authority::new(PublishPolicy::Open, store.registry()).unwrap();
        Fetcher::new(
            LogShares::new(Arc::clone(store), authority, 1_000_000),
            TopicClient::new(client, 1_024),
            BodyBudget::new(1_000_000),
            "http://hub.example/websub/".into(),
            FanOutLimit::new(false, 0, Arc::clone(store)),
            by_client,
            Tracer::default(),
        )
    }

    #[tokio::test]
    async fn b33_a_client_whose_topics_have_names_that_nobody_answers_for_has_few_lookups_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let nameservers = [silent.local_addr().unwrap()];
        let guard = Guard::new(vec![], vec![], &nameservers, TlsRoots::new(None).unwrap()).unwrap();
        let fetcher = fetcher_behind(&store, guard, true);
        let mut waiting = JoinSet::new();
        for (number, who) in (0..).zip(iter::repeat_n(stranger(1), 20).chain([stranger(2)])) {
            let topic = format!("http://n{number}.example/t").parse().unwrap();
            let ping = Ping { id: PingId(number), topic, trace: None, client: PingClient::default() };
            assert!(!fetcher.flights.join(&ping, who));
            let fetcher = fetcher.clone();
            waiting.spawn(async move { fetcher.permit(&ping, &[who]).await });
        }
        let (mut asked, mut query) = (HashSet::new(), [0; 512]);
        while !asked.contains("n20.example.") {
            let asking = timeout(PATIENCE, silent.recv_from(&mut query)).await;
            asking.expect("the other client's name is asked for").unwrap();
            asked.insert(name_in(&query));
        }
        assert!(asked.len() <= FOR_ONE_CLIENT.strangers + 1, "{asked:?}");
    }

    #[tokio::test]
    async fn b33_a_client_with_a_name_that_nobody_answers_for_is_slow_under_any_new_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let Fetcher { lookups, .. } = fetcher_behind(&store, Guard::open_to(&[]), true);
        let is_slow = async |last: u8, name: &str| lookups.acquire(stranger(last), name).await.is_slow();
        note_slowness(&lookups.acquire(stranger(1), "quick.example").await, SLOW_LOOKUP);
        assert!(!is_slow(1, "quick.example").await);
        note_slowness(&lookups.acquire(stranger(1), "silent.example").await, 2 * SLOW_LOOKUP);
        assert!(is_slow(1, "new.example").await && is_slow(2, "silent.example").await);
        assert!(!is_slow(2, "new.example").await, "nobody else is");
    }

    /// A host that sends everybody to this one, and counts how often.
    async fn detour(address: &str, to: &TcpListener) -> (TopicUrl, Arc<AtomicUsize>) {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let topic = format!("http://{}/t", listener.local_addr().unwrap()).parse().unwrap();
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            to.local_addr().unwrap()
        );
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let _ = stream.read(&mut [0; 4_096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (topic, asked)
    }

    /// A topic with a subscriber whose host redirects to `target`, and a fetcher of which `of` has used up what `rate` gives it there.
    async fn redirected(
        store: &Arc<dyn Store>,
        target: &TcpListener,
        rate: &str,
        of: Client,
    ) -> (Fetcher, Ping, Arc<AtomicUsize>) {
        let hosts = SharedRateLimiter::new(true, rate.parse().unwrap());
        while hosts.admit(of.network, "127.0.9.1", Instant::now()).is_ok() {}
        let (topic, asked) = detour("127.0.8.1", target).await;
        store::subscribe(&**store, &topic, &"http://destination.example/d".parse().unwrap()).await;
        let ping = store.put_ping(topic, None, PingClient::default()).await.unwrap();
        let plain = fetcher(store);
        let client = plain.client.clone().limiting_redirects(RedirectLimit::new(hosts));
        let fetcher = Fetcher { client, ..plain };
        assert!(!fetcher.flights.join(&ping, of));
        (fetcher, ping, asked)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn while_a_redirect_waits_the_topics_own_host_is_not_asked_until_the_next_ping() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let target = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let (fetcher, ping, asked) = redirected(&store, &target, "1/h, burst 1", stranger(1)).await;
        let (serving, first) = (fetcher.clone(), ping.clone());
        tokio::spawn(async move {
            let flights = serving.flights.clone();
            flights.serve(first, |ping, clients| serving.clone().serve(ping, clients)).await;
        });
        while asked.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let again = store.put_ping(ping.topic, None, PingClient::default()).await.unwrap();
        assert!(fetcher.flights.join(&again, stranger(2)), "the first one waits");
        let contacted = timeout(PATIENCE, target.accept()).await;
        assert!(contacted.expect("the second client has not used up anything").is_ok());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_redirect_that_waited_is_followed_once_its_host_may_be_asked_and_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let target = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let (fetcher, ping, _) = redirected(&store, &target, "1/s, burst 1", stranger(1)).await;
        let who = [stranger(1)];
        let fetching = fetcher.fetch_with_retries(&ping, &who);
        let contacted = tokio::select! {
            contacted = timeout(PATIENCE, target.accept()) => contacted,
            outcome = fetching => panic!("{outcome:?} without asking"),
        };
        assert!(contacted.expect("it waits for one second or two").is_ok());
    }

    /// The name that a query asks for (RFC 1035, section 4.1.2).
    fn name_in(query: &[u8]) -> String {
        let (mut name, mut rest) = (String::new(), &query[12..]);
        while let Some((length, labels)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, others) = labels.split_at(usize::from(*length));
            name.push_str(std::str::from_utf8(label).unwrap());
            name.push('.');
            rest = others;
        }
        name.to_ascii_lowercase()
    }

    /// As many may wait as there are topics.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_that_waits_to_be_fetched_takes_few_kilobytes() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let ping = store
            .put_ping("http://source.example/t".parse().unwrap(), None, PingClient::default())
            .await
            .unwrap();
        let takes = size_of_val(&fetcher(&store).serve(ping, Vec::new()));
        assert!(takes <= 4 * 1_024, "{takes}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_ping_that_waits_is_served_by_who_takes_its_shard_over_and_no_longer_by_who_lets_it_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let source = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let topic: TopicUrl = format!("http://{}/t", source.local_addr().unwrap()).parse().unwrap();
        store::subscribe(&*store, &topic, &"http://destination.example/d".parse().unwrap()).await;
        let shard = Shard::that_fetches(&topic, store.shards());
        store.put_ping(topic.clone(), None, PingClient::default()).await.unwrap();
        let (_running, stop) = watch::channel(false);
        let hubs = [(), ()].map(|()| {
            let (queues, work) = JobQueues::new_pair();
            tokio::spawn(work.run(stop.clone()));
            fetcher(&store).in_shards(queues)
        });
        let mut asked = Vec::new();
        for hub in [&hubs[0], &hubs[1], &hubs[0]] {
            hub.take(&[shard]).await.unwrap();
            asked.push(source.accept().await.unwrap());
            hub.let_go(shard);
        }
        hubs[1].take(&[shard]).await.unwrap();
        let (mut stream, _) = source.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4_096]).await.unwrap() > 0);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nnew";
        stream.write_all(answer).await.unwrap();
        while !store.pings(&store.all_shards()).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.topic(&topic).await.unwrap().unwrap().latest, Offset(1), "it was fetched once");
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
        store.put_ping(topic.clone(), None, PingClient::default()).await.unwrap_err();

        let fetcher = fetcher(&store);
        let peer = fetcher.client.peer(topic.url()).await;
        let mut permit =
            fetcher.limiter.acquire(Client { network: None, class: ClientClass::Trusted }, &peer).await;
        let mut span = fetcher.tracer.begin_below(None, "fetch", SpanKind::Client);
        tokio::select! {
            fetched = fetcher.fetch_once(&topic, &[], None, &mut permit, &mut span) => {
                let full = matches!(fetched, Err(FetchFailure::Store(StoreError::Full { .. })));
                assert!(full, "{fetched:?}");
            }
            _ = source.accept() => panic!("the Source was asked"),
        }
    }
}
