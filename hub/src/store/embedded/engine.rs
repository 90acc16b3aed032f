//! What an embedded engine must be able to do: ordered keys in a few spaces, and one atomic, durable commit.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::store::Result;
pub(super) use crate::store::encoding::Space;

/// An ordered key-value engine.
///
/// Only one thread commits; any number of threads read at the same time.
pub(in crate::store) trait Engine: Send + Sync + 'static {
    /// The value of a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// The records of a range in the order of their keys, read while the iterator advances from either end.
    fn scan(&self, space: Space, keys: &Keys) -> Scan<'_>;

    /// Writes the whole batch or nothing of it, and returns when it would survive a power cut.
    ///
    /// After an error nothing of the batch may be visible. An engine that cannot take its changes back refuses everything
    /// until it recovers.
    fn commit(&self, batch: &Batch) -> Result<()>;

    /// After a commit that failed: goes back to what the disk holds, which is the whole of that commit or nothing of it.
    fn recover(&self) -> Result<()>;

    /// About how many bytes the engine takes on disk.
    fn disk_size(&self) -> Result<u64>;
}

impl fmt::Debug for dyn Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

/// The records of a range: keys and values.
pub(in crate::store) type Scan<'a> = Box<dyn DoubleEndedIterator<Item = Result<(Bytes, Bytes)>> + 'a>;

/// A range of keys: from the first one inclusive to the last one exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Keys {
    pub(in crate::store) from: Vec<u8>,
    /// `None`: to the end of the space.
    pub(in crate::store) to: Option<Vec<u8>>,
}

impl Keys {
    /// The whole space.
    pub(in crate::store) fn all() -> Self {
        Self::prefix(Vec::new())
    }

    /// Every key that begins with `prefix`.
    pub(in crate::store) fn prefix(prefix: Vec<u8>) -> Self {
        let to = prefix.iter().rposition(|byte| *byte != u8::MAX).map(|last| {
            let mut to = prefix[..=last].to_vec();
            to[last] += 1;
            to
        });
        Self { from: prefix, to }
    }

    /// The keys from `from` up to, but not including `to`.
    pub(in crate::store) fn between(from: Vec<u8>, to: Vec<u8>) -> Self {
        Self { from, to: Some(to) }
    }
}

/// Changes that belong together. A later change of a key replaces the earlier one.
#[derive(Debug, Default)]
pub(in crate::store) struct Batch {
    changes: BTreeMap<(Space, Vec<u8>), Change>,
}

/// What a batch does to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It gets this value.
    Put(Vec<u8>),
    /// It is removed.
    Remove,
}

impl Batch {
    pub(super) fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert((space, key), Change::Put(value));
    }

    pub(super) fn remove(&mut self, space: Space, key: Vec<u8>) {
        self.changes.insert((space, key), Change::Remove);
    }

    /// What the batch does to a key; `None` when nothing.
    pub(super) fn change(&self, space: Space, key: &[u8]) -> Option<&Change> {
        // The tuple owns its key, so a lookup has to as well; keys are a few dozen bytes.
        self.changes.get(&(space, key.to_vec()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The changes in the order of spaces and keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Space, &[u8], &Change)> {
        self.changes.iter().map(|((space, key), change)| (*space, key.as_slice(), change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_prefix() {
        assert_eq!(Keys::prefix(vec![1, 2]).to, Some(vec![1, 3]));
        assert_eq!(Keys::prefix(vec![1, 0xFF]).to, Some(vec![2]));
        assert_eq!(Keys::prefix(vec![0xFF, 0xFF]).to, None);
        assert_eq!(Keys::all().to, None);
    }

    #[test]
    fn tags_and_names_are_unique() {
        for (place, space) in Space::ALL.iter().enumerate() {
            assert_eq!(usize::from(space.tag()), place + 1);
            assert_eq!(Space::ALL.iter().filter(|other| other.name() == space.name()).count(), 1);
        }
    }

    #[test]
    fn a_later_change_replaces_an_earlier_one() {
        let mut batch = Batch::default();
        batch.put(Space::Meta, vec![1], vec![2]);
        batch.remove(Space::Meta, vec![1]);
        assert_eq!(batch.change(Space::Meta, &[1]), Some(&Change::Remove));
        assert_eq!(batch.change(Space::Topics, &[1]), None);
        assert_eq!(batch.len(), 1);
    }
}
