//! The clock of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;

/// The clock of every moment that is stored, or compared with one that is. Hubs that share a store share this clock, however theirs may
/// be set: what one writes down another reads.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The clock, for whoever needs nothing else of the store.
    fn clock(&self) -> &WallClock;

    /// The present moment. Asks nothing of the disk or of a server. It may jump, so it measures no durations.
    fn now(&self) -> DateTime {
        self.clock().now()
    }
}

/// A store's clock: that of the computer, and by how much the store's is ahead of it. Clones share that. It does not keep the store open.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    /// In milliseconds. An embedded store has no other clock than the computer's.
    ahead: Arc<AtomicI64>,
}

impl WallClock {
    /// The present moment, truncated to milliseconds.
    pub fn now(&self) -> DateTime {
        let now = DateTime::now();
        DateTime::from_unix_millis(now.unix_millis().saturating_add(self.ahead())).unwrap_or(now)
    }

    /// The same for the standard library, as exactly as the computer's clock has it.
    pub fn system_time(&self) -> SystemTime {
        let (now, ahead) = (SystemTime::now(), self.ahead());
        let by = Duration::from_millis(ahead.unsigned_abs());
        if ahead < 0 { now.checked_sub(by) } else { now.checked_add(by) }.unwrap_or(now)
    }

    /// Follows another clock that showed `theirs` at some moment between these two of the computer's. Where both may agree as they are,
    /// nothing changes: what takes long to be answered moves no clock.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn follow(&self, before: SystemTime, theirs: SystemTime, after: SystemTime) {
        let (least, most) = (millis_after(theirs, after), millis_after(theirs, before));
        self.ahead.store(self.ahead().min(most).max(least), Ordering::Relaxed);
    }

    /// By how many milliseconds it is ahead of the computer's.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn is_ahead_by(&self) -> i64 {
        self.ahead()
    }

    fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }
}

/// How many milliseconds one moment is after another; fewer than none if it is before it.
#[cfg(feature = "postgres")]
fn millis_after(one: SystemTime, other: SystemTime) -> i64 {
    let millis = |by: Duration| i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    match one.duration_since(other) {
        Ok(after) => millis(after),
        Err(before) => -millis(before.duration()),
    }
}

#[cfg(test)]
impl WallClock {
    /// From now on it is ahead of the computer's by this.
    pub(crate) fn put_ahead(&self, by: Duration) {
        self.ahead.store(by.as_millis().try_into().unwrap(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_of_the_computers_by_what_it_says_and_so_are_its_clones() {
        let (clock, hour) = (WallClock::default(), Duration::from_secs(3_600));
        let same = clock.clone();
        let before = DateTime::now();
        assert!(before <= same.now() && same.now() <= DateTime::now());
        clock.put_ahead(hour);
        let in_an_hour = DateTime::from_system_time(before.to_system_time() + hour);
        assert!(same.now() >= in_an_hour);
        assert!(same.system_time() >= in_an_hour.to_system_time());
        clock.ahead.store(-1_000, Ordering::Relaxed);
        assert!(same.now() < DateTime::now() && same.system_time() < SystemTime::now());
        clock.ahead.store(i64::MAX, Ordering::Relaxed);
        assert!(same.now() >= before, "what cannot be written down is no moment");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_clock_follows_another_no_further_than_is_certain() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let clock = WallClock::default();
        for (before, theirs, after, ahead) in [
            (100, 101, 102, 0),
            (100, 200, 101, 99_000),
            (110, 210, 111, 99_000),
            (120, 220, 120, 100_000),
            (130, 130, 190, 0),
            (200, 190, 201, -10_000),
        ] {
            clock.follow(at(before), at(theirs), at(after));
            assert_eq!(clock.is_ahead_by(), ahead, "{before}");
        }
    }
}
