//! The word of this hub that it is up: others rely on its end, so this hub does too, and sooner.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::store::{Lapse, WallClock};

/// So long after its last word others take a hub for dead.
pub(super) const LASTS: Duration = Duration::from_secs(5);
/// So long after that was sent a hub begins nothing more for its shards. It may be paused between that and what it begins.
const HOLDS: Duration = Duration::from_secs(4);
/// So long a hub has renewed its word without a break before it takes others for dead.
const STEADY: Duration = LASTS;
/// By so many milliseconds the database's clock moves at most, against this computer's, unless one of them was set: then all words may be over,
/// although their hubs are up.
const KEPT: u64 = 1_000;

/// When this hub gave its word last, and since when without a break, in milliseconds since the computer was started; 0: never. The time in which
/// the computer was suspended counts.
#[derive(Debug, Default)]
pub(super) struct Word {
    given: AtomicU64,
    since: AtomicU64,
    /// When it was given again after it had lapsed; 0: nothing can be lost by that any more.
    lapsed: AtomicU64,
    /// The store's.
    clock: WallClock,
    /// By how many milliseconds that was ahead when it was given last.
    ahead: AtomicI64,
}

impl Word {
    /// One that was never given, and whose end is by this clock.
    pub(super) fn by(clock: WallClock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// Before it is sent: returns for [`Word::give`] when that was.
    pub(super) fn begin() -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::try_from(now).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The database has it.
    pub(super) fn give(&self, began: u64) {
        let before = self.given.load(Ordering::Relaxed);
        // By the time that it is now: between the moment when it was begun and the one when it was sent this hub may have been paused.
        if before > 0 && !is_within(HOLDS, before) {
            self.lapsed.store(began, Ordering::Relaxed);
            self.since.store(began, Ordering::Relaxed);
        }
        let ahead = self.clock.is_ahead_by();
        if self.ahead.swap(ahead, Ordering::Relaxed).abs_diff(ahead) > KEPT {
            self.since.store(began, Ordering::Relaxed);
        }
        // Who reads this reads the lapse, too.
        self.given.store(began, Ordering::Release);
        if self.since.load(Ordering::Relaxed) == 0 {
            self.since.store(began, Ordering::Relaxed);
        }
    }

    /// The database did not take it, or is another one: the words of other hubs may be over for the same reason.
    pub(super) fn interrupt(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Whether others surely take this hub for alive for a while, and have done so all the time, but for lapses by which nothing is lost any more.
    pub(super) fn holds(&self) -> bool {
        let given = self.given.load(Ordering::Acquire);
        given > 0 && is_within(HOLDS, given) && self.lapse().is_none()
    }

    /// The lapse by which something may still be lost. It was given again since.
    pub(super) fn lapse(&self) -> Option<Lapse> {
        let lapsed = self.lapsed.load(Ordering::Relaxed);
        (lapsed > 0).then_some(Lapse(lapsed))
    }

    /// Nothing can be lost by this lapse any more.
    pub(super) fn settle(&self, Lapse(lapsed): Lapse) {
        // It may have lapsed once more.
        let _ = self.lapsed.compare_exchange(lapsed, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether other hubs had the time to renew theirs.
    pub(super) fn is_steady(&self) -> bool {
        let given = self.given.load(Ordering::Acquire);
        let since = self.since.load(Ordering::Relaxed);
        let moved = self.ahead.load(Ordering::Relaxed).abs_diff(self.clock.is_ahead_by());
        moved <= KEPT && since > 0 && !is_within(STEADY, since) && is_within(HOLDS, given)
    }
}

/// Whether that was no longer ago.
fn is_within(time: Duration, moment: u64) -> bool {
    u128::from(Word::begin().saturating_sub(moment)) < time.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(seconds: u64) -> u64 {
        Word::begin() - seconds * 1_000
    }

    #[test]
    fn a_word_holds_for_a_while_and_is_steady_once_it_was_renewed_for_a_while() {
        let word = Word::default();
        assert!(!word.holds() && !word.is_steady(), "it was never given");
        word.give(before(1));
        assert!(word.holds() && !word.is_steady(), "it was given once");
        word.since.store(before(7), Ordering::Relaxed);
        assert!(word.holds() && word.is_steady());
        word.interrupt();
        assert!(word.holds() && !word.is_steady(), "others may have been interrupted, too");
        word.give(before(1));
        assert!(!word.is_steady());
        word.since.store(before(7), Ordering::Relaxed);
        word.give(before(5));
        assert!(
            !word.holds() && !word.is_steady(),
            "whatever this hub waits for may have befallen others, too"
        );
    }

    #[test]
    fn who_sees_the_clock_of_the_database_set_gives_others_the_time_to_renew_their_words() {
        let clock = WallClock::default();
        let word = Word::by(clock.clone());
        word.give(before(1));
        word.since.store(before(7), Ordering::Relaxed);
        clock.put_ahead(Duration::from_millis(900));
        assert!(word.is_steady());
        word.give(before(1));
        assert!(word.is_steady(), "clocks run differently");
        clock.put_ahead(Duration::from_secs(5));
        assert!(word.holds() && !word.is_steady());
        word.give(before(0));
        assert!(word.holds() && !word.is_steady(), "they may not have renewed them yet");
        word.since.store(before(7), Ordering::Relaxed);
        assert!(word.is_steady());
    }

    #[test]
    fn a_word_that_had_lapsed_holds_only_when_what_was_lost_by_the_last_lapse_is_known() {
        let word = Word::default();
        word.give(before(3));
        word.give(before(2));
        assert!(word.holds() && word.lapse().is_none(), "it was renewed in time");
        word.give(before(6));
        assert!(word.lapse().is_none(), "it has lapsed, and is not given again");
        word.give(before(5));
        let first = word.lapse().unwrap();
        word.give(before(1));
        assert!(!word.holds());
        word.settle(first);
        assert!(!word.holds(), "it had lapsed once more");
        word.settle(word.lapse().unwrap());
        assert!(word.holds() && !word.is_steady(), "others had no time yet to renew theirs");
        word.give(before(0));
        assert!(word.holds());
    }
}
