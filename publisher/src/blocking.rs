//! Work that waits for locks and for the disk, or keeps the processor busy, away from the runtime.

use tokio::task::spawn_blocking;

/// Runs such work on a thread of its own; the runtime stays free, for signals too. A panic goes on in who waits for it.
pub async fn unblocked<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}
