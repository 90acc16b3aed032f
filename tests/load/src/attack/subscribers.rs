//! Honest subscribers: which notification came to which of them, and when.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::{Instant, sleep, timeout};

use super::client::{Client, apart, close};
use super::honest::{DIGITS, Post, TOPIC};
use super::latency::Latency;
use super::server::{Reply, Server, TAKEN, challenge, status};
use crate::Failure;
use crate::request::Request;
use resync_harness::HubProcess;

/// Networks (127.x/16) of subscribers with a host of their own, and of those on the shared one, whose clients are elsewhere.
const OWN_HOSTS: u8 = 101;
const SHARED_HOST: u8 = 102;
const CLIENTS_OF_SHARED: u8 = 103;
/// So many are on one origin, where an attacker has a path too.
const SHARING: usize = 8;
/// Requests to the hub at once while they subscribe.
const AT_ONCE: usize = 16;
/// What is not delivered so long after the last post is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether all has come.
const LOOK: Duration = Duration::from_millis(20);
/// Below this path of the shared origin is the attacker.
const REFUSING: &str = "/refusing/";
const REFUSAL: &str = "Retry-After: 3600\r\n";

/// All of them, on one server.
pub(super) struct Subscribers {
    server: Server,
    book: Arc<StateFile>,
}

struct StateFile {
    began: Instant,
    /// By subscriber and number of the notification: when it came first, in microseconds since the beginning; 0: not yet.
    arrivals: Vec<Vec<AtomicU64>>,
    refused: AtomicUsize,
}

impl Subscribers {
    /// So many with hosts of their own, and some on the shared one, for so many notifications.
    pub(super) async fn start(own: usize, notifications: usize) -> Result<Self, Failure> {
        let row = || (0..notifications).map(|_| AtomicU64::new(0)).collect();
        let arrivals = (0..own + SHARING).map(|_| row()).collect();
        let book = Arc::new(StateFile { began: Instant::now(), arrivals, refused: AtomicUsize::new(0) });
        let noting = Arc::clone(&book);
        let server = Server::start(move |request| noting.answer(request)).await?;
        Ok(Self { server, book })
    }

    /// Subscribes all of them, each from an address of its own.
    pub(super) async fn subscribe(&self, hub: &HubProcess) {
        let all = stream::iter(0..self.count());
        all.for_each_concurrent(AT_ONCE, |number| async move {
            let client = if self.is_sharing(number) { CLIENTS_OF_SHARED } else { OWN_HOSTS };
            let callback = self.server.url(self.host(number), &format!("/{number}"));
            Client::new(apart(client, number), hub.address).subscribe(TOPIC, &callback, "a secret").await;
        })
        .await;
        hub.until_subscribed(self.count()).await;
    }

    /// A callback on the shared origin that refuses every delivery for an hour.
    pub(super) fn refusing(&self, number: usize) -> String {
        self.server.url(shared_host(), &format!("{REFUSING}{number}"))
    }

    /// How many deliveries were refused so.
    pub(super) fn refused(&self) -> usize {
        self.book.refused.load(Ordering::Relaxed)
    }

    /// Waits until all of these have come everywhere, or until they are lost, and says how long they took. Only what was
    /// acknowledged is owed.
    ///
    /// # Errors
    /// When nothing was owed.
    pub(super) async fn deliveries(&self, posts: &[Post]) -> Result<Latency, Failure> {
        let owed: Vec<_> = posts.iter().filter(|post| post.is_acknowledged()).collect();
        let all_came = async {
            while owed.iter().any(|post| !self.book.came_everywhere(post)) {
                sleep(LOOK).await;
            }
        };
        // What is missing after that is found below.
        let _ = timeout(PATIENCE, all_came).await;
        let (mut times, mut lost) = (Vec::new(), 0);
        for post in owed {
            for row in &self.book.arrivals {
                let came = self.book.when(&row[post.number]);
                lost += usize::from(came.is_none());
                times.push(came.map_or_else(|| post.due.elapsed(), |came| came.duration_since(post.due)));
            }
        }
        Latency::with_lost(times, lost)
    }

    fn count(&self) -> usize {
        self.book.arrivals.len()
    }

    fn is_sharing(&self, number: usize) -> bool {
        number + SHARING >= self.count()
    }

    fn host(&self, number: usize) -> IpAddr {
        if self.is_sharing(number) { shared_host() } else { apart(OWN_HOSTS, number) }
    }
}

fn shared_host() -> IpAddr {
    close(SHARED_HOST, 0)
}

impl StateFile {
    fn answer(&self, request: &Request<'_>) -> Reply {
        if let Some(agreed) = challenge(request) {
            return Reply::Now(agreed);
        }
        if request.target().starts_with(REFUSING) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Reply::Now(status("503 Service Unavailable", REFUSAL));
        }
        let subscriber = request.target().get(1..).and_then(|number| number.parse::<usize>().ok());
        let number = request.body.get(..DIGITS).and_then(|digits| std::str::from_utf8(digits).ok());
        if let (Some(subscriber), Some(number)) = (subscriber, number.and_then(|digits| digits.parse().ok()))
        {
            self.note(subscriber, number);
        }
        TAKEN
    }

    /// It is the first time that counts.
    fn note(&self, subscriber: usize, number: usize) {
        let arrival = self.arrivals.get(subscriber).and_then(|row| row.get(number));
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        if let Some(arrival) = arrival {
            let _ = arrival.compare_exchange(0, micros, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn when(&self, arrival: &AtomicU64) -> Option<Instant> {
        let micros = arrival.load(Ordering::Relaxed);
        (micros > 0).then(|| self.began + Duration::from_micros(micros))
    }

    fn came_everywhere(&self, post: &Post) -> bool {
        self.arrivals.iter().all(|row| self.when(&row[post.number]).is_some())
    }
}
