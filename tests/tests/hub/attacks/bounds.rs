//! How much one network of clients may have the hub remember: subscriptions, topics, callback hosts.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

pub(super) use resync_harness::PROXY;
use resync_harness::{Answer, HubProcess, Receiver, Reply, Seen, ask_as, subscribe_as};
use tempfile::tempdir;
use tokio::sync::Notify;

const STRANGER: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.2";

/// A number of the hub's own.
pub(super) async fn metric(hub: &HubProcess, name: &str) -> u64 {
    let text = hub.admin("/metrics").await.text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    format!("{:.0}", value.unwrap_or_else(|| panic!("no {name} in {text}"))).parse().unwrap()
}

async fn unsubscribe(hub: &HubProcess, client: &str, topic: &str, callback: &str) -> Answer {
    let parameters = [("hub.mode", "unsubscribe"), ("hub.topic", topic), ("hub.callback", callback)];
    ask_as(hub.address, client, &parameters).await
}

async fn subscribe(hub: &HubProcess, client: &str, topic: &str, callback: &str, count: usize) {
    let answer = subscribe_as(hub, client, topic, callback).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    hub.until_subscribed(count).await;
}

async fn is_refused(
    hub: &HubProcess,
    client: &str,
    topic: &str,
    callback: &str,
    status: u16,
    words: [&str; 3],
) {
    let answer = subscribe_as(hub, client, topic, callback).await;
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("3600"));
    for word in words {
        assert!(answer.text().contains(word), "{word}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_client_has_so_many_subscriptions_also_after_a_restart_and_gets_back_what_it_gives_up() {
    let folder = tempdir().unwrap();
    let keys = [PROXY, ("LIMITS_MOST_SUBSCRIPTIONS_OF_CLIENT", "3")];
    let mut hub = HubProcess::start_public(folder.path(), &keys).await;
    let destination = Receiver::start().await;
    let (topic, callback) = ("http://example.com/topic", |number: u8| destination.url(&format!("/{number}")));
    for number in 1..=3 {
        subscribe(&hub, STRANGER, topic, &callback(number), number.into()).await;
    }
    let words = ["3 subscriptions", "unsubscribe", "most_subscriptions_of_client"];
    is_refused(&hub, STRANGER, topic, &callback(4), 429, words).await;
    subscribe(&hub, OTHER, topic, &callback(5), 4).await;
    assert_eq!(subscribe_as(&hub, STRANGER, topic, &callback(1)).await.status, 202, "a renewal goes through");
    destination.until_verified(5).await;

    hub.kill().await;
    hub.restart().await;
    is_refused(&hub, STRANGER, topic, &callback(4), 429, words).await;
    assert_eq!(unsubscribe(&hub, STRANGER, topic, &callback(2)).await.status, 202);
    hub.until_subscribed(3).await;
    subscribe(&hub, STRANGER, topic, &callback(4), 4).await;
    is_refused(&hub, STRANGER, topic, &callback(2), 429, words).await;
}

#[tokio::test]
async fn of_requests_that_are_confirmed_late_no_more_come_into_force_than_a_client_may_have() {
    let folder = tempdir().unwrap();
    let keys = [PROXY, ("LIMITS_MOST_SUBSCRIPTIONS_OF_CLIENT", "3")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let ((soon, confirms_soon), (late, confirms_late)) = (thoughtful().await, thoughtful().await);
    for number in 1..=3 {
        for destination in [&soon, &late] {
            let callback = destination.url(&format!("/{number}"));
            let answer = subscribe_as(&hub, STRANGER, "http://example.com/topic", &callback).await;
            assert_eq!(answer.status, 202, "there is room while none is in force: {}", answer.text());
        }
    }
    soon.until_verified(3).await;
    late.until_verified(3).await;
    confirms_soon.notify_waiters();
    hub.until_subscribed(3).await;
    confirms_late.notify_waiters();
    let denied =
        |seen: &[Seen]| seen.iter().filter_map(|seen| seen.parameter("hub.reason")).collect::<Vec<_>>();
    let seen = late.until("three are denied", |seen| denied(seen).len() == 3).await;
    assert!(denied(&seen).iter().all(|reason| reason.contains("3 subscriptions")), "{:?}", denied(&seen));
    hub.until_subscribed(3).await;
}

/// A destination that confirms what it is asked once it is told to.
async fn thoughtful() -> (Receiver, Arc<Notify>) {
    let (destination, confirms) = (Receiver::start().await, Arc::new(Notify::new()));
    let release = Arc::clone(&confirms);
    destination.behave(move |seen| match seen.parameter("hub.mode").as_deref() {
        Some("subscribe") => Reply::After(Arc::clone(&release), Box::new(Reply::Agree)),
        _ => Reply::Agree,
    });
    (destination, confirms)
}

#[tokio::test]
async fn topics_and_callback_hosts_count_for_the_client_that_names_them_first() {
    let folder = tempdir().unwrap();
    let keys = [PROXY, ("LIMITS_MOST_TOPICS_OF_CLIENT", "2"), ("LIMITS_MOST_CALLBACK_HOSTS_OF_CLIENT", "2")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let topic = |name: &str| format!("http://example.com/{name}");
    let (one, two, three) = (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    subscribe(&hub, STRANGER, &topic("a"), &one.url("/a"), 1).await;
    subscribe(&hub, STRANGER, &topic("b"), &two.url("/b"), 2).await;
    let topics = ["2 topics", "first to name", "most_topics_of_client"];
    is_refused(&hub, STRANGER, &topic("c"), &one.url("/c"), 429, topics).await;
    let hosts = ["2 callback hosts", "first to name", "most_callback_hosts_of_client"];
    is_refused(&hub, STRANGER, &topic("a"), &three.url("/a"), 429, hosts).await;

    subscribe(&hub, OTHER, &topic("c"), &three.url("/c"), 3).await;
    subscribe(&hub, STRANGER, &topic("c"), &three.url("/d"), 4).await;
    assert_eq!(unsubscribe(&hub, STRANGER, &topic("b"), &two.url("/b")).await.status, 202);
    hub.until_subscribed(3).await;
    let four = Receiver::start().await;
    subscribe(&hub, STRANGER, &topic("d"), &four.url("/d"), 4).await;
}

#[tokio::test]
async fn the_networks_of_an_ipv6_site_are_one_client() {
    let folder = tempdir().unwrap();
    let keys = [PROXY, ("LIMITS_MOST_SUBSCRIPTIONS_OF_CLIENT", "1")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let (topic, destination) = ("http://example.com/topic", Receiver::start().await);
    subscribe(&hub, "2001:db8:1:1::1", topic, &destination.url("/1"), 1).await;
    let words = ["1 subscriptions", "unsubscribe", "most_subscriptions_of_client"];
    is_refused(&hub, "2001:db8:1:2::2", topic, &destination.url("/2"), 429, words).await;
    subscribe(&hub, "2001:db8:2:1::1", topic, &destination.url("/3"), 2).await;
}

#[tokio::test]
async fn a_hub_that_is_full_says_so_and_goes_on_for_those_who_are_there() {
    let folder = tempdir().unwrap();
    let of_client = ("LIMITS_MOST_SUBSCRIPTIONS_OF_CLIENT", "2");
    let keys = [PROXY, of_client, ("LIMITS_MOST_SUBSCRIPTIONS", "3")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let (topic, destination) = ("http://example.com/topic", Receiver::start().await);
    for (number, client) in [(1, STRANGER), (2, STRANGER), (3, OTHER)] {
        subscribe(&hub, client, topic, &destination.url(&format!("/{number}")), number).await;
    }
    let words = ["this hub has 3 subscriptions", "try again", "[limits] most_subscriptions"];
    is_refused(&hub, "192.0.2.3", topic, &destination.url("/4"), 503, words).await;
    assert_eq!(subscribe_as(&hub, OTHER, topic, &destination.url("/3")).await.status, 202);
    hub.publish(topic, "news").await.unwrap();
    destination.until_delivered(3).await;
}

#[tokio::test]
async fn without_limits_a_client_has_as_many_as_it_likes() {
    let folder = tempdir().unwrap();
    let keys = [("LIMITS_ENABLED", "false"), ("LIMITS_MOST_SUBSCRIPTIONS_OF_CLIENT", "1")];
    let hub = HubProcess::start_public(folder.path(), &keys).await;
    let (topic, destination) = ("http://example.com/topic", Receiver::start().await);
    for number in 1..=3 {
        hub.subscribe(topic, &destination.url(&format!("/{number}")), &[], number).await;
    }
}
