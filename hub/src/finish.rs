//! Work that is done to its end, whoever hangs up meanwhile.

use std::future::pending;
use std::panic::resume_unwind;

use tokio::task::JoinError;

/// Does this in a task of its own, so that it is finished even if the returned future is dropped, as happens to whoever answers a
/// client that hangs up. A panic goes on here.
pub(crate) async fn to_its_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime ends, and this with it.
        Err(Err(_)) => pending().await,
    }
}
