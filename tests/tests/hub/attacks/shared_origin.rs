//! One path of a shared origin that fails holds up no other path (H3).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::{Duration, Instant};

use http::Method;
use resync_harness::{HubProcess, PROXY, Receiver, Reply, Seen, client, refusing, subscribe_as};
use tempfile::tempdir;

const HONEST: &str = "http://example.com/honest";
const ATTACK: &str = "http://example.com/attack";
/// As many failures in a row as the release configuration lets a breaker open after, and some more.
const FAILING: usize = 8;

/// Whoever verifies is agreed with. One tenant of the origin answers deliveries with an error and a wish for an hour's peace.
fn one_tenant_fails(seen: &Seen) -> Reply {
    if seen.method == Method::POST && seen.path() == "/failing" {
        Reply::With(503, "retry-after", "3600".to_owned())
    } else {
        Reply::Agree
    }
}

fn of_path<'a>(seen: &'a [Seen], path: &'a str) -> impl Iterator<Item = &'a Seen> {
    seen.iter().filter(move |seen| seen.method == Method::POST && seen.path() == path)
}

#[tokio::test]
async fn h3_a_path_that_fails_and_asks_for_an_hour_holds_up_no_other_path_of_its_origin() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[PROXY]).await;
    let origin = Receiver::start().await;
    origin.behave(one_tenant_fails);
    hub.subscribe(HONEST, &origin.url("/honest"), &[], 1).await;
    hub.subscribe("http://example.com/other", &origin.url("/other"), &[], 2).await;
    let mut subscriptions = 2;
    for round in 1..=3 {
        // Each failing subscription gets its hour, so that the attacker makes new ones.
        for number in 0..FAILING {
            subscriptions += 1;
            let callback = origin.url(&format!("/failing?{round}.{number}"));
            let answer = subscribe_as(&hub, client(subscriptions), ATTACK, &callback).await;
            assert_eq!(answer.status, 202, "{}", answer.text());
        }
        hub.publish(ATTACK, "to fail at").await.unwrap();
        origin.until("the attack is on", |seen| of_path(seen, "/failing").count() >= 5 * round).await;
        for topic in [HONEST, "http://example.com/other"] {
            let began = Instant::now();
            hub.publish(topic, "news").await.unwrap();
            let path = if topic == HONEST { "/honest" } else { "/other" };
            origin.until("the honest one gets its news", |seen| of_path(seen, path).count() >= round).await;
            assert!(began.elapsed() < Duration::from_secs(10), "{path} waited for {:?}", began.elapsed());
        }
    }
}

#[tokio::test]
async fn h3_after_an_outage_the_probe_goes_to_the_path_that_was_delivered_to_last() {
    let folder = tempdir().unwrap();
    let soon = ("DELIVERY_SCHEDULE", r#"["1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s"]"#);
    let hub = HubProcess::start_public(folder.path(), &[soon]).await;
    let origin = Receiver::start().await;
    hub.subscribe(HONEST, &origin.url("/honest"), &[], 1).await;
    for number in 0..FAILING {
        let callback = origin.url(&format!("/failing?{number}"));
        hub.subscribe(ATTACK, &callback, &[], number + 2).await;
    }
    hub.publish(HONEST, "before").await.unwrap();
    origin.until("it is delivered", |seen| of_path(seen, "/honest").count() == 1).await;
    // The whole origin is down, and the hub finds that out for one path after the other.
    origin.behave(refusing(503));
    hub.publish(ATTACK, "to fail at").await.unwrap();
    origin.until("all of them fail", |seen| of_path(seen, "/failing").count() >= FAILING).await;
    hub.publish(HONEST, "during").await.unwrap();
    let seen = origin.until("it fails too", |seen| of_path(seen, "/honest").count() == 2).await;
    // Then one tenant of it is well again, and the other one is not.
    origin.behave(one_tenant_fails);
    let (began, before) = (Instant::now(), seen.len());
    let seen = origin
        .until("it is delivered after all", |seen| of_path(&seen[before..], "/honest").count() > 0)
        .await;
    assert!(began.elapsed() < Duration::from_secs(10), "it waited for {:?}", began.elapsed());
    assert_eq!(seen[before].path(), "/honest", "nobody was tried before it");
}
