//! Which request to make next.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::Scheduler;
use super::active::{Phase, Suspect};
use super::attempt::Attempt;
use super::clock::Now;
use super::host::{Charge, HostId};
use super::lanes::{Lane, OpenLanes};
use super::subscription_table::SubscriptionEntry;
use super::topic::SweepStep;
use super::wait_queue::LastAttempt;
use crate::store::{CachePolicy, Ended, ReadAhead, SubscriptionId, TopicId};

/// How long a subscription waits whose lease is over by a clock that is in doubt.
const WITHHELD: Duration = Duration::from_secs(30);
/// For how long permits count as scarce after they were so.
const SCARCE: Duration = Duration::from_secs(5);

/// How long after a failure the next notification shows whether the failure was for what was sent, and after that the same one once more.
/// Later than this the host may have been down, and up again, or be down: what failed then is as good as any other.
const MOMENT: Duration = Duration::from_secs(5);

/// A subscription that could be served and was not for longer than this is past due.
const PAST_DUE: Duration = Duration::from_secs(60);

/// Subscriptions that are looked at in one call to find some that may have one of the last permits.
const SPARES: usize = 32;

/// Where more subscriptions of a shard than this are served before one is again, the store need not keep its recipient in memory: before
/// it is asked for, others would have taken its place. Those of smaller topics are to find room there too.
pub(super) const MOST_KEPT: usize = 2_048;
/// A topic with no more than this is done in a turn or two. Where many topics wait, those whose records stand behind it are soon next.
const SMALL_TOPIC: usize = 32;

/// What a sweep has taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    /// Nothing may be taken up now.
    Nothing,
    /// A subscription.
    One,
    /// A subscription that waits for others of its own host or network, while permits are scarce.
    BehindItsOwn,
}

impl Scheduler {
    /// The next request to make, as long as there is one that may be made now in an open lane. There may be one in the next
    /// call if this one [was interrupted](Self::is_interrupted).
    pub(crate) fn next(&mut self, now: Now, open: OpenLanes) -> Option<Attempt> {
        self.interrupted = self.fire_timers(now);
        self.hosts.wake(now.monotonic);
        let mut steps = self.limits.steps;
        // A subscription that is taken up wants a first attempt. Without a permit it would wait here and become a laggard, for nothing but
        // the hub's own haste.
        let sweeps = open.has(Lane::First);
        // Each call takes up something new before it serves what waits, so that neither starves the other.
        if open.is_scarce() {
            self.scarce_until = now.monotonic + SCARCE;
        }
        if sweeps {
            let mut swept = self.sweep_one(now, &mut steps, None);
            // Where permits are few, subscriptions that wait for others of their own host must not stand before the rest of their topic.
            let mut own = SPARES;
            while swept == Swept::BehindItsOwn {
                swept = self.sweep_one(now, &mut own, None);
            }
        }
        // Nor where the last permits are reserved: only what gets one of them at once is taken up.
        let mut spares = if open.spare() > 0 { SPARES } else { 0 };
        for _ in 0..self.limits.steps {
            let Some((host, charge, (topic, id))) = self.hosts.take(open) else {
                if sweeps && self.sweep_one(now, &mut steps, None) != Swept::Nothing {
                    continue;
                }
                if self.sweep_one(now, &mut spares, Some(open.spare())) != Swept::Nothing {
                    continue;
                }
                self.interrupted |= steps == 0;
                return None;
            };
            match self.start(host, charge, topic, id, now) {
                Some(attempt) => return Some(attempt),
                None => self.hosts.give_back(host, charge),
            }
        }
        self.interrupted = true;
        None
    }

    /// Whether the last call for a request ended because it had taken long, not because there was nothing more to do.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// When the next timer is due, if any.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((due, ..))| *due);
        timer.into_iter().chain(self.hosts.next_wake()).min()
    }

    /// Lets those whose pause is over wait for their hosts; returns whether there are more of them than it may look at.
    fn fire_timers(&mut self, now: Now) -> bool {
        for _ in 0..self.limits.steps {
            let Some(Reverse((due, topic, id))) = self.timers.peek().copied() else { return false };
            if due > now.monotonic {
                return false;
            }
            self.timers.pop();
            let Some(state) = self.topics.get_mut(&topic) else { continue };
            let Some(host) = state.table.get(id).map(|entry| entry.host) else { continue };
            // A timer may be older than the present pause; only the one that belongs to it counts.
            let Some(active) = state.active_mut(id).filter(|active| active.phase == Phase::Backoff(due))
            else {
                continue;
            };
            active.phase = Phase::Waiting;
            self.hosts.enqueue(host, (topic, id), state.last_attempt(id));
        }
        self.timers.peek().is_some_and(|Reverse((due, ..))| *due <= now.monotonic)
    }

    /// Lets the next topic in turn take up one subscription. `steps` says at how many it may look, and `spare` how many permits there are, if
    /// they are not for everybody.
    fn sweep_one(&mut self, now: Now, steps: &mut usize, spare: Option<usize>) -> Swept {
        while *steps > 0
            && let Some(id) = self.round_robin.next(|id| self.topics.get(&id).map_or(0, |topic| topic.bytes))
        {
            let topic = self.topics.get_mut(&id).filter(|_| !self.paused.contains(&id));
            let hosts = &self.hosts;
            let may = |host| {
                spare.is_none_or(|spare| hosts.may_spare(host, spare) || hosts.waits_for_its_own(host))
            };
            let (window, checkpoint) = (self.limits.window, self.checkpoints);
            match topic.map(|topic| topic.step(window, checkpoint, now.monotonic, steps, may)) {
                Some(SweepStep::Enqueue(host, subscription, last)) => {
                    self.touched.insert(id);
                    let was_scarce = now.monotonic < self.scarce_until;
                    let is_behind_its_own = was_scarce && self.hosts.waits_for_its_own(host);
                    if spare.is_some() {
                        self.hosts.note_no_permit(host);
                    }
                    self.hosts.enqueue(host, (id, subscription), last);
                    return if is_behind_its_own { Swept::BehindItsOwn } else { Swept::One };
                }
                Some(SweepStep::EnqueueRetry(host, subscription)) => {
                    self.hosts.enqueue(host, (id, subscription), LastAttempt::Failed);
                    return Swept::One;
                }
                Some(SweepStep::RetryAt(due, subscription)) => {
                    self.timers.push(Reverse((due, id, subscription)));
                    return Swept::One;
                }
                Some(SweepStep::Interrupted) => {
                    self.round_robin.pass();
                    return Swept::Nothing;
                }
                Some(SweepStep::Busy(host)) => {
                    self.hosts.note_no_permit(host);
                    self.round_robin.pass();
                }
                Some(SweepStep::Blocked) => {
                    *steps = steps.saturating_sub(1);
                    self.round_robin.leave();
                    self.settle(id);
                }
                None => {
                    *steps = steps.saturating_sub(1);
                    self.round_robin.leave();
                }
            }
        }
        Swept::Nothing
    }

    pub(super) fn join_round_robin(&mut self, id: TopicId) {
        let more = self.topics.get(&id).is_some_and(|topic| topic.has_more(self.limits.window));
        if more && !self.paused.contains(&id) {
            self.round_robin.join(id);
        }
    }

    fn start(
        &mut self,
        host: HostId,
        charge: Charge,
        topic: TopicId,
        id: SubscriptionId,
        now: Now,
    ) -> Option<Attempt> {
        let state = self.topics.get_mut(&topic)?;
        if self.paused.contains(&topic) {
            state.hold(id);
            return None;
        }
        let SubscriptionEntry { lease_end, is_proven: was_proven, .. } = *state.table.get(id)?;
        if lease_end <= now.wall {
            if self.clock.is_in_doubt(now) {
                self.withhold(topic, id, WITHHELD, now);
            } else {
                self.end(topic, id, Ended::Expired, now);
            }
            return None;
        }
        let (target, newest_fetched, posted) =
            (state.target(), state.newest_fetched_in_sweep(), state.posted);
        let active = state.active_mut(id).filter(|active| active.phase == Phase::Waiting)?;
        if active.cursor >= target {
            self.go_on(topic, id, now);
            return None;
        }
        let is_too_late = |suspect: &mut Suspect| now.monotonic - suspect.since > MOMENT;
        // What was to be tried once more is tried as any other, and what was taken behind it comes again in its turn.
        if let Some(suspect) = active.suspect.take_if(is_too_late)
            && suspect.taken.is_none()
        {
            self.back_off(topic, id, suspect.due.saturating_duration_since(now.monotonic), now);
            return None;
        }
        active.phase = Phase::InFlight;
        let past_suspect = active.goes_past_suspect();
        let (offset, number) = if past_suspect {
            (active.cursor.next().next(), 1)
        } else {
            (active.cursor.next(), active.notification_failures.saturating_add(1))
        };
        let newest_only = posted < offset && offset <= newest_fetched;
        let number = if newest_only && offset < newest_fetched { 1 } else { number };
        let many_topics = self.round_robin.has_many();
        // So many are served before this one is again, if it gets all that it is owed now.
        let between = if many_topics { self.subscriptions } else { state.table.len() };
        let keep = if between > MOST_KEPT && (newest_only || offset >= target) {
            CachePolicy::Drop
        } else {
            CachePolicy::Keep
        };
        let ahead =
            if many_topics && state.table.len() <= SMALL_TOPIC { ReadAhead::Shard } else { ReadAhead::Topic };
        Some(Attempt {
            topic,
            subscription: id,
            offset,
            newest_fetched,
            newest_only,
            number,
            charge,
            past_suspect,
            was_proven,
            ahead,
            keep,
            host,
            confirmations: self.hosts.confirmations(host),
            lease_end,
        })
    }

    /// How many subscriptions could have been served for a while and were not: they wait for a permit of a host whose breaker
    /// is not open, for their turn in a sweep, or for an attempt whose time has come. To be called now and then, since it counts from what
    /// the call before has seen. Takes time in proportion to hosts and topics, not to subscriptions.
    pub(crate) fn past_due(&mut self, now: Instant) -> usize {
        let Some(moment) = now.checked_sub(PAST_DUE) else { return 0 };
        let paused = &self.paused;
        let sweeping = self.topics.iter_mut().filter(|(id, _)| !paused.contains(*id));
        let not_taken_up: usize = sweeping.map(|(_, topic)| topic.not_taken_up_since(moment, now)).sum();
        let overdue = self.timers.peek().is_some_and(|Reverse((due, ..))| *due < moment);
        // Only where nothing may be started do timers wait, and then no others matter.
        let timers =
            if overdue { self.timers.iter().filter(|Reverse((due, ..))| *due < moment).count() } else { 0 };
        not_taken_up + timers + self.hosts.waiting_since(moment)
    }
}
