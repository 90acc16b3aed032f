//! What an operator sees and does in one topic: what is late, what is owed, retry and replay.

use std::ops::Bound;

use super::TopicState;
use crate::delivery::scheduler::active::{ActiveSubscription, Phase};
use crate::delivery::scheduler::clock::Now;
use crate::delivery::scheduler::host::HostId;
use crate::store::{Offset, SubscriptionId};

impl TopicState {
    /// The subscriptions after this one that are behind the watermark or the sweep, and those that fail.
    pub(crate) fn laggards(
        &self,
        after: SubscriptionId,
    ) -> impl Iterator<Item = (SubscriptionId, &ActiveSubscription)> {
        let active = self.active.range((Bound::Excluded(after), Bound::Unbounded));
        active.filter(|(id, _)| !self.is_on_time(**id)).map(|(id, active)| (*id, active))
    }

    /// Whether a subscription is behind or failing.
    pub(crate) fn is_laggard(&self, id: SubscriptionId) -> bool {
        self.active.contains_key(&id) && !self.is_on_time(id)
    }

    fn is_on_time(&self, active: SubscriptionId) -> bool {
        self.holds_watermark(active) || self.parked.contains(&active)
    }

    /// How many subscriptions are behind or failing.
    pub(crate) fn laggard_count(&self) -> usize {
        self.active.len() - self.attached.len() - self.passed_by.len() - self.parked.len()
    }

    /// How many subscriptions were behind or failing when this was asked last, and how many are now.
    pub(crate) fn count_laggards(&mut self) -> (usize, usize) {
        let now = self.laggard_count();
        (std::mem::replace(&mut self.laggards, now), now)
    }

    /// How many subscriptions sweeps still have to serve, the next one too, and how many laggards are behind. Nobody is owed
    /// anything where both are zero.
    pub(crate) fn owed(&self, now: Now) -> (usize, usize) {
        let is_in_force = |id| self.table.get(id).is_some_and(|entry| entry.is_in_force(now));
        let owes = |(id, active): (SubscriptionId, &ActiveSubscription)| {
            active.cursor < self.head && is_in_force(id)
        };
        let behind = self.laggards(SubscriptionId(0)).filter(|one| owes(*one)).count();
        if self.sweep.is_none() {
            return (0, behind);
        }
        let on_time = self.attached.iter().chain(&self.passed_by).chain(&self.parked);
        let on_time = on_time.filter_map(|id| Some((*id, self.active.get(id)?)));
        let idle = self.table.iter().filter(|(id, entry)| {
            self.done_of(*id).max(entry.start) < self.head
                && entry.is_in_force(now)
                && !self.active.contains_key(id)
        });
        (on_time.filter(|one| owes(*one)).count() + idle.count(), behind)
    }

    /// Ends the pauses of the active subscriptions that are chosen by id and host; they wait for their hosts now. Returns them first, and then
    /// the chosen ones that waited already.
    pub(crate) fn end_pauses(
        &mut self,
        chosen: impl Fn(SubscriptionId, HostId) -> bool,
    ) -> (Vec<(HostId, SubscriptionId)>, Vec<HostId>) {
        let (mut ended, mut waiting) = (Vec::new(), Vec::new());
        for (id, active) in &mut self.active {
            let Some(host) = self.table.get(*id).map(|entry| entry.host) else { continue };
            if !chosen(*id, host) {
                continue;
            }
            if matches!(active.phase, Phase::Backoff(_)) {
                active.phase = Phase::Waiting;
                self.changed.insert(*id);
                ended.push((host, *id));
            } else if active.phase == Phase::Waiting {
                waiting.push(host);
            }
        }
        (ended, waiting)
    }

    /// Ends the pause of this active subscription, if it pauses; it waits for its host now.
    pub(crate) fn end_pause(&mut self, id: SubscriptionId) -> bool {
        let paused = self.active.get_mut(&id).filter(|active| matches!(active.phase, Phase::Backoff(_)));
        let Some(active) = paused else { return false };
        active.phase = Phase::Waiting;
        self.changed.insert(id);
        true
    }

    /// Lets a subscription have everything from this offset on once more, as a laggard that waits for its host; false when it
    /// has none of that yet.
    pub(crate) fn rewind(&mut self, id: SubscriptionId, from: Offset) -> bool {
        let Some(entry) = self.table.get(id) else { return false };
        let to = Offset(from.0.saturating_sub(1)).max(entry.start);
        let done = self.done_of(id);
        if let Some(active) = self.active.get_mut(&id) {
            active.owe_taken();
        }
        if self.active.get(&id).map_or(done, |active| active.cursor) <= to {
            return false;
        }
        self.parked.remove(&id);
        let active = self.active.entry(id).or_insert(ActiveSubscription::waiting(to, 0));
        active.rewind(to);
        self.detach(id);
        true
    }

    /// Lets all subscriptions have everything from this offset on once more: by a new sweep from there, so that it costs no record for each.
    /// What a sweep under way has not reached yet gets nothing twice; the others may get a little more than was asked for. Returns which it
    /// wakes.
    pub(crate) fn rewind_all(&mut self, from: Offset) -> Vec<(HostId, SubscriptionId)> {
        let to = Offset(from.0.saturating_sub(1));
        let mut woken = Vec::new();
        for (id, active) in &mut self.active {
            let Some(entry) = self.table.get(*id) else { continue };
            let to = to.max(entry.start);
            active.owe_taken();
            let parked = active.phase == Phase::Parked;
            if active.cursor > to || parked {
                active.rewind(active.cursor.min(to));
                woken.push((entry.host, *id));
            }
            self.changed.insert(*id);
        }
        self.attached.clear();
        self.passed_by.clear();
        self.parked.retain(|id| self.active.get(id).is_some_and(ActiveSubscription::is_remembered));
        self.done = self.done.min(to);
        self.sweep = None;
        self.begin();
        woken
    }
}
