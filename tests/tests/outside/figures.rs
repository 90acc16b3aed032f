//! The table in docs/reference/figures.md is what `resync-load figures` wrote: docs/figures has what came of each measurement. The summary
//! in docs/performance.md and the front page show some of it.
//!
//! `RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test outside figures` makes all of it of these files anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use resync_load::{insert, measurements, outcomes, table};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Each file of docs/figures by its name.
fn files() -> BTreeMap<String, Value> {
    let entries = fs::read_dir(root().join("docs/figures")).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file());
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().strip_suffix(".json").unwrap().to_owned();
            (name, serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        })
        .collect()
}

#[test]
fn the_table_of_figures_is_what_the_tool_wrote_and_whoever_shows_some_of_it_shows_the_same() {
    let all = table(&outcomes(&root().join("docs/figures")).unwrap());
    is_made("docs/reference/figures.md", |page| insert(page, &all).unwrap());
    is_made("docs/performance.md", |page| with_some(page, "summary", &all));
    is_made("README.md", |page| with_some(page, "figures", &all));
}

/// Why the tool cannot have written this outcome: it says how long it measured, and what commit.
fn not_written_by_the_tool(outcome: &Value) -> Option<String> {
    if outcome["seconds"].as_f64().is_none_or(|seconds| seconds <= 0.0) {
        return Some(format!("it measured for {} seconds", outcome["seconds"]));
    }
    let commit = outcome["commit"].as_str().unwrap_or_default();
    let hash = commit.strip_suffix("-dirty").unwrap_or(commit);
    let is_hash = hash.len() >= 7 && hash.bytes().all(|letter| letter.is_ascii_hexdigit());
    (!is_hash).then(|| format!("{commit:?} is no commit"))
}

/// Whether a page is as it is made; with `RESYNC_WRITE_DOCS` it is from now on.
fn is_made(name: &str, make: impl Fn(&str) -> String) {
    let path = root().join(name);
    let page = fs::read_to_string(&path).unwrap();
    let made = make(&page);
    if env::var_os("RESYNC_WRITE_DOCS").is_some() {
        fs::write(&path, made).unwrap();
        return;
    }
    assert!(
        page == made,
        "{name} has not the figures of docs/figures: RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test outside figures"
    );
}

/// The page with rows of the table between two lines with this word, which say the names of the rows.
fn with_some(page: &str, word: &str, all: &str) -> String {
    let (begin, end) = (format!("<!-- {word} -->\n"), format!("<!-- /{word} -->\n"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (shown, after) = rest.split_once(&end).unwrap();
    let lines: Vec<_> = shown.lines().collect();
    let (head, rows) = lines.split_at(2);
    assert!(rows.len() > 2, "{shown}");
    let made: Vec<_> = rows
        .iter()
        .map(|row| {
            let what = row.trim_start_matches("| ").split(" | ").next().unwrap();
            let of_all = all.lines().find(|line| line.starts_with(&format!("| {what} | ")));
            let measured = of_all.unwrap_or_else(|| panic!("the table has no {what:?}")).split(" | ").nth(1);
            format!("| {what} | {} |", measured.unwrap())
        })
        .collect();
    format!("{before}{begin}{}\n{}\n{end}{after}", head.join("\n"), made.join("\n"))
}

#[test]
fn an_outcome_that_took_no_time_or_is_of_no_commit_was_not_written_by_the_tool() {
    let said = |seconds: Value, commit: Value| {
        not_written_by_the_tool(&json!({ "name": "limit", "seconds": seconds, "commit": commit }))
    };
    for commit in ["c17b001", "c17b0013f", "c17b001-dirty"] {
        assert_eq!(said(json!(61.27), json!(commit)), None);
    }
    for seconds in [json!(0), json!(0.0), json!(-1.5), json!("61"), Value::Null] {
        let why = said(seconds.clone(), json!("c17b001")).unwrap();
        assert_eq!(why, format!("it measured for {seconds} seconds"));
    }
    for commit in [json!(""), json!("-dirty"), json!("c17b0"), json!("the newest"), json!(7), Value::Null] {
        let why = said(json!(61.27), commit.clone()).unwrap();
        assert!(why.ends_with("is no commit"), "{commit}: {why}");
    }
    assert!(not_written_by_the_tool(&json!({})).is_some());
}

#[test]
fn each_figure_is_of_this_release_and_of_a_measurement_that_anybody_can_repeat() {
    let known: BTreeMap<_, _> = measurements().map(|(name, _, figures)| (name, figures)).collect();
    for (name, outcome) in files() {
        assert_eq!(not_written_by_the_tool(&outcome), None, "{name}");
        let figures = known.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not measured any more"));
        assert_eq!(outcome["version"], env!("CARGO_PKG_VERSION"), "{name} is older than what it describes");
        assert_eq!((&outcome["name"], &outcome["optimised"]), (&name.as_str().into(), &true.into()));
        let values: BTreeSet<_> = outcome["values"].as_object().unwrap().keys().map(String::as_str).collect();
        assert!(
            !values.is_empty() && values.is_subset(&figures.iter().copied().collect()),
            "{name}: {values:?}"
        );
    }
}

#[test]
fn rows_of_another_state_of_the_code_than_the_newest_are_named_above_the_table() {
    let files = files();
    let page = fs::read_to_string(root().join("docs/reference/figures.md")).unwrap();
    let newest = files.values().max_by_key(|outcome| outcome["began"].as_u64()).unwrap();
    let above = page.split_once("<!-- figures -->").unwrap().1.split_once("\n| figure |").unwrap().0;
    let older: Vec<_> = files
        .iter()
        .filter(|(_, outcome)| outcome["commit"] != newest["commit"])
        .map(|(name, _)| name)
        .collect();
    println!("of another state than {}: {older:?}", newest["commit"]);
    let words: BTreeSet<&str> = above.split(|letter: char| " (),.;".contains(letter)).collect();
    assert!(older.iter().all(|name| words.contains(name.as_str())), "{older:?}: {above}");
    assert_eq!(above.contains("**Not of one state of the code.**"), !older.is_empty(), "{above}");
    let missing: Vec<_> =
        measurements().map(|(name, ..)| name).filter(|name| !files.contains_key(*name)).collect();
    println!("not measured: {missing:?}");
    assert!(missing.iter().all(|name| words.contains(name)), "{missing:?}: {above}");
    assert_eq!(above.contains("**Not measured:**"), !missing.is_empty(), "{above}");
}
