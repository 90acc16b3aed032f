//! Runs what measures, and finds figures in what it says.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::figure::At;
use super::measurement::Program;
use super::peer::Peer;
use crate::Failure;

/// Marks what is no commit.
pub(super) const CHANGED: &str = "-dirty";

/// What a command said, and how it ended.
pub(super) struct Said {
    text: String,
    json: Value,
    status: ExitStatus,
    /// Whether what measures ran at all, whatever came out: else how the command ended says nothing about a promise.
    ran: bool,
}

impl Said {
    pub(super) fn find(&self, at: At) -> Option<f64> {
        match at {
            At::Json(pointer) => self.json.pointer(pointer)?.as_f64(),
            At::Before(end) => self.text.split_once(end)?.0.split_whitespace().next_back()?.parse().ok(),
            At::After(begin) => self.text.split_once(begin)?.1.split_whitespace().next()?.parse().ok(),
            At::Ended => self.ran.then_some(if self.status.success() { 1.0 } else { 0.0 }),
        }
    }

    /// Its last line.
    pub(super) fn last_words(&self) -> String {
        let last = self.text.lines().last().unwrap_or("it said nothing").trim();
        format!("{last} ({})", self.status)
    }
}

/// As a person would repeat it.
pub(super) fn spelled(program: &Program) -> String {
    match program {
        Program::Load(arguments) => format!("resync-load {} --json", arguments.join(" ")),
        Program::Scenario(name, more) => {
            ["resync-load run", name].iter().chain(*more).copied().collect::<Vec<_>>().join(" ")
        }
        Program::Peer => "resync-load figures peer".to_owned(),
        Program::Test(tests, (variable, value)) => {
            let tests = tests.join(" ");
            format!("{variable}={value} cargo test -p resync-tests --test {tests} -- --nocapture")
        }
        Program::Bench(package, name, argument) => {
            format!("cargo bench -p {package} --features cli --bench {name} -- {argument}")
        }
        Program::Script(words) => words.join(" "),
    }
}

/// Builds what it needs, so that this is not a part of its time.
pub(super) async fn prepare(program: &Program) -> Result<(), Failure> {
    match program {
        Program::Test(tests, _) => {
            said(cargo()?.args(["build", "--locked", "--workspace", "--bins"])).await?.expected()?;
            let mut command = cargo()?;
            command.args(["test", "--locked", "--no-run", "-p", "resync-tests", "--test", tests[0]]);
            said(&mut command).await?.expected()?;
        }
        Program::Bench(package, bench, _) => {
            let mut command = cargo()?;
            command.args(["bench", "--locked", "--no-run", "-p", package, "--features", "cli"]);
            said(command.args(["--bench", bench])).await?.expected()?;
        }
        Program::Load(_) | Program::Scenario(..) | Program::Peer | Program::Script(_) => {}
    }
    Ok(())
}

/// Runs it to its end; what it makes goes into `folder`.
pub(super) async fn run(program: &Program, name: &str, folder: &Path) -> Result<Said, Failure> {
    match program {
        Program::Load(arguments) => {
            let said = said(own()?.args(*arguments).arg("--json")).await?;
            // One that misses its own bars ends badly, and has measured all the same.
            Ok(Said { ran: !said.json.is_null(), ..said })
        }
        Program::Scenario(scenario, more) => {
            scenario_of(own()?.args(["run", scenario]).args(*more), name, folder).await
        }
        Program::Peer => {
            let peer = Peer::start(folder).await?;
            let pid = peer.pid().to_string();
            let mut command = own()?;
            command.args(["run", "pinged", "--hub", &peer.url, "--by", "ping", "--hub-pid", &pid]);
            scenario_of(&mut command, name, folder).await
        }
        Program::Test(tests, (variable, value)) => {
            let mut command = cargo()?;
            command.args(["test", "--locked", "-p", "resync-tests", "--test"]).args(*tests);
            command.args(["--", "--nocapture"]);
            let said = said(command.env(variable, value)).await?;
            Ok(Said { ran: ran_a_test(&said.text), ..said })
        }
        Program::Bench(package, bench, argument) => {
            let mut command = cargo()?;
            command.args(["bench", "--locked", "-p", package, "--features", "cli", "--bench", bench]);
            said(command.args(["--", argument])).await
        }
        Program::Script(words) => {
            let mut command = Command::new(repository()?.join(words[0]));
            said(command.args(&words[1..]).current_dir(repository()?)).await
        }
    }
}

/// The last commit that changed what is measured, marked if something was changed since. Documents are not, since figures go into them, nor is the
/// test program that compares these.
pub(super) async fn commit() -> Option<String> {
    let git = async |arguments: &[&str]| {
        let mut git = Command::new("git");
        let output = git.args(arguments).current_dir(repository().ok()?).output().await.ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let measured = ["--", ".", ":(exclude)docs", ":(exclude,glob)**/*.md", ":(exclude)tests/tests/outside"];
    // A merge counts as what it brings in: neither of its sides is what is here.
    let commit = git(&[&["log", "-1", "--first-parent", "--format=%h"], &measured[..]].concat()).await?;
    let changed = git(&[&["status", "--porcelain", "--untracked-files=no"], &measured[..]].concat()).await?;
    Some(if changed.is_empty() { commit } else { format!("{commit}{CHANGED}") })
}

/// A scenario writes its result into a file, which stays for `resync-load report`.
async fn scenario_of(command: &mut Command, name: &str, folder: &Path) -> Result<Said, Failure> {
    let file = folder.join(format!("{name}.json"));
    // One of an earlier run is not this one's.
    let _ = fs::remove_file(&file);
    let mut said = said(command.arg("--out").arg(&file)).await?;
    said.json = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    said.ran = !said.json.is_null();
    Ok(said)
}

/// Whether a test program came so far as to run a test: it did not where it could not be built, and where no name fits.
fn ran_a_test(text: &str) -> bool {
    text.lines().filter_map(|line| line.strip_prefix("running ")?.split(' ').next()).any(|count| count != "0")
}

impl Said {
    fn expected(self) -> Result<Self, Failure> {
        if self.status.success() { Ok(self) } else { Err(self.last_words().into()) }
    }
}

fn own() -> Result<Command, Failure> {
    Ok(Command::new(env::current_exe()?))
}

fn cargo() -> Result<Command, Failure> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(repository()?);
    Ok(command)
}

/// Where this tool was built from.
fn repository() -> Result<PathBuf, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().map_err(|_| {
        "this one needs the repository that the tool was built from, which is not there any more".into()
    })
}

/// Its standard output is kept, its progress is shown.
async fn said(command: &mut Command) -> Result<Said, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let spawned = command.spawn();
    let mut running = Running(spawned.map_err(|error| format!("{command:?}: {error}"))?);
    let (Some(mut output), Some(errors)) = (running.0.stdout.take(), running.0.stderr.take()) else {
        return Err("its output cannot be read".into());
    };
    let mut text = String::new();
    let mut errors = BufReader::new(errors).lines();
    let complaints = async {
        let mut last = String::new();
        while let Ok(Some(line)) = errors.next_line().await {
            let _ = writeln!(io::stderr(), "{line}");
            last = line;
        }
        last
    };
    let (read, last) = tokio::join!(output.read_to_string(&mut text), complaints);
    read?;
    let status = running.0.wait().await?;
    let json = serde_json::from_str(&text).unwrap_or_default();
    if !status.success() {
        text.push_str(&last);
    }
    Ok(Said { text, ran: status.success(), json, status })
}

/// Ended with this value together with all that it has started, in a way that lets them end their own.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // One that is gone is no trouble.
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn words(text: &str, status: i32) -> Said {
        let json = serde_json::from_str(text).unwrap_or_default();
        Said { text: text.to_owned(), json, status: ExitStatus::from_raw(status << 8), ran: ran_a_test(text) }
    }

    #[test]
    fn figures_are_found_in_json_and_in_words() {
        let json = words(r#"{"rungs": [{"lost": 3}], "ratio": 0.72}"#, 0);
        assert_eq!(json.find(At::Json("/rungs/0/lost")), Some(3.0));
        assert_eq!(json.find(At::Json("/ratio")), Some(0.72));
        assert_eq!(json.find(At::Json("/nothing")), None);
        let words = words("| x |\n10.6 times as fast, 0.21 of the memory\nratio 0.95", 0);
        assert_eq!(words.find(At::Before(" times as fast")), Some(10.6));
        assert_eq!(words.find(At::Before(" of the memory")), Some(0.21));
        assert_eq!(words.find(At::After("ratio ")), Some(0.95));
        assert_eq!(words.find(At::After("never said ")), None);
    }

    #[test]
    fn a_test_that_found_a_loss_was_measured_and_one_that_never_began_was_not() {
        let lost = "running 2 tests\ntest one ... ok\nsomething was lost\ntest two ... FAILED\n";
        assert_eq!(words(lost, 101).find(At::Ended), Some(0.0));
        assert_eq!(words("running 1 test\n", 0).find(At::Ended), Some(1.0));
        for nothing in
            ["error: could not compile `resync-tests`", "running 0 tests\n\ntest result: ok. 0 passed", ""]
        {
            assert_eq!(words(nothing, 101).find(At::Ended), None, "{nothing}");
            assert_eq!(words(nothing, 0).find(At::Ended), None, "{nothing}");
        }
    }

    #[tokio::test]
    async fn a_scenario_that_did_not_pass_was_measured_and_one_without_a_result_was_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Command::new("sh");
        run.args(["-c", "echo '{\"lost\": 2}' > \"$2\"; exit 1", "sh"]);
        let lost = scenario_of(&mut run, "lost", folder.path()).await.unwrap();
        assert_eq!((lost.find(At::Json("/lost")), lost.find(At::Ended)), (Some(2.0), Some(0.0)));
        let none = scenario_of(&mut Command::new("false"), "lost", folder.path()).await.unwrap();
        assert_eq!((none.find(At::Json("/lost")), none.find(At::Ended)), (None, None));
    }

    #[tokio::test]
    async fn a_command_is_read_to_its_end_and_its_complaint_is_kept() {
        let mut command = Command::new("sh");
        let said =
            said(command.args(["-c", "echo ratio 0.5; echo 'no such disk' >&2; exit 3"])).await.unwrap();
        assert_eq!((said.find(At::After("ratio ")), said.find(At::Ended)), (Some(0.5), None));
        assert!(said.last_words().starts_with("no such disk (exit status: 3"), "{}", said.last_words());
    }
}
