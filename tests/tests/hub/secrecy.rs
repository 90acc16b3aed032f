//! Secrets stay secret: not in the data folder, not in the log; their keys can be replaced while the hub runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use resync_harness::{ENGINES, HubProcess, Process, Receiver, Reply, form, post};
use tempfile::tempdir;
use walkdir::WalkDir;

const TOPIC: &str = "http://source.example/topic";
const SECRET: &str = "a-secret-that-must-not-be-found";
const CAPABILITY: &str = "/callback/an-unguessable-part";

fn holds(folder: &Path, text: &str) -> bool {
    WalkDir::new(folder).into_iter().map(Result::unwrap).filter(|entry| entry.file_type().is_file()).any(
        |entry| {
            let bytes = fs::read(entry.path()).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        },
    )
}

/// Runs a command on the hub's files; says whether it succeeded and what it said.
pub(crate) async fn command(arguments: &[&str], environment: &HashMap<String, String>) -> (bool, String) {
    let mut process = Process::start("resync-hub", arguments, environment);
    let success = process.wait().await.success();
    process.line("").await;
    (success, process.said())
}

pub(crate) async fn new_key() -> String {
    let (success, said) = command(&["secrets", "new-key"], &HashMap::new()).await;
    assert!(success);
    said.trim().to_owned()
}

async fn never_holds_a_secret(engine: &str) {
    let folder = tempdir().unwrap();
    let data = folder.path().join("data");
    let key = new_key().await;
    let keys = [("STORE_ENGINE", engine), ("SECRETS_KEY", key.as_str())];
    let mut hub = HubProcess::start_with(&data, &keys).await;
    let destination = Receiver::start().await;
    destination.behave(|seen| if seen.path() == "/pending" { Reply::Hang } else { Reply::Agree });
    hub.subscribe(TOPIC, &destination.url("/cb"), &[("hub.secret", SECRET)], 1).await;
    let pending = destination.url("/pending");
    let waiting =
        [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &pending), ("hub.secret", SECRET)];
    assert_eq!(form(hub.address, &waiting).await.unwrap().status, 202);
    hub.publish(TOPIC, "signed").await.unwrap();
    assert!(destination.until_delivered(1).await[0].is_signed_with(SECRET));
    assert!(holds(&data, TOPIC), "the search finds what is there");
    assert!(!holds(&data, SECRET), "{engine}, while it runs");
    hub.stop().await;
    assert!(!holds(&data, SECRET) && !holds(&data, &key), "{engine}, after it has stopped");
}

#[tokio::test]
async fn the_data_folder_never_holds_a_secret_when_there_is_a_key() {
    for engine in ENGINES {
        never_holds_a_secret(engine).await;
    }
}

#[tokio::test]
async fn a_key_is_replaced_in_a_running_and_in_a_stopped_hub_and_missed_when_it_is_gone() {
    let folder = tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("keys"));
    let shown = (data.display().to_string(), file.display().to_string());
    let (one, two, three) = (new_key().await, new_key().await, new_key().await);
    fs::write(&file, &one).unwrap();
    let mut hub = HubProcess::start_with(&data, &[("SECRETS_KEY_FILE", &shown.1)]).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[("hub.secret", SECRET)], 1).await;
    let environment = hub.environment().clone();
    let rotate = ["secrets", "rotate", "--data-dir", &shown.0];

    fs::write(&file, format!("{two}\n{one}\n")).unwrap();
    let (success, said) = command(&rotate, &environment).await;
    assert!(success && said.contains("1 secret rewritten,"), "running: {said}");
    fs::write(&file, &two).unwrap();
    hub.publish(TOPIC, "under the second key").await.unwrap();
    assert!(destination.until_delivered(1).await[0].is_signed_with(SECRET));
    hub.stop().await;

    fs::write(&file, format!("{three}\n{two}\n")).unwrap();
    let (success, said) = command(&rotate, &environment).await;
    assert!(success && said.contains("1 secret rewritten,"), "stopped: {said}");

    fs::write(&file, &two).unwrap();
    let (success, said) = command(&["--dev", "--data-dir", &shown.0], &environment).await;
    assert!(!success && said.contains("key_file") && said.contains("which is not given"), "{said}");

    fs::write(&file, &three).unwrap();
    hub.restart().await;
    hub.publish(TOPIC, "under the third key").await.unwrap();
    assert!(destination.until_delivered(2).await[1].is_signed_with(SECRET));
}

#[tokio::test]
async fn w195_no_secret_or_token_is_logged_at_any_level_and_no_callback_above_debug() {
    let folder = tempdir().unwrap();
    let data = folder.path().join("data");
    let key = new_key().await;
    let keys = [
        ("LOG_FILTER", "trace"),
        ("LOG_FORMAT", "json"),
        ("PUBLISH_POLICY", "token"),
        ("SECRETS_KEY", key.as_str()),
        ("DELIVERY_SCHEDULE", "[\"1s\", \"1s\"]"),
    ];
    let mut hub = HubProcess::start_public(&data, &keys).await;
    let shown = data.display().to_string();
    let add = ["token", "add", "library", "--topic-prefix", "http://source.example/", "--data-dir", &shown];
    let (success, said) = command(&add, &HashMap::new()).await;
    assert!(success, "{said}");
    let token = said.lines().find(|line| line.starts_with("rsh_")).unwrap().to_owned();

    let destination = Receiver::start().await;
    let callback = destination.url(CAPABILITY);
    hub.subscribe(TOPIC, &callback, &[("hub.secret", SECRET)], 1).await;
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let authorization = format!("Bearer {token}");
    let headers =
        [("Content-Type", "text/plain"), ("Link", &link), ("Authorization", authorization.as_str())];
    assert_eq!(post(hub.address, &headers, b"one").await.unwrap().status, 202);
    destination.until_delivered(1).await;
    // Refused, unreachable, not verified, denied.
    destination.behave(|_| Reply::Status(500, SECRET.into()));
    assert_eq!(post(hub.address, &headers, b"two").await.unwrap().status, 202);
    hub.process().line("delivery refused").await;
    let refused = [
        ("hub.mode", "subscribe"),
        ("hub.topic", TOPIC),
        ("hub.callback", &callback),
        ("hub.secret", SECRET),
    ];
    form(hub.address, &refused).await.unwrap();
    hub.process().line("request not verified").await;
    drop(destination);
    hub.process().line("delivery failed").await;
    for path in ["subscriptions", "deliveries/laggards", "deliveries/skips", "deliveries/hosts"] {
        let shown = hub.admin(&format!("/api/v1/{path}")).await.text();
        assert!(!shown.contains(CAPABILITY) && !shown.contains(SECRET), "{path}: {shown}");
    }
    let deny = hub.admin_post("/api/v1/subscriptions/deny", &format!("{{\"topic\":\"{TOPIC}\"}}")).await;
    assert_eq!(deny.status, 200, "{}", deny.text());
    let admin_token = fs::read_to_string(data.join("admin-token")).unwrap();
    let (_, said) = hub.stop().await;

    assert!(said.lines().any(|line| line.contains("\"DEBUG\"")), "everything is logged");
    for (what, text) in
        [("secret", SECRET), ("token", &token), ("admin token", admin_token.trim()), ("key", &key)]
    {
        assert!(
            !said.contains(text),
            "the {what} is logged: {:?}",
            said.lines().find(|line| line.contains(text))
        );
    }
    let quiet = |line: &&str| line.contains("\"level\":\"DEBUG\"") || line.contains("\"level\":\"TRACE\"");
    let loud = said.lines().filter(|line| !quiet(line)).find(|line| line.contains(CAPABILITY));
    assert_eq!(loud, None, "a whole callback is logged above debug level");
}
