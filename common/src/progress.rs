//! A line on the terminal that says how far long work has come; nothing where standard error is no terminal, or `--quiet` was given.

use std::fmt::Display;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::is_quiet;

/// What the line shows where the end is known, and where it is not: a bar without an end would look full.
const BOUNDED: &str = "{msg} [{wide_bar}] {pos}/{len}, {per_sec}, {eta} left";
const UNBOUNDED: &str = "{msg}, {elapsed}";

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
        let bar = ProgressBar::new(0).with_style(style(""));
        if is_quiet() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(bar)
    }

    /// A line below those of others.
    pub fn among(others: &MultiProgress) -> Self {
        if is_quiet() { Self::new() } else { Self(others.add(ProgressBar::new(0).with_style(style("")))) }
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
        // Each change is drawn: nothing may look as if it were done.
        if let Some(all) = all {
            // There may be more than was known before.
            self.0.set_length(all.max(done));
            self.0.set_position(done);
        }
        self.0.set_style(style(if all.is_some() { BOUNDED } else { UNBOUNDED }));
        self.0.set_message(message(what, done, all, &more.to_string()));
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

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

/// What is said about the work. The bar itself says how much is done, if there is one.
fn message(what: &str, done: u64, all: Option<u64>, more: &str) -> String {
    let number = if all.is_none() && done > 0 { done.to_string() } else { String::new() };
    let parts = [what, &number, more];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_said_where_no_bar_shows_it() {
        assert_eq!(message("listing", 0, None, ""), "listing");
        assert_eq!(message("listing", 7, None, "1.0 KiB"), "listing, 7, 1.0 KiB");
        assert_eq!(message("listing", 7, Some(9), "1.0 KiB"), "listing, 1.0 KiB");
    }

    #[test]
    fn more_than_was_known_before_makes_the_end_later() {
        let bar = Bar::new();
        bar.show(Step { what: "listing", done: 3, all: Some(2) }, "");
        assert_eq!((bar.0.position(), bar.0.length()), (3, Some(3)));
    }
}
