//! Resource List and its index: a set of resources at one point in time (RS-090 to RS-096).

use super::{Capability, ChangeFrequency, Document, Draft, Entry, Link, Metadata, Relation, Root};
use crate::datetime::DateTime;
use crate::digest::Hashes;
use crate::rules::Violations;

/// Builds a Resource List. The crate's first page has an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceList(Draft);

impl ResourceList {
    /// An empty Resource List; `at` is when the snapshot started, `up` the Capability List.
    pub fn new(at: DateTime, up: impl Into<String>) -> Self {
        Self(snapshot(Root::UrlSet, at, up))
    }

    /// When the taking of the snapshot ended.
    pub fn completed(mut self, completed: DateTime) -> Self {
        self.0.metadata().completed = Some(completed);
        self
    }

    /// Points at the Resource List Index that this list lies under (RS-054).
    pub fn index(mut self, href: impl Into<String>) -> Self {
        self.0.link(Relation::Index, href);
        self
    }

    /// Points at the Resource List Archive (AR-004).
    pub fn archives(mut self, href: impl Into<String>) -> Self {
        self.0.link(Relation::Archives, href);
        self
    }

    /// Lists one resource.
    pub fn resource(mut self, resource: Resource) -> Self {
        self.0.entry(resource);
        self
    }

    /// Checks the rules and makes the document.
    pub fn build(self) -> Result<Document, Violations> {
        self.0.build()
    }
}

/// Builds a Resource List Index, which groups Resource Lists of one snapshot (RS-094).
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::{ResourceListIndex, Root};
///
/// let at: DateTime = "2026-01-03T09:00:00Z".parse().unwrap();
/// let index = ResourceListIndex::new(at, "https://example.org/capabilitylist.xml")
///     .list("https://example.org/resourcelist-1.xml", Some(at), None)
///     .list("https://example.org/resourcelist-2.xml", None, None)
///     .build()?;
/// assert_eq!(index.root(), Root::SitemapIndex);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceListIndex(Draft);

impl ResourceListIndex {
    /// An empty index; `at` is the earliest start among its lists (RS-095), `up` the Capability List.
    pub fn new(at: DateTime, up: impl Into<String>) -> Self {
        Self(snapshot(Root::SitemapIndex, at, up))
    }

    /// The latest end among its lists (RS-095).
    pub fn completed(mut self, completed: DateTime) -> Self {
        self.0.metadata().completed = Some(completed);
        self
    }

    /// Lists one Resource List with the start and end of its snapshot.
    pub fn list(mut self, loc: impl Into<String>, at: Option<DateTime>, completed: Option<DateTime>) -> Self {
        let times = at.or(completed).map(|_| Metadata { at, completed, ..Metadata::default() });
        self.0.entry(Entry { metadata: times, ..Entry::new(loc) });
        self
    }

    /// Checks the rules and makes the document.
    pub fn build(self) -> Result<Document, Violations> {
        self.0.build()
    }
}

fn snapshot(root: Root, at: DateTime, up: impl Into<String>) -> Draft {
    let mut draft = Draft::new(root, Capability::ResourceList);
    draft.metadata().at = Some(at);
    draft.link(Relation::Up, up);
    draft
}

/// One resource of a Resource List.
#[derive(Clone, Debug)]
#[must_use]
pub struct Resource(Entry);

impl Resource {
    /// A resource at its URI.
    pub fn new(loc: impl Into<String>) -> Self {
        Self(Entry::new(loc))
    }

    /// When the representation was last modified.
    pub fn lastmod(mut self, lastmod: DateTime) -> Self {
        self.0.lastmod = Some(lastmod);
        self
    }

    /// How often it is expected to change.
    pub fn changefreq(mut self, frequency: ChangeFrequency) -> Self {
        self.0.changefreq = Some(frequency);
        self
    }

    /// Digests of the representation.
    pub fn hashes(mut self, hashes: Hashes) -> Self {
        self.metadata().hash = hashes;
        self
    }

    /// Length of the representation in bytes.
    pub fn length(mut self, length: u64) -> Self {
        self.metadata().length = Some(length);
        self
    }

    /// Media type of the representation.
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.metadata().media_type = Some(media_type.into());
        self
    }

    /// What `Content-Encoding` says of the representation.
    pub fn encoding(mut self, encoding: impl Into<String>) -> Self {
        self.metadata().encoding = Some(encoding.into());
        self
    }

    /// Something related to the resource (RS-170 to RS-180).
    pub fn link(mut self, link: Link) -> Self {
        self.0.links.push(link);
        self
    }

    fn metadata(&mut self) -> &mut Metadata {
        self.0.metadata.get_or_insert_default()
    }
}

impl From<Resource> for Entry {
    fn from(resource: Resource) -> Self {
        resource.0
    }
}
