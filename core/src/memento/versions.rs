//! Which version of a resource was there at a moment (MEM-025, MEM-026, MEM-030, MEM-032).

use super::{HttpDate, Stamp};

/// One past state of a resource, of which this much is looked at here: its place in time.
pub trait Version {
    /// The second from which the resource was like this, as the Change List tells it (MEM-012), and its place in this second.
    fn stamp(&self) -> Stamp;
}

impl Version for Stamp {
    fn stamp(&self) -> Stamp {
        *self
    }
}

/// All versions of one resource, the oldest first. Versions are known by their position.
#[derive(Debug)]
pub struct Versions<'a, V>(&'a [V]);

impl<V> Clone for Versions<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Versions<'_, V> {}

impl<'a, V: Version> Versions<'a, V> {
    /// The versions of one resource, whose stamps must ascend.
    pub fn of(ascending: &'a [V]) -> Self {
        debug_assert!(ascending.is_sorted_by_key(V::stamp), "versions are kept in the order of their stamps");
        Self(ascending)
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.0.len()
    }

    /// The one at a position.
    pub fn get(self, index: usize) -> Option<&'a V> {
        self.0.get(index)
    }

    /// What the URI of the version at a position has.
    pub fn stamp(self, index: usize) -> Option<Stamp> {
        self.get(index).map(V::stamp)
    }

    /// The newest that is not later than asked; the first where all are later (MEM-025); the newest of all where no moment
    /// is asked for (MEM-026). Of those in one second it is the last (MEM-032). `None` only where there is none.
    pub fn choose(self, asked: Option<HttpDate>) -> Option<usize> {
        let until = match asked {
            Some(asked) => self.0.partition_point(|version| version.stamp().at <= asked),
            None => self.0.len(),
        };
        if self.0.is_empty() { None } else { Some(until.saturating_sub(1)) }
    }

    /// The position of the version with that stamp.
    pub fn find(self, stamp: Stamp) -> Option<usize> {
        self.0.binary_search_by_key(&stamp, V::stamp).ok()
    }

    /// The position of the first version with that stamp or a later one; behind all where there is none.
    pub fn not_before(self, stamp: Stamp) -> usize {
        self.0.partition_point(|version| version.stamp() < stamp)
    }

    /// The first, the one before `chosen`, itself, the next and the last, ascending and each once, with all that it is:
    /// `first prev memento` (MEM-024).
    pub fn around(self, chosen: usize) -> Vec<(usize, String)> {
        let count = self.0.len();
        let mut positions: Vec<usize> = [Some(0), chosen.checked_sub(1), Some(chosen), chosen.checked_add(1)]
            .into_iter()
            .flatten()
            .chain(count.checked_sub(1))
            .filter(|&position| position < count)
            .collect();
        positions.sort_unstable();
        positions.dedup();
        let relation = |position: usize| {
            let words = [
                ("first", position == 0),
                ("prev", position + 1 == chosen),
                ("next", position == chosen + 1),
                ("last", position + 1 == count),
                ("memento", true),
            ];
            let holding: Vec<&str> =
                words.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word).collect();
            holding.join(" ")
        };
        positions.into_iter().map(|position| (position, relation(position))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::datetime::DateTime;

    fn stamps(texts: &[&str]) -> Vec<Stamp> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn date(text: &str) -> HttpDate {
        text.parse::<DateTime>().unwrap().into()
    }

    #[test]
    fn mem025_chosen_is_the_newest_version_not_later_than_asked_and_before_the_first_the_first() {
        let kept = stamps(&["20240101000000", "20240201000000", "20240301000000"]);
        let chosen = |text| Versions::of(&kept).choose(Some(date(text))).unwrap();
        assert_eq!(chosen("2023-06-01"), 0);
        assert_eq!(chosen("2024-01-01"), 0);
        assert_eq!(chosen("2024-01-31T23:59:59Z"), 0);
        assert_eq!(chosen("2024-02-01"), 1);
        assert_eq!(chosen("2030-01-01"), 2);
        assert_eq!(Versions::<Stamp>::of(&[]).choose(None), None);
    }

    #[test]
    fn mem026_without_a_moment_the_newest_is_chosen() {
        let kept = stamps(&["20240101000000", "20240201000000"]);
        assert_eq!(Versions::of(&kept).choose(None), Some(1));
    }

    #[test]
    fn mem030_digits_that_are_no_versions_moment_find_none_and_the_version_of_then_is_chosen() {
        let kept = stamps(&["20240101000000", "20240201000000"]);
        let then: Stamp = "20240115000000".parse().unwrap();
        assert_eq!(Versions::of(&kept).find(then), None);
        assert_eq!(Versions::of(&kept).choose(Some(then.at)), Some(0));
    }

    #[test]
    fn mem032_of_two_versions_in_one_second_the_later_is_chosen_and_both_are_found() {
        let kept = stamps(&["20240601120000", "20240601120000-1", "20240601120001"]);
        let versions = Versions::of(&kept);
        assert_eq!(versions.choose(Some(date("2024-06-01T12:00:00Z"))), Some(1));
        assert_eq!(versions.find(kept[0]), Some(0));
        assert_eq!(versions.find(kept[1]), Some(1));
        assert_eq!(versions.find("20240601120000-2".parse().unwrap()), None);
    }

    #[test]
    fn mem024_each_neighbour_is_named_once_with_all_that_it_is() {
        let around = |count: u64, chosen| {
            let kept: Vec<Stamp> = (0..count).map(|n| Stamp { at: date("2024-06-01"), ordinal: n }).collect();
            let named = Versions::of(&kept).around(chosen);
            named.into_iter().map(|(position, relation)| format!("{position} {relation}")).collect::<Vec<_>>()
        };
        assert_eq!(around(1, 0), ["0 first last memento"]);
        assert_eq!(around(2, 1), ["0 first prev memento", "1 last memento"]);
        assert_eq!(
            around(7, 3),
            ["0 first memento", "2 prev memento", "3 memento", "4 next memento", "6 last memento"]
        );
    }

    proptest! {
        #[test]
        fn choosing_is_what_looking_at_each_version_gives(
            kept in prop::collection::btree_set((0_i64..20, 0_u64..3), 1..40),
            asked in -5_i64..25,
        ) {
            let at = |second: i64| DateTime::from_unix_millis(second * 1000).unwrap();
            let kept: Vec<Stamp> = kept.into_iter().map(|(second, ordinal)| Stamp::new(at(second), ordinal)).collect();
            let asked = HttpDate::from(at(asked));
            let naive = kept.iter().rposition(|stamp| stamp.at <= asked).unwrap_or(0);
            prop_assert_eq!(Versions::of(&kept).choose(Some(asked)), Some(naive));
            for (index, stamp) in kept.iter().enumerate() {
                prop_assert_eq!(Versions::of(&kept).find(*stamp), Some(index));
                prop_assert_eq!(Versions::of(&kept).not_before(*stamp), index);
            }
        }
    }
}
