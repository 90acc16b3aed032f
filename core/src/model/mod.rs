//! What stands in a ResourceSync document, whether it breaks rules or not: a header and entries under one of two roots
//! (RS-002, RS-013).
//!
//! This is the lower half of [`document`](crate::document), which shows all of it.

mod capability;
mod entry;
mod link;
mod metadata;
mod priority;
mod tokens;

pub use capability::{Capability, Change, ChangeError};
pub use entry::{ChangeFrequency, ChangeFrequencyError, Entry};
pub use link::{Link, Relation};
pub(crate) use metadata::NO_METADATA;
pub use metadata::{ForeignAttribute, Metadata};
pub use priority::{Priority, PriorityError};

use std::fmt;

/// The namespace of `urlset`, `url`, `loc` and their siblings.
pub const SITEMAP_NAMESPACE: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";
/// The namespace of `rs:md` and `rs:ln` (RS-003).
pub const RS_NAMESPACE: &str = "http://www.openarchives.org/rs/terms/";
/// The namespace that the prefix `xml` always stands for.
pub(crate) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
/// The namespace that the prefix `xmlns` always stands for.
pub(crate) const XMLNS_NAMESPACE: &str = "http://www.w3.org/2000/xmlns/";
/// Most entries of one document (RS-042).
pub const MAX_ENTRIES: usize = 50_000;
/// What the alpha draft called its lists of changes: the second of the two relations of each link that leads to one (MEM-001).
const CHANGE_SET: &str = "http://www.openarchives.org/rs/changeset";
/// The media type of the packages that the specification recommends (RS-101).
pub const ZIP: &str = "application/zip";

/// A position in the bytes of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Counted from 1.
    pub line: u64,
    /// Counted from 1, in bytes.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

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

    /// Where a document of the alpha draft leads: with `current` to the Change Set that is written now (ALPHA-020), with `prev` to the
    /// one before this (ALPHA-021). Such a link has two relations, and is read as two links with one target (MEM-003).
    pub fn change_set(&self, relation: &str) -> Option<&Link> {
        let is_of_a_set =
            |href: &str| self.links.iter().any(|link| link.rel.as_str() == CHANGE_SET && link.href == href);
        self.links.iter().find(|link| link.rel.as_str() == relation && is_of_a_set(&link.href))
    }

    /// The document's capability, if its `rs:md` names one.
    pub fn capability(&self) -> Option<&Capability> {
        self.metadata.capability.as_ref()
    }
}

/// A document as it was read or put together by hand; it may break rules.
///
/// [`rules::check`](crate::rules::check) says which; `Document::try_from` turns it into a
/// [`Document`](crate::document::Document) when it breaks none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDocument {
    /// What stands before the first entry.
    pub header: Header,
    /// The `url` or `sitemap` elements, in document order.
    pub entries: Vec<Entry>,
}
