//! How long deliveries took: bodies say when they were due, and delays are counted in narrow classes.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

/// Classes within a factor of two: a delay is known to 1.1 %.
const FINE: u32 = 64;
const CLASSES: usize = 40 * FINE as usize;

/// The beginning of time for this process.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A moment as bodies name it.
pub(super) fn since_the_beginning(moment: Instant) -> Duration {
    moment.saturating_duration_since(*BEGAN)
}

/// Waits until a post is due, and says when its delay begins: at that moment, even where those before it have held it up. Only
/// the timer of this tool, which is late by up to a millisecond, does not count.
pub(super) async fn until_due(due: Instant) -> Instant {
    if Instant::now() >= due {
        return due;
    }
    sleep_until(due.into()).await;
    Instant::now()
}

/// The delays of many deliveries.
pub(super) struct Delays(Box<[AtomicU64]>);

impl Default for Delays {
    fn default() -> Self {
        Self((0..CLASSES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Delays {
    /// What was due at this moment has arrived.
    pub(super) fn note(&self, due: Duration) {
        let delay = BEGAN.elapsed().saturating_sub(due);
        self.0[class(delay)].fetch_add(1, Ordering::Relaxed);
    }

    /// The delay in milliseconds that this share of deliveries did not exceed, and forgets everything.
    pub(super) fn take(&self, shares: [f64; 2]) -> [f64; 2] {
        let counts: Vec<u64> = self.0.iter().map(|count| count.swap(0, Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        shares.map(|share| {
            // Counts of a measurement are far below 2^52.
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let mut left = (total as f64 * share).ceil() as u64;
            let reached = counts.iter().position(|count| {
                left = left.saturating_sub(*count);
                left == 0
            });
            milliseconds(reached.unwrap_or(0))
        })
    }
}

impl fmt::Debug for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delays").finish_non_exhaustive()
    }
}

fn class(delay: Duration) -> usize {
    let class = delay.as_secs_f64().max(1e-6) * 1e6;
    // Logarithms of microseconds are small and not negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let class = (class.log2() * f64::from(FINE)) as usize;
    class.min(CLASSES - 1)
}

/// The upper end of a class.
fn milliseconds(class: usize) -> f64 {
    let class = u32::try_from(class + 1).unwrap_or(u32::MAX);
    (f64::from(class) / f64::from(FINE)).exp2() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_tells_its_delay_to_about_a_hundredth() {
        for micros in [1, 10, 999, 12_345, 7_000_000] {
            let delay = Duration::from_micros(micros);
            let told = milliseconds(class(delay));
            let ratio = told / (delay.as_secs_f64() * 1e3);
            assert!((1.0..1.03).contains(&ratio), "{micros} µs: {ratio}");
        }
    }

    #[test]
    fn shares_are_of_what_was_noted_since_the_last_time() {
        let delays = Delays::default();
        for _ in 0..99 {
            delays.0[class(Duration::from_millis(1))].fetch_add(1, Ordering::Relaxed);
        }
        delays.0[class(Duration::from_secs(1))].fetch_add(1, Ordering::Relaxed);
        let [half, all] = delays.take([0.5, 1.0]);
        assert!((1.0..1.1).contains(&half) && (1_000.0..1_100.0).contains(&all), "{half} {all}");
        delays.note(since_the_beginning(Instant::now()));
        let [_, all] = delays.take([0.5, 1.0]);
        assert!(all < 1_000.0, "{all}");
    }

    #[tokio::test]
    async fn what_was_held_up_is_late_from_the_moment_at_which_it_was_due() {
        LazyLock::force(&BEGAN);
        let (delays, began) = (Delays::default(), Instant::now());
        let soon = began + Duration::from_millis(30);
        assert!(until_due(soon).await >= soon);
        delays.note(since_the_beginning(until_due(began).await));
        let [_, all] = delays.take([0.5, 1.0]);
        assert!(all >= 30.0, "{all}");
    }
}
