//! The progress of a run, and the outcome of each resource.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::Failure;

/// What became of one resource that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its file was not there.
    Created,
    /// Its file was replaced.
    Updated,
    /// Its file was right already.
    Unchanged,
    /// Its file, or one of no resource, was removed.
    Deleted,
    /// It was deleted at the Source, and its file stays without `--delete`.
    Kept,
}

impl Outcome {
    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Kept => "kept",
        }
    }
}

/// The outcome of one resource; for a dry run, the one to expect (RS-202).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceEvent<'e> {
    /// Its URI; the path of a file without one.
    pub uri: &'e str,
    /// The outcome, or why it is not in step.
    pub outcome: Result<Outcome, &'e Failure>,
}

/// Counters of the run that its [`SyncOptions`](super::SyncOptions) were given to. Clones show the same.
#[derive(Clone, Default)]
pub struct Progress {
    counters: Arc<Counters>,
    listener: Option<Arc<Listener>>,
}

type Listener = dyn Fn(ResourceEvent<'_>) + Send + Sync;

#[derive(Debug, Default)]
struct Counters {
    planned: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Calls `listener` for every outcome as soon as it is known. A resource that fails and is tried again in the same run is
    /// reported again.
    #[must_use]
    pub fn with_listener(listener: impl Fn(ResourceEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Arc::new(listener)), ..Self::default() }
    }

    /// How many resources there are; 0 until that is known.
    #[must_use]
    pub fn planned(&self) -> u64 {
        self.counters.planned.load(Ordering::Relaxed)
    }

    /// How many of them are handled.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.counters.done.load(Ordering::Relaxed)
    }

    /// How many bytes were received.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self, uri: &str, outcome: Result<Outcome, &Failure>) {
        if let Ok(outcome) = outcome {
            tracing::debug!(uri, ?outcome, "handled a resource");
        }
        if let Some(listener) = &self.listener {
            listener(ResourceEvent { uri, outcome });
        }
    }

    pub(super) fn begin(&self, planned: u64) {
        self.counters.planned.store(planned, Ordering::Relaxed);
        self.counters.done.store(0, Ordering::Relaxed);
    }

    pub(super) fn one_done(&self) {
        self.counters.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: u64) {
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.counters).finish()
    }
}
