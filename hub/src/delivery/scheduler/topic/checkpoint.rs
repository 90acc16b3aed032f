//! What of a topic's progress the next checkpoint saves.

use std::collections::{BTreeMap, BTreeSet};

use super::TopicState;
use super::sweep::Sweep;
use crate::delivery::scheduler::active::Phase;
use crate::delivery::scheduler::clock::Now;
use crate::store::{self, Laggard, SubscriptionId, Watermark};

/// A sweep through here has nobody behind it.
const NOBODY: SubscriptionId = SubscriptionId(0);

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
        let has_changed = !(self.changed.is_empty() && self.caught_up.is_empty());
        self.is_held_back() || has_changed || self.unsaved_watermark(true).is_some()
    }

    /// The watermark, where the store has another one. Most topics wait for their turn, and their sweep says nothing yet: to
    /// write that again and again would cost more than all deliveries. One that has begun anew says at once that nobody needs what it was
    /// about before: after a crash who has got that, and was taken up by it, would get it again. How much further a sweep has come is told
    /// at the end of a span.
    fn unsaved_watermark(&self, span_ends: bool) -> Option<Watermark> {
        let watermark = self.watermark();
        let Some(saved) = self.saved.filter(|saved| saved.done == watermark.done) else {
            return Some(watermark);
        };
        let is_renewed = self.sweep.as_ref().is_some_and(Sweep::is_renewed);
        let is_known = match (saved.sweep, watermark.sweep) {
            (None, None) => true,
            (Some(saved), None) => saved.through == NOBODY,
            (None, Some(sweep)) => !is_renewed && (sweep.through == NOBODY || !span_ends),
            (Some(saved), Some(sweep)) if saved.target != sweep.target => {
                !is_renewed && saved.through == NOBODY && sweep.through == NOBODY
            }
            (Some(saved), Some(sweep)) if span_ends => saved.through == sweep.through,
            (Some(saved), Some(sweep)) => saved.through <= sweep.through,
        };
        (!is_known).then_some(watermark)
    }

    fn watermark(&self) -> Watermark {
        let lowest = self.attached.first().into_iter().chain(self.passed_by.first()).min();
        let sweep = self.sweep.as_ref().map(|sweep| store::Sweep {
            target: sweep.target,
            // Active subscriptions may be ahead of the position where a sweep has begun anew.
            through: lowest.map_or(sweep.position, |id| sweep.position.min(SubscriptionId(id.0 - 1))),
        });
        Watermark { done: self.done, sweep }
    }

    /// Through where all without a record are at the target, as far as the store knows.
    fn saved_through(&self) -> SubscriptionId {
        let Some(sweep) = &self.sweep else { return SubscriptionId(u64::MAX) };
        let saved = self.saved.filter(|saved| saved.done == self.done).and_then(|saved| saved.sweep);
        saved.filter(|saved| saved.target == sweep.target).map_or(NOBODY, |saved| saved.through)
    }

    /// Lets the sweep pass by the active subscriptions that were attached during the whole interval. They hold back the watermark for a span
    /// or two, but only `most` of them: each may cost a record later, all in one checkpoint.
    fn pass_by_slow(&mut self, number: u32, span_ends: bool, most: usize) {
        let Some(sweep) = &mut self.sweep else { return };
        let is_slow = |id: &SubscriptionId| self.active.get(id).is_some_and(|active| active.joined < number);
        let slow: Vec<_> = self.attached.iter().copied().filter(is_slow).collect();
        if !slow.is_empty() {
            sweep.note_movement();
        }
        for id in slow {
            self.attached.remove(&id);
            self.passed_by.insert(id);
        }
        if span_ends {
            let late_through = sweep.end_span();
            let in_time = self.passed_by.split_off(&SubscriptionId(late_through.0.saturating_add(1)));
            let mut late = std::mem::replace(&mut self.passed_by, in_time);
            self.changed.append(&mut late);
        }
        // The lowest hold the watermark back.
        while self.passed_by.len() > most
            && let Some(lowest) = self.passed_by.pop_first()
        {
            self.changed.insert(lowest);
        }
    }

    /// What has changed since the last checkpoint, this one of `number`. Whether it ends a span is the same for all topics. Not more than
    /// `most_passed_by` may wait without a record.
    pub(crate) fn checkpoint(
        &mut self,
        number: u32,
        span_ends: bool,
        most_passed_by: usize,
        now: Now,
    ) -> TopicCheckpoint {
        self.pass_by_slow(number, span_ends, most_passed_by);
        let watermark = self.unsaved_watermark(span_ends);
        self.saved = watermark.or(self.saved);
        let through = self.saved_through();
        let mut laggards = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let holds_watermark = self.holds_watermark(id);
            let Some(active) = self.active.get_mut(&id) else { continue };
            // What has caught up needs a record only where the watermark has not come by yet.
            let implied = active.phase == Phase::Parked && !active.saved && id <= through;
            if implied || holds_watermark {
                continue;
            }
            active.saved = true;
            laggards.push(active.laggard(self.id, id, now.monotonic, now.wall));
        }
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
        for ids in [&mut self.attached, &mut self.passed_by, &mut self.parked] {
            if ids.is_empty() {
                *ids = BTreeSet::new();
            }
        }
    }
}
