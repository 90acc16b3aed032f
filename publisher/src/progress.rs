//! One line on the terminal that says how far long work has come; nothing where stderr is no terminal.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use resync_publisher::publish::{Progress as Step, Work};

/// A bar with rate and time left; it is taken back when this is dropped.
pub(crate) struct Bar {
    bar: ProgressBar,
    work: Mutex<Option<Work>>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { bar: ProgressBar::new(0), work: Mutex::default() }
    }

    /// How far a build or dump has come.
    pub(crate) fn tell(&self, step: Step) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.replace(step.work) != Some(step.work) {
            self.bar.reset();
            self.bar.set_length(step.all.unwrap_or(0));
            self.bar.set_style(style(step.all.is_some()));
            self.bar.set_message(words(step.work));
        }
        // There may be more than there were.
        if step.all.is_some_and(|all| step.done > all) {
            self.bar.set_length(step.done);
        }
        self.bar.set_position(step.done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(is_bounded: bool) -> ProgressStyle {
    let template = if is_bounded {
        "{msg} [{wide_bar}] {pos}/{len}, {per_sec}, {eta} left"
    } else {
        "{msg} {pos}, {per_sec}"
    };
    ProgressStyle::with_template(template)
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "))
}

fn words(work: Work) -> &'static str {
    match work {
        Work::Looking => "looking at files",
        Work::Listing => "listing resources",
        Work::Packing => "packing resources",
        Work::PackingChanges => "packing changes",
        _ => "working",
    }
}

/// Often enough to see that something moves.
const EVERY: Duration = Duration::from_millis(100);
/// The line must not wrap, or it could not be taken back.
const WIDTH: usize = 60;

/// The line; it is taken back when this is dropped.
pub(crate) struct Progress {
    is_shown: bool,
    asked: usize,
    last: Option<Instant>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { is_shown: io::stderr().is_terminal(), asked: 0, last: None }
    }

    /// Something is asked for.
    pub(crate) fn tell(&mut self, url: &str) {
        self.asked += 1;
        if !self.is_shown || self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        write(&format!("\r\x1b[K{}", line(self.asked, url)));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            write("\r\x1b[K");
        }
    }
}

/// The end of a URL tells more than its beginning.
fn line(asked: usize, url: &str) -> String {
    let url: Vec<_> = url.chars().filter(|c| !c.is_control()).collect();
    let cut = url.len().saturating_sub(WIDTH);
    let lead = if cut == 0 { "" } else { "…" };
    format!("{asked} looked at, now {lead}{}", url[cut..].iter().collect::<String>())
}

/// A terminal that has gone is no reason to stop.
fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_keeps_the_end_of_a_url_and_nothing_that_steers_a_terminal() {
        assert_eq!(line(3, "https://example.org/a\x1b[2J"), "3 looked at, now https://example.org/a[2J");
        let long = format!("https://example.org/{}/end.xml", "x".repeat(200));
        assert!(line(1, &long).ends_with("x/end.xml") && line(1, &long).chars().count() < 80);
    }
}
