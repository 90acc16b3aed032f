//! A policy for hubs that serve only topics that name them, or below allowed prefixes (D-13).

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::StatusCode;
use lru::LruCache;
use resync_common::locks::lock;
use resync_core::websub::{TopicUrl, is_same_hub};
use tracing::debug;

use super::discover::discover_in;
use super::policy::{TopicPolicy, Verdict};
use super::topic_client::{FetchError, Fetched, SLOW, TOTAL, TopicClient};
use crate::concurrency::{Client, ClientClass, ConcurrencyLimits, Limit, Limiter, Permit};
use crate::config::Prefixes;
use crate::egress::{EgressError, Unlimited};

/// Topics looked at at once on one network and for one client.
const ON_ONE_NETWORK: Limit = Limit { total: 4, strangers: 2 };
const FOR_ONE_CLIENT: Limit = Limit { total: 4, strangers: 2 };
/// How long a verdict is repeated to strangers.
const REMEMBER: Duration = Duration::from_secs(30);
/// Verdicts that are remembered, and the longest reason of one.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4_096).expect("four thousand is not zero");
const LONGEST_REMEMBERED: usize = 1_024;
/// How much of a topic is read: its links stand at the beginning (W-026). So few are read at once that this needs no budget.
const BYTES_READ: usize = 512 * 1024;
/// The reason for a topic that could not be fetched. It goes to a stranger's callback, which must not learn from it what is in
/// this hub's network (D-20); the log says more.
const NOT_FETCHED: &str = "this hub serves only topics that name it, and it cannot fetch this one";

/// Accepts topics that name this hub, or below allowed prefixes.
#[derive(Clone, Debug)]
pub struct ClosedHub {
    allowed: Prefixes,
    client: TopicClient,
    hub_url: Arc<str>,
    checks: Limiter,
    recent: Arc<RecentVerdicts>,
}

/// Recent refusals and timeouts by the hash of the topic. An acceptance is not remembered: what follows from it lasts longer.
#[derive(Debug)]
struct RecentVerdicts {
    hasher: RandomState,
    verdicts: Mutex<LruCache<u64, (Verdict, Instant)>>,
}

impl RecentVerdicts {
    fn new() -> Self {
        Self { hasher: RandomState::new(), verdicts: Mutex::new(LruCache::new(REMEMBERED)) }
    }

    fn put(&self, topic: &TopicUrl, verdict: &Verdict) {
        let mut verdicts = lock(&self.verdicts);
        let key = self.hasher.hash_one(topic.key());
        match verdict {
            Verdict::Refused(reason) if reason.len() > LONGEST_REMEMBERED => {}
            Verdict::Refused(_) | Verdict::Unknown => {
                verdicts.put(key, (verdict.clone(), Instant::now()));
            }
            Verdict::Accepted => {
                verdicts.pop(&key);
            }
        }
    }

    /// For strangers; trusted clients have the topic looked at again.
    fn get(&self, topic: &TopicUrl, client: Client) -> Option<Verdict> {
        let verdicts = lock(&self.verdicts);
        let (verdict, since) = verdicts.peek(&self.hasher.hash_one(topic.key()))?;
        (!client.is_trusted() && since.elapsed() < REMEMBER).then(|| verdict.clone())
    }
}

impl ClosedHub {
    /// Topics below `allowed` are accepted; others are fetched to see whether they name `hub_url`. With `by_client` each client has
    /// a limit of its own.
    pub fn new(allowed: Prefixes, client: TopicClient, hub_url: Arc<str>, by_client: bool) -> Self {
        let client = client.beginnings(BYTES_READ);
        let bounds = ConcurrencyLimits {
            total: TOTAL,
            slow: SLOW,
            peer: ON_ONE_NETWORK,
            client: by_client.then_some(FOR_ONE_CLIENT),
        };
        Self {
            allowed,
            client,
            hub_url,
            checks: Limiter::new(bounds),
            recent: Arc::new(RecentVerdicts::new()),
        }
    }

    async fn look_at(&self, topic: &TopicUrl, client: Client, permit: &mut Permit) -> Verdict {
        // One confirmation makes a client trusted, which is not enough to lead the hub to others without a limit.
        let by = [Client { class: ClientClass::Stranger, ..client }];
        match self.client.get(topic.url(), None, &mut Unlimited, permit, &by, None).await {
            Ok(Some(fetched)) => self.read(topic, &fetched).await,
            Ok(None) => Verdict::Refused(NOT_FETCHED.to_owned()),
            Err(error) => {
                debug!(topic = topic.as_str(), %error, "topic not fetched: unknown whether it names this hub");
                // After an error that came at once, another try costs nobody anything.
                if matches!(error, FetchError::Egress(EgressError::Timeout(_))) {
                    self.recent.put(topic, &Verdict::Unknown);
                }
                if may_pass(&error) { Verdict::Unknown } else { Verdict::Refused(NOT_FETCHED.to_owned()) }
            }
        }
    }

    /// The verdict on a fetched topic.
    async fn read(&self, topic: &TopicUrl, fetched: &Fetched) -> Verdict {
        let found = match discover_in(fetched).await {
            Ok(found) => found,
            Err(oversized) => return Verdict::Refused(oversized.to_string()),
        };
        if !found.hubs.iter().any(|named| is_same_hub(named, &self.hub_url)) {
            return Verdict::Refused(format!(
                "the topic does not name this hub: it has no link with rel=\"hub\" to {}",
                self.hub_url
            ));
        }
        let canonical = found.canonical.and_then(|url| TopicUrl::parse(&url).ok());
        canonical.filter(|canonical| canonical != topic).map_or(Verdict::Accepted, |canonical| {
            Verdict::Refused(format!(
                "the topic names another URL as its own (rel=\"self\"): subscribe to {}",
                canonical.as_str()
            ))
        })
    }
}

#[async_trait]
impl TopicPolicy for ClosedHub {
    fn known_verdict(&self, topic: &TopicUrl, client: Client) -> Option<Verdict> {
        if self.allowed.cover(topic) {
            return Some(Verdict::Accepted);
        }
        self.recent.get(topic, client)
    }

    fn limiter(&self) -> Option<&Limiter> {
        Some(&self.checks)
    }

    async fn peer(&self, topic: &TopicUrl) -> String {
        self.client.peer(topic.url()).await
    }

    async fn look(&self, topic: &TopicUrl, client: Client, permit: Option<&mut Permit>) -> Verdict {
        let Some(permit) = permit else { return Verdict::Unknown };
        let verdict = self.look_at(topic, client, permit).await;
        if verdict != Verdict::Unknown {
            self.recent.put(topic, &verdict);
        }
        verdict
    }
}

/// Whether another try may succeed. Only an answer is final: whether there is none because of the name, the server or the address
/// guard makes no difference to the client.
fn may_pass(error: &FetchError) -> bool {
    match error {
        FetchError::Egress(error) => !matches!(error, EgressError::TooLarge(_) | EgressError::Compressed),
        FetchError::Status(status) => {
            status.is_server_error()
                || matches!(
                    *status,
                    StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
                )
        }
        FetchError::RedirectLimited { .. } => true,
        FetchError::Redirects | FetchError::Redirect(_) | FetchError::Request(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::egress::{EgressClient, Guard};
    use crate::rate_limiter::SharedRateLimiter;
    use crate::topics::RedirectLimit;

    /// A topic that always gives this answer.
    async fn topic(answer: &'static str) -> TopicUrl {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}/").parse().unwrap()
    }

    fn hub(open_to: &[&str]) -> ClosedHub {
        patient_hub(open_to, Duration::from_secs(1))
    }

    fn patient_hub(open_to: &[&str], patience: Duration) -> ClosedHub {
        let client =
            TopicClient::new(EgressClient::new(Guard::open_to(open_to), patience, patience, 1), 4_096);
        ClosedHub::new(Prefixes::default(), client, "http://hub.example/".into(), true)
    }

    const STRANGER: Client = Client { network: None, class: ClientClass::Stranger };
    const KNOWN: Client = Client { network: None, class: ClientClass::Trusted };

    #[tokio::test]
    async fn w062_what_may_pass_refuses_nothing() {
        let hub = hub(&["127.0.0.0/8"]);
        for status in ["408 Timeout", "425 Early", "429 Many", "500 Error", "502 Gateway", "503 Busy"] {
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").leak();
            assert_eq!(hub.judge(&topic(answer).await, STRANGER).await, Verdict::Unknown, "{status}");
        }
        assert_eq!(hub.judge(&topic("").await, STRANGER).await, Verdict::Unknown, "a connection that breaks");
        assert_eq!(
            hub.judge(&topic("HTTP/1.1 200 OK\r\n").await, STRANGER).await,
            Verdict::Unknown,
            "no end"
        );
        assert_eq!(
            hub.judge(&"http://127.0.0.1:1/".parse().unwrap(), STRANGER).await,
            Verdict::Unknown,
            "nobody there"
        );
    }

    #[tokio::test]
    async fn b33_requests_for_topics_that_redirect_lead_the_hub_to_no_host_more_often_than_pings_may() {
        let victim = TcpListener::bind("127.0.9.1:0").await.unwrap();
        let link = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            victim.local_addr().unwrap()
        );
        let topic = topic(link.leak()).await;
        let hosts = SharedRateLimiter::new(true, "1/h, burst 1".parse().unwrap());
        let of = |last: u8| Client { network: Some([192, 0, 2, last].into()), ..STRANGER };
        hosts.admit(of(1).network, "127.0.9.1", Instant::now()).unwrap();
        let open = patient_hub(&["127.0.0.0/8"], Duration::from_secs(300));
        let client = open.client.clone().limiting_redirects(RedirectLimit::new(hosts));
        let hub = ClosedHub { client, ..open };
        for class in [ClientClass::Stranger, ClientClass::Trusted] {
            assert_eq!(hub.judge(&topic, Client { class, ..of(1) }).await, Verdict::Unknown);
        }
        assert!(timeout(Duration::ZERO, victim.accept()).await.is_err(), "the victim was asked");
        let contacted = tokio::select! {
            contacted = victim.accept() => contacted,
            verdict = hub.judge(&topic, of(2)) => panic!("{verdict:?} without asking"),
        };
        assert!(contacted.is_ok());
    }

    #[tokio::test]
    async fn d20_of_a_topic_that_cannot_be_looked_at_nobody_learns_why() {
        let hub = hub(&["127.0.0.0/8"]);
        for answer in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: ftp://10.1.2.3/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ] {
            assert_eq!(
                hub.judge(&topic(answer).await, STRANGER).await,
                Verdict::Refused(NOT_FETCHED.into()),
                "{answer}"
            );
        }
    }

    #[tokio::test]
    async fn d20_an_address_that_may_not_be_contacted_looks_like_one_where_nobody_is() {
        let hub = hub(&[]);
        assert_eq!(hub.judge(&"http://10.1.2.3/".parse().unwrap(), STRANGER).await, Verdict::Unknown);
    }

    #[tokio::test]
    async fn a_check_takes_no_more_of_the_memory_for_bodies_than_a_pages_beginning() {
        let second = Duration::from_secs(1);
        let client = EgressClient::new(Guard::open_to(&["127.0.0.0/8"]), second, second, 1);
        let client = TopicClient::new(client, 64 * BYTES_READ);
        let hub = ClosedHub::new(Prefixes::default(), client, "http://hub.example/".into(), true);
        let endless = format!(
            "HTTP/1.1 200 OK\r\nLink: <http://hub.example/>; rel=hub\r\nContent-Length: {}\r\n\r\n{}",
            64 * BYTES_READ,
            "x".repeat(BYTES_READ)
        );
        assert_eq!(hub.judge(&topic(endless.leak()).await, STRANGER).await, Verdict::Accepted);
    }

    #[tokio::test]
    async fn b33_what_a_stranger_found_is_not_looked_for_again_for_strangers_but_for_others() {
        let hub = hub(&["127.0.0.0/8"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let topic: TopicUrl = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let answer = async |link: &str| {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let answer = format!("HTTP/1.1 200 OK\r\n{link}Content-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (found, ()) = tokio::join!(hub.judge(&topic, STRANGER), answer(""));
        assert!(matches!(found, Verdict::Refused(_)));
        assert_eq!(hub.judge(&topic, STRANGER).await, found, "nobody answers now");
        let link = "Link: <http://hub.example/>; rel=hub\r\n";
        for client in [KNOWN, STRANGER] {
            let (found, ()) = tokio::join!(hub.judge(&topic, client), answer(link));
            assert_eq!(found, Verdict::Accepted);
        }
    }

    #[tokio::test]
    async fn b33_tarpits_of_strangers_on_any_number_of_networks_hold_up_nobody_who_is_known() {
        let hub = patient_hub(&["127.0.0.0/8"], Duration::from_secs(300));
        let mut tarpits = Vec::new();
        for network in 0..16 {
            let listener = TcpListener::bind((format!("127.0.{network}.9"), 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            tarpits.push(
                (0..8).map(move |path| format!("http://{address}/{path}").parse::<TopicUrl>().unwrap()),
            );
            tokio::spawn(async move {
                let mut held = Vec::new();
                while let Ok(stream) = listener.accept().await {
                    held.push(stream);
                }
            });
        }
        let mut strangers = tokio::task::JoinSet::new();
        for topic in tarpits.into_iter().flatten() {
            let hub = hub.clone();
            strangers.spawn(async move { hub.judge(&topic, STRANGER).await });
        }
        let link = "HTTP/1.1 200 OK\r\nLink: <http://hub.example/>; rel=hub\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let topic = topic(link).await;
        assert_eq!(hub.judge(&topic, KNOWN).await, Verdict::Accepted);
        assert!(strangers.len() >= 128 && strangers.try_join_next().is_none(), "all of them wait");
        strangers.abort_all();
    }
}
