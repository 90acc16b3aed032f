//! The last attempts that failed, in words, for the operator: kept in memory for a bounded number of subscriptions.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use http::StatusCode;
use lru::LruCache;
use resync_common::locks::lock;
use resync_core::datetime::DateTime;
use resync_core::websub::NotificationId;

use crate::egress::{Answer, EgressError};
use crate::store::SubscriptionId;

/// Subscriptions that failed last and are remembered. A failure has a few hundred bytes at most (`egress` bounds what is said of it), so
/// that all of them take 64 MiB where every one has failed as often and as wordily as can be.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(20_000).expect("twenty thousand is not zero");
/// What is kept of each.
const KEPT: usize = 8;

/// An attempt that failed, or the success after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAttempt {
    /// When it ended.
    pub at: DateTime,
    /// What was sent.
    pub notification: NotificationId,
    /// The first has number 1.
    pub attempt: u16,
    /// Why it failed, for the operator; `None`: it was delivered.
    pub failure: Option<String>,
    /// How it ended, for the subscriber.
    pub outcome: AttemptOutcome,
}

/// How an attempt ended, without what only the operator may know: names and addresses (D-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It was answered by a 2xx.
    Delivered,
    /// It was answered otherwise.
    Answered(StatusCode),
    /// There was no complete answer in time.
    TimedOut,
    /// There was no answer. Where an address may not be contacted it looks the same.
    Unreachable,
    /// The name leads to an unconfirmed address.
    Unconfirmed,
    /// For want of something on this side.
    Unsent,
}

impl AttemptOutcome {
    pub(super) fn of(answer: &Result<Answer, EgressError>) -> Self {
        match answer {
            Ok(answer) if answer.status.is_success() => Self::Delivered,
            Ok(answer) => Self::Answered(answer.status),
            Err(EgressError::Timeout(_)) => Self::TimedOut,
            Err(EgressError::Unconfirmed(_) | EgressError::ReverifyFirst(_)) => Self::Unconfirmed,
            Err(
                EgressError::NoFileDescriptors | EgressError::RateLimited(_) | EgressError::BodyMemoryFull,
            ) => Self::Unsent,
            Err(_) => Self::Unreachable,
        }
    }
}

/// The last attempts of each subscription that failed lately.
#[derive(Clone)]
pub struct AttemptLog(Arc<Mutex<LruCache<SubscriptionId, VecDeque<RecordedAttempt>>>>);

impl Default for AttemptLog {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LruCache::new(REMEMBERED))))
    }
}

impl fmt::Debug for AttemptLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptLog").finish_non_exhaustive()
    }
}

impl AttemptLog {
    /// Successes are recorded only after failures, so that healthy deliveries cost nothing here.
    pub(super) fn put(&self, subscription: SubscriptionId, attempt: RecordedAttempt) {
        let mut kept = lock(&self.0);
        let attempts = kept.get_or_insert_mut(subscription, VecDeque::new);
        attempts.push_back(attempt);
        let surplus = attempts.len().saturating_sub(KEPT);
        attempts.drain(..surplus);
    }

    /// The last attempts of a subscription, newest first.
    pub fn of(&self, subscription: SubscriptionId) -> Vec<RecordedAttempt> {
        let kept = lock(&self.0);
        kept.peek(&subscription).into_iter().flatten().rev().cloned().collect()
    }
}
