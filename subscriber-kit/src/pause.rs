//! Growing pauses between tries, and waiting for what may not be due.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::subscriber::jittered;

/// The longest pause before something that failed is tried again.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// The pause after the first failure; doubled after each further one.
const FIRST: Duration = Duration::from_secs(2);

/// How long to wait after failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    failures: u32,
}

impl Pause {
    /// The pause after one more failure, at most about `longest`.
    pub(crate) fn after_failure(&mut self, longest: Duration) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        jittered(pause)
    }

    pub(crate) fn is_over(&mut self) {
        self.failures = 0;
    }
}

pub(crate) fn sooner(due: Option<Instant>, other: Instant) -> Instant {
    due.map_or(other, |due| due.min(other))
}

/// When it is due, if it ever is.
pub(crate) async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// When the work ends, if there is any.
pub(crate) async fn ended<F: Future + ?Sized>(work: &mut Option<Pin<Box<F>>>) -> F::Output {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cn016_a_gap_does_not_wait_for_a_try_that_is_far_away_nor_hold_up_one_that_is_near() {
        let now = Instant::now();
        let [soon, later] = [2, 3600].map(|seconds| now + Duration::from_secs(seconds));
        assert_eq!(
            [sooner(None, soon), sooner(Some(later), soon), sooner(Some(now), soon)],
            [soon, soon, now]
        );
    }

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
