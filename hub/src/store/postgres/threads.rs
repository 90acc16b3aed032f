//! The threads on which a store speaks with its database: whoever calls it may have a runtime of any kind, and a busy one must not keep
//! the hub's word from being renewed.

use std::future::Future;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::store::{Result, StoreError};

/// Most of what is done is to wait.
const THREADS: usize = 2;

#[derive(Debug)]
pub(super) struct Threads {
    handle: Handle,
    /// `None` once it is being dropped.
    runtime: Option<Runtime>,
}

impl Threads {
    pub(super) fn start() -> Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("store").enable_all().build();
        let runtime = runtime
            .map_err(|error| StoreError::Away(format!("the store's threads cannot be started: {error}")))?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// To do something there for as long as they run.
    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Does this there, also when nobody waits for it any more.
    pub(super) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.handle.spawn(work)
    }

    /// Does this there, and waits for it.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.spawn(work).await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // To wait for it is not allowed within a runtime, which this may be.
            runtime.shutdown_background();
        }
    }
}
