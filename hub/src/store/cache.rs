//! What delivery reads again and again: the newest notifications, and recipients, both bounded by what they weigh. What it reads
//! once only, in the order of a sweep, takes no room from these.
//!
//! Of a notification there is one copy at a time: whoever asks for one that others still have gets theirs, and those who ask for
//! one that nobody has wait for the first of them to read it, or to find that it cannot be read.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use resync_common::locks::lock;
use tokio::sync::OwnedMutexGuard;

use crate::store::{
    CachePolicy, Notification, Offset, Recipient, Shard, StoreError, SubscriptionId, TopicId,
};
use crate::weighted_cache::WeightedCache;

/// Bytes of notifications that are cached although nobody has them.
const NOTIFICATION_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of recipients that are cached ready, in all shards: of the usual size more than 50,000.
const RECIPIENT_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of recipients of a shard that were read ahead and may wait: what a hundred topics read at once.
const AHEAD_BYTES: usize = 2 * 1024 * 1024;

/// Notifications never change, so they need no invalidation: whoever asks checks the bounds of the log first.
pub(in crate::store) struct Notifications {
    limit: usize,
    cached: Mutex<CachedNotifications>,
}

struct CachedNotifications {
    ready: WeightedCache<Place, Arc<Notification>>,
    /// Everything that was put and is somewhere still.
    alive: WeakMap<Notification>,
    /// Locked by the reader of a notification.
    readings: WeakMap<tokio::sync::Mutex<Option<StoreError>>>,
}

/// The lock to read a notification; it holds why the reader before failed.
pub(in crate::store) type ReadLock = OwnedMutexGuard<Option<StoreError>>;

/// Where a notification is.
type Place = (TopicId, Offset);

impl Default for Notifications {
    fn default() -> Self {
        Self::with_limit(NOTIFICATION_BYTES)
    }
}

impl Notifications {
    fn with_limit(limit: usize) -> Self {
        let cached = CachedNotifications {
            ready: WeightedCache::new(limit),
            alive: WeakMap::default(),
            readings: WeakMap::default(),
        };
        Self { limit, cached: Mutex::new(cached) }
    }

    pub(in crate::store) fn get(&self, topic: TopicId, offset: Offset) -> Option<Arc<Notification>> {
        let mut cached = lock(&self.cached);
        let ready = cached.ready.get(&(topic, offset)).cloned();
        ready.or_else(|| cached.alive.get((topic, offset)))
    }

    /// Waits for the lock to read this notification, which may have been read meanwhile.
    pub(in crate::store) async fn lock_to_read(&self, topic: TopicId, offset: Offset) -> ReadLock {
        let reading = lock(&self.cached).readings.get_or_default((topic, offset));
        reading.lock_owned().await
    }

    /// Reading failed: all who wait for this lock get the error, and later readers get a new lock.
    pub(in crate::store) fn fail(
        &self,
        topic: TopicId,
        offset: Offset,
        mut read_lock: ReadLock,
        error: &StoreError,
    ) {
        lock(&self.cached).readings.forget((topic, offset));
        *read_lock = Some(error.clone());
    }

    /// What logs that begin later now no longer hold is not found any more.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn forget_before(&self, firsts: &HashMap<TopicId, Offset>) {
        let is_held = |(topic, offset): &Place| firsts.get(topic).is_none_or(|first| offset >= first);
        let mut cached = lock(&self.cached);
        cached.ready.retain(is_held);
        cached.alive.known.retain(|place, _| is_held(place));
    }

    /// One that takes more than all may is cached only as long as somebody has it.
    pub(in crate::store) fn put(&self, notification: Arc<Notification>) {
        let mut cached = lock(&self.cached);
        let place = (notification.topic, notification.offset);
        let bytes = usize::try_from(notification.weight()).unwrap_or(usize::MAX);
        cached.alive.put(place, &notification);
        if bytes <= self.limit {
            cached.ready.put(place, notification, bytes);
        }
    }
}

/// What others keep alive. Now and then the places of what is gone are swept, so that they are never more than twice as many as
/// were alive then.
struct WeakMap<T> {
    known: HashMap<Place, Weak<T>>,
    sweep_at: usize,
}

/// So few places are not worth a sweep.
const SWEEP_FROM: usize = 64;

impl<T> Default for WeakMap<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), sweep_at: SWEEP_FROM }
    }
}

impl<T> WeakMap<T> {
    fn get(&self, place: Place) -> Option<Arc<T>> {
        self.known.get(&place)?.upgrade()
    }

    fn forget(&mut self, place: Place) {
        self.known.remove(&place);
    }

    fn put(&mut self, place: Place, new: &Arc<T>) {
        self.known.insert(place, Arc::downgrade(new));
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = SWEEP_FROM.max(2 * self.known.len());
        }
    }
}

impl<T: Default> WeakMap<T> {
    fn get_or_default(&mut self, place: Place) -> Arc<T> {
        self.get(place).unwrap_or_else(|| {
            let new = Arc::default();
            self.put(place, &new);
            new
        })
    }
}

type Key = (TopicId, SubscriptionId);

/// Recipients, each as the newest commit left it.
pub(in crate::store) struct Recipients {
    shards: Vec<Mutex<OfShard>>,
}

struct OfShard {
    /// Those that are asked for again and again.
    ready: WeightedCache<Key, Arc<Recipient>>,
    ahead: RecipientsAhead,
    changes: u64,
}

/// Recipients that were read on the way, each for one use.
#[derive(Default)]
struct RecipientsAhead {
    read: BTreeMap<Key, Arc<Recipient>>,
    bytes: usize,
}

impl RecipientsAhead {
    fn take(&mut self, key: &Key) -> Option<Arc<Recipient>> {
        let taken = self.read.remove(key)?;
        self.bytes -= taken.weight();
        Some(taken)
    }

    fn put(&mut self, recipients: Vec<Arc<Recipient>>) {
        let more: usize = recipients.iter().map(|recipient| recipient.weight()).sum();
        // Some of what is read ahead is never asked for: it ended, or began too late.
        if self.bytes + more > AHEAD_BYTES {
            *self = Self::default();
        }
        for recipient in recipients {
            self.bytes += recipient.weight();
            if let Some(replaced) = self.read.insert(key_of(&recipient), recipient) {
                self.bytes -= replaced.weight();
            }
        }
    }
}

/// The state of the cache before a record was read; what was read is cached only if nothing has changed since.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Reading {
    changes: u64,
}

impl Recipients {
    pub(in crate::store) fn new(shards: u16) -> Self {
        let each = RECIPIENT_BYTES / usize::from(shards.max(1));
        let shard =
            || OfShard { ready: WeightedCache::new(each), ahead: RecipientsAhead::default(), changes: 0 };
        Self { shards: (0..shards).map(|_| Mutex::new(shard())).collect() }
    }

    /// One that is asked for the last time for now leaves its room to those that are asked for again and again.
    pub(in crate::store) fn get(
        &self,
        shard: Shard,
        key: Key,
        keep: CachePolicy,
    ) -> Result<Arc<Recipient>, Reading> {
        let Some(mut cached) = self.of(shard) else { return Err(Reading { changes: 0 }) };
        let (changes, ahead) = (cached.changes, cached.ahead.take(&key));
        let found = match (keep, ahead) {
            (CachePolicy::Drop, ahead) => cached.ready.pop(&key).or(ahead),
            (CachePolicy::Keep, None) => cached.ready.get(&key).cloned(),
            (CachePolicy::Keep, Some(recipient)) => {
                cached.ready.put(key, Arc::clone(&recipient), recipient.weight());
                Some(recipient)
            }
        };
        found.ok_or(Reading { changes })
    }

    /// What was read since then of one shard: what was sought, and what stands behind it.
    pub(in crate::store) fn put(
        &self,
        shard: Shard,
        sought: &Arc<Recipient>,
        next: Vec<Arc<Recipient>>,
        keep: CachePolicy,
        reading: Reading,
    ) {
        let Some(mut cached) = self.of(shard).filter(|cached| cached.changes == reading.changes) else {
            return;
        };
        match keep {
            CachePolicy::Keep => {
                for recipient in std::iter::once(Arc::clone(sought)).chain(next) {
                    let (key, weight) = (key_of(&recipient), recipient.weight());
                    cached.ready.put(key, recipient, weight);
                }
            }
            CachePolicy::Drop => cached.ahead.put(next),
        }
    }

    /// Forgets what a commit has changed. Readers that are between their read and their `put` come too late.
    pub(in crate::store) fn forget(&self, changed: &[(Shard, TopicId, SubscriptionId)]) {
        for (shard, topic, id) in changed {
            let Some(mut cached) = self.of(*shard) else { continue };
            cached.changes += 1;
            cached.ready.pop(&(*topic, *id));
            cached.ahead.take(&(*topic, *id));
        }
    }

    /// Forgets everything: nobody knows what was changed.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn forget_all(&self) {
        for cached in &self.shards {
            let mut cached = lock(cached);
            cached.changes += 1;
            cached.ready.retain(|_| false);
            cached.ahead = RecipientsAhead::default();
        }
    }

    fn of(&self, shard: Shard) -> Option<MutexGuard<'_, OfShard>> {
        self.shards.get(usize::from(shard.0)).map(lock)
    }
}

fn key_of(recipient: &Recipient) -> Key {
    (recipient.topic, recipient.id)
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl fmt::Debug for Recipients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipients").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use resync_core::datetime::DateTime;
    use resync_core::websub::TopicUrl;

    use super::*;
    use crate::store::{ContentKind, NotificationLinks};

    fn notification(offset: u64, bytes: usize) -> Arc<Notification> {
        Arc::new(Notification {
            topic: TopicId(1),
            offset: Offset(offset),
            content_type: Bytes::new(),
            links: NotificationLinks::default(),
            body: vec![0; bytes].into(),
            kind: ContentKind::Posted,
            received_at: DateTime::now(),
            trace: None,
        })
    }

    #[test]
    fn the_notifications_that_were_not_asked_for_longest_make_room() {
        let cache = Notifications::with_limit(4_000);
        cache.put(notification(1, 1_000));
        cache.put(notification(2, 1_000));
        assert!(cache.get(TopicId(1), Offset(1)).is_some());
        cache.put(notification(3, 1_000));
        assert!(cache.get(TopicId(1), Offset(2)).is_none());
        assert!(cache.get(TopicId(1), Offset(1)).is_some());
        assert!(cache.get(TopicId(1), Offset(3)).is_some());
    }

    #[test]
    fn a_notification_above_the_limit_is_kept_by_those_who_have_it_and_takes_room_from_nobody() {
        let cache = Notifications::with_limit(1_000);
        cache.put(notification(1, 10));
        let large = notification(2, 2_000);
        cache.put(Arc::clone(&large));
        assert!(cache.get(TopicId(1), Offset(1)).is_some());
        assert!(cache.get(TopicId(1), Offset(2)).is_some_and(|found| Arc::ptr_eq(&found, &large)));
        drop(large);
        assert!(cache.get(TopicId(1), Offset(2)).is_none());
    }

    #[test]
    fn what_had_to_make_room_is_found_as_long_as_somebody_has_it() {
        let cache = Notifications::with_limit(2_000);
        let first = notification(1, 1_000);
        cache.put(Arc::clone(&first));
        cache.put(notification(2, 1_000));
        assert!(cache.get(TopicId(1), Offset(1)).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        drop(first);
        assert!(cache.get(TopicId(1), Offset(1)).is_none());
        for offset in 3..10_000 {
            cache.put(notification(offset, 1_000));
        }
        assert!(lock(&cache.cached).alive.known.len() <= SWEEP_FROM, "nothing stays of what is gone");
    }

    #[test]
    fn putting_the_same_notification_twice_counts_it_once() {
        let cache = Notifications::with_limit(3_000);
        cache.put(notification(1, 1_000));
        let once = lock(&cache.cached).ready.weight();
        cache.put(notification(1, 1_000));
        assert_eq!(lock(&cache.cached).ready.weight(), once);
    }

    fn recipient(id: u64) -> Arc<Recipient> {
        Arc::new(Recipient {
            id: SubscriptionId(id),
            topic: TopicId(1),
            callback: Bytes::from_static(b"http://d.example/cb"),
            topic_url: TopicUrl::parse("http://s.example/t").unwrap(),
            secret: None,
        })
    }

    #[test]
    fn a_recipient_read_before_a_change_is_not_kept_after_it() {
        let (one, other) = (recipient(1), recipient(2));
        for (keep, asked) in [(CachePolicy::Keep, &one), (CachePolicy::Drop, &other)] {
            let (cache, key) = (Recipients::new(1), key_of(asked));
            let before = cache.get(Shard(0), key, keep).unwrap_err();
            cache.forget(&[(Shard(0), key.0, key.1)]);
            cache.put(Shard(0), &one, vec![Arc::clone(&other)], keep, before);
            let after = cache.get(Shard(0), key, keep).unwrap_err();
            cache.put(Shard(0), &one, vec![Arc::clone(&other)], keep, after);
            assert!(cache.get(Shard(0), key, keep).is_ok(), "{keep:?}");
            cache.forget(&[(Shard(0), key.0, key.1)]);
            assert!(cache.get(Shard(0), key, keep).is_err(), "{keep:?}");
        }
    }

    #[test]
    fn what_is_read_for_one_use_is_given_once_and_takes_no_room_for_long() {
        let cache = Recipients::new(1);
        let key = |id| (TopicId(1), SubscriptionId(id));
        let reading = cache.get(Shard(0), key(1), CachePolicy::Drop).unwrap_err();
        cache.put(Shard(0), &recipient(1), vec![recipient(2), recipient(3)], CachePolicy::Drop, reading);
        assert!(cache.get(Shard(0), key(1), CachePolicy::Drop).is_err());
        assert!(cache.get(Shard(0), key(2), CachePolicy::Drop).is_ok());
        assert!(cache.get(Shard(0), key(2), CachePolicy::Drop).is_err());
        assert!(cache.get(Shard(0), key(3), CachePolicy::Keep).is_ok());
        assert!(cache.get(Shard(0), key(3), CachePolicy::Keep).is_ok(), "it is asked for again");
        assert!(cache.get(Shard(0), key(3), CachePolicy::Drop).is_ok(), "for the last time");
        assert!(cache.get(Shard(0), key(3), CachePolicy::Keep).is_err());
        for id in 1..=40_000 {
            cache.put(Shard(0), &recipient(0), vec![recipient(id)], CachePolicy::Drop, reading);
        }
        let ahead = &lock(&cache.shards[0]).ahead;
        let weight: usize = ahead.read.values().map(|recipient| recipient.weight()).sum();
        assert!(ahead.bytes == weight && weight <= AHEAD_BYTES, "{weight}");
    }

    #[test]
    fn what_is_read_ahead_twice_counts_once_and_what_was_read_before_it_stays() {
        let cache = Recipients::new(1);
        let reading = cache.get(Shard(0), (TopicId(1), SubscriptionId(1)), CachePolicy::Drop).unwrap_err();
        for id in [2, 3, 2] {
            cache.put(Shard(0), &recipient(1), vec![recipient(id)], CachePolicy::Drop, reading);
        }
        let ahead = &lock(&cache.shards[0]).ahead;
        assert_eq!((ahead.read.len(), ahead.bytes), (2, 2 * recipient(2).weight()));
    }
}
