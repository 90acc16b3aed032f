//! Requests that wait cost what they say, and nobody supersedes those of others (M1, L2).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;

use http::Method;
use resync_harness::{HubProcess, PROXY, Receiver, Reply, Seen, ask_as};
use tempfile::tempdir;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::resident;

const TOPIC: &str = "http://source.example/topic";
/// What a request brings along.
const PATH: usize = 1_900;
const SECRET: usize = 190;
/// Of memory for each request that waits, less than its texts alone, which are a callback and a topic of that length. Most of it is what
/// the store's caches grow by meanwhile.
const EACH: u64 = 3_584;

/// Hosts to which one can connect, and that never answer.
async fn hanging(count: u8) -> Vec<TcpListener> {
    let mut hosts = Vec::new();
    for number in 1..=count {
        hosts.push(TcpListener::bind((Ipv4Addr::new(127, 1, number, 1), 0)).await.unwrap());
    }
    hosts
}

/// Each of these clients asks for forty subscriptions, each at another host, with texts that are long.
async fn forty_each(hub: &HubProcess, clients: Range<u16>, hosts: &[TcpListener]) {
    let addresses: Vec<_> = hosts.iter().map(|host| host.local_addr().unwrap()).collect();
    let mut asking = JoinSet::new();
    for number in clients {
        let (hub, addresses) = (hub.address, addresses.clone());
        let [high, low] = number.to_be_bytes();
        let client = Ipv4Addr::new(10, 0, high, low);
        asking.spawn(async move {
            let secret = "s".repeat(SECRET);
            for nth in 0..40 {
                let host = addresses[(usize::from(number) * 40 + nth) % addresses.len()];
                let callback = format!("http://{host}/{number}/{nth}/{:x<PATH$}", "");
                let topic = format!("http://source.example/{number}/{nth}/{:x<PATH$}", "");
                let parameters = [
                    ("hub.mode", "subscribe"),
                    ("hub.topic", topic.as_str()),
                    ("hub.callback", callback.as_str()),
                    ("hub.secret", secret.as_str()),
                ];
                let answer = ask_as(hub, client, &parameters).await;
                assert_eq!(answer.status, 202, "{}", answer.text());
            }
        });
        if asking.len() == 20 {
            asking.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

#[tokio::test]
async fn b33_a_request_that_waits_for_verification_takes_less_than_its_texts() {
    let folder = tempdir().unwrap();
    // None of the hosts has failed before the last request is there.
    let patient = ("DELIVERY_TIMEOUT", "10m");
    let mut hub = HubProcess::start_public(folder.path(), &[PROXY, patient]).await;
    let hosts = hanging(200).await;
    // As many as are asked at once, with their tasks and connections, and what a hub takes once.
    forty_each(&hub, 0..100, &hosts).await;
    let before = resident(&mut hub);
    forty_each(&hub, 100..250, &hosts).await;
    let each = resident(&mut hub).saturating_sub(before) / (150 * 40);
    assert!(each < EACH, "{each} bytes for each request that waits");
}

fn is_asked(seen: &Seen, mode: &str) -> bool {
    seen.method == Method::GET && seen.parameter("hub.mode").as_deref() == Some(mode)
}

#[tokio::test]
async fn b33_whoever_knows_a_callback_cannot_keep_it_from_subscribing_with_the_opposite_mode() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(folder.path(), &[PROXY]).await;
    let (subscriber, stranger) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 66));
    let (destination, decided) = (Receiver::start().await, Arc::new(Notify::new()));
    let callback = destination.url("/known");
    let later = Arc::clone(&decided);
    destination.behave(move |seen| {
        if is_asked(seen, "subscribe") {
            Reply::After(Arc::clone(&later), Box::new(Reply::Agree))
        } else {
            Reply::Status(404, String::new())
        }
    });
    let of = |mode| [("hub.mode", mode), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
    assert_eq!(ask_as(hub.address, subscriber, &of("subscribe")).await.status, 202);
    destination.until_verified(1).await;
    assert_eq!(ask_as(hub.address, stranger, &of("unsubscribe")).await.status, 202);
    destination.until("the stranger's word is asked about", |seen| seen.len() == 2).await;
    hub.process().line("request not verified").await;
    decided.notify_waiters();
    hub.until_subscribed(1).await;
}

#[tokio::test]
async fn b33_whoever_knows_a_callback_supersedes_none_of_its_requests_not_even_over_a_crash() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(folder.path(), &[PROXY]).await;
    let destination = Receiver::start().await;
    destination.behave(|_| Reply::Hang);
    let callback = destination.url("/known");
    let subscribe = |secret, lease| {
        [
            ("hub.mode", "subscribe"),
            ("hub.topic", TOPIC),
            ("hub.callback", callback.as_str()),
            ("hub.secret", secret),
            ("hub.lease_seconds", lease),
        ]
    };
    let own = ask_as(hub.address, Ipv4Addr::new(192, 0, 2, 1), &subscribe("own", "7200")).await;
    assert_eq!(own.status, 202);
    destination.until_verified(1).await;
    for (last, lease) in [(66, "86400"), (67, "172800")] {
        let others = ask_as(hub.address, Ipv4Addr::new(192, 0, 2, last), &subscribe("another", lease)).await;
        assert_eq!(others.status, 202);
    }
    hub.kill().await;
    // It knows how long a lease it has asked for.
    destination.behave(|seen| match seen.parameter("hub.lease_seconds") {
        Some(lease) if lease.parse().is_ok_and(|seconds: u64| seconds > 7_200) => {
            Reply::Status(404, String::new())
        }
        _ => Reply::Agree,
    });
    hub.restart().await;
    hub.until_subscribed(1).await;
    hub.publish(TOPIC, "news").await.unwrap();
    assert!(destination.until_delivered(1).await[0].is_signed_with("own"));
}
