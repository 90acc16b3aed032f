//! The example applications, run as processes.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::PathBuf;
use std::process::Stdio;

use crate::support::{self, Hub, PATIENCE, Source, ok};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

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

/// A copy that is kept by the example `name`, which is killed and started again, and then stopped.
#[cfg(unix)]
async fn keeps_a_copy_through_a_kill(name: &str) {
    let mut hub = Hub::start().await;
    let source = Source::start().await;
    source.announce(Some(&hub.url()));
    source.resource_list("/resourcelist.xml", &[source.resource("/a", b"1")]);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    // It stays the same through the restart.
    let address = resync_harness::free_address().to_string();
    let start = || {
        let mut command = Command::new(example(name));
        command.arg(source.url("/")).arg(&copy).arg(&address);
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    };
    let (mut child, mut lines) = start();
    let mut line = async |beginning: &str| until(&mut lines, beginning).await;
    let before = hub.accept(600).await;
    line("subscribed to ").await;
    assert_eq!(line("in step").await, "in step: 1 created, 0 updated, 0 deleted, 0 failed", "{name}");
    source.resource_list("/resourcelist.xml", &[source.resource("/a", b"2")]);
    assert_eq!(before.deliver("a.1", &source.notification()).await.status(), 204, "{name}");
    line("notified").await;
    assert_eq!(line("in step").await, "in step: 0 created, 1 updated, 0 deleted, 0 failed", "{name}");
    child.kill().await.unwrap();

    source.resource_list("/resourcelist.xml", &[source.resource("/b", b"3")]);
    let (mut child, mut lines) = start();
    let mut line = async |beginning: &str| until(&mut lines, beginning).await;
    assert_eq!(hub.accept(600).await, before, "{name}: the same callback and secret");
    assert_eq!(line("in step").await, "in step: 1 created, 0 updated, 1 deleted, 0 failed", "{name}");
    assert_eq!(support::files(&copy), support::expected(&[("b", "3")]), "{name}");
    assert_eq!(before.deliver("a.1", &source.notification()).await.status(), 204, "{name}: known");

    let id = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it stops in time").unwrap();
    assert!(ended.success(), "{name}: {ended}");
}

/// The next line that begins so.
#[cfg(unix)]
async fn until(lines: &mut Lines<BufReader<ChildStdout>>, beginning: &str) -> String {
    let found = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it runs");
            if line.starts_with(beginning) {
                return line;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{beginning:?} in time"))
}

#[cfg(unix)]
#[tokio::test]
async fn the_example_in_axum_keeps_a_copy_through_a_kill() {
    keeps_a_copy_through_a_kill("copy_in_axum").await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_example_in_bare_hyper_keeps_a_copy_through_a_kill() {
    keeps_a_copy_through_a_kill("copy_in_hyper").await;
}

#[tokio::test]
async fn the_example_in_axum_is_a_subscriber() {
    is_a_subscriber("mount_in_axum").await;
}

#[tokio::test]
async fn the_example_in_bare_hyper_is_a_subscriber() {
    is_a_subscriber("mount_in_hyper").await;
}
