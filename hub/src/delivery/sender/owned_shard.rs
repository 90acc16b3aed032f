//! A shard that a worker owns, with its requests under way.

use crate::delivery::scheduler::Scheduler;
use crate::store::{Epoch, Shard};

/// A shard as it was taken over once: who did so last, with the newest epoch, delivers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) shard: Shard,
    pub(crate) epoch: Epoch,
}

/// A shard that this worker owns.
pub(crate) struct OwnedShard {
    pub(crate) ownership: Ownership,
    pub(crate) scheduler: Scheduler,
    /// Requests under way.
    under_way: usize,
}

impl OwnedShard {
    pub(crate) fn new(ownership: Ownership, scheduler: Scheduler) -> Self {
        Self { ownership, scheduler, under_way: 0 }
    }

    /// A request is made.
    pub(super) fn begin(&mut self) {
        self.under_way += 1;
    }

    /// A request has ended; `finish` tells the scheduler.
    pub(super) fn end(&mut self, finish: impl FnOnce(&mut Scheduler)) {
        finish(&mut self.scheduler);
        self.under_way -= 1;
    }

    /// Whether any request is under way.
    pub(super) fn has_requests(&self) -> bool {
        self.under_way > 0
    }
}
