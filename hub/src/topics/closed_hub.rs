//! Which topics this hub serves: any, or only its own (D-13).

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::StatusCode;
use lru::LruCache;
use resync_core::websub::TopicUrl;
use tracing::debug;

use super::discover::discover_in;
use super::get::{Fetched, TopicClient, Unfetched};
use super::policy::{TopicPolicy, Verdict};
use crate::config::Prefixes;
use crate::egress::{EgressError, Unmeasured};
use crate::places::{Asker, Bounds, Lane, Place, Places, Share, Slow};

/// Topics looked at at once: in all, on slow networks, on one network and for one client.
const ALL: Share = Share { most: 32, strangers: 24 };
const SLOW: Slow = Slow { known: 6, strangers: 8 };
const ON_ONE_NETWORK: Share = Share { most: 4, strangers: 2 };
const FOR_ONE_CLIENT: Share = Share { most: 4, strangers: 2 };
/// For so long strangers are told what was found before.
const REMEMBER: Duration = Duration::from_secs(30);
/// Verdicts remembered, and the longest reason of one.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4_096).expect("four thousand is not zero");
const LONGEST_REMEMBERED: usize = 1_024;
/// How much of a topic is read: what it says of itself stands at its beginning (W-026). So few are read at once that this needs
/// no budget.
const LOOKED_THROUGH: usize = 512 * 1024;
/// All that is said of a topic that could not be looked at. It goes to a stranger's callback, which must not learn from it what
/// there is in this hub's network (D-20); the log says more.
const UNSEEN: &str = "this hub serves topics that name it, and whether this one does cannot be seen";

/// A hub for topics that name it, or that lie below allowed prefixes.
#[derive(Clone, Debug)]
pub struct ClosedHub {
    allowed: Prefixes,
    client: TopicClient,
    hub_url: Arc<str>,
    checks: Places,
    found: Arc<Found>,
}

/// What was found of late about topics, by the hash of each: that it is not served, or that the hub waited in vain. What
/// follows from an acceptance lasts longer than this, so that each is looked up anew.
#[derive(Debug)]
struct Found {
    hasher: RandomState,
    verdicts: Mutex<LruCache<u64, (Verdict, Instant)>>,
}

impl Found {
    fn new() -> Self {
        Self { hasher: RandomState::new(), verdicts: Mutex::new(LruCache::new(REMEMBERED)) }
    }

    fn put(&self, topic: &TopicUrl, verdict: &Verdict) {
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// For strangers: all others are let look anew.
    fn get(&self, topic: &TopicUrl, asker: Asker) -> Option<Verdict> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let (verdict, since) = verdicts.peek(&self.hasher.hash_one(topic.key()))?;
        (asker.lane == Lane::Stranger && since.elapsed() < REMEMBER).then(|| verdict.clone())
    }
}

impl ClosedHub {
    /// Topics below `allowed` are served unasked; others are asked whether they name `hub_url`. With `by_client` no client has
    /// more than its share of what is asked at once.
    pub fn new(allowed: Prefixes, client: TopicClient, hub_url: Arc<str>, by_client: bool) -> Self {
        let client = client.beginnings(LOOKED_THROUGH);
        let bounds = Bounds {
            all: ALL,
            slow: SLOW,
            here: ON_ONE_NETWORK,
            client: by_client.then_some(FOR_ONE_CLIENT),
        };
        Self { allowed, client, hub_url, checks: Places::new(bounds), found: Arc::new(Found::new()) }
    }

    async fn look_at(&self, topic: &TopicUrl, place: &mut Place) -> Verdict {
        match self.client.get(topic.url(), None, &mut Unmeasured, place).await {
            Ok(Some(fetched)) => self.read(topic, &fetched).await,
            Ok(None) => Verdict::Refused(UNSEEN.to_owned()),
            Err(error) => {
                debug!(topic = topic.as_str(), %error, "whether the topic names this hub cannot be seen");
                // Where an error came at once, asking again costs nobody anything.
                if matches!(error, Unfetched::Egress(EgressError::Timeout(_))) {
                    self.found.put(topic, &Verdict::Unknown);
                }
                if may_pass(&error) { Verdict::Unknown } else { Verdict::Refused(UNSEEN.to_owned()) }
            }
        }
    }

    /// The verdict on a topic that was looked at.
    async fn read(&self, topic: &TopicUrl, fetched: &Fetched) -> Verdict {
        let found = match discover_in(fetched).await {
            Ok(found) => found,
            Err(oversized) => return Verdict::Refused(oversized.to_string()),
        };
        let same = |named: &String| named.trim_end_matches('/') == self.hub_url.trim_end_matches('/');
        if !found.hubs.iter().any(same) {
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
    fn at_once(&self, topic: &TopicUrl, asker: Asker) -> Option<Verdict> {
        if self.allowed.cover(topic) {
            return Some(Verdict::Accepted);
        }
        self.found.get(topic, asker)
    }

    fn places(&self) -> Option<&Places> {
        Some(&self.checks)
    }

    async fn whereabouts(&self, topic: &TopicUrl) -> String {
        self.client.whereabouts(topic.url()).await
    }

    async fn look(&self, topic: &TopicUrl, place: Option<&mut Place>) -> Verdict {
        let Some(place) = place else { return Verdict::Unknown };
        let verdict = self.look_at(topic, place).await;
        if verdict != Verdict::Unknown {
            self.found.put(topic, &verdict);
        }
        verdict
    }
}

/// Whether it may be otherwise soon. Only an answer is final: whether there is none for want of a name, of a server or of a
/// permission to connect makes no difference to whoever asks.
fn may_pass(error: &Unfetched) -> bool {
    match error {
        Unfetched::Egress(error) => !matches!(error, EgressError::TooLarge(_) | EgressError::Compressed),
        Unfetched::Status(status) => {
            status.is_server_error()
                || matches!(
                    *status,
                    StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
                )
        }
        Unfetched::Redirects | Unfetched::Redirect(_) | Unfetched::Request(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::egress::{EgressClient, Guard};

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

    const STRANGER: Asker = Asker { client: None, lane: Lane::Stranger };
    const KNOWN: Asker = Asker { client: None, lane: Lane::Known };

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
                Verdict::Refused(UNSEEN.into()),
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
        let client = TopicClient::new(client, 64 * LOOKED_THROUGH);
        let hub = ClosedHub::new(Prefixes::default(), client, "http://hub.example/".into(), true);
        let endless = format!(
            "HTTP/1.1 200 OK\r\nLink: <http://hub.example/>; rel=hub\r\nContent-Length: {}\r\n\r\n{}",
            64 * LOOKED_THROUGH,
            "x".repeat(LOOKED_THROUGH)
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
        for asker in [KNOWN, STRANGER] {
            let (found, ()) = tokio::join!(hub.judge(&topic, asker), answer(link));
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
