//! Topics of strangers: subscribed to, and then pinged as often as one client may.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;

use super::client::{Client, apart};
use super::server::{Reply, Server, TAKEN, challenge};
use super::siege::{Counts, Siege, count, keep};
use crate::Failure;

/// Subscriptions of each topic.
const SUBSCRIBERS: usize = 2;

/// Where such topics are, by networks (127.x/16), how often they are pinged, and what is counted.
pub(super) struct Pinging {
    /// Where the topics are.
    pub(super) topics: u8,
    /// Who subscribes and pings.
    pub(super) clients: u8,
    /// Where the subscribers are.
    pub(super) subscribers: u8,
    /// Between two pings of one topic: one client may ping it thirty times a minute.
    pub(super) pause: Duration,
    /// Times that the hub asked for a topic.
    pub(super) fetched: fn(&Counts) -> &AtomicUsize,
    /// Deliveries that came, where they are part of the attack.
    pub(super) delivered: Option<fn(&Counts) -> &AtomicUsize>,
}

/// So many topics, each on a network of its own and pinged by a client of its own. `answer` makes what is said to a request for a target
/// below `/topic/` out of that and of a number that is new each time.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    topics: usize,
    by: Pinging,
    answer: impl Fn(&str, usize) -> Cow<'static, [u8]> + Send + Sync + 'static,
    attackers: &mut JoinSet<()>,
) -> Result<(), Failure> {
    if topics == 0 {
        return Ok(());
    }
    let (siege_of_server, version) = (Arc::clone(siege), AtomicUsize::new(0));
    let server = Server::start(move |request| {
        let counts = &siege_of_server.counts;
        if request.target().starts_with("/topic/") {
            // What a topic redirects to belongs to the same fetch.
            if !request.target().ends_with('/') {
                count((by.fetched)(counts));
            }
            return Reply::Now(answer(request.target(), version.fetch_add(1, Ordering::Relaxed)));
        }
        challenge(request).map_or_else(
            || {
                if let Some(delivered) = by.delivered {
                    count(delivered(counts));
                }
                TAKEN
            },
            Reply::Now,
        )
    })
    .await?;
    for number in 0..topics {
        let topic = server.url(apart(by.topics, number), &format!("/topic/{number}"));
        let subscriber = apart(by.subscribers, number);
        let callbacks: Vec<_> =
            (0..SUBSCRIBERS).map(|one| server.url(subscriber, &format!("/{one}"))).collect();
        let (from, hub) = (apart(by.clients, number), siege.hub);
        attackers.spawn(async move { ping((from, hub), by.pause, &topic, &callbacks).await });
    }
    keep(server, attackers);
    Ok(())
}

async fn ping((from, hub): (IpAddr, SocketAddr), pause: Duration, topic: &str, callbacks: &[String]) {
    let mut client = Client::new(from, hub);
    for callback in callbacks {
        client.subscribe(topic, callback, "").await;
    }
    let mut ticks = interval(pause);
    loop {
        ticks.tick().await;
        // Whether it was taken shows where the topic is asked for.
        let _ = client.form(&[("hub.mode", "publish"), ("hub.url", topic)]).await;
    }
}
