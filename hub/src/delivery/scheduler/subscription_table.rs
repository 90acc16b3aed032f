//! All subscriptions of one topic and shard, in the order of their ids and in few bytes each: an idle one takes no more than this.
//!
//! Ids grow, so almost everything is added at the end: blocks that are full stay full, and a million subscriptions take
//! hardly more than their records. Most of them may end: blocks that few are left of are merged, and give back their memory.
//!
//! Whose leases are over is found without looking at the others: each block knows the moment before which none of its leases ends.

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
    blocks: Vec<Block>,
    len: usize,
    /// No lease ends before, while there is any.
    first_end: Option<DateTime>,
}

#[derive(Debug)]
struct Block {
    records: Vec<Record>,
    /// No lease of these ends before. The one that does may have been renewed or removed since.
    first_end: DateTime,
}

impl Block {
    fn push(&mut self, (id, entry): Record) {
        self.records.push((id, entry));
        self.first_end = self.first_end.min(entry.lease_end);
    }

    fn last(&self) -> Option<SubscriptionId> {
        self.records.last().map(|(id, _)| *id)
    }
}

impl SubscriptionTable {
    /// How many subscriptions are in force.
    pub(super) fn in_force(&self, now: Now) -> usize {
        self.len - self.over(now).count()
    }

    /// The subscriptions whose leases are over, which the store has not ended yet.
    pub(super) fn over(&self, now: Now) -> impl Iterator<Item = (SubscriptionId, &SubscriptionEntry)> {
        let blocks = self.blocks.iter().filter(move |block| block.first_end <= now.wall);
        let over = blocks.flat_map(|block| &block.records).filter(move |(_, entry)| !entry.is_in_force(now));
        over.map(|(id, entry)| (*id, entry))
    }

    /// The moment before which no lease ends.
    pub(super) fn first_end(&self) -> Option<DateTime> {
        self.first_end
    }

    /// Looks anew when leases end, where any may be over.
    pub(super) fn look_at_ends(&mut self, now: Now) {
        for block in self.blocks.iter_mut().filter(|block| block.first_end <= now.wall) {
            let first = block.records.iter().map(|(_, entry)| entry.lease_end).min();
            block.first_end = first.unwrap_or(block.first_end);
        }
        self.first_end = self.blocks.iter().map(|block| block.first_end).min();
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
        let end = entry.lease_end;
        self.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
        if self.blocks.last().is_none_or(|block| block.last().is_some_and(|newest| newest < id)) {
            match self.blocks.last_mut().filter(|block| block.records.len() < BLOCK) {
                Some(block) => block.push((id, entry)),
                None => self.blocks.push(Block { records: vec![(id, entry)], first_end: end }),
            }
            return None;
        }
        let of = self.block_of(id);
        let block = &mut self.blocks[of];
        block.first_end = block.first_end.min(end);
        match block.records.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(index) => Some(std::mem::replace(&mut block.records[index].1, entry)),
            Err(index) => {
                block.records.insert(index, (id, entry));
                if block.records.len() > BLOCK {
                    let records = block.records.split_off(BLOCK / 2);
                    let second = Block { records, first_end: block.first_end };
                    self.blocks.insert(of + 1, second);
                }
                None
            }
        }
    }

    pub(super) fn get(&self, id: SubscriptionId) -> Option<&SubscriptionEntry> {
        let (block, index) = self.find(id)?;
        Some(&self.blocks[block].records[index].1)
    }

    pub(super) fn get_mut(&mut self, id: SubscriptionId) -> Option<&mut SubscriptionEntry> {
        let (block, index) = self.find(id)?;
        Some(&mut self.blocks[block].records[index].1)
    }

    /// The block of an entry, and where it is in there.
    fn find(&self, id: SubscriptionId) -> Option<(usize, usize)> {
        let block = self.block_of(id);
        let index = self.blocks.get(block)?.records.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some((block, index))
    }

    pub(super) fn remove(&mut self, id: SubscriptionId) -> Option<SubscriptionEntry> {
        let (of, index) = self.find(id)?;
        let block = &mut self.blocks[of].records;
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
                && first.records.len() + second.records.len() <= BLOCK / 2
            {
                first.records.append(&mut second.records);
                first.first_end = first.first_end.min(second.first_end);
                give_back(&mut first.records);
                self.forget(left + 1);
                return;
            }
        }
        if self.blocks[index].records.is_empty() {
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
        let mut blocks = self.records_from(id);
        let first = blocks
            .next()
            .map_or([].as_slice(), |block| &block[block.partition_point(|(other, _)| *other <= id)..]);
        first.iter().chain(blocks.flatten()).map(|(id, entry)| (*id, entry))
    }

    /// How many there are after this id.
    pub(super) fn count_after(&self, id: SubscriptionId) -> usize {
        let mut blocks = self.records_from(id);
        let first =
            blocks.next().map_or(0, |block| block.len() - block.partition_point(|(other, _)| *other <= id));
        first + blocks.map(Vec::len).sum::<usize>()
    }

    /// The records of the block in which an id is, or would be, and of all behind.
    fn records_from(&self, id: SubscriptionId) -> impl Iterator<Item = &Vec<Record>> {
        self.blocks[self.block_of(id)..].iter().map(|block| &block.records)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SubscriptionId, &SubscriptionEntry)> {
        self.blocks.iter().flat_map(|block| &block.records).map(|(id, entry)| (*id, entry))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SubscriptionId, &mut SubscriptionEntry)> {
        self.blocks.iter_mut().flat_map(|block| &mut block.records).map(|(id, entry)| (*id, entry))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block in which an id is, or would be.
    fn block_of(&self, id: SubscriptionId) -> usize {
        self.blocks.partition_point(|block| block.last().is_some_and(|last| last < id))
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

    /// Its lease ends within a minute from 1970 on.
    fn entry(start: u64) -> SubscriptionEntry {
        let lease_end = DateTime::from_unix_millis(i64::try_from(start % 60_000).unwrap()).unwrap();
        SubscriptionEntry { host: HostId::new(0), start: Offset(start), lease_end, is_proven: false }
    }

    fn at(millis: i64) -> Now {
        Now { wall: DateTime::from_unix_millis(millis).unwrap(), monotonic: std::time::Instant::now() }
    }

    fn bytes(table: &SubscriptionTable) -> usize {
        let records: usize = table.blocks.iter().map(|block| block.records.capacity()).sum();
        records * size_of::<Record>() + table.blocks.capacity() * size_of::<Block>()
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
    fn an_idle_subscription_takes_at_most_64_bytes() {
        let mut table = SubscriptionTable::default();
        let many = 100_000;
        for id in 1..=many {
            table.insert(SubscriptionId(id), entry(id));
        }
        let taken = bytes(&table);
        assert!(taken <= 64 * usize::try_from(many).unwrap(), "{taken} bytes for {many}");
    }

    #[test]
    fn whose_leases_are_over_is_found_without_looking_at_the_others() {
        let mut table = SubscriptionTable::default();
        for id in 1..=60_000 {
            table.insert(SubscriptionId(id), entry(id));
        }
        let looked_at = |table: &SubscriptionTable, now: Now| {
            table.blocks.iter().filter(|block| block.first_end <= now.wall).count()
        };
        assert_eq!((table.in_force(at(0)), looked_at(&table, at(0))), (59_999, 1), "the last one ends first");
        assert_eq!((table.in_force(at(300)), looked_at(&table, at(300))), (60_000 - 301, 3));
        // They are renewed, and the last one ends.
        for id in 1..=300 {
            table.insert(SubscriptionId(id), entry(59_999));
        }
        table.remove(SubscriptionId(60_000));
        assert_eq!((table.in_force(at(300)), table.first_end()), (59_699 + 300, Some(at(0).wall)));
        table.look_at_ends(at(300));
        assert_eq!((looked_at(&table, at(300)), table.first_end()), (0, Some(at(301).wall)));
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map(changes in prop::collection::vec((any::<bool>(), 0..2_000_u64, any::<u64>()), 0..1_500), from in 0..2_000_u64, now in 0..60_000_i64) {
            let (mut table, mut model) = (SubscriptionTable::default(), BTreeMap::new());
            let now = at(now);
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
                if start % 64 == 0 {
                    let over: Vec<_> = model.iter().filter(|(_, entry)| !entry.is_in_force(now)).map(|(id, entry)| (*id, entry)).collect();
                    prop_assert_eq!(table.in_force(now), model.len() - over.len());
                    prop_assert!(table.over(now).eq(over.iter().copied()));
                    table.look_at_ends(now);
                    prop_assert!(table.over(now).eq(over));
                    prop_assert!(table.first_end() <= model.values().map(|entry| entry.lease_end).min() || model.is_empty());
                }
            }
            let from = SubscriptionId(from);
            prop_assert!(table.iter().eq(model.iter().map(|(id, entry)| (*id, entry))));
            prop_assert!(table.after(from).eq(model.range(SubscriptionId(from.0 + 1)..).map(|(id, entry)| (*id, entry))));
        }
    }
}
