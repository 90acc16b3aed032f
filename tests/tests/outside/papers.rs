//! Documents that are checked against the tests: docs/reference/conformance.md is made of their names, docs/security.md names some.
//!
//! `RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test outside papers` writes docs/reference/conformance.md anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

const CRATES: [&str; 6] = ["common", "core", "hub", "publisher", "subscriber-kit", "tests"];
/// What begins the numbers of requirements.
const LETTERS: [&str; 10] = ["W", "C", "D", "B", "H", "RS", "AR", "CN", "FN", "MEM"];
/// The section of requirements.txt that only tests from outside can meet.
const OF_A_HUB: &str = "On a hub";
/// The numbers of each specification, of which none may be missing in requirements.txt.
const NUMBERS: [(&str, &[RangeInclusive<u32>]); 6] = [
    (
        "W",
        &[
            1..=34,
            40..=66,
            70..=80,
            85..=93,
            95..=103,
            105..=113,
            115..=124,
            130..=134,
            140..=160,
            165..=173,
            180..=195,
        ],
    ),
    (
        "RS",
        &[
            1..=7,
            10..=61,
            70..=75,
            80..=83,
            90..=96,
            100..=111,
            120..=130,
            140..=148,
            160..=165,
            170..=183,
            190..=202,
        ],
    ),
    ("AR", &[1..=18]),
    ("CN", &[1..=20]),
    ("FN", &[1..=13, 20..=28, 30..=49, 60..=63]),
    ("MEM", &[1..=6, 10..=15, 20..=36, 50..=64, 70..=72]),
];

/// What stands above the tables: what they are for, and how to look something up.
const INTRODUCTION: &str = "\
# Conformance

This page shows which test proves each requirement of WebSub and ResourceSync. It is a reference: search it for a number.
`tests/tests/outside/papers.rs` generates it from `tests/requirements.txt` and the names of the tests; do not edit it.

To look up a requirement, search this page for its number (`W-057`) or for a word of it. To run its tests, pass the number as it
stands in their names: `cargo test --workspace w057`. The letters say where a requirement comes from:

| number | source |
|---|---|
| W | WebSub |
| RS, AR | ResourceSync 1.1, and its archives |
| CN, FN | ResourceSync Notifications: Change Notifications, and Framework Notifications |
| MEM | versions of resources: Memento (RFC 7089), and chains of the alpha draft of ResourceSync |
| C | compatibility with the versions before WebSub |
| D | decisions of this project where WebSub is silent |
| B | further checks of this project |
| H | what the test suite websub.rocks asks of a hub; 100 to 106 are its own numbers |

The column *level* says how binding a requirement is:

| level | meaning |
|---|---|
| MUST, SHOULD | the word of the specification |
| MAY | the specification allows it, and this project does it |
| HOLDS | this project promises it; no specification asks for it in these words |
| DEVIATES | this project does otherwise than the specification asks; the row says why, and the level of the specification follows |
| LEFT | there is nothing to do, or nothing here is concerned; the row says why, and the level of the specification follows if it has one |

A test covers the numbers at the beginning of its name. Tests *over sockets* start `resync-hub` and talk to it from outside. Only these
tests cover a requirement on a hub; any test covers the other requirements. **none** marks a requirement that no test covers.
";

/// A line of requirements.txt.
struct Requirement {
    section: String,
    number: String,
    level: String,
    /// The specification's level, of what is not done.
    asked: Option<String>,
    words: String,
}

impl Requirement {
    fn is_done(&self) -> bool {
        !["LEFT", "DEVIATES"].contains(&self.level.as_str())
    }

    /// As in the tables.
    fn shown_level(&self) -> String {
        self.asked.as_ref().map_or_else(|| self.level.clone(), |asked| format!("{} ({asked})", self.level))
    }
}

/// A test, by its name.
struct Test {
    file: String,
    /// It talks to the real hub over sockets.
    is_black_box: bool,
}

/// The tests that carry a number.
#[derive(Default)]
struct Covering {
    black_box: Vec<String>,
    others: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn requirements() -> Vec<Requirement> {
    let text = fs::read_to_string(root().join("tests/requirements.txt")).unwrap();
    let mut requirements: Vec<Requirement> = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title;
        } else if !line.starts_with('#') {
            let mut parts = line.splitn(3, ' ').map(str::to_owned);
            let mut part = || parts.next().unwrap_or_else(|| panic!("three parts: {line}"));
            let (number, level, words) = (part(), part(), part());
            let (level, asked) = match level.split_once('-') {
                Some((level, asked)) => (level.to_owned(), Some(asked.to_owned())),
                None => (level, None),
            };
            let is_known = matches!(
                (level.as_str(), asked.as_deref()),
                ("MUST" | "SHOULD" | "MAY" | "HOLDS" | "LEFT", None)
                    | ("LEFT", Some("MUST" | "SHOULD" | "MAY"))
                    | ("DEVIATES", Some("MUST" | "SHOULD"))
            );
            assert!(is_known, "{line}");
            requirements.push(Requirement { section: section.to_owned(), number, level, asked, words });
        }
    }
    requirements
}

/// All tests by their names.
fn tests() -> BTreeMap<String, Test> {
    let mut found = BTreeMap::new();
    for file in CRATES.iter().flat_map(|name| WalkDir::new(root().join(name))) {
        let path = file.unwrap().into_path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root()).unwrap().display().to_string();
            let source = fs::read_to_string(&path).unwrap();
            let starting =
                if file.starts_with("tests/tests/") { starting_a_hub(&source) } else { BTreeSet::new() };
            for name in names(&source) {
                let is_black_box = starting.contains(name.as_str());
                found.insert(name, Test { file: file.clone(), is_black_box });
            }
        }
    }
    found
}

/// The functions that start the hub's binary, by themselves or by another function of the file.
fn starting_a_hub(source: &str) -> BTreeSet<&str> {
    let functions = functions(source);
    let mut starting = BTreeSet::new();
    loop {
        let starts = |text: &str| {
            text.contains("HubProcess::start")
                || starting
                    .iter()
                    .any(|name| text.match_indices(&format!("{name}(")).any(|(at, _)| !is_in_name(text, at)))
        };
        let more: Vec<_> =
            functions.iter().filter(|(name, text)| !starting.contains(name) && starts(text)).collect();
        if more.is_empty() {
            return starting;
        }
        starting.extend(more.into_iter().map(|(name, _)| *name));
    }
}

fn is_in_name(text: &str, at: usize) -> bool {
    text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The functions of a file with their bodies, which end where a brace stands as far right as they began.
fn functions(source: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut offset = 0;
    for line in source.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let trimmed = line.trim_start();
        let Some(rest) = trimmed.strip_prefix("async fn ").or_else(|| trimmed.strip_prefix("fn ")) else {
            continue;
        };
        let indentation = &line[..line.len() - trimmed.len()];
        let end = source[start..].find(&format!("\n{indentation}}}")).map_or(source.len(), |end| start + end);
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        found.push((name, &source[start + line.find('(').unwrap_or(0)..end]));
    }
    found
}

/// Functions below a `#[test]` or `#[tokio::test]`. Those that are ignored prove nothing.
fn names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut is_test, mut is_ignored) = (false, false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if let Some((before, after)) = line.split_once("fn ") {
            if is_test && !is_ignored && (before.is_empty() || before == "async ") {
                names.extend(after.split(['(', '<']).next().map(str::to_owned));
            }
            (is_test, is_ignored) = (false, false);
        }
    }
    names
}

/// The numbers at the beginning of a test's name: `w098_to_w101_b27_…` covers W-098 to W-101 and B-27.
fn numbers(name: &str) -> BTreeSet<String> {
    let mut numbers = BTreeSet::new();
    let (mut last, mut range) = (None, false);
    for word in name.split('_') {
        let Some((letters, number)) = number(word) else {
            if word == "to" && last.is_some() {
                range = true;
                continue;
            }
            break;
        };
        let first = last.filter(|(from, _)| range && *from == letters).map_or(number, |(_, first)| first);
        numbers.extend((first..=number).map(|number| written(letters, number)));
        (last, range) = (Some((letters, number)), false);
    }
    numbers
}

fn number(word: &str) -> Option<(&'static str, u32)> {
    let (letters, digits) = word.split_at(word.find(|c: char| c.is_ascii_digit())?);
    let letters = LETTERS.into_iter().find(|known| known.to_lowercase() == letters)?;
    (digits.len() >= 2).then(|| digits.parse().ok()).flatten().map(|number| (letters, number))
}

/// As it stands in requirements.txt.
fn written(letters: &str, number: u32) -> String {
    let is_of_this_project = ["C", "D", "B", "H"].contains(&letters);
    if is_of_this_project { format!("{letters}-{number:02}") } else { format!("{letters}-{number:03}") }
}

fn covering(tests: &BTreeMap<String, Test>) -> BTreeMap<String, Covering> {
    let mut covering: BTreeMap<String, Covering> = BTreeMap::new();
    for (name, Test { file, is_black_box }) in tests {
        for number in numbers(name) {
            let covering = covering.entry(number).or_default();
            let kind = if *is_black_box { &mut covering.black_box } else { &mut covering.others };
            kind.push(format!("`{name}` ({file})"));
        }
    }
    covering
}

/// Those that no test covers; a hub's are covered by a test over real sockets only.
fn uncovered<'a>(
    requirements: &'a [Requirement],
    covering: &BTreeMap<String, Covering>,
) -> Vec<&'a Requirement> {
    let is_covered = |one: &&Requirement| {
        let found = covering.get(&one.number);
        !one.is_done()
            || found.is_some_and(|found| {
                !found.black_box.is_empty() || (one.section != OF_A_HUB && !found.others.is_empty())
            })
    };
    requirements.iter().filter(|one| !is_covered(one)).collect()
}

fn conformance() -> String {
    let (requirements, covering) = (requirements(), covering(&tests()));
    let mut text = INTRODUCTION.to_owned();
    text.push_str(&not_done(&requirements));
    let open = uncovered(&requirements, &covering);
    for section in sections(&requirements) {
        let of_it: Vec<_> = requirements.iter().filter(|one| one.section == section).collect();
        let open: Vec<_> = open.iter().filter(|one| one.section == section).collect();
        let count = |level: &str| of_it.iter().filter(|one| one.level == level).count();
        let musts = open.iter().filter(|one| one.level == "MUST").count();
        write!(
            text,
            "\n## {section}\n\n{} requirements ({} MUST, {} SHOULD, {} DEVIATES, {} LEFT); {} without a test, {musts} of these a MUST.\n\n\
             | number | level | requirement | over sockets | other tests |\n|---|---|---|---|---|\n",
            of_it.len(),
            count("MUST"),
            count("SHOULD"),
            count("DEVIATES"),
            count("LEFT"),
            open.len(),
        )
        .unwrap();
        for one in of_it {
            row(&mut text, one, covering.get(&one.number), open.iter().any(|open| open.number == one.number));
        }
    }
    text
}

/// What a specification asks for by MUST or SHOULD and this project does not do, so that nobody has to search for it.
fn not_done(requirements: &[Requirement]) -> String {
    let is_asked = |one: &&Requirement| matches!(one.asked.as_deref(), Some("MUST" | "SHOULD"));
    let mut asked: Vec<_> = requirements.iter().filter(is_asked).collect();
    asked.sort_by_key(|one| (one.level != "DEVIATES", one.asked.clone()));
    let mut text = "
## Deviations

All that a specification asks for by MUST or SHOULD and this project does not do. Nothing else of that kind is left out. Each row also
stands in its section below.

| number | level | what is asked, and what is done instead |
|---|---|---|
"
    .to_owned();
    for one in asked {
        writeln!(text, "| {} | {} | {} |", one.number, one.shown_level(), one.words).unwrap();
    }
    text
}

/// In their order.
fn sections(requirements: &[Requirement]) -> Vec<&str> {
    let mut sections: Vec<_> = requirements.iter().map(|one| one.section.as_str()).collect();
    sections.dedup();
    sections
}

fn row(text: &mut String, one: &Requirement, covering: Option<&Covering>, is_open: bool) {
    let shown = |tests: fn(&Covering) -> &Vec<String>| {
        covering.map(|found| tests(found).join("<br>")).filter(|text| !text.is_empty())
    };
    let black_box = shown(|found| &found.black_box);
    let missing = if is_open { "**none**" } else { "–" };
    let Requirement { number, words, .. } = one;
    let level = one.shown_level();
    writeln!(
        text,
        "| {number} | {level} | {words} | {} | {} |",
        black_box.unwrap_or_else(|| missing.to_owned()),
        shown(|found| &found.others).unwrap_or_else(|| "–".to_owned())
    )
    .unwrap();
}

#[test]
fn the_table_of_conformance_is_that_of_the_tests_names() {
    let path = root().join("docs/reference/conformance.md");
    let made = conformance();
    if env::var_os("RESYNC_WRITE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/reference/conformance.md is stale: RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test outside papers"
    );
}

#[test]
fn no_must_and_nothing_that_a_hub_promises_is_without_a_test() {
    let (requirements, covering) = (requirements(), covering(&tests()));
    let open = uncovered(&requirements, &covering);
    let missing: Vec<_> = open.iter().filter(|one| one.section == OF_A_HUB || one.level == "MUST").collect();
    assert!(missing.is_empty(), "{:?}", missing.iter().map(|one| &one.number).collect::<Vec<_>>());
    assert!(
        requirements.iter().filter(|one| one.section == OF_A_HUB).count() > 150,
        "is the list still one?"
    );
}

#[test]
fn what_is_not_done_shows_the_level_that_the_specification_gives_it() {
    let requirements = requirements();
    let level = |number: &str| {
        let one = requirements.iter().find(|one| one.number == number).unwrap();
        one.shown_level()
    };
    // Whoever moves one of these to another level has read the specification again.
    let asked = [
        ("W-024", "LEFT (SHOULD)"),
        ("W-025", "LEFT (SHOULD)"),
        ("W-056", "DEVIATES (SHOULD)"),
        ("W-075", "DEVIATES (SHOULD)"),
        ("W-076", "DEVIATES (SHOULD)"),
    ];
    for (number, expected) in asked {
        assert_eq!(level(number), expected, "{number}");
    }
    let table = not_done(&requirements);
    let rows: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    assert_eq!(rows, ["number", "W-056", "W-075", "W-076", "W-024", "W-025"]);
}

#[test]
fn every_number_of_the_specifications_is_listed_and_every_number_of_a_test_is_known() {
    let mut listed = BTreeSet::new();
    for one in requirements() {
        // What is asked of several roles stands with each.
        let is_new = listed.insert(one.number.clone());
        assert!(is_new || one.section.starts_with("On a "), "{} stands twice", one.number);
    }
    for (letters, ranges) in NUMBERS {
        let all: BTreeSet<_> =
            ranges.iter().cloned().flatten().map(|number| written(letters, number)).collect();
        let of_these: BTreeSet<_> =
            listed.iter().filter(|number| number.starts_with(&format!("{letters}-"))).cloned().collect();
        assert_eq!(of_these, all, "{letters}");
    }
    for name in tests().keys() {
        let unknown: Vec<_> = numbers(name).difference(&listed).cloned().collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
    }
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
    assert_eq!(read("rs171_to_rs173_fn045_h08_of_both"), ["FN-045", "H-08", "RS-171", "RS-172", "RS-173"]);
    assert!(read("s300_http2_and_x12").is_empty());
    assert!(read("what_w078_says").is_empty());
}

#[test]
fn a_test_that_is_ignored_covers_nothing() {
    let source = "#[tokio::test]\nasync fn one() {}\nfn helper() {}\n#[test]\n#[ignore]\nfn two() {}\n\
        #[ignore = \"why\"]\n#[test]\nfn three() {}\n#[test]\nfn four(a in 1..2) {}";
    assert_eq!(names(source), ["one", "four"]);
}

#[test]
fn a_test_is_over_sockets_where_it_or_what_it_calls_starts_the_hub() {
    let source = "async fn scene() {\n    HubProcess::start().await;\n}\nfn other() {\n    a_scene();\n}\n\
        mod inner {\n    async fn far() {\n        if x {\n            near();\n        }\n    }\n    fn near() {\n        scene();\n    }\n}\n";
    assert_eq!(starting_a_hub(source).into_iter().collect::<Vec<_>>(), ["far", "near", "scene"]);
}
