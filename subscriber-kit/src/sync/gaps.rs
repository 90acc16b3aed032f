//! Lists of changes that do not touch: one begins later than the one before ended, and what changed between is told nowhere
//! (RS-197).
//!
//! Only a Resource List of a later time has that. One that was dealt with before tells no more, however often it is read, so
//! that the changes are followed across such a hole, which is told, until there is another list. A Source that leaves a hole
//! at every rotation and makes a new list as often would cost a whole synchronisation each time: its lists are asked for on a
//! schedule.

use std::time::Duration;

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

use super::changes::{GapPolicy, moment};

/// With so many holes they are the Source's habit.
const HABIT: u64 = 2;

/// With so many lists in a row that do touch they are no longer.
const GOOD: u64 = 3;

/// How long its Resource List then rests, unless a closer look is wanted.
const LIST_RESTS: Duration = Duration::from_secs(3600);

/// Changes between these moments are told nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Up to when they were told.
    #[serde(with = "moment")]
    pub told_until: DateTime,
    /// Since when they are told again: a Resource List of this time or later has what happened between.
    #[serde(with = "moment")]
    pub from: DateTime,
}

/// What a Source's lists of changes left untold so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GapHistory {
    /// How often, since the last three lists in a row that did touch.
    pub holes: u64,
    /// The last time.
    pub last: Option<Gap>,
    /// When the Resource List was asked for since they are a habit, in Unix milliseconds.
    pub asked_at_unix_millis: Option<i64>,
    /// How many lists in a row touched the one before since the last hole, up to when they are no habit.
    pub joins: u64,
    /// When the last of them begins, in Unix milliseconds.
    pub last_join_unix_millis: Option<i64>,
}

impl GapHistory {
    /// Whether it happens again and again.
    #[must_use]
    pub fn are_a_habit(&self) -> bool {
        self.holes >= HABIT
    }

    /// With the holes that were found, and the moments at which a list goes on where the one before ended, both oldest
    /// first. The known ones may be among them, and what is to come does not count yet.
    pub(crate) fn and(mut self, holes: &[Gap], joins: &[DateTime], now: DateTime) -> Self {
        for hole in holes.iter().filter(|hole| hole.from <= now) {
            if self.last.is_none_or(|last| hole.from > last.from) {
                self.holes += 1;
                self.last = Some(*hole);
                self.joins = 0;
            }
        }
        let last_hole = self.last.map(|hole| hole.from.unix_millis());
        for join in joins.iter().filter(|join| **join <= now).map(|join| join.unix_millis()) {
            if Some(join) > last_hole.max(self.last_join_unix_millis) {
                self.last_join_unix_millis = Some(join);
                self.joins += 1;
            }
        }
        if self.joins >= GOOD {
            Self { holes: 0, asked_at_unix_millis: None, joins: 0, ..self }
        } else {
            self
        }
    }

    /// The Resource List was asked for at this moment; it rests only if each of its entries `names_versions`, since else
    /// reading it again tells more.
    pub(crate) fn asked(self, now: DateTime, names_versions: bool) -> Self {
        let asked = (names_versions && self.are_a_habit()).then(|| now.unix_millis());
        Self { asked_at_unix_millis: asked, ..self }
    }

    /// What to do about a further hole before anything else is asked for. A clock that was set back prolongs no rest.
    pub(crate) fn gap(&self, now: DateTime) -> GapPolicy {
        let rest = i64::try_from(LIST_RESTS.as_millis()).unwrap_or(i64::MAX);
        let since = |asked: i64| now.unix_millis().saturating_sub(asked);
        let rests = self.asked_at_unix_millis.is_some_and(|asked| (0..rest).contains(&since(asked)));
        if self.are_a_habit() && rests { GapPolicy::Tolerated } else { GapPolicy::Refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minute: i64) -> DateTime {
        DateTime::from_unix_millis(1_795_000_000_000 + minute * 60_000).unwrap()
    }

    fn hole(at: i64) -> Gap {
        Gap { told_until: minute(at), from: minute(at + 1) }
    }

    #[test]
    fn rs197_a_hole_that_is_met_again_counts_once() {
        let [first, second] = [&[hole(1), hole(3)][..], &[hole(1), hole(3), hole(5)]];
        let gaps = GapHistory::default().and(first, &[], minute(9)).and(second, &[], minute(9));
        assert_eq!((gaps.holes, gaps.last), (3, Some(hole(5))));
    }

    #[test]
    fn rs197_a_hole_to_come_hides_none_that_come_before() {
        let gaps = GapHistory::default().and(&[hole(1), hole(900)], &[], minute(9));
        assert_eq!(gaps.and(&[hole(3)], &[], minute(9)).holes, 2);
    }

    #[test]
    fn rs197_a_source_that_has_mended_its_ways_is_trusted_again() {
        let habit = GapHistory::default().and(&[hole(1), hole(3)], &[], minute(9)).asked(minute(9), true);
        let joined = habit.and(&[], &[minute(2), minute(10), minute(20)], minute(29));
        assert!(joined.are_a_habit(), "one was before the last hole");
        assert!(joined.and(&[], &[minute(10), minute(20)], minute(29)).are_a_habit(), "these were known");
        let mended = joined.and(&[hole(3)], &[minute(30)], minute(39));
        assert_eq!((mended.holes, mended.gap(minute(39))), (0, GapPolicy::Refused));
        assert_eq!(
            joined.and(&[hole(28)], &[minute(30)], minute(39)).joins,
            1,
            "a hole begins the count anew"
        );
    }

    #[test]
    fn rs197_the_list_rests_only_where_holes_are_a_habit_and_no_longer_than_an_hour() {
        let once = GapHistory::default().and(&[hole(1)], &[], minute(9)).asked(minute(10), true);
        assert_eq!(once.gap(minute(11)), GapPolicy::Refused, "it may happen to any Source");
        let twice = once.and(&[hole(3)], &[], minute(9));
        assert_eq!(twice.gap(minute(11)), GapPolicy::Refused, "the list was not asked for yet");
        assert_eq!(twice.asked(minute(10), false).gap(minute(11)), GapPolicy::Refused, "the list tells more");
        let habit = twice.asked(minute(10), true);
        for (at, expected) in [
            (10, GapPolicy::Tolerated),
            (69, GapPolicy::Tolerated),
            (70, GapPolicy::Refused),
            (9, GapPolicy::Refused),
        ] {
            assert_eq!(habit.gap(minute(at)), expected, "{at}");
        }
    }
}
