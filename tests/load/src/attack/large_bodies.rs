//! Topics with large bodies, which fill what the hub keeps.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::pinging::{self, Pinging};
use super::server::page;
use super::siege::Siege;
use crate::Failure;

const PINGING: Pinging = Pinging {
    topics: 20,
    clients: 21,
    subscribers: 22,
    pause: Duration::from_secs(4),
    fetched: |counts| &counts.bodies_fetched,
    // What the log keeps is the attack, wherever it comes.
    delivered: None,
};
const BODY: usize = 1_000_000;

/// So many topics.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    topics: usize,
    attackers: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let rest = "x".repeat(BODY);
    let body = move |_: &str, version| page("Content-Type: text/plain\r\n", &format!("{version}{rest}"));
    pinging::begin(siege, topics, PINGING, body, attackers).await
}
