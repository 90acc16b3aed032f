//! Catching up from outside: a topic's log read again, by those who may, and as a Change List.

use std::time::{Duration, SystemTime};

use resync_core::document::{Capability, Relation};
use resync_core::xml::{self, Mode, Options};
use resync_harness::{Answer, HubProcess, Process, Receiver, Reply, eventually, form, post, request};
use sha2::{Digest, Sha256};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/changes/";
const CAPABILITY_LIST: &str = "http://example.com/capabilitylist.xml";

/// A Change Notification about one hour of a day.
fn changes(from: u8, until: u8) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:md capability=\"change-notification\" from=\"2026-01-03T{from:02}:00:00Z\" until=\"2026-01-03T{until:02}:00:00Z\"/>\
         <url><loc>http://example.com/res{from}</loc><rs:md change=\"updated\" datetime=\"2026-01-03T{from:02}:30:00Z\" \
         length=\"{from}\"/></url></urlset>"
    )
}

async fn publish_changes(hub: &HubProcess, from: u8, until: u8) {
    publish_changes_of(hub, TOPIC, from, until).await;
}

async fn publish_changes_of(hub: &HubProcess, topic: &str, from: u8, until: u8) {
    let links = format!(
        "<{topic}>; rel=\"self\", <{}>; rel=\"hub\", <{CAPABILITY_LIST}>; rel=\"resourcesync\"",
        hub.url()
    );
    let headers = [("Content-Type", "application/xml"), ("Link", links.as_str())];
    let changes = changes(from, until);
    resync_judge::written("posted", [("changes", &changes)]);
    let answer = post(hub.address, &headers, changes.as_bytes()).await.expect("a running hub answers");
    assert_eq!(answer.status, 202, "{}", answer.text());
}

async fn get(address: std::net::SocketAddr, target: &str, header: &str) -> Answer {
    let bytes = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n{header}Connection: close\r\n\r\n");
    request(address, bytes.as_bytes()).await.expect("a running hub answers")
}

fn query(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// A query that ends in a moment, or that has ended, signed with this secret.
fn signed(callback: &str, secret: &str, seconds: i64, more: &[(&str, &str)]) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let expires = now.saturating_add_signed(seconds).to_string();
    let subscription = subscription(callback);
    let mut pairs = vec![("topic", TOPIC), ("subscription", &subscription), ("expires", expires.as_str())];
    pairs.extend_from_slice(more);
    let query = query(&pairs);
    let key = hmac("resync-hub catch-up", secret);
    format!("{query}&signature=sha256={}", hmac(&key, &query))
}

/// The hash of the topic and a callback, as the protocol's description has it.
fn subscription(callback: &str) -> String {
    let part = |url: &str| [&(url.len() as u64).to_be_bytes(), url.as_bytes()].concat();
    hex::encode(Sha256::digest([part(TOPIC), part(callback)].concat()))
}

fn hmac(key: &str, text: &str) -> String {
    resync_judge::signature("sha256", key, text.as_bytes()).replace("sha256=", "")
}

#[tokio::test]
async fn what_the_log_holds_is_read_again_page_by_page() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    for body in ["one", "zw\u{f6}lf", "three"] {
        assert_eq!(hub.publish(TOPIC, body).await.unwrap().status, 202);
    }
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let headers = [("Content-Type", "image/x; q=\"\u{e9}\""), ("Link", link.as_str())];
    post(hub.address, &headers, b"\xff\0").await.unwrap();

    let target =
        format!("/websub/notifications?{}", query(&[("topic", TOPIC), ("after", "1"), ("limit", "2")]));
    let page = get(hub.address, &target, "").await;
    assert_eq!(page.status, 200, "{}", page.text());
    let text = page.text();
    assert!(text.contains("\"first\":1,\"head\":4"), "{text}");
    assert!(text.contains("\"offset\":2,") && text.contains("\"body\":\"zw\u{f6}lf\""), "{text}");
    assert!(
        text.contains("\"offset\":3,") && !text.contains("\"offset\":4,") && !text.contains("\"offset\":1,"),
        "{text}"
    );
    let next = page.header("link").expect("there is more");
    let target =
        next.split(['<', '>']).nth(1).and_then(|url| url.split_once(&hub.address.to_string())).unwrap().1;
    let last = get(hub.address, target, "").await;
    assert!(
        last.text().contains("\"offset\":4,") && last.text().contains("\"body_base64\":\"/wA=\""),
        "{}",
        last.text()
    );
    assert!(last.header("link").is_none(), "that was the end");
    let beyond = format!("/websub/notifications?{}", query(&[("topic", TOPIC), ("after", "4")]));
    assert!(get(hub.address, &beyond, "").await.text().contains("\"notifications\":[]"));
    assert_eq!(get(hub.address, "/websub/notifications", "").await.status, 400);
    assert_eq!(
        get(hub.address, "/websub/notifications?topic=http%3A%2F%2Fno.example%2F", "").await.status,
        404
    );
}

#[tokio::test]
async fn cn016_what_the_topic_still_shows_of_earlier_changes_cuts_no_change_list_short() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (source, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = source.url("/changes");
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;
    publish_changes_of(&hub, &topic, 9, 10).await;
    publish_changes_of(&hub, &topic, 10, 11).await;
    let xml = || vec![("content-type", "application/xml".to_owned())];
    source.behave(move |_| Reply::Page(200, xml(), changes(9, 10)));
    let pinged = form(hub.address, &[("hub.mode", "publish"), ("hub.url", &topic)]).await.unwrap();
    assert_eq!(pinged.status, 204);
    destination.until_delivered(3).await;
    publish_changes_of(&hub, &topic, 11, 12).await;
    let list =
        get(hub.address, &format!("/websub/notifications.xml?{}", query(&[("topic", &topic)])), "").await;
    assert_eq!(list.status, 200, "{}", list.text());
    let text = list.text();
    for hour in [9, 10, 11] {
        assert_eq!(text.matches(&format!("http://example.com/res{hour}<")).count(), 1, "{text}");
    }
    assert!(
        text.contains("from=\"2026-01-03T09:00:00Z\"") && text.contains("until=\"2026-01-03T12:00:00Z\""),
        "{text}"
    );
}

#[tokio::test]
async fn only_a_subscriptions_secret_or_a_token_opens_the_log() {
    let folder = tempdir().unwrap();
    // Subscribed and published in --dev, then read where tokens are needed.
    let mut open = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let (callback, plain) = (destination.url("/cb"), destination.url("/plain"));
    open.subscribe(TOPIC, &callback, &[("hub.secret", "s3cret")], 1).await;
    open.subscribe(TOPIC, &plain, &[], 2).await;
    open.publish(TOPIC, "news").await.unwrap();
    destination.until_delivered(2).await;
    open.stop().await;

    let data = folder.path().display().to_string();
    // Who may publish says nothing about who may read.
    let environment = [("ADMIN_LISTEN", "127.0.0.1:0"), ("PUBLISH_POLICY", "open")]
        .map(|(name, value)| (format!("RESYNC_HUB_{name}"), value.to_owned()))
        .into();
    let mut hub =
        Process::start("resync-hub", &["--listen", "127.0.0.1:0", "--data-dir", &data], &environment);
    let line = hub.line("listening on http://").await;
    let address = line.rsplit("http://").next().unwrap().parse().unwrap();
    let status =
        async |query: String| get(address, &format!("/websub/notifications?{query}"), "").await.status;

    let good = signed(&callback, "s3cret", 60, &[("after", "0")]);
    let page = get(address, &format!("/websub/notifications?{good}"), "").await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("\"body\":\"news\"") && !page.text().contains("/cb"), "{}", page.text());
    assert_eq!(status(good.replace("after=0", "after=1")).await, 401, "what is not signed is not asked");
    assert_eq!(status(signed(&callback, "wrong", 60, &[])).await, 401);
    assert!(!good.contains("%2Fcb"), "a URL in a log gives no callback away: {good}");
    let (query_alone, _) = good.rsplit_once("&signature=").unwrap();
    let delivered = hmac("s3cret", "resync-hub catch-up");
    for key in ["s3cret", &delivered] {
        let as_delivery = format!("{query_alone}&signature=sha256={}", hmac(key, query_alone));
        assert_eq!(status(as_delivery).await, 401, "no signature of a delivery opens anything");
    }
    let elsewhere = good.replace("changes", "other");
    let (elsewhere, _) = elsewhere.rsplit_once("&signature=").unwrap();
    let key = hmac("resync-hub catch-up", "s3cret");
    let elsewhere = format!("{elsewhere}&signature=sha256={}", hmac(&key, elsewhere));
    assert_eq!(status(elsewhere).await, 401, "a subscription opens its own topic only");
    assert_eq!(status(signed(&callback, "s3cret", -5, &[])).await, 401, "it has ended");
    assert_eq!(status(signed(&callback, "s3cret", 7_200, &[])).await, 401, "it would last too long");
    assert_eq!(status(signed(&plain, "s3cret", 60, &[])).await, 401, "a subscription without a secret");
    assert_eq!(status(signed("http://nobody.example/", "s3cret", 60, &[])).await, 401);
    assert_eq!(status(query(&[("topic", TOPIC)])).await, 401);

    let add = ["token", "add", "reader", "--topic-prefix", "http://example.com/", "--data-dir", &data];
    let mut adding = Process::start("resync-hub", &add, &std::collections::HashMap::new());
    let token = adding.line("rsh_").await;
    let target = format!("/websub/notifications?{}", query(&[("topic", TOPIC)]));
    assert_eq!(get(address, &target, &format!("Authorization: Bearer {token}\r\n")).await.status, 200);
    let other = format!("/websub/notifications?{}", query(&[("topic", "http://other.example/")]));
    assert_eq!(get(address, &other, &format!("Authorization: Bearer {token}\r\n")).await.status, 401);
}

#[tokio::test]
async fn rs120_cn016_a_gap_is_repaired_from_a_valid_change_list() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    for (from, until) in [(1, 2), (4, 5), (5, 6), (6, 7)] {
        publish_changes(&hub, from, until).await;
    }
    hub.publish(TOPIC, "not a Change Notification").await.unwrap();
    let list = async |target: String, header: &str| {
        let answer = get(hub.address, &target, header).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/xml")),
            "{}",
            answer.text()
        );
        resync_judge::written("catch-up", [("changelist", &answer.body)]);
        let read = xml::read_with(&answer.body, Options { mode: Mode::Strict, ..Options::PLAIN }).unwrap();
        assert!(read.violations.is_empty(), "{}", read.violations);
        let document = read.into_document().unwrap();
        assert_eq!(document.capability(), &Capability::ChangeList);
        assert_eq!(document.link(&Relation::Up).unwrap().href, CAPABILITY_LIST);
        let metadata = &document.header().metadata;
        let locs: Vec<_> = document.entries().iter().map(|entry| entry.loc.clone()).collect();
        let hours = [metadata.from, metadata.until].map(|time| time.unwrap().to_string()[11..13].to_owned());
        (hours.join("-"), locs)
    };
    let locs =
        |hours: &[u8]| hours.iter().map(|hour| format!("http://example.com/res{hour}")).collect::<Vec<_>>();
    let after = |offset: &str| query(&[("topic", TOPIC), ("after", offset)]);
    let path = |query: String| format!("/websub/notifications.xml?{query}");
    assert_eq!(list(path(after("2")), "").await, ("05-07".to_owned(), locs(&[5, 6])));
    let all = ("04-07".to_owned(), locs(&[4, 5, 6]));
    assert_eq!(
        list(path(query(&[("topic", TOPIC)])), "").await,
        all,
        "what came before the break is not claimed"
    );
    let negotiated = format!("/websub/notifications?{}", after("0"));
    assert_eq!(list(negotiated, "Accept: application/xml\r\n").await, all);
    assert_eq!(list(path(after("4")), "").await, ("07-07".to_owned(), vec![]), "nothing since");

    for _ in 0..4 {
        hub.publish(TOPIC, &"x".repeat(1 << 20)).await.unwrap();
    }
    publish_changes(&hub, 7, 8).await;
    let bounded = list(path(after("0")), "").await;
    assert_eq!(bounded, ("07-08".to_owned(), locs(&[7])), "whatever lies between counts too");

    let plain = "http://example.com/plain/";
    hub.publish(plain, "no changes").await.unwrap();
    assert_eq!(get(hub.address, &path(query(&[("topic", plain)])), "").await.status, 404);
}

#[tokio::test]
async fn what_the_log_has_let_go_is_gone_and_the_answer_says_where_it_begins() {
    let folder = tempdir().unwrap();
    // Retention looks when the hub starts; the newest notification of a topic stays while somebody is subscribed.
    let mut hub = HubProcess::start_with(folder.path(), &[("RETENTION_SIZE", "1 KiB")]).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    for _ in 0..3 {
        hub.publish(TOPIC, &"x".repeat(2_000)).await.unwrap();
    }
    hub.kill().await;
    hub.restart().await;
    eventually("the log is trimmed", || async {
        hub.admin("/api/v1/topics").await.text().contains("\"first\":3,")
    })
    .await;
    let read = async |after: &str| {
        let query = query(&[("topic", TOPIC), ("after", after)]);
        get(hub.address, &format!("/websub/notifications?{query}"), "").await
    };
    let gone = read("1").await;
    assert_eq!(gone.status, 410, "{}", gone.text());
    assert!(gone.text().contains("it begins at 3") && gone.text().contains("after=2"), "{}", gone.text());
    assert_eq!(read("2").await.status, 200);
}
