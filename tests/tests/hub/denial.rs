//! Denial: an operator ends a subscription at any time; it gets nothing from then on, and its callback is told (W-098 to W-102).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use resync_harness::{Answer, HubProcess, Process, Receiver, Reply, Seen, eventually, form};
use tempfile::tempdir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

const TOPIC: &str = "http://EXAMPLE.com/%7eframework/?a=1&b=2";

async fn deny(hub: &HubProcess, wish: &str) -> Answer {
    hub.admin_post("/api/v1/subscriptions/deny", wish).await
}

fn is_denial(seen: &Seen) -> bool {
    seen.parameter("hub.mode").as_deref() == Some("denied")
}

async fn until_told(destination: &Receiver, times: usize) -> Seen {
    let log = destination
        .until("the callback is told", |log| log.iter().filter(|seen| is_denial(seen)).count() >= times)
        .await;
    log.into_iter().rfind(is_denial).unwrap()
}

/// Runs a command until it has said this word; whether it succeeded, and what it said.
async fn command(hub: &HubProcess, data: &Path, arguments: &[&str], word: &str) -> (bool, String) {
    let (data, admin) = (data.display().to_string(), hub.admin_address().to_string());
    let mut all = vec!["subscriptions"];
    all.extend_from_slice(arguments);
    all.extend(["--data-dir", &data, "--admin", &admin]);
    let mut process = Process::start("resync-hub", &all, &HashMap::new());
    let success = process.wait().await.success();
    process.line(word).await;
    (success, process.said())
}

#[tokio::test]
async fn b27_w098_to_w102_a_denied_subscription_is_told_why_and_gets_nothing_more() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (denied, other) = (Receiver::start().await, Receiver::start().await);
    let own = "/cb?id=7&x=a%20b";
    hub.subscribe(TOPIC, &denied.url(own), &[], 1).await;
    hub.subscribe(TOPIC, &other.url("/cb"), &[], 2).await;
    hub.publish(TOPIC, "before").await.unwrap();
    denied.until_delivered(1).await;

    let (success, list) = command(&hub, folder.path(), &["list"], &denied.address().to_string()).await;
    assert!(success, "{list}");
    let line = list.lines().find(|line| line.contains(&denied.address().to_string())).unwrap();
    let id = line.split('\t').next().unwrap();
    let (success, said) =
        command(&hub, folder.path(), &["deny", id, "--reason", "moved to another hub"], "1 denied").await;
    assert!(success, "{said}");
    hub.publish(TOPIC, "after").await.unwrap();

    let told = until_told(&denied, 1).await;
    assert_eq!(told.method, http::Method::GET);
    assert!(told.target.starts_with(&format!("{own}&hub.mode=denied&hub.topic=")), "{}", told.target);
    assert_eq!(told.parameter("hub.topic").as_deref(), Some(TOPIC), "W-100: as given in the request");
    assert_eq!(told.parameter("hub.reason").as_deref(), Some("moved to another hub"), "W-101");
    assert!(told.parameter("hub.challenge").is_none());
    other.until_delivered(2).await;
    hub.until_subscribed(1).await;
    hub.until_done().await;
    assert_eq!(denied.deliveries().len(), 1);

    let (success, said) = command(&hub, folder.path(), &["deny", id], "no such subscription").await;
    assert!(!success, "{said}");
    hub.subscribe(TOPIC, &denied.url(own), &[], 2).await;
    hub.publish(TOPIC, "again").await.unwrap();
    assert_eq!(denied.until_delivered(2).await[1].text(), "again", "it may ask again");
}

#[tokio::test]
async fn w102_a_delivery_under_way_is_cut_off_and_what_is_late_is_never_sent() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    destination.behave(|seen| if is_denial(seen) { Reply::Agree } else { Reply::Hang });
    hub.publish(TOPIC, "hanging").await.unwrap();
    destination.until_delivered(1).await;
    for number in 0..5 {
        hub.publish(TOPIC, &format!("waiting {number}")).await.unwrap();
    }
    assert_eq!(deny(&hub, &format!("{{\"topic\": {TOPIC:?}}}")).await.text().trim(), "{\"denied\":1}");
    destination.behave(|_| Reply::Agree);
    until_told(&destination, 1).await;
    let control = Receiver::start().await;
    hub.subscribe(TOPIC, &control.url("/cb"), &[], 1).await;
    hub.publish(TOPIC, "later").await.unwrap();
    control.until_delivered(1).await;
    hub.until_done().await;
    assert_eq!(destination.deliveries().len(), 1, "nothing after the answer");
}

#[tokio::test]
async fn w102_a_renewal_that_waits_for_its_verification_is_denied_with_the_subscription() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with(folder.path(), &[("LOG_FILTER", "debug")]).await;
    let destination = Receiver::start().await;
    let (callback, release) = (destination.url("/cb"), Arc::new(Notify::new()));
    hub.subscribe(TOPIC, &callback, &[], 1).await;
    let held = Arc::clone(&release);
    destination.behave(move |seen| {
        if is_denial(seen) { Reply::Agree } else { Reply::After(Arc::clone(&held), Box::new(Reply::Agree)) }
    });
    let renewal = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
    assert_eq!(form(hub.address, &renewal).await.unwrap().status, 202);
    destination.until_verified(2).await;
    assert_eq!(deny(&hub, &format!("{{\"topic\": {TOPIC:?}}}")).await.status, 200);
    release.notify_one();
    hub.process().line("request replaced by a newer one").await;
    hub.until_done().await;
    hub.until_subscribed(0).await;
}

#[tokio::test]
async fn d08_b29_a_callback_that_was_not_told_is_told_again_even_after_kill_9() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with(folder.path(), &[("DELIVERY_TIMEOUT", "1s")]).await;
    let (away, control) = (Receiver::start().await, Receiver::start().await);
    hub.subscribe(TOPIC, &away.url("/cb"), &[], 1).await;
    away.behave(|_| Reply::Hang);
    assert_eq!(deny(&hub, &format!("{{\"topic\": {TOPIC:?}, \"reason\": \"why\"}}")).await.status, 200);
    until_told(&away, 1).await;
    until_told(&away, 2).await;
    hub.kill().await;
    away.behave(|_| Reply::Status(500, String::new()));
    hub.restart().await;
    let told = until_told(&away, 3).await;
    assert_eq!(told.parameter("hub.reason").as_deref(), Some("why"));
    hub.until_subscribed(0).await;

    hub.subscribe(TOPIC, &control.url("/cb"), &[], 1).await;
    let (status, said) = hub.stop().await;
    assert!(status.success(), "{said}");
    hub.restart().await;
    hub.publish(TOPIC, "news").await.unwrap();
    control.until_delivered(1).await;
    hub.until_done().await;
    assert_eq!(away.seen().iter().filter(|seen| is_denial(seen)).count(), 3, "any answer will do");
}

/// An operator's proxy, or an impatient one, hangs up while the subscribers of a large topic are denied.
#[tokio::test]
async fn what_was_begun_is_done_for_thousands_although_the_client_hangs_up() {
    const MANY: usize = 2_000;
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    for hundred in 0..MANY / 100 {
        let asking = (0..100).map(|number| {
            let callback = destination.url(&format!("/{hundred}/{number}"));
            let address = hub.address;
            async move {
                let wish = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &*callback)];
                form(address, &wish).await.unwrap().status
            }
        });
        assert!(join_all(asking).await.iter().all(|status| *status == 202));
    }
    hub.until_subscribed(MANY).await;

    let token = fs::read_to_string(folder.path().join("admin-token")).unwrap();
    let wish = format!("{{\"topic\": {TOPIC:?}}}");
    let mut client = TcpStream::connect(hub.admin_address()).await.unwrap();
    let order = format!(
        "POST /api/v1/subscriptions/deny HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{wish}",
        token.trim(),
        wish.len()
    );
    client.write_all(order.as_bytes()).await.unwrap();
    let audit = folder.path().join("audit.jsonl");
    eventually("it is begun", || async { fs::read_to_string(&audit).unwrap().contains("\"deny\"") }).await;
    drop(client);
    hub.until_subscribed(0).await;
    eventually("its end is written down", || async {
        fs::read_to_string(&audit).unwrap().contains(&format!("{MANY} denied"))
    })
    .await;
    // Who answers late is told again.
    let told = |log: &[Seen]| {
        log.len() >= 2 * MANY
            && log.iter().filter(|seen| is_denial(seen)).map(Seen::path).collect::<HashSet<_>>().len() == MANY
    };
    destination.until("each of them is told", told).await;
}

#[tokio::test]
async fn b33_nobody_is_told_who_is_not_subscribed_and_bad_orders_are_explained() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    assert_eq!(deny(&hub, "{\"ids\": [1, 2]}").await.text().trim(), "{\"denied\":0}");
    for (wish, word) in [
        ("", "write for example"),
        ("{\"id\": 7}", "did you mean ids?"),
        ("{\"topic\": \"somewhere\"}", "topic"),
        ("{\"ids\": [1], \"reason\": \"a\\nb\"}", "one line"),
    ] {
        let answer = deny(&hub, wish).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(word), "{}", answer.text());
    }
}
