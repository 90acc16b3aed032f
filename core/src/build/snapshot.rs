//! What Resource Lists and Resource Dumps say of their snapshot, in every document and in the index (RS-090 to RS-108).

use super::parts::{Kind, Part};
use super::settings::Settings;
use crate::datetime::DateTime;
use crate::document::{Capability, Document, Entry, Header, Metadata, RawDocument, Root};
use crate::rules::Violations;

/// What a snapshot says of its end (RS-021).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completed {
    /// Nothing.
    #[default]
    Unstated,
    /// This moment.
    At(DateTime),
    /// For each document the moment at which its last entry was there, for inventories that are taken while they are listed.
    Now,
}

impl Completed {
    pub(super) fn after(self, at: DateTime) -> Option<DateTime> {
        match self {
            Self::Unstated => None,
            Self::At(moment) => Some(moment),
            Self::Now => Some(DateTime::now().max(at)),
        }
    }
}

/// One snapshot.
#[derive(Clone, Debug)]
pub(super) struct Snapshot<'a> {
    pub(super) capability: Capability,
    pub(super) settings: &'a Settings,
    pub(super) at: DateTime,
    pub(super) completed: Completed,
}

impl Snapshot<'_> {
    fn header_of(&self, root: Root, index: Option<String>, completed: Option<DateTime>) -> Header {
        let capability = Some(self.capability.clone());
        let metadata = Metadata { capability, at: Some(self.at), completed, ..Metadata::default() };
        self.settings.header(root, metadata, index, self.settings.archives.as_ref())
    }
}

impl Kind for Snapshot<'_> {
    fn header(&self, index: Option<String>, completed: Option<DateTime>) -> Header {
        self.header_of(Root::UrlSet, index, completed)
    }

    fn index(&self, parts: Vec<Part>) -> Result<Document, Violations> {
        let completed = parts.last().and_then(|part| part.completed);
        let header = self.header_of(Root::SitemapIndex, None, completed);
        let entry = |Part { url, completed }| {
            Entry::with_metadata(url, Metadata { at: Some(self.at), completed, ..Metadata::default() })
        };
        RawDocument { header, entries: parts.into_iter().map(entry).collect() }.try_into()
    }

    fn completed(&self) -> Option<DateTime> {
        self.completed.after(self.at)
    }
}
