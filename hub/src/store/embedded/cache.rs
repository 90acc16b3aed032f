//! What delivery reads again and again: the newest notifications, bounded by bytes, and subscriptions, bounded by number.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::store::{Notification, Offset, Shard, Subscription, SubscriptionId, TopicId};

/// Bytes of notifications that are kept.
const NOTIFICATION_BYTES: usize = 64 * 1024 * 1024;
/// Subscriptions that are kept.
const SUBSCRIPTIONS: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");

/// Notifications never change, so they need no invalidation: whoever asks checks the bounds of the log first.
pub(super) struct Notifications {
    limit: usize,
    kept: Mutex<KeptNotifications>,
}

struct KeptNotifications {
    entries: LruCache<(TopicId, Offset), Arc<Notification>>,
    bytes: usize,
}

impl Default for Notifications {
    fn default() -> Self {
        Self::with_limit(NOTIFICATION_BYTES)
    }
}

impl Notifications {
    fn with_limit(limit: usize) -> Self {
        Self { limit, kept: Mutex::new(KeptNotifications { entries: LruCache::unbounded(), bytes: 0 }) }
    }

    pub(super) fn get(&self, topic: TopicId, offset: Offset) -> Option<Arc<Notification>> {
        lock(&self.kept).entries.get(&(topic, offset)).cloned()
    }

    pub(super) fn put(&self, notification: Arc<Notification>) {
        let mut kept = lock(&self.kept);
        kept.bytes += weight(&notification);
        let key = (notification.topic, notification.offset);
        if let Some((_, replaced)) = kept.entries.push(key, notification) {
            kept.bytes -= weight(&replaced);
        }
        while kept.bytes > self.limit {
            let Some((_, oldest)) = kept.entries.pop_lru() else { break };
            kept.bytes -= weight(&oldest);
        }
    }
}

/// The body, its company, and what the maps take.
fn weight(notification: &Notification) -> usize {
    let links = &notification.links;
    let text = links.canonical.len()
        + links.hubs.iter().map(String::len).sum::<usize>()
        + links.resourcesync.as_ref().map_or(0, String::len);
    notification.body.len() + notification.content_type.len() + text + 256
}

type Key = (Shard, TopicId, SubscriptionId);

/// Subscriptions, each as the newest commit left it.
pub(super) struct Subscriptions {
    kept: Mutex<KeptSubscriptions>,
}

struct KeptSubscriptions {
    entries: LruCache<Key, Arc<Subscription>>,
    changes: u64,
}

/// The state of the cache before a record was read; what was read is kept only if nothing has changed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    changes: u64,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { kept: Mutex::new(KeptSubscriptions { entries: LruCache::new(SUBSCRIPTIONS), changes: 0 }) }
    }
}

impl Subscriptions {
    pub(super) fn get(&self, key: Key) -> Result<Arc<Subscription>, Reading> {
        let mut kept = lock(&self.kept);
        let changes = kept.changes;
        kept.entries.get(&key).cloned().ok_or(Reading { changes })
    }

    /// What was read since then of one shard.
    pub(super) fn put(&self, shard: Shard, read: &[Arc<Subscription>], reading: Reading) {
        let mut kept = lock(&self.kept);
        if kept.changes == reading.changes {
            for subscription in read {
                kept.entries.put((shard, subscription.topic, subscription.id), Arc::clone(subscription));
            }
        }
    }

    /// Forgets what a commit has changed. Readers that are between their read and their `put` come too late.
    pub(super) fn forget(&self, changed: &[Key]) {
        if changed.is_empty() {
            return;
        }
        let mut kept = lock(&self.kept);
        kept.changes += 1;
        for key in changed {
            kept.entries.pop(key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriptions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use resync_core::datetime::DateTime;
    use resync_core::websub::{CallbackUrl, TopicUrl};

    use super::*;
    use crate::store::{NotificationLinks, Rule};

    fn notification(offset: u64, bytes: usize) -> Arc<Notification> {
        Arc::new(Notification {
            topic: TopicId(1),
            offset: Offset(offset),
            content_type: Bytes::new(),
            links: NotificationLinks::default(),
            body: vec![0; bytes].into(),
            rule: Rule::Every,
            received_at: DateTime::now(),
        })
    }

    #[test]
    fn the_notifications_that_were_not_asked_for_longest_make_room() {
        let cache = Notifications::with_limit(3_000);
        cache.put(notification(1, 1_000));
        cache.put(notification(2, 1_000));
        assert!(cache.get(TopicId(1), Offset(1)).is_some());
        cache.put(notification(3, 1_000));
        assert!(cache.get(TopicId(1), Offset(2)).is_none());
        assert!(cache.get(TopicId(1), Offset(1)).is_some());
        assert!(cache.get(TopicId(1), Offset(3)).is_some());
    }

    #[test]
    fn a_notification_above_the_limit_leaves_nothing_behind() {
        let cache = Notifications::with_limit(1_000);
        cache.put(notification(1, 2_000));
        assert!(cache.get(TopicId(1), Offset(1)).is_none());
        assert_eq!(lock(&cache.kept).bytes, 0);
    }

    #[test]
    fn putting_the_same_notification_twice_counts_it_once() {
        let cache = Notifications::with_limit(3_000);
        cache.put(notification(1, 1_000));
        let once = lock(&cache.kept).bytes;
        cache.put(notification(1, 1_000));
        assert_eq!(lock(&cache.kept).bytes, once);
    }

    #[test]
    fn a_subscription_read_before_a_change_is_not_kept_after_it() {
        let cache = Subscriptions::default();
        let key = (Shard(0), TopicId(1), SubscriptionId(1));
        let now = DateTime::now();
        let subscription = Arc::new(Subscription {
            id: key.2,
            topic: key.1,
            callback: CallbackUrl::parse("http://d.example/cb").unwrap(),
            topic_url: TopicUrl::parse("http://s.example/t").unwrap(),
            secret: None,
            lease: Duration::from_secs(1),
            lease_end: now,
            address: None,
            start: Offset(0),
            created_at: now,
            verified_at: now,
        });
        let before = cache.get(key).unwrap_err();
        cache.forget(&[key]);
        cache.put(key.0, std::slice::from_ref(&subscription), before);
        let after = cache.get(key).unwrap_err();
        cache.put(key.0, &[subscription], after);
        assert!(cache.get(key).is_ok());
    }
}
