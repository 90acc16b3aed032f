//! Which resources a document names, in a size that does not depend on how many there are.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use crate::document::{Entry, Relation};

/// Which resources a document names, as their number and the sum of their keyed hashes: equal for equal sets in whatever order they come,
/// and of one size however many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) count: usize,
    sum: u64,
}

impl Tally {
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Self::and)
    }
}

/// Gathers the resources of one document.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    tally: Tally,
    seen: HashSet<u64>,
    is_ambiguous: bool,
}

impl Gathering {
    pub(super) fn add(&mut self, entry: &Entry, key: &RandomState) {
        // A list may name a resource by its generic URI, and a dump the same one by that of a representation (RS-172, RS-173).
        let has_other_names =
            entry.links.iter().any(|link| matches!(link.rel, Relation::Canonical | Relation::Alternate));
        let hash = key.hash_one(&entry.loc);
        // A dump may pack several bitstreams of one resource, and a list that repeats one breaks another rule.
        self.is_ambiguous |= has_other_names || !self.seen.insert(hash);
        self.tally = self.tally.and(Tally { count: 1, sum: hash });
    }

    /// `None` where another document could name the same resources in another way.
    pub(super) fn tally(&self) -> Option<Tally> {
        (!self.is_ambiguous).then_some(self.tally)
    }
}
