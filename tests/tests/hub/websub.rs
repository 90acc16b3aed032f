//! What WebSub asks of a hub in its simplest form, where no other test file looks: from a request to a signed delivery.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use resync_harness::{HubProcess, Receiver, Reply, Seen, form, post};
use tempfile::tempdir;

const TOPIC: &str = "http://source.example/topic";

#[tokio::test]
async fn w010_w011_w013_w018_w060_w085_w086_a_request_is_taken_with_and_without_a_secret_and_again() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    let plain = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
    let secret = [&plain[..], &[("hub.secret", "s3cr3t")]].concat();
    for (number, request) in [&plain[..], &secret, &secret].into_iter().enumerate() {
        assert_eq!(form(hub.address, request).await.unwrap().status, 202);
        destination.until_verified(number + 1).await;
    }
    hub.until_subscribed(1).await;
}

#[tokio::test]
async fn w059_parameters_that_nobody_knows_change_nothing() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let more = [("foo", "bar"), ("hub.foo", "bar"), ("hub.verify", "sync")];
    hub.subscribe(TOPIC, &destination.url("/cb"), &more, 1).await;
}

#[tokio::test]
async fn w087_w088_an_error_in_the_request_is_a_4xx_in_plain_text() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    for bad in [&[("hub.mode", "subscribe")][..], &[("hub.mode", "juggle"), ("hub.topic", TOPIC)]] {
        let answer = form(hub.address, bad).await.unwrap();
        assert_eq!(answer.status, 400);
        assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
        assert!(answer.text().contains("hub."), "{}", answer.text());
    }
    let answer = post(hub.address, &[("Content-Type", "text/plain")], b"hub.mode=subscribe").await.unwrap();
    assert_eq!(answer.status / 100, 4);
}

#[tokio::test]
async fn w012_w050_w097_w105_to_w109_w111_w121_a_verification_names_mode_topic_challenge_and_the_lease_asked_for()
 {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[("hub.lease_seconds", "7200")], 1).await;
    let asked = destination.until_verified(1).await;
    let parameter = |name| asked.parameter(name).unwrap_or_default();
    assert_eq!(parameter("hub.mode"), "subscribe");
    assert_eq!(parameter("hub.topic"), TOPIC);
    assert!(parameter("hub.challenge").len() >= 16);
    let lease: u64 = parameter("hub.lease_seconds").parse().unwrap();
    assert!((6_480..=7_200).contains(&lease), "{lease}");
}

#[tokio::test]
async fn w014_w097_w105_w107_w108_w112_an_unsubscription_is_verified_and_then_nothing_more_comes() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (leaving, staying) = (Receiver::start().await, Receiver::start().await);
    let callback = leaving.url("/cb");
    hub.subscribe(TOPIC, &callback, &[], 1).await;
    hub.subscribe(TOPIC, &staying.url("/cb"), &[], 2).await;
    let request = [("hub.mode", "unsubscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
    assert_eq!(form(hub.address, &request).await.unwrap().status, 202);
    let asked = leaving.until_verified(2).await;
    assert_eq!(asked.parameter("hub.mode").as_deref(), Some("unsubscribe"));
    assert_eq!(asked.parameter("hub.topic").as_deref(), Some(TOPIC));
    assert_eq!(asked.parameter("hub.lease_seconds"), None);
    hub.until_subscribed(1).await;
    hub.publish(TOPIC, "x").await.unwrap();
    staying.until_delivered(1).await;
    hub.until_done().await;
    assert!(leaving.deliveries().is_empty());
}

#[tokio::test]
async fn w015_w019_w140_w141_w142_w144_w145_w146_b05_a_delivery_is_the_content_with_type_and_links() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb?a=%20b&c"), &[], 1).await;
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let kind = "application/xml;Charset=\"utf-8\"";
    let body = b"\xef\xbb\xbf<a>\r\n\0</a>";
    post(hub.address, &[("Content-Type", kind), ("Link", &link)], body).await.unwrap();
    let delivery = destination.until_delivered(1).await.remove(0);
    assert_eq!(delivery.method, http::Method::POST);
    assert_eq!(delivery.target, "/cb?a=%20b&c");
    assert_eq!(delivery.header("content-type"), kind);
    assert_eq!(&delivery.body[..], body);
    assert_eq!(delivery.headers.get_all("link").iter().count(), 1);
    assert_eq!(delivery.header("link"), format!("<{}>; rel=\"hub\", <{TOPIC}>; rel=\"self\"", hub.url()));
}

#[tokio::test]
async fn w017_w018_w055_w165_w191_w194_b21_each_subscription_is_signed_with_its_own_secret() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (one, other, none) = (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let longest = "\u{fc}".repeat(99) + "x";
    hub.subscribe(TOPIC, &one.url("/cb"), &[("hub.secret", &longest)], 1).await;
    hub.subscribe(TOPIC, &other.url("/cb"), &[("hub.secret", "second")], 2).await;
    hub.subscribe(TOPIC, &none.url("/cb"), &[], 3).await;
    hub.publish(TOPIC, "x\0y").await.unwrap();
    assert!(one.until_delivered(1).await[0].is_signed_with(&longest));
    let delivery = other.until_delivered(1).await.remove(0);
    assert!(delivery.is_signed_with("second") && !delivery.is_signed_with(&longest));
    assert!(delivery.header("x-hub-signature").starts_with("sha256="));
    assert!(none.until_delivered(1).await[0].headers.get("x-hub-signature").is_none());
}

#[tokio::test]
async fn b25_w152_w159_fn045_a_404_or_403_is_a_failure_and_no_end() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("DELIVERY_SCHEDULE_4XX", "[\"50ms\"]")]).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    for status in [404, 403] {
        let (refused, taken) = (format!("refused with {status}"), format!("after {status}"));
        destination.behave(move |_| Reply::Status(status, String::new()));
        hub.publish(TOPIC, &refused).await.unwrap();
        let tries = |log: &[Seen]| log.iter().filter(|seen| seen.text() == refused).count();
        destination.until("it is tried twice", |log| tries(log) == 2).await;
        destination.behave(|_| Reply::Agree);
        hub.publish(TOPIC, &taken).await.unwrap();
        destination.until("the next one comes", |log| log.iter().any(|seen| seen.text() == taken)).await;
    }
    hub.until_subscribed(1).await;
}

#[tokio::test]
async fn w051_w185_without_a_wish_a_lease_is_ten_days_at_most() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    let lease: u64 =
        destination.until_verified(1).await.parameter("hub.lease_seconds").unwrap().parse().unwrap();
    assert!((777_600..=864_000).contains(&lease), "{lease}");
}
