//! How long something took, and what that is by what it was before.

use std::time::Duration;

use serde::Serialize;

use crate::Failure;
use crate::measure::Spread;

/// Of posts: from the moment at which a notification was due to its 202. Of deliveries: from that moment to the subscriber, where one
/// that never came counts with the time that it was waited for.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// How many ended well.
    pub done: usize,
    /// How many did not.
    pub failed: usize,
    /// How long they took.
    #[serde(flatten)]
    pub took: Spread,
}

/// The same without an attack and during one, in the same round.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Without.
    pub quiet: Latency,
    /// During.
    pub attacked: Latency,
    /// The one p99 by the other.
    pub p99_ratio: f64,
}

impl Latency {
    /// Of these times, and of so many that failed.
    pub(super) fn of(times: Vec<Duration>, failed: usize) -> Result<Self, Failure> {
        Ok(Self { done: times.len(), failed, took: Spread::of(times)? })
    }

    /// Of these times, so many of which are how long was waited for what never came.
    pub(super) fn with_lost(times: Vec<Duration>, lost: usize) -> Result<Self, Failure> {
        Self::of(times, lost).map(|all| Self { done: all.done - lost, ..all })
    }
}

impl Compared {
    pub(super) fn new(quiet: Latency, attacked: Latency) -> Self {
        let p99_ratio = attacked.took.p99 / quiet.took.p99;
        Self { quiet, attacked, p99_ratio }
    }

    /// That of the round in the middle, by the ratio.
    pub(super) fn middle(mut rounds: Vec<Self>) -> Option<Self> {
        rounds.sort_by(|one, other| one.p99_ratio.total_cmp(&other.p99_ratio));
        let middle = rounds.len() / 2;
        rounds.into_iter().nth(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_is_slower_than_the_p99_and_what_failed_has_no_time() {
        let times = (1..=200).map(Duration::from_millis).collect();
        let latency = Latency::of(times, 3).unwrap();
        assert_eq!((latency.done, latency.failed), (200, 3));
        let Spread { p50, p99, max } = latency.took;
        assert!((p50.round(), p99.round(), max.round()) == (101.0, 199.0, 200.0), "{latency:?}");
        assert!(Latency::of(Vec::new(), 3).is_err());
    }

    #[test]
    fn what_is_lost_is_not_done_but_makes_the_slowest_slower() {
        let latency = Latency::with_lost([1, 20_000, 2].map(Duration::from_millis).into(), 1).unwrap();
        assert_eq!((latency.done, latency.failed), (2, 1));
        assert!((latency.took.max - 20_000.0).abs() < 1e-9, "{latency:?}");
    }

    #[test]
    fn the_round_in_the_middle_is_that_of_the_ratio_in_the_middle() {
        let latency = |millis| Latency::of(vec![Duration::from_millis(millis)], 0).unwrap();
        let rounds = [9, 2, 4].map(|attacked| Compared::new(latency(2), latency(attacked)));
        let middle = Compared::middle(rounds.into()).unwrap();
        assert!((middle.p99_ratio - 2.0).abs() < 1e-9, "{middle:?}");
    }
}
