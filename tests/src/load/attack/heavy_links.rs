//! Topics whose small pages have many relative links, which a long URL makes heavy.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::pinging::{self, Pinging};
use super::server::{Reply, page, status};
use super::siege::{Siege, count};
use crate::load::Failure;
use crate::load::request::Request;

const PINGING: Pinging = Pinging { topics: 10, clients: 11, subscribers: 12, pause: Duration::from_secs(2) };
/// Where a topic sends the hub: as far as a client of HTTP goes, and in turns as far as a URL in a form may.
const LONG: usize = 60_000;
const LONGEST_OF_A_FORM: usize = 1_900;
/// Links of a page.
const LINKS: usize = 255;

/// So many topics.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    topics: usize,
    attackers: &mut JoinSet<()>,
) -> Result<(), Failure> {
    if topics == 0 {
        return Ok(());
    }
    let (siege_of_topics, version) = (Arc::clone(siege), AtomicUsize::new(0));
    let topic = move |request: &Request<'_>| {
        if request.target().ends_with('/') {
            return Reply::Now(links(version.fetch_add(1, Ordering::Relaxed)));
        }
        let answer = detour(request.target());
        count(&siege_of_topics.counts.links_fetched);
        Reply::Now(answer)
    };
    pinging::begin(siege, topics, PINGING, topic, attackers).await
}

/// A redirect to a long URL.
fn detour(topic: &str) -> Cow<'static, [u8]> {
    let is_even = topic.ends_with(['0', '2', '4', '6', '8']);
    let length = if is_even { LONG } else { LONGEST_OF_A_FORM };
    status("302 Found", &format!("Location: {topic}/{}/\r\n", "x".repeat(length)))
}

/// A page that is new each time.
fn links(version: usize) -> Cow<'static, [u8]> {
    let links: Vec<_> = (0..LINKS).map(|link| format!("<link rel=hub href={link}>")).collect();
    let links = links.concat();
    page("Content-Type: text/html\r\n", &format!("<html><head>{links}</head>{version}"))
}
