//! What came before WebSub, and what has become of it: clients of PubSubHubbub 0.3 and 0.4 against the hub (C-06 to C-13).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::Ipv4Addr;

use resync_harness::{HubProcess, Receiver, Reply, Seen, form};
use tempfile::tempdir;

const TOPIC: &str = "http://source.example/topic";

async fn ping(hub: &HubProcess, topics: &[&str]) {
    let mut parameters = vec![("hub.mode", "publish")];
    parameters.extend(topics.iter().map(|topic| ("hub.url", *topic)));
    assert_eq!(form(hub.address, &parameters).await.unwrap().status, 204);
}

#[tokio::test]
async fn c06_names_without_their_prefix_mean_nothing() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    let bare = [("mode", "subscribe"), ("topic", TOPIC), ("callback", callback.as_str())];
    let refused = form(hub.address, &bare).await.unwrap();
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("hub.mode"), "{}", refused.text());

    let beside = [
        ("mode", "unsubscribe"),
        ("topic", "http://other.example/"),
        ("callback", "http://127.0.0.1:9/"),
        ("secret", "s3cr3t"),
        ("lease_seconds", "none"),
    ];
    hub.subscribe(TOPIC, &callback, &beside, 1).await;
    assert_eq!(destination.until_verified(1).await.parameter("hub.topic").as_deref(), Some(TOPIC));
    hub.publish(TOPIC, "news").await.unwrap();
    assert!(destination.until_delivered(1).await[0].headers.get("x-hub-signature").is_none());
}

#[tokio::test]
async fn c09_a_fragment_makes_no_other_subscription_and_is_never_sent() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let with_fragment = format!("{TOPIC}#top");
    hub.subscribe(&with_fragment, &destination.url("/cb?x=1#part"), &[], 1).await;
    let asked = destination.until_verified(1).await;
    assert!(asked.target.starts_with("/cb?x=1&hub.mode=") && !asked.target.contains('#'), "{}", asked.target);
    assert_eq!(asked.parameter("hub.topic"), Some(with_fragment), "it is echoed as it was written");

    hub.subscribe(TOPIC, &destination.url("/cb?x=1"), &[], 1).await;
    destination.until_verified(2).await;
    hub.publish(TOPIC, "one").await.unwrap();
    hub.publish(TOPIC, "two").await.unwrap();
    let got = destination.until_delivered(2).await;
    assert_eq!(got.iter().map(Seen::text).collect::<Vec<_>>(), ["one", "two"], "one subscription");
    assert!(got.iter().all(|seen| seen.target == "/cb?x=1"));
}

/// What a subscriber of 0.3 understands: new entries of a feed with their ids, signed with SHA-1.
#[tokio::test]
async fn c10_a_hub_can_be_set_up_for_subscribers_that_know_feeds_and_sha1_only() {
    let folder = tempdir().unwrap();
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = publisher.url("/feed");
    let prefix = format!("[\"{topic}\"]");
    let keys = [("SIGNATURE_METHOD", "sha1"), ("PUBLISH_ENTRY_DIFF", &prefix)];
    let hub = HubProcess::start_with(folder.path(), &keys).await;
    hub.subscribe(&topic, &destination.url("/cb"), &[("hub.secret", "s3cr3t")], 1).await;
    let entry = |id: u8| format!("<entry><id>urn:entry:{id}</id></entry>");
    let feed = |entries: &str| {
        format!("<feed xmlns='http://www.w3.org/2005/Atom'><id>urn:feed</id>{entries}</feed>")
    };
    for (number, whole, sent) in
        [(1, feed(&entry(1)), feed(&entry(1))), (2, feed(&(entry(2) + &entry(1))), feed(&entry(2)))]
    {
        publisher.behave(move |_| {
            Reply::Page(200, vec![("content-type", "application/atom+xml".to_owned())], whole.clone())
        });
        ping(&hub, &[&topic]).await;
        let delivery = destination.until_delivered(number).await.swap_remove(number - 1);
        assert_eq!(delivery.text(), sent);
        assert_eq!(delivery.header("content-type"), "application/atom+xml");
        let header = delivery.header("x-hub-signature");
        assert!(header.len() == 45 && header.starts_with("sha1="), "{header}");
        assert!(delivery.is_signed_with("s3cr3t"));
    }
}

/// `NewsBlur` and others recognise their own request by the token, and answer 404 without it; Feedbin knows SHA-1 only, and drops the rest.
#[tokio::test]
async fn c02_a_subscriber_that_sends_a_token_gets_it_back_and_its_host_has_the_signatures_it_knows() {
    let folder = tempdir().unwrap();
    let (old, young) =
        (Receiver::start().await, Receiver::start_at(Ipv4Addr::new(127, 0, 0, 2).into()).await);
    old.behave(|seen| match seen.parameter("hub.verify_token") {
        None if seen.method == "GET" => Reply::Status(404, "not asked for".to_owned()),
        _ => Reply::Agree,
    });
    let keys = [("SIGNATURE_BY_HOST", "[\"127.0.0.1=sha1\"]")];
    let mut hub = HubProcess::start_with(folder.path(), &keys).await;
    let token = "subscribe:a+b=&c/\u{e9}";
    let asked = [("hub.secret", "s3cr3t"), ("hub.verify_token", token)];
    hub.subscribe(TOPIC, &old.url("/cb?x=1"), &asked, 1).await;
    assert_eq!(old.until_verified(1).await.parameter("hub.verify_token").as_deref(), Some(token));
    hub.subscribe(TOPIC, &young.url("/cb"), &asked[..1], 2).await;
    assert_eq!(young.until_verified(1).await.parameter("hub.verify_token"), None);

    hub.publish(TOPIC, "news").await.unwrap();
    for (receiver, method) in [(&old, "sha1="), (&young, "sha256=")] {
        let got = receiver.until_delivered(1).await.swap_remove(0);
        assert!(got.header("x-hub-signature").starts_with(method), "{}", got.header("x-hub-signature"));
        assert!(got.is_signed_with("s3cr3t"));
    }

    let callback = old.url("/cb?x=1");
    let end = |token| {
        [("hub.mode", "unsubscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str()), token]
    };
    assert_eq!(form(hub.address, &end(("hub.verify_token", "bye"))).await.unwrap().status, 202);
    assert_eq!(old.until_verified(2).await.parameter("hub.verify_token").as_deref(), Some("bye"));
    hub.until_subscribed(1).await;
    let long = "t".repeat(513);
    let refused = form(hub.address, &end(("hub.verify_token", &long))).await.unwrap();
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("hub.verify_token") && refused.text().contains("512"),
        "{}",
        refused.text()
    );
    assert!(!hub.process().said().contains("a+b="), "it is never logged");
}

/// A token outlives a crash between the 202 and the verification.
#[tokio::test]
async fn c02_a_token_is_sent_back_after_kill_9_too() {
    let folder = tempdir().unwrap();
    let destination = Receiver::start().await;
    destination.behave(|_| Reply::Hang);
    let mut hub = HubProcess::start(folder.path()).await;
    let callback = destination.url("/cb");
    let asked = [
        ("hub.mode", "subscribe"),
        ("hub.topic", TOPIC),
        ("hub.callback", callback.as_str()),
        ("hub.verify_token", "remember me"),
    ];
    assert_eq!(form(hub.address, &asked).await.unwrap().status, 202);
    destination.until("it is asked", |seen| !seen.is_empty()).await;
    hub.kill().await;
    destination.behave(|_| Reply::Agree);
    hub.restart().await;
    hub.until_subscribed(1).await;
    let all = destination.seen();
    assert!(all.len() >= 2);
    assert!(all.iter().all(|seen| seen.parameter("hub.verify_token").as_deref() == Some("remember me")));
}

#[tokio::test]
async fn c12_a_denial_names_no_other_topic_and_host_meta_is_not_asked_for() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("TOPICS_POLICY", "advertised")]).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let (topic, callback, own) = (publisher.url("/topic"), destination.url("/cb"), hub.url());
    publisher.behave(move |seen| match seen.path() {
        "/topic" => Reply::Status(200, "names no hub".to_owned()),
        _ => Reply::With(200, "link", format!("<{own}>; rel=hub")),
    });
    let request = [("hub.mode", "subscribe"), ("hub.topic", &topic), ("hub.callback", &callback)];
    assert_eq!(form(hub.address, &request).await.unwrap().status, 202);
    let told = destination.until_verified(1).await;
    assert_eq!(told.parameter("hub.mode").as_deref(), Some("denied"));
    assert!(told.headers.get("location").is_none());
    let asked: Vec<_> = publisher.seen().iter().map(|seen| seen.target.clone()).collect();
    assert_eq!(asked, ["/topic"], "only the topic itself says which hubs it has");
}

#[tokio::test]
async fn c13_a_delivery_is_about_one_topic() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    publisher.behave(|seen| Reply::Status(200, format!("content of {}", seen.path())));
    let topics = [publisher.url("/one"), publisher.url("/two")];
    for (number, topic) in topics.iter().enumerate() {
        hub.subscribe(topic, &destination.url("/cb"), &[], number + 1).await;
    }
    ping(&hub, &[&topics[0], &topics[1]]).await;
    let mut got: Vec<_> = destination
        .until_delivered(2)
        .await
        .iter()
        .map(|seen| (seen.text(), seen.header("link").matches("rel=\"self\"").count()))
        .collect();
    got.sort();
    assert_eq!(got, [("content of /one".to_owned(), 1), ("content of /two".to_owned(), 1)]);
}
