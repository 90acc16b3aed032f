//! A progress line on the terminal; nothing if stderr is no terminal.

use std::sync::{Mutex, PoisonError};

use indicatif::MultiProgress;
use resync_common::progress;
use resync_publisher::{
    check,
    publish::{Progress, Work},
};

const BOUNDED: &str = "{msg} [{wide_bar}] {pos}/{len}, {per_sec}, {eta} left";
const UNBOUNDED: &str = "{msg} {pos}, {per_sec}";

/// A bar with rate and time left.
pub(super) struct Bar {
    line: progress::Bar,
    /// Whether there is no terminal.
    is_hidden: bool,
    work: Mutex<Option<Work>>,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self::on(progress::Bar::new())
    }

    /// On a line below those of others.
    pub(super) fn among(others: &MultiProgress) -> Self {
        Self::on(progress::Bar::among(others))
    }

    fn on(line: progress::Bar) -> Self {
        Self { is_hidden: line.is_hidden(), line, work: Mutex::default() }
    }

    /// Shows how far a build or dump has come.
    pub(super) fn show(&self, step: Progress) {
        if self.is_hidden {
            return;
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.replace(step.work) != Some(step.work) {
            self.line.reset();
            self.line.set_length(step.all.unwrap_or(0));
            self.line.draw(if step.all.is_some() { BOUNDED } else { UNBOUNDED });
            self.line.set_message(name(step.work));
        }
        // There may be more than at the last build.
        if step.all.is_some_and(|all| step.done > all) {
            self.line.set_length(step.done);
        }
        self.line.set_position(step.done);
    }

    /// Shows how far a check has come.
    pub(super) fn show_check(&self, check::Progress { url, documents, known }: check::Progress<'_>) {
        if self.is_hidden {
            return;
        }
        if self.line.length() == Some(0) {
            self.line.draw(BOUNDED);
        }
        self.line.set_length(u64::try_from(known).unwrap_or(u64::MAX));
        self.line.set_position(u64::try_from(documents.saturating_sub(1)).unwrap_or(u64::MAX));
        self.line.set_message(format!("{documents} checked, now {}", end_of(url)));
    }
}

fn name(work: Work) -> &'static str {
    match work {
        Work::Looking => "looking at files",
        Work::Listing => "listing resources",
        Work::Packing => "packing resources",
        Work::PackingChanges => "packing changes",
        _ => "working",
    }
}

/// The message must leave room for the bar.
const WIDTH: usize = 30;

/// The end of a URL tells more than its beginning.
fn end_of(url: &str) -> String {
    let url: Vec<_> = url.chars().filter(|c| !c.is_control()).collect();
    let cut = url.len().saturating_sub(WIDTH);
    let lead = if cut == 0 { "" } else { "…" };
    format!("{lead}{}", url[cut..].iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_the_end_of_a_url_and_nothing_that_steers_a_terminal() {
        assert_eq!(end_of("https://example.org/a\x1b[2J"), "https://example.org/a[2J");
        let long = end_of(&format!("https://example.org/{}/end.xml", "x".repeat(200)));
        assert!(long.starts_with('…') && long.ends_with("x/end.xml") && long.chars().count() == WIDTH + 1);
    }
}
