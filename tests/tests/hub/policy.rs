//! What the hub decides about requests before a callback is asked, and what it leaves to others: policies, validation with the
//! publisher, another hub.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use resync_harness::{HubProcess, Receiver, Reply, form, post};
use tempfile::tempdir;

const TOPIC: &str = "http://source.example/topic";

#[tokio::test]
async fn w066_the_publisher_is_not_asked_whether_somebody_may_unsubscribe() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("TOPICS_POLICY", "advertised")]).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let (topic, callback, own) = (publisher.url("/topic"), destination.url("/cb"), hub.url());
    publisher.behave(move |_| Reply::With(200, "link", format!("<{own}>; rel=hub")));
    hub.subscribe(&topic, &callback, &[], 1).await;
    assert_eq!(publisher.seen().len(), 1, "W-096: asked whether to accept");
    let unsubscribe = [("hub.mode", "unsubscribe"), ("hub.topic", &topic), ("hub.callback", &callback)];
    assert_eq!(form(hub.address, &unsubscribe).await.unwrap().status, 202);
    hub.until_subscribed(0).await;
    hub.until_done().await;
    assert_eq!(publisher.seen().len(), 1);
}

#[tokio::test]
async fn w091_w092_b28_a_hub_that_has_moved_names_the_other_one_and_serves_whom_it_has() {
    let (old_folder, new_folder) = (tempdir().unwrap(), tempdir().unwrap());
    let mut old = HubProcess::start(old_folder.path()).await;
    let new = HubProcess::start(new_folder.path()).await;
    let (staying, moving) = (Receiver::start().await, Receiver::start().await);
    let (callback, leaving) = (moving.url("/cb"), moving.url("/leaving"));
    old.subscribe(TOPIC, &staying.url("/cb"), &[], 1).await;
    old.subscribe(TOPIC, &leaving, &[], 2).await;
    old.stop().await;
    old.environment().insert("RESYNC_HUB_MOVED_TO".to_owned(), new.url());
    old.restart().await;

    let body = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)])
        .finish();
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let sent_away = post(old.address, &headers, body.as_bytes()).await.unwrap();
    assert_eq!((sent_away.status, sent_away.header("location")), (308, Some(new.url().as_str())));
    assert!(sent_away.text().contains(&new.url()), "{}", sent_away.text());
    assert_eq!(post(new.address, &headers, body.as_bytes()).await.unwrap().status, 202);
    new.until_subscribed(1).await;

    let unsubscribe = [("hub.mode", "unsubscribe"), ("hub.topic", TOPIC), ("hub.callback", &leaving)];
    assert_eq!(form(old.address, &unsubscribe).await.unwrap().status, 202, "they are known here only");
    old.until_subscribed(1).await;
    old.publish(TOPIC, "news").await.unwrap();
    assert_eq!(staying.until_delivered(1).await[0].text(), "news");
    old.until_done().await;
    new.until_done().await;
    assert!(moving.deliveries().is_empty());
}
