//! What a topic says about itself is weighed once it is resolved, wherever it is kept or sent (C1).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use resync_harness::{
    Answer, HubProcess, PROXY, Receiver, Reply, Seen, client, eventually, ping_as, post, request,
};
use tempfile::{TempDir, tempdir};
use url::form_urlencoded::Serializer;

use super::peak;

const MEBIBYTE: u64 = 1024 * 1024;
/// What all links of a notification may take in a delivery.
const CAP: usize = 4 * 1024;
/// Links that one page is read for, but one.
const LINKS: usize = 255;

/// So many of [`hubs`] have room beside a short topic.
const MOST_HUBS: usize = 86;

const HTML: &str = "text/html";

async fn hub() -> (TempDir, HubProcess) {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[PROXY]).await;
    (folder, hub)
}

/// A page that is never the same and names so many hubs, each by a reference of a few bytes.
fn page(number: usize, hubs: usize) -> String {
    (0..hubs).fold(format!("<title>{number}</title>"), |mut page, hub| {
        write!(page, "<link rel=hub href={hub}>").unwrap();
        page
    })
}

fn hubs(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|hub| format!("http://hub.example/{hub:03}"))
}

/// A `Link` header that names so many hubs.
fn link(hubs_named: usize) -> String {
    hubs(hubs_named).map(|hub| format!("<{hub}>; rel=hub")).collect::<Vec<_>>().join(", ")
}

fn html(body: String) -> Reply {
    Reply::Page(200, vec![("content-type", HTML.to_owned())], body)
}

/// What is written in a folder.
fn size(folder: &Path) -> u64 {
    fs::read_dir(folder).map_or(0, |entries| {
        entries
            .flatten()
            .map(|entry| match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => size(&entry.path()),
                Ok(metadata) => metadata.len(),
                // It has gone meanwhile.
                Err(_) => 0,
            })
            .sum()
    })
}

/// The first page of a topic's log.
async fn catch_up(hub: &HubProcess, topic: &str) -> Answer {
    let token = hub.add_token("reader", topic).await;
    let query = Serializer::new(String::new()).append_pair("topic", topic).finish();
    let bytes = format!(
        "GET /websub/notifications?{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n",
        hub.address
    );
    request(hub.address, bytes.as_bytes()).await.unwrap()
}

async fn log_bytes(hub: &HubProcess) -> f64 {
    let metrics = hub.admin("/metrics").await.text();
    metrics.lines().find_map(|line| line.strip_prefix("websub_log_bytes ")).unwrap().parse().unwrap()
}

fn number(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).unwrap())
}

fn requests_for(seen: &[Seen], path: &str) -> usize {
    seen.iter().filter(|one| one.path() == path).count()
}

/// How many fetches have ended, in whatever way.
fn ended(lines: &[String]) -> usize {
    let ends = ["topic fetched: new content", "topic not fetched: ping given up"];
    lines.iter().filter(|line| ends.iter().any(|end| line.contains(end))).count()
}

#[tokio::test]
async fn c1_hundreds_of_links_against_an_endless_url_cost_the_hub_and_its_subscribers_nothing() {
    const TOPICS: usize = 6;
    const ROUNDS: usize = 12;
    let (folder, mut hub) = hub().await;
    let (stranger, destination) = (Receiver::start().await, Receiver::start().await);
    let endless = format!("/{}/", "d".repeat(60_000));
    let to = stranger.url(&endless);
    stranger.behave(move |seen| {
        if seen.path().len() < 100 {
            return Reply::With(302, "location", to.clone());
        }
        html(page(fastrand::usize(..), LINKS))
    });
    for number in 0..TOPICS {
        let topic = stranger.url(&format!("/{number}"));
        hub.subscribe(&topic, &destination.url(&format!("/{number}")), &[], number + 1).await;
    }
    let (before, written_before) = (peak(&mut hub), size(folder.path()));

    for round in 1..=ROUNDS {
        for number in 0..TOPICS {
            let path = format!("/{number}");
            ping_as(&hub, client((round % 4 + 1).try_into().unwrap()), &stranger.url(&path)).await;
            stranger.until("it is fetched", |seen| requests_for(seen, &path) >= round).await;
        }
    }
    assert!(hub.process().says(|lines| ended(lines) >= TOPICS * ROUNDS).await, "{}", hub.process().said());

    let page = catch_up(&hub, &stranger.url("/0")).await;
    let header = destination.look(|seen| seen.iter().map(|one| one.header("link").len()).max());
    let (grown, written) = (peak(&mut hub) - before, size(folder.path()).saturating_sub(written_before));
    let figures = format!(
        "memory +{} MiB, disk +{} MiB, a page of {} bytes, the longest Link header {header:?}",
        grown / MEBIBYTE,
        written / MEBIBYTE,
        page.body.len()
    );
    assert!(grown < 64 * MEBIBYTE && written < 16 * MEBIBYTE, "{figures}");
    assert!(page.status == 200 && page.body.len() < 8 * CAP, "{figures}");
    assert!(header.is_none_or(|length| length <= CAP), "{figures}");
    let said = hub.process().said();
    assert!(said.contains("redirect to one of at most"), "the owner can read what to do: {said}");
}

#[tokio::test]
async fn c1_links_that_become_too_long_only_when_they_are_absolute_are_refused_with_a_reason() {
    let (_folder, mut hub) = hub().await;
    let (stranger, destination) = (Receiver::start().await, Receiver::start().await);
    // As long as a topic may be; each of the links is three bytes.
    let topic = stranger.url(&format!("/{}/", "d".repeat(1_900)));
    let hubs = stranger.url("/hubs");
    stranger.behave(|seen| match seen.path() {
        "/hubs" => html(page(1, LINKS)),
        _ => html(page(1, 3)),
    });
    for (number, topic) in [&topic, &hubs].into_iter().enumerate() {
        hub.subscribe(topic, &destination.url("/cb"), &[], number + 1).await;
        ping_as(&hub, client(1), topic).await;
        let said = hub.process().line_number("topic not fetched: ping given up", number + 1).await;
        assert!(said.contains("name fewer hubs, or shorter URLs"), "{said}");
    }
    hub.until_done().await;
    assert!(destination.deliveries().is_empty());
    stranger.behave(|_| html(page(2, 1)));
    ping_as(&hub, client(2), &hubs).await;
    assert_eq!(destination.until_delivered(1).await[0].text(), page(2, 1), "the next ping counts anew");
}

#[tokio::test]
async fn c1_a_content_type_goes_to_everybody_and_is_short() {
    let (_folder, mut hub) = hub().await;
    let (stranger, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = stranger.url("/topic");
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;
    let of_length = |length: usize| {
        move |_: &Seen| {
            let content_type = format!("text/plain; x={}", "y".repeat(length - "text/plain; x=".len()));
            Reply::Page(200, vec![("content-type", content_type)], "news".to_owned())
        }
    };
    stranger.behave(of_length(257));
    ping_as(&hub, client(1), &topic).await;
    let said = hub.process().line("topic not fetched: ping given up").await;
    assert!(said.contains("Content-Type has 257 bytes"), "{said}");
    stranger.behave(of_length(256));
    ping_as(&hub, client(2), &topic).await;
    assert_eq!(destination.until_delivered(1).await[0].header("content-type").len(), 256);
}

#[tokio::test]
async fn c1_links_just_below_the_cap_are_taken_weighed_and_delivered() {
    let (_folder, hub) = hub().await;
    let (stranger, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = stranger.url("/topic");
    let hubs: Vec<_> = hubs(MOST_HUBS).collect();
    let body = hubs.iter().map(|hub| format!("<link rel=hub href={hub}>")).collect::<Vec<_>>().concat();
    let page = body.clone();
    stranger.behave(move |_| html(page.clone()));
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;
    let before = log_bytes(&hub).await;
    ping_as(&hub, client(1), &topic).await;

    let delivery = destination.until_delivered(1).await.swap_remove(0);
    let header = delivery.header("link");
    assert!(hubs.iter().all(|hub| header.contains(hub)) && header.len() <= CAP, "{} bytes", header.len());
    assert!(header.len() > CAP * 3 / 4, "it is near the cap");
    let weighs = log_bytes(&hub).await - before;
    let sent = body.len() + header.len() + HTML.len();
    assert!(weighs >= number(sent), "{weighs} bytes are counted, {sent} are sent");
    let page = catch_up(&hub, &topic).await;
    assert!(page.text().contains(&hubs[MOST_HUBS - 1]), "{}", page.text());
}

#[tokio::test]
async fn c1_posted_links_have_the_same_cap_and_the_refusal_says_what_to_do() {
    let (_folder, hub) = hub().await;
    let send = async |hubs: usize, content_type: &str| {
        let link = format!("<http://source.example/topic>; rel=self, {}", link(hubs));
        post(hub.address, &[("Content-Type", content_type), ("Link", &link)], b"news").await.unwrap()
    };
    assert_eq!(send(MOST_HUBS, "text/plain").await.status, 202);
    let refused = send(200, "text/plain").await;
    assert_eq!(refused.status, 431, "{}", refused.text());
    assert!(refused.text().contains("name fewer hubs, or shorter URLs"), "{}", refused.text());
    let refused = send(1, &format!("text/plain; x={}", "y".repeat(300))).await;
    assert_eq!(refused.status, 431, "{}", refused.text());
    assert!(refused.text().contains("leave out parameters"), "{}", refused.text());
}

#[tokio::test]
async fn c1_retention_counts_links_that_are_larger_than_their_bodies() {
    const NOTIFICATIONS: usize = 40;
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_public(folder.path(), &[("RETENTION_SIZE", "40 KiB")]).await;
    let topic = "http://source.example/topic";
    let link = format!("<{topic}>; rel=self, {}", link(MOST_HUBS));
    for number in 0..NOTIFICATIONS {
        let headers = [("Content-Type", "text/plain"), ("Link", link.as_str())];
        let posted = post(hub.address, &headers, format!("news {number}").as_bytes()).await.unwrap();
        assert_eq!(posted.status, 202, "{}", posted.text());
    }
    // It is trimmed at a start, and then once a minute.
    hub.stop().await;
    hub.restart().await;
    eventually("there is no more than may be", || async { log_bytes(&hub).await <= number(40 * 1024) }).await;
    let left = catch_up(&hub, topic).await.text().matches("\"offset\"").count();
    assert!(left < NOTIFICATIONS / 2, "{left} of notifications with 3 KiB of links each have room in 40 KiB");
}

#[tokio::test]
async fn c1_what_a_ping_has_the_hub_send_counts_with_its_links() {
    let folder = tempdir().unwrap();
    // By its body alone a topic of a few bytes would never owe so much.
    let hub = HubProcess::start_public(folder.path(), &[PROXY, ("LIMITS_PING_FAN_OUT", "8 KiB")]).await;
    let (stranger, destination) = (Receiver::start().await, Receiver::start().await);
    let (topic, other) = (stranger.url("/topic"), stranger.url("/other"));
    let version = |number: usize| {
        let link = link(MOST_HUBS);
        move |_: &Seen| Reply::Page(200, vec![("link", link.clone())], format!("news {number}"))
    };
    for number in 0..4 {
        hub.subscribe(&topic, &destination.url(&format!("/{number}")), &[], number + 1).await;
    }
    hub.subscribe(&other, &destination.url("/other"), &[], 5).await;
    stranger.behave(version(1));
    ping_as(&hub, client(1), &topic).await;
    destination.until_delivered(4).await;
    stranger.behave(version(2));
    ping_as(&hub, client(1), &topic).await;
    ping_as(&hub, client(2), &other).await;
    assert_eq!(destination.until_delivered(5).await[4].path(), "/other");
    assert_eq!(
        stranger.look(|seen| requests_for(seen, "/topic")),
        1,
        "four times three KiB of links are owed"
    );
}
