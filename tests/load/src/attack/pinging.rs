//! Topics of strangers: subscribed to, and then pinged as often as one client may.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::interval;

use super::client::{Client, apart};
use super::server::{Reply, Server, TAKEN, challenge};
use super::siege::{Siege, count, keep};
use crate::Failure;
use crate::request::Request;

/// Subscriptions of each topic.
const SUBSCRIBERS: usize = 2;

/// Where such topics are, by networks (127.x/16), and how often they are pinged.
pub(super) struct Pinging {
    /// Where the topics are.
    pub(super) topics: u8,
    /// Who subscribes and pings.
    pub(super) clients: u8,
    /// Where the subscribers are.
    pub(super) subscribers: u8,
    /// Between two pings of one topic: one client may ping it thirty times a minute.
    pub(super) pause: Duration,
}

/// So many topics, each on a network of its own and pinged by a client of its own; deliveries of them are counted. Whatever is a GET
/// below `/topic/` is answered by `topic`.
pub(super) async fn begin(
    siege: &Arc<Siege>,
    topics: usize,
    (by, delivered): (Pinging, &Arc<AtomicUsize>),
    topic: impl Fn(&Request<'_>) -> Reply + Send + Sync + 'static,
    attackers: &mut JoinSet<()>,
) -> Result<(), Failure> {
    let delivered = Arc::clone(delivered);
    let server = Server::start(move |request| {
        if request.target().starts_with("/topic/") {
            return topic(request);
        }
        challenge(request).map_or_else(
            || {
                count(&delivered);
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
