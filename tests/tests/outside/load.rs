//! The measuring tool as a process: each measurement that is no scenario, in a small size.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use resync_harness::{Process, binary, eventually};
use resync_load::pointers;
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;
use walkdir::WalkDir;

#[tokio::test]
async fn a_measurement_that_is_told_to_stop_takes_its_hub_along() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let keep = folder.path().join("keep");
        let mut command = Command::new(binary("resync-load"));
        command.args(["scale", "--keep"]).arg(&keep).current_dir(folder.path());
        let mut tool = Process::run("resync-load", &mut command);
        let lock = keep.join("data/lock");
        eventually("a hub runs", || async { is_held(&lock) }).await;
        tool.signal(signal);
        assert!(!tool.wait().await.success());
        eventually("the hub has ended", || async { !is_held(&lock) }).await;
    }
}

/// What a measurement says.
struct Told(Value);

impl Told {
    async fn by(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary("resync-load"));
        let output = command.args(arguments).arg("--json").current_dir(folder.path()).output().await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "{arguments:?} leaves something behind");
        Self(serde_json::from_slice(&output.stdout).unwrap())
    }

    fn number(&self, pointer: &str) -> f64 {
        let found = self.0.pointer(pointer).and_then(Value::as_f64);
        found.unwrap_or_else(|| panic!("{pointer} is not in {}", self.0))
    }

    fn count(&self, pointer: &str) -> u64 {
        let found = self.0.pointer(pointer).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("{pointer} is not in {}", self.0))
    }
}

/// Each figure of a measurement is where the table looks for it.
fn assert_told(name: &str, told: &Told) {
    let (there, missing): (Vec<_>, Vec<_>) =
        pointers(name).partition(|pointer| told.0.pointer(pointer).is_some_and(Value::is_number));
    assert!(!there.is_empty() && missing.is_empty(), "figures of {name} that it does not tell: {missing:?}");
}

#[tokio::test]
async fn the_bounds_of_the_machine_are_measured() {
    let told = Told::by(&["limit", "--requests", "200", "--hosts", "5", "--at-once", "8"]).await;
    assert!(told.number("/bare_client/per_second") > 0.0 && told.number("/durable_appends/per_second") > 0.0);
}

#[tokio::test]
async fn a_fan_out_is_measured_and_counted() {
    let small =
        ["--subscribers", "20", "--hosts", "5", "--notifications", "20", "--at-once", "8", "--rounds", "1"];
    let told = Told::by(&[&["fanout"][..], &small].concat()).await;
    assert!(
        told.number("/ratio") > 0.0
            && told.count("/bare_client/at_once") == 8
            && told.number("/hub/per_second") > 0.0
            && told.number("/hub_cpu_per_delivery") > 0.0
    );
    let ratio = told.number("/hub_cpu_per_delivery") / told.number("/bare_cpu_per_request");
    assert!(ratio > 0.0 && (told.number("/cpu_ratio") - ratio).abs() < 1e-9);
    assert!(told.count("/copies/wrong") == 0 && told.count("/hub/count") == 400);
    assert_eq!(told.count("/copies/checked"), 420, "with those that make the connections");
    for name in ["fanout", "burst"] {
        assert_told(name, &told);
    }
}

#[tokio::test]
async fn publishers_and_the_first_delivery_are_timed() {
    let small = ["--publishers", "1,2,3", "--seconds", "1", "--rounds", "1", "--timed", "20"];
    let told = Told::by(&[&["publish"][..], &small].concat()).await;
    assert!(
        told.number("/publishers/0/appends/per_second") > 0.0 && told.count("/publishers/2/publishers") == 3
    );
    let alone = told.number("/publishers/0/appends/per_second")
        / told.number("/publishers/0/bare_appends/per_second");
    assert!((told.number("/publishers/0/of_bare_appends") - alone).abs() < 1e-9);
    let share =
        told.number("/publishers/0/appends/per_second") / told.number("/publishers/0/bare_server/per_second");
    assert!((told.number("/publishers/0/of_bare_server") - share).abs() < 1e-9);
    assert!(told.count("/copies/wrong") == 0 && told.count("/copies/checked") == 21);
    assert_told("publish", &told);
    let (half, most) = (told.number("/first_delivery/p50"), told.number("/first_delivery/max"));
    assert!(half > 0.0 && half <= most);
}

#[tokio::test]
async fn healthy_subscribers_are_measured_beside_sick_ones() {
    let small =
        ["--subscribers", "40", "--hosts", "10", "--sick-one-in", "5", "--burst", "5", "--rate", "10"];
    let told = Told::by(&[&["isolation", "--seconds", "1", "--rounds", "1"][..], &small].concat()).await;
    assert!(
        told.count("/sick_hosts") == 2
            && told.number("/throughput_ratio") > 0.0
            && told.number("/p99_ratio") > 0.0
    );
    assert_eq!((told.count("/copies/wrong"), told.count("/copies/checked")), (0, 40 * 16 + 40 + 24 * 15));
    assert_told("isolation", &told);
    assert!(told.number("/well/p50") > 0.0 && told.number("/sick/p50") <= told.number("/sick/p99"));
}

#[tokio::test]
async fn growth_is_measured_in_rounds_that_all_begin_where_everybody_has_subscribed() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().to_str().unwrap();
    let small =
        ["scale", "--topics", "3", "--subscribers", "10", "--small", "20", "--rounds", "2", "--keep", kept];
    let told = Told::by(&small).await;
    assert!(told.count("/subscribing/count") == 30 && told.count("/copies/wrong") == 0);
    assert_eq!(told.count("/copies/checked"), 60, "in two rounds");
    for round in ["/rounds/0", "/rounds/1"] {
        assert_eq!(told.count(&format!("{round}/large/fan_out/count")), 30);
        assert_eq!(told.count(&format!("{round}/before/fan_out/count")), 4_000);
        let ratio = |name: &str| told.number(&format!("{round}/{name}"));
        assert!(told.number("/worst_cpu_ratio") >= ratio("cpu_ratio") && ratio("time_ratio") > 0.0);
    }
    for name in ["million", "topics"] {
        assert_told(name, &told);
    }

    let before = content(folder.path());
    let again = Told::by(&small).await;
    assert!(again.0["subscribing"].is_null() && again.count("/copies/wrong") == 0);
    assert!(content(folder.path()) == before, "the rounds have changed what is kept, or left something");
}

/// Every file below a folder.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files =
        WalkDir::new(folder).into_iter().map(Result::unwrap).filter(|entry| entry.file_type().is_file());
    files.map(|file| (file.path().to_owned(), fs::read(file.path()).unwrap())).collect()
}

#[tokio::test]
async fn each_of_the_operators_pages_is_timed_beside_one_that_reads_nothing() {
    let told = Told::by(&["pages", "--topics", "30", "--reads", "3"]).await;
    let pages = told.0["pages"].as_array().unwrap();
    assert_eq!(pages.len(), 7, "{}", told.0);
    let greatest = pages.iter().map(|page| page["p50"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(greatest > 0.0 && (told.number("/slowest") - greatest).abs() < 1e-9);
    let ratio = greatest / told.number("/login/p50");
    assert!((told.number("/ratio") - ratio).abs() < 1e-9);
    assert_told("pages", &told);
}

#[tokio::test]
async fn a_host_that_comes_back_gets_everything_once_and_no_more_at_once_than_is_allowed() {
    let told = Told::by(&["recovery", "--subscriptions", "60", "--per-host", "4", "--away", "1"]).await;
    assert!(told.count("/copies/wrong") == 0 && told.count("/deliveries") == 60);
    assert_told("recovery", &told);
    assert!((1..=4).contains(&told.count("/most_at_once")) && told.number("/until_last") > 0.0);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn several_hubs_over_postgresql_are_measured_each_beside_its_bound() {
    // Where there is none, it says so.
    if resync_harness::Postgres::shared().is_none() {
        return;
    }
    let measured = ["posts", "fanout", "hop", "takeover", "failover", "wal", "million"];
    let small = ["--seconds", "1", "--subscribers", "200", "--subscriptions", "300"];
    let told = Told::by(&[&["cluster"][..], &measured, &small].concat()).await;
    for name in measured {
        assert_told(&format!("cluster-{name}"), &told);
    }
    let ratio = told.number("/fanout/postgres") / told.number("/fanout/embedded");
    assert!((told.number("/fanout/ratio") - ratio).abs() < 1e-9 || told.count("/fanout/rounds") > 1);
    for measurement in ["fanout", "hop", "wal"] {
        assert_eq!(told.count(&format!("/{measurement}/copies/wrong")), 0, "{measurement}");
    }
    assert!(told.number("/failover/posts") > 0.0 && told.number("/failover/inserts") > 0.0);
    assert_eq!((told.count("/million/subscriptions"), told.count("/wal/deliveries")), (300, 200));
}

/// No attackers at all.
const NOBODY: [&str; 9] = [
    "--slow=0",
    "--flood=0",
    "--links=0",
    "--bodies=0",
    "--late=0",
    "--refusing=0",
    "--waiting=0",
    "--superseding=0",
    "--queries=0",
];

#[tokio::test]
async fn honest_ones_lose_nothing_under_a_small_attack_of_every_kind() {
    let honest = [
        "attack",
        "--rate=20",
        "--seconds=5",
        "--rounds=1",
        "--subscribers=10",
        "--ratio=1000",
        "--answered-within=60",
    ];
    let attackers = [
        "--slow=50",
        "--flood=100",
        "--links=3",
        "--bodies=1",
        "--late=4",
        "--refusing=1",
        "--waiting=2",
        "--superseding=2",
        "--queries=40",
    ];
    let told = Told::by(&[&honest[..], &attackers].concat()).await;
    for phase in ["quiet", "attacked"] {
        assert_eq!(told.count(&format!("/posts/{phase}/done")), 100);
        assert_eq!(told.count(&format!("/deliveries/{phase}/done")), 100 * 18);
    }
    assert!(["failed", "lost", "kept_out"].iter().all(|what| told.count(&format!("/{what}")) == 0));
    assert!((48..=50).contains(&told.count("/sieged/slow_open")));
    assert_told("attack", &told);
}

#[tokio::test]
async fn an_attack_that_honest_ones_notice_too_much_ends_with_what_it_was_and_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let small = [
        "attack",
        "--rate=20",
        "--seconds=1",
        "--rounds=1",
        "--subscribers=2",
        "--ratio=0",
        "--answered-within=60",
        "--json",
    ];
    let mut command = Command::new(binary("resync-load"));
    let output = command.args(small).args(NOBODY).current_dir(folder.path()).output();
    let output = output.await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = Told(serde_json::from_slice(&output.stdout).unwrap());
    assert!(told.number("/posts/p99_ratio") > 0.0 && told.number("/deliveries/p99_ratio") > 0.0);
    let said = String::from_utf8(output.stderr).unwrap();
    let complaints: Vec<_> = said.trim_end().split("; ").collect();
    let [posts, deliveries] = complaints[..] else { panic!("{said}") };
    assert!(posts.starts_with("resync-load: the p99 of posts is "), "{said}");
    assert!(deliveries.starts_with("the p99 of deliveries is "), "{said}");
    assert!(
        complaints.iter().all(|complaint| complaint.ends_with(" times what it was: at most 0")),
        "{said}"
    );
}

/// Whether a hub has the data folder with this lock.
fn is_held(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|lock| lock.try_lock().is_err())
}
