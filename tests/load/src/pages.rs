//! `resync-load pages`: how long a hub with many topics takes for each of the operator's pages, against one that reads nothing of
//! its store.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpStream;

use super::Failure;
use super::measure::Spread;
use super::wire::{connect, exchange};
use resync_harness::{HubProcess, OPERATOR_PAGES};

/// Who post at once.
const PUBLISHERS: usize = 16;
/// The page that reads nothing of the store.
const LOGIN: &str = "/login";

/// What is measured.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Topics of the hub, each with one notification.
    pub topics: NonZeroUsize,
    /// How often each page is read, all of them in turns.
    pub reads: NonZeroUsize,
    /// The engine of the hub's store.
    pub engine: String,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct PagesReport {
    /// Each of the operator's pages.
    pub pages: Vec<PageTimes>,
    /// The page for the login, which reads nothing of the store.
    pub login: Spread,
    /// Milliseconds: the greatest median of a page.
    pub slowest: f64,
    /// That median by the one of the login.
    pub ratio: f64,
}

/// A page.
#[derive(Clone, Debug, Serialize)]
pub struct PageTimes {
    /// Its path.
    pub path: String,
    /// From a request to the last byte of its answer.
    #[serde(flatten)]
    pub times: Spread,
}

/// Measures a hub whose data is in `folder`.
///
/// # Errors
/// When the hub does not accept a notification, or does not show a page.
pub async fn pages(plan: &Pages, folder: &Path) -> Result<PagesReport, Failure> {
    let mut hub = HubProcess::start_with(folder, &[("STORE_ENGINE", &plan.engine)]).await;
    fill(&hub, plan.topics.get()).await?;
    let mut paths = Vec::from(OPERATOR_PAGES.map(str::to_owned));
    paths.push(page_of_a_topic(&hub).await?);
    let browser = Browser::log_in(&hub).await?;
    let (login, times) = in_turns(browser, &paths, plan.reads.get()).await?;
    hub.stop().await;
    let mut pages = Vec::new();
    for (path, times) in paths.into_iter().zip(times) {
        pages.push(PageTimes { path, times: Spread::of(times)? });
    }
    Ok(PagesReport::new(pages, Spread::of(login)?))
}

impl PagesReport {
    fn new(pages: Vec<PageTimes>, login: Spread) -> Self {
        let slowest = pages.iter().map(|page| page.times.p50).fold(0.0, f64::max);
        Self { pages, login, slowest, ratio: slowest / login.p50 }
    }
}

/// Posts one notification to each topic.
async fn fill(hub: &HubProcess, topics: usize) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let one = || async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= topics {
                return Ok::<_, Failure>(());
            }
            let answer = hub.publish(&topic(number), "news").await?;
            if answer.status != 202 {
                return Err(format!("a post got {}", answer.status).into());
            }
        }
    };
    try_join_all((0..PUBLISHERS).map(|_| one())).await?;
    let status: Value = serde_json::from_slice(&hub.admin("/api/v1/status").await.body)?;
    if status["topics"].as_u64() == Some(topics as u64) {
        Ok(())
    } else {
        Err(format!("the hub has {} topics of {topics}", status["topics"]).into())
    }
}

/// A URL of 200 bytes.
fn topic(number: usize) -> String {
    format!("http://source.example/{number:0>167}/framework/")
}

async fn page_of_a_topic(hub: &HubProcess) -> Result<String, Failure> {
    let list: Value = serde_json::from_slice(&hub.admin("/api/v1/topics?limit=1").await.body)?;
    let id = list["items"][0]["id"].as_str().ok_or("the hub lists no topic")?;
    Ok(format!("/topics/{id}"))
}

/// So that whatever else the machine does is shared: how long each read of the login page took, and of each of these pages.
async fn in_turns(
    mut browser: Browser,
    paths: &[String],
    reads: usize,
) -> Result<(Vec<Duration>, Vec<Vec<Duration>>), Failure> {
    let (mut login, mut pages) = (Vec::new(), vec![Vec::new(); paths.len()]);
    for _ in 0..reads {
        login.push(browser.read(LOGIN).await?);
        for (path, times) in paths.iter().zip(&mut pages) {
            times.push(browser.read(path).await?);
        }
    }
    Ok((login, pages))
}

/// A browser in a session of the operator, with one connection.
struct Browser {
    hub: SocketAddr,
    cookie: String,
    stream: TcpStream,
}

impl Browser {
    async fn log_in(hub: &HubProcess) -> Result<Self, Failure> {
        let address = hub.admin_address();
        Ok(Self { hub: address, cookie: hub.log_in().await, stream: open(address).await? })
    }

    /// How long a page took, which must be there.
    async fn read(&mut self, path: &str) -> Result<Duration, Failure> {
        let (hub, cookie) = (self.hub, &self.cookie);
        let bytes = format!("GET {path} HTTP/1.1\r\nHost: {hub}\r\nCookie: {cookie}\r\n\r\n");
        let began = Instant::now();
        let answer = exchange(&mut self.stream, bytes.as_bytes()).await?;
        let time = began.elapsed();
        if answer.status != 200 {
            return Err(format!("the page {path} got {}", answer.status).into());
        }
        if !answer.again {
            self.stream = open(hub).await?;
        }
        Ok(time)
    }
}

async fn open(hub: SocketAddr) -> Result<TcpStream, Failure> {
    Ok(connect(IpAddr::V4(Ipv4Addr::LOCALHOST), hub).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_has_a_url_of_200_bytes() {
        assert_eq!((topic(0).len(), topic(9_999).len()), (200, 200));
        assert_ne!(topic(0), topic(9_999));
    }

    #[test]
    fn the_slowest_page_is_the_one_with_the_greatest_median_whatever_its_worst_time_was() {
        let spread = |p50, max| Spread { p50, p99: max, max };
        let page = |path: &str, times| PageTimes { path: path.to_owned(), times };
        let pages = vec![page("/", spread(3.0, 90.0)), page("/topics", spread(8.0, 9.0))];
        let report = PagesReport::new(pages, spread(2.0, 5.0));
        assert!((report.slowest - 8.0).abs() < 1e-9 && (report.ratio - 4.0).abs() < 1e-9, "{report:?}");
    }
}
