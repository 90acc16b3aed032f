//! Work that waits for locks or the disk, or keeps the processor busy, outside of the runtime.

use tokio::task::spawn_blocking;

/// Runs such work on a thread of its own, so that the runtime still handles signals. A panic continues in the caller.
pub async fn unblocked<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}
