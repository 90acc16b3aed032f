//! Change Notification: changes of resources, pushed over a channel (CN-006 to CN-012).

use super::draft::{Draft, document};
use super::{Capability, Relation, ResourceChange, Root};
use crate::datetime::DateTime;

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

    /// Adds one change; oldest first (CN-012).
    pub fn change(mut self, change: ResourceChange) -> Self {
        self.0.entry(change);
        self
    }
}

document!(ChangeNotification: );
