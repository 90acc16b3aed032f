//! Callbacks just below every threshold of slowness take their own network's places only (H2).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use resync_harness::{HubProcess, PROXY, Receiver, Reply, Seen, client, subscribe_as};
use tempfile::tempdir;

/// The constant above which a host is a slow one whatever its peers do is three seconds.
const JUST_BELOW: Duration = Duration::from_millis(2_900);
const SLOW_HOSTS: u8 = 64;
const OF_EACH: usize = 8;
const HEALTHY: usize = 100;
/// What is owed to each slow subscription takes it so many times as long as one answer.
const POSTS: usize = 12;
/// Fewer than the slow ones would take, as the default is for an attacker with four times as many hosts.
const FEW_PLACES: (&str, &str) = ("DELIVERY_MAX_IN_FLIGHT", "256");

async fn subscribe(hub: &HubProcess, number: usize, topic: &str, callback: &str) {
    let answer = subscribe_as(hub, client(number.try_into().unwrap()), topic, callback).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
}

fn agrees_late(seen: &Seen) -> Reply {
    if seen.method == Method::POST { Reply::Late(JUST_BELOW) } else { Reply::Agree }
}

/// Hosts that agree to be subscribed and take their time for deliveries, the n-th at this address.
async fn slow_hosts(address: impl Fn(u8) -> Ipv4Addr) -> Vec<Receiver> {
    let hosts = join_all((0..SLOW_HOSTS).map(|number| Receiver::start_at(address(number).into()))).await;
    for host in &hosts {
        host.behave(agrees_late);
    }
    hosts
}

/// How long a post to a hundred healthy subscribers takes while every place that slow hosts can get is theirs.
async fn healthy_ones_wait(slow: &[Receiver]) -> Duration {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[FEW_PLACES, PROXY]).await;
    let (attacked, honest) = ("http://example.com/attack", "http://example.com/honest");
    let healthy =
        join_all((0..4).map(|host| Receiver::start_at(Ipv4Addr::new(127, 99, host, 1).into()))).await;
    for number in 0..OF_EACH {
        for (client, host) in slow.iter().enumerate() {
            subscribe(&hub, client, attacked, &host.url(&format!("/{number}"))).await;
        }
    }
    for number in 0..HEALTHY {
        let host = &healthy[number % healthy.len()];
        subscribe(&hub, 100 + number / 10, honest, &host.url(&format!("/{number}"))).await;
    }
    hub.until_subscribed(slow.len() * OF_EACH + HEALTHY).await;
    for number in 0..POSTS {
        hub.publish(attacked, &number.to_string()).await.unwrap();
    }
    for host in slow {
        host.until("the attack is on", |seen| seen.iter().any(|seen| seen.method == Method::POST)).await;
    }
    let began = Instant::now();
    hub.publish(honest, "news").await.unwrap();
    join_all(healthy.iter().map(|host| host.until_delivered(HEALTHY / healthy.len()))).await;
    let waited = began.elapsed();
    let sent = slow.iter().map(|host| host.look(|seen| seen.len() - OF_EACH)).sum::<usize>();
    assert!(sent < slow.len() * OF_EACH * POSTS, "the attack lasts: {sent} were sent to the slow ones");
    waited
}

#[tokio::test]
async fn h2_hosts_just_below_the_threshold_on_as_many_networks_hold_up_no_healthy_one() {
    let slow = slow_hosts(|number| Ipv4Addr::new(127, 20, number, 1)).await;
    let waited = healthy_ones_wait(&slow).await;
    assert!(waited < Duration::from_secs(2), "{waited:?}");
}

#[tokio::test]
async fn h2_hosts_just_below_the_threshold_on_one_network_hold_up_no_healthy_one() {
    let slow = slow_hosts(|number| Ipv4Addr::new(127, 20, 0, number + 1)).await;
    let waited = healthy_ones_wait(&slow).await;
    assert!(waited < Duration::from_secs(2), "{waited:?}");
}
