//! Resource List and its index: a set of resources at one point in time (RS-090 to RS-096).

use super::draft::{Draft, document, entry};
use super::{Capability, Entry, Root};
use crate::datetime::DateTime;

/// Builds a Resource List. The crate's first page has an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceList(Draft);

impl ResourceList {
    /// An empty Resource List; `at` is when the snapshot started, `up` the Capability List.
    pub fn new(at: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::snapshot(Root::UrlSet, Capability::ResourceList, at, up))
    }

    /// Lists one resource.
    pub fn resource(mut self, resource: Resource) -> Self {
        self.0.entry(resource);
        self
    }
}

document!(ResourceList: completed index archives);

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
        Self(Draft::snapshot(Root::SitemapIndex, Capability::ResourceList, at, up))
    }

    /// Lists one Resource List with the start and end of its snapshot.
    pub fn list(mut self, loc: impl Into<String>, at: Option<DateTime>, completed: Option<DateTime>) -> Self {
        self.0.snapshot_entry(loc, at, completed);
        self
    }
}

document!(ResourceListIndex: completed archives);

/// One resource of a Resource List.
#[derive(Clone, Debug)]
#[must_use]
pub struct Resource(Entry);

impl Resource {
    /// A resource at its URI.
    pub fn new(loc: impl Into<String>) -> Self {
        Self(Entry::new(loc))
    }
}

entry!(Resource: lastmod changefreq priority hashes length media_type encoding link foreign);
