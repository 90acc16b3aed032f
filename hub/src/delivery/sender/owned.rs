//! The shards that a worker owns, until somebody else takes one over.

use crate::delivery::scheduler::{Counts, Scheduler};
use crate::store::{Epoch, Shard};

/// A shard as it was taken over once: who did so last, with the newest epoch, delivers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) shard: Shard,
    pub(crate) epoch: Epoch,
}

/// A shard that this worker owns.
pub(crate) struct Owned {
    pub(crate) ownership: Ownership,
    pub(crate) scheduler: Scheduler,
    /// Requests under way.
    under_way: usize,
}

impl Owned {
    pub(crate) fn new(ownership: Ownership, scheduler: Scheduler) -> Self {
        Self { ownership, scheduler, under_way: 0 }
    }

    /// A request is made.
    pub(super) fn begin(&mut self) {
        self.under_way += 1;
    }
}

/// The shards of a worker.
pub(super) struct Shards {
    owned: Vec<Owned>,
    /// Somebody else delivers for these: only requests that were under way end here.
    lost: Vec<Owned>,
    /// The one that was asked for a request last.
    turn: usize,
}

impl Shards {
    pub(super) fn new(owned: Vec<Owned>) -> Self {
        Self { owned, lost: Vec::new(), turn: 0 }
    }

    pub(super) fn owned(&self) -> &[Owned] {
        &self.owned
    }

    pub(super) fn owned_mut(&mut self) -> &mut [Owned] {
        &mut self.owned
    }

    /// All schedulers.
    pub(super) fn schedulers(&mut self) -> impl Iterator<Item = &mut Scheduler> {
        self.owned.iter_mut().map(|owned| &mut owned.scheduler)
    }

    /// The next one in turn.
    pub(super) fn next(&mut self) -> Option<&mut Owned> {
        self.turn = (self.turn + 1) % self.owned.len().max(1);
        self.owned.get_mut(self.turn)
    }

    /// A request has ended that was made under this ownership; `finish` tells the scheduler.
    pub(super) fn end(&mut self, of: Ownership, finish: impl FnOnce(&mut Scheduler)) {
        let mut all = self.owned.iter_mut().chain(&mut self.lost);
        let Some(owned) = all.find(|owned| owned.ownership == of) else { return };
        finish(&mut owned.scheduler);
        owned.under_way -= 1;
        self.lost.retain(|lost| lost.under_way > 0);
    }

    /// Somebody else has taken the shard over. Returns what was counted and not reported yet; `None` if that was known.
    pub(super) fn lose(&mut self, of: Ownership) -> Option<Counts> {
        let index = self.owned.iter().position(|owned| owned.ownership == of)?;
        let mut lost = self.owned.remove(index);
        let counts = lost.scheduler.take_counts();
        lost.scheduler.retire();
        if lost.under_way > 0 {
            self.lost.push(lost);
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::settings;
    use super::*;
    use crate::delivery::Settings;
    use crate::delivery::scheduler::{Clock, Limits, Now, WorkerState};
    use crate::store::ShardState;

    fn ownership(shard: u16, epoch: u64) -> Ownership {
        Ownership { shard: Shard(shard), epoch: Epoch(epoch) }
    }

    /// A shard that nobody subscribes to.
    fn owned(of: Ownership) -> Owned {
        let (now, Settings { per_host, retry, breaker, .. }) = (Now::read(), settings());
        let worker = WorkerState::new(1, per_host, now.monotonic);
        let limits = Limits { per_host, window: 1, retry, breaker, steps: 1, worker };
        let clock = Clock::new(now, None);
        Owned::new(of, Scheduler::new(of.shard, limits, ShardState::default(), clock, now))
    }

    fn names(shards: &Shards) -> Vec<Ownership> {
        shards.owned().iter().map(|owned| owned.ownership).collect()
    }

    #[test]
    fn requests_of_a_lost_shard_end_where_they_were_made_also_once_it_is_taken_back() {
        let (first, kept, again) = (ownership(3, 1), ownership(4, 1), ownership(3, 3));
        let mut shards = Shards::new(vec![owned(first), owned(kept)]);
        shards.owned_mut()[0].begin();
        shards.owned_mut()[0].begin();
        assert!(shards.lose(first).is_some());
        assert!(shards.lose(first).is_none(), "that is known");
        assert_eq!(names(&shards), [kept]);
        shards.owned.push(owned(again));
        assert!(shards.lose(first).is_none(), "what fails is of the time before");
        assert_eq!(names(&shards), [kept, again]);
        for left in [1, 0] {
            let mut ended = 0;
            shards.end(first, |_| ended += 1);
            assert_eq!((ended, shards.lost.len()), (1, left));
        }
        shards.end(first, |_| panic!("nothing of it is left"));
    }

    #[test]
    fn shards_take_turns_while_they_come_and_go() {
        let mut shards = Shards::new((0..3).map(|shard| owned(ownership(shard, 1))).collect());
        let turns = |shards: &mut Shards| -> Vec<u16> {
            (0..4).filter_map(|_| Some(shards.next()?.ownership.shard.0)).collect()
        };
        assert_eq!(turns(&mut shards), [1, 2, 0, 1]);
        shards.lose(ownership(2, 1));
        assert_eq!(turns(&mut shards), [0, 1, 0, 1]);
        shards.lose(ownership(0, 1));
        shards.lose(ownership(1, 1));
        assert!(turns(&mut shards).is_empty());
    }
}
