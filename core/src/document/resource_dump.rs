//! Resource Dump, its index, and the manifest inside each package: a set of resources to take away (RS-100 to RS-109).

use super::draft::{Draft, document, entry};
use super::{Capability, Entry, Metadata, Root};
use crate::datetime::DateTime;

/// Builds a Resource Dump.
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::{Package, ResourceDump};
///
/// let at: DateTime = "2026-01-03T09:00:00Z".parse().unwrap();
/// let dump = ResourceDump::new(at, "https://example.org/capabilitylist.xml")
///     .package(
///         Package::zip("https://example.org/dump-1.zip", 4765)
///             .at(at)
///             .contents("https://example.org/dump-1-manifest.xml"),
///     )
///     .build()?;
/// assert_eq!(dump.entries().len(), 1);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceDump(Draft);

impl ResourceDump {
    /// An empty Resource Dump; `at` is when the snapshot started, `up` the Capability List.
    pub fn new(at: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::snapshot(Root::UrlSet, Capability::ResourceDump, at, up))
    }

    /// Lists one package.
    pub fn package(mut self, package: Package) -> Self {
        self.0.entry(package);
        self
    }
}

document!(ResourceDump: completed index archives);

/// Builds a Resource Dump Index, which groups Resource Dumps of one snapshot (RS-108).
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceDumpIndex(Draft);

impl ResourceDumpIndex {
    /// An empty index; `at` is the earliest start among its dumps, `up` the Capability List.
    pub fn new(at: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::snapshot(Root::SitemapIndex, Capability::ResourceDump, at, up))
    }

    /// Lists one Resource Dump with the start and end of its snapshot.
    pub fn dump(mut self, loc: impl Into<String>, at: Option<DateTime>, completed: Option<DateTime>) -> Self {
        self.0.snapshot_entry(loc, at, completed);
        self
    }
}

document!(ResourceDumpIndex: completed archives);

/// Builds the manifest of one package of a Resource Dump (RS-105).
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::{Bitstream, ResourceDumpManifest};
///
/// let at: DateTime = "2026-01-03T09:00:00Z".parse().unwrap();
/// let manifest = ResourceDumpManifest::new(at, "https://example.org/capabilitylist.xml")
///     .bitstream(Bitstream::new("https://example.org/a.html", "/resources/a.html").media_type("text/html"))
///     .build()?;
/// assert_eq!(manifest.entries().len(), 1);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceDumpManifest(Draft);

impl ResourceDumpManifest {
    /// An empty manifest; `at` is when the snapshot started, `up` the Capability List, not the Resource Dump.
    pub fn new(at: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::snapshot(Root::UrlSet, Capability::ResourceDumpManifest, at, up))
    }

    /// Lists one bitstream of the package.
    pub fn bitstream(mut self, bitstream: Bitstream) -> Self {
        self.0.entry(bitstream);
        self
    }
}

document!(ResourceDumpManifest: completed);

/// One package of a Resource Dump (RS-102).
#[derive(Clone, Debug)]
#[must_use]
pub struct Package(Entry);

impl Package {
    /// When the taking of the package's snapshot started.
    pub fn at(mut self, at: DateTime) -> Self {
        self.0.metadata.get_or_insert_default().at = Some(at);
        self
    }

    /// When the taking of the package's snapshot ended.
    pub fn completed(mut self, completed: DateTime) -> Self {
        self.0.metadata.get_or_insert_default().completed = Some(completed);
        self
    }
}

entry!(Package: package lastmod hashes contents foreign);

/// One bitstream in a package of a Resource Dump (RS-106).
#[derive(Clone, Debug)]
#[must_use]
pub struct Bitstream(Entry);

impl Bitstream {
    /// The bitstream of the resource at `loc`, which lies at `path` in the package, such as `/resources/a.html`.
    pub fn new(loc: impl Into<String>, path: impl Into<String>) -> Self {
        Self(Entry::with_metadata(loc, Metadata { path: Some(path.into()), ..Metadata::default() }))
    }
}

entry!(Bitstream: lastmod changefreq hashes length media_type encoding link packed_link foreign);
