//! Backups of a hub under load, restored elsewhere: nothing that was acknowledged before a backup began is lost to anybody.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use resync_tests::harness::{HubProcess, Receiver, Reply, Seen, binary, eventually, post};
use tempfile::tempdir;
use tokio::process::Command;
use tokio::task::JoinSet;

const TOPICS: usize = 3;
const PUBLISHERS: usize = 6;

fn topic(number: usize) -> String {
    format!("http://source.example/set{number}/")
}

fn refusing(seen: &Seen) -> Reply {
    if seen.method == http::Method::POST { Reply::Status(503, String::new()) } else { Reply::Agree }
}

/// Everything that came in these deliveries.
fn bodies(deliveries: &[Seen]) -> BTreeSet<String> {
    deliveries.iter().map(Seen::text).collect()
}

/// Runs a command of the hub on this data folder: whether it went well, and what it said.
async fn run(data: &Path, keys: &[(&str, &str)], arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary("resync-hub"));
    command.args(arguments).arg("--data-dir").arg(data);
    command.envs(keys.iter().map(|(key, value)| (format!("RESYNC_HUB_{key}"), *value)));
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

async fn well(data: &Path, keys: &[(&str, &str)], arguments: &[&str]) -> String {
    let (well, said) = run(data, keys, arguments).await;
    assert!(well, "{arguments:?}: {said}");
    said
}

/// Posts one notification after the other until it is told to stop; what got its 202 is in the list.
async fn publish(hub: std::net::SocketAddr, own: usize, done: Arc<Mutex<Vec<String>>>, stop: Arc<AtomicBool>) {
    let number = own % TOPICS;
    let link = format!("<{}>; rel=\"self\", <http://{hub}/websub/>; rel=\"hub\"", topic(number));
    for count in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let body = format!("{number} {own} {count}");
        let answer = post(hub, &[("Content-Type", "text/plain"), ("Link", &link)], body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 202, "a backup refuses nobody: {}", answer.text());
        done.lock().unwrap().push(body);
    }
}

/// A hub under load is backed up, dies, and goes on elsewhere with another engine.
async fn moves_on(from: &str, to: &str) {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let (well_off, in_trouble) = (Receiver::start().await, Receiver::start().await);
    in_trouble.behave(refusing);
    let mut first = HubProcess::start_with(&data, &[("STORE_ENGINE", from)]).await;
    for number in 0..TOPICS {
        first.subscribe(&topic(number), &well_off.url("/cb"), &[], 2 * number + 1).await;
        first.subscribe(&topic(number), &in_trouble.url("/cb"), &[("hub.secret", "s3cr3t")], 2 * number + 2).await;
    }
    let (done, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let mut publishers = JoinSet::new();
    for own in 0..PUBLISHERS {
        publishers.spawn(publish(first.address, own, Arc::clone(&done), Arc::clone(&stop)));
    }
    eventually("there is something to back up", || async { done.lock().unwrap().len() > 300 }).await;
    let before: Vec<String> = done.lock().unwrap().clone();
    let admin = first.admin_address().to_string();
    let said = well(&data, &[], &["backup", file.to_str().unwrap(), "--admin", &admin]).await;
    assert!(said.contains("records"), "{said}");
    let after = done.lock().unwrap().len();
    assert!(after > before.len(), "the hub took posts while it was backed up");
    stop.store(true, Ordering::SeqCst);
    while publishers.join_next().await.is_some_and(|ended| ended.is_ok()) {}
    first.kill().await;

    let (got, refused) = (bodies(&well_off.deliveries()), in_trouble.deliveries().len());
    in_trouble.behave(|_| Reply::Agree);
    let engine = [("STORE_ENGINE", to)];
    well(&elsewhere, &engine, &["restore", file.to_str().unwrap()]).await;
    assert!(well(&elsewhere, &engine, &["fsck"]).await.contains("all well"));
    let second = HubProcess::start_with(&elsewhere, &engine).await;
    second.until_subscribed(2 * TOPICS).await;
    for number in 0..TOPICS {
        let retry = format!("/api/v1/deliveries/retry?topic={}", topic(number));
        assert_eq!(second.admin_post(&retry, "").await.status, 200);
    }
    let lost = |mut got: BTreeSet<String>, receiver: &Receiver, from: usize| {
        got.extend(bodies(&receiver.deliveries()[from..]));
        before.iter().filter(|body| !got.contains(*body)).count()
    };
    eventually("whoever was well off has got everything of before", || async {
        lost(got.clone(), &well_off, 0) == 0
    })
    .await;
    eventually("whoever was in trouble has got everything of before", || async {
        lost(BTreeSet::new(), &in_trouble, refused) == 0
    })
    .await;
    // The second hub goes on where the backup was: with the same secrets and for new notifications.
    second.publish(&topic(0), "of the second hub").await.unwrap();
    let came = in_trouble.until("what is new", |seen| seen.iter().any(|one| one.body == "of the second hub")).await;
    let new = came.iter().find(|one| one.body == "of the second hub").unwrap();
    assert!(new.header("x-hub-signature").starts_with("sha256="));
    println!("{from} to {to}: {} acknowledged before the backup, {} when it ended, 0 lost", before.len(), after);
}

#[tokio::test]
async fn a_backup_under_load_loses_nothing_when_it_is_restored_into_the_other_engine() {
    moves_on("fjall", "sled").await;
}

#[tokio::test]
async fn and_back_again() {
    moves_on("sled", "fjall").await;
}

#[tokio::test]
async fn a_backup_of_a_stopped_hub_holds_tokens_and_acts_and_not_the_operators_token() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let mut hub = HubProcess::start(&data).await;
    hub.publish(&topic(0), "kept").await.unwrap();
    hub.add_token("library", "http://source.example/").await;
    hub.stop().await;
    let file = file.to_str().unwrap();
    well(&data, &[], &["backup", file]).await;
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(file).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "only the hub's user reads a backup");
    let token = fs::read(data.join("admin-token")).unwrap();
    let held = fs::read(file).unwrap();
    assert!(!held.windows(token.len()).any(|window| window == token));

    well(&elsewhere, &[], &["restore", file]).await;
    assert!(well(&elsewhere, &[], &["token", "list"]).await.contains("library"));
    let acts = fs::read_to_string(elsewhere.join("audit.jsonl")).unwrap();
    assert!(acts.contains("token add") && acts.contains("restore"), "{acts}");
    let restored = HubProcess::start(&elsewhere).await;
    assert!(restored.admin("/api/v1/topics").await.text().contains(&topic(0)));
    assert_ne!(fs::read(elsewhere.join("admin-token")).unwrap(), token);
}

#[tokio::test]
async fn what_cannot_be_restored_is_refused_with_the_reason_and_leaves_nothing() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let mut hub = HubProcess::start(&data).await;
    hub.publish(&topic(0), "kept").await.unwrap();
    let (admin, file) = (hub.admin_address().to_string(), file.to_str().unwrap());
    well(&data, &[], &["backup", file, "--admin", &admin]).await;
    hub.stop().await;
    let bytes = fs::read(file).unwrap();
    let at = bytes.windows(11).position(|window| window == b"\"version\":1").unwrap();
    let mut newer = bytes.clone();
    newer[at + 10] = b'9';
    // A newer hub would have made the checksum for it, too.
    let length = u32::from_be_bytes(bytes[19..23].try_into().unwrap()) as usize;
    let checksum = crc32fast::hash(&newer[18..23 + length]);
    newer[23 + length..27 + length].copy_from_slice(&checksum.to_be_bytes());
    let mut bent = bytes.clone();
    bent[bytes.len() / 2] ^= 1;
    for (content, told) in [
        (&newer[..], "has format 9, this hub reads up to 1: restore it with the newer hub"),
        (&bent, "the backup is damaged"),
        (&bytes[..bytes.len() / 2], "the backup is cut off after"),
        (b"something else", "this is no backup of a hub"),
    ] {
        fs::write(file, content).unwrap();
        let (well, said) = run(&elsewhere, &[], &["restore", file]).await;
        assert!(!well && said.contains(told), "{said}");
        assert!(!elsewhere.exists());
    }
    fs::write(file, &bytes).unwrap();
    let (well, said) = run(&data, &[], &["restore", file]).await;
    assert!(!well && said.contains("is not empty"), "{said}");

    let mark = data.join("engine");
    fs::write(&mark, "fjall 77\n").unwrap();
    let said = hub.try_restart().await.unwrap_err();
    assert!(said.contains("the store has format 77, this hub reads up to 2: use the newer hub that wrote it"), "{said}");
    fs::write(&mark, "fjall 1\n").unwrap();
    hub.restart().await;
    assert_eq!(fs::read_to_string(&mark).unwrap(), "fjall 2\n", "an older format is migrated by a start");
    assert!(hub.admin("/api/v1/topics").await.text().contains(&topic(0)));
}

#[tokio::test]
async fn backups_are_written_down_as_what_operators_do() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let answer = hub.admin_post("/api/v1/backup", "").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/octet-stream")));
    assert!(answer.text().contains("resync-hub backup\n"));
    eventually("its outcome is written down", || async {
        hub.admin("/api/v1/audit").await.text().contains("records, ")
    })
    .await;
    let acts = hub.admin("/api/v1/audit").await.text();
    assert!(acts.contains("\"act\":\"backup\""), "{acts}");
}
