//! Capability List: the documents and channels of one set of resources (RS-080 to RS-083, FN-060, CN-019).

use super::draft::{Draft, document};
use super::{Capability, Entry, Link, Metadata, Relation, Root};

/// Builds a Capability List.
///
/// ```
/// use resync_core::document::{Capability, CapabilityList};
///
/// let list = CapabilityList::new("https://example.org/.well-known/resourcesync")
///     .capability(Capability::ResourceList, "https://example.org/resourcelist.xml")
///     .channel(
///         Capability::FrameworkNotification,
///         "https://example.org/framework/",
///         ["https://hub.example.net/websub/"],
///     )
///     .build()?;
/// assert_eq!(list.entries().len(), 2);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CapabilityList(Draft);

impl CapabilityList {
    /// An empty Capability List; `up` is the Source Description.
    pub fn new(up: impl Into<String>) -> Self {
        Self(Draft::below(Root::UrlSet, Capability::CapabilityList, up))
    }

    /// Lists the one document of a capability, or the index of its documents (RS-082).
    pub fn capability(mut self, capability: Capability, loc: impl Into<String>) -> Self {
        self.0.entry(entry(capability, loc));
        self
    }

    /// Advertises a channel: its topic and the hubs that serve it (FN-060, FN-062). Only a capability that
    /// [is a notification](Capability::is_notification) passes the check.
    pub fn channel<I>(mut self, capability: Capability, topic: impl Into<String>, hubs: I) -> Self
    where
        I: IntoIterator<Item: Into<String>>,
    {
        let links = hubs.into_iter().map(|hub| Link::new(Relation::Hub, hub)).collect();
        self.0.entry(Entry { links, ..entry(capability, topic) });
        self
    }
}

document!(CapabilityList: described_by);

fn entry(capability: Capability, loc: impl Into<String>) -> Entry {
    Entry::with_metadata(loc, Metadata { capability: Some(capability), ..Metadata::default() })
}
