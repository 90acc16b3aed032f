//! A least-recently-used cache with a limit for the bytes of all entries: strangers choose how large one is.

use std::fmt;
use std::hash::Hash;

use lru::LruCache;

/// The entries that were used last, within a total weight.
pub(crate) struct WeightedCache<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    weight: usize,
    most: usize,
}

impl<K: Hash + Eq, V> WeightedCache<K, V> {
    /// A cache for so many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: LruCache::unbounded(), weight: 0, most }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Entries unused for longest are dropped. One that is heavier than the limit stays alone until the next comes: it costs most to
    /// make again.
    pub(crate) fn put(&mut self, key: K, value: V, weight: usize) {
        self.weight = self.weight.saturating_add(weight);
        if let Some((_, (_, replaced))) = self.entries.push(key, (value, weight)) {
            self.weight -= replaced;
        }
        while self.weight > self.most && self.entries.len() > 1 {
            let Some((_, (_, oldest))) = self.entries.pop_lru() else { break };
            self.weight -= oldest;
        }
    }

    /// Drops every entry that is not wanted any more.
    #[cfg(feature = "postgres")]
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&K) -> bool)
    where
        K: Clone,
    {
        let dropped: Vec<_> =
            self.entries.iter().map(|(key, _)| key).filter(|key| !is_wanted(key)).cloned().collect();
        for key in &dropped {
            self.pop(key);
        }
    }

    pub(crate) fn pop(&mut self, key: &K) -> Option<V> {
        let (value, weight) = self.entries.pop(key)?;
        self.weight -= weight;
        Some(value)
    }

    #[cfg(test)]
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Hash + Eq, V> fmt::Debug for WeightedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, weight, most } = self;
        f.debug_struct("WeightedCache")
            .field("entries", &entries.len())
            .field("weight", weight)
            .field("most", most)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_asked_for_longest_makes_room() {
        let mut cache = WeightedCache::new(100);
        cache.put(1, "one", 40);
        cache.put(2, "two", 40);
        assert_eq!(cache.get(&1), Some(&"one"));
        cache.put(3, "three", 40);
        assert_eq!([1, 2, 3].map(|key| cache.get(&key).copied()), [Some("one"), None, Some("three")]);
        assert_eq!((cache.pop(&1), cache.weight), (Some("one"), 40));
    }

    #[test]
    fn what_is_larger_than_all_may_be_is_alone_and_stays_for_as_long() {
        let mut cache = WeightedCache::new(100);
        cache.put(1, (), 40);
        cache.put(2, (), 1_000);
        assert!(cache.get(&1).is_none() && cache.get(&2).is_some());
        cache.put(3, (), 1);
        assert!(cache.get(&2).is_none() && cache.get(&3).is_some());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn what_is_not_wanted_any_more_takes_no_room() {
        let mut cache = WeightedCache::new(100);
        for key in 1..=4 {
            cache.put(key, (), 20);
        }
        cache.retain(|key| *key > 2);
        assert_eq!(
            ([1, 2, 3, 4].map(|key| cache.get(&key).is_some()), cache.weight),
            ([false, false, true, true], 40)
        );
    }

    proptest! {
        #[test]
        fn no_mix_of_entries_takes_more_than_the_room_or_loses_count(
            acts in prop::collection::vec((0_u8..20, 0_usize..60, any::<bool>()), 0..200),
        ) {
            let mut cache = WeightedCache::new(100);
            for (key, weight, is_put) in acts {
                if is_put {
                    cache.put(key, (), weight);
                } else {
                    cache.pop(&key);
                }
                prop_assert_eq!(cache.weight, cache.entries.iter().map(|(_, ((), weight))| weight).sum::<usize>());
                prop_assert!(cache.weight <= 100);
            }
        }
    }
}
