//! Callbacks of the honest topic that answer each delivery a moment before the hub calls them slow.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::client::{Client, apart, close};
use super::honest::TOPIC;
use super::server::{Reply, Server, challenge};
use super::siege::{Siege, keep};
use crate::Failure;

/// Networks (127.x/16) of the hosts and of those who subscribe them.
const NET: u8 = 30;
const CLIENTS: u8 = 31;
/// Subscriptions of each host: as many as it may have requests at once.
const SUBSCRIPTIONS: usize = 8;
/// Hosts of one network (/24), next to which the next one is.
const ON_ONE_NETWORK: usize = 8;
const LATE: Duration = Duration::from_millis(2_900);

/// So many hosts.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    hosts: usize,
    attackers: &mut JoinSet<()>,
) -> Result<(), Failure> {
    if hosts == 0 {
        return Ok(());
    }
    let taken = || Cow::Borrowed(&b"HTTP/1.1 204 No Content\r\n\r\n"[..]);
    let server = Server::start_counting(
        move |request| challenge(request).map_or_else(|| Reply::After(LATE, taken()), Reply::Now),
        Arc::clone(&siege.counts.late),
    )
    .await?;
    for number in 0..hosts {
        let callbacks: Vec<_> =
            (0..SUBSCRIPTIONS).map(|one| server.url(host(number), &format!("/{one}"))).collect();
        let mut client = Client::new(apart(CLIENTS, number), siege.hub);
        attackers.spawn(async move {
            for callback in callbacks {
                client.subscribe(TOPIC, &callback, "").await;
            }
        });
    }
    keep(server, attackers);
    Ok(())
}

fn host(number: usize) -> IpAddr {
    close(NET, number / ON_ONE_NETWORK * 250 + number % ON_ONE_NETWORK)
}
