//! A progress line on the terminal; nothing if standard error is no terminal.

use indicatif::MultiProgress;
use resync_common::progress::{self, Step};
use resync_publisher::{
    check,
    publish::{Progress, Work},
};

/// A line that shows the progress of a build, a dump or a check.
pub(super) struct Bar(progress::Bar);

impl Bar {
    pub(super) fn new() -> Self {
        Self(progress::Bar::new())
    }

    /// On a line below those of others.
    pub(super) fn among(others: &MultiProgress) -> Self {
        Self(progress::Bar::among(others))
    }

    /// Shows how far a build or dump has come.
    pub(super) fn show(&self, Progress { work, done, all }: Progress) {
        if !self.0.is_hidden() {
            self.0.show(Step { what: name(work), done, all }, "");
        }
    }

    /// Shows how far a check has come.
    pub(super) fn show_check(&self, check::Progress { url, documents, known }: check::Progress<'_>) {
        if !self.0.is_hidden() {
            let done = u64::try_from(documents.saturating_sub(1)).unwrap_or(u64::MAX);
            let all = Some(u64::try_from(known).unwrap_or(u64::MAX));
            self.0.show(Step { what: "checking documents", done, all }, end_of(url));
        }
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

/// The message stands behind the bar.
const WIDTH: usize = 20;

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
        assert_eq!(end_of("https://h/a\x1b[2J"), "https://h/a[2J");
        let long = end_of(&format!("https://example.org/{}/end.xml", "x".repeat(200)));
        assert!(long.starts_with('…') && long.ends_with("x/end.xml") && long.chars().count() == WIDTH + 1);
    }
}
