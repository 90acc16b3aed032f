//! What a build does besides when the [rules](crate::settings::Rules) say so, archives and dumps, and what came of it.

use std::{fmt, sync::Arc, time::Instant};

use resync_core::document::Capability;

use super::Written;
use crate::error::Error;

/// What is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Every resource (RS-100).
    Resources,
    /// Every change since the last Change Dump, with the bytes that it led to (RS-140).
    Changes,
}

impl Dump {
    /// The capability of its documents.
    pub fn capability(self) -> Capability {
        match self {
            Self::Resources => Capability::ResourceDump,
            Self::Changes => Capability::ChangeDump,
        }
    }
}

/// What a build does besides, by the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Documents that were closed long enough ago move to the archives.
    Archives,
    /// A dump is made.
    Dump(Dump),
    /// The bytes of old versions are removed.
    OldVersions,
}

/// What was due and failed. The changes are published all the same, and the next build tries again.
#[derive(Clone, Debug)]
pub struct MaintenanceFailure {
    /// What was to be done.
    pub what: Maintenance,
    /// Why it was not.
    pub error: Arc<Error>,
}

impl MaintenanceFailure {
    pub(super) fn of(what: Maintenance, error: impl Into<Error>) -> Self {
        Self { what, error: Arc::new(error.into()) }
    }
}

impl fmt::Display for MaintenanceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            Maintenance::Archives => "a due archive was not made",
            Maintenance::Dump(Dump::Resources) => "a due Resource Dump was not made",
            Maintenance::Dump(Dump::Changes) => "a due Change Dump was not made",
            Maintenance::OldVersions => "old versions were not removed",
        };
        write!(f, "{what}: {}", self.error)
    }
}

/// What maintenance did.
#[derive(Clone, Debug, Default)]
pub struct MaintenanceReport {
    /// The documents that were written.
    pub written: Vec<Written>,
    /// What was due and failed.
    pub failures: Vec<MaintenanceFailure>,
    /// Whether a due dump is left to a task that makes it beside the builds.
    pub(super) dump_is_due: bool,
    /// When the next dump comes due, or may be tried again, even if nothing changes until then.
    pub(crate) next_dump: Option<Instant>,
}
