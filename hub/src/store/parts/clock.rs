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

    fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
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
}
