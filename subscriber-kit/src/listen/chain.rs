//! The intervals of Change Notifications: each begins where the previous one ended, so that missing ones are noticed (CN-008,
//! CN-009, CN-016).

use std::collections::BTreeSet;

use resync_core::datetime::DateTime;

use crate::notification::Interval;
use crate::sync::is_beyond_clock_skew;

/// How many intervals ahead of a gap are remembered. A further one is still reported as ahead.
const MAX_AHEAD: usize = 1024;

/// Up to when changes are known from notifications without a gap.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    until: Option<DateTime>,
    /// Intervals ahead of a gap, by beginning and end.
    ahead: BTreeSet<(DateTime, DateTime)>,
}

/// How the interval of a notification continues the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// It begins where the last one ended, or is the first.
    Next,
    /// It is known already, or its time is too far in the future.
    Ignored,
    /// Notifications are missing before it, or are late.
    Ahead {
        /// Up to when all changes are known.
        known_until: DateTime,
    },
}

impl Chain {
    /// Continues from an earlier run.
    pub(super) fn from(until: Option<DateTime>, now: DateTime) -> Self {
        Self { until: until.filter(|until| !is_beyond_clock_skew(*until, now)), ahead: BTreeSet::new() }
    }

    pub(super) fn take(&mut self, Interval { from, until }: Interval, now: DateTime) -> Continuation {
        if is_beyond_clock_skew(from.max(until), now) {
            return Continuation::Ignored;
        }
        match self.until {
            Some(known_until) if until <= known_until => Continuation::Ignored,
            Some(known_until) if from > known_until => {
                if self.ahead.len() < MAX_AHEAD {
                    self.ahead.insert((from, until));
                }
                Continuation::Ahead { known_until }
            }
            _ => {
                self.until = Some(until);
                self.advance();
                Continuation::Next
            }
        }
    }

    /// Takes the intervals that were ahead and now follow.
    fn advance(&mut self) {
        while let Some(&(from, until)) = self.ahead.first()
            && self.until.is_some_and(|known| from <= known)
        {
            self.ahead.pop_first();
            self.until = self.until.max(Some(until));
        }
    }

    /// Whether notifications are missing.
    pub(super) fn has_gap(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The lists contain the missing changes up to `reached`, or all if they do not say up to when they are complete.
    pub(super) fn close_gaps(&mut self, reached: Option<DateTime>) {
        while let Some(&(from, _)) = self.ahead.first()
            && reached.is_none_or(|reached| from <= reached)
        {
            self.skip_to(Some(from));
        }
    }

    /// All changes up to this time are known.
    pub(super) fn skip_to(&mut self, until: Option<DateTime>) {
        self.until = self.until.max(until);
        self.advance();
    }

    /// Up to when all changes are known.
    pub(super) fn until(&self) -> Option<DateTime> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minute: u32) -> DateTime {
        format!("2026-11-20T09:{minute:02}:00Z").parse().unwrap()
    }

    fn interval(from: u32, until: u32) -> Interval {
        Interval { from: minute(from), until: minute(until) }
    }

    #[test]
    fn cn008_one_notification_follows_the_other_and_the_first_begins_anywhere() {
        let mut chain = Chain::default();
        let mut take = |from, until| chain.take(interval(from, until), minute(59));
        for (from, until) in [(7, 9), (9, 10), (10, 20)] {
            assert_eq!(take(from, until), Continuation::Next);
        }
        assert_eq!(take(9, 10), Continuation::Ignored, "it came twice");
        assert_eq!(take(19, 21), Continuation::Next, "a part of it is known");
        assert!(!chain.has_gap());
    }

    #[test]
    fn cn016_what_comes_out_of_order_closes_its_gap_and_what_never_comes_is_repaired() {
        let now = minute(59);
        let mut chain = Chain::from(Some(minute(5)), now);
        assert_eq!(chain.take(interval(6, 7), now), Continuation::Ahead { known_until: minute(5) });
        assert_eq!(chain.take(interval(8, 9), now), Continuation::Ahead { known_until: minute(5) });
        assert_eq!(chain.take(interval(5, 6), now), Continuation::Next);
        assert_eq!((chain.until(), chain.has_gap()), (Some(minute(7)), true));
        chain.close_gaps(Some(minute(7)));
        assert!(chain.has_gap(), "the lists do not reach to where the gap ends");
        chain.close_gaps(Some(minute(8)));
        assert_eq!((chain.until(), chain.has_gap()), (Some(minute(9)), false));
        assert_eq!(chain.take(interval(9, 10), now), Continuation::Next);
        chain.take(interval(20, 21), now);
        chain.close_gaps(None);
        assert_eq!((chain.until(), chain.has_gap()), (Some(minute(21)), false));
    }

    #[test]
    fn cn016_of_gaps_without_end_so_many_are_remembered() {
        let at = |second: i64| DateTime::from_unix_millis(second * 1000).unwrap();
        let now = at(1_000_000);
        let mut chain = Chain::from(Some(at(0)), now);
        for number in 1..5_000 {
            let link = chain.take(Interval { from: at(number * 2), until: at(number * 2 + 1) }, now);
            assert_eq!(link, Continuation::Ahead { known_until: at(0) });
        }
        assert_eq!(chain.ahead.len(), MAX_AHEAD);
        chain.close_gaps(None);
        assert_eq!((chain.until(), chain.has_gap()), (Some(at(2 * 1024 + 1)), false));
    }

    #[test]
    fn cn008_a_source_whose_clock_is_ahead_is_compared_with_itself_alone() {
        let mut chain = Chain::default();
        for (from, until, now) in [(30, 31, 1), (31, 40, 2), (40, 41, 11)] {
            assert_eq!(chain.take(interval(from, until), minute(now)), Continuation::Next);
        }
        assert_eq!(chain.take(interval(42, 43), minute(13)), Continuation::Ahead { known_until: minute(41) });
        assert_eq!(Chain::from(chain.until(), minute(13)).until(), Some(minute(41)), "after a restart too");
    }

    #[test]
    fn cn008_a_time_that_cannot_be_makes_nothing_known_that_is_told_until_then() {
        let mut chain = Chain::from(Some(minute(1)), minute(2));
        let slip: DateTime = "2099-11-20T09:00:00Z".parse().unwrap();
        assert_eq!(chain.take(Interval { from: minute(1), until: slip }, minute(2)), Continuation::Ignored);
        assert_eq!(chain.take(Interval { from: slip, until: minute(3) }, minute(3)), Continuation::Ignored);
        assert_eq!(chain.take(interval(3, 4), minute(4)), Continuation::Ahead { known_until: minute(1) });
        assert_eq!(Chain::from(Some(slip), minute(5)).until(), None, "nor after a restart");
    }

    proptest::proptest! {
        /// In whatever order all of them come, nothing is missing in the end, and something is in between.
        #[test]
        fn cn009_any_order_of_a_whole_chain_leaves_no_gap(mut order in proptest::collection::vec(0_u32..10_000, 2..50)) {
            order.sort_unstable();
            order.dedup();
            let count = u32::try_from(order.len()).unwrap();
            let mut numbers: Vec<u32> = (0..count).collect();
            fastrand::Rng::with_seed(u64::from(order[0])).shuffle(&mut numbers);
            let at = |number: u32| DateTime::from_unix_millis(i64::from(number) * 1000).unwrap();
            let mut chain = Chain::from(Some(at(0)), at(count));
            for number in numbers {
                chain.take(Interval { from: at(number), until: at(number + 1) }, at(count));
            }
            proptest::prop_assert_eq!(chain.until(), Some(at(count)));
            proptest::prop_assert!(!chain.has_gap());
        }
    }
}
