//! `resync-destination` on a disk of which one step fails, or that is full: it says what, no file is torn or lost, and the next run ends in step.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use fastrand::Rng;
use resync_harness::{Disk, Event, Kind, Step, Taken, deaths_wanted, drawn, failures, seed};
use rustix::io::Errno;

use crate::support::files;
use crate::support::published::Published;

/// How many steps of each kind fail; `RESYNC_TEST_DEATHS` asks for more.
const OF_EACH: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn rs202_a_step_that_fails_is_told_and_the_next_sync_ends_in_step() {
    survive_failures(&["--delete"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rs202_so_it_is_with_a_sync_that_reads_the_changes() {
    survive_failures(&["--delete", "--incremental"]).await;
}

async fn survive_failures(flags: &[&str]) {
    let mut source = Published::start(None).await;
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("copy");
    std::fs::create_dir(&into).unwrap();
    let (url, mut rng) = (source.url().to_owned(), Rng::with_seed(seed()));
    let disk = Disk::under(&into, rng.u64(..));
    disk.sync_at_once();
    let sync = [&["sync", &url, into.to_str().unwrap(), "--list"][..], flags].concat();
    let run = |step: Step| {
        disk.meet(step);
        let mut command = Command::new(env!("CARGO_BIN_EXE_resync-destination"));
        command.args(&sync).envs(disk.environment()).output().unwrap()
    };
    let succeeds = |context: &str| {
        let output = run(Step::none(Kind::ALL));
        assert!(output.status.success(), "{context}: {}", said(&output));
        disk.taken()
    };
    succeeds("first");
    source.change();
    let taken = succeeds("second");
    let mut tally: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (kinds, event) in failures() {
        for number in drawn(&taken, kinds, deaths_wanted(OF_EACH), &mut rng) {
            source.change();
            let output = run(Step { number, event, ..Step::none(kinds) });
            // Runs differ in how many steps they take.
            let taken = disk.taken();
            let Some(step) = taken.iter().find(|step| step.is_met) else { continue };
            let tally = tally.entry(format!("{:?} {event:?}", step.kind)).or_default();
            tally[usize::from(!output.status.success())] += 1;
            is_told(&output, step, event, &into, &url);
            source.assert_whole(&into);
            if output.status.success() {
                assert_eq!(
                    files(&into),
                    source.files(),
                    "{event:?} at {step:?} was no failure: {}",
                    said(&output)
                );
            }
            succeeds(&format!("after {event:?} at {step:?}"));
            assert_eq!(files(&into), source.files(), "after {event:?} at {step:?}");
        }
    }
    println!("borne and told: {tally:#?}");
    let told: usize = tally.values().map(|[_, told]| told).sum();
    assert!(told > 0, "{tally:?}");
}

#[test]
fn a_folder_that_the_disk_cannot_make_or_read_is_a_failure_and_no_mistake_in_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::under(folder.path(), 1);
    let (nobody, into) = ("http://127.0.0.1:1/", folder.path().join("copy"));
    let into = into.to_str().unwrap();
    let ends = |arguments: &[&str], kinds, only| {
        disk.meet(Step { kinds, only, number: 1, event: Event::Fails(Errno::IO) });
        let mut command = Command::new(env!("CARGO_BIN_EXE_resync-destination"));
        let output = command.args(arguments).envs(disk.environment()).output().unwrap();
        assert!(disk.met().is_some() && said(&output).contains("(os error 5)"), "{}", said(&output));
        output.status.code()
    };
    let listen = ["listen", nobody, "--into", into, "--listen", "127.0.0.1:0"];
    assert_eq!(ends(&listen, &[Kind::Mkdir], ""), Some(1));
    assert_eq!(ends(&listen, &[Kind::Mkdir], "copy/"), Some(1));
    let read: &[Kind] = &[Kind::Read];
    std::fs::create_dir_all(folder.path().join("state")).unwrap();
    std::fs::write(folder.path().join("state/state.json"), "{}").unwrap();
    let state = folder.path().join("state");
    assert_eq!(ends(&["status", "--state", state.to_str().unwrap()], read, ""), Some(1));
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// A failure says by which code, why, and where: the file, its folder, or the resource.
fn is_told(output: &Output, step: &Taken, event: Event, into: &Path, url: &str) {
    let (Event::Fails(error) | Event::FailsFrom(error)) = event else { unreachable!() };
    if output.status.success() {
        return;
    }
    let said = said(output);
    let context = format!("{event:?} at {step:?}\n{said}");
    assert_eq!(output.status.code(), Some(1), "{context}");
    let reason = io::Error::from(error).to_string();
    assert!(said.contains(reason.split(" (").next().unwrap()), "{context}");
    assert!(
        said.contains(into.to_str().unwrap()) || said.contains(&format!("{url}new")) || said.contains(url),
        "{context}"
    );
}
