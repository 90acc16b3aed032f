//! A line on the terminal that says how far long work has come; nothing where standard error is no terminal, or `--quiet` was given.

use std::fmt::{self, Display};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::is_quiet;
use crate::words::Lasting;

/// What the line shows where the end is known, and where it is not: a bar without an end would look full.
const BOUNDED: &str = "{prefix} [{bar:12}] {pos}/{len}{pace}{wide_msg}";
const UNBOUNDED: &str = "{msg}, {elapsed}";
/// Below this, whole numbers are too coarse for a rate.
const FEW: f64 = 9.95;
/// What is less would be shown as zero.
const NOTHING: f64 = 0.05;

/// A line with a bar. It is taken back when this is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

/// How far work has come.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Such as "packing resources"; the last word says what is counted.
    pub what: &'a str,
    /// How many are done.
    pub done: u64,
    /// Of how many, if that is known.
    pub all: Option<u64>,
}

impl Bar {
    /// A line of its own, which appears when it first shows something.
    pub fn new() -> Self {
        let bar = ProgressBar::new(0).with_style(style("", ""));
        if is_quiet() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(bar)
    }

    /// A line below those of others.
    pub fn among(others: &MultiProgress) -> Self {
        if is_quiet() { Self::new() } else { Self(others.add(ProgressBar::new(0).with_style(style("", "")))) }
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
        let all = end(done, all);
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
        self.0.set_style(style(if all.is_some() { BOUNDED } else { UNBOUNDED }, unit(what)));
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

fn style(template: &str, unit: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let unit = unit.to_owned();
    style.progress_chars("=> ").with_key("pace", move |state: &ProgressState, line: &mut dyn fmt::Write| {
        // A line in memory takes everything.
        let _ = line.write_str(&pace(state.per_sec(), state.eta(), &unit));
    })
}

/// The end of the work, as soon as it says something: of one document that is still to be read, more may follow.
fn end(done: u64, all: Option<u64>) -> Option<u64> {
    all.filter(|all| *all > u64::from(done == 0))
}

/// What is counted.
fn unit(what: &str) -> &str {
    what.rsplit_once(' ').map_or("", |(_, unit)| unit)
}

/// How fast the work goes, and how long it still takes; nothing before that is known.
fn pace(per_second: f64, left: Duration, unit: &str) -> String {
    if per_second < NOTHING {
        return String::new();
    }
    let number = if per_second < FEW { format!("{per_second:.1}") } else { format!("{per_second:.0}") };
    let rate = format!("{number} {unit}");
    let seconds = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
    let left = match seconds {
        0 => String::new(),
        seconds => format!(", {} left", Lasting(Duration::from_secs(seconds))),
    };
    format!(", {}/s{left}", rate.trim_end())
}

/// What is said about the work. Where there is a bar, that shows what is done and how much.
fn message(what: &str, done: u64, all: Option<u64>, more: &str) -> String {
    if all.is_some() {
        return if more.is_empty() { String::new() } else { format!(", {more}") };
    }
    let number = if done > 0 { done.to_string() } else { String::new() };
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
        assert_eq!(message("listing", 7, Some(9), "1.0 KiB"), ", 1.0 KiB");
        assert_eq!(message("listing", 7, Some(9), ""), "");
    }

    #[test]
    fn a_rate_is_a_plain_number_with_what_is_counted() {
        let files = |rate| pace(rate, Duration::from_millis(89_100), unit("packing files"));
        assert_eq!(files(21_025.530_6), ", 21026 files/s, 1 min 30 s left");
        assert_eq!(
            [files(9.96), files(9.94)],
            [", 10 files/s, 1 min 30 s left", ", 9.9 files/s, 1 min 30 s left"]
        );
        assert_eq!(pace(3.0, Duration::ZERO, unit("working")), ", 3.0/s");
    }

    #[test]
    fn nothing_is_shown_before_it_is_known() {
        assert_eq!(pace(0.0, Duration::ZERO, "files"), "");
        assert_eq!(pace(0.04, Duration::from_secs(7), "files"), "");
        assert_eq!([end(0, Some(0)), end(0, Some(1)), end(1, None)], [None; 3]);
        assert_eq!([end(1, Some(1)), end(0, Some(2)), end(3, Some(2))], [Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn more_than_was_known_before_makes_the_end_later() {
        let bar = Bar::new();
        bar.show(Step { what: "listing", done: 3, all: Some(2) }, "");
        assert_eq!((bar.0.position(), bar.0.length()), (3, Some(3)));
    }
}
