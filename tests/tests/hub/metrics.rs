//! What an operator's Prometheus reads of a hub.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "helpers of tests fail like tests, and what is counted is whole"
)]

use std::collections::BTreeMap;

use resync_harness::{Answer, HubProcess, Receiver, Reply, eventually, post};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/framework/";

/// Every series with its value.
fn series(answer: &Answer) -> BTreeMap<String, f64> {
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn publishes_deliveries_and_their_times_are_counted_without_naming_anybody() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let begun = series(&hub.admin("/metrics").await);
    assert_eq!(begun["websub_publish_total{result=\"accepted\"}"], 0.0, "all are there from the start");

    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/secret-path"), &[], 1).await;
    for news in ["one", "two"] {
        assert_eq!(hub.publish(TOPIC, news).await.unwrap().status, 202);
    }
    assert_eq!(post(hub.address, &[("Content-Type", "text/plain")], b"no links").await.unwrap().status, 400);
    let name = "websub_deliveries_total{outcome=\"2xx\"}";
    eventually("both are delivered, and the subscription is counted", || async {
        let now = series(&hub.admin("/metrics").await);
        now[name] == 2.0 && now["websub_subscriptions"] == 1.0
    })
    .await;

    let answer = hub.admin("/metrics").await;
    assert!(
        answer.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0")
    );
    let now = series(&answer);
    for (name, value) in [
        ("websub_publish_total{result=\"accepted\"}", 2.0),
        ("websub_publish_total{result=\"refused\"}", 1.0),
        ("websub_publish_bytes_total", 6.0),
        ("websub_publish_duration_seconds_count", 2.0),
        ("websub_delivery_duration_seconds_count", 2.0),
        ("websub_delivery_lag_seconds_count{until=\"first_attempt\"}", 2.0),
        ("websub_delivery_lag_seconds_count{until=\"success\"}", 2.0),
        ("websub_deliveries_total{outcome=\"timeout\"}", 0.0),
        ("websub_topics", 1.0),
        ("websub_subscriptions", 1.0),
        ("websub_ready", 1.0),
        ("websub_laggards", 0.0),
        ("websub_past_due_subscriptions", 0.0),
        ("websub_verifications_total{result=\"confirmed\"}", 1.0),
        ("websub_verifications_total{result=\"refused\"}", 0.0),
        ("websub_given_up_total{reason=\"refused\"}", 0.0),
        ("websub_hubs", 1.0),
        ("websub_shards", 16.0),
        ("websub_shards_owned", 16.0),
        ("websub_shards_taken_total", 16.0),
        ("websub_database_away_seconds", 0.0),
        ("websub_database_durable", 1.0),
    ] {
        assert_eq!(now.get(name), Some(&value), "{name}");
    }
    let sent = u32::try_from(6 + 2 * (TOPIC.len() + hub.url().len())).unwrap();
    assert!(now["websub_log_bytes"] > f64::from(sent), "links weigh too");
    for name in
        ["websub_log_fsync_seconds_count", "process_resident_memory_bytes", "process_cpu_seconds_total"]
    {
        assert!(now[name] > 0.0, "{name}");
    }
    let text = answer.text();
    assert!(!text.contains("example.com") && !text.contains("secret-path"), "{text}");
    assert!(now.keys().all(|name| !name.contains("127.0.0.1")));
}

#[tokio::test]
async fn failures_are_told_by_their_kind() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    drop(destination);
    assert_eq!(hub.publish(TOPIC, "news").await.unwrap().status, 202);
    eventually("the attempt has failed", || async {
        let now = series(&hub.admin("/metrics").await);
        now["websub_deliveries_total{outcome=\"connection\"}"] >= 1.0
            && now["websub_laggards"] == 1.0
            && now["websub_past_due_subscriptions"] == 0.0
    })
    .await;

    let listed = hub.admin("/api/v1/subscriptions").await;
    let listed: serde_json::Value = serde_json::from_slice(&listed.body).unwrap();
    let skip = format!("/api/v1/deliveries/skip?subscription={}", listed["items"][0]["id"]);
    eventually("it is skipped", || async { hub.admin_post(&skip, "").await.status == 200 }).await;
    let by = |reason: &str| format!("websub_given_up_total{{reason=\"{reason}\"}}");
    eventually("it is told who gave it up", || async {
        series(&hub.admin("/metrics").await)[&by("operator")] == 1.0
    })
    .await;
    let now = series(&hub.admin("/metrics").await);
    assert_eq!(["refused", "failed", "message"].map(|reason| now[&by(reason)]), [0.0; 3]);
}

#[tokio::test]
async fn deliveries_under_way_are_told_by_their_lane_and_progress_is_saved_all_the_while() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    destination.behave(|_| Reply::Hang);
    assert_eq!(hub.publish(TOPIC, "news").await.unwrap().status, 202);
    eventually("it is under way", || async {
        let now = series(&hub.admin("/metrics").await);
        let lanes =
            ["first", "retry", "slow"].map(|lane| now[&format!("websub_inflight{{lane=\"{lane}\"}}")]);
        lanes == [1.0, 0.0, 0.0] && now["websub_checkpoint_age_seconds"] < 0.5
    })
    .await;
}
