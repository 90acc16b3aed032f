//! Growing pauses between tries.

use std::time::Duration;

use crate::subscriber::jittered;

/// The pause after the first failure; doubled after each further one.
const FIRST: Duration = Duration::from_secs(2);

/// How long to wait after failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    failures: u32,
}

impl Pause {
    /// The pause after one more failure, at most about `longest`.
    pub(super) fn after_failure(&mut self, longest: Duration) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        jittered(pause)
    }

    pub(super) fn is_over(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew_after_a_success() {
        let longest = Duration::from_secs(60);
        let mut pause = Pause::default();
        let around = |pause: Duration, seconds: u64| {
            let (low, high) = (Duration::from_millis(seconds * 790), Duration::from_millis(seconds * 1210));
            assert!((low..=high).contains(&pause), "{pause:?} is not about {seconds} s");
        };
        around(pause.after_failure(longest), 2);
        around(pause.after_failure(longest), 4);
        for _ in 0..100 {
            pause.after_failure(longest);
        }
        around(pause.after_failure(longest), 60);
        pause.is_over();
        around(pause.after_failure(longest), 2);
    }
}
