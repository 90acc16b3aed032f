//! The time limit of an answer, without the time before the request was sent.

use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use super::FetchError;

/// When an answer must be complete.
#[derive(Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Waits for something that the server does not cause, and extends the deadline by that time.
    pub(super) async fn without<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let result = wait.await;
        self.0 += begun.elapsed();
        result
    }

    /// Waits for the server.
    ///
    /// # Errors
    /// [`FetchError::Timeout`] at the deadline.
    pub(crate) async fn meet<T>(&self, url: &Url, work: impl Future<Output = T>) -> Result<T, FetchError> {
        let done = tokio::time::timeout_at(self.0, work).await;
        done.map_err(|_elapsed| FetchError::Timeout { url: url.clone() })
    }
}
