//! What the typed constructors share: the draft of a document, and methods that several kinds have in common.

use super::{Capability, Change, Document, Entry, Header, Link, Metadata, RawDocument, Relation, Root};
use crate::datetime::DateTime;
use crate::rules::Violations;

/// What a typed constructor collects before the rules see it.
#[derive(Clone, Debug)]
pub(super) struct Draft(RawDocument);

impl Draft {
    pub(super) fn new(root: Root, capability: Capability) -> Self {
        Self(RawDocument { header: Header::new(root, capability), entries: Vec::new() })
    }

    /// A document right below `up`.
    pub(super) fn below(root: Root, capability: Capability, up: impl Into<String>) -> Self {
        let mut draft = Self::new(root, capability);
        draft.link(Relation::Up, up);
        draft
    }

    /// A document about a set at one moment.
    pub(super) fn snapshot(root: Root, capability: Capability, at: DateTime, up: impl Into<String>) -> Self {
        let mut draft = Self::below(root, capability, up);
        draft.metadata().at = Some(at);
        draft
    }

    /// A document about the changes since a moment.
    pub(super) fn changes(root: Root, capability: Capability, from: DateTime, up: impl Into<String>) -> Self {
        let mut draft = Self::below(root, capability, up);
        draft.metadata().from = Some(from);
        draft
    }

    pub(super) fn metadata(&mut self) -> &mut Metadata {
        &mut self.0.header.metadata
    }

    pub(super) fn link(&mut self, relation: Relation, href: impl Into<String>) {
        self.0.header.links.push(Link::new(relation, href));
    }

    pub(super) fn entry(&mut self, entry: impl Into<Entry>) {
        self.0.entries.push(entry.into());
    }

    /// An entry that points at the document of one snapshot.
    pub(super) fn snapshot_entry(
        &mut self,
        loc: impl Into<String>,
        at: Option<DateTime>,
        completed: Option<DateTime>,
    ) {
        let metadata = at.or(completed).map(|_| Metadata { at, completed, ..Metadata::default() });
        self.entry(Entry { metadata, ..Entry::new(loc) });
    }

    /// An entry that points at the document of one interval.
    pub(super) fn interval_entry(&mut self, loc: impl Into<String>, from: DateTime, until: Option<DateTime>) {
        self.entry(Entry::with_metadata(loc, Metadata { from: Some(from), until, ..Metadata::default() }));
    }

    pub(super) fn header(&self) -> Header {
        self.0.header.clone()
    }

    pub(super) fn build(self) -> Result<Document, Violations> {
        self.0.try_into()
    }
}

/// The `rs:md` of an entry whose representation can be described: nothing is left of what is deleted (RS-129).
pub(super) fn described(entry: &mut Entry) -> Option<&mut Metadata> {
    let metadata = entry.metadata.get_or_insert_default();
    (metadata.change != Some(Change::Deleted)).then_some(metadata)
}

/// Gives a tuple struct over a [`Draft`] its `header` and `build`, and the methods named.
macro_rules! document {
    ($document:ident: $($method:ident)*) => {
        impl $document {
            $($crate::document::draft::document_method!($method);)*

            /// What stands before the first entry, for an [`xml::Writer`](crate::xml::Writer) that entries are streamed to.
            pub fn header(&self) -> $crate::document::Header {
                self.0.header()
            }

            /// Checks the rules and makes the document.
            pub fn build(self) -> Result<$crate::document::Document, $crate::rules::Violations> {
                self.0.build()
            }
        }
    };
}

macro_rules! document_method {
    (completed) => {
        /// When the taking of the snapshot ended (RS-021).
        pub fn completed(mut self, completed: $crate::datetime::DateTime) -> Self {
            self.0.metadata().completed = Some(completed);
            self
        }
    };
    (until) => {
        /// Closes the document: it has all changes up to this moment and is never updated again (RS-023).
        pub fn until(mut self, until: $crate::datetime::DateTime) -> Self {
            self.0.metadata().until = Some(until);
            self
        }
    };
    (index) => {
        /// Points at the index that this document lies under (RS-054).
        pub fn index(mut self, href: impl Into<String>) -> Self {
            self.0.link($crate::document::Relation::Index, href);
            self
        }
    };
    (archives) => {
        /// Points at the archive of this kind of document, or its index (AR-004).
        pub fn archives(mut self, href: impl Into<String>) -> Self {
            self.0.link($crate::document::Relation::Archives, href);
            self
        }
    };
    (closed) => {
        /// Lists a document that is closed.
        pub fn closed(
            mut self,
            loc: impl Into<String>,
            from: $crate::datetime::DateTime,
            until: $crate::datetime::DateTime,
        ) -> Self {
            self.0.interval_entry(loc, from, Some(until));
            self
        }
    };
    (open) => {
        /// Lists the document that is still open: the last one (RS-127).
        pub fn open(mut self, loc: impl Into<String>, from: $crate::datetime::DateTime) -> Self {
            self.0.interval_entry(loc, from, None);
            self
        }
    };
    (described_by) => {
        /// Points at a description of what the document covers: a Source or a set of resources (RS-056).
        pub fn described_by(mut self, href: impl Into<String>) -> Self {
            self.0.link($crate::document::Relation::DescribedBy, href);
            self
        }
    };
}

/// Gives a tuple struct over an [`Entry`] the way into one, and the methods named.
macro_rules! entry {
    ($entry:ident: $($method:ident)*) => {
        impl $entry {
            $($crate::document::draft::entry_method!($method);)*
        }

        impl From<$entry> for $crate::document::Entry {
            fn from(entry: $entry) -> Self {
                entry.0
            }
        }
    };
}

macro_rules! entry_method {
    (package) => {
        /// A ZIP package of `length` bytes.
        pub fn zip(loc: impl Into<String>, length: u64) -> Self {
            Self::new(loc, $crate::document::ZIP, length)
        }

        /// A package of another format; harms interoperability (RS-101, RS-142).
        pub fn new(loc: impl Into<String>, media_type: impl Into<String>, length: u64) -> Self {
            let mut entry = $crate::document::Entry::new(loc);
            let metadata = entry.metadata.get_or_insert_default();
            metadata.media_type = Some(media_type.into());
            metadata.length = Some(length);
            Self(entry)
        }
    };
    (lastmod) => {
        /// When the representation was last modified, as in HTTP (RS-031).
        pub fn lastmod(mut self, lastmod: $crate::datetime::DateTime) -> Self {
            self.0.lastmod = Some(lastmod);
            self
        }
    };
    (changefreq) => {
        /// How often it is expected to change.
        pub fn changefreq(mut self, frequency: $crate::document::ChangeFrequency) -> Self {
            self.0.changefreq = Some(frequency);
            self
        }
    };
    (priority) => {
        /// What the sitemap protocol calls its priority; ResourceSync has no use for it.
        pub fn priority(mut self, priority: $crate::document::Priority) -> Self {
            self.0.priority = Some(priority);
            self
        }
    };
    (datetime) => {
        /// When it changed (RS-030, RS-123).
        pub fn datetime(mut self, datetime: $crate::datetime::DateTime) -> Self {
            self.0.metadata.get_or_insert_default().datetime = Some(datetime);
            self
        }
    };
    (hashes) => {
        /// Digests of the representation; left out of a deletion (RS-129).
        pub fn hashes(mut self, hashes: $crate::digest::Hashes) -> Self {
            if let Some(metadata) = $crate::document::draft::described(&mut self.0) {
                metadata.hash = hashes;
            }
            self
        }
    };
    (length) => {
        /// Length of the representation in bytes; left out of a deletion (RS-129).
        pub fn length(mut self, length: u64) -> Self {
            if let Some(metadata) = $crate::document::draft::described(&mut self.0) {
                metadata.length = Some(length);
            }
            self
        }
    };
    (media_type) => {
        /// Media type of the representation; left out of a deletion (RS-129).
        pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
            if let Some(metadata) = $crate::document::draft::described(&mut self.0) {
                metadata.media_type = Some(media_type.into());
            }
            self
        }
    };
    (encoding) => {
        /// What `Content-Encoding` says of the representation (RS-037); left out of a deletion.
        pub fn encoding(mut self, encoding: impl Into<String>) -> Self {
            if let Some(metadata) = $crate::document::draft::described(&mut self.0) {
                metadata.encoding = Some(encoding.into());
            }
            self
        }
    };
    (foreign) => {
        /// Something that another community says of it (RS-016).
        pub fn foreign(mut self, attribute: $crate::document::ForeignAttribute) -> Self {
            self.0.metadata.get_or_insert_default().foreign.push(attribute);
            self
        }
    };
    (link) => {
        /// Something related to it (RS-170 to RS-183); [`Link`](crate::document::Link) has a constructor for each relation.
        pub fn link(mut self, link: impl Into<$crate::document::Link>) -> Self {
            self.0.links.push(link.into());
            self
        }
    };
    (packed_link) => {
        /// Something related to it that lies in the same package, at a path such as `/metadata/1.xml` (RS-040).
        pub fn packed_link(
            mut self,
            link: impl Into<$crate::document::Link>,
            path: impl Into<String>,
        ) -> Self {
            self.0.links.push($crate::document::Link { path: Some(path.into()), ..link.into() });
            self
        }
    };
    (contents) => {
        /// Points at a copy of the package's manifest outside the package, equal in content (RS-103).
        pub fn contents(mut self, href: impl Into<String>) -> Self {
            self.0.links.push($crate::document::Link {
                media_type: Some("application/xml".to_owned()),
                ..$crate::document::Link::new($crate::document::Relation::Contents, href)
            });
            self
        }
    };
}

pub(super) use {document, document_method, entry, entry_method};
