//! The mutants of tests/mutants.toml, which tests/mutate makes: each can be made, each has a killer, and docs/mutants.md is their table.
//!
//! `RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test outside mutants` writes docs/mutants.md anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;
use walkdir::WalkDir;

/// The crates of the product, and how many mutants each has at least.
const CRATES: [&str; 4] = ["core", "hub", "publisher", "subscriber-kit"];
const OF_EACH: usize = 10;

/// What stands above the table.
const INTRODUCTION: &str = "\
# Mutants

Each row is a fault that is put into the product on purpose, and the test that then fails. So this page shows what the tests
would notice. `tests/mutate` compiles all mutants at once, and wakes one at a time. `tests/tests/outside/mutants.rs` generates
this page from `tests/mutants.toml`; do not edit it.

```sh
tests/mutate                       # each mutant against the test that is named here
tests/mutate --only hub-commit-without-sync
tests/mutate --all                 # each against all of tests/run
tests/mutate --draw 100 --seed 7   # draws others, by cargo-mutants
```

A mutant that survives needs a new test, or an explanation why nobody could notice it.
";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutants {
    mutant: Vec<Mutant>,
    #[serde(default)]
    draw: Vec<Draw>,
    #[serde(default)]
    explained: Vec<Explained>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    #[serde(rename = "crate")]
    of: String,
    file: String,
    before: String,
    after: String,
    /// What a user would lose.
    breaks: String,
    /// The package and the test program.
    killer: String,
    test: String,
}

/// What came of a draw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draw {
    seed: u64,
    drawn: usize,
    does_not_compile: usize,
    killed: usize,
    /// Those that survived at first.
    killed_by_new_tests: usize,
    explained: usize,
    /// Nobody has seen yet what becomes of these, or why.
    open: Vec<String>,
}

/// A drawn mutant that survives, and nobody could notice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Explained {
    name: String,
    why: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn mutants() -> Mutants {
    toml::from_str(&fs::read_to_string(root().join("tests/mutants.toml")).unwrap()).unwrap()
}

fn page(Mutants { mutant, draw, explained }: &Mutants) -> String {
    let mut text = INTRODUCTION.to_owned();
    for of in CRATES {
        write!(text, "\n## {of}\n\n| mutant | what it breaks | killed by |\n|---|---|---|\n").unwrap();
        for Mutant { name, breaks, killer, test, .. } in mutant.iter().filter(|one| one.of == of) {
            let test = test.rsplit("::").next().unwrap();
            writeln!(text, "| {name} | {breaks} | `{test}` ({killer}) |").unwrap();
        }
    }
    text.push_str(
        "
## Drawn

`--draw` takes its mutants from delivery's scheduler, the store, the rules of documents and the egress guard. *Open* are those of
which nobody has seen yet what becomes of them, or why; a run ends with their names.

| seed | drawn | did not compile | killed | killed by new tests | explained | open |
|---|---|---|---|---|---|---|
",
    );
    for Draw { seed, drawn, does_not_compile, killed, killed_by_new_tests, explained, open } in draw {
        let open = open.len();
        writeln!(
            text,
            "| {seed} | {drawn} | {does_not_compile} | {killed} | {killed_by_new_tests} | {explained} | {open} |"
        )
        .unwrap();
    }
    let open: Vec<_> = draw.iter().flat_map(|draw| &draw.open).map(|name| format!("`{name}`")).collect();
    if !open.is_empty() {
        write!(text, "\nOpen: {}.\n", open.join("; ")).unwrap();
    }
    if !explained.is_empty() {
        text.push_str("\nThese survive, and nobody could notice them:\n\n| mutant | why |\n|---|---|\n");
    }
    for Explained { name, why } in explained {
        writeln!(text, "| `{name}` | {why} |", name = name.replace('|', "\\|")).unwrap();
    }
    text
}

/// The sources of the test program of each package.
fn sources(killer: &str) -> PathBuf {
    let (package, program) = killer.split_once(' ').unwrap();
    let folder = package.strip_prefix("resync-").unwrap();
    root().join(folder).join(if program == "lib" { "src".to_owned() } else { format!("tests/{program}") })
}

/// What stands between the name of a file and that of a test: nothing, its own tests, or the engine for which a macro makes them.
const INSIDE_FILES: [&str; 4] = ["", "tests", "fjall", "postgres"];

/// The modules that this file of these sources is.
fn modules(sources: &Path, file: &Path) -> String {
    let path = file.strip_prefix(sources).unwrap().with_extension("");
    let names = path.iter().map(|name| name.to_str().unwrap());
    names.filter(|name| !["lib", "main", "mod"].contains(name)).collect::<Vec<_>>().join("::")
}

#[test]
fn the_page_of_mutants_is_made_of_their_list() {
    let path = root().join("docs/mutants.md");
    let made = page(&mutants());
    if env::var_os("RESYNC_WRITE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == made,
        "docs/mutants.md is stale: RESYNC_WRITE_DOCS=1 cargo test -p resync-tests --test outside mutants"
    );
}

#[test]
fn every_crate_has_mutants_of_different_names_and_each_can_be_made() {
    let mutants = mutants().mutant;
    let names: BTreeSet<_> = mutants.iter().map(|one| &one.name).collect();
    assert_eq!(names.len(), mutants.len(), "two of one name");
    for of in CRATES {
        let count = mutants.iter().filter(|one| one.of == of).count();
        assert!(count >= OF_EACH, "{of}: {count}");
    }
    for Mutant { name, of, file, before, after, .. } in &mutants {
        assert!(file.starts_with(&format!("{of}/src/")), "{name}: {file}");
        let source = fs::read_to_string(root().join(file)).unwrap();
        assert_eq!(source.matches(before.as_str()).count(), 1, "{name}: `before` stands once in {file}");
        assert_ne!(before, after, "{name}");
    }
}

#[test]
fn of_all_that_was_drawn_it_is_said_what_became_of_it() {
    for Draw { seed, drawn, does_not_compile, killed, killed_by_new_tests, explained, open } in mutants().draw
    {
        let open = open.len();
        assert_eq!(does_not_compile + killed + killed_by_new_tests + explained + open, drawn, "{seed}");
    }
}

/// The script asks for a test by its whole name: one that has moved would be none.
#[test]
fn every_test_that_is_to_kill_a_mutant_is_where_its_name_says() {
    for Mutant { name, killer, test, .. } in mutants().mutant {
        let (of, function) = test.rsplit_once("::").unwrap_or(("", test.as_str()));
        let (sources, function) = (sources(&killer), format!("fn {function}("));
        let is_meant = |file: &Path| {
            let inside = of.strip_prefix(modules(&sources, file).as_str());
            inside.is_some_and(|inside| inside.split("::").all(|name| INSIDE_FILES.contains(&name)))
        };
        let files = WalkDir::new(&sources).into_iter().map(|entry| entry.unwrap().into_path());
        let mut files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        let is_there =
            files.any(|path| is_meant(&path) && fs::read_to_string(&path).unwrap().contains(&function));
        assert!(is_there, "{name}: {killer} has no test {test}");
    }
}
