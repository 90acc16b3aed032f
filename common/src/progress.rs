//! A line on the terminal that says how far long work has come; nothing where standard error is no terminal, or `--quiet` was given.

use std::fmt::Display;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::is_quiet;

/// What the line shows where the end is known, and where it is not: a bar without an end would look full.
const BOUNDED: &str = "{prefix} [{wide_bar}] {pos}/{len}{msg}, {eta} left";
const UNBOUNDED: &str = "{prefix}{msg}, {elapsed}";

/// A line with a bar. It is taken back when this is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

/// How far work has come.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Such as "packing resources".
    pub what: &'a str,
    /// How many are done.
    pub done: u64,
    /// Of how many, if that is known.
    pub all: Option<u64>,
}

impl Bar {
    /// A line of its own, which appears when it first shows something.
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        if is_quiet() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(bar)
    }

    /// A line below those of others.
    pub fn among(others: &MultiProgress) -> Self {
        if is_quiet() { Self::new() } else { Self(others.add(ProgressBar::new(0))) }
    }

    /// Whether nobody sees it.
    pub fn is_hidden(&self) -> bool {
        self.0.is_hidden()
    }

    /// Takes the line back.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }

    /// Shows how far the work has come, and `more` about it.
    pub fn show(&self, Step { what, done, all }: Step<'_>, more: impl Display) {
        let all = all.filter(|all| *all > 0);
        if self.0.prefix() != what {
            self.0.reset();
            self.0.set_prefix(what.to_owned());
        }
        let (template, message) = line(done, all, &more.to_string());
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.0.set_style(style.progress_chars("=> "));
        self.0.set_message(message);
        // There may be more than was known before.
        self.0.set_length(all.unwrap_or(0).max(done));
        self.0.set_position(done);
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The template of the line, and what is said about the work.
fn line(done: u64, all: Option<u64>, more: &str) -> (&'static str, String) {
    let more = if more.is_empty() { String::new() } else { format!(", {more}") };
    match all {
        Some(_) => (BOUNDED, more),
        None if done > 0 => (UNBOUNDED, format!(", {done}{more}")),
        None => (UNBOUNDED, more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_only_where_the_end_is_known() {
        assert_eq!(line(0, None, ""), (UNBOUNDED, String::new()));
        assert_eq!(line(7, None, "1.0 KiB"), (UNBOUNDED, ", 7, 1.0 KiB".to_owned()));
        assert_eq!(line(7, Some(9), "1.0 KiB"), (BOUNDED, ", 1.0 KiB".to_owned()));
    }

    #[test]
    fn more_than_was_known_before_makes_the_end_later() {
        let bar = Bar::new();
        bar.show(Step { what: "listing", done: 3, all: Some(2) }, "");
        assert_eq!((bar.0.position(), bar.0.length()), (3, Some(3)));
        bar.show(Step { what: "listing", done: 0, all: Some(0) }, "");
        assert_eq!(bar.0.length(), Some(0));
    }
}
