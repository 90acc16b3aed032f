//! A command that measures, and the lines of the table that come of it.

use std::time::Duration;

use super::figure::Figure;

/// Something that is measured in one go, and the figures that come of it.
pub(super) struct Measurement {
    pub(super) name: &'static str,
    pub(super) program: Program,
    /// How long it takes about, on two cores.
    pub(super) seconds: u64,
    pub(super) figures: &'static [Figure],
}

impl Measurement {
    pub(super) fn expected(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// When it is given up.
    pub(super) fn bound(&self) -> Duration {
        2 * self.expected() + Duration::from_secs(120)
    }
}

/// What measures.
pub(super) enum Program {
    /// A command of this tool that answers in JSON.
    Load(&'static [&'static str]),
    /// A scenario, and what else `resync-load run` is told.
    Scenario(&'static str, &'static [&'static str]),
    /// The scenario `pinged` with a hub that others wrote.
    Peer,
    /// A test program of this repository, or some tests of it by what their names begin with, that takes its size from a variable.
    Test(&'static [&'static str], (&'static str, &'static str)),
    /// A benchmark of this repository: package, name, argument.
    Bench(&'static str, &'static str, &'static str),
    /// A script of this repository.
    Script(&'static [&'static str]),
}
