//! What versions add to a build that has nothing new to keep.
//!
//! ```text
//! cargo bench -p resync-publisher --features cli --bench versions            100,000 files, of which 1,600 change before each build
//! cargo bench -p resync-publisher --features cli --bench versions -- 10000   fewer files
//! ```
//!
//! One folder has two sites, of which one keeps versions. Each changed file gets back a content that it had before, so that its bytes are kept
//! already. Then both sites are built, each first in every other turn. All turns count, those too in which the journal of versions is merged.
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    fs,
    ops::AddAssign,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const FILES: usize = 100_000;
const CHANGES: usize = 1_600;
/// Until both contents of each file are kept.
const FIRST: usize = 2;
const TURNS: usize = 24;
const BINARY: &str = env!("CARGO_BIN_EXE_resync-source");

/// Runs a command and gives its seconds, and those of the processor.
const MEASURE: &str = "import resource, subprocess, sys, time
begun = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
ended, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
print(ended - begun, used.ru_utime + used.ru_stime)";

/// Seconds.
#[derive(Clone, Copy, Default)]
struct Cost {
    time: f64,
    processor: f64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.processor += other.processor;
    }
}

fn main() {
    let argument = std::env::args().skip(1).find(|argument| argument != "--bench");
    let files = argument.map_or(FILES, |files| files.parse().unwrap());
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    for number in 0..files {
        let file = name(&data, number);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content(number, 0)).unwrap();
    }
    let sites = ["", "[versions]\nkeep = \"always\"\n"].map(|versions| configured(place.path(), versions));
    let mut costs = [Cost::default(); 2];
    for turn in 0..FIRST + TURNS {
        if turn > 0 {
            change(&data, files, turn);
        }
        // What is written to the disk for one must not be paid by the other.
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for site in order {
            assert!(Command::new("sync").status().unwrap().success());
            let cost = build(&sites[site]);
            if turn >= FIRST {
                costs[site] += cost;
            }
        }
    }
    let [without, with] = costs;
    println!("| {TURNS} builds | seconds | processor |\n|---|---|---|");
    println!("| without versions | {:.3} | {:.3} |", without.time, without.processor);
    println!("| with versions | {:.3} | {:.3} |", with.time, with.processor);
    let added = |of: fn(&Cost) -> f64| 100.0 * (of(&with) / of(&without) - 1.0);
    let (time, processor) = (added(|cost| cost.time), added(|cost| cost.processor));
    println!("versions add {time:.2} % of the time and {processor:.2} % of the processor time");
    assert!(time <= 1.0, "1 % at most");
}

fn name(data: &Path, number: usize) -> PathBuf {
    data.join(format!("{:03}/{number:06}.txt", number / 500))
}

/// As long as before, and one of two.
fn content(number: usize, turn: usize) -> String {
    format!("{number} {} ", turn % 2).repeat(100)
}

/// Always the same files, spread over all folders.
fn change(data: &Path, files: usize, turn: usize) {
    for change in 0..CHANGES {
        let number = change * files / CHANGES;
        fs::write(name(data, number), content(number, turn)).unwrap();
    }
}

/// A site of the folder, by its configuration.
fn configured(place: &Path, more: &str) -> PathBuf {
    let site = if more.is_empty() { "without" } else { "with" };
    let config = place.join(format!("{site}.toml"));
    let set = format!("base_url = \"http://example.org/\"\ndirectory = \"data\"\nout = \"{site}\"\n{more}");
    fs::write(&config, set).unwrap();
    config
}

fn build(config: &Path) -> Cost {
    let mut command = Command::new("python3");
    command.args(["-c", MEASURE, BINARY, "build", "--config"]).arg(config);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let (time, processor) = text.trim().split_once(' ').unwrap();
    Cost { time: time.parse().unwrap(), processor: processor.parse().unwrap() }
}
