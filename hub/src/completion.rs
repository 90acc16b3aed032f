//! Work that is completed also if the client hangs up meanwhile.

use std::future::pending;
use std::panic::resume_unwind;

use tokio::task::JoinError;

/// Runs this in a task of its own, so that it completes even if the returned future is dropped, which happens when a client hangs
/// up. A panic is passed on.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    match tokio::spawn(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime shuts down, and this task with it.
        Err(Err(_)) => pending().await,
    }
}
