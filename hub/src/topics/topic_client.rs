//! Fetches a topic: a conditional GET that follows a few redirects.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, request};
use http_body_util::Full;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::redirect_limit::RedirectLimit;
use crate::concurrency::{Client, Limit, Permit, SlowLimit};
use crate::egress::{self, Answer, BodyMemory, EgressClient, EgressError, ReadLimit, RedirectError};
use crate::store::Validators;

/// Topics that each user of a [`TopicClient`] asks at once: in all and on slow networks. A slow network, or one with many names, should
/// not slow down others.
pub(super) const TOTAL: Limit = Limit { total: 32, strangers: 24 };
pub(super) const SLOW: SlowLimit = SlowLimit { trusted: 6, strangers: 8 };

/// Redirects that are followed. The address guard judges each.
const REDIRECTS: u32 = 5;
const REQUESTS: u32 = REDIRECTS + 1;

/// The longest `ETag` and `Last-Modified` that are kept; a longer one is ignored.
const LONGEST_VALIDATOR: usize = 256;

/// Fetches topics.
#[derive(Clone, Debug)]
pub struct TopicClient {
    client: EgressClient,
    largest: usize,
    limit: ReadLimit,
    /// `None` where redirects have no limit of their own.
    redirects: Option<RedirectLimit>,
}

/// A topic's content, with the URL after redirects.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) url: Url,
    /// The address that was asked first, and may have redirected.
    pub(super) from: IpAddr,
    pub(super) answer: Answer,
}

/// Why a topic was not fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("the topic answered {0} instead of 200")]
    Status(StatusCode),
    #[error("more than {REDIRECTS} redirects")]
    Redirects,
    #[error(transparent)]
    Redirect(#[from] RedirectError),
    #[error(
        "redirect to {host} waits: too many pings for that host; raise [limits] ping_host, or have the topic served without the redirect"
    )]
    RedirectLimited {
        host: String,
        /// How long to wait at least.
        wait: Duration,
    },
    #[error("the topic's URL is no target of an HTTP request: {0}")]
    Request(#[from] http::Error),
}

impl TopicClient {
    /// `largest` bounds a topic's size in bytes.
    pub fn new(client: EgressClient, largest: usize) -> Self {
        Self { client, largest, limit: ReadLimit::Keep(largest), redirects: None }
    }

    /// A client whose redirects count at their hosts.
    #[must_use]
    pub fn limiting_redirects(self, redirects: RedirectLimit) -> Self {
        Self { redirects: Some(redirects), ..self }
    }

    /// A client that keeps only so many bytes from the beginning of a topic.
    #[must_use]
    pub(super) fn beginnings(self, bytes: usize) -> Self {
        let largest = self.largest.min(bytes);
        Self { largest, limit: ReadLimit::First(largest), ..self }
    }

    /// The peer of this URL for concurrency limits: its network, since names cost nothing; without an address, its host.
    pub(super) async fn peer(&self, url: &Url) -> String {
        match self.client.network(url).await {
            Some(network) => network.to_string(),
            None => url.host_str().unwrap_or_default().to_owned(),
        }
    }

    /// The topic's content, within `memory`; `None` if it is what `known` describes. Only a 200 is content (D-11). All redirects
    /// together have the time of one request; in it they also wait for the permits of their peers. They count for `clients`, who
    /// caused the fetch, except one to the host at which they have [paid](Self::admit_redirect) before.
    pub(super) async fn get(
        &self,
        topic: &Url,
        known: Option<&Validators>,
        memory: &mut impl BodyMemory,
        permit: &mut Permit,
        clients: &[Client],
        mut paid: Option<&str>,
    ) -> Result<Option<Fetched>, FetchError> {
        let limit = self.client.total();
        let (deadline, late) = (Instant::now() + limit, || EgressError::Timeout(limit));
        let (mut url, mut from) = (topic.clone(), None);
        for _ in 0..REQUESTS {
            let known = known.filter(|known| known.url == url.as_str());
            let request = asking(&url, known).body(Full::new(Bytes::new()))?;
            let asked_at = Instant::now();
            let answer = timeout_at(deadline, self.client.send_within(request, self.limit, memory)).await;
            let answer = answer.unwrap_or_else(|_| Err(late()));
            note(&answer, asked_at.elapsed() >= limit / REQUESTS, permit);
            let answer = answer?;
            let from = *from.get_or_insert(answer.peer);
            match answer.status {
                StatusCode::OK => return Ok(Some(Fetched { url, from, answer })),
                StatusCode::NOT_MODIFIED if known.is_some() => return Ok(None),
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => {
                    url = self.redirected(&url, &answer.headers, clients, &mut paid)?;
                }
                status => return Err(FetchError::Status(status)),
            }
            let moved = async { permit.move_to(&self.peer(&url).await).await };
            timeout_at(deadline, moved).await.map_err(|_| late())?;
        }
        Err(FetchError::Redirects)
    }

    /// Counts a redirect to another host for these clients.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit_redirect(&self, host: &str, clients: &[Client]) -> Result<(), Duration> {
        match &self.redirects {
            Some(redirects) => redirects.admit(host, clients, std::time::Instant::now()),
            None => Ok(()),
        }
    }

    /// Where a redirect leads. One to another host counts there; the ping has paid for its own.
    fn redirected(
        &self,
        from: &Url,
        headers: &HeaderMap,
        clients: &[Client],
        paid: &mut Option<&str>,
    ) -> Result<Url, FetchError> {
        let to = egress::redirect(from, headers)?;
        let host = to.host_str().unwrap_or_default();
        if from.host_str() == Some(host) {
            return Ok(to);
        }
        if *paid == Some(host) {
            *paid = None;
        } else if let Err(wait) = self.admit_redirect(host, clients) {
            return Err(FetchError::RedirectLimited { host: host.to_owned(), wait });
        }
        Ok(to)
    }
}

impl Fetched {
    /// The validators of this content, for the next conditional GET.
    pub(super) fn validators(&self) -> Validators {
        let value = |name: HeaderName| {
            let value = self.answer.headers.get(name).map(HeaderValue::as_bytes);
            value.filter(|value| value.len() <= LONGEST_VALIDATOR).map(Bytes::copy_from_slice)
        };
        Validators {
            url: self.url.to_string(),
            etag: value(ETAG),
            last_modified: value(LAST_MODIFIED),
            digest: Sha256::digest(&self.answer.body).into(),
        }
    }
}

/// Remembers whether the peer was slow: a redirect that took more than its part of the time, or a timeout, unless the time was
/// used up before.
fn note(answer: &Result<Answer, EgressError>, long: bool, permit: &Permit) {
    match answer {
        Ok(answer) => permit.set_slow(long && answer.status.is_redirection()),
        Err(EgressError::Timeout(_)) if long => permit.set_slow(true),
        Err(_) => {}
    }
}

/// No cache on the way may answer with the content before the change (w3c/websub#84).
fn asking(url: &Url, known: Option<&Validators>) -> request::Builder {
    let mut request = Request::get(url.as_str())
        .header(ACCEPT, "*/*")
        .header(CACHE_CONTROL, "no-cache")
        .header(USER_AGENT, egress::USER_AGENT);
    let validators = known
        .into_iter()
        .flat_map(|known| [(IF_NONE_MATCH, &known.etag), (IF_MODIFIED_SINCE, &known.last_modified)]);
    for (name, value) in validators {
        // What came as a header value can be sent as one.
        if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_bytes(value).ok()) {
            request = request.header(name, value);
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::concurrency::{ClientClass, ConcurrencyLimits, Limiter};
    use crate::egress::{Guard, Unlimited};
    use crate::rate_limiter::SharedRateLimiter;

    const SHORT: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(300);

    fn client(total: Duration) -> TopicClient {
        TopicClient::new(EgressClient::new(Guard::open_to(&["127.0.0.0/8"]), SHORT, total, 1), 1_024)
    }

    fn limiter() -> Limiter {
        let one = Limit { total: 1, strangers: 1 };
        let slow = SlowLimit { trusted: 9, strangers: 9 };
        Limiter::new(ConcurrencyLimits {
            total: Limit { total: 9, strangers: 9 },
            slow,
            peer: one,
            client: None,
        })
    }

    async fn permit(limiter: &Limiter, topic: &Url) -> Permit {
        let peer = client(SHORT).peer(topic).await;
        limiter.acquire(Client { network: None, class: ClientClass::Stranger }, &peer).await
    }

    async fn get(limiter: &Limiter, topic: &Url, total: Duration) -> Result<Option<Fetched>, FetchError> {
        client(total).get(topic, None, &mut Unlimited, &mut permit(limiter, topic).await, &[], None).await
    }

    /// A host at this address that sends everybody to this URL.
    async fn sending(address: &str, to: &Url) -> Url {
        sending_after(Duration::ZERO, address, to).await
    }

    async fn sending_after(pause: Duration, address: &str, to: &Url) -> Url {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                sleep(pause).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url
    }

    #[tokio::test]
    async fn b33_a_slow_redirect_counts_for_its_own_host_and_not_for_its_target() {
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let victim: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        // Wide enough that no delay of this machine looks like waiting for the victim.
        let total = 3 * SHORT;
        let detour = sending_after(total.mul_f32(0.95), "127.0.8.1", &victim).await;
        let limiter = limiter();
        let late = get(&limiter, &detour, total).await;
        assert!(matches!(late, Err(FetchError::Egress(EgressError::Timeout(_)))), "{late:?}");
        assert!(!permit(&limiter, &victim).await.is_slow());
        assert!(permit(&limiter, &detour).await.is_slow());
    }

    #[tokio::test]
    async fn b33_a_redirect_waits_for_a_permit_at_its_target() {
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let victim: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let detour = sending("127.0.8.1", &victim).await;
        let limiter = limiter();
        let taken = permit(&limiter, &victim).await;
        let late = get(&limiter, &detour, SHORT).await;
        assert!(matches!(late, Err(FetchError::Egress(EgressError::Timeout(_)))), "{late:?}");
        let contacted = timeout(Duration::ZERO, listener.accept()).await;
        assert!(contacted.is_err(), "all limiter there were taken");
        drop(taken);
        let contacted = tokio::select! {
            contacted = listener.accept() => contacted,
            found = get(&limiter, &detour, LONG) => panic!("{found:?} without asking"),
        };
        assert!(contacted.is_ok());
    }

    #[tokio::test]
    async fn b33_a_redirect_is_not_followed_while_its_host_has_nothing_left_for_who_pinged() {
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let victim: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let detour = sending("127.0.8.1", &victim).await;
        let [pinged, other] = [1, 2]
            .map(|last| Client { network: Some([192, 0, 2, last].into()), class: ClientClass::Stranger });
        let hosts = SharedRateLimiter::new(true, "1/h, burst 1".parse().unwrap());
        // A ping of a topic on the victim's host.
        hosts.admit(pinged.network, "127.0.9.1", std::time::Instant::now()).unwrap();
        let (redirects, limiter) = (RedirectLimit::new(hosts), limiter());
        let get = async |who: &Client, paid: Option<&str>| {
            let client = client(LONG).limiting_redirects(redirects.clone());
            let mut permit = permit(&limiter, &detour).await;
            client.get(&detour, None, &mut Unlimited, &mut permit, std::slice::from_ref(who), paid).await
        };
        for paid in [None, Some("127.0.9.2")] {
            let refused = get(&pinged, paid).await;
            assert!(matches!(refused, Err(FetchError::RedirectLimited { .. })), "{refused:?}");
            assert!(refused.unwrap_err().to_string().contains("redirect to 127.0.9.1 waits"));
        }
        assert!(timeout(Duration::ZERO, listener.accept()).await.is_err(), "the victim was asked");
        for (who, paid) in [(&other, None), (&pinged, Some("127.0.9.1"))] {
            let contacted = tokio::select! {
                contacted = listener.accept() => contacted,
                found = get(who, paid) => panic!("{found:?} without asking"),
            };
            assert!(contacted.is_ok());
        }
    }

    #[tokio::test]
    async fn whoever_sends_the_hub_elsewhere_is_where_the_content_is_from() {
        let listener = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let victim: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmuch").await.unwrap();
        });
        let detour = sending("127.0.8.1", &victim).await;
        let fetched = get(&limiter(), &detour, LONG).await.unwrap().unwrap();
        assert_eq!((fetched.url, fetched.from), (victim, IpAddr::from([127, 0, 8, 1])));
    }

    #[tokio::test]
    async fn d11_all_redirects_together_have_the_time_of_one_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let topic: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                // A host that is in no hurry.
                sleep(Duration::from_millis(300)).await;
                let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
            }
        });
        let fetched = get(&limiter(), &topic, SHORT).await;
        assert!(matches!(fetched, Err(FetchError::Egress(EgressError::Timeout(_)))), "{fetched:?}");
    }
}
