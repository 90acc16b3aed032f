//! How long one pass through a worker's queue takes, in processor time: what the scheduler needs to know of the worker's load.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use crate::delivery::scheduler::LONG_PASS;

/// How long after it was asked for a pass is measured.
const MEASURE_AFTER: Duration = Duration::from_millis(10);

/// Measures passes, one at a time.
#[derive(Debug, Default)]
pub(super) struct LoopTimer(Option<JoinHandle<Duration>>);

impl LoopTimer {
    /// Begins to measure, unless it does already.
    pub(super) fn start(&mut self) {
        self.0.get_or_insert_with(|| tokio::spawn(pass()));
    }

    /// The measurement that was begun; never returns where there is none.
    pub(super) async fn measured(&mut self) -> Duration {
        // A measurement that dies says nothing, so it changes nothing much.
        let pass = match &mut self.0 {
            Some(measuring) => measuring.await.unwrap_or(LONG_PASS),
            None => std::future::pending().await,
        };
        self.0 = None;
        pass
    }
}

/// The processor time of one pass through all that is ready on this thread, some time from now.
async fn pass() -> Duration {
    sleep(MEASURE_AFTER).await;
    let began = thread_time();
    // Comes back when everything that is ready was polled.
    yield_now().await;
    thread_time().saturating_sub(began)
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pass_lasts_as_long_as_what_is_ready_works() {
        let quiet = pass().await;
        let work = tokio::spawn(async {
            loop {
                let began = thread_time();
                while thread_time().saturating_sub(began) < 3 * LONG_PASS {}
                yield_now().await;
            }
        });
        let busy = pass().await;
        work.abort();
        assert!(quiet < LONG_PASS && busy > LONG_PASS, "{quiet:?}, {busy:?}");
    }
}
