//! A progress bar of a synchronisation; nothing where standard error is not a terminal.

use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar};
use resync_common::progress::Bar;
use resync_subscriber_kit::sync::Progress;
use tokio::task::JoinHandle;

const REFRESH: Duration = Duration::from_millis(100);

/// Shows the counters of a run until this is dropped.
pub(super) struct SyncProgress {
    task: JoinHandle<()>,
    _bar: Bar,
}

impl SyncProgress {
    /// `None` where nobody would see it.
    pub(super) fn of(progress: &Progress) -> Option<Self> {
        let bar = Bar::new();
        if bar.is_hidden() {
            return None;
        }
        bar.draw("{bar:30} {pos}/{len} resources, {msg}, {elapsed}");
        let (shown, progress) = (ProgressBar::clone(&bar), progress.clone());
        let task = tokio::spawn(async move {
            loop {
                shown.set_length(progress.planned());
                shown.set_position(progress.done());
                shown.set_message(HumanBytes(progress.bytes()).to_string());
                tokio::time::sleep(REFRESH).await;
            }
        });
        Some(Self { task, _bar: bar })
    }
}

impl Drop for SyncProgress {
    fn drop(&mut self) {
        self.task.abort();
    }
}
