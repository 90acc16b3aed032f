//! What each fault came to, as a table.

use std::fmt;
use std::time::Duration;

/// A fault, until all was well again.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) lasted: Duration,
    /// The longest time in it without an acknowledged post.
    pub(crate) posts_gap: Duration,
    /// The longest time in it without a delivery to some host.
    pub(crate) deliveries_gap: Duration,
    /// Deliveries that came again because of it.
    pub(crate) repeats: usize,
    /// So many might have come again.
    pub(crate) most_repeats: usize,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, lasted, posts_gap, deliveries_gap, repeats, most_repeats } = self;
        let (seconds, posts, deliveries) =
            (lasted.as_secs_f64(), posts_gap.as_millis(), deliveries_gap.as_millis());
        write!(f, "{label:<42} {seconds:>7.1} {posts:>8} {deliveries:>8} {repeats:>8} {most_repeats:>8}")
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Line>);

impl Report {
    pub(crate) fn add(&mut self, line: Line) {
        self.0.push(line);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = ("fault", "seconds", "posts ms", "deliv ms", "repeats", "at most");
        let (label, seconds, posts, deliveries, repeats, most) = columns;
        writeln!(f, "{label:<42} {seconds:>7} {posts:>8} {deliveries:>8} {repeats:>8} {most:>8}")?;
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
