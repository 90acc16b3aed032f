//! What strangers have the hub keep is taken from their own share of the log (H1).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::Ipv4Addr;
use std::path::Path;

use resync_harness::{HubProcess, Receiver, Reply, eventually, post, refusing};
use tempfile::tempdir;
use url::form_urlencoded::Serializer;

use super::bounds::{PROXY, metric};

/// What strangers have of 4 MiB.
const SHARE: u64 = 4 * 1024 * 1024 / 10;
const TOPIC: &str = "http://publisher.example/framework/";
const NOTIFICATIONS: usize = 6;
/// What a hub keeps beside that: the publisher's notifications, and records of topics and subscriptions.
const BESIDE: u64 = 128 * 1024;

async fn ask(hub: &HubProcess, client: u8, parameters: &[(&str, &str)]) {
    let client = Ipv4Addr::new(192, 0, 2, client).to_string();
    let headers =
        [("Content-Type", "application/x-www-form-urlencoded"), ("X-Forwarded-For", client.as_str())];
    let body = Serializer::new(String::new()).extend_pairs(parameters).finish();
    let answer = post(hub.address, &headers, body.as_bytes()).await.unwrap();
    assert!(matches!(answer.status, 202 | 204), "{}: {}", answer.status, answer.text());
}

async fn subscribe(hub: &HubProcess, client: u8, topic: &str, callback: &str) {
    ask(hub, client, &[("hub.mode", "subscribe"), ("hub.topic", topic), ("hub.callback", callback)]).await;
}

async fn start(data: &Path) -> HubProcess {
    HubProcess::start_public(data, &[PROXY, ("RETENTION_SIZE", "4 MiB")]).await
}

/// A publisher whose subscriber is behind.
async fn publish(hub: &HubProcess) -> Receiver {
    let destination = Receiver::start().await;
    destination.behave(refusing(503));
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    for number in 0..NOTIFICATIONS {
        let body = format!("{number} {}", "x".repeat(2_000));
        assert_eq!(hub.publish(TOPIC, &body).await.unwrap().status, 202);
    }
    destination
}

/// It comes back and gets every one.
async fn is_owed_nothing(hub: &HubProcess, destination: &Receiver) {
    let topics = hub.admin("/api/v1/topics").await.text();
    assert!(topics.contains("\"first\":1,\"head\":6,"), "its log was shortened: {topics}");
    let before = destination.deliveries().len();
    destination.behave(|_| Reply::Agree);
    hub.admin_post(&format!("/api/v1/deliveries/retry?topic={TOPIC}"), "").await;
    let all = destination.until_delivered(before + NOTIFICATIONS).await;
    let numbers = all[before..].iter().map(|seen| seen.text().split(' ').next().unwrap().to_owned());
    assert_eq!(numbers.collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(metric(hub, "websub_lost_to_retention_total").await, 0);
}

/// Who reads the blog's feed comes back and gets its news.
async fn loses_nothing(hub: &HubProcess, blog: &Receiver, reader: &Receiver) {
    reader.behave(|_| Reply::Agree);
    let before = reader.deliveries().len();
    hub.admin_post(&format!("/api/v1/deliveries/retry?topic={}", blog.url("/feed")), "").await;
    assert!(reader.until_delivered(before + 1).await[before].text().starts_with("news "));
    assert_eq!(metric(hub, "websub_lost_to_retention_total").await, 0);
}

/// Strangers' topics of so many bytes each, every one on a network of its own, and one that takes what they say.
async fn strangers(hub: &HubProcess, count: u8, bytes: usize) -> (Vec<Receiver>, Receiver) {
    let accomplice = Receiver::start_at(Ipv4Addr::new(127, 0, 19, 1).into()).await;
    let mut hosts = Vec::new();
    for number in 0..count {
        let host = Receiver::start_at(Ipv4Addr::new(127, 0, 20 + number, 1).into()).await;
        show(&host, "first", bytes);
        let (topic, callback) = (host.url("/topic"), accomplice.url(&format!("/{number}")));
        subscribe(hub, 100 + number / 5, &topic, &callback).await;
        hosts.push(host);
    }
    hub.until_subscribed(usize::from(count) + 1).await;
    (hosts, accomplice)
}

fn show(host: &Receiver, version: &str, bytes: usize) {
    let page = format!("{version} {}", "x".repeat(bytes - version.len() - 1));
    host.behave(move |_| Reply::Page(200, vec![("Content-Type", "text/plain".to_owned())], page.clone()));
}

async fn ping(hub: &HubProcess, client: u8, topic: &str) {
    ask(hub, client, &[("hub.mode", "publish"), ("hub.url", topic)]).await;
}

/// What strangers have of the log.
async fn of_strangers(hub: &HubProcess) -> u64 {
    metric(hub, "websub_log_share_bytes{share=\"others\"}").await
}

#[tokio::test]
async fn strangers_whose_topics_would_fill_the_log_take_nothing_from_a_publisher_whose_subscriber_is_late() {
    const STRANGERS: u8 = 28;
    const BYTES: usize = 150_000;
    let folder = tempdir().unwrap();
    let mut hub = start(folder.path()).await;
    let destination = publish(&hub).await;
    let (hosts, accomplice) = strangers(&hub, STRANGERS, BYTES).await;
    let mut delivered = 0;
    for round in ["first", "second"] {
        for (number, host) in (0..).zip(&hosts) {
            show(host, round, BYTES);
            ping(&hub, 100 + number / 5, &host.url("/topic")).await;
            delivered += 1;
            accomplice.until_delivered(delivered).await;
            // What has just come in may be delivered before the others have made room for it, which they do then.
            assert!(of_strangers(&hub).await <= SHARE + BYTES as u64);
            eventually("there is room again", || async { of_strangers(&hub).await <= SHARE }).await;
        }
        // Retention looks when a hub starts, too.
        hub.stop().await;
        hub.restart().await;
    }
    is_owed_nothing(&hub, &destination).await;
    assert!(of_strangers(&hub).await <= SHARE);
    assert!(metric(&hub, "websub_log_share_bytes{share=\"publishers\"}").await > 12_000);
    // All that is kept: what it takes on the disk says little, since an engine tidies up later.
    let kept = hub.admin_post("/api/v1/backup", "").await.body.len() as u64;
    assert!(kept <= SHARE + BESIDE, "{kept} bytes are kept");
}

#[tokio::test]
async fn a_strangers_topic_larger_than_the_share_of_all_strangers_is_not_taken_and_the_log_says_what_to_do() {
    let folder = tempdir().unwrap();
    let mut hub = start(folder.path()).await;
    let destination = publish(&hub).await;
    let (hosts, accomplice) = strangers(&hub, 7, 600_000).await;
    for host in &hosts {
        ping(&hub, 100, &host.url("/topic")).await;
    }
    let said = hub.process().line_number("too large for the log", 7).await;
    assert!(said.contains("it takes 586.6 KiB") && said.contains("token add"), "{said}");
    assert_eq!(of_strangers(&hub).await, 0);
    eventually("all pings are done with", async || {
        hub.admin("/api/v1/drain").await.text().contains("\"to_fetch\":0,")
    })
    .await;
    assert_eq!(accomplice.deliveries().len(), 0);
    is_owed_nothing(&hub, &destination).await;
}

#[tokio::test]
async fn a_stranger_with_many_topics_takes_nothing_from_one_with_a_single_topic_whose_subscriber_is_late() {
    const BYTES: usize = 60_000;
    let folder = tempdir().unwrap();
    let hub = start(folder.path()).await;
    let (blog, reader) = (Receiver::start_at([127, 0, 9, 1].into()).await, Receiver::start().await);
    reader.behave(refusing(503));
    hub.subscribe(&blog.url("/feed"), &reader.url("/cb"), &[], 1).await;
    show(&blog, "news", BYTES);
    ping(&hub, 7, &blog.url("/feed")).await;
    reader.until_delivered(1).await;

    let (greedy, accomplice) = (Receiver::start_at([127, 0, 10, 1].into()).await, Receiver::start().await);
    show(&greedy, "more", BYTES);
    for number in 0..20_u8 {
        let (topic, callback) = (greedy.url(&format!("/{number}")), accomplice.url(&format!("/{number}")));
        subscribe(&hub, 100 + number / 5, &topic, &callback).await;
    }
    hub.until_subscribed(21).await;
    for number in 0..20_u8 {
        ping(&hub, 100, &greedy.url(&format!("/{number}"))).await;
        accomplice.until_delivered(usize::from(number) + 1).await;
        // What has just come in may be delivered before the others have made room for it.
        assert!(of_strangers(&hub).await <= SHARE + BYTES as u64);
    }
    eventually("there is room again", || async { of_strangers(&hub).await <= SHARE }).await;
    loses_nothing(&hub, &blog, &reader).await;
}

#[tokio::test]
async fn a_stranger_with_many_names_for_a_page_of_somebody_elses_host_takes_nothing_from_who_reads_it() {
    let folder = tempdir().unwrap();
    let hub = start(folder.path()).await;
    let (blog, reader) = (Receiver::start().await, Receiver::start().await);
    reader.behave(refusing(503));
    hub.subscribe(&blog.url("/feed"), &reader.url("/cb"), &[], 1).await;
    // Of its topics the feed is the heaviest, and has been there for longest.
    blog.behave(|seen| {
        let bytes = if seen.target == "/feed" { 60_000 } else { 50_000 };
        Reply::Page(200, vec![("Content-Type", "text/plain".to_owned())], "news ".repeat(bytes / 5))
    });
    ping(&hub, 7, &blog.url("/feed")).await;
    reader.until_delivered(1).await;

    let name = |number: u8| blog.url(&format!("/feed?n={number}"));
    let mut accomplices = Vec::new();
    for number in 0..10_u8 {
        let accomplice = Receiver::start_at(Ipv4Addr::new(127, 0, 20 + number, 1).into()).await;
        let (topic, callback) = (name(number), accomplice.url("/"));
        subscribe(&hub, 100, &topic, &callback).await;
        accomplices.push(accomplice);
    }
    hub.until_subscribed(11).await;
    for (number, accomplice) in (0..).zip(&accomplices) {
        ping(&hub, 100 + number / 5, &name(number)).await;
        accomplice.until_delivered(1).await;
    }
    eventually("there is room again", || async { of_strangers(&hub).await <= SHARE }).await;
    loses_nothing(&hub, &blog, &reader).await;
}

#[tokio::test]
async fn what_had_to_make_room_is_fetched_anew_though_it_has_not_changed() {
    let folder = tempdir().unwrap();
    let hub = start(folder.path()).await;
    let (host, reader) = (Receiver::start().await, Receiver::start().await);
    host.behave(|seen| match seen.header("if-none-match") {
        "" => {
            let fields = [("Content-Type", "text/plain"), ("ETag", "\"1\"")];
            let fields = fields.map(|(name, value)| (name, value.to_owned())).to_vec();
            Reply::Page(200, fields, format!("{} {}", seen.path(), "x".repeat(300_000)))
        }
        _ => Reply::Status(304, String::new()),
    });
    for (number, path) in [(1, "/old"), (2, "/new")] {
        hub.subscribe(&host.url(path), &reader.url(path), &[], number).await;
    }
    for (number, path) in [(1, "/old"), (2, "/new"), (3, "/old")] {
        ping(&hub, 7, &host.url(path)).await;
        reader.until_delivered(number).await;
        eventually("there is room again", || async { of_strangers(&hub).await <= SHARE }).await;
    }
    let paths: Vec<_> = reader.deliveries().iter().map(|seen| seen.path().to_owned()).collect();
    assert_eq!(paths, ["/old", "/new", "/old"]);
}

#[tokio::test]
async fn a_strangers_ping_below_the_prefix_of_a_token_takes_nothing_of_the_publishers_share() {
    let folder = tempdir().unwrap();
    let hub = start(folder.path()).await;
    let (library, reader) = (Receiver::start().await, Receiver::start().await);
    hub.add_token("library", &library.url("/")).await;
    let destination = publish(&hub).await;
    let before = metric(&hub, "websub_log_share_bytes{share=\"publishers\"}").await;
    show(&library, "news", 60_000);
    for number in 1..=8_usize {
        let topic = library.url(&format!("/feed?{number}"));
        hub.subscribe(&topic, &reader.url(&format!("/{number}")), &[], number + 1).await;
        ping(&hub, 7, &topic).await;
        reader.until_delivered(number).await;
    }
    assert_eq!(metric(&hub, "websub_log_share_bytes{share=\"publishers\"}").await, before);
    eventually("there is room again", || async { of_strangers(&hub).await <= SHARE }).await;
    is_owed_nothing(&hub, &destination).await;
}

#[tokio::test]
async fn a_subscriber_whose_strangers_topic_had_to_make_room_is_told_of_the_gap() {
    let folder = tempdir().unwrap();
    let hub = start(folder.path()).await;
    let (greedy, reader) = (Receiver::start().await, Receiver::start().await);
    reader.behave(|seen| if seen.path() == "/late" { refusing(503)(seen) } else { Reply::Agree });
    for (number, path) in [(1, "/late"), (2, "/soon")] {
        hub.subscribe(&greedy.url(path), &reader.url(path), &[], number).await;
    }
    for path in ["/late", "/soon"] {
        show(&greedy, path, 300_000);
        ping(&hub, 7, &greedy.url(path)).await;
        reader.until(path, |seen| seen.iter().any(|seen| seen.method == "POST" && seen.path() == path)).await;
    }
    hub.admin_post(&format!("/api/v1/deliveries/retry?topic={}", greedy.url("/late")), "").await;
    eventually("the gap is counted", || async { metric(&hub, "websub_lost_to_retention_total").await == 1 })
        .await;
    eventually("the gap is listed", || async {
        let gaps = hub.admin("/api/v1/deliveries/lost").await.text();
        gaps.contains(".1\",\"last\":1,")
    })
    .await;
}
