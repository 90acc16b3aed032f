//! Source Description: every Capability List of a Source (RS-070 to RS-073).

use super::{Capability, Document, Draft, Entry, Link, Metadata, Relation, Root};
use crate::rules::Violations;

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

    /// Points at a description of the Source (RS-056).
    pub fn described_by(mut self, href: impl Into<String>) -> Self {
        self.0.link(Relation::DescribedBy, href);
        self
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

    /// Checks the rules and makes the document.
    pub fn build(self) -> Result<Document, Violations> {
        self.0.build()
    }
}

impl Default for SourceDescription {
    fn default() -> Self {
        Self::new()
    }
}

fn entry(loc: impl Into<String>) -> Entry {
    let metadata = Metadata { capability: Some(Capability::CapabilityList), ..Metadata::default() };
    Entry::with_metadata(loc, metadata)
}
