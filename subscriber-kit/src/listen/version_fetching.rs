//! Fetches the versions that synchronisations were told of, beside the copy, which never waits for one (MEM-071).

use std::pin::Pin;

use super::local_copy::LocalCopy;
use crate::sync::VersionsReport;
use crate::timing::ended;

/// What fetches now.
type Fetching = Pin<Box<dyn Future<Output = Option<Box<VersionsReport>>> + Send>>;

/// The fetching of one copy's versions: at most once at a time.
#[derive(Default)]
pub(super) struct VersionFetching {
    running: Option<Fetching>,
    /// Whether there may be more than the running one knows.
    again: Option<LocalCopy>,
}

impl VersionFetching {
    /// A synchronisation ended: there may be versions to fetch.
    pub(super) fn begin(&mut self, copy: &LocalCopy) {
        if self.running.is_some() {
            self.again = Some(copy.clone());
        } else {
            let copy = copy.clone();
            self.running = Some(Box::pin(async move { copy.fetch_versions().await }));
        }
    }

    /// Waits until there is something to say; for ever if there is nothing. Safe to cancel.
    pub(super) async fn next(&mut self) -> Box<VersionsReport> {
        loop {
            let fetched = ended(&mut self.running).await;
            self.running = None;
            if let Some(copy) = self.again.take() {
                self.begin(&copy);
            }
            if let Some(report) = fetched.filter(|report| report.kept > 0 || !report.is_complete()) {
                return report;
            }
        }
    }
}
