//! Resource Lists from an inventory (RS-090 to RS-095).

use std::fmt;

use super::inventory::Ordered;
use super::parts::{Parts, Staged};
use super::settings::{Published, Settings, Site, archived, settings};
use super::snapshot::{Completed, Snapshot};
use super::{BuildError, Inventory, Sink};
use crate::datetime::DateTime;
use crate::document::Capability;

/// Makes one Resource List, or as many as the limits ask for and their index.
///
/// Entries stream from the inventory to the sink: memory does not depend on how many there are. Nothing is published before
/// the inventory came to its end; then the lists are, and last what points at them. Lists under an index are named after the moment
/// of the snapshot and never written again: a poller that took the index just before it was replaced finds all of its lists until
/// the next run is through.
///
/// ```
/// use resync_core::build::{Item, MemoryInventory, MemorySink, ResourceLists, Site};
/// use resync_core::xml::Limits;
///
/// let inventory: MemoryInventory = (0..5).map(|n| Item::new(format!("https://example.org/{n}"))).collect();
/// let site = Site::new("https://example.org/resync");
/// let mut sink = MemorySink::default();
/// let published = ResourceLists::new(&site, "2026-01-03T09:00:00Z".parse()?)
///     .limits(Limits { entries: 2, ..Limits::default() })
///     .write(inventory.into_iter(), &mut sink)?;
/// assert_eq!(published.entries, 5);
/// assert_eq!(published.documents[0], "resourcelist-20260103T090000Z-1.xml");
/// assert_eq!(published.documents[2], "resourcelist-20260103T090000Z-3.xml");
/// assert_eq!(published.documents[3], "resourcelist.xml");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceLists {
    settings: Settings,
    at: DateTime,
    completed: Completed,
}

impl ResourceLists {
    /// Lists called `resourcelist.xml` and `resourcelist-20260103T090000Z-1.xml`, …; `at` is when the taking of the inventory started (RS-021).
    pub fn new(site: &Site, at: DateTime) -> Self {
        Self { settings: Settings::new(site, "resourcelist"), at, completed: Completed::Unstated }
    }

    /// What is said of the end of the snapshot.
    pub fn completed(mut self, completed: Completed) -> Self {
        self.completed = completed;
        self
    }

    /// Lists every resource of the inventory.
    pub fn write<S: Sink>(&self, inventory: impl Inventory, sink: &mut S) -> Result<Published, BuildError> {
        self.stage(inventory, sink)?.publish(sink)
    }

    /// The same, but nothing is published yet.
    pub fn stage<S: Sink>(
        &self,
        inventory: impl Inventory,
        sink: &mut S,
    ) -> Result<StagedLists<S>, BuildError> {
        let &Self { ref settings, at, completed } = self;
        let snapshot = Snapshot { capability: Capability::ResourceList, settings, at, completed };
        let mut lists = Parts::new(snapshot, settings, at, sink)?;
        for item in Ordered::new(inventory) {
            lists.entry(&item?.into_entry())?;
        }
        lists.stage().map(StagedLists)
    }
}

/// Resource Lists that are written and wait to be published.
#[must_use]
pub struct StagedLists<S: Sink>(Staged<S>);

impl<S: Sink> StagedLists<S> {
    /// Publishes them in the sink in which they were staged, and last what points at them.
    pub fn publish(self, sink: &mut S) -> Result<Published, BuildError> {
        self.0.publish(sink)
    }
}

impl<S: Sink> fmt::Debug for StagedLists<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagedLists").finish_non_exhaustive()
    }
}

settings!(ResourceLists);
archived!(ResourceLists);
