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

use super::changes::{Gap, moment};

/// With so many holes they are the Source's habit.
const HABIT: u64 = 2;

/// How long its Resource List then rests, unless a closer look is wanted.
const LIST_RESTS: Duration = Duration::from_secs(3600);

/// Changes between these moments are told nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// Up to when they were told.
    #[serde(with = "moment")]
    pub told_until: DateTime,
    /// Since when they are told again: a Resource List of this time or later has what happened between.
    #[serde(with = "moment")]
    pub from: DateTime,
}

/// What a Source's lists of changes left untold so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seams {
    /// How often.
    pub holes: u64,
    /// The last time.
    pub last: Option<Hole>,
    /// When the Resource List was asked for since they are a habit, in Unix milliseconds.
    pub asked_at_unix_millis: Option<i64>,
}

impl Seams {
    /// Whether it happens again and again.
    #[must_use]
    pub fn are_a_habit(&self) -> bool {
        self.holes >= HABIT
    }

    /// With what was found, oldest first; the known ones may be among it.
    pub(crate) fn and(mut self, found: &[Hole]) -> Self {
        for hole in found {
            if self.last.is_none_or(|last| hole.from > last.from) {
                self.holes += 1;
                self.last = Some(*hole);
            }
        }
        self
    }

    /// The Resource List was asked for at this moment.
    pub(crate) fn asked(self, now: DateTime) -> Self {
        let asked = self.are_a_habit().then(|| now.unix_millis());
        Self { asked_at_unix_millis: asked, ..self }
    }

    /// What to do about a further hole before anything else is asked for. A clock that was set back prolongs no rest.
    pub(crate) fn gap(&self, now: DateTime) -> Gap {
        let rest = i64::try_from(LIST_RESTS.as_millis()).unwrap_or(i64::MAX);
        let since = |asked: i64| now.unix_millis().saturating_sub(asked);
        let rests = self.asked_at_unix_millis.is_some_and(|asked| (0..rest).contains(&since(asked)));
        if self.are_a_habit() && rests { Gap::Tolerated } else { Gap::Refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minute: i64) -> DateTime {
        DateTime::from_unix_millis(1_795_000_000_000 + minute * 60_000).unwrap()
    }

    fn hole(at: i64) -> Hole {
        Hole { told_until: minute(at), from: minute(at + 1) }
    }

    #[test]
    fn rs197_a_hole_that_is_met_again_counts_once() {
        let seams = Seams::default().and(&[hole(1), hole(3)]).and(&[hole(1), hole(3), hole(5)]);
        assert_eq!((seams.holes, seams.last), (3, Some(hole(5))));
    }

    #[test]
    fn rs197_the_list_rests_only_where_holes_are_a_habit_and_no_longer_than_an_hour() {
        let once = Seams::default().and(&[hole(1)]).asked(minute(10));
        assert_eq!(once.gap(minute(11)), Gap::Refused, "it may happen to any Source");
        let twice = once.and(&[hole(3)]);
        assert_eq!(twice.gap(minute(11)), Gap::Refused, "the list was not asked for yet");
        let habit = twice.asked(minute(10));
        for (at, expected) in
            [(10, Gap::Tolerated), (69, Gap::Tolerated), (70, Gap::Refused), (9, Gap::Refused)]
        {
            assert_eq!(habit.gap(minute(at)), expected, "{at}");
        }
    }
}
