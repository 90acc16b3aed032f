//! What an answer means: which subscription goes on, which is tried again and when, and what is given up.

use std::net::IpAddr;
use std::time::Duration;

use super::Scheduler;
use super::active::{Phase, Suspect};
use super::attempt::{Attempt, Finished};
use super::clock::Now;
use super::host::HostId;
use super::retry_policy::{self, Decision, DeliveryOutcome, Failure, GivenUp};
use super::wait_queue::LastAttempt;
use crate::store::{Ended, Gap, Offset, Skip, SubscriptionId, TopicId};

/// How long a delivery waits when the store could not be read.
const POSTPONED: Duration = Duration::from_secs(1);
/// How long one waits whose record cannot be read. It never will be in this life.
const UNREADABLE: Duration = Duration::from_secs(3_600);
/// When a server has failed at a notification so many times in a row, or hung up on it, that is suspected to be the cause. One more
/// failure would open the breaker, and no other notification could be tried.
const SUSPECT_AFTER: u16 = 4;

impl Scheduler {
    /// Takes in where a request went, if it got that far.
    pub(crate) fn reached(&mut self, host: HostId, address: Option<IpAddr>) {
        if let Some(address) = address {
            self.hosts.reached(host, address);
        }
    }

    /// Takes in what became of a request.
    pub(crate) fn attempt_finished(&mut self, attempt: &Attempt, finished: Finished, now: Now) {
        if let Finished::Answered { outcome, .. } = &finished {
            self.record_proven(attempt, *outcome == DeliveryOutcome::Delivered);
        }
        self.hosts.answered(attempt.host, attempt.charge, finished.host_signal(), now.monotonic);
        if !matches!(finished, Finished::RateLimited(_) | Finished::Reverifying) {
            self.unconfirmed.remove(attempt.host, (attempt.topic, attempt.subscription));
        }
        let (topic, id) = (attempt.topic, attempt.subscription);
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let target = state.target();
        let Some(active) = state.active_mut(id) else { return };
        let next_owed = active.cursor.next();
        let is_past_suspect = active.goes_past_suspect();
        let in_flight = if is_past_suspect { next_owed.next() } else { next_owed };
        if attempt.offset != in_flight || attempt.past_suspect != is_past_suspect {
            return self.outdated(attempt, &finished, now);
        }
        if let Some(suspect) = active.suspect.take() {
            let Some(taken) = suspect.taken else {
                return self.tried_past_suspect(attempt, suspect, &finished, now);
            };
            if let Some(verdict) = verdict(&finished) {
                return self.tried_once_more(attempt, taken, verdict, now);
            }
            // It goes by its schedule then, and what was taken behind it comes again in its turn.
        }
        // What is passed ends before `next`, but not beyond the sweep: nobody gets ahead of that.
        let last_passed = |next: Offset| Offset(next.0.saturating_sub(1)).min(target).max(attempt.offset);
        match finished {
            Finished::Answered { offset, outcome: DeliveryOutcome::Delivered } => {
                active.delivered(offset);
                self.counts.delivered += 1;
            }
            Finished::Answered { offset, outcome: DeliveryOutcome::Failed(failure) } => {
                self.counts.failed += 1;
                return self.failed(attempt, offset, &failure, now);
            }
            Finished::Gap { from, next } => {
                let to = last_passed(next);
                active.passed(to);
                if from <= to {
                    self.counts.lost_to_retention += to.0 - from.0 + 1;
                    self.unsaved.gaps.push(Gap { topic, subscription: id, from, to, at: now.wall });
                    // Its record is saved together with the gap.
                    state.detach(id);
                }
            }
            Finished::Passed { next } => active.passed(last_passed(next)),
            Finished::Superseded => active.passed(attempt.newest_fetched),
            Finished::Postponed => return self.back_off(topic, id, POSTPONED, now),
            Finished::Unreadable => return self.back_off(topic, id, UNREADABLE, now),
            Finished::RateLimited(wait) => {
                return self.await_confirmation(
                    attempt,
                    |times| retry_policy::rate_limited(times, wait),
                    now,
                );
            }
            Finished::Reverifying => return self.await_confirmation(attempt, retry_policy::reverifying, now),
            Finished::SubscriptionEnded => return self.remove(topic, id),
        }
        self.go_on(topic, id, now);
    }

    /// A subscription with a delivery is tried before others where its host is in trouble, until it fails.
    fn record_proven(&mut self, attempt: &Attempt, is_proven: bool) {
        if is_proven {
            self.hosts.delivered(attempt.host, (attempt.topic, attempt.subscription));
        }
        if is_proven != attempt.was_proven
            && let Some(topic) = self.topics.get_mut(&attempt.topic)
        {
            topic.set_proven(attempt.subscription, is_proven);
        }
    }

    fn failed(&mut self, attempt: &Attempt, offset: Offset, failure: &Failure, now: Now) {
        let (topic, id) = (attempt.topic, attempt.subscription);
        let answers = self.hosts.answers(attempt.host);
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let has_next = state.has_after(offset);
        let Some(active) = state.active_mut(id) else { return };
        let streak = active.failed(offset, failure, answers, now);
        let is_suspected = active.suspect_failures >= SUSPECT_AFTER;
        match self.limits.retry.decide(failure, &streak) {
            Decision::Retry(pause) if is_suspected && has_next => {
                let (since, due) = (now.monotonic, now.monotonic + pause);
                self.try_beside_suspect(topic, id, Suspect { since, due, taken: None });
            }
            Decision::Retry(pause) => self.back_off(topic, id, pause, now),
            // The subscription stays, and the next notification tries it again (W-159, W-160), perhaps after a pause.
            Decision::Skip(pause) => {
                active.passed(offset);
                // Its record is saved together with what was given up.
                state.detach(id);
                let Failure { class, status, .. } = *failure;
                let skip = Skip { topic, subscription: id, offset, at: now.wall, class, status };
                self.skip(skip, GivenUp::after(class));
                if pause.is_zero() {
                    self.go_on(topic, id, now);
                } else {
                    self.back_off(topic, id, pause, now);
                }
            }
            Decision::End => self.end(topic, id, Ended::Gone { lease_end: attempt.lease_end }, now),
        }
    }

    /// The operator has replayed for this subscription while the request was under way.
    fn outdated(&mut self, attempt: &Attempt, finished: &Finished, now: Now) {
        match finished {
            Finished::Answered { outcome: DeliveryOutcome::Delivered, .. } => self.counts.delivered += 1,
            Finished::Answered { outcome: DeliveryOutcome::Failed(_), .. } => self.counts.failed += 1,
            Finished::SubscriptionEnded => return self.remove(attempt.topic, attempt.subscription),
            _ => {}
        }
        self.go_on(attempt.topic, attempt.subscription, now);
    }

    /// A server fails at one notification again and again: is it this one only? If the next one is taken a moment later, and the server
    /// fails at the first even after that, it is given up instead of blocking the others for the whole schedule. A server that was down and
    /// came back in between takes it late instead.
    fn try_beside_suspect(&mut self, topic: TopicId, id: SubscriptionId, suspect: Suspect) {
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let host = state.table.get(id).map(|entry| entry.host);
        if let (Some(host), Some(active)) = (host, state.active_mut(id)) {
            active.suspect = Some(suspect);
            active.phase = Phase::Waiting;
            state.detach(id);
            self.hosts.enqueue(host, (topic, id), LastAttempt::Failed);
        }
        self.settle(topic);
    }

    fn tried_past_suspect(&mut self, attempt: &Attempt, suspect: Suspect, finished: &Finished, now: Now) {
        let (topic, id) = (attempt.topic, attempt.subscription);
        let pause = suspect.due.saturating_duration_since(now.monotonic);
        match finished {
            Finished::Answered { offset, outcome: DeliveryOutcome::Delivered } => {
                self.counts.delivered += 1;
                let (since, taken) = (now.monotonic, Some(*offset));
                self.try_beside_suspect(topic, id, Suspect { since, taken, ..suspect });
            }
            Finished::SubscriptionEnded => self.remove(topic, id),
            Finished::RateLimited(wait) => {
                self.await_confirmation(
                    attempt,
                    |times| retry_policy::rate_limited(times, pause.max(*wait)),
                    now,
                );
            }
            Finished::Reverifying => {
                self.await_confirmation(attempt, |times| retry_policy::reverifying(times).max(pause), now);
            }
            _ => {
                self.counts.failed += u64::from(matches!(finished, Finished::Answered { .. }));
                self.back_off(topic, id, pause, now);
            }
        }
    }

    /// What was taken behind the suspect stays taken.
    fn tried_once_more(&mut self, attempt: &Attempt, taken: Offset, verdict: Verdict<'_>, now: Now) {
        let (topic, id) = (attempt.topic, attempt.subscription);
        let Some(active) = self.topics.get_mut(&topic).and_then(|topic| topic.active_mut(id)) else { return };
        let suspected = active.cursor.next();
        match verdict {
            Verdict::Taken(offset) => {
                active.delivered(taken.max(offset));
                self.counts.delivered += 1;
            }
            Verdict::AtFault(&Failure { class, status, .. }) => {
                active.delivered(taken);
                self.counts.failed += 1;
                let skip = Skip { topic, subscription: id, offset: suspected, at: now.wall, class, status };
                self.skip(skip, GivenUp::Suspect);
            }
        }
        self.go_on(topic, id, now);
    }
}

/// What the one attempt says of a suspected notification that is made after the next one was taken.
#[derive(Clone, Copy, Debug)]
enum Verdict<'a> {
    /// The server has this by now: it was down before.
    Taken(Offset),
    /// The server fails at this one only.
    AtFault(&'a Failure),
}

/// Whatever else became of it says nothing: nothing was sent, or for another reason nothing was taken.
fn verdict(finished: &Finished) -> Option<Verdict<'_>> {
    match finished {
        Finished::Answered { offset, outcome: DeliveryOutcome::Delivered } => Some(Verdict::Taken(*offset)),
        // The next one was answered in between.
        Finished::Answered { outcome: DeliveryOutcome::Failed(failure), .. } => {
            failure.may_be_the_messages(true).then_some(Verdict::AtFault(failure))
        }
        _ => None,
    }
}
