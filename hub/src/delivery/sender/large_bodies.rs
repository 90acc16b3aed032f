//! Large notifications under way: how many bytes of them the hub holds in memory, each counted once, however many get it.
//!
//! Small ones are bounded by the number of requests. A large one that finds no room is postponed, so that it holds no permit
//! meanwhile. What pings have fetched finds half of the room, and what goes to slow hosts a fifth, so that neither keeps
//! back what publishers post.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};

use lru::LruCache;
use resync_common::locks::lock;

use crate::delivery::scheduler::Lane;
use crate::store::{ContentKind, Notification, Offset, TopicId};

/// What weighs no more is small: 2,048 requests, as many as are under way at once by default, hold 128 MiB at most.
const SMALL: u64 = 64 * 1024;
/// What large ones may weigh together, of them those that go to slow hosts.
const ALL: u64 = 80 * 1024 * 1024;
const SLOW: u64 = ALL / 5;
/// So many that found no room are remembered, in some 40 bytes each: while there is still none, they need not be read again.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4_096).expect("4096 is not zero");

/// The large notifications of all workers. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeBodies(Arc<Mutex<Table>>);

#[derive(Debug)]
struct Table {
    held: HashMap<(TopicId, Offset), Held>,
    /// What those weigh that found no room of late, and whether a ping has fetched them.
    refused: LruCache<(TopicId, Offset), (u64, bool)>,
    /// What those weigh that were first sent to hosts that are not slow, and to slow ones.
    quick: Taken,
    slow: Taken,
}

/// So many requests hold it.
#[derive(Debug)]
struct Held {
    requests: usize,
    weight: u64,
    is_slow: bool,
    is_fetched: bool,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    fetched: u64,
}

/// The right to hold a notification, until this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    /// `None`: it is small.
    held: Option<(LargeBodies, TopicId, Offset)>,
}

impl LargeBodies {
    /// Memory for a notification that goes out in this lane; `None` where others have taken it all.
    pub(super) fn reserve(&self, notification: &Notification, lane: Lane) -> Option<Reservation> {
        let weight = notification.weight();
        if weight <= SMALL {
            return Some(Reservation { held: None });
        }
        let (topic, offset) = (notification.topic, notification.offset);
        let is_fetched = notification.kind == ContentKind::Fetched;
        self.table()
            .take((topic, offset), weight, lane == Lane::Slow, is_fetched)
            .then(|| Reservation { held: Some((self.clone(), topic, offset)) })
    }

    /// Whether one that found no room before would find none now either, so that it need not be read.
    pub(super) fn refuses(&self, topic: TopicId, offset: Offset, lane: Lane) -> bool {
        let table = self.table();
        let key = (topic, offset);
        let Some((weight, is_fetched)) = table.refused.peek(&key).copied() else { return false };
        !table.held.contains_key(&key) && !table.fits(weight, lane == Lane::Slow, is_fetched)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here can panic half-way.
        lock(&self.0)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((large, topic, offset)) = &self.held {
            large.table().give_back((*topic, *offset));
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        let refused = LruCache::new(REMEMBERED);
        Self { held: HashMap::new(), refused, quick: Taken::default(), slow: Taken::default() }
    }
}

impl Table {
    fn fits(&self, weight: u64, is_slow: bool, is_fetched: bool) -> bool {
        let (taken, most) = if is_slow { (&self.slow, SLOW) } else { (&self.quick, ALL - SLOW) };
        // What is larger than all there is goes alone.
        let fits = |taken: u64, most: u64| taken == 0 || taken.saturating_add(weight) <= most;
        fits(taken.all, most) && (!is_fetched || fits(taken.fetched, most / 2))
    }

    fn take(&mut self, key: (TopicId, Offset), weight: u64, is_slow: bool, is_fetched: bool) -> bool {
        if let Some(held) = self.held.get_mut(&key) {
            held.requests += 1;
            return true;
        }
        if !self.fits(weight, is_slow, is_fetched) {
            self.refused.put(key, (weight, is_fetched));
            return false;
        }
        self.refused.pop(&key);
        let taken = if is_slow { &mut self.slow } else { &mut self.quick };
        taken.all += weight;
        taken.fetched += if is_fetched { weight } else { 0 };
        self.held.insert(key, Held { requests: 1, weight, is_slow, is_fetched });
        true
    }

    fn give_back(&mut self, key: (TopicId, Offset)) {
        let Entry::Occupied(mut entry) = self.held.entry(key) else { return };
        entry.get_mut().requests -= 1;
        if entry.get().requests == 0 {
            let Held { weight, is_slow, is_fetched, .. } = entry.remove();
            let taken = if is_slow { &mut self.slow } else { &mut self.quick };
            taken.all -= weight;
            taken.fetched -= if is_fetched { weight } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::NotificationLinks;

    const MIB: usize = 1024 * 1024;

    fn notification(offset: u64, kind: ContentKind, bytes: usize) -> Notification {
        Notification {
            topic: TopicId(1),
            offset: Offset(offset),
            received_at: DateTime::now(),
            content_type: "text/plain".into(),
            links: NotificationLinks { hubs: Vec::new(), canonical: String::new(), resourcesync: None },
            body: vec![0; bytes].into(),
            kind,
            trace: None,
        }
    }

    /// As many as find room of so many bytes each, in this lane.
    fn fill(large: &LargeBodies, from: u64, kind: ContentKind, lane: Lane) -> Vec<Reservation> {
        (from..)
            .map_while(|offset| large.reserve(&notification(offset, kind, MIB), lane))
            .take(1_000)
            .collect()
    }

    #[test]
    fn one_that_many_get_is_held_once_and_given_back_with_the_last() {
        let (large, one) = (LargeBodies::default(), notification(1, ContentKind::Posted, MIB));
        let reservations: Vec<_> = (0..1_000).map(|_| large.reserve(&one, Lane::First).unwrap()).collect();
        assert_eq!(large.table().quick.all, one.weight());
        drop(reservations);
        assert_eq!(large.table().quick.all, 0);
        assert!(large.table().held.is_empty());
    }

    #[test]
    fn fetched_ones_leave_half_to_what_publishers_post_and_slow_hosts_take_from_nobody() {
        let large = LargeBodies::default();
        let fetched = fill(&large, 1, ContentKind::Fetched, Lane::First);
        assert_eq!(fetched.len(), 31);
        let posted = fill(&large, 1_001, ContentKind::Posted, Lane::Retry);
        assert_eq!(posted.len(), 32);
        let slow = fill(&large, 2_001, ContentKind::Posted, Lane::Slow);
        assert_eq!(slow.len(), 15);
        assert!(
            large.reserve(&notification(1, ContentKind::Fetched, MIB), Lane::First).is_some(),
            "it is held already"
        );
        drop(fetched);
        assert_eq!(fill(&large, 3_001, ContentKind::Posted, Lane::First).len(), 31);
    }

    #[test]
    fn small_ones_are_not_counted_and_the_largest_goes_alone() {
        let large = LargeBodies::default();
        let _small = large.reserve(&notification(1, ContentKind::Fetched, 60 * 1024), Lane::First).unwrap();
        assert!(large.table().held.is_empty());
        let whole = large.reserve(&notification(2, ContentKind::Fetched, 200 * MIB), Lane::First).unwrap();
        assert!(large.reserve(&notification(3, ContentKind::Posted, MIB), Lane::First).is_none());
        assert!(large.refuses(TopicId(1), Offset(3), Lane::Retry), "without being read");
        assert!(!large.refuses(TopicId(1), Offset(3), Lane::Slow), "there is room among those");
        drop(whole);
        assert!(!large.refuses(TopicId(1), Offset(3), Lane::Retry));
        assert!(large.reserve(&notification(3, ContentKind::Posted, MIB), Lane::First).is_some());
    }
}
