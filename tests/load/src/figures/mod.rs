//! `resync-load figures`: whatever is promised, measured by its own command, as one table.

mod catalogue;
mod peer;
mod program;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resync_common::output::{complain, note};
use serde::{Deserialize, Serialize};

use super::Failure;
use super::measure::Machine;
use catalogue::{At, MEASUREMENTS, Measurement};

pub use table::{insert, table};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The measurements; all where none is named.
    pub names: Vec<String>,
    /// Where what came of each is kept: the table is made of all that are there.
    pub folder: PathBuf,
}

/// What came of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// The version of what was measured.
    pub version: String,
    /// The commit that the repository was at, marked if something was changed since; empty where nobody knows.
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

/// The names of all measurements, with the figures that come of each.
pub fn measurements() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    MEASUREMENTS.iter().map(|one| (one.name, one.figures.iter().map(|figure| figure.what).collect()))
}

/// Measures one after the other; one that cannot be measured is told of, and the others go on.
///
/// # Errors
/// For a name that is not known, before anything is measured; when one of them was not measured, after all.
pub async fn figures(plan: &Figures) -> Result<(), Failure> {
    let chosen = chosen(&plan.names)?;
    fs::create_dir_all(&plan.folder)
        .map_err(|error| format!("{} cannot be made: {error}", plan.folder.display()))?;
    measure_each(chosen, &plan.folder).await
}

async fn measure_each<'m>(
    chosen: impl IntoIterator<Item = &'m Measurement>,
    folder: &Path,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for measurement in chosen {
        note(format_args!("{}: {}", measurement.name, program::spelled(&measurement.program)));
        let file = folder.join(format!("{}.json", measurement.name));
        // What an earlier version did is not what this one does, even if nobody can say what it does. There may be none.
        let _ = fs::remove_file(&file);
        match measure(measurement, folder).await {
            Ok(outcome) => {
                fs::write(&file, serde_json::to_string_pretty(&outcome)?)
                    .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
            }
            Err(error) => {
                complain(format_args!("{}: {error}", measurement.name));
                failed.push(measurement.name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", ")).into()) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Measurement>, Failure> {
    let known = |name: &String| {
        MEASUREMENTS.iter().find(|one| one.name == name).ok_or_else(|| {
            let all: Vec<_> = measurements().map(|(name, _)| name).collect();
            format!("no measurement is called {name}; there are {}", all.join(", "))
        })
    };
    if names.is_empty() {
        return Ok(MEASUREMENTS.iter().collect());
    }
    Ok(names.iter().map(known).collect::<Result<_, _>>()?)
}

async fn measure(measurement: &Measurement, folder: &Path) -> Result<Outcome, Failure> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let clock = Instant::now();
    // Before, since whoever goes on with the work meanwhile changes what is found here.
    let commit = program::commit().await.unwrap_or_default();
    let said = program::run(&measurement.program, measurement.name, folder).await?;
    let values: BTreeMap<_, _> = measurement
        .figures
        .iter()
        .filter_map(|figure| Some((figure.what.to_owned(), said.find(figure.at)?)))
        .collect();
    if values.is_empty() {
        return Err(format!("it ended without a figure: {}", said.last_words()).into());
    }
    Ok(Outcome {
        name: measurement.name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit,
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
    use super::catalogue::{Figure, Program};
    use super::*;

    fn apples(script: &'static [&'static str]) -> Measurement {
        const APPLES: &[Figure] =
            &[Figure { what: "apples", at: At::Before(" apples"), unit: "", bar: None }];
        Measurement { name: "limit", program: Program::Script(script), figures: APPLES }
    }

    #[tokio::test]
    async fn what_cannot_be_measured_any_more_leaves_no_figure_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let values = || {
            let found = outcomes(folder.path()).unwrap();
            found.into_iter().map(|outcome| outcome.values["apples"]).collect::<Vec<_>>()
        };
        measure_each([&apples(&["/bin/sh", "-c", "echo 3 apples"])], folder.path()).await.unwrap();
        assert_eq!(values(), [3.0]);
        let failure = measure_each([&apples(&["/bin/sh", "-c", "exit 1"])], folder.path()).await.unwrap_err();
        assert_eq!(failure.to_string(), "not measured: limit");
        assert!(values().is_empty());
    }
}
