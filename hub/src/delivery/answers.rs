//! What an answer means for one shard: who goes on, who is tried again and when, and what is given up.

use std::net::IpAddr;
use std::time::Duration;

use super::super::attempt::{Attempt, Finished};
use super::super::hosts::HostId;
use super::super::member::{Failing, Phase, Poison};
use super::super::schedule::{self, Decision, Failure, GivenUp, Outcome, Row};
use super::super::waiting::LastAttempt;
use super::{Machine, Now};
use crate::store::{Ended, FailureClass, Gap, Offset, Skip, SubscriptionId, TopicId};

/// How long a delivery waits when the store could not be read.
const POSTPONED: Duration = Duration::from_secs(1);
/// How long one waits whose record cannot be read. It never will be in this life.
const UNREADABLE: Duration = Duration::from_secs(3_600);
/// When a server has failed at a notification so many times in a row, or hung up on it, that is suspected to be the cause. One more
/// failure would open the breaker, and nobody could be asked.
const SUSPICIOUS: u16 = 4;

impl Machine {
    /// Takes in where a request went, if it got that far.
    pub(in super::super) fn reached(&mut self, host: HostId, address: Option<IpAddr>) {
        if let Some(address) = address {
            self.hosts.reached(host, address);
        }
    }

    /// Takes in what became of a request.
    pub(in super::super) fn finished(&mut self, attempt: &Attempt, finished: Finished, now: Now) {
        if let Finished::Answered { outcome, .. } = &finished {
            self.note_last(attempt, *outcome == Outcome::Delivered);
        }
        self.hosts.answered(attempt.host, attempt.place, finished.sign(), now.monotonic);
        if !matches!(finished, Finished::HeldBack(_) | Finished::Undecided) {
            self.held_back.remove(attempt.host, (attempt.topic, attempt.subscription));
        }
        let Some(topic) = self.topics.get_mut(&attempt.topic) else { return };
        let goal = topic.goal();
        let Some(member) = topic.member(attempt.subscription) else { return };
        let expected =
            if member.suspect.is_some() { member.cursor.next().next() } else { member.cursor.next() };
        if attempt.offset != expected || attempt.probe != member.suspect.is_some() {
            return self.outdated(attempt, &finished, now);
        }
        if let Some(poison) = member.suspect.take() {
            return self.probed(attempt, poison, &finished, now);
        }
        match finished {
            Finished::Answered { offset, outcome: Outcome::Delivered } => {
                member.delivered(offset);
                self.counts.delivered += 1;
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Answered { offset, outcome: Outcome::Failed(failure) } => {
                self.counts.failed += 1;
                self.failed(attempt, offset, &failure, now);
            }
            Finished::Gap { from, next } => {
                let to = Offset(next.0.saturating_sub(1)).min(goal).max(attempt.offset);
                member.passed(to);
                if from <= to {
                    let Attempt { topic, subscription, .. } = *attempt;
                    self.counts.lost_to_retention += to.0 - from.0 + 1;
                    self.gaps.push(Gap { topic, subscription, from, to, at: now.wall });
                }
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Passed { next } => {
                member.passed(Offset(next.0.saturating_sub(1)).min(goal).max(attempt.offset));
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Superseded => {
                member.passed(attempt.latest);
                self.go_on(attempt.topic, attempt.subscription, now);
            }
            Finished::Postponed => self.back_off(attempt.topic, attempt.subscription, POSTPONED, now),
            Finished::Unreadable => self.back_off(attempt.topic, attempt.subscription, UNREADABLE, now),
            Finished::HeldBack(wait) => {
                self.hold_back(attempt, |times| schedule::held_back(times, wait), now);
            }
            Finished::Undecided => self.hold_back(attempt, schedule::undecided, now),
            Finished::Vanished => self.remove(attempt.topic, attempt.subscription),
        }
    }

    /// Whoever was delivered to is tried before others where its host is in trouble, and does not lose that before it fails.
    fn note_last(&mut self, attempt: &Attempt, was_delivered: bool) {
        if was_delivered {
            self.hosts.delivered(attempt.host, (attempt.topic, attempt.subscription));
        }
        if was_delivered != attempt.was_delivered
            && let Some(topic) = self.topics.get_mut(&attempt.topic)
        {
            topic.note_last(attempt.subscription, was_delivered);
        }
    }

    fn failed(&mut self, attempt: &Attempt, offset: Offset, failure: &Failure, now: Now) {
        let answers = self.hosts.answers(attempt.host);
        let Some(topic) = self.topics.get_mut(&attempt.topic) else { return };
        let another = topic.has_after(offset);
        let Some(member) = topic.member(attempt.subscription) else { return };
        if offset != attempt.offset {
            member.tries = 0;
            member.faults = 0;
        }
        member.cursor = Offset(offset.0 - 1);
        let was_gone = member.attempts > 0 && member.class == FailureClass::Gone;
        member.attempts = member.attempts.saturating_add(1);
        member.tries = member.tries.saturating_add(1);
        let is_suspected = failure.may_be_the_messages(member.answers != answers);
        member.faults = if is_suspected { member.faults.saturating_add(1) } else { 0 };
        member.answers = answers;
        member.class = failure.class;
        member.held_back = 0;
        let failing = member.failing.get_or_insert_with(|| Failing::new(now.wall, now.monotonic));
        let failing_for = failing.lasts(now.monotonic);
        let suspicious = member.faults >= SUSPICIOUS;
        let row = Row { attempts: member.attempts, tries: member.tries, was_gone, failing_for };
        match self.limits.retry.decide(failure, &row) {
            Decision::Retry(pause) if suspicious && another => {
                let (failed, due) = (now.monotonic, now.monotonic + pause);
                let poison = Poison { class: failure.class, status: failure.status, failed, due };
                self.probe_next(attempt.topic, attempt.subscription, poison);
            }
            Decision::Retry(pause) => self.back_off(attempt.topic, attempt.subscription, pause, now),
            Decision::Skip(pause) => {
                member.passed(offset);
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

    /// The operator has sent the subscription back while the request was under way.
    fn outdated(&mut self, attempt: &Attempt, finished: &Finished, now: Now) {
        match finished {
            Finished::Answered { outcome: Outcome::Delivered, .. } => self.counts.delivered += 1,
            Finished::Answered { outcome: Outcome::Failed(_), .. } => self.counts.failed += 1,
            Finished::Gap { .. }
            | Finished::Passed { .. }
            | Finished::Superseded
            | Finished::Postponed
            | Finished::Unreadable
            | Finished::HeldBack(_)
            | Finished::Undecided => {}
            Finished::Vanished => return self.remove(attempt.topic, attempt.subscription),
        }
        self.go_on(attempt.topic, attempt.subscription, now);
    }

    /// A server fails at one notification again and again: is it this one only? If the next one is taken a moment later, the
    /// first is given up instead of blocking the others for the whole schedule.
    fn probe_next(&mut self, topic: TopicId, id: SubscriptionId, poison: Poison) {
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let host = state.slot(id).map(|slot| slot.host);
        if let (Some(host), Some(member)) = (host, state.member(id)) {
            member.suspect = Some(poison);
            member.phase = Phase::Waiting;
            state.detach(id);
            self.hosts.wait(host, (topic, id), LastAttempt::Failed);
        }
        self.settle(topic);
    }

    fn probed(&mut self, attempt: &Attempt, poison: Poison, finished: &Finished, now: Now) {
        let (topic, id) = (attempt.topic, attempt.subscription);
        match finished {
            Finished::Answered { offset, outcome: Outcome::Delivered } => {
                let Some(member) = self.topics.get_mut(&topic).and_then(|topic| topic.member(id)) else {
                    return;
                };
                let refused = member.cursor.next();
                member.delivered(*offset);
                self.counts.delivered += 1;
                let Poison { class, status, .. } = poison;
                let skip = Skip { topic, subscription: id, offset: refused, at: now.wall, class, status };
                self.skip(skip, GivenUp::Message);
                self.go_on(topic, id, now);
            }
            Finished::Vanished => self.remove(topic, id),
            Finished::HeldBack(wait) => {
                let due = poison.due.saturating_duration_since(now.monotonic);
                self.hold_back(attempt, |times| schedule::held_back(times, due.max(*wait)), now);
            }
            Finished::Undecided => {
                let due = poison.due.saturating_duration_since(now.monotonic);
                self.hold_back(attempt, |times| schedule::undecided(times).max(due), now);
            }
            Finished::Answered { .. }
            | Finished::Gap { .. }
            | Finished::Passed { .. }
            | Finished::Superseded
            | Finished::Postponed
            | Finished::Unreadable => {
                self.counts.failed += u64::from(matches!(finished, Finished::Answered { .. }));
                let pause = poison.due.saturating_duration_since(now.monotonic);
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
