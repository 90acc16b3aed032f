//! From two inventories, or from given changes, to the changes between them and the next inventory.

use std::{collections::BTreeMap, path::Path};

use resync_core::{
    build::{BuildError, Event, Item, Known, Pair, joined},
    datetime::DateTime,
    document::Change,
};

use super::{
    Before, Changes, TakeSnapshot,
    moments::{Moments, later},
    patches::Patches,
    stored::{InBase, Line, Merged, StoredInventory},
    writing::{RecordedChange, Writing},
};
use crate::{
    state::Totals,
    versions::{Taken, Taking, Unkept, VersionLine},
};

/// What a comparison found.
pub(super) struct Compared {
    pub(super) totals: Totals,
    pub(super) changes: Changes,
    /// The moment of the last change.
    pub(super) until: DateTime,
    /// The versions that it saw for the first time.
    pub(super) versions: Option<Taken>,
    pub(super) unkept: Unkept,
}

impl TakeSnapshot<'_> {
    /// One pass over both inventories: records the changes, and writes the next inventory.
    pub(super) fn compare(
        &mut self,
        started: DateTime,
        found: impl Iterator<Item = Result<Known, BuildError>>,
        patches: &mut Patches,
    ) -> Result<Compared, BuildError> {
        let last = StoredInventory::last(self.out);
        let (merged, first, is_whole): (Box<dyn Iterator<Item = _>>, _, _) = match self.before {
            Before::Published { until, is_quick, .. } => {
                (Box::new(last.merged()?), started.max(later(until, 1)), last.is_rewrite_due(is_quick))
            }
            Before::Nothing => (Box::new(std::iter::empty()), started, true),
        };
        let is_recorded = matches!(self.before, Before::Published { .. });
        let is_relinked = matches!(self.before, Before::Published { is_relinked: true, .. });
        let mut writing = Writing::begin(self.out, is_whole)?;
        let mut moments = Moments::new(first, self.settings);
        self.versions.see_all(first);
        let (mut totals, mut changes) = (Totals::default(), Changes::default());
        let after = Ordered::new(found);
        for pair in joined(merged, after, |merged: &Merged| merged.loc.as_str(), loc_of) {
            let (merged, after) = match pair? {
                Pair::First(merged) => (Some(merged), None),
                Pair::Second(after) => (None, Some(after)),
                Pair::Both(merged, after) => (Some(merged), Some(after)),
            };
            let mut recorded = None;
            if let Some(after) = after {
                totals.resources += 1;
                totals.bytes += after.item.length.unwrap_or(0);
                let is_as_in_base = merged.as_ref().is_some_and(|merged| match &merged.in_base {
                    InBase::Current(known) | InBase::Outdated(known) => *known == after,
                    InBase::Absent => false,
                });
                let before = merged.and_then(Merged::into_current);
                if is_recorded && (is_relinked || before.as_ref() != Some(&after)) {
                    moments.check(&after.item)?;
                }
                if is_recorded || patches.are_wanted() {
                    recorded = patches.change(before.as_ref(), &after.item)?;
                }
                if writing.is_whole || !is_as_in_base {
                    writing.known(&after)?;
                }
                if recorded.is_none() || !is_recorded {
                    let seen = self.versions.unchanged(&after.item, first);
                    writing.versions(self.versions.name(), &seen)?;
                }
                (self.observe)(started, Some(after.item))?;
            } else if let Some(merged) = merged {
                if !matches!(merged.in_base, InBase::Absent) && !writing.is_whole {
                    writing.line(&Line::gone(&merged.loc))?;
                }
                if let Some(gone) = merged.into_current() {
                    patches.forget(&gone.item);
                    recorded = Some((Change::Deleted, Item::new(gone.item.loc)));
                }
            }
            if let Some((change, item)) = recorded.filter(|_| is_recorded) {
                let moment = moments.next(change, &item)?;
                changes.count(change);
                let event = Event::new(change, moment, item);
                let (seen, memento) = self.versions.take(&event);
                writing.versions(self.versions.name(), &seen)?;
                writing.event(RecordedChange { event, memento })?;
            }
        }
        (self.observe)(started, None)?;
        let gone = self.versions.seen_all(first);
        writing.versions(self.versions.name(), &gone)?;
        let versions = std::mem::replace(&mut self.versions, Taking::none());
        let (versions, unkept) = published(writing, versions)?;
        Ok(Compared { totals, changes, until: moments.last(), versions, unkept })
    }
}

/// Brings the bytes of versions to the disk, and then the files of the run, which tell of them.
fn published(writing: Writing, mut versions: Taking) -> Result<(Option<Taken>, Unkept), BuildError> {
    let merge = versions.merge();
    let (taken, unkept) = versions.finish();
    let (segment, merged) = writing.publish(merge)?;
    Ok((taken.map(|taken| Taken { segment, merged, ..taken }), unkept))
}

/// Few changes, in memory.
pub(super) struct ChangeRecorder {
    moments: Moments,
    versions: Taking,
    seen: Vec<VersionLine>,
    changes: Changes,
    recorded: Vec<RecordedChange>,
    /// The resources as they are now; `None` for those that are gone.
    outcome: BTreeMap<String, Option<Known>>,
}

impl ChangeRecorder {
    pub(super) fn new(moments: Moments, versions: Taking) -> Self {
        let (changes, recorded, outcome, seen) = Default::default();
        Self { moments, versions, seen, changes, recorded, outcome }
    }

    /// Records given changes, as they are and in their order.
    pub(super) fn record_all(&mut self, recorded: &[(Change, Item)]) -> Result<(), BuildError> {
        for (change, item) in recorded {
            self.record(*change, item.clone())?;
            let known = (*change != Change::Deleted).then(|| Known { item: item.clone(), stamp: None });
            self.outcome.insert(item.loc.clone(), known);
        }
        Ok(())
    }

    /// Compares what is known of a few resources with what they are now.
    pub(super) fn compare(
        &mut self,
        known: Vec<Known>,
        found: impl Iterator<Item = Result<Known, BuildError>>,
        patches: &mut Patches,
    ) -> Result<(), BuildError> {
        for pair in joined(known.into_iter().map(Ok), found, loc_of, loc_of) {
            let (before, after) = match pair? {
                Pair::First(before) => {
                    patches.forget(&before.item);
                    self.outcome.insert(before.item.loc.clone(), None);
                    self.record(Change::Deleted, Item::new(before.item.loc))?;
                    continue;
                }
                Pair::Second(after) => (None, after),
                Pair::Both(before, after) => (Some(before), after),
            };
            if let Some((change, item)) = patches.change(before.as_ref(), &after.item)? {
                self.record(change, item)?;
            }
            if before.as_ref() != Some(&after) {
                self.outcome.insert(after.item.loc.clone(), Some(after));
            }
        }
        Ok(())
    }

    fn record(&mut self, change: Change, item: Item) -> Result<(), BuildError> {
        let moment = self.moments.next(change, &item)?;
        self.changes.count(change);
        let event = Event::new(change, moment, item);
        let (seen, memento) = self.versions.take(&event);
        self.seen.extend(seen);
        self.recorded.push(RecordedChange { event, memento });
        Ok(())
    }

    /// Writes the changes and the next inventory, in which everything else is as it was.
    pub(super) fn save(
        self,
        out: &Path,
        last: &StoredInventory,
        mut totals: Totals,
        is_whole: bool,
    ) -> Result<Compared, BuildError> {
        let Self { moments, versions, mut seen, changes, recorded, outcome } = self;
        let mut finder = last.finder()?;
        for (loc, now) in &outcome {
            let before = finder.find(loc)?;
            let count = |known: &Option<Known>| u64::from(known.is_some());
            let length =
                |known: &Option<Known>| known.as_ref().and_then(|known| known.item.length).unwrap_or(0);
            totals.resources = totals.resources + count(now) - count(&before);
            totals.bytes = (totals.bytes + length(now)).saturating_sub(length(&before));
        }
        let mut next = Writing::begin(out, is_whole)?;
        for change in recorded {
            next.event(change)?;
        }
        // Those of one resource stay in their order.
        seen.sort_by(|one, other| one.loc().cmp(other.loc()));
        next.versions(versions.name(), &seen)?;
        if is_whole {
            let outcome = outcome.into_iter().map(Ok);
            for pair in joined(last.resources()?, outcome, loc_of, |(loc, _)| loc.as_str()) {
                let now = match pair? {
                    Pair::First(before) => Some(before),
                    Pair::Second((_, now)) | Pair::Both(_, (_, now)) => now,
                };
                if let Some(known) = now {
                    next.known(&known)?;
                }
            }
        } else {
            last.write_since(outcome, &mut next.lines)?;
        }
        let (versions, unkept) = published(next, versions)?;
        Ok(Compared { totals, changes, until: moments.last(), versions, unkept })
    }
}

fn loc_of(known: &Known) -> &str {
    known.item.loc.as_str()
}

/// Ends with an error where resources are out of order.
struct Ordered<I> {
    resources: I,
    last: String,
}

impl<I> Ordered<I> {
    fn new(resources: I) -> Self {
        Self { resources, last: String::new() }
    }
}

impl<I: Iterator<Item = Result<Known, BuildError>>> Iterator for Ordered<I> {
    type Item = Result<Known, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let known = match self.resources.next()? {
            Ok(known) => known,
            Err(error) => return Some(Err(error)),
        };
        if !self.last.is_empty() && self.last >= known.item.loc {
            let after = self.last.clone();
            return Some(Err(BuildError::ResourceOrder { loc: known.item.loc, after }));
        }
        self.last.clone_from(&known.item.loc);
        Some(Ok(known))
    }
}
