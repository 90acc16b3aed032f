//! Topics with large bodies, which fill what the hub keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::pinging::{self, Pinging};
use super::server::{Reply, page};
use super::siege::{Siege, count};
use crate::Failure;
use crate::request::Request;

const PINGING: Pinging = Pinging { topics: 20, clients: 21, subscribers: 22, pause: Duration::from_secs(4) };
const BODY: usize = 1_000_000;

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
    let rest = "x".repeat(BODY);
    let topic = move |_: &Request<'_>| {
        let version = version.fetch_add(1, Ordering::Relaxed);
        let answer = page("Content-Type: text/plain\r\n", &format!("{version}{rest}"));
        count(&siege_of_topics.counts.bodies_fetched);
        Reply::Now(answer)
    };
    // What the log keeps is the attack, wherever it comes.
    pinging::begin(siege, topics, (PINGING, &Arc::default()), topic, attackers).await
}
