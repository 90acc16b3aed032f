//! Change Dump, its index, and the manifest inside each package: changes with their content (RS-140 to RS-148).

use super::draft::{Draft, document, entry};
use super::{Capability, Change, Entry, Metadata, Patch, Root};
use crate::datetime::DateTime;

/// Builds a Change Dump, open unless [`until`](Self::until) closes it.
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::{ChangeDump, ChangePackage};
///
/// let noon: DateTime = "2026-01-03T12:00:00Z".parse().unwrap();
/// let one: DateTime = "2026-01-03T13:00:00Z".parse().unwrap();
/// let dump = ChangeDump::new(noon, "https://example.org/capabilitylist.xml")
///     .package(ChangePackage::zip("https://example.org/changes-1.zip", 887).interval(noon, one))
///     .build()?;
/// assert_eq!(dump.entries().len(), 1);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeDump(Draft);

impl ChangeDump {
    /// An empty, open Change Dump with all changes since `from`; `up` is the Capability List.
    pub fn new(from: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::changes(Root::UrlSet, Capability::ChangeDump, from, up))
    }

    /// Lists one package; in the order of publication (RS-141).
    pub fn package(mut self, package: ChangePackage) -> Self {
        self.0.entry(package);
        self
    }
}

document!(ChangeDump: until index archives);

/// Builds a Change Dump Index, which groups consecutive Change Dumps, oldest first (RS-147).
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeDumpIndex(Draft);

impl ChangeDumpIndex {
    /// An empty index with all changes since `from`; `up` is the Capability List.
    pub fn new(from: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::changes(Root::SitemapIndex, Capability::ChangeDump, from, up))
    }
}

document!(ChangeDumpIndex: until archives closed open);

/// Builds the manifest of one package of a Change Dump (RS-143).
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::{ChangeDumpManifest, Link, PackedChange};
///
/// let noon: DateTime = "2026-01-03T12:00:00Z".parse().unwrap();
/// let one: DateTime = "2026-01-03T13:00:00Z".parse().unwrap();
/// let patch = Link::patch("https://example.org/a.json.patch", "application/json-patch+json");
/// let manifest = ChangeDumpManifest::new(noon, "https://example.org/capabilitylist.xml")
///     .until(one)
///     .change(
///         PackedChange::updated("https://example.org/a.json", "/changes/a.json")
///             .datetime(noon)
///             .media_type("application/json")
///             .patch(patch, "/patches/a.json"),
///     )
///     .change(PackedChange::deleted("https://example.org/b.json").datetime(one))
///     .build()?;
/// assert_eq!(manifest.entries().len(), 2);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeDumpManifest(Draft);

impl ChangeDumpManifest {
    /// An empty manifest with all changes since `from`; `up` is the Capability List, not the Change Dump.
    pub fn new(from: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::changes(Root::UrlSet, Capability::ChangeDumpManifest, from, up))
    }

    /// Adds one change; oldest first.
    pub fn change(mut self, change: PackedChange) -> Self {
        self.0.entry(change);
        self
    }
}

document!(ChangeDumpManifest: until);

/// One package of a Change Dump (RS-141).
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangePackage(Entry);

impl ChangePackage {
    /// Of which moments the package has all changes.
    pub fn interval(mut self, from: DateTime, until: DateTime) -> Self {
        let metadata = self.0.metadata.get_or_insert_default();
        metadata.from = Some(from);
        metadata.until = Some(until);
        self
    }
}

entry!(ChangePackage: package lastmod hashes contents foreign);

/// One change of one resource with its content in the package (RS-144); each change has a path of its own (RS-145).
#[derive(Clone, Debug)]
#[must_use]
pub struct PackedChange(Entry);

impl PackedChange {
    /// The resource is new; its bitstream lies at `path`, such as `/changes/a.html`.
    pub fn created(loc: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(Change::Created, loc, Some(path.into()))
    }

    /// The resource is different now; the new bitstream lies at `path`.
    pub fn updated(loc: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(Change::Updated, loc, Some(path.into()))
    }

    /// The resource is gone.
    pub fn deleted(loc: impl Into<String>) -> Self {
        Self::new(Change::Deleted, loc, None)
    }

    /// How to make the new version from the previous one; the patch lies at `path` (RS-146).
    pub fn patch(self, patch: Patch, path: impl Into<String>) -> Self {
        self.packed_link(patch.into_link(), path)
    }

    fn new(change: Change, loc: impl Into<String>, path: Option<String>) -> Self {
        Self(Entry::with_metadata(loc, Metadata { change: Some(change), path, ..Metadata::default() }))
    }
}

entry!(PackedChange: datetime lastmod changefreq hashes length media_type encoding link packed_link foreign);
