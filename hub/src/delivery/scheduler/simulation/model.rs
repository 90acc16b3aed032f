//! The naive model: what each subscriber was owed and what it got, against what the scheduler says.

use super::*;
use crate::store::Topic;

/// What a subscriber has got, each offset with the checkpoint interval in which the hub learned that it came; `None` where a
/// crash may have made the hub forget it.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) got: BTreeMap<Offset, Option<u32>>,
    pub(super) last: Option<Offset>,
}

impl World {
    /// `learned` is the interval in which the hub learns of it.
    pub(super) fn receive(&mut self, attempt: Attempt, offset: Offset, learned: Option<u32>) {
        let Some(slot) = self.durable.slots.get(&attempt.subscription) else { return };
        let (first, log) = (self.first(attempt.topic), &self.durable.logs[&attempt.topic]);
        let kind = |offset: Offset| log[usize::try_from(offset.0).unwrap() - 1];
        assert!(offset > slot.start, "{attempt:?} is older than its subscription");
        let excused = |offset: Offset| {
            let skips = self.durable.skips.iter().chain(&self.scheduler.unsaved.skips);
            let mut skips = skips.chain(self.unsaved.iter().flat_map(|checkpoint| &checkpoint.skips));
            // A suspect comes late, or is given up, after the next one.
            let suspected = attempt.past_suspect && offset.next() == attempt.offset;
            offset < first
                || suspected
                || skips.any(|s| s.subscription == attempt.subscription && s.offset == offset)
        };
        let inbox = self.inboxes.get_mut(&attempt.subscription).unwrap();
        if self.outdated.remove(&(attempt.subscription, offset)) {
            inbox.got.entry(offset).or_default();
            return;
        }
        let last = inbox.last.unwrap_or(slot.start);
        if let Some(earlier) = inbox.got.get(&offset) {
            assert_eq!(*earlier, None, "{attempt:?} came twice although the hub knew it for two spans");
        } else {
            // Where a sweep has not left behind what was posted, a crash may bring a version back that it was about.
            let forgotten = attempt.topic == MIXED && inbox.got.get(&last).is_none_or(Option::is_none);
            let ordered = kind(offset) == ContentKind::Posted || offset > last || forgotten;
            assert!(ordered, "{attempt:?} is older than what came before");
            let mut between =
                (last.0 + 1..offset.0).map(Offset).filter(|offset| kind(*offset) == ContentKind::Posted);
            let missing = between.find(|offset| !excused(*offset) && !inbox.got.contains_key(offset));
            assert_eq!(missing, None, "{attempt:?} came too early");
        }
        inbox.got.insert(offset, learned);
        inbox.last = Some(offset);
    }

    /// What the scheduler says that it owes in all: the subscriptions, one by one, that are not done through the newest notification.
    pub(super) fn owed_in_all(&self) -> Owed {
        self.assert_counts();
        let owed = self.scheduler.owed(self.now);
        let progress = self
            .durable
            .slots
            .values()
            .filter_map(|slot| self.scheduler.progress(slot.topic, slot.id, self.now));
        let behind = progress.filter(|one| one.cursor < one.head).count();
        assert_eq!(owed.in_turn + owed.behind, behind, "{:?}", self.scheduler);
        owed
    }

    /// What the scheduler counts without looking at each subscription.
    pub(super) fn assert_counts(&self) {
        let now = self.now;
        let in_force = self.durable.slots.values().filter(|slot| slot.lease_end > now.wall);
        assert_eq!(self.scheduler.in_force(now), in_force.count(), "{:?}", self.scheduler);
        for id in self.scheduler.topics.keys() {
            let TopicCounts { subscriptions, laggards } = self.scheduler.topic_counts(*id, now);
            let slots = self.durable.slots.values();
            let in_force = slots.filter(|slot| slot.topic == *id && slot.lease_end > now.wall);
            let late = self.scheduler.laggards(None, usize::MAX, now).into_iter();
            let late = late.filter(|late| late.topic == *id);
            assert_eq!((subscriptions, laggards), (in_force.count(), late.count()), "{:?}", self.scheduler);
        }
    }

    /// What those in force miss. Who is over stays until the store has ended it, and is owed nothing.
    pub(super) fn missed_by_those_in_force(&self) -> Vec<(SubscriptionId, Offset)> {
        let in_force = self.durable.slots.values().filter(|slot| slot.lease_end > self.now.wall);
        in_force.filter_map(|slot| Some((slot.id, self.missing(slot)?))).collect()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.durable.slots.values().all(|slot| self.missing(slot).is_none())
    }

    pub(super) fn missing(&self, slot: &SubscriptionSummary) -> Option<Offset> {
        let inbox = &self.inboxes[&slot.id];
        let Topic { first, head, latest, .. } = self.topic(slot.topic);
        (slot.start.next().0..=head.0).map(Offset).find(|offset| {
            if self.kind(slot.topic, *offset) == ContentKind::Fetched
                && (*offset != latest || *offset < first)
            {
                return false;
            }
            // What is gone from the log is no secret.
            let mut gaps =
                self.durable.gaps.iter().filter(|gap| gap.subscription == slot.id && gap.to < first);
            if gaps.any(|gap| (gap.from..=gap.to).contains(offset)) {
                return false;
            }
            let skipped = self.durable.skips.iter().any(|s| s.subscription == slot.id && s.offset == *offset);
            !skipped && !inbox.got.contains_key(offset)
        })
    }
}
