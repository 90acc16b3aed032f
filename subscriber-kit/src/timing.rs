//! Pauses between retries, and waiting for what may never be due.

use std::pin::Pin;
use std::time::Duration;

use resync_common::backoff::Backoff;
use resync_core::datetime::DateTime;
use tokio::time::Instant;

/// The longest pause between retries.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// The pause after the first failure.
const FIRST: Duration = Duration::from_secs(2);

/// The first and the longest pause of what waits from run to run, in milliseconds.
const FIRST_PAUSE: i64 = 60_000;
const LONGEST_PAUSE: i64 = 24 * 3_600_000;

/// The pauses between retries, up to about `longest`.
pub(crate) const fn pauses(longest: Duration) -> Backoff {
    Backoff::new(FIRST, longest)
}

/// When what waits from run to run is tried again, in Unix milliseconds: after a minute, doubled so often, and at most after a day.
pub(crate) fn paused_until(now: DateTime, doublings: u32) -> i64 {
    let factor = 1_i64.checked_shl(doublings).filter(|factor| *factor > 0);
    let pause = factor.map_or(LONGEST_PAUSE, |factor| FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE));
    now.unix_millis().saturating_add(pause)
}

/// What is left of such a pause. A clock that was set back does not prolong it.
pub(crate) fn left_of_pause(until_unix_millis: Option<i64>, now: DateTime) -> Duration {
    let left = until_unix_millis.map_or(0, |until| until.saturating_sub(now.unix_millis()));
    let left = if left > LONGEST_PAUSE { 0 } else { left };
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
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
