//! The tables of our pages: an empty line tears one, and the rows below it show as text.

use std::fs;

use super::ours::{files, root};

/// The lines at which a table is torn, counted from 1: a row that comes after an empty line after a row, and begins no other table.
fn torn(page: &str) -> Vec<usize> {
    let lines: Vec<&str> = page.lines().collect();
    let is_row = |at: usize| lines.get(at).is_some_and(|line| line.starts_with('|'));
    let is_head = |at: usize| lines.get(at + 1).is_some_and(|line| line.starts_with("|--"));
    let before = |at: usize| lines[..at].iter().rposition(|line| !line.trim().is_empty());
    let is_torn = |at: &usize| {
        let above = before(*at).filter(|above| above + 1 < *at);
        is_row(*at) && !is_head(*at) && above.is_some_and(is_row)
    };
    (0..lines.len()).filter(is_torn).map(|at| at + 1).collect()
}

#[test]
fn no_table_is_torn_by_an_empty_line() {
    let mut rows = 0;
    for page in files("", "md") {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        assert_eq!(torn(&text), Vec::<usize>::new(), "{}", page.display());
        rows += text.lines().filter(|line| line.starts_with('|')).count();
    }
    assert!(rows > 500, "only {rows} rows: are these still all pages?");
}

#[test]
fn two_tables_are_two_and_a_row_apart_is_torn_off() {
    assert_eq!(torn("| a |\n|---|\n| 1 |\n\n| b |\n|---|\n| 2 |\n"), Vec::<usize>::new());
    assert_eq!(torn("| a |\n|---|\n\n| 1 |\n| 2 |\n\n\n| 3 |\n\ntext\n"), [4, 8]);
}
