//! A request that the machine of delivery wants to be made, and what became of it.

use std::time::Duration;

use resync_core::datetime::DateTime;

use super::breaker::Sign;
use super::hosts::{HostId, Place};
use super::schedule::Outcome;
use crate::store::{Ahead, FailureClass, Keep, Offset, Rule, SubscriptionId, TopicId};

/// A request to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// The topic.
    pub(super) topic: TopicId,
    /// Who gets it.
    pub(super) subscription: SubscriptionId,
    /// The notification.
    pub(super) offset: Offset,
    /// The newest fetched version: older ones that are fetched too need not be sent.
    pub(super) latest: Offset,
    /// Nothing but fetched versions is owed.
    pub(super) newest_only: bool,
    /// How many times this has been tried, this one included.
    pub(super) number: u16,
    /// What it takes of the requests under way.
    pub(super) place: Place,
    /// The notification before it has failed a moment ago: does the subscriber refuse everything, or that one only?
    pub(super) probe: bool,
    /// The last attempt for this subscription was delivered.
    pub(super) was_delivered: bool,
    /// Who is taken up next.
    pub(super) ahead: Ahead,
    /// Whether the subscription is asked for again soon.
    pub(super) keep: Keep,
    /// Its host.
    pub(super) host: HostId,
    /// How often that had confirmed anything when it was taken up.
    pub(super) confirmations: u32,
    /// The end of its subscription's lease, which each yes of the subscriber puts off.
    pub(super) lease_end: DateTime,
}

/// What to do with a notification that the log has for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Find {
    /// It is the one to send.
    Send,
    /// Retention has removed what was sought.
    Gap,
    /// It is superseded: the next one is to be looked for.
    Pass,
    /// What was sought is superseded and gone; there may be posted ones before this.
    Later,
}

impl Attempt {
    /// Where to look first: at the next notification, or at the newest version where only that counts.
    pub(super) fn sought(&self) -> Offset {
        if self.newest_only { self.latest } else { self.offset }
    }

    /// What the first notification at or after `sought` is to this attempt. Only where posted and fetched content are mixed are
    /// there versions to be passed one by one.
    pub(super) fn judge(&self, sought: Offset, found: Offset, rule: Rule) -> Find {
        if self.newest_only {
            if found == sought { Find::Send } else { Find::Later }
        } else if found > sought {
            Find::Gap
        } else if rule == Rule::Every || found >= self.latest {
            Find::Send
        } else {
            Find::Pass
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// A request was made for this offset (the attempt's, or a newer version's).
    Answered {
        /// What was sent.
        offset: Offset,
        /// How that ended.
        outcome: Outcome,
    },
    /// The log no longer holds what is owed, from the first of these to before the second.
    Gap {
        /// The first that is missing.
        from: Offset,
        /// Where to go on.
        next: Offset,
    },
    /// There never was anything to send before this one.
    Passed {
        /// Where to go on.
        next: Offset,
    },
    /// The version that was to be sent is superseded and no longer in the log: the next sweep is about what came after it.
    Superseded,
    /// The store could not be read: nothing was tried.
    Postponed,
    /// The subscription's record is damaged: nothing can be sent until the store is repaired.
    Unreadable,
    /// The name leads to where nobody has confirmed under it: nothing was sent, and nothing may be for so long.
    HeldBack(Duration),
    /// The same, until somebody there was asked and has answered.
    Undecided,
    /// The subscription has ended meanwhile.
    Vanished,
}

impl Finished {
    /// What it says about the host.
    pub(super) fn sign(&self) -> Sign {
        match self {
            Self::Answered { outcome: Outcome::Failed(failure), .. } => match failure.class {
                FailureClass::Trouble if failure.status.is_none() => Sign::Silent,
                FailureClass::Trouble => Sign::Trouble,
                FailureClass::Slow | FailureClass::Refused | FailureClass::Gone | FailureClass::Unsent => {
                    Sign::Alive
                }
            },
            Self::Answered { outcome: Outcome::Delivered, .. } => Sign::Alive,
            Self::Gap { .. }
            | Self::Passed { .. }
            | Self::Superseded
            | Self::Postponed
            | Self::Unreadable
            | Self::HeldBack(_)
            | Self::Undecided
            | Self::Vanished => Sign::None,
        }
    }
}
