//! Pings: a publisher says that a topic changed, and the hub fetches the topic itself (W-132, C-04, C-05).
//!
//! A ping is durable before it is acknowledged and forgotten only after the topic was fetched or given up. Pings that come
//! while the topic is being fetched are one more fetch, however many they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, LINK, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use resync_core::datetime::DateTime;
use resync_core::websub::{LinkHeader, TopicUrl};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use url::Url;

use crate::egress::{self, Answer, EgressClient, EgressError, ReadLimit};
use crate::store::{NewNotification, NotificationLinks, Ping, PingId, Rule, Store, StoreError, Topic};

/// Fetches at once.
const AT_ONCE: usize = 32;
/// Redirects followed, each of which the address guard judges anew.
const REDIRECTS: usize = 5;
/// Pauses before a topic that cannot be fetched is tried again; then the ping is given up.
const AGAIN_AFTER: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(300)];

/// Takes pings in.
#[derive(Clone, Debug)]
pub struct Pings {
    store: Arc<dyn Store>,
    fetching: mpsc::UnboundedSender<Ping>,
}

impl Pings {
    /// `fetching` gets each ping once it is durable.
    pub fn new(store: Arc<dyn Store>, fetching: mpsc::UnboundedSender<Ping>) -> Self {
        Self { store, fetching }
    }

    /// Accepts a ping. When this returns, a crash no longer loses it. A topic that nobody ever subscribed to is accepted and
    /// needs no fetch (C-04).
    ///
    /// # Errors
    /// [`StoreError`], which leaves nothing behind.
    pub async fn accept(&self, topic: TopicUrl) -> Result<(), StoreError> {
        if self.store.topic(&topic).await?.is_none() {
            debug!(topic = topic.as_str(), "ping for a topic without subscriptions");
            return Ok(());
        }
        let ping = self.store.put_ping(topic).await?;
        // At shutdown nobody listens any more; the ping is durable and waits for the next start.
        let _ = self.fetching.send(ping);
        Ok(())
    }
}

/// Fetches pinged topics.
#[derive(Clone, Debug)]
pub struct Fetching {
    store: Arc<dyn Store>,
    client: EgressClient,
    public_hub: String,
    largest: usize,
    /// The newest ping of each topic that is being fetched.
    under_way: Arc<Mutex<HashMap<TopicUrl, PingId>>>,
    /// Tells those who wait before trying again that a ping has come in.
    pinged: Arc<Notify>,
}

/// Why a topic has no content for its subscribers now.
#[derive(Debug, thiserror::Error)]
enum Unfetched {
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("the topic answered {0} instead of 200")]
    Status(StatusCode),
    #[error("more than {REDIRECTS} redirects")]
    Redirects,
    #[error("a redirect leads nowhere")]
    Location,
    #[error("the topic cannot be asked for: {0}")]
    Request(#[from] http::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A topic's content with the address where it finally was.
struct Fetched {
    url: Url,
    answer: Answer,
}

impl Fetching {
    /// `public_hub` stands in deliveries of topics that name no hub (D-12); `largest` bounds a topic's size in bytes.
    pub fn new(store: Arc<dyn Store>, client: EgressClient, public_hub: String, largest: usize) -> Self {
        Self { store, client, public_hub, largest, under_way: Arc::default(), pinged: Arc::default() }
    }

    /// Fetches whatever is pinged, until `stop` turns true.
    pub async fn run(self, pings: mpsc::UnboundedReceiver<Ping>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.fetch_all(pings) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn fetch_all(&self, mut pings: mpsc::UnboundedReceiver<Ping>) {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        while let Some(ping) = pings.recv().await {
            if self.joins(&ping) {
                continue;
            }
            let (fetching, permits) = (self.clone(), Arc::clone(&permits));
            tasks.spawn(async move { fetching.serve(ping, &permits).await });
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Whether a fetch of this topic is under way, which then repeats itself for this ping.
    fn joins(&self, ping: &Ping) -> bool {
        let joins = self.under_way().insert(ping.topic.clone(), ping.id).is_some();
        self.pinged.notify_waiters();
        joins
    }

    /// Fetches the topic until no ping for it is left.
    async fn serve(&self, mut ping: Ping, permits: &Semaphore) {
        loop {
            self.fetch_patiently(&ping, permits).await;
            if let Err(error) = self.store.remove_ping(&ping).await {
                warn!(topic = ping.topic.as_str(), %error, "ping not removed: the topic is fetched again at the next start");
            }
            match self.newer(&ping) {
                Some(newer) => ping.id = newer,
                None => return,
            }
        }
    }

    /// The ping that came while this one was served; without one the topic is no longer under way.
    fn newer(&self, served: &Ping) -> Option<PingId> {
        let mut under_way = self.under_way();
        let newest = under_way.get(&served.topic).copied().filter(|newest| *newest != served.id);
        if newest.is_none() {
            under_way.remove(&served.topic);
        }
        newest
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<TopicUrl, PingId>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch_patiently(&self, ping: &Ping, permits: &Semaphore) {
        let topic = &ping.topic;
        let mut pauses = AGAIN_AFTER.iter();
        loop {
            let Ok(permit) = permits.acquire().await else { return };
            let result = self.fetch_once(topic).await;
            drop(permit);
            let Err(error) = result else { return };
            if matches!(error, Unfetched::Egress(EgressError::Exhausted)) {
                warn!(topic = topic.as_str(), %error, "topic not fetched yet");
                sleep(AGAIN_AFTER[0]).await;
                continue;
            }
            match pauses.next() {
                Some(pause) => {
                    warn!(topic = topic.as_str(), %error, again_in = pause.as_secs(), "topic not fetched");
                    if timeout(*pause, self.until_newer(ping)).await.is_ok() {
                        return debug!(topic = topic.as_str(), "pinged again: fetching at once");
                    }
                }
                None => return warn!(topic = topic.as_str(), %error, "topic not fetched: ping given up"),
            }
        }
    }

    /// Waits for another ping of the same topic.
    async fn until_newer(&self, ping: &Ping) {
        loop {
            let pinged = self.pinged.notified();
            if self.under_way().get(&ping.topic) != Some(&ping.id) {
                return;
            }
            pinged.await;
        }
    }

    async fn fetch_once(&self, topic: &TopicUrl) -> Result<(), Unfetched> {
        let Some(known) = self.store.topic(topic).await? else { return Ok(()) };
        let fetched = self.get(topic.url().clone()).await?;
        if self.is_unchanged(&known, &fetched.answer).await? {
            debug!(topic = topic.as_str(), "topic fetched: unchanged");
            return Ok(());
        }
        let bytes = fetched.answer.body.len();
        let appended = self.store.append(self.notification(topic, fetched), Duration::ZERO).await?;
        info!(id = %appended.id(), topic = topic.as_str(), bytes, "topic fetched: new content");
        Ok(())
    }

    async fn get(&self, mut url: Url) -> Result<Fetched, Unfetched> {
        for _ in 0..=REDIRECTS {
            let request = Request::get(url.as_str())
                .header(ACCEPT, "*/*")
                .header(CACHE_CONTROL, "no-cache")
                .header(USER_AGENT, egress::USER_AGENT)
                .body(Full::new(Bytes::new()))?;
            let answer = self.client.send(request, ReadLimit::Keep(self.largest)).await?;
            match answer.status {
                StatusCode::OK => return Ok(Fetched { url, answer }),
                status if status.is_redirection() => url = redirect(&url, &answer.headers)?,
                status => return Err(Unfetched::Status(status)),
            }
        }
        Err(Unfetched::Redirects)
    }

    /// Content that the subscribers have got already is not sent again (B-31).
    async fn is_unchanged(&self, topic: &Topic, answer: &Answer) -> Result<bool, StoreError> {
        let newest = self.store.notification_from(topic.id, topic.latest).await?;
        Ok(topic.latest.0 > 0
            && newest.is_some_and(|newest| newest.offset == topic.latest && newest.body == answer.body))
    }

    /// What the topic says about itself goes out as it says it (W-147, D-11, D-12).
    fn notification(&self, topic: &TopicUrl, Fetched { url, answer }: Fetched) -> NewNotification {
        let links =
            LinkHeader::parse(answer.headers.get_all(LINK).iter().map(HeaderValue::as_bytes)).resolve(&url);
        let mut hubs: Vec<String> = links.with_rel("hub").map(str::to_owned).collect();
        if hubs.is_empty() {
            hubs.push(self.public_hub.clone());
        }
        let canonical = links.first("self").map_or_else(|| url.to_string(), str::to_owned);
        let content_type =
            answer.headers.get(CONTENT_TYPE).map_or(&b"application/octet-stream"[..], HeaderValue::as_bytes);
        NewNotification {
            topic: topic.clone(),
            content_type: Bytes::copy_from_slice(content_type),
            links: NotificationLinks {
                hubs,
                canonical,
                resourcesync: links.first("resourcesync").map(str::to_owned),
            },
            body: answer.body,
            rule: Rule::Latest,
            idempotency_key: None,
            interval: None,
            received_at: DateTime::now(),
        }
    }
}

fn redirect(from: &Url, headers: &HeaderMap) -> Result<Url, Unfetched> {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok()).ok_or(Unfetched::Location)?;
    let target = from.join(location).map_err(|_| Unfetched::Location)?;
    if matches!(target.scheme(), "http" | "https") { Ok(target) } else { Err(Unfetched::Location) }
}
