//! A request that the scheduler wants to be made, and what became of it.
//!
//! What follows from how a request ends, by the schedules of [`RetryPolicy`](super::RetryPolicy); `outcome` is the label of the metric:
//!
//! | end | [`FailureClass`] | [`HostSignal`] | then | `outcome` |
//! |---|---|---|---|---|
//! | 2xx | | `Alive` | the next notification | `2xx` |
//! | 410 | `Gone` | `Alive` | once more after `gone_confirm_after`; the second in a row ends the subscription | `410` |
//! | 408, 425, 429, 5xx | `Trouble` | `Trouble` | `trouble`, then the next notification | `4xx`, `429`, `5xx` |
//! | any other status | `Refused` | `Alive` | `refused`, then the next notification | `3xx`, `4xx` |
//! | no answer | `Trouble` | `Silent` | `trouble`, then the next notification | `timeout`, `dns`, `connection`, `blocked_ip` |
//! | not sent: unconfirmed address | `Unsent` | `None` | as often as it takes, after pauses that grow | `unconfirmed_address` |
//! | not sent: no file descriptor | | `None` | a second later | `not_sent` |

use std::time::Duration;

use resync_core::datetime::DateTime;

use super::breaker::HostSignal;
use super::host::{Charge, HostId};
#[cfg(test)]
use super::lanes::Lane;
use super::retry_policy::DeliveryOutcome;
use crate::store::{CachePolicy, ContentKind, FailureClass, Offset, ReadAhead, SubscriptionId, TopicId};

/// A request to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The topic.
    pub(crate) topic: TopicId,
    /// The subscription that gets it.
    pub(crate) subscription: SubscriptionId,
    /// The notification.
    pub(crate) offset: Offset,
    /// The newest fetched version: older ones that are fetched too need not be sent.
    pub(crate) newest_fetched: Offset,
    /// Nothing but fetched versions is owed.
    pub(crate) newest_only: bool,
    /// How many times this has been tried, this one included.
    pub(crate) number: u16,
    /// What it takes of its host's and its lane's permits.
    pub(crate) charge: Charge,
    /// The notification before it is suspected to be the cause of failures: does the subscriber refuse everything, or that one only?
    pub(crate) past_suspect: bool,
    /// The subscription was proven when this began. Its charge may count otherwise (see [`Charge`]).
    pub(crate) was_proven: bool,
    /// Which recipients are read next.
    pub(crate) ahead: ReadAhead,
    /// Whether the subscription is needed again soon.
    pub(crate) keep: CachePolicy,
    /// Its host.
    pub(crate) host: HostId,
    /// How often that had confirmed anything when the attempt began.
    pub(crate) confirmations: u32,
    /// The end of its subscription's lease, which each confirmation puts off.
    pub(crate) lease_end: DateTime,
}

/// What to do with a notification that the log has for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Find {
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
    pub(crate) fn sought(&self) -> Offset {
        if self.newest_only { self.newest_fetched } else { self.offset }
    }

    /// What the first notification at or after `sought` is to this attempt. Only where posted and fetched content are mixed are
    /// there versions to be passed one by one.
    pub(crate) fn judge(&self, sought: Offset, found: Offset, kind: ContentKind) -> Find {
        if self.newest_only {
            if found == sought { Find::Send } else { Find::Later }
        } else if found > sought {
            Find::Gap
        } else if kind == ContentKind::Posted || found >= self.newest_fetched {
            Find::Send
        } else {
            Find::Pass
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// A request was made for this offset (the attempt's, or a newer version's).
    Answered {
        /// What was sent.
        offset: Offset,
        /// How that ended.
        outcome: DeliveryOutcome,
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
    /// The name leads to an unconfirmed address, whose rate limit is used up: nothing was sent, and nothing may be for so long.
    RateLimited(Duration),
    /// The name leads to an unconfirmed address, and re-verification is not over: nothing was sent.
    Reverifying,
    /// The subscription has ended meanwhile.
    SubscriptionEnded,
}

impl Finished {
    /// What it says about the host.
    pub(super) fn host_signal(&self) -> HostSignal {
        match self {
            Self::Answered { outcome: DeliveryOutcome::Failed(failure), .. } => match failure.class {
                FailureClass::Trouble if failure.status.is_none() => HostSignal::Silent,
                FailureClass::Trouble => HostSignal::Trouble,
                FailureClass::NotFailed
                | FailureClass::Refused
                | FailureClass::Gone
                | FailureClass::Unsent => HostSignal::Alive,
            },
            Self::Answered { outcome: DeliveryOutcome::Delivered, .. } => HostSignal::Alive,
            // Nothing was sent.
            _ => HostSignal::None,
        }
    }
}

#[cfg(test)]
impl Attempt {
    /// A first attempt in a topic of posted notifications.
    pub(crate) fn first(topic: TopicId, offset: Offset) -> Self {
        let begun = std::time::Instant::now();
        Self {
            topic,
            subscription: SubscriptionId(7),
            offset,
            newest_fetched: Offset(0),
            newest_only: false,
            number: 1,
            charge: Charge {
                lane: Lane::First,
                counted_as_proven: false,
                takes_long: false,
                is_probe: false,
                begun,
            },
            past_suspect: false,
            was_proven: false,
            ahead: ReadAhead::Topic,
            keep: CachePolicy::Keep,
            host: HostId::new(0),
            confirmations: 0,
            lease_end: DateTime::now(),
        }
    }
}
