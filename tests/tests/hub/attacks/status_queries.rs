//! Queries for the status of a notification are bounded for each client (L3).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::{Ipv4Addr, SocketAddr};

use resync_tests::harness::{Answer, HubProcess, post, request};
use tempfile::tempdir;
use tokio::task::JoinSet;

/// A hub as an operator runs it, behind a proxy, so that a test can be many clients.
const PROXY: (&str, &str) = ("INGRESS_TRUSTED_PROXIES", "[\"127.0.0.1/32\"]");
const TOPIC: &str = "http://source.example/topic";
const STRANGER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);
const PUBLISHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

async fn query(hub: SocketAddr, client: Ipv4Addr, target: &str) -> Answer {
    let asked = format!(
        "GET {target} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nX-Forwarded-For: {client}\r\n\r\n"
    );
    request(hub, asked.as_bytes()).await.unwrap()
}

/// Publishes something, and says where its status is.
async fn published(hub: &HubProcess) -> String {
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let client = PUBLISHER.to_string();
    let headers =
        [("Content-Type", "text/plain"), ("Link", link.as_str()), ("X-Forwarded-For", client.as_str())];
    let answer = post(hub.address, &headers, b"news").await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
    let location = answer.header("location").unwrap();
    location.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned())).unwrap()
}

#[tokio::test]
async fn b33_whoever_queries_statuses_without_end_is_told_to_wait_and_the_publisher_is_not() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[PROXY, ("LIMITS_CLIENT", "1/s, burst 20")]).await;
    let status = published(&hub).await;
    // With a ticket and without: who guesses asks too.
    let guessed = status.split('?').next().unwrap().to_owned();
    let mut asking = JoinSet::new();
    for number in 0..100 {
        let (hub, target) = (hub.address, if number % 2 == 0 { status.clone() } else { guessed.clone() });
        asking.spawn(async move { query(hub, STRANGER, &target).await });
    }
    let answers = asking.join_all().await;
    let refused = answers.iter().filter(|answer| answer.status == 429);
    let late = refused.clone().filter(|answer| answer.header("retry-after").is_some());
    assert_eq!(refused.count(), late.count(), "each is told when to come back");
    let served = answers.iter().filter(|answer| answer.status != 429).count();
    assert!((1..=50).contains(&served), "{served} of a hundred at once were looked at");
    assert_eq!(query(hub.address, PUBLISHER, &status).await.status, 200);
}
