//! Documents that are checked against the tests: docs/conformance.md is made of their names, docs/security.md names some.
//!
//! `RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test papers` writes docs/conformance.md anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

const CRATES: [&str; 5] = ["core", "hub", "publisher", "subscriber-kit", "tests"];

/// A line of requirements.txt.
struct Requirement {
    number: String,
    level: String,
    words: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn requirements() -> Vec<Requirement> {
    let text = fs::read_to_string(root().join("tests/requirements.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.splitn(3, ' ').map(str::to_owned);
            let mut part = || parts.next().unwrap_or_else(|| panic!("three parts: {line}"));
            Requirement { number: part(), level: part(), words: part() }
        })
        .collect()
}

/// The names of all tests with the files they are in.
fn tests() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for file in CRATES.iter().flat_map(|name| WalkDir::new(root().join(name))) {
        let path = file.unwrap().into_path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let shown = path.strip_prefix(root()).unwrap().display().to_string();
            let names = names(&fs::read_to_string(&path).unwrap());
            found.extend(names.into_iter().map(|name| (name, shown.clone())));
        }
    }
    found
}

/// Functions below a `#[test]` or `#[tokio::test]`.
fn names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test && let Some((before, after)) = line.split_once("fn ") {
            if before.is_empty() || before == "async " {
                names.extend(after.split(['(', '<']).next().map(str::to_owned));
            }
            is_test = false;
        }
    }
    names
}

/// The numbers at the beginning of a test's name: `w098_to_w101_b27_…` covers W-098 to W-101 and B-27.
fn numbers(name: &str) -> BTreeSet<String> {
    let mut numbers = BTreeSet::new();
    let (mut last, mut range) = (None, false);
    for word in name.split('_') {
        let Some((letter, number)) = number(word) else {
            if word == "to" && last.is_some() {
                range = true;
                continue;
            }
            break;
        };
        let first = last.filter(|(from, _)| range && *from == letter).map_or(number, |(_, first)| first);
        numbers.extend((first..=number).map(|number| {
            if letter == 'W' { format!("W-{number:03}") } else { format!("{letter}-{number:02}") }
        }));
        (last, range) = (Some((letter, number)), false);
    }
    numbers
}

fn number(word: &str) -> Option<(char, u32)> {
    let letter = word.chars().next().filter(|letter| "wcdbh".contains(*letter))?;
    let digits = &word[1..];
    (digits.len() >= 2)
        .then(|| digits.parse().ok())
        .flatten()
        .map(|number| (letter.to_ascii_uppercase(), number))
}

fn covering(tests: &BTreeMap<String, String>) -> BTreeMap<String, Vec<String>> {
    let mut covering: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, file) in tests {
        for number in numbers(name) {
            covering.entry(number).or_default().push(format!("`{name}` ({file})"));
        }
    }
    covering
}

fn uncovered<'a>(
    requirements: &'a [Requirement],
    covering: &BTreeMap<String, Vec<String>>,
) -> Vec<&'a Requirement> {
    requirements.iter().filter(|requirement| !covering.contains_key(&requirement.number)).collect()
}

fn conformance() -> String {
    let (requirements, covering) = (requirements(), covering(&tests()));
    let uncovered = uncovered(&requirements, &covering);
    let musts = uncovered.iter().filter(|requirement| requirement.level == "MUST").count();
    let mut text = format!(
        "# Conformance\n\nMade of the names of the tests by `tests/tests/papers.rs`; do not edit. W are requirements of WebSub on a hub, C \
         compatibility with what came before it, D decisions where it is silent, B further checks over real sockets. The steps of \
         websub.rocks are replayed by `tests/tests/websub_rocks.rs`.\n\n{} numbers, {} without a test, {musts} of these a MUST.\n\n\
         | number | level | what | tests |\n|---|---|---|---|\n",
        requirements.len(),
        uncovered.len()
    );
    for Requirement { number, level, words } in &requirements {
        let tests = covering.get(number).map_or_else(|| "**none**".to_owned(), |tests| tests.join("<br>"));
        writeln!(text, "| {number} | {level} | {words} | {tests} |").unwrap();
    }
    text
}

#[test]
fn the_table_of_conformance_is_that_of_the_tests_names() {
    let path = root().join("docs/conformance.md");
    let made = conformance();
    if env::var_os("RESYNC_WRITE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/conformance.md is stale: RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test papers"
    );
}

#[test]
fn no_must_is_without_a_test() {
    let (requirements, covering) = (requirements(), covering(&tests()));
    let musts =
        uncovered(&requirements, &covering).into_iter().filter(|requirement| requirement.level == "MUST");
    let missing: Vec<_> = musts.map(|requirement| &requirement.number).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_test_that_the_table_of_attacks_names_exists() {
    let text = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let tests = tests();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
    let mut named = 0;
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "an attack without a test: {row}");
        for name in names {
            assert!(tests.contains_key(name), "there is no test {name}: {row}");
            named += 1;
        }
    }
    assert!(named > 20, "only {named} tests are named: is the table still one?");
}

#[test]
fn numbers_stand_at_the_beginning_of_a_name_and_may_be_a_range() {
    let read = |name| numbers(name).into_iter().collect::<Vec<_>>();
    assert_eq!(read("b04_w078_the_query"), ["B-04", "W-078"]);
    assert_eq!(read("w098_to_w101_a_denial"), ["W-098", "W-099", "W-100", "W-101"]);
    assert!(read("what_w078_says").is_empty());
    let source =
        "#[tokio::test]\nasync fn one() {}\nfn helper() {}\n#[test]\n#[ignore]\nfn two(a in 1..2) {}";
    assert_eq!(names(source), ["one", "two"]);
}
