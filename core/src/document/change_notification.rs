//! Change Notification: changes of resources, pushed over a channel (CN-006 to CN-012).

use super::{Capability, Change, Document, Draft, Entry, Link, Metadata, Relation, Root};
use crate::datetime::DateTime;
use crate::digest::Hashes;
use crate::rules::Violations;

/// Builds a Change Notification.
///
/// ```
/// use resync_core::datetime::DateTime;
/// use resync_core::document::{ChangeNotification, ResourceChange};
///
/// let from: DateTime = "2026-01-03T09:00:00Z".parse().unwrap();
/// let until: DateTime = "2026-01-03T09:05:00Z".parse().unwrap();
/// let notification = ChangeNotification::new(from, until)
///     .change(ResourceChange::updated("https://example.org/a.html").datetime(from).length(4))
///     .change(ResourceChange::deleted("https://example.org/b.html"))
///     .build()?;
/// assert_eq!(notification.entries().len(), 2);
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeNotification(Draft);

impl ChangeNotification {
    /// An empty notification about all changes from one moment until another; `from` is the previous notification's
    /// `until` (CN-008).
    pub fn new(from: DateTime, until: DateTime) -> Self {
        let mut draft = Draft::new(Root::UrlSet, Capability::ChangeNotification);
        draft.metadata().from = Some(from);
        draft.metadata().until = Some(until);
        Self(draft)
    }

    /// Points at the Capability List (CN-010).
    pub fn up(mut self, href: impl Into<String>) -> Self {
        self.0.link(Relation::Up, href);
        self
    }

    /// Tells one change; oldest first (CN-012).
    pub fn change(mut self, change: ResourceChange) -> Self {
        self.0.entry(change);
        self
    }

    /// Checks the rules and makes the document.
    pub fn build(self) -> Result<Document, Violations> {
        self.0.build()
    }
}

/// One change of one resource.
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

    /// When it changed.
    pub fn datetime(mut self, datetime: DateTime) -> Self {
        self.metadata().datetime = Some(datetime);
        self
    }

    /// When the representation was last modified.
    pub fn lastmod(mut self, lastmod: DateTime) -> Self {
        self.0.lastmod = Some(lastmod);
        self
    }

    /// Digests of the new representation.
    pub fn hashes(mut self, hashes: Hashes) -> Self {
        self.metadata().hash = hashes;
        self
    }

    /// Length of the new representation in bytes.
    pub fn length(mut self, length: u64) -> Self {
        self.metadata().length = Some(length);
        self
    }

    /// Media type of the new representation.
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.metadata().media_type = Some(media_type.into());
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

impl From<ResourceChange> for Entry {
    fn from(change: ResourceChange) -> Self {
        change.0
    }
}
