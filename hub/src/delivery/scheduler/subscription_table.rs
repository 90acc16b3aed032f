//! All subscriptions of one topic and shard, in the order of their ids and in few bytes each: an idle one takes no more than this.
//!
//! Ids grow, so almost everything is added at the end: blocks that are full stay full, and a million subscriptions take
//! hardly more than their records. Most of them may end: blocks that few are left of are merged, and give back their memory.

use resync_core::datetime::DateTime;

use super::clock::Now;
use super::host::HostId;
use super::wait_queue::LastAttempt;
use crate::store::{Offset, SubscriptionId};

/// Records of a block: what has to be moved when one is added or removed in the middle.
const BLOCK: usize = 256;

/// What the scheduler keeps of a subscription, also while it is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubscriptionEntry {
    pub(super) host: HostId,
    pub(super) start: Offset,
    pub(super) lease_end: DateTime,
    /// Whether the last attempt for it was delivered.
    pub(super) is_proven: bool,
}

impl SubscriptionEntry {
    /// Whether its lease is not over yet. What is over stays until the store has ended it.
    pub(super) fn is_in_force(&self, now: Now) -> bool {
        self.lease_end > now.wall
    }

    /// What the last attempt says of it, if that did not fail.
    pub(super) fn last(&self) -> LastAttempt {
        if self.is_proven { LastAttempt::Proven } else { LastAttempt::Untried }
    }
}

type Record = (SubscriptionId, SubscriptionEntry);

const _: () = assert!(size_of::<Record>() <= 64, "half of what an idle subscription may take in memory");

/// A sorted list in sorted blocks, none of which is empty.
#[derive(Debug, Default)]
pub(super) struct SubscriptionTable {
    blocks: Vec<Vec<Record>>,
    len: usize,
}

impl SubscriptionTable {
    /// How many subscriptions are in force.
    pub(super) fn in_force(&self, now: Now) -> usize {
        self.iter().filter(|(_, entry)| entry.is_in_force(now)).count()
    }

    /// Returns what it replaces.
    pub(super) fn insert(
        &mut self,
        id: SubscriptionId,
        entry: SubscriptionEntry,
    ) -> Option<SubscriptionEntry> {
        let before = self.put(id, entry);
        self.len += usize::from(before.is_none());
        before
    }

    fn put(&mut self, id: SubscriptionId, entry: SubscriptionEntry) -> Option<SubscriptionEntry> {
        let Some(last) = self.blocks.last_mut() else {
            self.blocks = vec![vec![(id, entry)]];
            return None;
        };
        if last.last().is_some_and(|(newest, _)| *newest < id) {
            if last.len() < BLOCK {
                last.push((id, entry));
            } else {
                self.blocks.push(vec![(id, entry)]);
            }
            return None;
        }
        let of = self.block_of(id);
        let block = &mut self.blocks[of];
        match block.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(index) => Some(std::mem::replace(&mut block[index].1, entry)),
            Err(index) => {
                block.insert(index, (id, entry));
                if block.len() > BLOCK {
                    let second = block.split_off(BLOCK / 2);
                    self.blocks.insert(of + 1, second);
                }
                None
            }
        }
    }

    pub(super) fn get(&self, id: SubscriptionId) -> Option<&SubscriptionEntry> {
        let (block, index) = self.find(id)?;
        Some(&self.blocks[block][index].1)
    }

    pub(super) fn get_mut(&mut self, id: SubscriptionId) -> Option<&mut SubscriptionEntry> {
        let (block, index) = self.find(id)?;
        Some(&mut self.blocks[block][index].1)
    }

    /// The block of an entry, and where it is in there.
    fn find(&self, id: SubscriptionId) -> Option<(usize, usize)> {
        let block = self.block_of(id);
        let index = self.blocks.get(block)?.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some((block, index))
    }

    pub(super) fn remove(&mut self, id: SubscriptionId) -> Option<SubscriptionEntry> {
        let (of, index) = self.find(id)?;
        let block = &mut self.blocks[of];
        let (_, entry) = block.remove(index);
        self.len -= 1;
        give_back(block);
        if block.len() < BLOCK / 4 {
            self.merge(of);
        }
        Some(entry)
    }

    /// Lets a block with few records join a neighbour that has room for them, well below its size, so that those that come and
    /// go do not make it merge and split in turn.
    fn merge(&mut self, index: usize) {
        for left in [index.checked_sub(1), Some(index)].into_iter().flatten() {
            if let Some([first, second]) = self.blocks.get_mut(left..left + 2)
                && first.len() + second.len() <= BLOCK / 2
            {
                first.append(second);
                give_back(first);
                self.forget(left + 1);
                return;
            }
        }
        if self.blocks[index].is_empty() {
            self.forget(index);
        }
    }

    fn forget(&mut self, index: usize) {
        self.blocks.remove(index);
        give_back(&mut self.blocks);
    }

    /// All after this id.
    pub(super) fn after(
        &self,
        id: SubscriptionId,
    ) -> impl Iterator<Item = (SubscriptionId, &SubscriptionEntry)> {
        let mut blocks = self.blocks[self.block_of(id)..].iter();
        let first = blocks
            .next()
            .map_or([].as_slice(), |block| &block[block.partition_point(|(other, _)| *other <= id)..]);
        first.iter().chain(blocks.flatten()).map(|(id, entry)| (*id, entry))
    }

    /// How many there are after this id.
    pub(super) fn count_after(&self, id: SubscriptionId) -> usize {
        let mut blocks = self.blocks[self.block_of(id)..].iter();
        let first =
            blocks.next().map_or(0, |block| block.len() - block.partition_point(|(other, _)| *other <= id));
        first + blocks.map(Vec::len).sum::<usize>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SubscriptionId, &SubscriptionEntry)> {
        self.blocks.iter().flatten().map(|(id, entry)| (*id, entry))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SubscriptionId, &mut SubscriptionEntry)> {
        self.blocks.iter_mut().flatten().map(|(id, entry)| (*id, entry))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block in which an id is, or would be.
    fn block_of(&self, id: SubscriptionId) -> usize {
        self.blocks.partition_point(|block| block.last().is_some_and(|(last, _)| *last < id))
    }
}

/// Leaves no more than half of a list's room unused; giving back all of it each time would copy it at each removal.
fn give_back<T>(list: &mut Vec<T>) {
    if list.len() * 2 < list.capacity() {
        list.shrink_to(list.len() + list.len() / 2);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(start: u64) -> SubscriptionEntry {
        let (start, lease_end) = (Offset(start), DateTime::from_unix_millis(0).unwrap());
        SubscriptionEntry { host: HostId::new(0), start, lease_end, is_proven: false }
    }

    fn bytes(table: &SubscriptionTable) -> usize {
        let records: usize = table.blocks.iter().map(Vec::capacity).sum();
        records * size_of::<Record>() + table.blocks.capacity() * size_of::<Vec<Record>>()
    }

    #[test]
    fn when_most_have_ended_those_that_are_left_take_at_most_128_bytes_each() {
        let mut rng = fastrand::Rng::with_seed(256);
        for keep in [2, 3, 16, 256, 5_000] {
            let mut table = SubscriptionTable::default();
            for id in 1..=100_000 {
                table.insert(SubscriptionId(id), entry(id));
            }
            let mut ending: Vec<_> = (1..=100_000).filter(|id| id % keep != 0).collect();
            rng.shuffle(&mut ending);
            for id in ending {
                assert!(table.remove(SubscriptionId(id)).is_some());
            }
            let left = table.iter().count();
            assert_eq!(left as u64, 100_000 / keep);
            assert!(bytes(&table) <= 128 * left, "{} bytes for {left}", bytes(&table));
            assert!(table.blocks.len() <= 1 + left * 8 / BLOCK, "{} blocks for {left}", table.blocks.len());
        }
    }

    #[test]
    fn an_idle_subscription_takes_at_most_128_bytes() {
        let mut table = SubscriptionTable::default();
        let many = 100_000;
        for id in 1..=many {
            table.insert(SubscriptionId(id), entry(id));
        }
        let taken = bytes(&table);
        assert!(taken <= 64 * usize::try_from(many).unwrap(), "{taken} bytes for {many}");
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map(changes in prop::collection::vec((any::<bool>(), 0..2_000_u64, any::<u64>()), 0..1_500), from in 0..2_000_u64) {
            let (mut table, mut model) = (SubscriptionTable::default(), BTreeMap::new());
            for (put, id, start) in changes {
                // Most of what comes is new and at the end.
                let id = SubscriptionId(if put && start % 4 != 0 { 2_000 + model.len() as u64 } else { id });
                if put {
                    prop_assert_eq!(table.insert(id, entry(start)), model.insert(id, entry(start)));
                } else {
                    prop_assert_eq!(table.remove(id), model.remove(&id));
                }
                prop_assert_eq!(table.get(id), model.get(&id));
                prop_assert_eq!((table.is_empty(), table.len()), (model.is_empty(), model.len()));
            }
            let from = SubscriptionId(from);
            prop_assert!(table.iter().eq(model.iter().map(|(id, entry)| (*id, entry))));
            prop_assert!(table.after(from).eq(model.range(SubscriptionId(from.0 + 1)..).map(|(id, entry)| (*id, entry))));
        }
    }
}
