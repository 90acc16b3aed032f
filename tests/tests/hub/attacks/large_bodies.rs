//! Large bodies on their way to callbacks that do not answer are held in memory within a bound.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use http::Method;
use resync_tests::harness::{HubProcess, Receiver, Reply, Seen};
use tempfile::tempdir;

use super::peak;

const MEBIBYTE: u64 = 1024 * 1024;
const TOPICS: usize = 200;
/// What large notifications may take on their way, those that the store keeps ready, and its tables in memory.
const BOUND: u64 = (80 + 16 + 48) * MEBIBYTE;

fn hangs(seen: &Seen) -> Reply {
    if seen.method == Method::POST { Reply::Hang } else { Reply::Agree }
}

#[tokio::test]
async fn large_bodies_that_callbacks_never_take_are_held_within_a_bound_and_small_ones_pass() {
    let folder = tempdir().unwrap();
    let keys = [("LIMITS_ENABLED", "false"), ("DELIVERY_PER_HOST", "256")];
    let mut hub = HubProcess::start_public(folder.path(), &keys).await;
    let (tarpit, honest) = (Receiver::start().await, Receiver::start().await);
    tarpit.behave(hangs);
    let topic = |number: usize| format!("http://source.example/{number}");
    for number in 0..TOPICS {
        hub.subscribe(&topic(number), &tarpit.url(&format!("/{number}")), &[], number + 1).await;
    }
    let news = "http://source.example/news";
    hub.subscribe(news, &honest.url("/"), &[], TOPICS + 1).await;
    let before = peak(&mut hub);
    let body = "x".repeat(usize::try_from(MEBIBYTE).unwrap() - 1);
    for number in 0..TOPICS {
        assert_eq!(hub.publish(&topic(number), &body).await.unwrap().status, 202);
    }
    tarpit
        .until("as many as may be are under way", |seen| {
            seen.iter().filter(|seen| seen.method == Method::POST).count() >= 60
        })
        .await;
    hub.publish(news, "small").await.unwrap();
    assert_eq!(honest.until_delivered(1).await[0].text(), "small");
    let taken = peak(&mut hub) - before;
    assert!(taken < BOUND, "{} MiB", taken / MEBIBYTE);
}
