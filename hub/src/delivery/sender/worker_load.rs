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
    ThreadTime::read().since(&before, began.elapsed())
}

/// What this thread did since it began.
struct ThreadTime {
    /// On a processor.
    worked: Duration,
    /// Ready to work, while others had the processors; `None` where the system does not say.
    kept_waiting: Option<Duration>,
}

impl ThreadTime {
    fn read() -> Self {
        let worked = clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default();
        Self { worked, kept_waiting: kept_waiting() }
    }

    /// The load since a reading that was `took` ago. While others had the processors the worker was neither idle nor late: that is the
    /// machine's load, or a limit of its operator's, and fewer requests would not lessen it.
    fn since(&self, before: &Self, took: Duration) -> Load {
        let kept_waiting = self.kept_waiting.zip(before.kept_waiting).unwrap_or_default();
        let own = took.saturating_sub(kept_waiting.0.saturating_sub(kept_waiting.1));
        Load::of(self.worked.saturating_sub(before.worked), own, own.saturating_sub(MEASURE_FOR))
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

    #[test]
    fn a_worker_that_others_keep_from_the_processors_is_neither_idle_nor_late() {
        let at = |worked, kept_waiting: Option<u64>| ThreadTime {
            worked: Duration::from_millis(worked),
            kept_waiting: kept_waiting.map(Duration::from_millis),
        };
        let took = Duration::from_millis(100);
        let load = at(25, Some(87)).since(&at(10, Some(7)), took);
        assert_eq!((load.busy, load.late), (0.75, Duration::from_millis(10)));
        let unknown = at(25, None).since(&at(10, Some(7)), took);
        assert_eq!((unknown.busy, unknown.late), (0.15, Duration::from_millis(90)));
    }
}
