//! The laboratory itself: it names the faults of a hub that is wrong on purpose, and finds none in ours whatever happens to it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod browser;
mod page;
mod wrong_hub;

use std::io::{BufRead as _, BufReader, Lines};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use resync_harness::{binary, eventually};
use resync_load::{Failure, Live, Options, RunResult, Scenario, run};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;

use wrong_hub::{Vice, WrongHub};

/// 100 notifications a second for three seconds to twenty subscribers.
const SHORT: &str = r#"
about = "short"
duration = "3s"
patience = "1500ms"
[audience]
topics = 2
subscribers = 20
hosts = 10
[publish]
pattern = "steady"
rate = 100
payload = "200 B"
"#;

async fn result(text: &str, hub: Option<String>) -> RunResult {
    let result = try_result(text, hub).await.unwrap();
    println!("{result}");
    result
}

async fn try_result(text: &str, hub: Option<String>) -> Result<RunResult, Failure> {
    let scenario = Scenario::parse("of a test", text).unwrap();
    let folder = tempdir().unwrap();
    let options = Options { hub, hub_pid: None, bound: false, live: Live::Silent };
    run(&scenario, &options, folder.path()).await
}

/// The names of the faults that are found in a hub with this vice, and how often.
async fn found(vice: Vice) -> (Vec<(String, u64)>, RunResult) {
    let hub = WrongHub::start(vice).await;
    let result = result(SHORT, Some(hub.url())).await;
    let judgement = &result.rungs[0].judgement;
    let found = judgement.findings.iter().map(|finding| (finding.name.clone(), finding.count)).collect();
    (found, result)
}

fn count(found: &[(String, u64)], name: &str) -> u64 {
    found.iter().find(|(of, _)| of == name).map_or(0, |(_, count)| *count)
}

/// What a slow hub takes for a delivery.
const SLOW: Duration = Duration::from_millis(5);
/// 300 notifications to ten subscribers each.
const DELIVERIES: u64 = 3_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_keeps_its_word_is_not_blamed() {
    let (found, result) = found(Vice::None).await;
    assert!(found.is_empty(), "{found:?}");
    assert!(result.passed);
    let rung = &result.rungs[0];
    assert_eq!((rung.published.acknowledged, rung.judgement.delivered), (300, DELIVERIES));
    assert_eq!(rung.delivered.latency.count, DELIVERIES, "each has its latency");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_of_what_a_hub_can_do_is_asked_of_it() {
    let hub = WrongHub::start(Vice::IsSlow(SLOW)).await;
    let result = result(&SHORT.replace("rate = 100", "share = 0.4"), Some(hub.url())).await;
    let rung = &result.rungs[0];
    let limit = rung.delivered.limit_per_second.unwrap();
    assert!(
        (10.0..=20.0 / SLOW.as_secs_f64()).contains(&limit),
        "20 subscribers, one after the other: {limit}"
    );
    let (asked, delivered) = (3.0 * 0.4 * limit, f64::from(u32::try_from(rung.judgement.delivered).unwrap()));
    // Deliveries of a topic come by the ten.
    assert!((delivered - asked).abs() <= 20.0, "{delivered} of {asked}");
    assert!(rung.judgement.findings.is_empty(), "nothing of the burst before: {:?}", rung.judgement);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_share_is_asked_of_a_hub_of_which_nobody_can_say_what_it_can_do() {
    let share = SHORT.replace("rate = 100", "share = 0.4");
    let pinged = share.replace("[publish]", "[publish]\nby = \"ping\"");
    let few = share.replace("share = 0.4", "share = 0.01").replace("topics = 2", "topics = 1");
    let dropping = Vice::DropsOneIn(1_000);
    for (text, vice, why) in [
        (&pinged, Vice::None, "write publish.rate instead of publish.share"),
        (&share, dropping, "it made mistakes: "),
        (&few, Vice::IsSlow(SLOW), "too few are due in the scenario's time"),
    ] {
        let hub = WrongHub::start(vice).await;
        let error = try_result(text, Some(hub.url())).await.unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_stays_with_a_hub_that_runs_on() {
    let hub = WrongHub::start(Vice::None).await;
    let moving = format!("{SHORT}[churn]\ncomers = 5\nstay = \"1h\"\n");
    let result = result(&moving, Some(hub.url())).await;
    assert!(
        result.rungs[0].judgement.owed > DELIVERIES,
        "some came while it ran: {:?}",
        result.rungs[0].judgement
    );
    eventually("the last one has left", async || hub.subscribed() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_delivery_in_a_thousand_that_is_dropped_is_found() {
    let (found, result) = found(Vice::DropsOneIn(1_000)).await;
    assert_eq!(count(&found, "dropped"), DELIVERIES / 1_000, "{found:?}");
    assert_eq!(count(&found, "forgotten") + count(&found, "duplicated") + count(&found, "reordered"), 0);
    assert!(!result.passed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_delivery_in_a_thousand_that_comes_twice_is_found() {
    let (found, result) = found(Vice::DuplicatesOneIn(1_000)).await;
    assert_eq!(found, [("duplicated".to_owned(), DELIVERIES / 1_000)]);
    assert!(!result.passed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_in_the_wrong_order_are_found_and_so_are_the_gaps_that_they_leave() {
    let (found, result) = found(Vice::ReordersOneIn(500)).await;
    let reordered = count(&found, "reordered");
    // The last one of a topic has no next one to be behind.
    assert!((1..=DELIVERIES / 500).contains(&reordered), "{found:?}");
    assert_eq!(found, [("reordered".to_owned(), reordered), ("gaps".to_owned(), reordered)]);
    assert!(!result.passed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_lacks_a_byte_is_found() {
    let (found, result) = found(Vice::ShortensOneIn(1_000)).await;
    assert_eq!(found, [("altered".to_owned(), DELIVERIES / 1_000)]);
    let examples = &result.rungs[0].judgement.findings[0].examples;
    assert!(examples.iter().all(|example| example.ends_with(": 199 bytes instead of 200")), "{examples:?}");
    assert!(!result.passed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_copy_in_a_thousand_that_is_not_as_it_was_posted_is_found_and_told_apart() {
    for (vice, copies, what) in [
        (Vice::AltersOneIn(1_000), 3, "a body of 200 bytes that nobody published"),
        (Vice::SignsOneInWrongly(1_000), 3, "a wrong signature"),
        (Vice::SignsWrongly, DELIVERIES, "a wrong signature"),
        (Vice::NeverSigns, DELIVERIES, "no signature"),
        (Vice::LinksOneInWrongly(1_000), 3, "no links to the hub and to the topic, or others beside them"),
        (Vice::TypesOneInWrongly(1_000), 3, "another content type than was published"),
        (Vice::MisdirectsOneIn(1_000), 3, "it was sent to another host than that of the callback"),
    ] {
        let (found, result) = found(vice).await;
        assert_eq!(count(&found, "altered"), copies, "{vice:?}: {found:?}");
        let findings = &result.rungs[0].judgement.findings;
        let altered = findings.iter().find(|finding| finding.name == "altered").unwrap();
        assert!(altered.examples.iter().all(|example| example.contains(what)), "{:?}", altered.examples);
        assert!(!altered.examples.is_empty() && !result.passed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_that_were_acknowledged_before_they_were_stored_are_found_when_the_hub_dies() {
    let (found, result) = found(Vice::ForgetsWhenItDiesAfter(150)).await;
    let forgotten = count(&found, "forgotten");
    assert!((1..100).contains(&forgotten), "a few, and not all: {found:?}");
    assert_eq!(
        count(&found, "dropped") + count(&found, "duplicated") + count(&found, "reordered"),
        0,
        "{found:?}"
    );
    let published = &result.rungs[0].published;
    assert!(published.unanswered > 0, "while it was down: {published:?}");
    assert!(!result.passed);
}

/// What happens to our hub in one short run, one after the other.
const FATE: &str = r#"
about = "everything that needs no compiler"
seed = 4711
duration = "9s"
patience = "20s"
[audience]
topics = 3
subscribers = 30
hosts = 20
[publish]
pattern = "poisson"
rate = 20
payload = ["200 B", "4 KiB"]
[churn]
renewals = 5
comers = 5
stay = "3s"
[[receivers]]
share = 0.1
behaviour = "slow"
time = "20ms"
[[receivers]]
share = 0.05
behaviour = "redirect"
[[receivers]]
share = 0.05
behaviour = "5xx"
fraction = 0.03
[[fault]]
kind = "kill"
times = 4
between = ["500ms", "3s"]
[[fault]]
kind = "pause"
at = "4s"
for = "300ms"
[[fault]]
kind = "full-disk"
at = "5s"
for = "500ms"
[[fault]]
kind = "poison"
at = "6s"
[[fault]]
kind = "mass-renewal"
at = "6500ms"
[[fault]]
kind = "outage"
at = "7s"
for = "800ms"
share = 0.3
[hub]
"delivery.schedule" = ["200ms", "500ms", "1s", "1s", "2s", "2s", "5s"]
"delivery.schedule_4xx" = ["100ms"]
"delivery.breaker_open" = "500ms"
"delivery.breaker_open_max" = "1s"
"#;

fn assert_unharmed(result: &RunResult, faults: usize) {
    let rung = &result.rungs[0];
    assert!(result.passed, "{result}");
    assert_eq!(rung.faults.len(), faults);
    assert!(rung.judgement.owed > 500 && rung.judgement.findings.is_empty(), "{:?}", rung.judgement);
    let resources = rung.resources.unwrap();
    assert!(resources.cpu_per_delivery > 0.0 && resources.memory_most > 1 << 20, "{resources:?}");
    assert!(rung.series.len() > 5 && rung.series.iter().any(|second| second.hub_store > 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_hub_dies_sleeps_and_runs_out_of_disk_and_nothing_is_lost() {
    let result = result(FATE, None).await;
    assert_unharmed(&result, 9);
    let rung = &result.rungs[0];
    let after: Vec<_> = rung.faults.iter().map(|fault| fault.taken_again_after).collect();
    assert!(after.iter().flatten().count() > 4 && rung.taken_again_after.is_some(), "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_hub_has_a_failing_disk_a_jumping_clock_and_a_resolver_in_trouble_and_nothing_is_lost() {
    let faults = r#"
[[fault]]
kind = "clock-jump"
at = "1s"
for = "500ms"
by = "1h"
[[fault]]
kind = "clock-jump"
at = "2s"
for = "500ms"
by = "-1h"
[[fault]]
kind = "failing-writes"
at = "3s"
for = "500ms"
share = 0.6
[[fault]]
kind = "outage"
at = ["4s", "6s"]
for = "300ms"
share = 1.0
[[fault]]
kind = "resolver-fails"
at = "4300ms"
for = "1500ms"
[[fault]]
kind = "resolver-silent"
at = "6300ms"
for = "1500ms"
[hub]
"#;
    let named = FATE.replace("hosts = 20", "hosts = 20\nnamed = true");
    let (before, _) = named.split_once("[[fault]]").unwrap();
    let (_, keys) = named.split_once("[hub]\n").unwrap();
    assert_unharmed(&result(&format!("{before}{faults}{keys}"), None).await, 7);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_of_our_hubs_database_dies_and_nothing_is_lost() {
    // Where there is none, it says so.
    if resync_harness::Postgres::shared().is_none() {
        return;
    }
    let fault = "[[fault]]\nkind = \"failover\"\nat = \"2s\"\nfor = \"500ms\"\n";
    let result = result(&(SHORT.replace("\"3s\"", "\"12s\"") + fault), None).await;
    let rung = &result.rungs[0];
    assert!(rung.judgement.findings.is_empty(), "{:?}", rung.judgement);
    assert_eq!((rung.faults.len(), &rung.faults[0].impossible), (1, &None));
    assert!(rung.published.acknowledged > 200 && rung.taken_again_after.is_some(), "{result}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_pinged_owes_the_newest_version() {
    let pinged =
        SHORT.replace("pattern = \"steady\"\nrate = 100", "by = \"ping\"\npattern = \"steady\"\nrate = 20");
    let result = result(&pinged, None).await;
    assert!(result.passed, "{result}");
    assert_eq!(result.rungs[0].judgement.owed, 20, "one for each subscriber");
}

#[test]
fn a_process_that_is_not_ours_cannot_be_killed_and_the_verdict_says_so() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let result = runtime.block_on(async {
        let hub = WrongHub::start(Vice::None).await;
        let text = format!("{}\n[[fault]]\nkind = \"kill\"\nat = \"100ms\"\n", SHORT.replace("3s", "1s"));
        result(&text, Some(hub.url())).await
    });
    assert!(!result.passed && result.rungs[0].faults[0].impossible.is_some());
    let failed: Vec<_> = result.rungs[0].verdicts.iter().filter(|verdict| !verdict.holds).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_that_nobody_notices_was_not_made_and_the_verdict_says_so() {
    let faults = r#"
[[fault]]
kind = "full-disk"
at = "1500ms"
for = "200ms"
[[fault]]
kind = "poison"
at = "2s"
"#;
    let result = result(&format!("{}{faults}", SHORT.replace("3s", "1s")), None).await;
    let said: Vec<_> = result.rungs[0].faults.iter().map(|fault| fault.impossible.as_deref()).collect();
    let expected =
        [Some("nobody noticed: no post failed meanwhile"), Some("there was no post after its moment")];
    assert_eq!(said, expected);
    assert!(!result.passed);
}

#[test]
fn the_command_runs_a_file_writes_the_result_and_fails_when_an_expectation_does() {
    let folder = tempdir().unwrap();
    let (scenario, out) = (folder.path().join("mine.toml"), folder.path().join("result.json"));
    let expect =
        "[expect]\ndelivery_p50 = \"1us\"\nratio_to_bound = 0.1\nmemory_slope = \"1 GiB\"\nstore = \"1 GiB\"";
    std::fs::write(&scenario, format!("{}\n{expect}\n", SHORT.replace("3s", "1s"))).unwrap();
    let output = Command::new(binary("resync-load"))
        .args(["run", "mine.toml", "--no-bound", "--out", "result.json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("NOT  delivery latency, p50") && said.contains("ok   losses: 0"), "{said}");
    assert!(said.contains("NOT  ratio to the bound: not measured (≥ 0.10)"), "{said}");
    assert!(said.contains("NOT  growth of memory an hour: not measured (≤ "), "{said}");
    assert!(said.contains("ok   the store at most: "), "{said}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("/s"), "a line a second");
    let result: RunResult = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    assert!(!result.passed && result.scenario == "mine" && result.machine.cores > 0);
}

#[test]
fn a_measurement_becomes_a_line_of_the_table_and_a_mistaken_name_is_told_before_anything_is_measured() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("page.md"), "<!-- figures -->\nold\n<!-- /figures -->\n").unwrap();
    let figures = |arguments: &[&str]| {
        let mut command = Command::new(binary("resync-load"));
        command.args(["figures", "--into", "figures", "--mix", "--document", "page.md"]).args(arguments);
        command.current_dir(folder.path()).output().unwrap()
    };
    let output = figures(&["pause", "sleep"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("no measurement is called sleep; there are limit, ") && !said.contains("run pause")
    );
    assert!(!folder.path().join("figures").exists());

    let output = figures(&["pause"]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(folder.path().join("page.md")).unwrap();
    assert!(
        page.contains("| **`resync-load run pause`** | | |\n| stopped and continued: lost | 0 | ≤ 0 |\n"),
        "{page}"
    );
    assert!(page.contains("| stopped and continued: posts taken again after | 0."), "{page}");
    assert!(
        page.contains("all that the scenario expects | yes | yes |") && !page.contains("\nold\n"),
        "{page}"
    );
    let run = std::fs::read(folder.path().join("figures/runs/pause.json")).unwrap();
    assert_eq!(serde_json::from_slice::<RunResult>(&run).unwrap().scenario, "pause");

    // Its script finds no shell here.
    let output = Command::new(binary("resync-load"))
        .args(["figures", "receiver", "--into", "figures", "--mix", "--document", "page.md"])
        .current_dir(folder.path())
        .env("PATH", "")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().ends_with("resync-load: not measured: receiver\n"));
    let kept = std::fs::read_to_string(folder.path().join("page.md")).unwrap();
    assert!(kept == page, "a document keeps its table when something could not be measured: {kept}");
}

/// A run in this folder whose hub has started: what else it says, and where the hub is.
fn started(folder: &Path) -> (Child, Lines<BufReader<ChildStderr>>, SocketAddr) {
    let mut tool = Command::new(binary("resync-load"))
        .args(["run", "quick", "--no-bound"])
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(tool.stderr.take().unwrap()).lines();
    let url =
        said.find_map(|line| line.unwrap().split("http://").nth(1)?.split('/').next().map(str::to_owned));
    let hub: SocketAddr = url.unwrap().parse().unwrap();
    assert!(TcpStream::connect(hub).is_ok(), "its hub runs");
    (tool, said, hub)
}

#[tokio::test]
async fn a_run_that_is_stopped_leaves_nothing_behind() {
    let folder = tempdir().unwrap();
    let (mut tool, said, hub) = started(folder.path());
    kill_process(Pid::from_child(&tool), Signal::TERM).unwrap();
    assert_eq!(tool.wait().unwrap().code(), Some(1));
    assert_eq!(said.last().unwrap().unwrap(), "resync-load: stopped");
    eventually("the hub has died", async || TcpStream::connect(hub).is_err()).await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_run_that_is_killed_leaves_nothing_behind_either() {
    let folder = tempdir().unwrap();
    let (mut tool, _said, hub) = started(folder.path());
    tool.kill().unwrap();
    tool.wait().unwrap();
    eventually("the hub has died", async || TcpStream::connect(hub).is_err()).await;
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    eventually("its folder has gone", async || left() == 0).await;
}

#[test]
fn every_mistake_in_a_scenario_is_named_with_its_place_and_what_would_be_right() {
    let folder = tempdir().unwrap();
    let text = r#"about = "wrong"
duration = "soon"
sed = 3
[audience]
subscribers = 0
hosts = 70000
[publish]
pattern = "steady"
payload = "1 B"
[[receivers]]
share = 0.7
behaviour = "sulking"
[[receivers]]
share = 0.7
behaviour = "hang"
[[fault]]
kind = "resolver-fails"
"#;
    std::fs::write(folder.path().join("wrong.toml"), text).unwrap();
    let output = Command::new(binary("resync-load"))
        .args(["run", "wrong.toml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    for (place, what) in [
        ("line 2, column 12", "duration must be a time such as \"250ms\""),
        ("line 3, column 1", "sed is not a key: did you mean seed?"),
        ("line 5, column 15", "audience.subscribers must be a whole number from 1 to 2000000"),
        ("line 6, column 9", "audience.hosts must be a whole number from 1 to 60000"),
        ("line 7, column 1", "publish.rate is missing: say how many"),
        ("line 9, column 11", "publish.payload must be a size from 64 B to 1 MiB"),
        ("line 12, column 13", "receivers.behaviour must be one of \"ok\", \"slow\""),
        ("line 16, column 1", "say when: either at = \"3s\""),
    ] {
        let line = said.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {said}"));
        assert!(line.contains(place), "{line}");
    }
    for (instead, line) in [("rate = 100\nshare = 0.4", "line 12"), ("share = 0.4", "line 11")] {
        let pattern = if line == "line 12" { "steady" } else { "poisson" };
        let text = SHORT.replace("steady", pattern).replace("rate = 100", instead);
        let mistakes = Scenario::parse("both", &text).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let said = mistakes[0].to_string();
        assert!(said.starts_with(line) && said.contains("in place of publish.rate"), "{said}");
    }
    let none = Command::new(binary("resync-load")).args(["run", "nothing-such"]).output().unwrap();
    assert!(String::from_utf8(none.stderr).unwrap().contains("`resync-load scenarios` lists them"));
}

#[test]
fn every_scenario_that_comes_with_the_tool_is_listed_and_our_hub_takes_its_keys() {
    let output = Command::new(binary("resync-load")).arg("scenarios").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    for fault in [
        "crash-loop",
        "pause",
        "full-disk",
        "failing-writes",
        "clock-jump",
        "host-outage",
        "mass-renewal",
        "slow-third",
        "poisoned",
        "resolver",
    ] {
        assert!(said.lines().any(|line| line.starts_with(fault)), "{fault}: {said}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("load/scenarios");
    assert_eq!(
        std::fs::read_dir(folder).unwrap().count(),
        said.lines().count(),
        "a file without its name in the tool"
    );
    for name in said.lines().filter_map(|line| line.split('\t').next()) {
        let keys = Scenario::load(name).unwrap().hub;
        let variables = keys.into_iter().map(|(key, value)| (format!("RESYNC_HUB_{key}"), value));
        let checked =
            Command::new(binary("resync-hub")).args(["config", "check"]).envs(variables).output().unwrap();
        assert!(checked.status.success(), "{name}: {checked:?}");
    }
}

#[test]
fn the_example_with_every_key_is_a_scenario() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/load/example.toml");
    let scenario = Scenario::load(example).unwrap();
    assert!(!scenario.receivers.is_empty() && !scenario.faults.is_empty(), "{scenario:?}");
}

#[test]
fn each_scenario_with_faults_judges_how_soon_posts_are_taken_again_and_how_many_fail() {
    for name in resync_load::scenarios() {
        let Scenario { faults, expect, .. } = Scenario::load(name).unwrap();
        let is_judged = expect.taken_again_within.is_some() && expect.failed_posts.is_some();
        assert!(faults.is_empty() || is_judged, "{name}: {expect:?}");
    }
}
