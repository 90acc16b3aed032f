//! Backups of a hub under load, restored elsewhere: nothing that was acknowledged before a backup began is lost to anybody.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::ready;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use resync_harness::{
    Backup, ENGINES, HubProcess, Process, Receiver, Reply, Seen, binary, eventually, post, refusing, seed,
};
use resync_hub::http::AdminToken;
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::sleep;

const TOPICS: usize = 3;
const PUBLISHERS: usize = 6;

fn topic(number: usize) -> String {
    format!("http://source.example/set{number}/")
}

/// Everything that came in these deliveries.
fn bodies(deliveries: &[Seen]) -> BTreeSet<String> {
    deliveries.iter().map(Seen::text).collect()
}

/// What was delivered under each `webhook-id`, by which subscribers drop repetitions.
fn names(deliveries: &[Seen]) -> BTreeMap<String, String> {
    deliveries.iter().map(|seen| (seen.header("webhook-id").to_owned(), seen.text())).collect()
}

/// Runs a command of the hub on this data folder: whether it went well, and what it said.
async fn run(data: &Path, keys: &[(&str, &str)], arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary("resync-hub"));
    command.args(arguments).arg("--data-dir").arg(data);
    command.envs(keys.iter().map(|(key, value)| (format!("RESYNC_HUB_{key}"), *value)));
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

pub(super) async fn well(data: &Path, keys: &[(&str, &str)], arguments: &[&str]) -> String {
    let (well, said) = run(data, keys, arguments).await;
    assert!(well, "{arguments:?}: {said}");
    said
}

/// Posts one notification after the other until it is told to stop; what got its 202 is in the list.
async fn publish(
    hub: std::net::SocketAddr,
    own: usize,
    done: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
) {
    let number = own % TOPICS;
    let link = format!("<{}>; rel=\"self\", <http://{hub}/websub/>; rel=\"hub\"", topic(number));
    for count in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        // Large enough that a backup of them is read in several steps.
        let body = format!("{number} {own} {count} {}", "x".repeat(8_000));
        let answer =
            post(hub, &[("Content-Type", "text/plain"), ("Link", &link)], body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 202, "a backup refuses nobody: {}", answer.text());
        done.lock().unwrap().push(body);
    }
}

/// A hub under load is backed up, dies, and goes on elsewhere with another engine.
async fn moves_on(from: &str, to: &str) {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let (well_off, in_trouble) = (Receiver::start().await, Receiver::start().await);
    in_trouble.behave(refusing(503));
    let mut first = HubProcess::start_with(&data, &[("STORE_ENGINE", from)]).await;
    for number in 0..TOPICS {
        first.subscribe(&topic(number), &well_off.url("/cb"), &[], 2 * number + 1).await;
        first
            .subscribe(&topic(number), &in_trouble.url("/cb"), &[("hub.secret", "s3cr3t")], 2 * number + 2)
            .await;
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
    while let Some(ended) = publishers.join_next().await {
        ended.unwrap();
    }
    first.kill().await;

    let given = names(&[well_off.deliveries(), in_trouble.deliveries()].concat());
    let (got, refused) = (well_off.deliveries(), in_trouble.deliveries().len());
    in_trouble.behave(|_| Reply::Agree);
    let engine = [("STORE_ENGINE", to)];
    well(&elsewhere, &engine, &["restore", file.to_str().unwrap()]).await;
    assert!(well(&elsewhere, &engine, &["fsck"]).await.contains("no faults"));
    let second = HubProcess::start_with(&elsewhere, &engine).await;
    second.until_subscribed(2 * TOPICS).await;
    for number in 0..TOPICS {
        let retry = format!("/api/v1/deliveries/retry?topic={}", topic(number));
        assert_eq!(second.admin_post(&retry, "").await.status, 200);
    }
    // Of the second hub is expected what the first one had not delivered.
    let lost = |mut owed: BTreeSet<String>, receiver: &Receiver, from: usize| {
        for body in bodies(&receiver.deliveries()[from..]) {
            owed.remove(&body);
        }
        owed.len()
    };
    let (all, had) = (before.iter().cloned().collect::<BTreeSet<_>>(), bodies(&got));
    let owed: BTreeSet<String> = all.difference(&had).cloned().collect();
    eventually("whoever was well off has got everything of before", || async {
        lost(owed.clone(), &well_off, got.len()) == 0
    })
    .await;
    eventually("whoever was in trouble has got everything of before", || async {
        lost(all.clone(), &in_trouble, refused) == 0
    })
    .await;
    // The second hub goes on where the backup was: with the same secrets and for new notifications.
    second.publish(&topic(0), "of the second hub").await.unwrap();
    let came =
        in_trouble.until("what is new", |seen| seen.iter().any(|one| one.body == "of the second hub")).await;
    let new = came.iter().find(|one| one.body == "of the second hub").unwrap();
    assert!(new.header("x-hub-signature").starts_with("sha256="));
    // Under one name there is one notification, whichever of the two hubs has sent it.
    let mut by_name = given;
    for (name, body) in names(&[well_off.deliveries(), in_trouble.deliveries()].concat()) {
        assert_eq!(*by_name.entry(name.clone()).or_insert_with(|| body.clone()), body, "{name}");
    }
    assert!(!second.admin("/api/v1/deliveries/lost").await.text().contains("\"first\""), "nothing was lost");
    println!(
        "{from} to {to}: {} acknowledged before the backup, {} when it ended, 0 lost",
        before.len(),
        after
    );
}

/// The same one where there is no other.
#[tokio::test]
async fn a_backup_under_load_loses_nothing_when_it_is_restored_into_the_other_engine() {
    moves_on("fjall", ENGINES[ENGINES.len() - 1]).await;
}

#[cfg(feature = "sled")]
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
async fn a_backup_with_a_planted_operators_token_restores_nothing_and_planted_publishers_are_named() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let mut hub = HubProcess::start(&data).await;
    hub.add_token("library", "http://source.example/").await;
    hub.stop().await;
    let backup = file.to_str().unwrap();
    well(&data, &[], &["backup", backup]).await;
    for name in ["admin-token", "../admin-token", "/tmp/admin-token", "engine", "fjall", "hub.toml", ""] {
        let mut crafted = Backup::read(&file);
        crafted.plant(name, b"known-to-whoever-made-the-backup");
        let planted = folder.path().join("crafted");
        crafted.write(&planted);
        let (done, said) = run(&elsewhere, &[], &["restore", planted.to_str().unwrap()]).await;
        assert!(!done && said.contains("which resync-hub never puts into one"), "{name}: {said}");
        assert!(!elsewhere.exists(), "{name}: nothing is made of it");
    }
    assert!(!folder.path().join("admin-token").exists());

    let said = well(&elsewhere, &[], &["restore", backup]).await;
    assert!(said.contains("\"library\"") && said.contains("http://source.example/"), "{said}");
    assert!(!elsewhere.join("admin-token").exists(), "the hub makes its own");
    let without = folder.path().join("three");
    well(&without, &[], &["restore", backup, "--without-credentials"]).await;
    assert!(!well(&without, &[], &["token", "list"]).await.contains("library"));
    assert!(!without.join("ticket-key").exists());
}

#[tokio::test]
async fn a_backup_goes_to_standard_output_too_and_the_exit_code_says_whether_it_is_whole() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let mut hub = HubProcess::start(&data).await;
    hub.publish(&topic(0), "kept").await.unwrap();
    let admin = hub.admin_address().to_string();
    let take = async |more: &[&str]| {
        let mut command = Command::new(binary("resync-hub"));
        command.args(["backup", "-", "--data-dir"]).arg(&data).args(more);
        command.output().await.unwrap()
    };
    for more in [&["--admin", &admin][..], &[]] {
        let taken = take(more).await;
        let told = String::from_utf8_lossy(&taken.stderr);
        assert!(taken.status.success() && told.contains("acknowledged before"), "{told}");
        fs::write(&file, &taken.stdout).unwrap();
        well(&elsewhere, &[], &["restore", file.to_str().unwrap()]).await;
        fs::remove_dir_all(&elsewhere).unwrap();
        // The second time it is stopped.
        if more.is_empty() {
            break;
        }
        hub.stop().await;
    }

    // Something that is no hub answers, and ends before the backup does.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.local_addr().unwrap().to_string();
    let half = fs::read(&file).unwrap();
    let half = half[..half.len() / 2].to_vec();
    let token = fs::read_to_string(data.join("admin-token")).unwrap();
    let answering = std::thread::spawn(move || {
        let answer = |body: &dyn Fn(&str) -> Vec<u8>| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 1_000];
            let length = std::io::Read::read(&mut stream, &mut asked).unwrap();
            let body = body(&String::from_utf8_lossy(&asked[..length]));
            std::io::Write::write_all(&mut stream, &[&b"HTTP/1.0 200 OK\r\n\r\n"[..], &body].concat())
                .unwrap();
        };
        // It has stolen the token, or nobody would ask it for more.
        answer(&|asked| {
            let challenge = asked.split("challenge=").nth(1).unwrap().split(' ').next().unwrap();
            AdminToken::new(&token).proof(challenge).into_bytes()
        });
        answer(&|_| half.clone());
    });
    let cut = take(&["--admin", &other]).await;
    answering.join().unwrap();
    let told = String::from_utf8_lossy(&cut.stderr);
    assert!(!cut.status.success() && told.contains("the backup is cut off after"), "{told}");
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
    let mut newer = Backup::read(Path::new(file));
    newer.say("\"version\":1", "\"version\":9");
    newer.write(Path::new(file));
    let newer = fs::read(file).unwrap();
    let mut bent = bytes.clone();
    bent[bytes.len() / 2] ^= 1;
    for (content, told) in [
        (
            &newer[..],
            "has format 9, and this hub reads format 1: restore it with the version of resync-hub that wrote it",
        ),
        (&bent, "the backup is damaged"),
        (&bytes[..bytes.len() / 2], "the backup is cut off after"),
        (b"something else", "this is no backup of resync-hub"),
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
    assert!(said.contains("has format 77, and this hub reads format 1: start the version"), "{said}");
    fs::write(&mark, "fjall 1\n").unwrap();
    hub.restart().await;
    assert!(hub.admin("/api/v1/topics").await.text().contains(&topic(0)));
}

/// Runs `restore -` with this on standard input.
async fn restore_from_stdin(data: &Path, backup: &[u8]) -> (bool, String) {
    let mut command = Command::new(binary("resync-hub"));
    command.args(["restore", "-", "--data-dir"]).arg(data);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut restoring = command.spawn().unwrap();
    let mut input = restoring.stdin.take().unwrap();
    // Whoever refuses what is there already reads none of it.
    let _ = input.write_all(backup).await;
    drop(input);
    let output = restoring.wait_with_output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[tokio::test]
async fn a_backup_is_restored_from_standard_input_and_a_part_of_one_leaves_nothing() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, volume] = ["one", "two", "volume"].map(|name| folder.path().join(name));
    let mut hub = HubProcess::start(&data).await;
    hub.publish(&topic(0), "kept").await.unwrap();
    hub.stop().await;
    let passed_on = Command::new(binary("resync-hub"))
        .args(["backup", "-", "--data-dir"])
        .arg(&data)
        .output()
        .await
        .unwrap();
    assert!(passed_on.status.success());
    let backup = passed_on.stdout;
    fs::create_dir(&volume).unwrap();
    for torn in [&backup[..0], &backup[..backup.len() / 2], &backup[..backup.len() - 1]] {
        for place in [&elsewhere, &volume] {
            let (restored, said) = restore_from_stdin(place, torn).await;
            assert!(!restored && said.contains("backup"), "{said}");
        }
        assert!(!elsewhere.exists(), "nothing was made");
        assert_eq!(fs::read_dir(&volume).unwrap().count(), 0, "nothing is left");
    }
    for place in [&elsewhere, &volume] {
        let (restored, said) = restore_from_stdin(place, &backup).await;
        assert!(restored, "{said}");
        assert!(well(place, &[], &["fsck"]).await.contains("no faults"));
        let (again, said) = restore_from_stdin(place, &backup).await;
        assert!(!again && said.contains("is not empty"), "{said}");
    }
    let restored = HubProcess::start(&volume).await;
    assert!(restored.admin("/api/v1/topics").await.text().contains(&topic(0)));
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

/// Asks for a backup, as a program does that has room for little of it.
async fn ask_for_backup(hub: &HubProcess, data: &Path) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut stream = socket.connect(hub.admin_address()).await.unwrap();
    let token = fs::read_to_string(data.join("admin-token")).unwrap();
    let asked = format!("POST /api/v1/backup HTTP/1.0\r\nAuthorization: Bearer {}\r\n\r\n", token.trim());
    stream.write_all(asked.as_bytes()).await.unwrap();
    stream
}

/// Twelve notifications of so many bytes.
async fn much_to_back_up(hub: &HubProcess, bytes: usize) {
    for number in 0..12 {
        let body = format!("{number:02}").repeat(bytes / 2);
        assert_eq!(hub.publish(&topic(0), &body).await.unwrap().status, 202);
    }
}

#[tokio::test]
async fn an_act_that_was_under_way_when_the_hub_died_gets_an_outcome_at_the_next_start() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    much_to_back_up(&hub, 900_000).await;
    let silent = ask_for_backup(&hub, folder.path()).await;
    let acts = async |hub: &HubProcess| hub.admin("/api/v1/audit").await.text();
    eventually("it is under way", || async { acts(&hub).await.contains("\"act\":\"backup\"") }).await;
    assert!(!acts(&hub).await.contains("outcome"));
    hub.kill().await;
    hub.restart().await;
    let told = acts(&hub).await;
    assert!(told.contains("\"outcome\":\"outcome unknown"), "{told}");
    drop(silent);
}

/// A disk that writes back, a full pipe: nothing is read for longer than any other answer may wait.
#[tokio::test]
async fn a_backup_waits_for_whoever_takes_it_and_is_given_up_where_nobody_does() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let limits = [("INGRESS_ANSWER_TIMEOUT", "200ms"), ("ADMIN_BACKUP_TIMEOUT", "10s")];
    let hub = HubProcess::start_with(&data, &limits).await;
    // Far more than the system holds for somebody who does not read.
    much_to_back_up(&hub, 900_000).await;

    let mut stream = ask_for_backup(&hub, &data).await;
    let mut taken = vec![0; 500_000];
    for part in taken.chunks_mut(100_000) {
        sleep(Duration::from_secs(1)).await;
        stream.read_exact(part).await.unwrap();
    }
    stream.read_to_end(&mut taken).await.unwrap();
    let body = taken.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    fs::write(&file, &taken[body..]).unwrap();
    well(&elsewhere, &[], &["restore", file.to_str().unwrap()]).await;

    let silent = ask_for_backup(&hub, &data).await;
    eventually("who never reads is given up, and that is written down", || async {
        hub.admin("/api/v1/audit").await.text().contains("the client hung up")
    })
    .await;
    let admin = hub.admin_address().to_string();
    well(&data, &[], &["backup", file.to_str().unwrap(), "--admin", &admin]).await;
    drop(silent);
}

/// What is restored comes out of a pipe, so that each restore has got just so far when it is killed.
#[tokio::test]
async fn what_a_killed_restore_leaves_is_no_store_until_another_one_has_completed_it() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file, pipe] =
        ["one", "two", "hub.backup", "pipe"].map(|name| folder.path().join(name));
    let mut hub = HubProcess::start(&data).await;
    hub.add_token("library", "http://source.example/").await;
    much_to_back_up(&hub, 300_000).await;
    hub.stop().await;
    let file = file.to_str().unwrap();
    well(&data, &[], &["backup", file]).await;
    well(&elsewhere, &[], &["restore", file]).await;
    let all = well(&elsewhere, &[], &["fsck"]).await;
    assert!(all.contains("no faults"), "{all}");

    let bytes = fs::read(file).unwrap();
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let mut seeded = Rng::with_seed(seed());
    let mut instants = vec![Instant::After(0), Instant::After(bytes.len()), Instant::AtTheEnd];
    instants.extend((0..6).map(|_| Instant::After(seeded.usize(..bytes.len()))));
    for (number, instant) in instants.into_iter().enumerate() {
        let engine = [("STORE_ENGINE", ENGINES[number % ENGINES.len()])];
        let restored = folder.path().join(format!("restored{number}"));
        kill_a_restore(&restored, &engine, (&pipe, &bytes), instant).await;
        let (is_store, said) = run(&restored, &engine, &["fsck"]).await;
        if is_store {
            // It had just done all of it.
            assert!(instant == Instant::AtTheEnd && said == all, "{instant:?}: {said}");
            continue;
        }
        let mut hub = HubProcess::prepare(&restored, &engine);
        let refused = hub.try_restart().await.expect_err("a part of a store is no store");
        for said in [said, refused] {
            assert!(said.contains("was not finished: restore into it again"), "{instant:?}: {said}");
        }
        well(&restored, &engine, &["restore", file]).await;
        assert_eq!(well(&restored, &engine, &["fsck"]).await, all, "{instant:?}");
        assert!(well(&restored, &engine, &["token", "list"]).await.contains("library"));
        hub.restart().await;
        assert!(hub.admin("/api/v1/topics").await.text().contains(&topic(0)));
        hub.stop().await;
        fs::remove_dir_all(&restored).unwrap();
    }
}

/// When a restore is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instant {
    /// When it has been given so many bytes of the backup to write.
    After(usize),
    /// When it was told that this was all, and finishes.
    AtTheEnd,
}

async fn kill_a_restore(
    restored: &Path,
    keys: &[(&str, &str)],
    (pipe, backup): (&Path, &[u8]),
    instant: Instant,
) {
    let arguments = ["restore", pipe.to_str().unwrap(), "--data-dir", restored.to_str().unwrap()];
    let environment = keys.iter().map(|(key, value)| (format!("RESYNC_HUB_{key}"), (*value).to_owned()));
    let restoring = Process::start("resync-hub", &arguments, &environment.collect());
    // It reads all of it before it writes anything.
    drop(fill(pipe, backup).await);
    eventually("it begins", || ready(restored.join("engine").exists())).await;
    let given = match instant {
        Instant::After(bytes) => &backup[..bytes],
        Instant::AtTheEnd => backup,
    };
    let filled = fill(pipe, given).await;
    if instant == Instant::AtTheEnd {
        drop(filled);
        restoring.kill().await;
    } else {
        restoring.kill().await;
        drop(filled);
    }
}

/// Puts bytes into a pipe that somebody reads, which ends when what is returned is dropped.
async fn fill(path: &Path, bytes: &[u8]) -> pipe::Sender {
    let mut opened = None;
    eventually("it reads the pipe", || {
        opened = pipe::OpenOptions::new().open_sender(path).ok();
        ready(opened.is_some())
    })
    .await;
    let mut sender = opened.unwrap();
    sender.write_all(bytes).await.unwrap();
    sender
}

/// The kind of record that notifications are.
const LOG: u8 = 3;

#[tokio::test]
async fn a_damaged_store_is_mended_and_whoever_had_not_got_what_is_lost_is_told_of_a_gap() {
    let folder = tempdir().unwrap();
    let [data, elsewhere, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
    let late = Receiver::start().await;
    late.behave(refusing(503));
    let mut hub = HubProcess::start(&data).await;
    hub.subscribe(&topic(0), &late.url("/cb"), &[], 1).await;
    for body in ["one", "two", "three"] {
        hub.publish(&topic(0), body).await.unwrap();
    }
    late.until_delivered(1).await;
    hub.stop().await;
    let name = file.to_str().unwrap();
    well(&data, &[], &["backup", name]).await;
    let mut damaged = Backup::read(&file);
    damaged.change(|space, key, mut value| {
        if space == LOG && key.ends_with(&2_u64.to_be_bytes()) {
            let middle = value.len() / 2;
            value[middle] ^= 1;
        }
        value
    });
    damaged.write(&file);

    let (restored, said) = run(&elsewhere, &[], &["restore", name]).await;
    assert!(!restored && said.contains("restored with 2 faults"), "{said}");
    let (whole, said) = run(&elsewhere, &[], &["fsck"]).await;
    assert!(!whole && said.contains("`resync-hub fsck --repair`"), "{said}");
    let (whole, said) = run(&elsewhere, &[], &["fsck", "--json"]).await;
    assert!(!whole && said.contains("\"faults\":[{\"what\":\""), "{said}");
    let said = well(&elsewhere, &[], &["fsck", "--repair"]).await;
    let lost = format!("lost: notification 2 of topic {}: missing or damaged", topic(0));
    assert!(said.contains(&lost) && said.contains("no faults"), "{said}");
    assert!(well(&elsewhere, &[], &["fsck"]).await.contains("no faults"));
    assert!(fs::read_to_string(elsewhere.join("audit.jsonl")).unwrap().contains("\"act\":\"repair\""));

    late.behave(|_| Reply::Agree);
    let second = HubProcess::start(&elsewhere).await;
    let retry = format!("/api/v1/deliveries/retry?topic={}", topic(0));
    assert_eq!(second.admin_post(&retry, "").await.status, 200);
    let came = late.until("the third", |seen| seen.iter().any(|one| one.body == "three")).await;
    assert!(came.iter().all(|one| one.body != "two"));
    assert!(came.iter().filter(|one| one.body == "one").count() > 1, "what is whole is delivered");
    eventually("the gap is listed", || async {
        let gaps = second.admin("/api/v1/deliveries/lost").await.text();
        gaps.contains(".2\",\"last\":2")
    })
    .await;
}
