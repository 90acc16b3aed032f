//! Repeats operations of the store that failed: a verification must not be lost because the disk is full for a moment.

use std::time::Duration;

use tokio::time::sleep;
use tracing::error;

use crate::store::StoreError;

/// The pause before a failed operation is repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Repeats an operation until it succeeds. `None`: it met a damaged record. Then what needs it stays in the store for the shard's next
/// owner.
pub(super) async fn until_stored<T, F: Future<Output = Result<T, StoreError>>>(
    mut operation: impl FnMut() -> F,
) -> Option<T> {
    loop {
        let error = match operation().await {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        if !may_pass(&error).await {
            return None;
        }
    }
}

/// Logs the error, and pauses before the next attempt; false: none will succeed, since a damaged record stays damaged.
pub(super) async fn may_pass(error: &StoreError) -> bool {
    if matches!(error, StoreError::Damaged { .. }) {
        error!(%error, "a subscription request or a denial waits until the next start: a record cannot be read");
        return false;
    }
    error!(%error, "a subscription request or a denial waits for the store; trying again in 1 s");
    sleep(RETRY_AFTER).await;
    true
}
