//! The example applications, run as processes.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::PathBuf;
use std::process::Stdio;

use crate::support::{self, Hub, PATIENCE, Source, ok};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Beside the tests, where they are built with them.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

async fn is_a_subscriber(name: &str) {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    let links = format!("Link: <{}>; rel=\"hub\", <{}>; rel=\"self\"\r\n", hub.url(), source.url("/topic"));
    source.raw("/topic", ok(&links, b""));
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(example(name));
    command.args([&source.url("/topic"), "127.0.0.1:0"]).arg(state.path());
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line in time");
        line.unwrap().expect("it runs")
    };
    let at = hub.accept(600).await;
    assert!(line().await.starts_with("subscribed to "), "{name}");
    assert_eq!(at.deliver("a.1", "hello").await.status(), 204, "{name}");
    assert_eq!(line().await, format!("{}: hello", source.url("/topic")), "{name}");
    assert_eq!(support::post(at.address, &at.path, &[], b"forged").await.status(), 403, "{name}");
    assert_eq!(at.deliver("a.1", "hello").await.status(), 204, "{name}: known");
    assert_eq!(at.deliver("a.2", "bye").await.status(), 204, "{name}");
    assert_eq!(line().await, format!("{}: bye", source.url("/topic")), "{name}");

    let topic: String = url::form_urlencoded::byte_serialize(at.topic.as_bytes()).collect();
    support::get(at.address, &format!("{}?hub.mode=denied&hub.topic={topic}&hub.reason=gone", at.path)).await;
    let denied = line().await;
    assert!(denied.starts_with("not subscribed: ") && denied.contains("gone"), "{name}: {denied}");
    // W-134: it looks for the topic anew, which has another hub now.
    let mut other = Hub::start().await;
    let links = format!("Link: <{}>; rel=\"hub\", <{}>; rel=\"self\"\r\n", other.url(), source.url("/topic"));
    source.raw("/topic", ok(&links, b""));
    other.accept(600).await;
    assert!(line().await.starts_with("subscribed to "), "{name}");
}

#[tokio::test]
async fn the_example_in_axum_is_a_subscriber() {
    is_a_subscriber("mount_in_axum").await;
}

#[tokio::test]
async fn the_example_in_bare_hyper_is_a_subscriber() {
    is_a_subscriber("mount_in_hyper").await;
}
