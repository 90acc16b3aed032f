//! What the four generators of lists and dumps have in common: where documents go, how they are called, how long they get.

use super::course::Position;
use super::names::folder_url;
use crate::document::{Header, Link, Metadata, Relation, Root};
use crate::xml::{Limits, MAX_BYTES, MAX_ENTRIES};

/// The URL of the folder that a [`Sink`](super::Sink)'s documents are served from.
///
/// ```
/// use resync_core::build::Site;
///
/// let site = Site::new("https://example.org/resync");
/// assert_eq!(site.url("resourcelist.xml"), "https://example.org/resync/resourcelist.xml");
/// assert_eq!(site.capability_list(), "https://example.org/resync/capabilitylist.xml");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    url: String,
}

impl Site {
    /// The name of the Capability List.
    pub const CAPABILITY_LIST: &str = "capabilitylist.xml";

    /// Documents at this URL; a slash at its end is optional.
    pub fn new(url: &str) -> Self {
        Self { url: folder_url(url) }
    }

    /// The URL of a document.
    pub fn url(&self, name: &str) -> String {
        format!("{}{name}", self.url)
    }

    /// The URL of the Capability List, which all others point up at (RS-053).
    pub fn capability_list(&self) -> String {
        self.url(Self::CAPABILITY_LIST)
    }

    /// The name of a document of this folder.
    pub(super) fn name<'a>(&self, url: &'a str) -> Option<&'a str> {
        url.strip_prefix(&self.url)
    }
}

/// Where documents of one kind go, and how.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) site: Site,
    pub(super) stem: String,
    pub(super) limits: Limits,
    pub(super) archives: Option<String>,
}

impl Settings {
    pub(super) fn new(site: &Site, stem: &str) -> Self {
        Self { site: site.clone(), stem: stem.to_owned(), limits: Limits::default(), archives: None }
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        self.limits =
            Limits { bytes: limits.bytes.min(MAX_BYTES), entries: limits.entries.clamp(1, MAX_ENTRIES) };
    }

    /// The document that the Capability List points at: the only one, or the index.
    pub(super) fn top(&self) -> String {
        format!("{}.xml", self.stem)
    }

    /// The archive of these documents.
    pub(super) fn archive(&self) -> Self {
        Self { stem: format!("{}-archive", self.stem), archives: None, ..self.clone() }
    }

    /// The header of one of these documents: below the Capability List (RS-053), under an index, with an archive.
    pub(super) fn header(
        &self,
        root: Root,
        metadata: Metadata,
        index: Option<String>,
        archives: Option<&String>,
    ) -> Header {
        let mut links = vec![Link::new(Relation::Up, self.site.capability_list())];
        links.extend(index.map(|index| Link::new(Relation::Index, index)));
        links.extend(archives.map(|archives| Link::new(Relation::Archives, archives)));
        Header { root, metadata, links }
    }

    /// A document under the index that keeps its name.
    pub(super) fn component(&self, number: u64) -> String {
        format!("{}-{number}.xml", self.stem)
    }

    /// The number of a document under the index.
    pub(super) fn number(&self, url: &str) -> Option<u64> {
        self.number_of(self.site.name(url)?)
    }

    /// Whether a name is that of a document under the index.
    pub(super) fn is_component(&self, name: &str) -> bool {
        self.number_of(name).is_some()
    }

    fn number_of(&self, name: &str) -> Option<u64> {
        name.strip_prefix(&self.stem)?.strip_prefix('-')?.strip_suffix(".xml")?.parse().ok()
    }
}

/// What was published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The names of the documents, in the order they were published: what others point at comes first.
    pub documents: Vec<String>,
    /// How many resources, changes or packages were added.
    pub entries: u64,
    /// How many resources or changes a dump does not list, because their bytes are gone.
    pub gone: u64,
    pub(super) top: Option<String>,
    pub(super) position: Option<Position>,
}

impl Published {
    /// The document that the Capability List points at, if it was written.
    pub fn top(&self) -> Option<&str> {
        self.top.as_deref()
    }

    /// How far a series of change documents has come; `None` for documents that do not go on.
    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

/// Gives a generator with a field `settings` the methods that all have.
macro_rules! settings {
    ($generator:ident) => {
        impl $generator {
            /// The beginning of the names: what [`new`](Self::new) says, with this in place of the name of the capability. Documents of
            /// several sets in one folder need a stem each.
            pub fn stem(mut self, stem: impl Into<String>) -> Self {
                self.settings.stem = stem.into();
                self
            }

            /// When one document ends and the next begins; at most the limits of RS-042.
            pub fn limits(mut self, limits: $crate::xml::Limits) -> Self {
                self.settings.limit(limits);
                self
            }
        }
    };
}

/// The same for what has archives.
macro_rules! archived {
    ($generator:ident) => {
        impl $generator {
            /// The archive of this kind of document, or its index (AR-004).
            pub fn archives(mut self, url: impl Into<String>) -> Self {
                self.settings.archives = Some(url.into());
                self
            }
        }
    };
}

pub(super) use {archived, settings};
