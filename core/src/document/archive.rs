//! The four archives and their indexes: lists and dumps that were current once (AR-001 to AR-018).

use super::draft::{Draft, document};
use super::{Capability, Entry, Root};
use crate::datetime::DateTime;

/// A document of an archive: what it is, its root and capability.
macro_rules! archived {
    ($document:ident, $root:ident, $archive:ident, $builds:expr) => {
        #[doc = $builds]
        #[derive(Clone, Debug)]
        #[must_use]
        pub struct $document(Draft);

        impl $document {
            /// An empty one; `up` is the Capability List.
            pub fn new(up: impl Into<String>) -> Self {
                Self(Draft::below(Root::$root, Capability::$archive, up))
            }
        }
    };
}

macro_rules! snapshot_archive {
    ($archive:ident, $name:literal, $listed:literal) => {
        archived!($archive, UrlSet, $archive, concat!("Builds a ", $name, " (AR-005)."));
        document!($archive: index);

        impl $archive {
            #[doc = concat!("Lists one ", $listed, ", or an index of them, with the start and end of its snapshot (AR-008).")]
            pub fn archived(
                mut self,
                loc: impl Into<String>,
                at: Option<DateTime>,
                completed: Option<DateTime>,
            ) -> Self {
                self.0.snapshot_entry(loc, at, completed);
                self
            }
        }
    };
}

macro_rules! change_archive {
    ($archive:ident, $name:literal, $listed:literal) => {
        archived!($archive, UrlSet, $archive, concat!("Builds a ", $name, " (AR-005)."));
        document!($archive: index);

        impl $archive {
            #[doc = concat!("Lists one closed ", $listed, ", or an index of them, with its interval; oldest first (AR-009).")]
            pub fn archived(mut self, loc: impl Into<String>, from: DateTime, until: DateTime) -> Self {
                self.0.interval_entry(loc, Some(from), Some(until));
                self
            }

            #[doc = concat!("Lists one ", $listed, " of which the interval is not told (AR-008).")]
            pub fn archived_undated(mut self, loc: impl Into<String>) -> Self {
                self.0.entry(Entry::new(loc));
                self
            }
        }
    };
}

macro_rules! archive_index {
    ($index:ident, $archive:ident, $name:literal) => {
        archived!(
            $index,
            SitemapIndex,
            $archive,
            concat!("Builds the index of several documents of one ", $name, " (AR-011).")
        );
        document!($index: );

        impl $index {
            /// Lists one archive document; an index has no times.
            pub fn archive(mut self, loc: impl Into<String>) -> Self {
                self.0.entry(Entry::new(loc));
                self
            }
        }
    };
}

snapshot_archive!(ResourceListArchive, "Resource List Archive", "Resource List");
snapshot_archive!(ResourceDumpArchive, "Resource Dump Archive", "Resource Dump");
change_archive!(ChangeListArchive, "Change List Archive", "Change List");
change_archive!(ChangeDumpArchive, "Change Dump Archive", "Change Dump");
archive_index!(ResourceListArchiveIndex, ResourceListArchive, "Resource List Archive");
archive_index!(ResourceDumpArchiveIndex, ResourceDumpArchive, "Resource Dump Archive");
archive_index!(ChangeListArchiveIndex, ChangeListArchive, "Change List Archive");
archive_index!(ChangeDumpArchiveIndex, ChangeDumpArchive, "Change Dump Archive");
