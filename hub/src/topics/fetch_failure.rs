//! Why a fetch failed, and what follows: another try after a pause, or the end of the ping.

use std::time::Duration;

use super::length_limits::Oversized;
use super::topic_client::FetchError;
use crate::egress::{EgressError, RedirectError};
use crate::store::StoreError;

/// Pauses before a failed fetch is repeated. After the last one the ping is given up; if the store failed, it is kept for the
/// shard's next owner. A shortage of the hub's own is waited for with the longest pause, without end: the ping was acknowledged.
const RETRY_AFTER: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(300)];

/// Why a topic was not fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchFailure {
    #[error(transparent)]
    Topic(#[from] FetchError),
    #[error(transparent)]
    Oversized(#[from] Oversized),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FetchFailure {
    /// The topic's content, links, content type or redirect are too long, or it is compressed unasked. That lasts until its owner
    /// changes it.
    fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Oversized(_)
                | Self::Topic(
                    FetchError::Redirect(RedirectError::TooLong { .. })
                        | FetchError::Egress(EgressError::TooLarge(_) | EgressError::Compressed)
                )
        )
    }

    /// The hub lacks something; the topic is not to blame.
    fn is_shortage(&self) -> bool {
        use StoreError::{Away, Busy, Closed, EarlierPoint, Full, NotDurable, Read, Unknown, Write};
        matches!(
            self,
            Self::Store(
                Full { .. }
                    | Busy
                    | Write(_)
                    | Read(_)
                    | Closed
                    | Away(_)
                    | Unknown(_)
                    | NotDurable(_)
                    | EarlierPoint
            ) | Self::Topic(FetchError::Egress(EgressError::NoFileDescriptors | EgressError::BodyMemoryFull))
        )
    }
}

/// What becomes of a ping after its last try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingOutcome {
    /// It is forgotten.
    Done,
    /// It stays in the store for the shard's next owner: the store may work again then.
    Keep,
}

impl From<&FetchFailure> for PingOutcome {
    fn from(error: &FetchFailure) -> Self {
        match error {
            FetchFailure::Store(_) => Self::Keep,
            FetchFailure::Topic(_) | FetchFailure::Oversized(_) => Self::Done,
        }
    }
}

/// How often a fetch failed, and how often because the hub lacked something.
#[derive(Debug, Default)]
pub(super) struct Retries {
    failures: usize,
    shortages: usize,
}

impl Retries {
    /// The pause after this failure; `None`: the ping is given up.
    pub(super) fn after(&mut self, error: &FetchFailure) -> Option<Duration> {
        if error.is_refusal() {
            return None;
        }
        let [.., longest] = RETRY_AFTER;
        let (count, beyond) = if error.is_shortage() {
            (&mut self.shortages, Some(longest))
        } else {
            (&mut self.failures, None)
        };
        let pause = RETRY_AFTER.get(*count).copied().or(beyond);
        *count += 1;
        pause
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_ping_is_never_given_up_for_what_the_hub_itself_lacks() {
        let shortages = [
            FetchFailure::Store(StoreError::Full { free: 1, reserve: 2 }),
            FetchFailure::Store(StoreError::Busy),
            FetchFailure::Store(StoreError::Write("no space is left".to_owned())),
            FetchFailure::Store(StoreError::Read("input/output error".to_owned())),
            FetchFailure::Store(StoreError::Closed),
            FetchFailure::Topic(FetchError::Egress(EgressError::NoFileDescriptors)),
            FetchFailure::Topic(FetchError::Egress(EgressError::BodyMemoryFull)),
        ];
        for error in shortages {
            let mut retries = Retries::default();
            let pauses: Vec<_> = (0..1_000).map(|_| retries.after(&error)).collect();
            assert_eq!(pauses[..3], RETRY_AFTER.map(Some), "{error}");
            assert!(pauses[3..].iter().all(|pause| *pause == Some(RETRY_AFTER[2])), "{error}");
        }
    }

    #[test]
    fn a_damaged_record_is_met_no_more_than_three_times_more_and_the_ping_stays_for_a_mended_store() {
        let damaged =
            FetchFailure::Store(StoreError::Damaged { space: "log", reason: "its checksum".to_owned() });
        let mut retries = Retries::default();
        let pauses: Vec<_> = (0..4).map(|_| retries.after(&damaged)).collect();
        assert_eq!(pauses[..3], RETRY_AFTER.map(Some));
        assert_eq!((pauses[3], PingOutcome::from(&damaged)), (None, PingOutcome::Keep));
        assert_eq!(PingOutcome::from(&FetchFailure::Topic(FetchError::Redirects)), PingOutcome::Done);
    }

    #[test]
    fn a_topic_that_says_too_much_of_itself_is_not_asked_again_until_it_is_pinged_again() {
        let too_long = RedirectError::TooLong { length: 60_000 };
        for error in [
            FetchFailure::Oversized(Oversized::Links),
            FetchFailure::Topic(FetchError::Redirect(too_long)),
            FetchFailure::Topic(FetchError::Egress(EgressError::TooLarge(1_024))),
            FetchFailure::Topic(FetchError::Egress(EgressError::Compressed)),
        ] {
            assert_eq!(Retries::default().after(&error), None, "{error}");
            assert_eq!(PingOutcome::from(&error), PingOutcome::Done);
        }
    }

    #[test]
    fn a_topic_that_cannot_be_fetched_is_tried_three_times_more_whatever_the_hub_lacked_meanwhile() {
        let gone = FetchFailure::Topic(FetchError::Status(StatusCode::NOT_FOUND));
        let mut retries = Retries::default();
        for pause in RETRY_AFTER {
            assert_eq!(retries.after(&gone), Some(pause));
            assert!(retries.after(&FetchFailure::Store(StoreError::Busy)).is_some());
        }
        assert_eq!(retries.after(&gone), None);
    }
}
