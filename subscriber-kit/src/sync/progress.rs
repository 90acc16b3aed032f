//! How far a run has come, for whoever watches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the run that its [`SyncOptions`](super::SyncOptions) were given to. Clones show the same.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    planned: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// How many resources there are; 0 until that is known.
    #[must_use]
    pub fn planned(&self) -> u64 {
        self.0.planned.load(Ordering::Relaxed)
    }

    /// How many of them are dealt with.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// How many bytes came.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self, planned: u64) {
        self.0.planned.store(planned, Ordering::Relaxed);
        self.0.done.store(0, Ordering::Relaxed);
    }

    pub(super) fn one_done(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
