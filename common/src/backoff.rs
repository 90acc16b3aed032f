//! Pauses between tries that fail: each is twice as long as the one before, up to a longest.

use std::time::Duration;

/// Pauses differ by up to this share either way, so that what failed together does not return together.
pub const JITTER: f64 = 0.2;

/// The pauses between tries in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    is_exact: bool,
}

impl Backoff {
    /// Pauses from about `first` to about `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0, is_exact: false }
    }

    /// Without [jitter](jittered).
    #[must_use]
    pub const fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// The pause after one more failure.
    pub fn after_failure(&mut self) -> Duration {
        let pause = doubled(self.first, self.failures, self.longest);
        self.failures = self.failures.saturating_add(1);
        if self.is_exact { pause } else { jittered(pause) }
    }

    /// After a success the pauses begin anew.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A pause that was doubled so many times, at most `longest`.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(longest)
}

/// A random pause near this one, see [`JITTER`].
pub fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(2 * SECOND, 60 * SECOND).exact();
        let pauses: Vec<_> = (0..7).map(|_| backoff.after_failure().as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        for _ in 0..100 {
            backoff.after_failure();
        }
        assert_eq!(backoff.after_failure(), 60 * SECOND);
        backoff.reset();
        assert_eq!(backoff.after_failure(), 2 * SECOND);
    }

    #[test]
    fn pauses_differ_by_a_fifth_at_most() {
        let mut backoff = Backoff::new(10 * SECOND, 10 * SECOND);
        let pauses: Vec<_> = (0..1_000).map(|_| backoff.after_failure()).collect();
        assert!(pauses.iter().all(|pause| (8 * SECOND..=12 * SECOND).contains(pause)), "{pauses:?}");
        assert!(
            pauses.iter().any(|pause| *pause < 9 * SECOND) && pauses.iter().any(|pause| *pause > 11 * SECOND)
        );
    }
}
