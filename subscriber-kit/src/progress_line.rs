//! A bar on the terminal that says how far a synchronisation has come; nothing where standard error is no terminal.

use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar};
use resync_common::progress::Bar;
use resync_subscriber_kit::sync::Progress;
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(100);

/// Follows what is counted, until this is dropped.
pub(crate) struct ProgressLine {
    task: JoinHandle<()>,
    _bar: Bar,
}

impl ProgressLine {
    /// From now on. Nothing where nobody would see it.
    pub(crate) fn of(progress: &Progress) -> Option<Self> {
        let progress_line = Bar::new();
        if progress_line.is_hidden() {
            return None;
        }
        progress_line.draw("{progress_line:30} {pos}/{len} resources, {msg}, {elapsed}");
        let (shown, progress) = (ProgressBar::clone(&progress_line), progress.clone());
        let task = tokio::spawn(async move {
            loop {
                shown.set_length(progress.planned());
                shown.set_position(progress.done());
                shown.set_message(HumanBytes(progress.bytes()).to_string());
                tokio::time::sleep(EVERY).await;
            }
        });
        Some(Self { task, _bar: progress_line })
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.task.abort();
    }
}
