//! The hub tests of websub.rocks, step by step as that site makes them against a public hub: its callbacks, its topics, its
//! patience, and its way of reading headers (H-01 to H-15).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use resync_harness::{HubProcess, Receiver, Reply, Seen, eventually, form};
use tempfile::{TempDir, tempdir};
use tokio::sync::Notify;
use tokio::time::timeout;

/// H-01: what has not answered by then has failed.
const ITS_PATIENCE: Duration = Duration::from_secs(4);
const TOKEN: &str = "Xk2mP9qLw7Rt4Yb8Nc3D";
const SECRET: &str = "q8Zr5Tn1Vw6Xe3Ja9Kd2";

/// One of its tests: a topic, a callback, and the posts of the topic.
struct Rocks {
    hub: HubProcess,
    site: Receiver,
    number: u16,
    content_type: &'static str,
    posts: Arc<Mutex<Vec<String>>>,
    _data: TempDir,
}

impl Rocks {
    async fn begin(number: u16, content_type: &'static str) -> Self {
        let data = tempdir().unwrap();
        let hub = HubProcess::start(data.path()).await;
        let site = Receiver::start().await;
        // H-12: three posts at first, the newest first.
        let posts = Arc::new(Mutex::new(vec!["third".to_owned(), "second".to_owned(), "first".to_owned()]));
        let rocks = Self { hub, site, number, content_type, posts, _data: data };
        rocks.serve();
        rocks
    }

    fn topic(&self) -> String {
        self.site.url(&format!("/hub/{}/pub/{TOKEN}", self.number))
    }

    /// H-03: without a query.
    fn callback(&self) -> String {
        self.site.url(&format!("/hub/{}/sub/{TOKEN}", self.number))
    }

    fn body(&self) -> String {
        body(self.content_type, &self.posts.lock().unwrap())
    }

    /// The same, but the first delivery is answered when the test says so.
    fn serve_late(&self, release: &Arc<Notify>) {
        self.serve();
        let (usual, release) = (self.site.temper(), Arc::clone(release));
        self.site.behave(move |seen| match usual(seen) {
            reply if seen.method == Method::POST => Reply::After(Arc::clone(&release), Box::new(reply)),
            reply => reply,
        });
    }

    fn serve(&self) {
        let (topic, hub, content_type) = (self.topic(), self.hub.url(), self.content_type);
        let posts = Arc::clone(&self.posts);
        self.site.behave(move |seen| {
            if seen.path().contains("/pub/") {
                // H-12: two fields, self first.
                let links =
                    [("link", format!("<{topic}>; rel=\"self\"")), ("link", format!("<{hub}>; rel=\"hub\""))];
                let mut headers = vec![("content-type", content_type.to_owned())];
                headers.extend(links);
                return Reply::Page(200, headers, body(content_type, &posts.lock().unwrap()));
            }
            if seen.method == Method::POST {
                // H-05: 200, whatever it thinks of the delivery.
                return Reply::Status(200, String::new());
            }
            match well_formed(seen, &topic) {
                // H-04: the bare challenge.
                Some(challenge) => {
                    Reply::Page(200, vec![("content-type", "application/octet-stream".to_owned())], challenge)
                }
                None => Reply::Page(
                    404,
                    vec![("content-type", "application/json".to_owned())],
                    "{\"error\":\"not_found\"}".to_owned(),
                ),
            }
        });
    }

    /// H-02: 202 and nothing else.
    async fn ask(&self, mode: &str, more: &[(&str, &str)]) {
        let (topic, callback) = (self.topic(), self.callback());
        let mut parameters =
            vec![("hub.mode", mode), ("hub.topic", topic.as_str()), ("hub.callback", callback.as_str())];
        parameters.extend_from_slice(more);
        let answer = timeout(ITS_PATIENCE, form(self.hub.address, &parameters)).await.expect("H-01").unwrap();
        assert_eq!(answer.status, 202, "H-02: {}", answer.text());
    }

    async fn verified(&self, mode: &str, number: usize) {
        let is_verification = |seen: &&Seen| seen.method == Method::GET && seen.path().contains("/sub/");
        let log =
            self.site.until("verification", |log| log.iter().filter(is_verification).count() >= number).await;
        let asked = log.iter().filter(is_verification).nth(number - 1).unwrap();
        assert_eq!(asked.parameter("hub.mode").as_deref(), Some(mode));
        assert!(well_formed(asked, &self.topic()).is_some(), "{}", asked.target);
    }

    async fn subscribed(&self, more: &[(&str, &str)], number: usize) {
        self.ask("subscribe", more).await;
        self.verified("subscribe", number).await;
        self.hub.until_subscribed(1).await;
    }

    /// H-13: `hub.topic`; the answer does not matter.
    async fn publish(&self, post: &str) {
        self.posts.lock().unwrap().insert(0, post.to_owned());
        let parameters = [("hub.mode", "publish"), ("hub.topic", &self.topic())];
        let _ = form(self.hub.address, &parameters).await;
    }

    /// H-11: the checks in its order.
    fn check(&self, delivery: &Seen, secret: Option<&str>) {
        let text = delivery.text();
        assert!(!text.is_empty());
        assert_eq!(text.trim(), self.body().trim(), "H-06");
        assert_eq!(delivery.header("content-type"), self.content_type, "H-07: character by character");
        assert_eq!(delivery.headers.get_all("link").iter().count(), 1, "H-08: one field");
        let links = links(delivery.header("link"));
        let first = |rel: &str| links.iter().find(|(found, _)| found == rel).map(|(_, url)| url.as_str());
        assert_eq!(first("hub"), Some(self.hub.url().as_str()), "H-09");
        assert_eq!(first("self"), Some(self.topic().as_str()), "H-09");
        let Some(secret) = secret else {
            assert!(delivery.headers.get("x-hub-signature").is_none(), "H-10");
            return;
        };
        let header = delivery.header("x-hub-signature");
        let (method, hex) = header.split_once('=').unwrap();
        assert!(["sha1", "sha256", "sha384", "sha512"].contains(&method), "H-10");
        assert!(!hex.chars().any(|c| c.is_ascii_uppercase()), "H-10");
        assert!(delivery.is_signed_with(secret), "H-10");
    }

    async fn first_delivery(&self, more: &[(&str, &str)], secret: Option<&str>) {
        self.subscribed(more, 1).await;
        self.publish("fourth").await;
        let deliveries = self.site.until_delivered(1).await;
        assert_eq!(deliveries[0].target, format!("/hub/{}/sub/{TOKEN}", self.number));
        self.check(&deliveries[0], secret);
    }
}

fn body(content_type: &str, posts: &[String]) -> String {
    let shown = &posts[..posts.len().min(10)];
    match content_type {
        // H-06, test 106: a body that is no JSON on some set-ups has to be passed on all the same.
        "application/json" => format!("<?\n{{\"items\": {shown:?}}}"),
        "text/plain;charset=UTF-8" => format!("{}\n", shown.join("\n")),
        _ => format!("<!doctype html>\n<ul><li>{}</li></ul>\n\n", shown.join("</li><li>")),
    }
}

/// What it wants of a verification; the challenge to echo.
fn well_formed(seen: &Seen, topic: &str) -> Option<String> {
    let mode = seen.parameter("hub.mode")?;
    let leased = seen.parameter("hub.lease_seconds").is_some();
    let fits = match mode.as_str() {
        "subscribe" => leased,
        "unsubscribe" => true,
        _ => false,
    };
    (fits && seen.parameter("hub.topic")? == topic).then_some(())?;
    seen.parameter("hub.challenge")
}

/// H-08: it splits at `", "` and `"; "` and wants `rel=` right behind.
fn links(header: &str) -> Vec<(String, String)> {
    let one = |link: &str| {
        let mut parts = link.split("; ");
        let url = parts.next()?.trim_matches(['<', '>']).to_owned();
        let rel = parts.find_map(|part| part.strip_prefix("rel="))?.trim_matches('"').to_owned();
        Some((rel, url))
    };
    header.split(", ").filter_map(one).collect()
}

const HTML: &str = "text/html; charset=UTF-8";

#[tokio::test]
async fn h100_h02_h04_h06_to_h10_h12_h13_a_typical_request() {
    Rocks::begin(100, HTML).await.first_delivery(&[], None).await;
}

#[tokio::test]
async fn h101_h10_a_request_with_a_secret() {
    Rocks::begin(101, HTML).await.first_delivery(&[("hub.secret", SECRET)], Some(SECRET)).await;
}

#[tokio::test]
async fn h102_a_request_with_parameters_that_nobody_knows() {
    Rocks::begin(102, HTML).await.first_delivery(&[("foo", "bar"), ("hub.foo", "hub.bar")], None).await;
}

#[tokio::test]
async fn h103_a_second_request_for_a_subscription_in_force() {
    let rocks = Rocks::begin(103, HTML).await;
    rocks.first_delivery(&[], None).await;
    rocks.subscribed(&[], 2).await;
    rocks.publish("fifth").await;
    rocks.check(&rocks.site.until_delivered(2).await[1], None);
    rocks.publish("sixth").await;
    rocks.site.until_delivered(3).await;
    rocks.hub.until_done().await;
    let deliveries = rocks.site.deliveries();
    rocks.check(&deliveries[2], None);
    assert_eq!(deliveries.len(), 3, "one delivery for each publication");
}

#[tokio::test]
async fn h104_unsubscribing() {
    let rocks = Rocks::begin(104, HTML).await;
    rocks.first_delivery(&[], None).await;
    rocks.ask("unsubscribe", &[]).await;
    rocks.verified("unsubscribe", 2).await;
    rocks.hub.until_subscribed(0).await;
    let control = Receiver::start().await;
    rocks.hub.subscribe(&rocks.topic(), &control.url("/cb"), &[], 1).await;
    rocks.publish("fifth").await;
    control.until_delivered(1).await;
    rocks.hub.until_done().await;
    assert_eq!(rocks.site.deliveries().len(), 1);
}

#[tokio::test]
async fn h105_h07_a_plain_text_topic() {
    Rocks::begin(105, "text/plain;charset=UTF-8").await.first_delivery(&[], None).await;
}

#[tokio::test]
async fn h106_h06_h07_a_json_topic_that_is_passed_on_unread() {
    Rocks::begin(106, "application/json").await.first_delivery(&[], None).await;
}

#[tokio::test]
async fn h01_h02_a_hub_answers_in_time_whatever_hangs() {
    let rocks = Rocks::begin(100, HTML).await;
    rocks.site.behave(|_| Reply::Hang);
    rocks.ask("subscribe", &[]).await;
    rocks.ask("unsubscribe", &[]).await;
    rocks.publish("fourth").await;
}

/// It looks at the topic before it answers a delivery, which may take a while, and the topic may be at the hub itself.
#[tokio::test]
async fn h05_h15_d16_a_delivery_may_be_answered_late_and_the_hub_answers_meanwhile() {
    let rocks = Rocks::begin(100, HTML).await;
    rocks.subscribed(&[], 1).await;
    let release = Arc::new(Notify::new());
    rocks.serve_late(&release);
    rocks.publish("fourth").await;
    let delivery = rocks.site.until_delivered(1).await.swap_remove(0);
    let meanwhile = timeout(ITS_PATIENCE, form(rocks.hub.address, &[("hub.mode", "publish")])).await;
    assert_eq!(meanwhile.expect("H-15").unwrap().status, 400, "it is answered");
    eventually("D-16: six seconds have passed", || async { delivery.at.elapsed() > Duration::from_secs(6) })
        .await;
    release.notify_one();
    rocks.check(&delivery, None);
    rocks.serve();
    rocks.publish("fifth").await;
    rocks.site.until_delivered(2).await;
    rocks.hub.until_done().await;
    let deliveries = rocks.site.deliveries();
    rocks.check(&deliveries[1], None);
    assert_eq!(deliveries.len(), 2, "the late answer counted");
}

/// Its publisher test subscribes at the Source's hub itself: with a query in the callback and a lease of two hours.
#[tokio::test]
async fn h03_h14_the_publisher_test_subscribes_with_a_query_and_a_lease() {
    let rocks = Rocks::begin(1, HTML).await;
    let (topic, callback) = (rocks.topic(), rocks.site.url(&format!("/publisher/callback?token={TOKEN}")));
    rocks.hub.subscribe(&topic, &callback, &[("hub.lease_seconds", "7200")], 1).await;
    let log = rocks
        .site
        .until("verification", |log| log.iter().any(|seen| seen.path() == "/publisher/callback"))
        .await;
    let asked = log.iter().find(|seen| seen.path() == "/publisher/callback").unwrap();
    assert!(asked.target.starts_with(&format!("/publisher/callback?token={TOKEN}&hub.")), "{}", asked.target);
    let lease: u64 = asked.parameter("hub.lease_seconds").unwrap().parse().unwrap();
    assert!((6_480..=7_200).contains(&lease), "{lease}");
    rocks.publish("fourth").await;
    let delivery = rocks.site.until_delivered(1).await.swap_remove(0);
    assert_eq!(delivery.target, format!("/publisher/callback?token={TOKEN}"));
    rocks.check(&delivery, None);
}
