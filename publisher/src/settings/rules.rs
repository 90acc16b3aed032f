//! When documents are closed, written anew, packed and archived.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When a Change List is closed, and when the Resource List is written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// A Change List is closed at so many entries. Each run reads and writes the open one.
    pub change_list_entries: usize,
    /// It is closed by the first change so many seconds after its first; `None` leaves it to the entries.
    pub change_list_seconds: Option<u64>,
    /// The Resource List of at most so many resources is written at every change.
    pub resource_list_small: u64,
    /// That of more is written when the changes since the last one are so many per cent of the resources,
    pub resource_list_percent: u8,
    /// or at the first run so many seconds after the last one that finds a change since.
    pub resource_list_seconds: Option<u64>,
    /// So many Resource Lists stay, all but the newest in an archive.
    pub resource_lists_kept: usize,
    /// A run makes a Resource Dump if there is none, or so many seconds after the last one if something has changed since; `None` leaves it
    /// to [`dump`](crate::publish::dump).
    pub resource_dump_seconds: Option<u64>,
    /// So many Resource Dumps stay, all but the newest in an archive.
    pub resource_dumps_kept: usize,
    /// The same as for Resource Dumps, for Change Dumps.
    pub change_dump_seconds: Option<u64>,
    /// Change Lists and Change Dumps whose last change is so many seconds old move from their index to an archive; `None` leaves them.
    pub archive_seconds: Option<u64>,
}

impl Default for Rules {
    /// 5,000 entries; at every change up to 50,000 resources, which one list holds, then at 10 per cent or after 30 days. No dumps, of
    /// those that are asked for the newest, no archives.
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
    /// How old a Change List gets.
    pub fn change_list_age(self) -> Option<Duration> {
        self.change_list_seconds.map(Duration::from_secs)
    }

    /// How old a Resource List gets.
    pub fn resource_list_age(self) -> Option<Duration> {
        self.resource_list_seconds.map(Duration::from_secs)
    }

    /// How old a closed change document gets before it is archived.
    pub fn archive_age(self) -> Option<Duration> {
        self.archive_seconds.map(Duration::from_secs)
    }
}
