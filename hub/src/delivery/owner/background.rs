//! What goes on for the shards although nobody waits for it: it ends by itself, or soon after delivery stops.

use std::future::pending;
use std::mem;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use resync_common::locks::lock;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The tasks, and what ends their pauses.
#[derive(Debug)]
pub(super) struct Background {
    tasks: Mutex<JoinSet<()>>,
    stop: watch::Receiver<Option<Instant>>,
}

impl Background {
    /// `stop` says since when delivery stops.
    pub(super) fn new(stop: watch::Receiver<Option<Instant>>) -> Self {
        Self { tasks: Mutex::default(), stop }
    }

    /// Does this beside everything else.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Where the runtime has ended, this process ends too, and with it whatever it owned.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(work, &runtime);
    }

    /// Does this beside everything else, and ends it when delivery stops.
    pub(super) fn spawn_until_stopped(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.spawn(async move {
            tokio::select! {
                () = work => {}
                () = stopped(stop) => {}
            }
        });
    }

    /// Waits for so long. Returns whether that was not ended by a stop.
    pub(super) async fn pause(&self, pause: Duration) -> bool {
        self.pause_until(pending(), pause).await
    }

    /// Waits for this, but no longer than so long. Returns whether that was not ended by a stop.
    pub(super) async fn pause_until(&self, event: impl Future<Output = ()>, longest: Duration) -> bool {
        tokio::select! {
            () = event => true,
            () = sleep(longest) => true,
            () = self.stopped() => false,
        }
    }

    /// Returns when delivery stops.
    pub(super) async fn stopped(&self) {
        stopped(self.stop.clone()).await;
    }

    /// Waits until nothing goes on any more. Delivery has to be stopping.
    pub(super) async fn finish(&self) {
        loop {
            let mut tasks = mem::take(&mut *self.tasks());
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        // What it guards is complete between any two statements.
        lock(&self.tasks)
    }
}

/// Returns when delivery stops.
async fn stopped(mut stop: watch::Receiver<Option<Instant>>) {
    // Also when whoever started delivery is gone without a word.
    let _ = stop.wait_for(Option::is_some).await;
}
