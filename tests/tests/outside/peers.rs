//! Peers that no one here wrote, installed from their registries: a subscriber that checks signatures by itself (npm
//! `pubsubhubbub`), one that finds the hub, renews, and hears of denials (Python's `Flask-WebSub`), and a publisher (Python's
//! `django-push`), against the hub; and two hubs (`Flask-WebSub` again, and npm's `@dwk/websub`) that deliver to the callback of
//! the subscriber kit. Without a way to the registries the tests fail.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use resync_harness::{
    DJANGO_PUSH, FLASK_HUB, FLASK_SUBSCRIBER, HubProcess, NODE_HUB, NODE_SUBSCRIBER, NodePeer, Process,
    PythonPeer, Receiver, Reply, eventually, form, free_address, request,
};
use rustix::process::Signal;
use tempfile::tempdir;

const CONTENT: &str = "<feed>Gr\u{fc}\u{df}e</feed>\n";
/// The same in Base64.
const ENCODED: &str = "PGZlZWQ+R3LDvMOfZTwvZmVlZD4K";

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

fn node(peer: NodePeer, script: &str, arguments: &[&str]) -> Process {
    let mut command = tokio::process::Command::new("node");
    command.arg(peers().join(script)).args(arguments);
    Process::run(script, command.env("NODE_PATH", peer.installed().join("node_modules")))
}

fn python(peer: PythonPeer, script: &str, arguments: &[&str]) -> Process {
    let mut command = tokio::process::Command::new(peer.installed().join("bin/python"));
    Process::run(script, command.arg(peers().join(script)).args(arguments))
}

/// From now on a topic is this content, with its links.
fn serve(source: &Receiver, hub: &str, topic: &str, content: &'static str) {
    let links = format!("<{hub}>; rel=\"hub\", <{topic}>; rel=\"self\"");
    source.behave(move |_| {
        let headers = vec![("content-type", "application/atom+xml".into()), ("link", links.clone())];
        Reply::Page(200, headers, content.into())
    });
}

#[tokio::test]
async fn w017_w165_w171_a_subscriber_of_strangers_takes_our_signature_and_no_forged_one() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(&folder.path().join("data")).await;
    let source = Receiver::start().await;
    let topic = source.url("/feed");
    serve(&source, &hub.url(), &topic, CONTENT);

    let address = free_address();
    let port = address.port().to_string();
    let mut peer = node(NODE_SUBSCRIBER, "subscriber.js", &[&topic, &hub.url(), &port, "known to both"]);
    peer.line(&format!("subscribed: {topic}")).await;
    hub.until_subscribed(1).await;

    // A forged delivery first: the library answers 202 and says nothing.
    let body = "forged";
    let forged = format!(
        "POST /callback?topic=x&hub=y HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nLink: <{}>; rel=\"hub\", <{topic}>; rel=\"self\"\r\n\
         X-Hub-Signature: sha256={}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        hub.url(),
        "0".repeat(64),
        body.len()
    );
    assert_eq!(request(address, forged.as_bytes()).await.unwrap().status, 202);

    let mut ping = python(DJANGO_PUSH, "publisher.py", &[&topic, &hub.url()]);
    ping.line("answered: 2").await;
    assert!(ping.wait().await.success());
    let content = peer.line("content: ").await;
    assert_eq!(content, format!("content: {topic} {ENCODED} application/atom+xml"));
    assert_eq!(peer.said().matches("content: ").count(), 1, "the forged one was ignored");

    peer.signal(Signal::USR2);
    peer.line(&format!("unsubscribed: {topic}")).await;
    hub.until_subscribed(0).await;
}

#[tokio::test]
async fn w013_w060_w098_w140_a_subscriber_of_strangers_finds_the_hub_renews_and_hears_of_its_denial() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(&folder.path().join("data")).await;
    let source = Receiver::start().await;
    let topic = source.url("/feed");
    let ping = async || {
        let parameters = [("hub.mode", "publish"), ("hub.url", topic.as_str())];
        assert_eq!(form(hub.address, &parameters).await.unwrap().status, 204);
    };

    serve(&source, &hub.url(), &topic, CONTENT);
    let port = free_address().port().to_string();
    let database = folder.path().join("subscriptions").display().to_string();
    let mut peer = python(FLASK_SUBSCRIBER, "flask_subscriber.py", &[&topic, &port, &database]);
    peer.line(&format!("subscribed: {topic}")).await;
    hub.until_subscribed(1).await;
    ping().await;
    assert_eq!(peer.line("content: ").await, format!("content: {topic} {ENCODED}"));

    peer.signal(Signal::USR1);
    peer.line_number("subscribed: ", 2).await;
    serve(&source, &hub.url(), &topic, "news");
    ping().await;
    assert_eq!(peer.line_number("content: ", 2).await, format!("content: {topic} bmV3cw=="));
    hub.until_subscribed(1).await;

    let wish = format!("{{\"topic\": {topic:?}, \"reason\": \"moved on\"}}");
    assert_eq!(hub.admin_post("/api/v1/subscriptions/deny", &wish).await.status, 200);
    peer.line(&format!("denied: {topic} moved on")).await;
    hub.until_subscribed(0).await;
    assert_eq!(peer.said().matches("content: ").count(), 2, "each content once");
}

/// What `resync-destination subscribe --json` says of a notification.
fn notified(line: &str) -> (String, String) {
    let said: serde_json::Value = serde_json::from_str(line).unwrap();
    let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
    (text("topic"), text("body"))
}

const SUBSCRIBED: &str = "\"event\":\"subscribed\"";
const NOTIFICATION: &str = "\"event\":\"notification\"";

/// `resync-destination`, subscribed to a topic until it is told to end.
fn destination(topic: &str, state: &Path, callback: SocketAddr, more: &[&str]) -> Process {
    let (state, listen) = (state.display().to_string(), callback.to_string());
    let arguments =
        ["subscribe", topic, "--state", &state, "--listen", &listen, "--json", "--unsubscribe-on-exit"];
    Process::start("resync-destination", &[&arguments[..], more].concat(), &HashMap::new())
}

/// Tells a hub of strangers that there is something new.
async fn publish(hub: SocketAddr, topic: &str) {
    let body = format!("hub.mode=publish&hub.topic={topic}");
    let ping = format!(
        "POST /hub HTTP/1.1\r\nHost: {hub}\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(request(hub, ping.as_bytes()).await.unwrap().status, 202);
}

#[tokio::test]
async fn w116_w148_w168_w193_a_hub_of_strangers_verifies_signs_and_delivers_to_the_callback_and_lets_it_go() {
    let folder = tempdir().unwrap();
    let source = Receiver::start().await;
    let topic = source.url("/feed");
    for algorithm in ["sha512", "sha1"] {
        let (hub, callback) = (free_address(), free_address());
        let database = folder.path().join(algorithm).display().to_string();
        let mut peer = python(FLASK_HUB, "flask_hub.py", &[&hub.port().to_string(), &database, algorithm]);
        peer.line("ready").await;
        let url = format!("http://{hub}/hub");
        serve(&source, &url, &topic, CONTENT);

        let state = folder.path().join(format!("state-{algorithm}"));
        let mut destination = destination(&topic, &state, callback, &[]);
        destination.line(SUBSCRIBED).await;

        publish(hub, &topic).await;
        let line = destination.line(NOTIFICATION).await;
        assert_eq!(notified(&line), (topic.clone(), CONTENT.to_owned()), "{algorithm}");
        serve(&source, &url, &topic, "news");
        publish(hub, &topic).await;
        let line = destination.line_number(NOTIFICATION, 2).await;
        assert_eq!(notified(&line).1, "news");

        destination.signal(Signal::TERM);
        assert!(destination.wait().await.success());
        let rows = format!(
            "import sqlite3; print(sqlite3.connect({database:?}).execute('select count(*) from hub').fetchone()[0])"
        );
        eventually("the hub has let it go", async || {
            let python = FLASK_HUB.installed().join("bin/python");
            let output = Command::new(python).args(["-c", &rows]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim() == "0"
        })
        .await;
    }
}

/// A subscription at npm's hub.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    callback: String,
    secret: String,
    /// The end of the lease, in Unix milliseconds.
    until: u64,
}

async fn held(hub: SocketAddr) -> Vec<Held> {
    let ask = format!("GET /hub HTTP/1.1\r\nHost: {hub}\r\nConnection: close\r\n\r\n");
    let answer = request(hub, ask.as_bytes()).await.unwrap().text();
    let rows: Vec<serde_json::Value> = serde_json::from_str(&answer).unwrap();
    let text = |row: &serde_json::Value, name: &str| row[name].as_str().unwrap().to_owned();
    let one = |row: &serde_json::Value| Held {
        callback: text(row, "callback"),
        secret: text(row, "secret"),
        until: row["expiresAt"].as_u64().unwrap(),
    };
    rows.iter().map(one).collect()
}

/// The only subscription there, once its lease ends after that: the hub keeps it when it has heard the callback's answer.
async fn held_after(hub: SocketAddr, until: u64) -> Held {
    let is_newer = |held: &[Held]| matches!(held, [one] if one.until > until);
    eventually("the hub keeps the subscription", async || is_newer(&held(hub).await)).await;
    held(hub).await.remove(0)
}

#[tokio::test]
async fn w060_w063_w116_w134_w168_w193_a_hub_of_other_strangers_renews_takes_a_new_secret_and_lets_go() {
    let folder = tempdir().unwrap();
    let source = Receiver::start().await;
    let topic = source.url("/feed");
    for (algorithm, digits) in [("sha384", 96), ("sha256", 64)] {
        let (hub, callback) = (free_address(), free_address());
        let arguments = [&hub.port().to_string(), topic.as_str(), &callback.to_string(), algorithm];
        let mut peer = node(NODE_HUB, "dwk_hub.js", &arguments);
        peer.line("ready").await;
        let url = format!("http://{hub}/hub");
        serve(&source, &url, &topic, CONTENT);

        let state = folder.path().join(algorithm);
        let flags = ["--lease", "20s", "--rotate-secret", "1s"];
        let mut destination = destination(&topic, &state, callback, &flags);
        destination.line(SUBSCRIBED).await;
        let first = held_after(hub, 0).await;
        publish(hub, &topic).await;
        let line = destination.line(NOTIFICATION).await;
        assert_eq!(notified(&line), (topic.clone(), CONTENT.to_owned()), "{algorithm}");

        destination.line_number(SUBSCRIBED, 2).await;
        let second = held_after(hub, first.until).await;
        assert_eq!(second.callback, first.callback);
        assert_ne!(second.secret, first.secret);
        serve(&source, &url, &topic, "news");
        publish(hub, &topic).await;
        let line = destination.line_number(NOTIFICATION, 2).await;
        assert_eq!(notified(&line).1, "news", "{algorithm}: signed with the new secret");

        let path = second.callback.split_once(&callback.to_string()).unwrap().1;
        let forged = format!(
            "POST {path} HTTP/1.1\r\nHost: {callback}\r\nConnection: close\r\nX-Hub-Signature: {algorithm}={}\r\n\
             Content-Length: 6\r\n\r\nforged",
            "0".repeat(digits)
        );
        assert_eq!(request(callback, forged.as_bytes()).await.unwrap().status, 403);

        destination.signal(Signal::TERM);
        assert!(destination.wait().await.success());
        assert_eq!(destination.said().matches(NOTIFICATION).count(), 2, "the forged one was ignored");
        eventually("the hub has let it go", async || held(hub).await.is_empty()).await;
    }
}
