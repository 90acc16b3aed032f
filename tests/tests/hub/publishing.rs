//! Posted content from outside: what is taken, what is refused, and how a publisher follows its notification.

use std::collections::HashMap;

use resync_harness::{Answer, HubProcess, Process, Receiver, Reply, eventually, post, request};
use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TOPIC: &str = "http://example.com/changes/";
const CAPABILITY_LIST: &str = "http://example.com/capabilitylist.xml";

fn links(hub: &HubProcess) -> String {
    format!(
        "<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\", <{CAPABILITY_LIST}>; rel=\"resourcesync\"",
        hub.url()
    )
}

/// A Change Notification about one hour of a day.
fn changes(from: u8, until: u8) -> String {
    let changes = format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:md capability=\"change-notification\" from=\"2026-01-03T{from:02}:00:00Z\" until=\"2026-01-03T{until:02}:00:00Z\"/>\
         <url><loc>http://example.com/res{from}</loc><rs:md change=\"updated\" datetime=\"2026-01-03T{from:02}:30:00Z\"/></url>\
         </urlset>"
    );
    resync_judge::written("posted", [("changes", &changes)]);
    changes
}

async fn publish(hub: &HubProcess, more: &[(&str, &str)], body: &str) -> Answer {
    let links = links(hub);
    let mut headers = vec![("Content-Type", "application/xml"), ("Link", links.as_str())];
    headers.extend_from_slice(more);
    post(hub.address, &headers, body.as_bytes()).await.expect("a running hub answers")
}

async fn get(hub: &HubProcess, url: &str) -> Answer {
    let path = url.strip_prefix(&format!("http://{}", hub.address)).unwrap_or(url);
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", hub.address);
    request(hub.address, bytes.as_bytes()).await.expect("a running hub answers")
}

fn counts(delivered: u32, owing: u32, skipped: u32) -> String {
    format!("\"subscriptions\":{{\"delivered\":{delivered},\"owing\":{owing},\"skipped\":{skipped}}}")
}

#[tokio::test]
async fn a_publisher_follows_its_notification_by_the_location_of_the_202() {
    let folder = tempdir().unwrap();
    let quick = [("DELIVERY_SCHEDULE_4XX", "[]"), ("DELIVERY_SCHEDULE", "[\"1h\"]")];
    let mut hub = HubProcess::start_with(folder.path(), &quick).await;
    let destination = Receiver::start().await;
    destination.behave(|seen| match (seen.method.as_str(), seen.path()) {
        ("POST", "/refuses") => Reply::Status(404, String::new()),
        ("POST", "/fails") => Reply::Status(503, String::new()),
        _ => Reply::Agree,
    });
    for (number, path) in ["/takes", "/refuses", "/fails"].iter().enumerate() {
        hub.subscribe(TOPIC, &destination.url(path), &[], number + 1).await;
    }
    let answer = publish(&hub, &[], &changes(1, 2)).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let location = answer.header("location").expect("a 202 says where the status is").to_owned();
    destination.until_delivered(3).await;
    eventually("each subscription stands where it should", || async {
        get(&hub, &location).await.text().contains(&counts(1, 1, 1))
    })
    .await;
    let status = get(&hub, &location).await;
    assert_eq!((status.status, status.header("content-type")), (200, Some("application/json")));
    assert!(status.text().contains(&format!("\"topic\":\"{TOPIC}\"")), "{}", status.text());
    assert!(!status.text().contains(&destination.address().to_string()), "callbacks are nobody's business");

    let without_ticket = location.split('?').next().unwrap();
    assert_eq!(
        get(&hub, without_ticket).await.status,
        404,
        "an identity alone, which every subscriber knows"
    );
    assert_eq!(get(&hub, &format!("{without_ticket}?ticket={}", "0".repeat(64))).await.status, 404);
    hub.kill().await;
    hub.restart().await;
    assert!(get(&hub, &location).await.text().contains(&counts(1, 1, 1)), "the URL survives a restart");
}

#[tokio::test]
async fn fn035_who_prefers_a_representation_is_answered_200_with_the_status() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let answer = publish(&hub, &[("Prefer", "return=representation")], &changes(1, 2)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("preference-applied"), Some("return=representation"));
    assert!(answer.header("location").is_some());
    assert!(answer.text().contains(&counts(0, 0, 0)), "{}", answer.text());
}

#[tokio::test]
async fn a_repeated_post_is_answered_with_the_same_location() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let key = [("Idempotency-Key", "once")];
    let first = publish(&hub, &key, &changes(1, 2)).await;
    hub.kill().await;
    hub.restart().await;
    let second = publish(&hub, &key, &changes(1, 2)).await;
    assert_eq!(first.header("location"), second.header("location"));
    assert_eq!(publish(&hub, &key, &changes(2, 3)).await.status, 422);
}

#[tokio::test]
async fn cn008_a_broken_chain_is_taken_and_shown_to_the_operator() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    for (from, until) in [(1, 2), (2, 3), (5, 6), (5, 7)] {
        assert_eq!(publish(&hub, &[], &changes(from, until)).await.status, 202);
    }
    hub.kill().await;
    hub.restart().await;
    let topics = hub.admin("/api/v1/topics").await.text();
    assert!(topics.contains("\"until\":\"2026-01-03T07:00:00Z\",\"broken\":2"), "{topics}");
    assert!(topics.contains("\"kind\":\"gap\""), "{topics}");
    assert!(
        topics.contains("\"ended\":\"2026-01-03T03:00:00Z\",\"started\":\"2026-01-03T05:00:00Z\""),
        "{topics}"
    );

    let data = folder.path().display().to_string();
    let admin = hub.admin_address().to_string();
    let arguments = ["topics", "--data-dir", &data, "--admin", &admin];
    let mut command = Process::start("resync-hub", &arguments, &HashMap::new());
    command.line("overlap before").await;
    let said = command.said();
    assert!(said.contains(TOPIC) && said.contains("broken 2 times"), "{said}");
    assert!(said.contains("ended 2026-01-03T03:00:00Z, it starts 2026-01-03T05:00:00Z"), "{said}");
    assert!(command.wait().await.success());
}

#[tokio::test]
async fn cn007_a_change_notification_that_breaks_a_rule_is_refused_with_the_rule() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let refused = async |body: String| {
        let answer = publish(&hub, &[], &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        answer.text()
    };
    let timeless = changes(1, 2).replace(" until=\"2026-01-03T02:00:00Z\"", "");
    assert!(refused(timeless).await.contains("CN-007"), "no until");
    let outside = refused(changes(1, 2).replace("T01:30", "T02:30")).await;
    assert!(outside.contains("RS-030") && outside.contains("line 1"), "{outside}");
    assert!(hub.admin("/api/v1/status").await.text().contains("\"topics\":0"), "nothing was taken");
}

#[tokio::test]
async fn bodies_beyond_the_budget_wait_or_are_told_to_come_back() {
    let folder = tempdir().unwrap();
    let tight =
        [("PUBLISH_MAX_BODY", "64 KiB"), ("PUBLISH_BODY_MEMORY", "64 KiB"), ("INGRESS_BODY_TIMEOUT", "5m")];
    let hub = HubProcess::start_with(folder.path(), &tight).await;
    let head = format!(
        "POST /websub/ HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nLink: {}\r\nContent-Length: 65536\r\nConnection: close\r\n\r\n",
        links(&hub).split(", <http://example.com/cap").next().unwrap()
    );
    let large = "x".repeat(60_000);
    let topics = "&hub.url=http%3A%2F%2Fexample.com%2F".repeat(600);
    let pings = format!("hub.mode=publish{topics}");
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let refused = loop {
        // Holds the whole budget of posts: all but the last byte of its body has been sent.
        let mut greedy = tokio::net::TcpStream::connect(hub.address).await.unwrap();
        greedy.write_all(head.as_bytes()).await.unwrap();
        greedy.write_all(&vec![b'x'; 65_535]).await.unwrap();
        let refused = hub.publish(TOPIC, &large).await.unwrap();
        assert_eq!(hub.publish(TOPIC, "small").await.unwrap().status, 202, "a usual one finds room");
        let pinged = post(hub.address, &form, pings.as_bytes()).await.unwrap();
        assert_eq!(pinged.status, 204, "forms have their own");
        let mut answer = String::new();
        let finished = greedy.write_all(b"x").await.and(greedy.read_to_string(&mut answer).await);
        // Where both came at once, either may have got the whole.
        if refused.status != 202 {
            assert!(
                finished.is_ok() && answer.starts_with("HTTP/1.1 202"),
                "one of them gets through: {answer}"
            );
            break refused;
        }
    };
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert!(refused.text().contains("body_memory"), "{}", refused.text());
    assert_eq!(hub.publish(TOPIC, &large).await.unwrap().status, 202, "there is room again");
}
