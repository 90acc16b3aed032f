//! What of a topic's progress the next checkpoint saves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use resync_core::datetime::DateTime;

use super::TopicState;
use super::sweep::Sweep;
use crate::delivery::scheduler::active::Phase;
use crate::store::{self, Laggard, SubscriptionId, Watermark};

/// What one topic adds to a checkpoint.
#[derive(Debug)]
pub(crate) struct TopicCheckpoint {
    pub(crate) watermark: Option<Watermark>,
    pub(crate) laggards: Vec<Laggard>,
    pub(crate) caught_up: Vec<SubscriptionId>,
}

impl TopicState {
    /// Whether the next checkpoint has to look at it.
    pub(crate) fn is_unsaved(&self) -> bool {
        !(self.attached.is_empty() && self.changed.is_empty() && self.caught_up.is_empty())
            || self.unsaved_mark().is_some()
    }

    /// The watermark, where the store has another one. Most topics wait for their turn, and their sweep says nothing yet: to
    /// write that again and again would cost more than all deliveries. One that has begun anew says at once that nobody needs what it was
    /// about before: after a crash who has got that, and was taken up by it, would get it again.
    fn unsaved_mark(&self) -> Option<Watermark> {
        let mark = self.watermark();
        let has_passed = |mark: Watermark| mark.sweep.is_some_and(|sweep| sweep.through > SubscriptionId(0));
        let says_something = has_passed(mark) || self.sweep.as_ref().is_some_and(Sweep::is_renewed);
        let is_known = |saved: Watermark| {
            saved.done == mark.done && (saved.sweep == mark.sweep || !(says_something || has_passed(saved)))
        };
        (!self.saved.is_some_and(is_known)).then_some(mark)
    }

    fn watermark(&self) -> Watermark {
        let sweep = self.sweep.as_ref().map(|sweep| store::Sweep {
            target: sweep.target,
            // Active subscriptions may be ahead of the position where a sweep has begun anew.
            through: self
                .attached
                .first()
                .map_or(sweep.position, |id| sweep.position.min(SubscriptionId(id.0 - 1))),
        });
        Watermark { done: self.done, sweep }
    }

    /// What has changed since the last checkpoint. Active subscriptions that were attached during the whole interval are detached.
    pub(crate) fn checkpoint(&mut self, number: u32, now: Instant, wall: DateTime) -> TopicCheckpoint {
        let slow: Vec<_> = self
            .attached
            .iter()
            .copied()
            .filter(|id| self.active.get(id).is_some_and(|active| active.joined < number))
            .collect();
        for id in slow {
            self.detach(id);
        }
        let through = self.watermark().sweep.map_or(SubscriptionId(u64::MAX), |sweep| sweep.through);
        let mut laggards = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let Some(active) = self.active.get_mut(&id) else { continue };
            // What has caught up needs a record only where the sweep has not come by yet.
            let implied = active.phase == Phase::Parked && !active.saved && id <= through;
            if implied || self.attached.contains(&id) {
                continue;
            }
            active.saved = true;
            laggards.push(active.laggard(self.id, id, now, wall));
        }
        let watermark = self.unsaved_mark();
        self.saved = watermark.or(self.saved);
        // What caught up and fell behind again since the last checkpoint has a new record, which must stay.
        let mut caught_up = std::mem::take(&mut self.caught_up);
        caught_up.retain(|id| !self.active.get(id).is_some_and(|active| active.saved));
        self.give_back();
        TopicCheckpoint { watermark, laggards, caught_up }
    }

    /// A tree that was emptied keeps its last node: one of active subscriptions has more than a kilobyte, and a shard may
    /// have ten thousand topics.
    fn give_back(&mut self) {
        if self.active.is_empty() {
            self.active = BTreeMap::new();
        }
        for ids in [&mut self.attached, &mut self.parked] {
            if ids.is_empty() {
                *ids = BTreeSet::new();
            }
        }
    }
}
