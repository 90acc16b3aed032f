//! Change List and its index: what changed in a set of resources, oldest first (RS-120 to RS-130).

use super::draft::{Draft, document, entry};
use super::{Capability, Change, Entry, Metadata, Patch, Root};
use crate::datetime::DateTime;

/// Builds a Change List, open unless [`until`](Self::until) closes it.
///
/// A list of any length is streamed instead of built:
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::{ChangeList, ResourceChange};
/// use resync_core::xml::Writer;
///
/// let from: DateTime = "2026-01-03T09:00:00Z".parse()?;
/// let list = ChangeList::new(from, "https://example.org/capabilitylist.xml");
/// let mut writer = Writer::new(Vec::new(), &list.header())?;
/// for number in 0..3 {
///     let change = ResourceChange::created(format!("https://example.org/{number}.html")).datetime(from);
///     writer.entry(&change.into())?;
/// }
/// assert!(writer.finish()?.ends_with(b"</urlset>\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeList(Draft);

impl ChangeList {
    /// An empty, open Change List with all changes since `from`; `up` is the Capability List.
    pub fn new(from: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::changes(Root::UrlSet, Capability::ChangeList, from, up))
    }

    /// Adds one change; oldest first (RS-121).
    pub fn change(mut self, change: ResourceChange) -> Self {
        self.0.entry(change);
        self
    }
}

document!(ChangeList: until index archives);

/// Builds a Change List Index, which groups consecutive Change Lists, oldest first (RS-125, RS-127).
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::ChangeListIndex;
///
/// let noon: DateTime = "2026-01-03T12:00:00Z".parse().unwrap();
/// let one: DateTime = "2026-01-03T13:00:00Z".parse().unwrap();
/// let index = ChangeListIndex::new(noon, "https://example.org/capabilitylist.xml")
///     .closed("https://example.org/changelist-1.xml", noon, one)
///     .open("https://example.org/changelist-2.xml", one)
///     .build()?;
/// assert_eq!(index.entries().len(), 2);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeListIndex(Draft);

impl ChangeListIndex {
    /// An empty index with all changes since `from`; `up` is the Capability List.
    pub fn new(from: DateTime, up: impl Into<String>) -> Self {
        Self(Draft::changes(Root::SitemapIndex, Capability::ChangeList, from, up))
    }
}

document!(ChangeListIndex: until archives closed open);

/// One change of one resource, in a Change List or a Change Notification (RS-122, CN-011).
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceChange(Entry);

impl ResourceChange {
    /// The resource is new.
    pub fn created(loc: impl Into<String>) -> Self {
        Self::new(Change::Created, loc)
    }

    /// The resource is different now.
    pub fn updated(loc: impl Into<String>) -> Self {
        Self::new(Change::Updated, loc)
    }

    /// The resource is gone.
    pub fn deleted(loc: impl Into<String>) -> Self {
        Self::new(Change::Deleted, loc)
    }

    /// A change that was worked out at run time.
    pub fn new(change: Change, loc: impl Into<String>) -> Self {
        Self(Entry::with_metadata(loc, Metadata { change: Some(change), ..Metadata::default() }))
    }

    /// How to make the new version from the previous one; in Change Lists only (RS-174).
    pub fn patch(mut self, patch: Patch) -> Self {
        self.0.links.push(patch.into_link());
        self
    }
}

entry!(ResourceChange: datetime lastmod changefreq priority hashes length media_type encoding link foreign);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Hashes;

    #[test]
    fn rs129_nothing_is_said_of_the_representation_of_what_is_deleted() {
        let told = |change| {
            let change =
                ResourceChange::new(change, "http://example.org/a").media_type("text/html").length(4);
            Entry::from(change.encoding("gzip").hashes(Hashes::parse("md5:x"))).metadata.unwrap()
        };
        let bare = Metadata { change: Some(Change::Deleted), ..Metadata::default() };
        assert_eq!(told(Change::Deleted), bare);
        assert_eq!(told(Change::Updated).length, Some(4));
    }
}
