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
        let holds_back = !(self.attached.is_empty() && self.unrecorded.is_empty());
        let has_changed = !(self.changed.is_empty() && self.caught_up.is_empty());
        holds_back || has_changed || self.unsaved_mark(true).is_some()
    }

    /// The watermark, where the store has another one. Most topics wait for their turn, and their sweep says nothing yet: to
    /// write that again and again would cost more than all deliveries. One that has begun anew says at once that nobody needs what it was
    /// about before: after a crash who has got that, and was taken up by it, would get it again. How much further a sweep has come is told
    /// at the end of a span.
    fn unsaved_mark(&self, span_ends: bool) -> Option<Watermark> {
        let mark = self.watermark();
        let has_passed = |mark: Watermark| mark.sweep.is_some_and(|sweep| sweep.through > SubscriptionId(0));
        let is_renewed = self.sweep.as_ref().is_some_and(Sweep::is_renewed);
        let says_something = has_passed(mark) || is_renewed;
        let is_only_behind = |saved: Watermark| match (saved.sweep, mark.sweep) {
            (Some(saved), Some(mark)) => saved.target == mark.target && saved.through <= mark.through,
            (None, Some(_)) => !is_renewed,
            (_, None) => false,
        };
        let is_known = |saved: Watermark| {
            let is_enough = saved.sweep == mark.sweep || !(says_something || has_passed(saved));
            saved.done == mark.done && (is_enough || (!span_ends && is_only_behind(saved)))
        };
        (!self.saved.is_some_and(is_known)).then_some(mark)
    }

    fn watermark(&self) -> Watermark {
        let lowest = self.attached.first().into_iter().chain(self.unrecorded.first()).min();
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
        saved.filter(|saved| saved.target == sweep.target).map_or(SubscriptionId(0), |saved| saved.through)
    }

    /// Active subscriptions that were attached during the whole interval hold the sweep back no more, and the mark for a span or two.
    fn pass_by_slow(&mut self, number: u32, span_ends: bool) {
        let Some(sweep) = &mut self.sweep else { return };
        let is_slow = |id: &SubscriptionId| self.active.get(id).is_some_and(|active| active.joined < number);
        let slow: Vec<_> = self.attached.iter().copied().filter(is_slow).collect();
        sweep.has_moved |= !slow.is_empty();
        for id in slow {
            self.attached.remove(&id);
            self.unrecorded.insert(id);
        }
        if span_ends {
            let late_through = sweep.end_span();
            let others = self.unrecorded.split_off(&SubscriptionId(late_through.0.saturating_add(1)));
            self.changed.append(&mut std::mem::replace(&mut self.unrecorded, others));
        }
    }

    /// What has changed since the last checkpoint, this one of `number`. Whether it ends a span is the same for all topics.
    pub(crate) fn checkpoint(
        &mut self,
        number: u32,
        span_ends: bool,
        now: Instant,
        wall: DateTime,
    ) -> TopicCheckpoint {
        self.pass_by_slow(number, span_ends);
        let watermark = self.unsaved_mark(span_ends);
        self.saved = watermark.or(self.saved);
        let through = self.saved_through();
        let mut laggards = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let holds_mark = self.holds_mark(id);
            let Some(active) = self.active.get_mut(&id) else { continue };
            // What has caught up needs a record only where the mark has not come by yet.
            let implied = active.phase == Phase::Parked && !active.saved && id <= through;
            if implied || holds_mark {
                continue;
            }
            active.saved = true;
            laggards.push(active.laggard(self.id, id, now, wall));
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
        for ids in [&mut self.attached, &mut self.unrecorded, &mut self.parked] {
            if ids.is_empty() {
                *ids = BTreeSet::new();
            }
        }
    }
}
