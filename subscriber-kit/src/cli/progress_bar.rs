//! The progress of a synchronisation or audit; nothing where standard error is not a terminal.

use std::sync::Arc;
use std::time::Duration;

use resync_common::progress::{Bar, Step};
use resync_common::words::Size;
use resync_subscriber_kit::sync::Progress;
use tokio::task::JoinHandle;

const REFRESH: Duration = Duration::from_millis(100);

/// Shows the counters of a run until this is dropped.
pub(super) struct SyncProgress {
    task: JoinHandle<()>,
    bar: Arc<Bar>,
}

impl SyncProgress {
    /// `None` where nobody would see it.
    pub(super) fn of(progress: &Progress) -> Option<Self> {
        let bar = Arc::new(Bar::new());
        if bar.is_hidden() {
            return None;
        }
        let (shown, progress) = (Arc::clone(&bar), progress.clone());
        let task = tokio::spawn(async move {
            loop {
                let (done, planned) = (progress.done(), progress.planned());
                let what = if planned == 0 { "reading the lists" } else { "copying resources" };
                shown.show(Step { what, done, all: Some(planned) }, Size(progress.bytes()));
                tokio::time::sleep(REFRESH).await;
            }
        });
        Some(Self { task, bar })
    }
}

impl Drop for SyncProgress {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.clear();
    }
}
