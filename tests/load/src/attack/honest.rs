//! Honest publishers: they post at a fixed rate, whatever becomes of the posts before.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Range, RangeFrom};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use resync_common::locks::lock;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout};
use url::Url;

use super::client::{Client, query_of};
use super::latency::Latency;
use crate::Failure;
use crate::wire::{connect, exchange};
use resync_harness::{HubProcess, post};

/// The topic of the honest ones.
pub(super) const TOPIC: &str = "http://source.example/load/";
/// Digits of a notification's number, with which its body begins.
pub(super) const DIGITS: usize = 10;
const BODY: usize = 1_000;
/// A publisher asks so often how a notification fares, from here.
const ASKING: Duration = Duration::from_secs(1);
const ASKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Between two posts that are not counted.
const GOING_ON: Duration = Duration::from_secs(1);

/// Publishers with a token, over connections that they keep.
#[derive(Clone)]
pub(super) struct Honest {
    hub: SocketAddr,
    head: Arc<str>,
    idle: Arc<Mutex<Vec<TcpStream>>>,
}

/// A notification that was posted.
pub(super) struct Post {
    pub(super) number: usize,
    pub(super) due: Instant,
    /// `None`: it was not acknowledged.
    took: Option<Duration>,
}

impl Honest {
    pub(super) fn new(hub: &HubProcess, token: &str) -> Self {
        let link = format!("Link: <{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
        let head = format!(
            "POST /websub/ HTTP/1.1\r\nHost: h\r\n{link}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: text/plain\r\nContent-Length: {BODY}\r\n\r\n"
        );
        Self { hub: hub.address, head: head.into(), idle: Arc::default() }
    }

    /// Posts the notifications with these numbers, so many a second.
    pub(super) async fn post_all(&self, numbers: Range<usize>, rate: u32) -> Vec<Post> {
        let (began, pause) = (Instant::now(), Duration::from_secs(1) / rate);
        let mut posts = JoinSet::new();
        for (at, number) in (0..).zip(numbers) {
            let due = began + pause * at;
            sleep_until(due).await;
            let honest = self.clone();
            posts.spawn(async move {
                let took = honest.post(number).await.then(|| due.elapsed());
                Post { number, due, took }
            });
        }
        posts.join_all().await
    }

    /// Goes on posting, from this number on, as long as what this returns is kept; what becomes of that is not counted.
    pub(super) fn go_on(&self, numbers: RangeFrom<usize>) -> JoinSet<()> {
        let (honest, mut going_on) = (self.clone(), JoinSet::new());
        going_on.spawn(async move {
            let mut ticks = interval(GOING_ON);
            for number in numbers {
                ticks.tick().await;
                honest.post(number).await;
            }
        });
        going_on
    }

    async fn post(&self, number: usize) -> bool {
        let request = format!("{}{number:0DIGITS$}{:x<2$}", self.head, "", BODY - DIGITS);
        let kept = self.idle().pop();
        if let Some(stream) = kept
            && let Some(status) = self.post_over(stream, &request).await
        {
            return status == 202;
        }
        // There is none, or the hub has closed it, since it was idle for long.
        let Ok(stream) = connect(IpAddr::V4(Ipv4Addr::LOCALHOST), self.hub).await else { return false };
        self.post_over(stream, &request).await == Some(202)
    }

    async fn post_over(&self, mut stream: TcpStream, request: &str) -> Option<u16> {
        let answer = exchange(&mut stream, request.as_bytes()).await.ok()?;
        if answer.again {
            self.idle().push(stream);
        }
        Some(answer.status)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        lock(&self.idle)
    }
}

impl Post {
    pub(super) fn is_acknowledged(&self) -> bool {
        self.took.is_some()
    }
}

/// How long posts took.
///
/// # Errors
/// When none of them was acknowledged.
pub(super) fn latency(posts: &[Post]) -> Result<Latency, Failure> {
    let failed = posts.iter().filter(|post| !post.is_acknowledged()).count();
    Latency::of(posts.iter().filter_map(|post| post.took).collect(), failed)
}

/// Asks again and again how a notification fares, as long as what this returns is kept. `unanswered` counts the queries that are
/// not answered within so long.
pub(super) fn ask(
    hub: SocketAddr,
    status: &str,
    within: Duration,
    unanswered: &Arc<AtomicUsize>,
) -> JoinSet<()> {
    let (request, unanswered, mut asking) = (query_of(status), Arc::clone(unanswered), JoinSet::new());
    asking.spawn(async move {
        let mut ticks = interval(ASKING);
        loop {
            ticks.tick().await;
            // Each over a connection of its own, since one that waits for an answer holds up the next.
            let mut client = Client::new(ASKER.into(), hub);
            let answer = timeout(within, client.send(&request)).await;
            if answer.ok().flatten() != Some(200) {
                unanswered.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    asking
}

/// Posts a notification without a number, and returns where the hub says how it fares: path and query.
///
/// # Errors
/// When the hub refuses it.
pub(super) async fn post_one(hub: &HubProcess, token: &str) -> Result<String, Failure> {
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let token = format!("Bearer {token}");
    let headers = [("Content-Type", "text/plain"), ("Link", &link), ("Authorization", &token)];
    let answer = post(hub.address, &headers, b"the first one").await?;
    if answer.status != 202 {
        return Err(format!("a post got {}: {}", answer.status, answer.text()).into());
    }
    let url: Url = answer.header("location").unwrap_or_default().parse()?;
    Ok(format!("{}?{}", url.path(), url.query().unwrap_or_default()))
}
