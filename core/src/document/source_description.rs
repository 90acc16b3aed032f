//! Source Description and its index: every Capability List of a Source (RS-070 to RS-075).

use super::draft::{Draft, document};
use super::{Capability, Entry, Link, Metadata, Relation, Root};

/// Builds a Source Description.
///
/// ```
/// use resync_core::document::SourceDescription;
///
/// let description = SourceDescription::new()
///     .described_by("https://example.org/about.xml")
///     .capability_list("https://example.org/theses/capabilitylist.xml")
///     .build()?;
/// assert_eq!(description.entries().len(), 1);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SourceDescription(Draft);

impl SourceDescription {
    /// An empty Source Description.
    pub fn new() -> Self {
        Self(Draft::new(Root::UrlSet, Capability::Description))
    }

    /// Lists the Capability List of one set of resources.
    pub fn capability_list(mut self, loc: impl Into<String>) -> Self {
        self.0.entry(entry(loc));
        self
    }

    /// Lists the Capability List of one set of resources with a description of that set.
    pub fn capability_list_described_by(mut self, loc: impl Into<String>, href: impl Into<String>) -> Self {
        self.0.entry(Entry { links: vec![Link::new(Relation::DescribedBy, href)], ..entry(loc) });
        self
    }
}

document!(SourceDescription: described_by index);

impl Default for SourceDescription {
    fn default() -> Self {
        Self::new()
    }
}

/// Builds a Source Description Index, which groups the Source Descriptions of a Source (RS-074).
///
/// ```
/// use resync_core::document::SourceDescriptionIndex;
///
/// let index = SourceDescriptionIndex::new()
///     .description("https://example.org/description-1.xml")
///     .description("https://example.org/description-2.xml")
///     .build()?;
/// assert_eq!(index.entries().len(), 2);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SourceDescriptionIndex(Draft);

impl SourceDescriptionIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self(Draft::new(Root::SitemapIndex, Capability::Description))
    }

    /// Lists one Source Description.
    pub fn description(mut self, loc: impl Into<String>) -> Self {
        self.0.entry(Entry::new(loc));
        self
    }
}

document!(SourceDescriptionIndex: described_by);

impl Default for SourceDescriptionIndex {
    fn default() -> Self {
        Self::new()
    }
}

fn entry(loc: impl Into<String>) -> Entry {
    let metadata = Metadata { capability: Some(Capability::CapabilityList), ..Metadata::default() };
    Entry::with_metadata(loc, metadata)
}
