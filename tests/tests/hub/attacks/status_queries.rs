//! Queries for the status of a notification are bounded for each client (L3).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use resync_harness::{Answer, HubProcess, PROXY, eventually, post, request};
use tempfile::tempdir;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const TOPIC: &str = "http://source.example/topic";
const STRANGER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);
const PUBLISHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Connections of the stranger at any moment.
const CONNECTIONS: usize = 64;
/// How many of its queries a client may have at once, and then every second.
const BURST: u64 = 20;
/// Far more than an answer takes, far less than one that waits behind the flood.
const PROMPTLY: Duration = Duration::from_secs(10);

async fn query(hub: SocketAddr, client: Ipv4Addr, target: &str) -> Answer {
    let asked = format!(
        "GET {target} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nX-Forwarded-For: {client}\r\n\r\n"
    );
    request(hub, asked.as_bytes()).await.unwrap()
}

/// Publishes something, and says where its status is.
async fn published(hub: &HubProcess) -> String {
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let client = PUBLISHER.to_string();
    let headers =
        [("Content-Type", "text/plain"), ("Link", link.as_str()), ("X-Forwarded-For", client.as_str())];
    let answer = post(hub.address, &headers, b"news").await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
    let location = answer.header("location").unwrap();
    location.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned())).unwrap()
}

/// A stranger who asks for a status on many connections, again as soon as it has an answer.
struct Flood {
    tally: Arc<Tally>,
    asking: JoinSet<()>,
    since: Instant,
}

/// What it got.
#[derive(Default)]
struct Tally {
    is_over: AtomicBool,
    not_found: AtomicU64,
    refused: AtomicU64,
    /// Refused without a word when to come back, or answered otherwise.
    others: AtomicU64,
}

impl Tally {
    fn note(&self, answer: &Answer) {
        let count = match (answer.status, answer.header("retry-after")) {
            (404, _) => &self.not_found,
            (429, Some(_)) => &self.refused,
            _ => &self.others,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn answers(&self) -> u64 {
        [&self.not_found, &self.refused, &self.others].map(|count| count.load(Ordering::Relaxed)).iter().sum()
    }
}

impl Flood {
    fn start(hub: SocketAddr, target: &str) -> Self {
        let (tally, mut asking, since) = (Arc::<Tally>::default(), JoinSet::new(), Instant::now());
        for _ in 0..CONNECTIONS {
            let (tally, target) = (Arc::clone(&tally), target.to_owned());
            asking.spawn(async move {
                while !tally.is_over.load(Ordering::Relaxed) {
                    tally.note(&query(hub, STRANGER, &target).await);
                }
            });
        }
        Self { tally, asking, since }
    }

    /// Until it got so many answers more.
    async fn goes_on(&self, answers: u64) {
        let enough = self.tally.answers() + answers;
        eventually("the flood goes on", || async { self.tally.answers() >= enough }).await;
    }

    /// What it got, and for how long it asked.
    async fn stop(self) -> (Arc<Tally>, Duration) {
        self.tally.is_over.store(true, Ordering::Relaxed);
        self.asking.join_all().await;
        (self.tally, self.since.elapsed())
    }
}

#[tokio::test]
async fn b33_while_a_stranger_floods_the_hub_with_status_queries_a_publisher_gets_its_answers() {
    let folder = tempdir().unwrap();
    let rate = format!("1/s, burst {BURST}");
    let hub = HubProcess::start_public(folder.path(), &[PROXY, ("LIMITS_CLIENT", &rate)]).await;
    let status = published(&hub).await;
    // Without its ticket no notification exists.
    let flood = Flood::start(hub.address, status.split('?').next().unwrap());
    for _ in 0..10 {
        // Each time it has used up whatever it may, and asks on.
        flood.goes_on(CONNECTIONS as u64 + BURST).await;
        let answer = timeout(PROMPTLY, query(hub.address, PUBLISHER, &status)).await;
        assert_eq!(answer.expect("the publisher is answered promptly").status, 200);
    }
    flood.goes_on(1).await;
    let (tally, lasted) = flood.stop().await;
    assert_eq!(tally.others.load(Ordering::Relaxed), 0, "each is told when to come back");
    let (served, refused) = (tally.not_found.load(Ordering::Relaxed), tally.refused.load(Ordering::Relaxed));
    let may = BURST + lasted.as_secs() + 1;
    assert!((1..=may).contains(&served), "{served} were looked at, {refused} were not, in {lasted:?}");
    assert!(refused >= 10 * CONNECTIONS as u64, "{served} were looked at, {refused} were not");
}
