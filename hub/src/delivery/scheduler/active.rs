//! An active subscription: how far it is, and what it waits for.

use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;

use super::clock::Now;
use super::retry_policy::{Failure, FailureStreak};
use crate::store::{Failing, FailureClass, Laggard, Offset, SubscriptionId, TopicId};

/// A subscription that is being served. An idle one needs no more than its entry in the table.
#[derive(Debug)]
pub(super) struct ActiveSubscription {
    /// It is done through here.
    pub(super) cursor: Offset,
    /// Failed attempts since something was delivered or given up: the longer the streak, the longer the pauses.
    pub(super) streak_failures: u16,
    /// Failed attempts at the next notification. Where only the newest version counts, these may be fewer.
    pub(super) notification_failures: u16,
    /// How many of the last ones in a row may be for what was sent.
    pub(super) suspect_failures: u16,
    /// How often its host had answered when it failed last.
    pub(super) answers: u32,
    pub(super) failing: Option<FailingSince>,
    /// How many times in a row nothing was sent, since its name leads to an unconfirmed address.
    pub(super) unconfirmed_times: u16,
    pub(super) class: FailureClass,
    pub(super) phase: Phase,
    /// The next notification may be the cause of the failures: the one after it is tried, and then it once more.
    pub(super) suspect: Option<Suspect>,
    /// It has a record of its own.
    pub(super) saved: bool,
    /// In which checkpoint interval it was taken up.
    pub(super) joined: u32,
}

/// Since when there are only failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailingSince {
    /// When it began, by the wall clock.
    pub(super) since: DateTime,
    /// How long it had lasted when it was counted.
    pub(super) before: Duration,
    /// When it was counted. A wall clock that is set makes no streak longer.
    pub(super) counted: Instant,
}

impl FailingSince {
    /// From now on.
    pub(super) fn new(wall: DateTime, monotonic: Instant) -> Self {
        Self { since: wall, before: Duration::ZERO, counted: monotonic }
    }

    /// How long it has lasted.
    pub(super) fn lasts(&self, now: Instant) -> Duration {
        self.before + now.saturating_duration_since(self.counted)
    }
}

/// A notification that a server failed at again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    /// When it failed last, or what comes behind it was taken.
    pub(super) since: Instant,
    /// When it would be tried again.
    pub(super) due: Instant,
    /// What comes behind it was taken, through here.
    pub(super) taken: Option<Offset>,
}

/// What an active subscription waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A permit of its host.
    Waiting,
    /// An answer.
    InFlight,
    /// The next attempt's time.
    Backoff(Instant),
    /// The end of the sweep: it is at the target already.
    Parked,
    /// A notification that it is owed, and this moment. It is ahead of the sweep, or nothing has succeeded since it failed:
    /// that must be remembered.
    Remembered(Instant),
}

impl ActiveSubscription {
    /// One that is done through here and has not failed; since which checkpoint it is active.
    pub(super) fn waiting(cursor: Offset, joined: u32) -> Self {
        Self {
            cursor,
            streak_failures: 0,
            notification_failures: 0,
            suspect_failures: 0,
            answers: 0,
            failing: None,
            unconfirmed_times: 0,
            class: FailureClass::NotFailed,
            phase: Phase::Waiting,
            suspect: None,
            saved: false,
            joined,
        }
    }

    /// It has got what stands at this offset.
    pub(super) fn delivered(&mut self, offset: Offset) {
        self.passed(offset);
        self.failing = None;
        self.class = FailureClass::NotFailed;
    }

    /// An attempt at this offset has failed, and its host has answered so often by now.
    pub(super) fn failed(
        &mut self,
        offset: Offset,
        failure: &Failure,
        answers: u32,
        now: Now,
    ) -> FailureStreak {
        // A newer version has all its tries.
        if offset != self.cursor.next() {
            self.notification_failures = 0;
            self.suspect_failures = 0;
        }
        self.cursor = Offset(offset.0 - 1);
        let was_gone = self.streak_failures > 0 && self.class == FailureClass::Gone;
        self.streak_failures = self.streak_failures.saturating_add(1);
        self.notification_failures = self.notification_failures.saturating_add(1);
        let is_suspect = failure.may_be_the_messages(self.answers != answers);
        self.suspect_failures = if is_suspect { self.suspect_failures.saturating_add(1) } else { 0 };
        self.answers = answers;
        self.class = failure.class;
        self.unconfirmed_times = 0;
        let failing = self.failing.get_or_insert_with(|| FailingSince::new(now.wall, now.monotonic));
        let failing_for = failing.lasts(now.monotonic);
        FailureStreak {
            failures: self.streak_failures,
            of_notification: self.notification_failures,
            was_gone,
            failing_for,
        }
    }

    /// It goes on after this offset, which it has got or never will.
    pub(super) fn passed(&mut self, offset: Offset) {
        self.cursor = offset;
        self.streak_failures = 0;
        self.notification_failures = 0;
        self.suspect_failures = 0;
        self.unconfirmed_times = 0;
    }

    /// Its subscriber has confirmed it: a 410 is the first one again.
    pub(super) fn confirmed(&mut self) {
        if self.class == FailureClass::Gone {
            self.streak_failures = 0;
            self.notification_failures = 0;
            self.failing = None;
            self.class = FailureClass::NotFailed;
        }
    }

    /// It gets what comes after this offset once more. An answer to a request that is under way counts no more.
    pub(super) fn rewind(&mut self, to: Offset) {
        self.passed(to);
        self.suspect = None;
        if self.phase != Phase::InFlight {
            self.phase = Phase::Waiting;
        }
    }

    /// Whether what comes behind a suspected notification is tried.
    pub(super) fn goes_past_suspect(&self) -> bool {
        self.suspect.is_some_and(|suspect| suspect.taken.is_none())
    }

    /// It gets what it has taken behind a suspected notification once more.
    pub(super) fn owe_taken(&mut self) {
        self.suspect.take_if(|suspect| suspect.taken.is_some());
    }

    /// Whether it is owed nothing and yet remembered.
    pub(super) fn is_remembered(&self) -> bool {
        matches!(self.phase, Phase::Remembered(_))
    }

    /// Whether its last attempt failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Whether its next attempt is a retry, which goes behind first attempts.
    pub(super) fn is_retry(&self) -> bool {
        self.is_failing() || self.unconfirmed_times > 0
    }

    pub(super) fn laggard(
        &self,
        topic: TopicId,
        subscription: SubscriptionId,
        now: Instant,
        wall: DateTime,
    ) -> Laggard {
        let pause = match self.phase {
            Phase::Backoff(due) | Phase::Remembered(due) => due.saturating_duration_since(now),
            Phase::Waiting | Phase::InFlight | Phase::Parked => Duration::ZERO,
        };
        Laggard {
            topic,
            subscription,
            cursor: self.cursor,
            streak_failures: self.streak_failures,
            next_attempt: later(wall, pause),
            pause,
            failing: self.failing.map(|failing| Failing { since: failing.since, lasted: failing.lasts(now) }),
            class: self.class,
        }
    }
}

fn later(wall: DateTime, pause: Duration) -> DateTime {
    DateTime::from_system_time(wall.to_system_time() + pause)
}
