//! Small attacks on the hub's doors, one a test: what they try is told above each.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use resync_harness::{HubProcess, form, post, request};
use tempfile::tempdir;

const TOPIC: &str = "http://source.example/topic";
const CALLBACK: &str = "http://127.0.0.1:9/cb";

/// A line break in a URL would begin a new header field where the hub goes, a control character another line in a log or a terminal.
#[tokio::test]
async fn b02_control_characters_are_refused_and_not_repeated() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    for (name, value) in [
        ("hub.callback", "http://127.0.0.1:9/\r\nX-Evil: 1"),
        ("hub.callback", "http://127.0.0.1:9/\0"),
        ("hub.topic", "http://source.example/\u{1b}[2J"),
        ("hub.topic", "http://source.example/\u{85}"),
        ("hub.mode", "subscribe\r\nX-Evil: 1"),
    ] {
        let mut parameters =
            vec![("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", CALLBACK)];
        for parameter in parameters.iter_mut().filter(|(known, _)| *known == name) {
            parameter.1 = value;
        }
        let answer = form(hub.address, &parameters).await.unwrap();
        assert_eq!(answer.status, 400, "{name}={value:?}");
        assert!(answer.header("x-evil").is_none());
        let text = answer.text();
        assert!(text.contains(name) && !text.trim_end().contains(char::is_control), "{text:?}");
    }
}

/// An error that repeats what it was sent would fill logs, and pages that show it.
#[tokio::test]
async fn w088_an_error_is_short_however_long_the_mistake() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let long = "x".repeat(50_000);
    let (topic, callback) = (format!("{TOPIC}?{long}"), format!("{CALLBACK}?{long}"));
    for (mode, topic, callback) in [
        (long.as_str(), TOPIC, CALLBACK),
        ("subscribe", topic.as_str(), CALLBACK),
        ("subscribe", TOPIC, callback.as_str()),
    ] {
        let parameters = [("hub.mode", mode), ("hub.topic", topic), ("hub.callback", callback)];
        let answer = form(hub.address, &parameters).await.unwrap();
        assert_eq!(answer.status, 400);
        assert!(answer.body.len() < 500, "{}", answer.text());
    }
}

/// Two lengths, or a length and chunks: a proxy in front could see another request than the hub, and let one through unseen.
#[tokio::test]
async fn a_request_whose_end_is_ambiguous_is_not_followed_by_another() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let hidden = "GET /websub/notifications HTTP/1.1\r\nHost: h\r\n\r\n";
    for lengths in [
        format!("Content-Length: 4\r\nContent-Length: {}", 4 + hidden.len()),
        "Content-Length: 4, 5".to_owned(),
        "Content-Length: +4".to_owned(),
        "Transfer-Encoding: chunked, identity".to_owned(),
    ] {
        let bytes = format!("POST /websub/ HTTP/1.1\r\nHost: h\r\n{lengths}\r\n\r\nx=y&{hidden}");
        let answer = request(hub.address, bytes.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 400, "{lengths}: {}", answer.text());
        assert!(!answer.text().contains("HTTP/1.1"), "one answer, then the end: {}", answer.text());
    }
    // Where both are given the chunks count (RFC 9112, 6.3), well-formed or not, and nothing after them.
    for chunks in ["x=y&", "0\r\n\r\n"] {
        let lengths = "Content-Length: 4\r\nTransfer-Encoding: chunked";
        let bytes = format!("POST /websub/ HTTP/1.1\r\nHost: h\r\n{lengths}\r\n\r\n{chunks}{hidden}");
        let answer = request(hub.address, bytes.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 415, "what would be content has no type: {}", answer.text());
        assert!(!answer.text().contains("HTTP/1.1"), "one answer, then the end: {}", answer.text());
    }
}

/// The operator's API has its own listener, and nothing of it is to be had without the token.
#[tokio::test]
async fn the_operators_api_is_nobody_elses() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let ask = async |address, method: &str, path: &str, token: &str| {
        let bytes = format!(
            "{method} {path} HTTP/1.1\r\nHost: h\r\n{token}Connection: close\r\nContent-Length: 0\r\n\r\n"
        );
        request(address, bytes.as_bytes()).await.unwrap().status
    };
    let paths =
        [("GET", "/api/v1/status"), ("GET", "/api/v1/subscriptions"), ("POST", "/api/v1/subscriptions/deny")];
    for (method, path) in paths {
        for token in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic Og==\r\n"] {
            assert_eq!(ask(hub.admin_address(), method, path, token).await, 401, "{path} {token}");
        }
        let public = ask(hub.address, method, path, "").await;
        assert!([404, 405].contains(&public), "{path}: {public}");
    }
    assert_eq!(hub.admin("/api/v1/status").await.status, 200);
}

/// A key that cannot be compared byte by byte, or that fills the store.
#[tokio::test]
async fn idempotency_keys_that_are_long_or_odd_are_refused() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    for key in ["", "gr\u{fc}n", "two words", "tab\tbed", &"k".repeat(256)] {
        let headers = [("Content-Type", "text/plain"), ("Link", link.as_str()), ("Idempotency-Key", key)];
        let answer = post(hub.address, &headers, b"news").await.unwrap();
        assert_eq!(answer.status, 400, "{key:?}");
        assert!(answer.text().contains("Idempotency-Key"), "{}", answer.text());
    }
}
