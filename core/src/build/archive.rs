//! The four archives: documents that were current once, split at the limits and grouped under an index (AR-001 to AR-016).

use super::parts::{Kind, Part, Parts};
use super::settings::{Published, Settings, Site};
use super::{BuildError, Sink};
use crate::datetime::DateTime;
use crate::document::{
    ChangeDumpArchive, ChangeDumpArchiveIndex, ChangeListArchive, ChangeListArchiveIndex, Document, Entry,
    Header, Metadata, ResourceDumpArchive, ResourceDumpArchiveIndex, ResourceListArchive,
    ResourceListArchiveIndex,
};
use crate::rules::Violations;
use crate::xml::Limits;

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
    const fn stem(self) -> &'static str {
        match self {
            Self::ResourceLists => "resourcelist-archive",
            Self::ResourceDumps => "resourcedump-archive",
            Self::ChangeLists => "changelist-archive",
            Self::ChangeDumps => "changedump-archive",
        }
    }
}

/// Makes an archive, or as many as the limits ask for and their index.
///
/// ```
/// use resync_core::build::{ArchiveKind, Archives, MemorySink, Site};
///
/// let (noon, one) = ("2026-01-03T12:00:00Z".parse()?, "2026-01-03T13:00:00Z".parse()?);
/// let mut sink = MemorySink::default();
/// let published = Archives::new(&Site::new("https://example.org/resync"), ArchiveKind::ChangeLists)
///     .write([("https://example.org/resync/changelist-1.xml", Some(noon), Some(one))], &mut sink)?;
/// assert_eq!(published.documents, ["changelist-archive.xml"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Archives {
    kind: ArchiveKind,
    settings: Settings,
}

impl Archives {
    /// An archive called after its kind, such as `changelist-archive.xml`.
    pub fn new(site: &Site, kind: ArchiveKind) -> Self {
        Self { kind, settings: Settings::new(site, kind.stem()) }
    }

    /// When one document ends and the next begins; at most the limits of RS-042.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limit(limits);
        self
    }

    /// Lists archived documents: URI, and `at` and `completed` of a snapshot, or `from` and `until` of changes, the latter oldest
    /// first (AR-008, AR-009).
    pub fn write<S: Sink, L: Into<String>>(
        &self,
        archived: impl IntoIterator<Item = (L, Option<DateTime>, Option<DateTime>)>,
        sink: &mut S,
    ) -> Result<Published, BuildError> {
        let mut archives = Parts::new(self, &self.settings, DateTime::now(), sink)?;
        for (loc, start, end) in archived {
            archives.entry(&self.entry(loc.into(), start, end))?;
        }
        archives.publish()
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

impl Kind for &Archives {
    fn header(&self, index: Option<String>, _: Option<DateTime>) -> Header {
        let up = self.settings.site.capability_list();
        macro_rules! header {
            ($archive:ident) => {
                match index {
                    Some(index) => $archive::new(up).index(index).header(),
                    None => $archive::new(up).header(),
                }
            };
        }
        match self.kind {
            ArchiveKind::ResourceLists => header!(ResourceListArchive),
            ArchiveKind::ResourceDumps => header!(ResourceDumpArchive),
            ArchiveKind::ChangeLists => header!(ChangeListArchive),
            ArchiveKind::ChangeDumps => header!(ChangeDumpArchive),
        }
    }

    fn index(&self, parts: Vec<Part>) -> Result<Document, Violations> {
        let up = self.settings.site.capability_list();
        let urls = parts.into_iter().map(|part| part.url);
        macro_rules! index {
            ($index:ident) => {
                urls.fold($index::new(up), $index::archive).build()
            };
        }
        match self.kind {
            ArchiveKind::ResourceLists => index!(ResourceListArchiveIndex),
            ArchiveKind::ResourceDumps => index!(ResourceDumpArchiveIndex),
            ArchiveKind::ChangeLists => index!(ChangeListArchiveIndex),
            ArchiveKind::ChangeDumps => index!(ChangeDumpArchiveIndex),
        }
    }

    fn completed(&self) -> Option<DateTime> {
        None
    }
}
