//! A collection as it was on each of fifty days: a thousand random changes at a Source that keeps versions, then a copy of each day
//! by `resync-destination sync --at`, which has to be the same as the one that `cp` made on that day.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use resync_core::datetime::DateTime;
use resync_harness::{Clock, PATIENCE, Process, binary, free_address, seed, tree};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

const DAY: i64 = 86_400;
const DAYS: i64 = 50;
/// From so many days there is a Resource List; before, today's is walked backwards.
const KEPT: usize = 5;
/// How many changes there are in all.
const CHANGES: usize = 1_000;
/// What may be there: some are files in folders, and one is a file or a folder.
const NAMES: usize = 60;

struct Collection {
    folder: PathBuf,
    rng: Rng,
}

impl Collection {
    /// One file is written or removed.
    fn change(&mut self) {
        let name = match self.rng.usize(0..NAMES) {
            0 => "both".to_owned(),
            1 => "both/inside".to_owned(),
            number if number.is_multiple_of(7) => format!("deep/er/{number} gr\u{fc}\u{df}e.txt"),
            number => format!("{}/{number}.txt", number % 5),
        };
        let path = self.folder.join(name);
        if path.is_file() && self.rng.u8(0..4) == 0 {
            return fs::remove_file(path).unwrap();
        }
        let above = path.parent().unwrap();
        if above.is_file() {
            fs::remove_file(above).unwrap();
        }
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        }
        fs::create_dir_all(above).unwrap();
        let length = self.rng.usize(0..3_000);
        let content: String = std::iter::repeat_with(|| self.rng.alphanumeric()).take(length).collect();
        fs::write(path, content).unwrap();
    }
}

/// By the clock of the Source and the Destination, `days` from now.
fn seconds(days: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + days * DAY
}

async fn run(program: &str, arguments: &[&str], clock: &Clock) -> Output {
    let mut command = Command::new(binary(program));
    command.args(arguments).envs(clock.environment()).kill_on_drop(true);
    tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends").unwrap()
}

async fn expect_done(program: &str, arguments: &[&str], clock: &Clock) {
    let output = run(program, arguments, clock).await;
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-R").args([from, to]).status().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn mem060_mem062_a_copy_of_each_of_fifty_days_is_what_cp_made_on_that_day() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let address = free_address();
    let (url, listen) = (format!("http://{address}/"), address.to_string());
    fs::create_dir_all(at("collection")).unwrap();
    fs::create_dir(at("days")).unwrap();
    let settings = format!(
        "out = \"site\"\nbase_url = \"{url}\"\ndirectory = \"collection\"\n[versions]\nkeep = \"always\"\n\
         [resource_list]\nkeep = {KEPT}\n"
    );
    fs::write(at("source.toml"), settings).unwrap();
    let (settings, clock) = (at("source.toml").display().to_string(), Clock::new(folder.path()));
    let mut collection = Collection { folder: at("collection"), rng: Rng::with_seed(seed()) };
    let mut noons = Vec::new();
    for day in 0..DAYS {
        for _ in 0..CHANGES / usize::try_from(DAYS).unwrap() {
            collection.change();
        }
        clock.jump(day * DAY);
        expect_done("resync-source", &["build", "--config", &settings], &clock).await;
        noons.push(DateTime::from_unix_millis((seconds(day) + DAY / 2) * 1_000).unwrap());
        copy(&collection.folder, &at(&format!("days/{day}")));
    }
    clock.jump(DAYS * DAY);
    let site = at("site").display().to_string();
    let environment: HashMap<_, _> = clock.environment().into();
    let mut serving =
        Process::start("resync-source", &["serve", "--out", &site, "--listen", &listen], &environment);
    serving.line("listening on").await;
    for (day, noon) in noons.iter().enumerate() {
        let (was, is) = (at(&format!("days/{day}")), at(&format!("copies/{day}")));
        let (into, noon) = (is.display().to_string(), noon.to_string());
        expect_done("resync-destination", &["sync", &url, &into, "--at", &noon], &clock).await;
        let different = tree::differences(&was, &is).unwrap();
        assert!(different.is_empty(), "day {day}, {noon}: {different:?}");
        if day % 10 == 9 {
            let output =
                run("resync-destination", &["audit", &url, &into, "--at", &noon, "--json"], &clock).await;
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            for found in ["missing", "different", "failed", "extra"] {
                assert_eq!(report[found], 0, "day {day}: {report}");
            }
            // Of what only later changes show, no list tells the hash.
            let is_proven = day + KEPT >= noons.len();
            assert!(!is_proven || report["verdict"] == "in-step", "day {day}: {report}");
        }
    }
    let before = DateTime::from_unix_millis(seconds(-1) * 1_000).unwrap().to_string();
    let into = at("copies/before").display().to_string();
    let output = run("resync-destination", &["sync", &url, &into, "--at", &before], &clock).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the oldest moment that can be copied is "), "{said}");
    assert!(tree::contents(Path::new(&into)).unwrap().is_empty());
}
