//! Clients of a hub that dies again and again: they publish, subscribe and unsubscribe, and know what was acknowledged to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::{form, post};
use tokio::time::sleep;

pub(crate) const TOPICS: usize = 3;
/// The last notification of each topic.
pub(crate) const LAST: &str = "last";

/// What the clients know.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Notifications that got a 2xx, by topic.
    pub(crate) posts: Mutex<Vec<(usize, String)>>,
    /// When each of them was posted, and when it was acknowledged.
    pub(crate) durable: Mutex<Vec<(Instant, Instant)>>,
    pub(crate) refused: Mutex<usize>,
    /// What was acknowledged last for a callback that comes and goes; `None`: nobody knows whether the last request was.
    pub(crate) restless: Mutex<BTreeMap<usize, Option<bool>>>,
    pub(crate) changes: Mutex<usize>,
    /// Whether a running hub may refuse.
    pub(crate) may_refuse: bool,
    pub(crate) stop: AtomicBool,
}

impl Known {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Posts a notification of one topic; the status of the answer.
pub(crate) async fn publish_one(hub: SocketAddr, number: usize, body: &str) -> std::io::Result<u16> {
    let link = format!("<{}>; rel=\"self\", <http://{hub}/websub/>; rel=\"hub\"", topic(number));
    let headers = [("Content-Type", "text/plain"), ("Link", link.as_str())];
    Ok(post(hub, &headers, body.as_bytes()).await?.status)
}

/// Publishes numbered bodies to one topic until told to stop; goes on to the next only after an answer, whatever it is.
pub(crate) async fn publish(number: usize, hub: SocketAddr, known: Arc<Known>, mut rng: Rng) {
    for serial in 0_u32.. {
        if known.stopped() {
            return;
        }
        let size = if rng.u8(0..20) == 0 { rng.usize(0..100_000) } else { rng.usize(0..300) };
        // Nothing that could be compressed: a batch is to take several pages.
        let rest: String = std::iter::repeat_with(|| rng.alphanumeric()).take(size).collect();
        let body = format!("{number}/{serial} {rest}");
        let posted = Instant::now();
        match publish_one(hub, number, &body).await {
            Ok(202) => {
                known.durable.lock().unwrap().push((posted, Instant::now()));
                known.posts.lock().unwrap().push((number, body));
            }
            Ok(503) if known.may_refuse => {
                *known.refused.lock().unwrap() += 1;
                sleep(Duration::from_millis(5)).await;
            }
            Ok(status) => panic!("a running hub refused: {status}"),
            // The hub is dead for the moment; whether it got this one, nobody knows.
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Posts to a topic without subscribers, as much as the hub takes.
pub(crate) async fn weigh_down(hub: SocketAddr, known: Arc<Known>) {
    let body = "x".repeat(1_000_000);
    while !known.stopped() {
        if publish_one(hub, TOPICS, &body).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Subscribes and unsubscribes callbacks again and again.
pub(crate) async fn come_and_go(callbacks: Vec<String>, hub: SocketAddr, known: Arc<Known>, mut rng: Rng) {
    while !known.stopped() {
        let (which, on) = (rng.usize(0..callbacks.len()), rng.bool());
        known.restless.lock().unwrap().insert(which, None);
        match ask(hub, which, &callbacks[which], on).await {
            Ok(202) => {
                known.restless.lock().unwrap().insert(which, Some(on));
                *known.changes.lock().unwrap() += 1;
            }
            Ok(503) if known.may_refuse => {}
            Ok(status) => panic!("a running hub refused: {status}"),
            Err(_) => {}
        }
        sleep(Duration::from_millis(rng.u64(1..20))).await;
    }
}

/// Asks to subscribe a callback, or to unsubscribe it; the status of the answer.
pub(crate) async fn ask(hub: SocketAddr, which: usize, callback: &str, on: bool) -> std::io::Result<u16> {
    let mode = if on { "subscribe" } else { "unsubscribe" };
    let topic = topic(which % TOPICS);
    let parameters = [("hub.mode", mode), ("hub.topic", topic.as_str()), ("hub.callback", callback)];
    Ok(form(hub, &parameters).await?.status)
}

pub(crate) fn topic(number: usize) -> String {
    format!("http://source.example/set{number}/framework/")
}
