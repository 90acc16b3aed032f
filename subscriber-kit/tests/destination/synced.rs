//! What `resync-destination` says is done was synced before: no power cut takes it back.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::pin::pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resync_harness::{Disk, Kind, Step, free_address, happens_within};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::power_cuts::Hub;
use crate::support::{PATIENCE, ok, serve};

/// How often it is looked at, and for how long an answer that is wrong has time to come.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_notification_is_acknowledged_only_when_the_journal_is_synced() {
    let hub = Hub::start().await;
    let links = Arc::new(Mutex::new(String::new()));
    let shown = Arc::clone(&links);
    let topic = format!("http://{}/news", serve(move |_| ok(&shown.lock().unwrap(), b"news")).await);
    *links.lock().unwrap() = format!("Link: <{}>; rel=\"hub\", <{topic}>; rel=\"self\"\r\n", hub.url());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (state, address) = (data.join("state"), free_address().to_string());
    let disk = Disk::under(&data, 0);
    disk.meet(Step::none(Kind::CHANGES));
    let mut subscribe = Command::new(env!("CARGO_BIN_EXE_resync-destination"));
    subscribe.args(["subscribe", &topic, "--state", state.to_str().unwrap(), "--listen", &address]);
    subscribe.kill_on_drop(true).envs(disk.environment()).stdout(Stdio::piped());
    let mut child = subscribe.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let subscribed =
        async { while !lines.next_line().await.unwrap().unwrap().starts_with("subscribed to") {} };
    tokio::time::timeout(PATIENCE, subscribed).await.expect("it subscribes in time");
    assert!(
        happens_within(PATIENCE, || hub.is_taken(&topic, 1, "news")).await,
        "the hub has its secret by then"
    );
    disk.hold(true);
    let mut answer = pin!(hub.is_taken(&topic, 2, "more"));
    loop {
        tokio::select! {
            biased;
            _ = &mut answer => panic!("it is acknowledged, and nothing was synced"),
            () = tokio::time::sleep(PAUSE) => {}
        }
        if disk.is_waited_for() {
            break;
        }
    }
    assert!(tokio::time::timeout(PAUSE, &mut answer).await.is_err(), "the journal is not synced yet");
    disk.hold(false);
    assert!(answer.await, "now it is");
    let taken = disk.taken();
    let of_journal = taken.iter().filter(|step| step.path.ends_with("inbox.journal")).map(|step| step.kind);
    let written: Vec<_> = of_journal.skip_while(|kind| *kind != Kind::Write).take(4).collect();
    assert_eq!(written, [Kind::Write, Kind::Sync].repeat(2), "{taken:#?}");
}
