//! The table of all figures, in Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use resync_core::datetime::DateTime;

use super::catalogue::MEASUREMENTS;
use super::figure::{At, Bar, Figure};
use super::{Outcome, program};
use crate::Failure;
use crate::measure::{Machine, float};
use crate::report::with_unit;

/// Between these lines a document has the table.
const BEGIN: &str = "<!-- figures -->\n";
const END: &str = "<!-- /figures -->\n";

/// What is known and what is not, with the machine's shape, what was promised, the command of each, and what it was measured of.
pub fn table(outcomes: &[Outcome]) -> String {
    let machines: BTreeSet<_> = outcomes.iter().map(shape).collect();
    let occasions: BTreeSet<_> = outcomes.iter().map(|one| one.commit.as_str()).collect();
    let mut text = String::new();
    for machine in machines {
        let _ = writeln!(text, "Measured on {machine}.");
    }
    let _ = writeln!(text, "{}", states(outcomes));
    text.push_str("\n| figure | measured | promised |\n|---|---:|---:|\n");
    for measurement in MEASUREMENTS {
        let outcome = outcomes.iter().find(|outcome| outcome.name == measurement.name);
        let of = outcome.filter(|_| occasions.len() > 1).map(occasion).unwrap_or_default();
        let _ = writeln!(text, "| **`{}`**{of} | | |", program::spelled(&measurement.program));
        for figure in measurement.figures {
            let value = outcome.and_then(|outcome| outcome.values.get(figure.what)).copied();
            let measured = value.map_or_else(|| "not measured".to_owned(), |value| shown(figure, value));
            let promised = promised(figure, value);
            let _ = writeln!(text, "| {} | {measured} | {promised} |", figure.what);
        }
    }
    text
}

/// Of which state of the code all of it is, or which parts are of which, and what is missing.
fn states(outcomes: &[Outcome]) -> String {
    let mut states: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        states.entry(&outcome.commit).or_default().push(outcome);
    }
    let is_there = |name: &str| outcomes.iter().any(|outcome| outcome.name == name);
    let missing: Vec<_> = MEASUREMENTS.iter().map(|one| one.name).filter(|name| !is_there(name)).collect();
    let mut text = match states.len() {
        0 => "Nothing is measured.".to_owned(),
        1 => {
            let days: BTreeSet<_> = outcomes.iter().map(day).collect();
            let days: Vec<_> =
                days.first().into_iter().chain(days.last().filter(|_| days.len() > 1)).collect();
            let days = days.into_iter().map(String::as_str).collect::<Vec<_>>().join(" to ");
            format!("All of one state of the code: {}, {days}.", state(outcomes[0].commit.as_str()))
        }
        _ => {
            let newest = outcomes.iter().max_by_key(|outcome| outcome.began).map(|one| one.commit.as_str());
            let older = states.iter().filter(|(commit, _)| Some(**commit) != newest).map(|(commit, of)| {
                let names: Vec<_> = of.iter().map(|one| one.name.as_str()).collect();
                format!("{} ({})", state(commit), names.join(", "))
            });
            let newest = state(newest.unwrap_or_default());
            format!(
                "**Not of one state of the code.** The newest is {newest}; older: {}.",
                older.collect::<Vec<_>>().join("; ")
            )
        }
    };
    if !missing.is_empty() && !states.is_empty() {
        let _ = write!(text, " **Not measured:** {}.", missing.join(", "));
    }
    text
}

fn state(commit: &str) -> &str {
    if commit.is_empty() { "unknown commit" } else { commit }
}

/// Which state of the repository, and when.
fn occasion(outcome: &Outcome) -> String {
    format!(" ({}, {})", state(&outcome.commit), day(outcome))
}

fn day(outcome: &Outcome) -> String {
    let began = i64::try_from(outcome.began).unwrap_or(i64::MAX).saturating_mul(1_000);
    let moment =
        DateTime::from_unix_millis(began).map_or_else(|error| error.to_string(), |at| at.to_string());
    moment.split('T').next().unwrap_or_default().to_owned()
}

/// Puts a table where a document has one.
///
/// # Errors
/// When the document has no place for it.
pub fn insert(document: &str, table: &str) -> Result<String, Failure> {
    let place = document.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        place.ok_or_else(|| format!("it has no lines {} and {}", BEGIN.trim(), END.trim()))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn shape(outcome: &Outcome) -> String {
    let Machine { processor, cores, kernel, memory } = &outcome.machine;
    let gibibytes = float(*memory) / f64::from(1 << 30);
    let build = if outcome.optimised { "" } else { ", **by a debug build, whose figures mean nothing**" };
    format!("{processor}, {cores} cores, {gibibytes:.0} GiB, {kernel}{build}")
}

fn shown(figure: &Figure, value: f64) -> String {
    match figure.at {
        At::Ended => if value > 0.0 { "yes" } else { "**no**" }.to_owned(),
        _ => with_unit(value, figure.unit),
    }
}

fn promised(figure: &Figure, value: Option<f64>) -> String {
    let Some(bar) = figure.bar else { return String::new() };
    let text = match bar {
        _ if matches!(figure.at, At::Ended) => "yes".to_owned(),
        Bar::AtLeast(bound) => format!("≥ {}", with_unit(bound, figure.unit)),
        Bar::AtMost(bound) => format!("≤ {}", with_unit(bound, figure.unit)),
    };
    if value.is_none_or(|value| bar.holds(value)) { text } else { format!("**{text}: missed**") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, values: &[(&str, f64)]) -> Outcome {
        let machine = Machine { processor: "A".into(), cores: 2, memory: 4 << 30, kernel: "Linux 6".into() };
        let values = values.iter().map(|(what, value)| ((*what).to_owned(), *value)).collect();
        Outcome {
            name: name.into(),
            version: "1".into(),
            commit: "a1b2c3d-dirty".into(),
            began: 1_795_000_000,
            seconds: 1.0,
            optimised: true,
            machine,
            values,
        }
    }

    #[test]
    fn a_promise_that_is_missed_is_marked_as_such() {
        let text = table(&[
            outcome(
                "publish",
                &[
                    ("durable posts of 1 publisher", 12_345.0),
                    ("from a post to its first delivery, p99", 6.5),
                ],
            ),
            outcome("deaths", &[("200 deaths of each kind: nothing lost, lives of sled below apart", 1.0)]),
        ]);
        assert!(
            text.starts_with("Measured on A, 2 cores, 4 GiB, Linux 6.\nAll of one state of the code: "),
            "{text}"
        );
        assert!(
            text.contains(
                "| **`resync-load publish --json`** | | |\n| durable posts of 1 publisher | 12.3 k/s |  |\n"
            ),
            "{text}"
        );
        assert!(text.contains("| 6.50 ms | **≤ 3.00 ms: missed** |"), "{text}");
        assert!(!text.contains("debug"), "{text}");
        assert!(text.contains("| **`RESYNC_TEST_DEATHS=200 cargo test"), "{text}");
        assert!(text.contains("below apart | yes | yes |"), "{text}");
    }

    #[test]
    fn what_was_not_measured_has_a_line_that_says_so() {
        let text = table(&[outcome("publish", &[("durable posts of 1 publisher", 1.0)])]);
        assert!(text.contains("| durable posts of 16 publishers | not measured |  |\n"), "{text}");
        assert!(text.contains("| half an hour: lost | not measured | ≤ 0 |\n"), "{text}");
        assert!(text.contains(" **Not measured:** limit, fanout, "), "{text}");
        assert!(!text.contains("missed"), "{text}");
        let figures = MEASUREMENTS.iter().flat_map(|one| one.figures).count();
        assert_eq!(text.matches(" | not measured | ").count(), figures - 1);
    }

    #[test]
    fn rows_of_an_older_state_are_named_and_have_their_own() {
        let older = Outcome { commit: "0ld".into(), began: 1_794_000_000, ..outcome("soak", &[]) };
        let text = table(&[outcome("publish", &[]), outcome("limit", &[]), older]);
        let said = "**Not of one state of the code.** The newest is a1b2c3d-dirty; older: 0ld (soak). **Not measured:**";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("| **`resync-load run soak`** (0ld, 2026-11-06) | | |"), "{text}");
        assert!(
            text.contains("| **`resync-load limit --json`** (a1b2c3d-dirty, 2026-11-18) | | |"),
            "{text}"
        );
    }

    #[test]
    fn what_a_debug_build_measured_is_told_as_such() {
        let debug = Outcome { optimised: false, ..outcome("limit", &[]) };
        assert!(table(&[debug]).starts_with("Measured on A, 2 cores, 4 GiB, Linux 6, **by a debug build"));
    }

    #[test]
    fn no_two_figures_and_no_two_measurements_have_the_same_name() {
        let figures: Vec<_> =
            MEASUREMENTS.iter().flat_map(|one| one.figures).map(|figure| figure.what).collect();
        let names: Vec<_> = MEASUREMENTS.iter().map(|one| one.name).collect();
        for names in [figures, names] {
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        }
    }

    #[test]
    fn a_table_replaces_the_one_that_a_document_has() {
        let document = format!("# Words\n{BEGIN}old\n{END}more\n");
        assert_eq!(insert(&document, "new\n").unwrap(), format!("# Words\n{BEGIN}new\n{END}more\n"));
        assert!(insert("# Words\n", "new\n").is_err());
    }
}
