//! What each fault came to, as a table.

use std::fmt;
use std::time::Duration;

/// A fault, until all was well again.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) lasted: Duration,
    /// The longest time in it without an acknowledged post.
    pub(crate) gap: Duration,
    /// Deliveries that came again because of it.
    pub(crate) repeats: usize,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, lasted, gap, repeats } = self;
        write!(f, "{label:<42} {:>7.1} {:>8} {repeats:>8}", lasted.as_secs_f64(), gap.as_millis())
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
        writeln!(f, "{:<42} {:>7} {:>8} {:>8}", "fault", "seconds", "gap ms", "repeats")?;
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
