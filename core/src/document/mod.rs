//! One model for every ResourceSync document: a header, and entries under one of two roots (RS-002, RS-013).
//!
//! [`RawDocument`] is what stands on the page and may break rules; [`Document`] is the proof that it breaks none. Each
//! kind of document has a typed constructor whose methods are what the matrices RS-060 and RS-061 allow.

mod archive;
mod capability;
mod capability_list;
mod change_dump;
mod change_list;
mod change_notification;
mod draft;
mod entry;
mod framework_notification;
mod link;
mod metadata;
mod priority;
mod related;
mod resource_dump;
mod resource_list;
mod source_description;

pub use archive::{
    ChangeDumpArchive, ChangeDumpArchiveIndex, ChangeListArchive, ChangeListArchiveIndex,
    ResourceDumpArchive, ResourceDumpArchiveIndex, ResourceListArchive, ResourceListArchiveIndex,
};
pub use capability::{Capability, Change, ChangeError};
pub use capability_list::CapabilityList;
pub use change_dump::{ChangeDump, ChangeDumpIndex, ChangeDumpManifest, ChangePackage, PackedChange};
pub use change_list::{ChangeList, ChangeListIndex, ResourceChange};
pub use change_notification::ChangeNotification;
pub use entry::{ChangeFrequency, ChangeFrequencyError, Entry};
pub use framework_notification::{FrameworkChange, FrameworkNotification};
pub use link::{Link, Relation};
pub(crate) use metadata::NO_METADATA;
pub use metadata::{ForeignAttribute, Metadata};
pub use priority::{Priority, PriorityError};
pub use related::{Mirror, Patch, Related};
pub use resource_dump::{Bitstream, Package, ResourceDump, ResourceDumpIndex, ResourceDumpManifest, ZIP};
pub use resource_list::{Resource, ResourceList, ResourceListIndex};
pub use source_description::{SourceDescription, SourceDescriptionIndex};

use crate::rules::{self, Violations};

/// The root element: whether a document lists things or groups documents of its own kind (RS-013, RS-014).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// `urlset`, with `url` entries.
    UrlSet,
    /// `sitemapindex`, with `sitemap` entries: an index.
    SitemapIndex,
}

impl Root {
    /// The local name of the root element.
    pub const fn element(self) -> &'static str {
        match self {
            Self::UrlSet => "urlset",
            Self::SitemapIndex => "sitemapindex",
        }
    }

    /// The local name of each entry's element.
    pub const fn entry_element(self) -> &'static str {
        match self {
            Self::UrlSet => "url",
            Self::SitemapIndex => "sitemap",
        }
    }
}

/// What stands before the first entry: the root element, its `rs:md` and its `rs:ln`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The root element.
    pub root: Root,
    /// The root's `rs:md`.
    pub metadata: Metadata,
    /// The root's `rs:ln`, in document order.
    pub links: Vec<Link>,
}

impl Header {
    /// A header with a capability and nothing else.
    pub fn new(root: Root, capability: Capability) -> Self {
        let metadata = Metadata { capability: Some(capability), ..Metadata::default() };
        Self { root, metadata, links: Vec::new() }
    }

    /// The first link with this relation.
    pub fn link(&self, relation: &Relation) -> Option<&Link> {
        self.links.iter().find(|link| link.rel == *relation)
    }

    /// The document's capability, if its `rs:md` names one.
    pub fn capability(&self) -> Option<&Capability> {
        self.metadata.capability.as_ref()
    }
}

/// A document as it was read or put together by hand; it may break rules.
///
/// [`rules::check`] says which; `Document::try_from` turns it into a [`Document`] when it breaks none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDocument {
    /// What stands before the first entry.
    pub header: Header,
    /// The `url` or `sitemap` elements, in document order.
    pub entries: Vec<Entry>,
}

/// A document that breaks no rule of severity [`Error`](rules::Severity::Error).
///
/// Only the check makes one: `TryFrom<RawDocument>`, the `build` of a typed constructor, or
/// [`Read::into_document`](crate::xml::Read::into_document).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document(RawDocument);

impl Document {
    /// What stands before the first entry.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// The entries, in document order.
    pub fn entries(&self) -> &[Entry] {
        &self.0.entries
    }

    /// The root element.
    pub fn root(&self) -> Root {
        self.0.header.root
    }

    /// The document's capability.
    pub fn capability(&self) -> &Capability {
        self.0.header.capability().expect("RS-010 is an error, so a checked document names its capability")
    }

    /// The first root link with this relation.
    pub fn link(&self, relation: &Relation) -> Option<&Link> {
        self.0.header.link(relation)
    }

    /// Gives the parts back, to change them and have them checked again.
    pub fn into_raw(self) -> RawDocument {
        self.0
    }

    /// For a caller that has already run the rules over this very document.
    pub(crate) fn from_checked(raw: RawDocument, violations: Violations) -> Result<Self, Violations> {
        if violations.is_conforming() { Ok(Self(raw)) } else { Err(violations) }
    }
}

impl TryFrom<RawDocument> for Document {
    type Error = Violations;

    /// Checks every rule; warnings do not stand in the way and are dropped.
    fn try_from(raw: RawDocument) -> Result<Self, Violations> {
        let violations = rules::check(&raw);
        Self::from_checked(raw, violations)
    }
}
