//! Strangers hold up nobody who is here already: not subscribers who renew, nor other clients (B-33).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::Ipv4Addr;

use resync_harness::{HubProcess, PROXY, Receiver, Reply, client, ping_as, subscribe_as};
use tempfile::tempdir;

const SUBSCRIBER: u32 = 1;

async fn subscribe(hub: &HubProcess, number: u32, topic: &str, callback: &str) -> u16 {
    subscribe_as(hub, client(number), topic, callback).await.status
}

/// Hosts on as many networks that answer nothing.
async fn tarpits(count: u8) -> Vec<Receiver> {
    let mut hosts = Vec::new();
    for network in 0..count {
        let host = Receiver::start_at(Ipv4Addr::new(127, 0, 10 + network, 1).into()).await;
        host.behave(|_| Reply::Hang);
        hosts.push(host);
    }
    hosts
}

#[tokio::test]
async fn b33_topics_of_strangers_that_never_answer_hold_up_no_renewal_at_a_closed_hub() {
    let folder = tempdir().unwrap();
    let keys = [PROXY, ("TOPICS_POLICY", "advertised"), ("PUBLISH_FETCH_TIMEOUT", "5m")];
    let mut hub = HubProcess::start_public(folder.path(), &keys).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let (topic, callback, own) = (publisher.url("/topic"), destination.url("/cb"), hub.url());
    publisher.behave(move |_| Reply::With(200, "link", format!("<{own}>; rel=hub")));
    assert_eq!(subscribe(&hub, SUBSCRIBER, &topic, &callback).await, 202);
    hub.until_subscribed(1).await;

    let slow = tarpits(20).await;
    for (client, host) in (100..).zip(&slow) {
        for path in ["/1", "/2"] {
            assert_eq!(subscribe(&hub, client, &host.url(path), "http://127.0.0.9/cb").await, 202);
        }
    }
    // Strangers have twelve networks' worth of places, and all of them are taken.
    for host in &slow[..12] {
        host.until("two topics are looked at", |seen| seen.len() == 2).await;
    }
    assert_eq!(subscribe(&hub, SUBSCRIBER, &topic, &callback).await, 202);
    hub.process().line_number("subscription in force", 2).await;
    assert_eq!(publisher.seen().len(), 2, "it was looked at for the renewal too");
}

#[tokio::test]
async fn b33_strangers_who_ask_in_a_subscribers_name_use_up_nothing_of_its_own() {
    let folder = tempdir().unwrap();
    let hub =
        HubProcess::start_public(folder.path(), &[PROXY, ("LIMITS_CALLBACK_HOST", "1/h, burst 3")]).await;
    let (topic, destination) = ("http://example.com/topic", Receiver::start().await);
    let callback = destination.url("/guessable");
    assert_eq!(subscribe(&hub, SUBSCRIBER, topic, &callback).await, 202);
    hub.until_subscribed(1).await;
    destination.behave(|_| Reply::Status(404, String::new()));
    let mut statuses = Vec::new();
    for client in 100..108 {
        for _ in 0..3 {
            statuses.push(subscribe(&hub, client, topic, &callback).await);
        }
    }
    assert_eq!(statuses.iter().filter(|status| **status == 202).count(), 15, "all together: {statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
    assert_eq!(subscribe(&hub, SUBSCRIBER, topic, &callback).await, 202);
}

#[tokio::test]
async fn b33_a_client_with_slow_topics_holds_up_no_ping_of_another_not_even_for_the_same_topic() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[PROXY, ("PUBLISH_FETCH_TIMEOUT", "5m")]).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = publisher.url("/topic");
    assert_eq!(subscribe(&hub, SUBSCRIBER, &topic, &destination.url("/cb")).await, 202);
    hub.until_subscribed(1).await;
    let slow = tarpits(5).await;
    for host in &slow {
        for number in 0..8 {
            let topic = host.url(&format!("/{number}"));
            hub.publish(&topic, "known to the hub").await.unwrap();
            ping_as(&hub, client(100), &topic).await;
        }
    }
    let asked = || slow.iter().map(|host| host.seen().len()).sum::<usize>();
    slow[0].until("six are asked for", |seen| seen.len() == 6).await;
    publisher.behave(|_| Reply::Page(200, Vec::new(), "news".to_owned()));
    ping_as(&hub, client(100), &topic).await;
    ping_as(&hub, client(101), &topic).await;
    assert_eq!(destination.until_delivered(1).await[0].text(), "news");
    assert_eq!(asked(), 6, "a client has six at once");
}

#[tokio::test]
async fn b33_a_strangers_topic_that_cannot_be_seen_is_asked_for_once() {
    let folder = tempdir().unwrap();
    let keys = [PROXY, ("TOPICS_POLICY", "advertised")];
    let mut hub = HubProcess::start_public(folder.path(), &keys).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    publisher.behave(|_| Reply::Status(503, String::new()));
    for client in [100, 101] {
        let callback = destination.url(&format!("/{client}"));
        assert_eq!(subscribe(&hub, client, &publisher.url("/topic"), &callback).await, 202);
    }
    hub.process().line_number("its topic could not be looked at", 2).await;
    hub.until_done().await;
    assert_eq!(publisher.seen().len(), 2, "once for each of them");
    assert!(destination.seen().is_empty(), "nobody was asked whether it meant what is not accepted");
}
