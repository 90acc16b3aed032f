//! For how long something stood still that goes on all the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The longest time in which a count did not grow, from now until it is over.
pub(super) async fn longest_pause(count: impl Fn() -> u64, is_over: &AtomicBool) -> Duration {
    let (mut seen, mut since, mut longest) = (count(), Instant::now(), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        sleep(LOOK_EVERY).await;
        longest = longest.max(since.elapsed());
        let now = count();
        if now > seen {
            (seen, since) = (now, Instant::now());
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_lasts_from_one_growth_to_the_next_or_to_the_end() {
        let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let pause = Duration::from_millis(60);
        let work = async {
            for _ in 0..3 {
                sleep(pause / 6).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
            sleep(pause).await;
            is_over.store(true, Ordering::Relaxed);
        };
        let longest = longest_pause(|| count.load(Ordering::Relaxed), &is_over);
        let ((), longest) = tokio::join!(work, longest);
        assert!(longest.abs_diff(pause) <= 2 * LOOK_EVERY, "{longest:?}");
    }
}
