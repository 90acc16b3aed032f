//! Pauses between retries, and waiting for what may never be due.

use std::pin::Pin;
use std::time::Duration;

use resync_common::backoff::Backoff;
use tokio::time::Instant;

/// The longest pause between retries.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// The pause after the first failure.
const FIRST: Duration = Duration::from_secs(2);

/// The pauses between retries, up to about `longest`.
pub(crate) const fn pauses(longest: Duration) -> Backoff {
    Backoff::new(FIRST, longest)
}

pub(crate) fn sooner(due: Option<Instant>, other: Instant) -> Instant {
    due.map_or(other, |due| due.min(other))
}

/// Waits until it is due; for ever if it is not.
pub(crate) async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Waits for the work; for ever if there is none.
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
}
