//! When documents are closed, written anew, packed and archived.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When lists are closed or written anew, dumps made, and closed documents archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// A Change List is closed at this number of entries. Each run reads and writes the open one.
    pub change_list_entries: usize,
    /// It is closed by the first change at this age; `None` leaves it to the entries.
    pub change_list_seconds: Option<u64>,
    /// A Resource List of at most this many resources is written anew at every change.
    pub resource_list_small: u64,
    /// A longer one is written anew when the changes since the last one are this percentage of the resources,
    pub resource_list_percent: u8,
    /// or at this age if something has changed since.
    pub resource_list_seconds: Option<u64>,
    /// Number of Resource Lists that stay, all but the newest in an archive.
    pub resource_lists_kept: usize,
    /// A run makes a Resource Dump if there is none, or at this age of the last one if something has changed since; `None` leaves it to
    /// [`dump`](crate::publish::dump).
    pub resource_dump_seconds: Option<u64>,
    /// Number of Resource Dumps that stay, all but the newest in an archive.
    pub resource_dumps_kept: usize,
    /// When a run makes a Change Dump, as for Resource Dumps.
    pub change_dump_seconds: Option<u64>,
    /// Change Lists and Change Dumps whose last change has this age move from their index to an archive; `None` leaves them.
    pub archive_seconds: Option<u64>,
}

impl Default for Rules {
    /// Change Lists of 5,000 entries. A Resource List at every change up to 50,000 resources (one list holds them), then at 10 per cent or after 30 days.
    /// No dumps of its own accord, no archives.
    fn default() -> Self {
        Self {
            change_list_entries: 5_000,
            change_list_seconds: None,
            resource_list_small: 50_000,
            resource_list_percent: 10,
            resource_list_seconds: Some(30 * 24 * 60 * 60),
            resource_lists_kept: 1,
            resource_dump_seconds: None,
            resource_dumps_kept: 1,
            change_dump_seconds: None,
            archive_seconds: None,
        }
    }
}

impl Rules {
    /// The age at which a Change List is closed.
    pub fn change_list_age(self) -> Option<Duration> {
        self.change_list_seconds.map(Duration::from_secs)
    }

    /// The age at which a Resource List is written anew.
    pub fn resource_list_age(self) -> Option<Duration> {
        self.resource_list_seconds.map(Duration::from_secs)
    }

    /// The age at which a closed change document is archived.
    pub fn archive_age(self) -> Option<Duration> {
        self.archive_seconds.map(Duration::from_secs)
    }
}
