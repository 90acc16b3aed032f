//! Gaps between Change Lists: one begins later than the one before ended, and no document lists the changes between (RS-197).
//!
//! Only a newer Resource List contains these changes; reading the same list again does not help. So changes are followed
//! across a gap, which is reported, until there is a newer Resource List. Some Sources leave a gap at every rotation. To
//! avoid a baseline each time, their Resource List is read at most once an hour.

use std::time::Duration;

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

use crate::text;

/// This many gaps count as recurrent.
const RECURRENT: u64 = 2;

/// After this many contiguous lists in a row, earlier gaps no longer count.
const FORGIVEN_AFTER: u64 = 3;

/// How long the Resource List of a Source with recurrent gaps is not read again.
const LIST_PAUSE: Duration = Duration::from_secs(3600);

/// No document lists the changes between these times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last time up to which all changes are known.
    #[serde(with = "text")]
    pub known_until: DateTime,
    /// When known changes begin again. A Resource List of this time or later closes the gap.
    #[serde(with = "text")]
    pub from: DateTime,
}

/// Which changes since a time are known, as far as the lists show.
#[derive(Debug, Default)]
pub(crate) struct Continuity {
    /// Gaps that no document closes, oldest first; the same one may be there twice.
    pub(crate) gaps: Vec<Gap>,
    /// Where a list begins that continues another one, oldest first.
    pub(crate) contiguous_at: Vec<DateTime>,
    /// Why changes may be missing, if so.
    pub(crate) unproven: Option<String>,
}

/// What to do if changes are missing between the point and the oldest list (RS-197).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GapPolicy {
    /// Fail.
    Refused,
    /// Continue, and record it in [`Continuity`].
    Tolerated,
}

/// The gaps of a Source's Change Lists so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapHistory {
    /// How many, since the last three contiguous lists in a row.
    pub count: u64,
    /// The last one.
    pub last: Option<Gap>,
    /// When the Resource List was last read while gaps are recurrent, in Unix milliseconds.
    pub list_read_unix_millis: Option<i64>,
    /// How many lists in a row followed the one before without a gap since the last gap.
    pub contiguous_lists: u64,
    /// When the last of these begins, in Unix milliseconds.
    pub last_contiguous_unix_millis: Option<i64>,
}

impl GapHistory {
    /// Whether gaps are recurrent.
    #[must_use]
    pub fn are_recurrent(&self) -> bool {
        self.count >= RECURRENT
    }

    /// Adds gaps, and times where one list continues another. Known ones count once, future ones not yet.
    pub(crate) fn with(mut self, found: &Continuity, now: DateTime) -> Self {
        for gap in found.gaps.iter().filter(|gap| gap.from <= now) {
            if self.last.is_none_or(|last| gap.from > last.from) {
                self.count += 1;
                self.last = Some(*gap);
                self.contiguous_lists = 0;
            }
        }
        let last_gap = self.last.map(|gap| gap.from.unix_millis());
        for join in found.contiguous_at.iter().filter(|join| **join <= now).map(|join| join.unix_millis()) {
            if Some(join) > last_gap.max(self.last_contiguous_unix_millis) {
                self.last_contiguous_unix_millis = Some(join);
                self.contiguous_lists += 1;
            }
        }
        if self.contiguous_lists >= FORGIVEN_AFTER {
            Self { count: 0, list_read_unix_millis: None, contiguous_lists: 0, ..self }
        } else {
            self
        }
    }

    /// Records that the Resource List was read. A list whose entries have no hash or time is read again, since only that
    /// shows changes.
    pub(crate) fn list_read_at(self, now: DateTime, names_versions: bool) -> Self {
        let list_read_at = (names_versions && self.are_recurrent()).then(|| now.unix_millis());
        Self { list_read_unix_millis: list_read_at, ..self }
    }

    /// Whether a further gap is tolerated. A clock that was set back does not prolong the pause.
    pub(crate) fn policy(&self, now: DateTime) -> GapPolicy {
        let pause = i64::try_from(LIST_PAUSE.as_millis()).unwrap_or(i64::MAX);
        let since = |list_read_at: i64| now.unix_millis().saturating_sub(list_read_at);
        let is_paused =
            self.list_read_unix_millis.is_some_and(|list_read_at| (0..pause).contains(&since(list_read_at)));
        if self.are_recurrent() && is_paused { GapPolicy::Tolerated } else { GapPolicy::Refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minute: i64) -> DateTime {
        DateTime::from_unix_millis(1_795_000_000_000 + minute * 60_000).unwrap()
    }

    fn gap(at: i64) -> Gap {
        Gap { known_until: minute(at), from: minute(at + 1) }
    }

    fn found(gaps: &[Gap], contiguous_at: &[DateTime]) -> Continuity {
        let (gaps, contiguous_at) = (gaps.to_vec(), contiguous_at.to_vec());
        Continuity { gaps, contiguous_at, unproven: None }
    }

    #[test]
    fn rs197_a_hole_that_is_met_again_counts_once() {
        let [first, second] = [&[gap(1), gap(3)][..], &[gap(1), gap(3), gap(5)]];
        let gaps =
            GapHistory::default().with(&found(first, &[]), minute(9)).with(&found(second, &[]), minute(9));
        assert_eq!((gaps.count, gaps.last), (3, Some(gap(5))));
    }

    #[test]
    fn rs197_a_hole_to_come_hides_none_that_come_before() {
        let gaps = GapHistory::default().with(&found(&[gap(1), gap(900)], &[]), minute(9));
        assert_eq!(gaps.with(&found(&[gap(3)], &[]), minute(9)).count, 2);
    }

    #[test]
    fn rs197_a_source_that_has_mended_its_ways_is_trusted_again() {
        let habit = GapHistory::default()
            .with(&found(&[gap(1), gap(3)], &[]), minute(9))
            .list_read_at(minute(9), true);
        let joined = habit.with(&found(&[], &[minute(2), minute(10), minute(20)]), minute(29));
        assert!(joined.are_recurrent(), "one was before the last hole");
        assert!(
            joined.with(&found(&[], &[minute(10), minute(20)]), minute(29)).are_recurrent(),
            "these were known"
        );
        let mended = joined.with(&found(&[gap(3)], &[minute(30)]), minute(39));
        assert_eq!((mended.count, mended.policy(minute(39))), (0, GapPolicy::Refused));
        assert_eq!(
            joined.with(&found(&[gap(28)], &[minute(30)]), minute(39)).contiguous_lists,
            1,
            "a hole begins the count anew"
        );
    }

    #[test]
    fn rs197_the_list_rests_only_where_holes_are_a_habit_and_no_longer_than_an_hour() {
        let once =
            GapHistory::default().with(&found(&[gap(1)], &[]), minute(9)).list_read_at(minute(10), true);
        assert_eq!(once.policy(minute(11)), GapPolicy::Refused, "it may happen to any Source");
        let twice = once.with(&found(&[gap(3)], &[]), minute(9));
        assert_eq!(twice.policy(minute(11)), GapPolicy::Refused, "the list was not asked for yet");
        assert_eq!(
            twice.list_read_at(minute(10), false).policy(minute(11)),
            GapPolicy::Refused,
            "the list tells more"
        );
        let habit = twice.list_read_at(minute(10), true);
        for (at, expected) in [
            (10, GapPolicy::Tolerated),
            (69, GapPolicy::Tolerated),
            (70, GapPolicy::Refused),
            (9, GapPolicy::Refused),
        ] {
            assert_eq!(habit.policy(minute(at)), expected, "{at}");
        }
    }
}
