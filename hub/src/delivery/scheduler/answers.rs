//! What an answer means: which subscription goes on, which is tried again and when, and what is given up.

use std::net::IpAddr;
use std::time::Duration;

use super::Scheduler;
use super::active::{FailingSince, Phase, Poison};
use super::attempt::{Attempt, Finished};
use super::clock::Now;
use super::host::HostId;
use super::schedule::{self, Decision, Failure, FailureStreak, GivenUp, Outcome};
use super::wait_queue::LastAttempt;
use crate::store::{Ended, FailureClass, Gap, Offset, Skip, SubscriptionId, TopicId};

/// How long a delivery waits when the store could not be read.
const POSTPONED: Duration = Duration::from_secs(1);
/// How long one waits whose record cannot be read. It never will be in this life.
const UNREADABLE: Duration = Duration::from_secs(3_600);
/// When a server has failed at a notification so many times in a row, or hung up on it, that is suspected to be the cause. One more
/// failure would open the breaker, and no other notification could be tried.
const SUSPICIOUS: u16 = 4;

impl Scheduler {
    /// Takes in where a request went, if it got that far.
    pub(crate) fn reached(&mut self, host: HostId, address: Option<IpAddr>) {
        if let Some(address) = address {
            self.hosts.reached(host, address);
        }
    }

    /// Takes in what became of a request.
    pub(crate) fn finished(&mut self, attempt: &Attempt, finished: Finished, now: Now) {
        if let Finished::Answered { outcome, .. } = &finished {
            self.record_delivered(attempt, *outcome == Outcome::Delivered);
        }
        self.hosts.answered(attempt.host, attempt.permit, finished.sign(), now.monotonic);
        if !matches!(finished, Finished::RateLimited(_) | Finished::Reverifying) {
            self.unconfirmed.remove(attempt.host, (attempt.topic, attempt.subscription));
        }
        let Some(topic) = self.topics.get_mut(&attempt.topic) else { return };
        let goal = topic.goal();
        let Some(active) = topic.active_mut(attempt.subscription) else { return };
        let expected =
            if active.suspect.is_some() { active.cursor.next().next() } else { active.cursor.next() };
        if attempt.offset != expected || attempt.probe != active.suspect.is_some() {
            return self.outdated(attempt, &finished, now);
        }
        if let Some(poison) = active.suspect.take() {
            return self.probed(attempt, poison, &finished, now);
        }
        match finished {
            Finished::Answered { offset, outcome: Outcome::Delivered } => {
                active.delivered(offset);
                self.counts.delivered += 1;
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Answered { offset, outcome: Outcome::Failed(failure) } => {
                self.counts.failed += 1;
                self.failed(attempt, offset, &failure, now);
            }
            Finished::Gap { from, next } => {
                let to = Offset(next.0.saturating_sub(1)).min(goal).max(attempt.offset);
                active.passed(to);
                if from <= to {
                    let Attempt { topic, subscription, .. } = *attempt;
                    self.counts.lost_to_retention += to.0 - from.0 + 1;
                    self.gaps.push(Gap { topic, subscription, from, to, at: now.wall });
                }
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Passed { next } => {
                active.passed(Offset(next.0.saturating_sub(1)).min(goal).max(attempt.offset));
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Superseded => {
                active.passed(attempt.latest);
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Postponed => self.back_off(attempt.topic, attempt.subscription, POSTPONED, now),
            Finished::Unreadable => self.back_off(attempt.topic, attempt.subscription, UNREADABLE, now),
            Finished::RateLimited(wait) => {
                self.await_confirmation(attempt, |times| schedule::rate_limited(times, wait), now);
            }
            Finished::Reverifying => self.await_confirmation(attempt, schedule::reverifying, now),
            Finished::SubscriptionEnded => self.remove(attempt.topic, attempt.subscription),
        }
    }

    /// A subscription with a delivery is tried before others where its host is in trouble, until it fails.
    fn record_delivered(&mut self, attempt: &Attempt, was_delivered: bool) {
        if was_delivered {
            self.hosts.delivered(attempt.host, (attempt.topic, attempt.subscription));
        }
        if was_delivered != attempt.was_delivered
            && let Some(topic) = self.topics.get_mut(&attempt.topic)
        {
            topic.set_was_delivered(attempt.subscription, was_delivered);
        }
    }

    fn failed(&mut self, attempt: &Attempt, offset: Offset, failure: &Failure, now: Now) {
        let answers = self.hosts.answers(attempt.host);
        let Some(topic) = self.topics.get_mut(&attempt.topic) else { return };
        let another = topic.has_after(offset);
        let Some(active) = topic.active_mut(attempt.subscription) else { return };
        if offset != attempt.offset {
            active.tries = 0;
            active.faults = 0;
        }
        active.cursor = Offset(offset.0 - 1);
        let was_gone = active.attempts > 0 && active.class == FailureClass::Gone;
        active.attempts = active.attempts.saturating_add(1);
        active.tries = active.tries.saturating_add(1);
        let is_suspected = failure.may_be_the_messages(active.answers != answers);
        active.faults = if is_suspected { active.faults.saturating_add(1) } else { 0 };
        active.answers = answers;
        active.class = failure.class;
        active.unconfirmed_times = 0;
        let failing = active.failing.get_or_insert_with(|| FailingSince::new(now.wall, now.monotonic));
        let failing_for = failing.lasts(now.monotonic);
        let suspicious = active.faults >= SUSPICIOUS;
        let streak = FailureStreak { attempts: active.attempts, tries: active.tries, was_gone, failing_for };
        match self.limits.retry.decide(failure, &streak) {
            Decision::Retry(pause) if suspicious && another => {
                let (failed, due) = (now.monotonic, now.monotonic + pause);
                let poison = Poison { class: failure.class, status: failure.status, failed, due };
                self.probe_next(attempt.topic, attempt.subscription, poison);
            }
            Decision::Retry(pause) => self.back_off(attempt.topic, attempt.subscription, pause, now),
            Decision::Skip(pause) => {
                active.passed(offset);
                let Attempt { topic, subscription, .. } = *attempt;
                let Failure { class, status, .. } = *failure;
                let skip = Skip { topic, subscription, offset, at: now.wall, class, status };
                self.skip(skip, GivenUp::after(class));
                self.after_skip(attempt, pause, now);
            }
            Decision::End => {
                let gone = Ended::Gone { lease_end: attempt.lease_end };
                self.end(attempt.topic, attempt.subscription, gone, now);
            }
        }
    }

    /// The operator has replayed for this subscription while the request was under way.
    fn outdated(&mut self, attempt: &Attempt, finished: &Finished, now: Now) {
        match finished {
            Finished::Answered { outcome: Outcome::Delivered, .. } => self.counts.delivered += 1,
            Finished::Answered { outcome: Outcome::Failed(_), .. } => self.counts.failed += 1,
            Finished::Gap { .. }
            | Finished::Passed { .. }
            | Finished::Superseded
            | Finished::Postponed
            | Finished::Unreadable
            | Finished::RateLimited(_)
            | Finished::Reverifying => {}
            Finished::SubscriptionEnded => return self.remove(attempt.topic, attempt.subscription),
        }
        self.go_on(attempt.topic, attempt.subscription, now);
    }

    /// A server fails at one notification again and again: is it this one only? If the next one is taken a moment later, the
    /// first is given up instead of blocking the others for the whole schedule.
    fn probe_next(&mut self, topic: TopicId, id: SubscriptionId, poison: Poison) {
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let host = state.entry(id).map(|entry| entry.host);
        if let (Some(host), Some(active)) = (host, state.active_mut(id)) {
            active.suspect = Some(poison);
            active.phase = Phase::Waiting;
            state.detach(id);
            self.hosts.wait(host, (topic, id), LastAttempt::Failed);
        }
        self.settle(topic);
    }

    fn probed(&mut self, attempt: &Attempt, poison: Poison, finished: &Finished, now: Now) {
        let (topic, id) = (attempt.topic, attempt.subscription);
        let pause = poison.due.saturating_duration_since(now.monotonic);
        match finished {
            Finished::Answered { offset, outcome: Outcome::Delivered } => {
                let Some(active) = self.topics.get_mut(&topic).and_then(|topic| topic.active_mut(id)) else {
                    return;
                };
                let refused = active.cursor.next();
                active.delivered(*offset);
                self.counts.delivered += 1;
                let Poison { class, status, .. } = poison;
                let skip = Skip { topic, subscription: id, offset: refused, at: now.wall, class, status };
                self.skip(skip, GivenUp::Message);
                self.go_on(topic, id, now);
            }
            Finished::SubscriptionEnded => self.remove(topic, id),
            Finished::RateLimited(wait) => {
                self.await_confirmation(
                    attempt,
                    |times| schedule::rate_limited(times, pause.max(*wait)),
                    now,
                );
            }
            Finished::Reverifying => {
                self.await_confirmation(attempt, |times| schedule::reverifying(times).max(pause), now);
            }
            Finished::Answered { .. }
            | Finished::Gap { .. }
            | Finished::Passed { .. }
            | Finished::Superseded
            | Finished::Postponed
            | Finished::Unreadable => {
                self.counts.failed += u64::from(matches!(finished, Finished::Answered { .. }));
                self.back_off(topic, id, pause, now);
            }
        }
    }

    /// The subscription stays, and the next notification tries it again (W-159, W-160), perhaps after a pause.
    fn after_skip(&mut self, attempt: &Attempt, pause: Duration, now: Now) {
        if pause.is_zero() {
            self.go_on(attempt.topic, attempt.subscription, now);
        } else {
            self.back_off(attempt.topic, attempt.subscription, pause, now);
        }
    }
}
