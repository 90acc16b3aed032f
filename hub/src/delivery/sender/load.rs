//! How busy a worker is: what the scheduler needs to know of its load.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::delivery::scheduler::Load;

/// For how long the load is measured.
const MEASURE_FOR: Duration = Duration::from_millis(10);

/// Measures the load of the thread that it is used on, one measurement at a time.
#[derive(Debug, Default)]
pub(super) struct LoadMeter(Option<JoinHandle<Load>>);

impl LoadMeter {
    /// Begins to measure, unless it does already.
    pub(super) fn start(&mut self) {
        self.0.get_or_insert_with(|| tokio::spawn(measure()));
    }

    /// The measurement that was begun; never returns where there is none.
    pub(super) async fn measured(&mut self) -> Load {
        // A measurement that dies says nothing, so it changes nothing much.
        let load = match &mut self.0 {
            Some(measuring) => measuring.await.unwrap_or(Load::FULL),
            None => std::future::pending().await,
        };
        self.0 = None;
        load
    }
}

async fn measure() -> Load {
    let (began, before) = (Instant::now(), ThreadTime::read());
    sleep(MEASURE_FOR).await;
    let (took, after) = (began.elapsed(), ThreadTime::read());
    let worked = after.worked.saturating_sub(before.worked);
    let kept_waiting = after.kept_waiting.saturating_sub(before.kept_waiting);
    Load::of(worked, took.saturating_sub(kept_waiting), took.saturating_sub(MEASURE_FOR))
}

/// What this thread did since it began.
struct ThreadTime {
    /// On a processor.
    worked: Duration,
    /// Ready to work, while others had the processors; zero where the system does not say.
    kept_waiting: Duration,
}

impl ThreadTime {
    fn read() -> Self {
        let worked = clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default();
        Self { worked, kept_waiting: kept_waiting().unwrap_or_default() }
    }
}

/// Linux says so in the second number of this file.
fn kept_waiting() -> Option<Duration> {
    let mut buffer = [0; 64];
    let read = File::open("/proc/thread-self/schedstat").ok()?.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(buffer.get(..read)?).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn the_load_is_full_while_there_is_always_something_to_do_and_small_where_nothing_is() {
        let idle = measure().await;
        let work = tokio::spawn(async {
            loop {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(1) {}
                yield_now().await;
            }
        });
        let busy = measure().await;
        work.abort();
        assert!(idle.busy < 0.5, "{idle:?}");
        assert!(busy.busy > 0.9, "{busy:?}");
    }
}
