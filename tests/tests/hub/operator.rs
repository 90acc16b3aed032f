//! The operator's hand: what is late is seen, tried again, skipped, replayed, paused and resumed, by the command line.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use resync_harness::{HubProcess, Receiver, Reply, Seen, binary, eventually, refusing};
use tempfile::tempdir;
use tokio::process::Command;

const TOPIC: &str = "http://example.com/framework/";

/// What `resync-hub deliveries` says.
async fn deliveries(hub: &HubProcess, data: &Path, command: &[&str]) -> String {
    let (data, admin) = (data.display().to_string(), hub.admin_address().to_string());
    let mut arguments = vec!["deliveries", "--data-dir", &data, "--admin", &admin];
    arguments.extend_from_slice(command);
    let output = Command::new(binary("resync-hub")).args(&arguments).output().await.unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is said once a line comes that holds all of these.
async fn until(hub: &HubProcess, data: &Path, command: &[&str], texts: &[&str]) -> String {
    let found = Mutex::new(None);
    eventually(&format!("{command:?} says {texts:?}"), || async {
        let said = deliveries(hub, data, command).await;
        let line = said.lines().find(|line| texts.iter().all(|text| line.contains(text))).map(str::to_owned);
        let came = line.is_some();
        *found.lock().unwrap() = line;
        came
    })
    .await;
    found.into_inner().unwrap().unwrap()
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    line.split('\t').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap()
}

fn texts(deliveries: &[Seen]) -> Vec<String> {
    deliveries.iter().map(Seen::text).collect()
}

#[tokio::test]
async fn what_is_late_is_listed_tried_at_once_and_skipped() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    destination.behave(refusing(404));
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    hub.publish(TOPIC, "one").await.unwrap();
    hub.publish(TOPIC, "two").await.unwrap();
    let late =
        until(&hub, folder.path(), &["laggards"], &["failed_attempts=1", "behind=2", "class=refused"]).await;
    assert!(!late.contains("/cb"), "a callback is a secret: {late}");
    let id = field(&late, "subscription").to_owned();

    let skipped = deliveries(&hub, folder.path(), &["skip", "--subscription", &id]).await;
    assert!(skipped.contains("subscriptions=1"), "{skipped}");
    let skip = deliveries(&hub, folder.path(), &["skips", "--json"]).await;
    assert!(skip.contains(".1\""), "{skip}");
    // The second one is tried at once, and refused too.
    until(&hub, folder.path(), &["laggards"], &["failed_attempts=1", "behind=1"]).await;

    destination.behave(|_| Reply::Agree);
    let tried = deliveries(&hub, folder.path(), &["retry", "--topic", TOPIC]).await;
    assert!(tried.contains("subscriptions=1"), "{tried}");
    let got = destination.until_delivered(3).await;
    assert_eq!(texts(&got), ["one", "two", "two"]);

    let skips = async || deliveries(&hub, folder.path(), &["skips", "--json"]).await;
    assert!(skips().await.contains(".1\""));
    deliveries(&hub, folder.path(), &["replay", "--subscription", &id, "--from", "1"]).await;
    assert!(!skips().await.contains(".1\""), "what is owed again is not given up");
    let got = destination.until_delivered(5).await;
    assert_eq!(texts(&got)[3..], ["one", "two"]);
    assert_eq!(got[1].header("webhook-id"), got[4].header("webhook-id"));
    deliveries(&hub, folder.path(), &["replay", "--topic", TOPIC, "--since", "2020-01-01T00:00:00Z"]).await;
    assert_eq!(texts(&destination.until_delivered(7).await)[5..], ["one", "two"]);
}

#[tokio::test]
async fn with_quiet_what_was_done_is_not_told_and_what_was_asked_for_is() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    let quiet = async |arguments: &[&str]| {
        let (data, admin) = (folder.path().display().to_string(), hub.admin_address().to_string());
        let mut command = Command::new(binary("resync-hub"));
        command.args(arguments).args(["--quiet", "--data-dir", &data, "--admin", &admin]);
        let output = command.output().await.unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    };
    assert_eq!(quiet(&["deliveries", "pause", TOPIC]).await, "");
    assert!(quiet(&["deliveries", "paused"]).await.contains(TOPIC));
    assert_eq!(quiet(&["deliveries", "resume", TOPIC]).await, "");
    let listed = quiet(&["subscriptions", "list"]).await;
    let id = listed.split('\t').next().unwrap();
    assert!(quiet(&["subscriptions", "export", id]).await.contains("\"callback\""));
    assert_eq!(quiet(&["subscriptions", "deny", id]).await, "");
}

#[tokio::test]
async fn who_does_not_exist_is_said_not_to_and_origins_may_be_spelled_as_they_are_elsewhere() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    let retry =
        async |query: &str| hub.admin_post(&format!("/api/v1/deliveries/retry?{query}"), "").await.status;
    let spelled = destination.url("/any/path").replace("http://", "HTTP://");
    assert_eq!(retry(&format!("host={spelled}")).await, 200);
    assert_eq!(retry("host=http://nobody.example").await, 404);
    assert_eq!(retry("host=nobody").await, 400);
    assert_eq!(retry("subscription=999").await, 404);
}

#[tokio::test]
async fn a_paused_topic_waits_also_across_a_crash_and_goes_on_when_it_is_resumed() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let other = "http://example.com/other/";
    hub.subscribe(TOPIC, &destination.url("/paused"), &[], 1).await;
    hub.subscribe(other, &destination.url("/other"), &[], 2).await;
    deliveries(&hub, folder.path(), &["pause", TOPIC]).await;
    assert!(deliveries(&hub, folder.path(), &["paused"]).await.contains(TOPIC));
    for text in ["one", "two"] {
        assert_eq!(hub.publish(TOPIC, text).await.unwrap().status, 202);
    }
    hub.kill().await;
    hub.restart().await;
    hub.publish(other, "goes on").await.unwrap();
    let got = destination.until_delivered(1).await;
    assert_eq!(texts(&got), ["goes on"], "nothing of the paused topic");
    deliveries(&hub, folder.path(), &["resume", TOPIC]).await;
    let got = destination.until_delivered(3).await;
    assert_eq!(texts(&got)[1..], ["one", "two"]);
}

#[tokio::test]
async fn a_host_with_an_open_breaker_is_shown_and_gets_everything_when_it_is_back() {
    const SUBSCRIBERS: usize = 60;
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    for number in 0..SUBSCRIBERS {
        hub.subscribe(TOPIC, &destination.url(&format!("/{number}")), &[], number + 1).await;
    }
    destination.behave(refusing(503));
    hub.publish(TOPIC, "news").await.unwrap();
    let line = until(&hub, folder.path(), &["hosts"], &["breaker_open_for="]).await;
    let sent = destination.deliveries().len();
    // Eight at once, and 32 that have not failed ask without a pause; then ten a second.
    assert!((5..=55).contains(&sent), "{sent} requests before it was left alone");
    eventually("the others wait", || async {
        let hosts = deliveries(&hub, folder.path(), &["hosts"]).await;
        hosts.contains("subscriptions_waiting=") && !hosts.contains("subscriptions_waiting=0")
    })
    .await;
    destination.behave(|_| Reply::Agree);
    deliveries(&hub, folder.path(), &["retry", "--host", field(&line, "origin")]).await;
    let got = destination
        .until("everybody got it", |seen| {
            let posts = seen.iter().filter(|seen| seen.method == http::Method::POST).skip(sent);
            posts.map(Seen::path).collect::<std::collections::BTreeSet<_>>().len() == SUBSCRIBERS
        })
        .await;
    assert!(!got.is_empty());
}

#[tokio::test]
async fn the_store_of_a_hub_that_was_killed_is_whole_and_that_of_a_running_one_is_not_touched() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    destination.behave(refusing(503));
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    for news in ["one", "two"] {
        assert_eq!(hub.publish(TOPIC, news).await.unwrap().status, 202);
    }
    let command = async |arguments: &[&str]| {
        let data = folder.path().display().to_string();
        let mut command = Command::new(binary("resync-hub"));
        let output = command.args(arguments).args(["--data-dir", &data]).output().await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = command(&["fsck"]).await;
    assert!(code == Some(1) && said.contains("in use by another process"), "{said}");
    let (code, said) = command(&["healthcheck", "--json"]).await;
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, found), (Some(0), serde_json::json!({ "ready": true, "detail": "ready" })));
    hub.kill().await;
    let (code, said) = command(&["fsck"]).await;
    assert!(code == Some(0) && said.contains("no faults"), "{said}");
    let (code, said) = command(&["-q", "fsck", "--json"]).await;
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(code == Some(0) && found["records"].as_u64() > Some(0), "{said}");
    assert_eq!((&found["faults"], &found["steps"]), (&serde_json::json!([]), &serde_json::json!([])));

    let empty = tempdir().unwrap();
    let arguments = ["fsck", "--data-dir", empty.path().to_str().unwrap()];
    let output = Command::new(binary("resync-hub")).args(arguments).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(empty.path().read_dir().unwrap().count(), 0, "what is no store is not made one");
}

#[tokio::test]
async fn an_operators_token_that_can_be_guessed_is_told_at_the_start_and_proves_nothing() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let proof = "/identity?challenge=0123456789abcdef";
    assert_eq!(hub.admin(proof).await.status, 200);
    let (_, said) = hub.stop().await;
    assert!(!said.contains("to be guessed"), "{said}");
    fs::write(folder.path().join("admin-token"), "hunter2").unwrap();
    hub.restart().await;
    hub.process().line("the admin token is short enough to be guessed").await;
    assert_eq!(hub.admin("/api/v1/status").await.status, 200);
    assert_eq!(hub.admin(proof).await.status, 404);
}
