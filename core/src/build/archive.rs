//! The four archives: documents that were current once, split at the limits and grouped under an index (AR-001 to AR-016).

use super::parts::{Kind, Part, Parts};
use super::settings::{Published, Settings, Site, settings};
use super::{BuildError, Sink};
use crate::datetime::DateTime;
use crate::document::{Capability, Document, Entry, Header, Metadata, RawDocument, Root};
use crate::rules::Violations;

/// What is archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// Resource Lists, or indexes of them.
    ResourceLists,
    /// Resource Dumps, or indexes of them.
    ResourceDumps,
    /// Closed Change Lists, or indexes of them.
    ChangeLists,
    /// Closed Change Dumps, or indexes of them.
    ChangeDumps,
}

impl ArchiveKind {
    const fn capability(self) -> Capability {
        match self {
            Self::ResourceLists => Capability::ResourceListArchive,
            Self::ResourceDumps => Capability::ResourceDumpArchive,
            Self::ChangeLists => Capability::ChangeListArchive,
            Self::ChangeDumps => Capability::ChangeDumpArchive,
        }
    }

    fn metadata(self) -> Metadata {
        Metadata { capability: Some(self.capability()), ..Metadata::default() }
    }
}

/// Makes an archive, or as many as the limits ask for and their index.
///
/// ```
/// use resync_core::build::{ArchiveKind, Archives, MemorySink, Site};
///
/// let (noon, one) = ("2026-01-03T12:00:00Z".parse()?, "2026-01-03T13:00:00Z".parse()?);
/// let mut sink = MemorySink::default();
/// let site = Site::new("https://example.org/resync");
/// let published = Archives::new(&site, ArchiveKind::ChangeLists, one)
///     .write([("https://example.org/resync/changelist-1.xml", Some(noon), Some(one))], &mut sink)?;
/// assert_eq!(published.documents, ["changelist-archive.xml"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Archives {
    kind: ArchiveKind,
    settings: Settings,
    at: DateTime,
}

impl Archives {
    /// An archive called after its kind, such as `changelist-archive.xml`, and under an index, where the limits ask for one,
    /// `changelist-archive-20260103T090000Z-1.xml`, …; `at` is the moment of the run.
    pub fn new(site: &Site, kind: ArchiveKind, at: DateTime) -> Self {
        Self { kind, settings: Settings::new(site, kind.capability().token()), at }
    }

    pub(super) fn of(settings: Settings, kind: ArchiveKind, at: DateTime) -> Self {
        Self { kind, settings, at }
    }

    /// Lists archived documents: URI, and `at` and `completed` of a snapshot, or `from` and `until` of changes, the latter oldest
    /// first (AR-008, AR-009).
    pub fn write<S: Sink, L: Into<String>>(
        &self,
        archived: impl IntoIterator<Item = (L, Option<DateTime>, Option<DateTime>)>,
        sink: &mut S,
    ) -> Result<Published, BuildError> {
        let mut archives = Parts::new(self, &self.settings, self.at, sink)?;
        for (loc, start, end) in archived {
            archives.entry(&self.entry(loc.into(), start, end))?;
        }
        archives.stage()?.publish(sink)
    }

    fn entry(&self, loc: String, start: Option<DateTime>, end: Option<DateTime>) -> Entry {
        let metadata = match self.kind {
            ArchiveKind::ResourceLists | ArchiveKind::ResourceDumps => {
                Metadata { at: start, completed: end, ..Metadata::default() }
            }
            ArchiveKind::ChangeLists | ArchiveKind::ChangeDumps => {
                Metadata { from: start, until: end, ..Metadata::default() }
            }
        };
        Entry { metadata: start.or(end).map(|_| metadata), ..Entry::new(loc) }
    }
}

settings!(Archives);

impl Kind for &Archives {
    fn header(&self, index: Option<String>, _: Option<DateTime>) -> Header {
        self.settings.header(Root::UrlSet, self.kind.metadata(), index, None)
    }

    fn index(&self, parts: Vec<Part>) -> Result<Document, Violations> {
        let header = self.settings.header(Root::SitemapIndex, self.kind.metadata(), None, None);
        let entries = parts.into_iter().map(|part| Entry::new(part.url)).collect();
        RawDocument { header, entries }.try_into()
    }

    fn completed(&self) -> Option<DateTime> {
        None
    }
}
