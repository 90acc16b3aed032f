//! Work that may block, such as that on files, apart from what is asynchronous.

/// Runs it on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("this work does not panic, and its task is never aborted")
}
