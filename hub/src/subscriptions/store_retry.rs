//! Repeats operations of the store that failed: a verification must not be lost because the disk is full for a moment.

use std::time::Duration;

use tokio::time::sleep;
use tracing::error;

use crate::store::StoreError;

/// The pause before a failed operation is repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Repeats an operation until it succeeds.
pub(super) async fn until_stored<T, F: Future<Output = Result<T, StoreError>>>(
    mut operation: impl FnMut() -> F,
) -> T {
    loop {
        match operation().await {
            Ok(done) => return done,
            Err(error) => pause(&error).await,
        }
    }
}

/// Repeats a read until it succeeds. A damaged record is not read again.
///
/// # Errors
/// [`StoreError::Damaged`]
pub(super) async fn until_readable<T, F: Future<Output = Result<T, StoreError>>>(
    mut operation: impl FnMut() -> F,
) -> Result<T, StoreError> {
    loop {
        match operation().await {
            Err(error) if !matches!(error, StoreError::Damaged { .. }) => pause(&error).await,
            read => return read,
        }
    }
}

/// Logs the error, and pauses before the next attempt.
pub(super) async fn pause(error: &StoreError) {
    error!(%error, "a subscription request waits for the store; trying again in 1 s");
    sleep(RETRY_AFTER).await;
}
