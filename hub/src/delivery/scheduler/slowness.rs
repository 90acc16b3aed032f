//! How long hosts take to answer, and which of them are slow beside the others of their worker.
//!
//! What a host costs the others is the time for which it holds permits. With a constant limit an attacker would stay just below it. So hosts are
//! compared with the quickest of their peers, which no number of slow ones can make slow. That matters only while others find no permit:
//! where all subscribers are far away, none is far above its peers, and where there are permits for all, none is in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::clock::millis;

/// A host whose answers take longer than this, or will, is a slow one whatever the others do.
pub(super) const SLOW: Duration = Duration::from_secs(3);
/// A host is far above its peers when it takes so many times as long as the quickest of them, if that is between `FLOOR` and `CEILING`.
const FAR_ABOVE: u32 = 8;
/// In microseconds: no host is far above its peers that takes no longer than this, which is more than the way to a distant host takes.
const FLOOR: u32 = 500_000;
/// In microseconds: a host that takes longer than this is far above its peers, whatever they take.
const CEILING: u32 = 2_000_000;
/// An answer that takes so long does not wait for a busy worker, but for its subscriber.
pub(super) const LONG: u32 = 128_000;
/// By what part of itself the quickest answer is forgotten with each slower one: it is that of the last few hundred or so.
const FORGET: u32 = 256;
/// A new answer counts for so small a part of what is known of a host.
const SMOOTH: u32 = 8;
/// For how long it is remembered that a quick host found no permit.
const SCARCE: Duration = Duration::from_secs(5);

/// What a host takes for an answer, smoothed, in microseconds; zero where none has come yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseTime {
    micros: u32,
    was_above: bool,
}

impl ResponseTime {
    /// Takes in an answer, while `bound` divides the slow from the quick.
    pub(super) fn answered(&mut self, took: Duration, bound: u32) {
        let took = micros(took);
        self.micros = match self.micros {
            0 => took,
            known => smoothed(known, took, SMOOTH).max(1),
        };
        self.was_above = self.is_above(bound);
    }

    /// Whether that is longer than an answer waits for a busy worker.
    pub(super) fn takes_long(self) -> bool {
        self.micros > LONG
    }

    /// Whether that is longer than an answer waits for a busy worker, or not known, since no answer has come yet.
    pub(super) fn takes_long_or_is_unknown(self) -> bool {
        self.takes_long() || self.micros == 0
    }

    /// Whether that is more than the bound; a host that was above it before has to come a little below it.
    pub(super) fn is_above(self, bound: u32) -> bool {
        self.micros > if self.was_above { bound - bound / 8 } else { bound }
    }
}

/// What is known of all hosts of one worker. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Peers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The quickest of the last answers, in microseconds; zero where none has come yet.
    quickest: AtomicU32,
    begun: Instant,
    /// Milliseconds after the beginning.
    scarce_until: AtomicU64,
}

impl Peers {
    pub(super) fn new(now: Instant) -> Self {
        let (quickest, scarce_until) = (AtomicU32::new(0), AtomicU64::new(0));
        Self(Arc::new(Shared { quickest, begun: now, scarce_until }))
    }

    /// Takes in an answer of any host.
    pub(super) fn answered(&self, took: Duration) {
        let (took, known) = (micros(took), self.0.quickest.load(Ordering::Relaxed));
        let quickest = if known == 0 { took } else { took.min(known + known / FORGET + 1) };
        self.0.quickest.store(quickest, Ordering::Relaxed);
    }

    /// What a host may take at most to be none that is far above its peers, in microseconds.
    pub(super) fn bound(&self) -> u32 {
        match self.0.quickest.load(Ordering::Relaxed) {
            0 => CEILING,
            quickest => quickest.saturating_mul(FAR_ABOVE).clamp(FLOOR, CEILING),
        }
    }

    /// A host that is not slow finds no permit.
    pub(super) fn note_scarcity(&self, now: Instant) {
        self.0.scarce_until.store(millis(self.0.begun, now + SCARCE), Ordering::Relaxed);
    }

    /// The bound, while hosts that are above it stand in the way of others.
    pub(super) fn bound_while_scarce(&self, now: Instant) -> Option<u32> {
        (self.0.scarce_until.load(Ordering::Relaxed) > millis(self.0.begun, now)).then(|| self.bound())
    }
}

/// What is known, after a new answer that counts for one part in `parts`.
pub(super) fn smoothed(known: u32, took: u32, parts: u32) -> u32 {
    (known - known / parts).saturating_add(took / parts)
}

/// In microseconds, and never none.
pub(super) fn micros(took: Duration) -> u32 {
    u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Whether a host that answers so in turn is far above peers that take so long, after many answers of each.
    fn is_far_above(answers: &[Duration], peers: Duration) -> bool {
        let (known, mut response_time) = (Peers::new(Instant::now()), ResponseTime::default());
        for answer in answers.iter().cycle().take(200) {
            known.answered(*answer);
            known.answered(peers);
            response_time.answered(*answer, known.bound());
        }
        response_time.is_above(known.bound())
    }

    #[test]
    fn a_host_is_measured_by_its_peers_and_not_by_a_constant_alone() {
        for (own, peers, expected) in [
            (2_900, 5, true),
            (600, 5, true),
            (300, 5, false),
            (300, 300, false),
            (1_900, 300, false),
            (1_900, 1_900, false),
            (2_900, 2_900, true),
        ] {
            let is_slow = is_far_above(&[own * MILLISECOND], peers * MILLISECOND);
            assert_eq!(is_slow, expected, "{own} ms beside {peers} ms");
        }
    }

    #[test]
    fn who_is_quick_and_slow_by_turns_is_measured_by_the_time_that_it_holds_permits() {
        let (quick, slow) = (MILLISECOND, 2_900 * MILLISECOND);
        assert!(is_far_above(&[quick, slow], quick));
        assert!(is_far_above(&[quick, quick, slow], quick));
        assert!(!is_far_above(&[quick; 40].map(|answer| answer * 3), quick));
    }

    #[test]
    fn of_any_number_of_slow_hosts_the_quick_ones_are_known_at_their_first_answer() {
        let peers = Peers::new(Instant::now());
        (0..10_000).for_each(|_| peers.answered(2_900 * MILLISECOND));
        assert_eq!(peers.bound(), CEILING);
        peers.answered(MILLISECOND);
        assert_eq!(peers.bound(), FLOOR);
    }

    #[test]
    fn who_was_slow_once_is_quick_again_a_little_below_the_bound() {
        let mut response_time = ResponseTime::default();
        response_time.answered(600 * MILLISECOND, FLOOR);
        assert!(response_time.is_above(FLOOR));
        (0..40).for_each(|_| response_time.answered(470 * MILLISECOND, FLOOR));
        assert!(response_time.is_above(FLOOR), "just below is not enough");
        (0..40).for_each(|_| response_time.answered(400 * MILLISECOND, FLOOR));
        assert!(!response_time.is_above(FLOOR));
        (0..40).for_each(|_| response_time.answered(470 * MILLISECOND, FLOOR));
        assert!(!response_time.is_above(FLOOR));
    }

    #[test]
    fn nobody_is_in_the_way_where_nobody_lacks_a_permit() {
        let now = Instant::now();
        let peers = Peers::new(now);
        assert_eq!(peers.bound_while_scarce(now), None);
        peers.note_scarcity(now);
        assert_eq!(peers.bound_while_scarce(now), Some(CEILING));
        assert_eq!(peers.bound_while_scarce(now + SCARCE), None);
    }
}
