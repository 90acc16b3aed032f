//! How long an answer may take, without the time for which it was not asked for yet.

use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use super::FetchError;

/// When an answer must be there.
#[derive(Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Waits for something that is not the server's part.
    pub(super) async fn without<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let waited_for = wait.await;
        self.0 += begun.elapsed();
        waited_for
    }

    /// What the server does until then.
    ///
    /// # Errors
    /// [`FetchError::Timeout`] when it is over before that.
    pub(crate) async fn meet<T>(&self, url: &Url, work: impl Future<Output = T>) -> Result<T, FetchError> {
        let done = tokio::time::timeout_at(self.0, work).await;
        done.map_err(|_elapsed| FetchError::Timeout { url: url.clone() })
    }
}
