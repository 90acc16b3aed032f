//! The sweep of a topic: it takes up one subscription after the other, and ends when none holds it back.

use std::time::Instant;

use super::TopicState;
use crate::delivery::scheduler::active::{ActiveSubscription, Phase};
use crate::delivery::scheduler::host::HostId;
use crate::delivery::scheduler::wait_queue::LastAttempt;
use crate::store::{Offset, SubscriptionId};

/// So many subscriptions of a topic may wait for their hosts because of others, where permits are reserved for those that are served at once.
const ATTACHED_MOST: usize = 64;

/// The sweep under way.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) target: Offset,
    /// Every subscription up to here has been taken up.
    pub(super) position: SubscriptionId,
    exhausted: bool,
    /// It has begun anew once already.
    renewed: bool,
    /// When it was seen to be under way for the first time.
    seen: Option<Instant>,
    /// The highest ids that have got something without a record: in this span of checkpoints, and in the one before.
    reached: [SubscriptionId; 2],
    /// Somebody has got something in this span, or become slow or a laggard.
    has_moved: bool,
}

impl Sweep {
    pub(super) fn new(target: Offset, position: SubscriptionId) -> Self {
        Self {
            target,
            position,
            exhausted: false,
            renewed: false,
            seen: None,
            reached: [SubscriptionId(0); 2],
            has_moved: false,
        }
    }

    /// This subscription has got something, which the store learns when the watermark has passed it.
    fn reach(&mut self, id: SubscriptionId) {
        self.reached[0] = self.reached[0].max(id);
        self.note_movement();
    }

    /// Somebody has got something, or become slow or a laggard.
    pub(super) fn note_movement(&mut self) {
        self.has_moved = true;
    }

    /// Ends the present span of checkpoints. Tells through where nobody may hold the watermark back any longer: what was got in the span
    /// before is to be known now, and where nothing moves, those who are left are late.
    pub(super) fn end_span(&mut self) -> SubscriptionId {
        let [newer, older] = self.reached;
        self.reached = [SubscriptionId(0), newer];
        if std::mem::take(&mut self.has_moved) { older } else { SubscriptionId(u64::MAX) }
    }

    pub(super) fn is_renewed(&self) -> bool {
        self.renewed
    }
}

/// The next thing that a sweep finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SweepStep {
    /// This subscription is owed something: it is to be queued at its host.
    Enqueue(HostId, SubscriptionId, LastAttempt),
    /// One that has failed before is owed something, and its pause is over: it is to be queued at its host for a retry.
    EnqueueRetry(HostId, SubscriptionId),
    /// One that has failed before is owed something, and its pause lasts until this moment.
    RetryAt(Instant, SubscriptionId),
    /// As many were looked at as one call may.
    Interrupted,
    /// The next one may not be taken up now, because of its host.
    Busy(HostId),
    /// Nothing to take up until active subscriptions move on.
    Blocked,
}

impl TopicState {
    /// The log has grown. A fetched version supersedes a sweep that was about older versions only: nobody needs these any
    /// more, and everybody needs the new one. Returns active subscriptions that it wakes.
    pub(crate) fn appended(
        &mut self,
        offset: Offset,
        newest_only: bool,
        bytes: u64,
    ) -> Vec<(HostId, SubscriptionId)> {
        self.head = self.head.max(offset);
        self.bytes = bytes;
        if !newest_only {
            self.posted = self.posted.max(offset);
            return Vec::new();
        }
        self.newest_fetched = self.newest_fetched.max(offset);
        self.begin_anew()
    }

    /// Lets a sweep that is about fetched versions only begin anew when there is a newer one. Once in each sweep: content that
    /// changes faster than a sweep takes must not keep the last in line waiting for ever.
    pub(crate) fn begin_anew(&mut self) -> Vec<(HostId, SubscriptionId)> {
        match &mut self.sweep {
            Some(sweep)
                if !sweep.renewed && self.done >= self.posted && sweep.target < self.newest_fetched =>
            {
                let seen = sweep.seen;
                *sweep = Sweep { renewed: true, seen, ..Sweep::new(self.newest_fetched, SubscriptionId(0)) };
                self.wake_parked()
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn wake_parked(&mut self) -> Vec<(HostId, SubscriptionId)> {
        let mut woken = Vec::new();
        for id in std::mem::take(&mut self.parked) {
            let (Some(entry), Some(active)) = (self.table.get(id), self.active.get_mut(&id)) else {
                continue;
            };
            if active.phase != Phase::Parked {
                // The sweep finds it there.
                self.parked.insert(id);
                continue;
            }
            active.phase = Phase::Waiting;
            // It is behind again, and the sweep will not take it up.
            self.changed.insert(id);
            woken.push((entry.host, id));
        }
        woken
    }

    /// Begins the next sweep where one is due.
    pub(super) fn begin(&mut self) {
        if self.sweep.is_some() || self.head <= self.done {
            return;
        }
        if self.table.is_empty() {
            self.done = self.head;
        } else {
            self.sweep = Some(Sweep::new(self.head, SubscriptionId(0)));
        }
    }

    /// How many subscriptions a sweep that was seen before this moment has not taken up yet.
    pub(crate) fn not_taken_up_since(&mut self, moment: Instant, now: Instant) -> usize {
        let Some(sweep) = self.sweep.as_mut().filter(|sweep| !sweep.exhausted) else { return 0 };
        if *sweep.seen.get_or_insert(now) > moment { 0 } else { self.table.count_after(sweep.position) }
    }

    /// Takes up the next subscription; at most `window` may be attached at once. `checkpoint` numbers the present interval, and each
    /// subscription that is looked at is one of the `steps`. What may not be taken up now, because of its host, is left for later.
    pub(crate) fn step(
        &mut self,
        window: usize,
        checkpoint: u32,
        now: Instant,
        steps: &mut usize,
        mut may: impl FnMut(HostId) -> bool,
    ) -> SweepStep {
        let Some(sweep) = &mut self.sweep else { return SweepStep::Blocked };
        if self.attached.len() >= window {
            return SweepStep::Blocked;
        }
        for (id, entry) in self.table.after(sweep.position) {
            if *steps == 0 {
                return SweepStep::Interrupted;
            }
            *steps -= 1;
            let before = std::mem::replace(&mut sweep.position, id);
            if entry.start >= sweep.target {
                continue;
            }
            if let Some(active) = self.active.get_mut(&id) {
                let Phase::Remembered(due) = active.phase else { continue };
                if active.cursor >= sweep.target {
                    continue;
                }
                self.parked.remove(&id);
                if due > now {
                    active.phase = Phase::Backoff(due);
                    return SweepStep::RetryAt(due, id);
                }
                active.phase = Phase::Waiting;
                return SweepStep::EnqueueRetry(entry.host, id);
            }
            // A few wait for their hosts even so: the next one must not hold up the others of the topic.
            if self.attached.len() >= ATTACHED_MOST && !may(entry.host) {
                sweep.position = before;
                return SweepStep::Busy(entry.host);
            }
            self.active.insert(id, ActiveSubscription::waiting(self.done.max(entry.start), checkpoint));
            self.attached.insert(id);
            return SweepStep::Enqueue(entry.host, id, entry.last());
        }
        sweep.exhausted = true;
        SweepStep::Blocked
    }

    /// Whether the sweep could take up more subscriptions.
    pub(crate) fn has_more(&self, window: usize) -> bool {
        self.sweep.as_ref().is_some_and(|sweep| !sweep.exhausted) && self.attached.len() < window
    }

    /// An active subscription is done through its cursor; returns whether it has further to go.
    pub(crate) fn advanced(&mut self, id: SubscriptionId, now: Instant) -> bool {
        let target = self.target();
        // What finishes before the sweep has come by must not be taken up by it again. That is a laggard that has caught up, or
        // an active one of a sweep that began anew for a newer version.
        let holds_watermark = self.holds_watermark(id);
        let early = self.sweep.as_mut().is_some_and(|sweep| {
            let early = id > sweep.position || !holds_watermark;
            if !early {
                sweep.reach(id);
            }
            early
        });
        let Some(active) = self.active.get_mut(&id) else { return false };
        if active.saved {
            self.changed.insert(id);
        }
        if active.cursor < target {
            active.phase = Phase::Waiting;
            self.parked.remove(&id);
            return true;
        }
        // A sweep that began anew may have been forgotten in a crash, but not what it brought: the next one must not bring that again.
        let ahead = active.cursor > target;
        if active.is_failing() || ahead {
            active.phase = Phase::Remembered(now);
            if ahead {
                self.parked.insert(id);
            }
            self.detach(id);
        } else if early {
            active.phase = Phase::Parked;
            self.parked.insert(id);
            self.detach(id);
        } else {
            self.deactivate(id);
        }
        false
    }

    /// Lets the sweep and the watermark go on without this active subscription, which becomes a laggard.
    pub(crate) fn detach(&mut self, id: SubscriptionId) {
        let held_back = self.attached.remove(&id) | self.passed_by.remove(&id);
        if held_back && let Some(sweep) = &mut self.sweep {
            sweep.note_movement();
        }
        self.changed.insert(id);
    }

    /// Lets the sweep and the watermark go on without all that hold them back, which become laggards.
    pub(crate) fn detach_all(&mut self) {
        self.changed.append(&mut self.attached);
        self.changed.append(&mut self.passed_by);
    }

    /// Ends the sweep if nothing holds it back any more, and begins the next one if it is due.
    pub(crate) fn settle(&mut self) {
        let Some(sweep) = &self.sweep else { return self.begin() };
        let target = sweep.target;
        if !sweep.exhausted || (self.is_held_back() && self.head <= target) {
            return;
        }
        // The next sweep is due: what is still active goes on as a laggard instead of holding up all others.
        self.detach_all();
        self.done = target;
        self.sweep = None;
        for id in std::mem::take(&mut self.parked) {
            match self.active.get(&id) {
                Some(active) if active.cursor > target => drop(self.parked.insert(id)),
                Some(active) if active.is_failing() => {}
                Some(_) | None => self.deactivate(id),
            }
        }
        self.begin();
    }
}
