//! Reads one document of a Source: what it says about itself, and the lists or packages that it names.

use std::fs::File;
use std::io::BufReader;

use resync_core::datetime::DateTime;
use resync_core::document::{Capability, Entry, Header, Relation, Root};
use resync_core::xml::{ReadError, Reader};
use url::Url;

use super::filter::matches_type;
use crate::fetch::led_to;
use crate::sync::SyncError;
use crate::sync::failure::shortened;
use crate::sync::files::local::Facts;

/// Media types of ZIP files; the last is a generic one.
const ZIP_TYPES: [&str; 6] = [
    "application/zip",
    "application/x-zip",
    "application/x-zip-compressed",
    "application/zip-compressed",
    "multipart/x-zip",
    "application/octet-stream",
];

/// Reads the entries of a document.
pub(crate) type Entries<'f> = Reader<BufReader<&'f File>>;

/// What is expected at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// A Resource List or Resource Dump; a plain Sitemap serves as a Resource List (RS-050).
    Resources,
    /// A Resource Dump.
    ResourceDump,
    /// A Change List, a Change Dump, or an archive of them.
    Changes,
    /// An archive of Resource Lists or Resource Dumps.
    ResourceArchive,
}

impl Expected {
    fn includes(self, found: Option<&Capability>) -> bool {
        use Capability::{
            ChangeDump, ChangeDumpArchive, ChangeList, ChangeListArchive, ResourceDump, ResourceDumpArchive,
            ResourceList, ResourceListArchive,
        };
        match self {
            Self::Resources => matches!(found, None | Some(ResourceList | ResourceDump)),
            Self::ResourceDump => matches!(found, Some(ResourceDump)),
            Self::Changes => {
                matches!(found, Some(ChangeList | ChangeDump | ChangeListArchive | ChangeDumpArchive))
            }
            Self::ResourceArchive => matches!(found, Some(ResourceListArchive | ResourceDumpArchive)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Resources => "Resource List",
            Self::ResourceDump => "Resource Dump",
            Self::Changes => "Change List or Change Dump",
            Self::ResourceArchive => "Resource List Archive",
        }
    }
}

/// A document without the entries of its resources.
pub(crate) struct Document {
    pub(crate) url: Url,
    pub(crate) capability: Option<Capability>,
    pub(crate) is_index: bool,
    pub(crate) at: Option<DateTime>,
    pub(crate) completed: Option<DateTime>,
    pub(crate) from: Option<DateTime>,
    pub(crate) until: Option<DateTime>,
    /// The index that names this document.
    pub(crate) index: Option<Url>,
    /// The archive of older documents.
    pub(crate) archives: Option<Url>,
    /// In a chain of alpha Change Sets, the one that is written now, and the one before this (MEM-001).
    pub(crate) current: Option<Url>,
    pub(crate) prev: Option<Url>,
    /// The lists of an index or archive.
    pub(crate) parts: Vec<Part>,
    /// The packages of a dump.
    pub(crate) packages: Vec<ListedPackage>,
}

/// A list in an index or archive.
pub(crate) struct Part {
    pub(crate) url: Url,
    pub(crate) at: Option<DateTime>,
    pub(crate) from: Option<DateTime>,
    pub(crate) until: Option<DateTime>,
}

/// A package as a dump lists it.
#[derive(Clone, Debug)]
pub(crate) struct ListedPackage {
    pub(crate) url: Url,
    pub(crate) facts: Facts,
    pub(crate) at: Option<DateTime>,
    pub(crate) until: Option<DateTime>,
    /// The copy of its manifest beside it (RS-103).
    pub(crate) contents: Option<Url>,
    /// Its media type if it is not a ZIP file (RS-101).
    pub(crate) other_format: Option<String>,
}

impl Document {
    /// Reads what precedes the entries; of an index, archive or dump also these. Those of a plain list remain to be read.
    pub(crate) fn read<'f>(
        url: &Url,
        file: &'f File,
        expected: Expected,
    ) -> Result<(Self, Entries<'f>), SyncError> {
        let mut entries = Reader::new(BufReader::new(file)).map_err(|error| unreadable(url, error))?;
        let mut document = Self::of(url, entries.header());
        if !expected.includes(document.capability.as_ref()) {
            let found = document.capability.map_or_else(|| "sitemap".to_owned(), |found| found.to_string());
            return Err(SyncError::WrongKind {
                url: Box::new(url.clone()),
                found,
                expected: expected.name(),
            });
        }
        if document.is_index || document.is_archive() {
            for entry in entries.by_ref() {
                let entry = entry.map_err(|error| unreadable(url, error))?;
                document.parts.push(Part::of(&entry, url)?);
            }
        } else if document.is_dump() {
            for entry in entries.by_ref() {
                let entry = entry.map_err(|error| unreadable(url, error))?;
                document.packages.push(ListedPackage::of(&entry, url)?);
            }
        }
        Ok((document, entries))
    }

    fn of(url: &Url, header: &Header) -> Self {
        let link = |relation| header.link(&relation).and_then(|link| led_to(url, &link.href));
        let in_chain = |relation| header.change_set(relation).and_then(|link| led_to(url, &link.href));
        let metadata = &header.metadata;
        Self {
            url: url.clone(),
            capability: header.capability().cloned(),
            is_index: header.root == Root::SitemapIndex,
            at: metadata.at,
            completed: metadata.completed,
            from: metadata.from,
            until: metadata.until,
            index: link(Relation::Index),
            archives: link(Relation::Archives),
            current: in_chain("current"),
            prev: in_chain("prev"),
            parts: Vec::new(),
            packages: Vec::new(),
        }
    }

    /// Whether it, or what it is the index of, is a dump.
    pub(crate) fn is_dump(&self) -> bool {
        matches!(self.capability, Some(Capability::ResourceDump | Capability::ChangeDump))
    }

    /// Whether it is an alpha Change Set of a chain: what it does not list may be in the sets before it (MEM-004).
    pub(crate) fn is_chained(&self) -> bool {
        let is_set = !self.is_index && self.capability == Some(Capability::ChangeList);
        is_set && (self.current.is_some() || self.prev.is_some())
    }

    fn is_archive(&self) -> bool {
        use Capability::{ChangeDumpArchive, ChangeListArchive, ResourceDumpArchive, ResourceListArchive};
        matches!(
            self.capability,
            Some(ChangeListArchive | ChangeDumpArchive | ResourceListArchive | ResourceDumpArchive)
        )
    }

    /// The URLs that it names and that are kept in memory.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &Url> {
        self.parts.iter().map(|part| &part.url).chain(self.packages.iter().flat_map(ListedPackage::urls))
    }
}

impl Part {
    fn of(entry: &Entry, document: &Url) -> Result<Self, SyncError> {
        let metadata = entry.metadata.as_ref();
        Ok(Self {
            url: named(entry, document)?,
            at: metadata.and_then(|metadata| metadata.at),
            from: metadata.and_then(|metadata| metadata.from),
            until: metadata.and_then(|metadata| metadata.until),
        })
    }
}

impl ListedPackage {
    fn of(entry: &Entry, dump: &Url) -> Result<Self, SyncError> {
        let metadata = entry.metadata.clone().unwrap_or_default();
        let contents = entry.link(&Relation::Contents);
        Ok(Self {
            url: named(entry, dump)?,
            facts: Facts::of(entry),
            at: metadata.at,
            until: metadata.until,
            contents: contents.and_then(|link| led_to(dump, &link.href)),
            other_format: metadata.media_type.filter(|written| !may_be_zip(written)).map(|it| shortened(&it)),
        })
    }

    /// The URLs that are kept in memory.
    fn urls(&self) -> impl Iterator<Item = &Url> {
        [&self.url].into_iter().chain(&self.contents)
    }
}

fn may_be_zip(written: &str) -> bool {
    ZIP_TYPES.iter().any(|pattern| matches_type(pattern, Some(written)))
}

/// The document or package that an entry names.
fn named(entry: &Entry, document: &Url) -> Result<Url, SyncError> {
    led_to(document, &entry.loc)
        .ok_or_else(|| SyncError::Component { index: document.clone(), loc: shortened(&entry.loc) })
}

pub(crate) fn unreadable(url: &Url, source: ReadError) -> SyncError {
    SyncError::List { url: url.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs101_a_zip_file_is_known_by_any_name_that_servers_have_for_it() {
        for written in ["application/zip", "Application/ZIP; charset=binary", "application/x-zip-compressed"]
        {
            assert!(may_be_zip(written), "{written}");
        }
        assert!(!may_be_zip("application/x-tar") && !may_be_zip("application/zip+xml"));
    }
}
