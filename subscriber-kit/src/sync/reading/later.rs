//! The first change of each resource after a moment, for a copy of that moment (MEM-060).
//!
//! There may be many, so paths are held as keyed hashes, as in the [map of files](super::file_map).

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::path::Path;

use resync_core::datetime::DateTime;

/// The first changes after a moment.
#[derive(Debug)]
pub(crate) struct LaterChanges {
    moment: DateTime,
    keys: RandomState,
    /// By relative path.
    first: HashMap<u64, LaterChange>,
    /// Whether a change had no time, so that nothing shows on which side of the moment it was.
    pub(crate) has_undated: bool,
}

/// The first change of a resource after the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaterChange {
    pub(crate) at: DateTime,
    /// Whether only this change shows that the resource was there: no list tells which state it was in.
    pub(crate) is_only_trace: bool,
}

impl LaterChanges {
    pub(crate) fn of(moment: DateTime) -> Self {
        Self { moment, keys: RandomState::default(), first: HashMap::new(), has_undated: false }
    }

    pub(crate) fn moment(&self) -> DateTime {
        self.moment
    }

    /// The first change of the resource of this file.
    pub(crate) fn first(&self, relative: &Path) -> Option<LaterChange> {
        self.first.get(&self.keys.hash_one(relative)).copied()
    }

    /// Adds a change; whether it is the first of its resource that is read.
    pub(crate) fn note(&mut self, relative: &Path, change: LaterChange) -> bool {
        match self.first.entry(self.keys.hash_one(relative)) {
            Entry::Vacant(vacant) => {
                vacant.insert(change);
                true
            }
            Entry::Occupied(mut known) => {
                let first = &mut known.get_mut().at;
                *first = change.at.min(*first);
                false
            }
        }
    }

    /// How many resources changed.
    pub(crate) fn count(&self) -> u64 {
        self.first.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem060_of_several_changes_of_a_resource_the_first_after_the_moment_counts() {
        let moment = |minute: i64| DateTime::from_unix_millis(1_795_000_000_000 + minute * 60_000).unwrap();
        let change = |minute| LaterChange { at: moment(minute), is_only_trace: minute == 3 };
        let mut later = LaterChanges::of(moment(0));
        let path = Path::new("a/b");
        assert!(later.note(path, change(3)));
        assert!(!later.note(path, change(5)));
        assert_eq!((later.first(path), later.count()), (Some(change(3)), 1));
        assert!(!later.note(path, change(2)), "an archived list repeats it");
        assert_eq!(later.first(path).map(|first| first.at), Some(moment(2)));
        assert_eq!(later.first(Path::new("a")), None);
    }
}
