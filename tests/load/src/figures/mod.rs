//! `resync-load figures`: whatever is promised, measured by its own command, as one table.

mod catalogue;
mod cluster;
mod figure;
mod measurement;
mod peer;
mod program;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resync_common::output::{complain, note};
use resync_common::words::Lasting;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Failure;
use super::measure::Machine;
use catalogue::MEASUREMENTS;
use figure::At;
use measurement::Measurement;

pub use table::{insert, table};

/// Below the folder of outcomes: what each run left for `resync-load report`, and hubs that others wrote.
const RUNS: &str = "runs";

/// What is measured.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The measurements; all where none is named.
    pub names: Vec<String>,
    /// Where what came of each is kept: the table is made of all that are there.
    pub folder: PathBuf,
    /// Whether figures of other states of the code may stand beside these, and these may be of a state that is no commit.
    pub mix: bool,
}

/// What came of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// The version of what was measured.
    pub version: String,
    /// The last commit that changed what is measured, marked if something was changed since; empty where nobody knows.
    #[serde(default)]
    pub commit: String,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How long it took.
    pub seconds: f64,
    /// Whether the compiler took the time to make it fast.
    pub optimised: bool,
    /// The machine.
    pub machine: Machine,
    /// By the words that the table has for each; what was not measured is left out.
    pub values: BTreeMap<String, f64>,
}

/// The names of all measurements, how long each takes about, and the figures that come of it.
pub fn measurements() -> impl Iterator<Item = (&'static str, Duration, Vec<&'static str>)> {
    MEASUREMENTS
        .iter()
        .map(|one| (one.name, one.expected(), one.figures.iter().map(|figure| figure.what).collect()))
}

/// Measures one after the other; one that cannot be measured is told of, and the others go on. Where none is named, those that were
/// measured of this commit already are left out: so it goes on after an interruption.
///
/// # Errors
/// For a name that is not known, and when figures of several states would stand in one table, before anything is measured; when the
/// commit has changed meanwhile, at once; when one of them was not measured, after all.
pub async fn figures(plan: &Figures) -> Result<(), Failure> {
    let mut chosen = chosen(&plan.names)?;
    let commit = program::commit().await.unwrap_or_default();
    let is_commit = !commit.is_empty() && !commit.ends_with(program::CHANGED);
    let known = outcomes(&plan.folder)?;
    if !plan.mix {
        one_state(&chosen, &known, &commit, is_commit)?;
    }
    if plan.names.is_empty() && is_commit {
        let is_done = |of: &Measurement| {
            known.iter().any(|one| one.name == of.name && one.commit == commit && one.optimised)
        };
        chosen.retain(|measurement| !is_done(measurement));
    }
    fs::create_dir_all(plan.folder.join(RUNS))
        .map_err(|error| format!("{} cannot be made: {error}", plan.folder.display()))?;
    let expected: Duration = chosen.iter().map(|one| one.expected()).sum();
    note(format_args!("{} measurements, about {}", chosen.len(), Lasting(expected)));
    measure_each(chosen, &plan.folder, &commit, &program::commit).await
}

/// Refuses a table of several states.
fn one_state(
    chosen: &[&Measurement],
    known: &[Outcome],
    commit: &str,
    is_commit: bool,
) -> Result<(), Failure> {
    if !is_commit {
        return Err("what is here is no commit: commit it first, or pass --mix".into());
    }
    let stays = |one: &&Outcome| one.commit != commit && chosen.iter().all(|other| other.name != one.name);
    let others: Vec<_> = known.iter().filter(stays).map(|one| one.name.as_str()).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} are of another state of the code than {commit}: measure everything anew (name nothing), or pass --mix",
        others.join(", ")
    )
    .into())
}

/// Refuses what would be measured of one state and said of another, where somebody goes on with the work meanwhile.
async fn unchanged(commit: &str, now: &impl AsyncFn() -> Option<String>) -> Result<(), Failure> {
    let now = now().await.unwrap_or_default();
    if now == commit {
        return Ok(());
    }
    let name = |state: &str| if state.is_empty() { "no known commit".to_owned() } else { state.to_owned() };
    Err(format!(
        "what is here was {} when measuring began and is {} now: measure where nobody commits or edits meanwhile",
        name(commit),
        name(&now)
    )
    .into())
}

/// `now` reads the commit, which is to be this one before and after each of them.
async fn measure_each<'m>(
    chosen: impl IntoIterator<Item = &'m Measurement>,
    folder: &Path,
    commit: &str,
    now: &impl AsyncFn() -> Option<String>,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for measurement in chosen {
        unchanged(commit, now).await?;
        let (name, command) = (measurement.name, program::spelled(&measurement.program));
        note(format_args!("{name}, about {}: {command}", Lasting(measurement.expected())));
        let file = folder.join(format!("{name}.json"));
        // What an earlier version did is not what this one does, even if nobody can say what it does. There may be none.
        let _ = fs::remove_file(&file);
        match measure(measurement, folder, commit, now).await {
            Ok(outcome) => {
                fs::write(&file, serde_json::to_string_pretty(&outcome)? + "\n")
                    .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
            }
            Err(error) => {
                complain(format_args!("{name}: {error}"));
                failed.push(name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", ")).into()) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Measurement>, Failure> {
    let known = |name: &String| {
        MEASUREMENTS.iter().find(|one| one.name == name).ok_or_else(|| {
            let all: Vec<_> = measurements().map(|(name, ..)| name).collect();
            format!("no measurement is called {name}; there are {}", all.join(", "))
        })
    };
    if names.is_empty() {
        return Ok(MEASUREMENTS.iter().collect());
    }
    Ok(names.iter().map(known).collect::<Result<_, _>>()?)
}

async fn measure(
    measurement: &Measurement,
    folder: &Path,
    commit: &str,
    now: &impl AsyncFn() -> Option<String>,
) -> Result<Outcome, Failure> {
    program::prepare(&measurement.program).await?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let clock = Instant::now();
    let runs = folder.join(RUNS);
    let said = timeout(measurement.bound(), program::run(&measurement.program, measurement.name, &runs));
    let said = said.await.map_err(|_| format!("it took longer than {}", Lasting(measurement.bound())))??;
    let values: BTreeMap<_, _> = measurement
        .figures
        .iter()
        .filter_map(|figure| Some((figure.what.to_owned(), said.find(figure.at)?)))
        .collect();
    if values.is_empty() {
        return Err(format!("it ended without a figure: {}", said.last_words()).into());
    }
    unchanged(commit, now).await?;
    Ok(Outcome {
        name: measurement.name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit.to_owned(),
        began,
        seconds: clock.elapsed().as_secs_f64(),
        optimised: !cfg!(debug_assertions),
        machine: Machine::this(),
        values,
    })
}

/// Where the figures of a measurement stand in the JSON that it answers with; nothing for one that is not known, or answers otherwise.
pub fn pointers(measurement: &str) -> impl Iterator<Item = &'static str> {
    let found = MEASUREMENTS.iter().find(|one| one.name == measurement);
    let figures = found.map_or([].as_slice(), |one| one.figures);
    figures.iter().filter_map(|figure| match figure.at {
        At::Json(pointer) => Some(pointer),
        At::Before(_) | At::After(_) | At::Ended => None,
    })
}

/// What is known of each measurement, in the order of the table.
///
/// # Errors
/// When a file in this folder is no outcome.
pub fn outcomes(folder: &Path) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    for measurement in MEASUREMENTS {
        let file = folder.join(format!("{}.json", measurement.name));
        if let Ok(text) = fs::read_to_string(&file) {
            outcomes
                .push(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?);
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::figure::Figure;
    use super::measurement::Program;
    use super::*;

    fn apples(script: &'static [&'static str]) -> Measurement {
        const APPLES: &[Figure] =
            &[Figure { what: "apples", at: At::Before(" apples"), unit: "", bar: None }];
        Measurement { name: "limit", program: Program::Script(script), seconds: 1, figures: APPLES }
    }

    fn outcome(name: &str, commit: &str) -> Outcome {
        let machine = Machine { processor: "A".into(), cores: 2, memory: 4 << 30, kernel: "Linux 6".into() };
        let (name, version, commit) = (name.into(), "1".into(), commit.into());
        Outcome {
            name,
            version,
            commit,
            began: 1,
            seconds: 1.0,
            optimised: true,
            machine,
            values: BTreeMap::new(),
        }
    }

    #[test]
    fn figures_of_several_states_are_not_mixed_unless_those_of_another_one_are_measured_anew() {
        let (all, limit) = (chosen(&[]).unwrap(), chosen(&["limit".to_owned()]).unwrap());
        let known = [outcome("limit", "a"), outcome("soak", "b")];
        let refused = |chosen, known, commit, is_commit| {
            one_state(chosen, known, commit, is_commit).err().map(|error| error.to_string())
        };
        let why = refused(&limit, &known, "a", true).unwrap();
        assert!(why.starts_with("soak are of another state of the code than a: "), "{why}");
        assert_eq!(refused(&all, &known, "c", true), None);
        assert_eq!(refused(&limit, &known[..1], "c", true), None);
        assert!(refused(&all, &[], "a-dirty", false).unwrap().contains("no commit"));
    }

    #[tokio::test]
    async fn what_cannot_be_measured_any_more_leaves_no_figure_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let values = || {
            let found = outcomes(folder.path()).unwrap();
            found.into_iter().map(|outcome| outcome.values["apples"]).collect::<Vec<_>>()
        };
        let now = async || Some("a".to_owned());
        let counts = apples(&["/bin/sh", "-c", "echo 3 apples"]);
        measure_each([&counts], folder.path(), "a", &now).await.unwrap();
        assert_eq!(values(), [3.0]);
        let fails = apples(&["/bin/sh", "-c", "exit 1"]);
        let failure = measure_each([&fails], folder.path(), "a", &now).await.unwrap_err();
        assert_eq!(failure.to_string(), "not measured: limit");
        assert!(values().is_empty());
    }

    #[tokio::test]
    async fn what_was_measured_while_the_commit_changed_is_not_kept_and_nothing_else_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let kept = || outcomes(folder.path()).unwrap().len();
        let counts = apples(&["/bin/sh", "-c", "echo 3 apples"]);
        let asked = AtomicUsize::new(0);
        // The second question is the one after the first measurement.
        let now = async || {
            let before = asked.fetch_add(1, Ordering::Relaxed);
            Some(if before == 0 { "a" } else { "b-dirty" }.to_owned())
        };
        let failure = measure_each([&counts, &counts], folder.path(), "a", &now).await.unwrap_err();
        let why = "what is here was a when measuring began and is b-dirty now: ";
        assert!(failure.to_string().starts_with(why), "{failure}");
        assert_eq!((kept(), asked.load(Ordering::Relaxed)), (0, 3), "the second is not begun");

        let same = async || Some("a".to_owned());
        measure_each([&counts], folder.path(), "a", &same).await.unwrap();
        assert!(measure_each([&counts], folder.path(), "a", &async || None).await.is_err());
        assert_eq!(kept(), 1, "what was known before stays where nothing is measured");
    }
}
