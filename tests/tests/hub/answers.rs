//! The answer to a request to subscribe waits neither for the topic nor for the callback, however many of them hang (W-090).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use resync_harness::{HubProcess, Receiver, Reply, Seen, form};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/framework/";
/// More than the hub asks at once: those that come last find all places taken by those that hang.
const AT_ONCE: usize = 40;
const ROUNDS: usize = 4;
/// Longer than a machine with other work takes for an answer, and a small part of what the hub waits for who hangs.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn b01_w090_no_answer_waits_for_a_callback_however_many_of_them_hang() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("DELIVERY_TIMEOUT", "10m")]).await;
    let (hanging, agreeing) = (Receiver::start().await, Receiver::start_at([127, 0, 0, 2].into()).await);
    hanging.behave(|_| Reply::Hang);
    let at = |receiver: &Receiver, round: usize| -> Vec<_> {
        let callbacks = (0..AT_ONCE).map(|number| receiver.url(&format!("/{round}/{number}")));
        callbacks.map(|callback| (TOPIC.to_owned(), callback)).collect()
    };
    for round in 0..ROUNDS {
        let usual = slowest_answer(hub.address, "subscribe", &at(&agreeing, round)).await;
        let slowest = slowest_answer(hub.address, "subscribe", &at(&hanging, round)).await;
        assert!(slowest < usual + LONG, "B-01: {slowest:?}, where none hangs {usual:?}");
    }
    hanging.until("they are asked, and hang", |seen| !seen.is_empty()).await;
    hub.until_subscribed(ROUNDS * AT_ONCE).await;
}

#[tokio::test]
async fn b01_w085_w090_no_answer_waits_for_a_topic_or_a_callback_however_many_of_them_hang() {
    let folder = tempdir().unwrap();
    let keys =
        [("TOPICS_POLICY", "advertised"), ("PUBLISH_FETCH_TIMEOUT", "10m"), ("DELIVERY_TIMEOUT", "10m")];
    let hub = HubProcess::start_with(folder.path(), &keys).await;
    let (hanging, prompt) = (Receiver::start().await, Receiver::start_at([127, 0, 0, 2].into()).await);
    hanging.behave(|_| Reply::Hang);
    let at = |receiver: &Receiver, round: &str| -> Vec<_> {
        let pair = |number| (receiver.url("/topic"), receiver.url(&format!("/{round}/{number}")));
        (0..AT_ONCE).map(pair).collect()
    };
    for mode in ["subscribe", "unsubscribe"] {
        for round in 0..ROUNDS {
            let round = format!("{mode}/{round}");
            let usual = slowest_answer(hub.address, mode, &at(&prompt, &round)).await;
            let slowest = slowest_answer(hub.address, mode, &at(&hanging, &round)).await;
            assert!(slowest < usual + LONG, "B-01: {slowest:?}, where none hangs {usual:?}");
        }
    }
    let both = |log: &[Seen]| {
        let asked = |path: &str| log.iter().any(|seen| seen.path().starts_with(path));
        asked("/topic") && asked("/unsubscribe/")
    };
    hanging.until("both are asked, and hang", both).await;
}

/// Asks for all of this at once; how long the slowest answer took.
async fn slowest_answer(hub: SocketAddr, mode: &str, pairs: &[(String, String)]) -> Duration {
    let asking = pairs.iter().map(async |(topic, callback)| {
        let asked = Instant::now();
        let parameters = [("hub.mode", mode), ("hub.topic", topic), ("hub.callback", callback)];
        let answer = form(hub, &parameters).await.unwrap();
        assert_eq!(answer.status, 202, "{}", answer.text());
        asked.elapsed()
    });
    join_all(asking).await.into_iter().max().unwrap()
}
