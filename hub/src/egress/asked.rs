//! Which addresses were asked of late whether they want what is sent under a name, and which of them said that they do.
//!
//! None of this is written down. After a restart the hub asks again wherever a name leads to another address than the one that
//! stands in its subscription's record: one small request for each name and address, which counts for nothing where it is answered
//! with the challenge. So it costs an honest network nothing but that, and a victim no more than its trickle, also if the hub is
//! restarted again and again. A record that grew with every address of a pool would be written at every turn of it.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_core::datetime::DateTime;

/// Names and their addresses; beyond that, those that were of use longest ago are forgotten, and asked again.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(50_000).expect("fifty thousand is not zero");
/// An address that did not say yes is left alone for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// By the hashes of a name and an address.
#[derive(Debug)]
pub(super) struct Asked(LruCache<u64, Question>);

#[derive(Clone, Copy, Debug)]
struct Question {
    at: Instant,
    /// It has confirmed a subscription that lasts until then.
    until: Option<DateTime>,
}

impl Asked {
    pub(super) fn nobody() -> Self {
        Self(LruCache::new(REMEMBERED))
    }

    /// Whether it may be asked now; from then on it was.
    pub(super) fn begin(&mut self, key: u64, now: Instant) -> bool {
        let of_late = |asked: &Question| now.saturating_duration_since(asked.at) < AGAIN_AFTER;
        if self.0.get(&key).is_some_and(of_late) {
            return false;
        }
        self.0.put(key, Question { at: now, until: None });
        true
    }

    /// It was not asked after all.
    pub(super) fn forget(&mut self, key: u64) {
        self.0.pop(&key);
    }

    /// It has said that it wants what is sent there until this moment.
    pub(super) fn confirmed(&mut self, key: u64, until: DateTime) {
        self.0.put(key, Question { at: Instant::now(), until: Some(until) });
    }

    /// Whether it has said so.
    pub(super) fn has_confirmed(&mut self, key: u64, now: DateTime) -> bool {
        self.0.get(&key).and_then(|asked| asked.until).is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b33_an_address_is_asked_once_in_ten_minutes_unless_it_was_not_asked_after_all() {
        let (mut asked, begin) = (Asked::nobody(), Instant::now());
        let times = |asked: &mut Asked, from: u64, to: u64| {
            (from..to).filter(|second| asked.begin(1, begin + Duration::from_secs(*second))).count()
        };
        assert_eq!(times(&mut asked, 0, 600), 1);
        assert_eq!(times(&mut asked, 600, 1_800), 2);
        assert!(asked.begin(2, begin), "that is another one");
        asked.forget(1);
        assert_eq!(times(&mut asked, 1_800, 1_900), 1);
    }

    #[test]
    fn who_has_confirmed_is_asked_again_only_when_the_lease_is_over() {
        let (mut asked, begin) = (Asked::nobody(), Instant::now());
        let now = DateTime::now();
        asked.begin(1, begin);
        assert!(!asked.has_confirmed(1, now));
        asked.confirmed(1, now);
        let before = DateTime::from_system_time(now.to_system_time() - Duration::from_secs(1));
        assert!(asked.has_confirmed(1, before) && !asked.has_confirmed(1, now));
        assert!(asked.begin(1, Instant::now() + AGAIN_AFTER));
    }

    #[test]
    fn b33_any_number_of_names_takes_bounded_memory() {
        let (mut asked, now) = (Asked::nobody(), Instant::now());
        assert_eq!((0..60_000).filter(|key| asked.begin(*key, now)).count(), 60_000);
        assert_eq!(asked.0.len(), REMEMBERED.get());
    }
}
