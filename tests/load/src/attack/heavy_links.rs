//! Topics whose small pages have many relative links, which a long URL makes heavy.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::pinging::{self, Pinging};
use super::server::{page, status};
use super::siege::Siege;
use crate::Failure;

const PINGING: Pinging = Pinging {
    topics: 10,
    clients: 11,
    subscribers: 12,
    pause: Duration::from_secs(2),
    fetched: |counts| &counts.links_fetched,
    delivered: Some(|counts| &counts.links_delivered),
};
/// Where a topic sends the hub, as far as a client of HTTP goes, or as far as a URL in a form may.
const LONG: usize = 60_000;
const LONGEST_OF_A_FORM: usize = 1_900;
/// Links of a page that the hub refuses, and of one that it takes: with its own URL, just below what links may take.
const LINKS: usize = 255;
const LINKS_TAKEN: usize = 1;

/// So many topics.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    topics: usize,
    attackers: &mut JoinSet<()>,
) -> Result<(), Failure> {
    pinging::begin(siege, topics, PINGING, answer, attackers).await
}

/// A topic sends the hub to a URL that is long in its own way, and there the links are.
fn answer(target: &str, version: usize) -> Cow<'static, [u8]> {
    let kind = kind(target);
    if target.ends_with('/') {
        return links(if kind == 0 { LINKS_TAKEN } else { LINKS }, version);
    }
    detour(target, if kind == 1 { LONG } else { LONGEST_OF_A_FORM })
}

/// Which of three kinds of topics this is, by its number.
fn kind(target: &str) -> usize {
    let number = target.split('/').nth(2).and_then(|number| number.parse::<usize>().ok());
    number.unwrap_or_default() % 3
}

/// A redirect to a long URL.
fn detour(topic: &str, length: usize) -> Cow<'static, [u8]> {
    status("302 Found", &format!("Location: {topic}/{}/\r\n", "x".repeat(length)))
}

/// A page that is new each time.
fn links(count: usize, version: usize) -> Cow<'static, [u8]> {
    let links: Vec<_> = (0..count).map(|link| format!("<link rel=hub href={link}>")).collect();
    let links = links.concat();
    page("Content-Type: text/html\r\n", &format!("<html><head>{links}</head>{version}"))
}
