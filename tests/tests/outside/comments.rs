//! Doc comments stand alone: an editor shows each without the one above it.

use std::collections::BTreeSet;
use std::fs;

use super::ours::{files, root};

/// How a comment begins that goes on from the one above it.
const GOES_ON: [&str; 2] = ["…", "The same"];

/// Where there are such comments still. Remove what has none, add nothing.
const LEFT: [&str; 6] =
    ["core/", "hub/src/admin/", "hub/src/store/", "publisher/", "subscriber-kit/", "tests/"];

/// The text of a line of a doc comment.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start)
}

/// The lines, counted from 1, at which a doc comment begins that goes on from the one above it.
fn going_on(source: &str) -> Vec<usize> {
    let lines: Vec<&str> = source.lines().collect();
    let begins = |at: usize| at == 0 || doc(lines[at - 1]).is_none();
    let goes_on = |at: &usize| {
        begins(*at)
            && doc(lines[*at]).is_some_and(|text| GOES_ON.iter().any(|beginning| text.starts_with(beginning)))
    };
    (0..lines.len()).filter(goes_on).map(|at| at + 1).collect()
}

#[test]
fn no_doc_comment_goes_on_from_the_one_above_it() {
    let (mut read, mut left, mut problems) = (0, BTreeSet::new(), Vec::new());
    for source in files("", "rs") {
        let path = source.to_string_lossy().into_owned();
        let lines = going_on(&fs::read_to_string(root().join(&source)).unwrap());
        read += 1;
        match LEFT.into_iter().find(|folder| path.starts_with(folder)) {
            Some(folder) if !lines.is_empty() => drop(left.insert(folder)),
            Some(_) => {}
            None => problems.extend(lines.iter().map(|line| format!("{path}:{line}: say what it is"))),
        }
    }
    assert!(read > 300, "only {read} files: are these still all?");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let clean: Vec<_> = LEFT.into_iter().filter(|folder| !left.contains(folder)).collect();
    assert!(clean.is_empty(), "remove from the list what has none any more: {clean:?}");
}

#[test]
fn a_comment_that_goes_on_is_found_where_it_begins() {
    assert_eq!(going_on("/// One …\na: u8,\n/// … and two.\nb: u8,\n"), [3]);
    assert_eq!(going_on("/// Three.\n/// The same as ever.\nc: u8,\n\n    /// The same again.\n"), [5]);
}
