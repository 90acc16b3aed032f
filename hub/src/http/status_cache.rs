//! Statuses that were counted a moment ago. One that took long to count is given again for longer, so that queries of one
//! notification keep a small share of one core busy, however many there are and however many subscriptions the topic has.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use resync_common::locks::lock;
use resync_core::websub::NotificationId;

use crate::weighted_cache::WeightedCache;

/// A status is given again for so many times as long as it took to count: counting takes at most a twentieth of the time.
const SHARE: u32 = 20;
/// No status is older, however long it took to count.
const OLDEST: Duration = Duration::from_secs(60);
/// Bytes of all statuses.
const MOST: usize = 1 << 20;
/// Bytes of one, beside the URL of its topic.
const OF_ONE: usize = 512;

/// The cache. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StatusCache<S> {
    counted: Arc<Mutex<WeightedCache<NotificationId, Counted<S>>>>,
}

#[derive(Debug)]
struct Counted<S> {
    status: S,
    until: Instant,
}

impl<S: Clone> StatusCache<S> {
    pub(super) fn new() -> Self {
        Self { counted: Arc::new(Mutex::new(WeightedCache::new(MOST))) }
    }

    /// The status of a notification, if it was counted a moment ago.
    pub(super) fn get(&self, id: NotificationId, now: Instant) -> Option<S> {
        let mut counted = self.lock();
        counted.get(&id).filter(|counted| now < counted.until).map(|counted| counted.status.clone())
    }

    /// Remembers a status that was counted between these moments; `topic` is how long the URL of its topic is.
    pub(super) fn put(&self, id: NotificationId, status: S, topic: usize, began: Instant, ended: Instant) {
        let fresh = (ended.saturating_duration_since(began) * SHARE).min(OLDEST);
        self.lock().put(id, Counted { status, until: ended + fresh }, topic + OF_ONE);
    }

    fn lock(&self) -> MutexGuard<'_, WeightedCache<NotificationId, Counted<S>>> {
        lock(&self.counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: NotificationId = NotificationId { topic: 1, offset: 1 };

    #[test]
    fn a_status_that_took_long_to_count_is_given_again_for_longer() {
        let (cache, began) = (StatusCache::new(), Instant::now());
        let after = |millis| began + Duration::from_millis(millis);
        cache.put(ID, "quick", 30, began, after(1));
        assert_eq!(cache.get(ID, after(20)), Some("quick"));
        assert_eq!(cache.get(ID, after(21)), None);
        cache.put(ID, "slow", 30, began, after(1_000));
        assert_eq!(cache.get(ID, after(20_999)), Some("slow"));
        assert_eq!(cache.get(ID, after(21_000)), None);
        cache.put(ID, "very slow", 30, began, after(10_000));
        assert_eq!(cache.get(ID, after(69_999)), Some("very slow"));
        assert_eq!(cache.get(ID, after(70_000)), None, "nobody gets one that is older than a minute");
    }

    #[test]
    fn counting_again_and_again_takes_a_twentieth_of_the_time_at_most() {
        let (cache, began) = (StatusCache::new(), Instant::now());
        let (mut now, mut busy) = (began, Duration::ZERO);
        let cost = Duration::from_millis(7);
        while now < began + Duration::from_secs(100) {
            if cache.get(ID, now).is_none() {
                cache.put(ID, (), 30, now, now + cost);
                (now, busy) = (now + cost, busy + cost);
            }
            now += Duration::from_millis(1);
        }
        assert!(busy < Duration::from_secs(5), "{busy:?}");
    }

    #[test]
    fn the_statuses_of_many_notifications_have_bounded_memory() {
        let (cache, now) = (StatusCache::new(), Instant::now());
        for offset in 0..10_000 {
            cache.put(NotificationId { topic: 1, offset }, (), 2_000, now, now + Duration::from_secs(1));
        }
        assert!(cache.lock().weight() <= MOST);
    }
}
