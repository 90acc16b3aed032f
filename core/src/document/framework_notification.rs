//! Framework Notification: changes of a Source's documents, pushed over a channel (FN-020 to FN-028).

use super::draft::{Draft, document};
use super::{Capability, Change, Document, Entry, Link, Metadata, Relation, Root};
use crate::datetime::DateTime;
use crate::rules::is_possible;

/// Builds a Framework Notification, and reads one as [`FrameworkChange`]s.
///
/// ```
/// use resync_core::document::{Capability, Change, FrameworkChange, FrameworkNotification};
///
/// let new_list = FrameworkChange::new(
///     Change::Created,
///     Capability::ResourceList,
///     "https://example.org/resourcelist-2.xml",
/// )
/// .index("https://example.org/resourcelist-index.xml");
/// let notification = FrameworkNotification::new()
///     .up("https://example.org/capabilitylist.xml")
///     .change(new_list.clone())
///     .build()?;
/// assert_eq!(FrameworkNotification::changes(&notification), Some(vec![new_list]));
/// # Ok::<(), resync_core::rules::Violations>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FrameworkNotification(Draft);

impl FrameworkNotification {
    /// An empty notification.
    pub fn new() -> Self {
        Self(Draft::new(Root::UrlSet, Capability::FrameworkNotification))
    }

    /// It has all changes from one moment until another (FN-021).
    pub fn interval(mut self, from: DateTime, until: DateTime) -> Self {
        self.0.metadata().from = Some(from);
        self.0.metadata().until = Some(until);
        self
    }

    /// Points at the Capability List, or at the Source Description where the news is about a Capability List (FN-022).
    pub fn up(mut self, href: impl Into<String>) -> Self {
        self.0.link(Relation::Up, href);
        self
    }

    /// Adds one change.
    pub fn change(mut self, change: FrameworkChange) -> Self {
        self.0.entry(change);
        self
    }

    /// The changes that a Framework Notification lists; `None` when the document is of another kind.
    pub fn changes(document: &Document) -> Option<Vec<FrameworkChange>> {
        if *document.capability() != Capability::FrameworkNotification {
            return None;
        }
        document.entries().iter().map(FrameworkChange::of).collect()
    }
}

document!(FrameworkNotification: );

impl Default for FrameworkNotification {
    fn default() -> Self {
        Self::new()
    }
}

/// One change of one document (FN-023).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct FrameworkChange {
    /// How the document changed.
    pub change: Change,
    /// What the document is.
    pub capability: Capability,
    /// Where it is.
    pub loc: String,
    /// When it changed.
    pub datetime: Option<DateTime>,
    /// The index it lies under; mandatory if there is one (FN-006).
    pub index: Option<String>,
}

impl FrameworkChange {
    /// A change of a document that lies under no index.
    pub fn new(change: Change, capability: Capability, loc: impl Into<String>) -> Self {
        Self { change, capability, loc: loc.into(), datetime: None, index: None }
    }

    /// When the document changed.
    pub fn datetime(mut self, datetime: DateTime) -> Self {
        self.datetime = Some(datetime);
        self
    }

    /// The index the document lies under.
    pub fn index(mut self, href: impl Into<String>) -> Self {
        self.index = Some(href.into());
        self
    }

    /// Whether documents of this kind change in this way (FN-010). If not, it is still a reason to look (FN-012).
    pub fn is_possible(&self) -> bool {
        is_possible(&self.capability, self.change)
    }

    fn of(entry: &Entry) -> Option<Self> {
        let metadata = entry.metadata.as_ref()?;
        Some(Self {
            change: metadata.change?,
            capability: metadata.capability.clone()?,
            loc: entry.loc.clone(),
            datetime: metadata.datetime,
            index: entry.link(&Relation::Index).map(|link| link.href.clone()),
        })
    }
}

impl From<FrameworkChange> for Entry {
    fn from(change: FrameworkChange) -> Self {
        let metadata = Metadata {
            change: Some(change.change),
            capability: Some(change.capability),
            datetime: change.datetime,
            ..Metadata::default()
        };
        let links = change.index.map(|href| Link::new(Relation::Index, href)).into_iter().collect();
        Self { links, ..Self::with_metadata(change.loc, metadata) }
    }
}
