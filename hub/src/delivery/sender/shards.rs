//! The shards of a worker: those that it owns, and what is left of those that it owned.

use std::time::Instant;

use super::counters::Counters;
use super::letting_go::{Leaving, LetGo, Reply, Step};
use super::owned_shard::{OwnedShard, Ownership};
use super::workers::Workers;
use crate::delivery::scheduler::{Counts, Scheduler};
use crate::store::Shard;
use crate::subscriptions::NotOwned;

/// The shards of a worker.
#[derive(Default)]
pub(super) struct Shards {
    owned: Vec<OwnedShard>,
    /// On their way to another owner.
    leaving: Vec<Leaving>,
    /// Somebody else delivers for these: only requests that were under way end here.
    lost: Vec<OwnedShard>,
    /// The one that was asked for a request last.
    turn: usize,
}

/// A shard that this worker owns no longer.
#[must_use = "it is counted and assigned here until that is reported"]
pub(super) struct Departed {
    of: Ownership,
    /// What was counted and not reported yet.
    counts: Counts,
    /// Who waits for it.
    reply: Option<(Reply, LetGo)>,
}

impl Departed {
    /// Reports that. To who waits for it at last: it may have the shard taken over again at once.
    pub(super) fn report(self, counters: &Counters, workers: &Workers) {
        counters.add(self.counts);
        let Ownership { shard, epoch } = self.of;
        counters.forget(shard);
        workers.release(shard);
        if let Some((reply, how)) = self.reply {
            // A caller that is gone needs no answer.
            let _ = reply.send(Ok((how, epoch)));
        }
    }
}

impl Shards {
    pub(super) fn owned(&self) -> &[OwnedShard] {
        &self.owned
    }

    pub(super) fn owned_mut(&mut self) -> &mut [OwnedShard] {
        &mut self.owned
    }

    /// All schedulers of owned shards.
    pub(super) fn schedulers(&mut self) -> impl Iterator<Item = &mut Scheduler> {
        self.owned.iter_mut().map(|owned| &mut owned.scheduler)
    }

    /// All whose progress counts: the owned ones, and those that are let go.
    pub(super) fn with_progress(&mut self) -> impl Iterator<Item = &mut OwnedShard> {
        self.owned.iter_mut().chain(self.leaving.iter_mut().map(|leaving| &mut leaving.owned))
    }

    /// Whether the progress of this one counts.
    pub(super) fn has_progress_of(&self, of: Ownership) -> bool {
        self.kept().any(|kept| kept == of)
    }

    /// Whether this shard is owned, or not given up yet.
    pub(super) fn has(&self, shard: Shard) -> bool {
        self.kept().any(|kept| kept.shard == shard)
    }

    fn kept(&self) -> impl Iterator<Item = Ownership> {
        let leaving = self.leaving.iter().map(|leaving| &leaving.owned);
        self.owned.iter().chain(leaving).map(|owned| owned.ownership)
    }

    /// The next owned one in turn.
    pub(super) fn next(&mut self) -> Option<&mut OwnedShard> {
        self.turn = (self.turn + 1) % self.owned.len().max(1);
        self.owned.get_mut(self.turn)
    }

    /// One more is owned.
    pub(super) fn take_over(&mut self, owned: OwnedShard) {
        self.owned.push(owned);
    }

    /// A shard is to be let go; the reply is sent when it is given up.
    pub(super) fn let_go(&mut self, shard: Shard, now: Instant, reply: Reply) {
        match self.owned.iter().position(|owned| owned.ownership.shard == shard) {
            Some(index) => self.leaving.push(Leaving::new(self.owned.remove(index), now, reply)),
            None => {
                // A caller that is gone needs no answer.
                let _ = reply.send(Err(NotOwned(shard)));
            }
        }
    }

    /// Those that are let go.
    pub(super) fn leaving(&self) -> Vec<Ownership> {
        self.leaving.iter().map(|leaving| leaving.owned.ownership).collect()
    }

    /// What has to be done next for a shard that is let go; see [`Leaving::step`].
    pub(super) fn step(&mut self, of: Ownership, now: Instant, is_being_saved: bool) -> Step {
        let leaving = self.leaving.iter_mut().find(|leaving| leaving.owned.ownership == of);
        leaving.map_or(Step::Wait, |leaving| leaving.step(now, is_being_saved))
    }

    /// How a shard that is let go is given up at the end of its worker; see [`Leaving::ends`].
    pub(super) fn ends(&self, of: Ownership, is_being_saved: bool) -> LetGo {
        let leaving = self.leaving.iter().find(|leaving| leaving.owned.ownership == of);
        leaving.map_or(LetGo::Unsaved, |leaving| leaving.ends(is_being_saved))
    }

    /// A request has ended that was made under this ownership; `finish` tells the scheduler.
    pub(super) fn end(&mut self, of: Ownership, finish: impl FnOnce(&mut Scheduler)) {
        let leaving = self.leaving.iter_mut().map(|leaving| &mut leaving.owned);
        let mut all = self.owned.iter_mut().chain(leaving).chain(&mut self.lost);
        let Some(owned) = all.find(|owned| owned.ownership == of) else { return };
        owned.end(finish);
        self.lost.retain(OwnedShard::has_requests);
    }

    /// A shard that was let go is given up.
    pub(super) fn give_up(&mut self, of: Ownership, how: LetGo) -> Option<Departed> {
        let index = self.leaving.iter().position(|leaving| leaving.owned.ownership == of)?;
        let (owned, reply) = self.leaving.remove(index).into_parts();
        Some(self.forget(owned, Some((reply, how))))
    }

    /// Somebody else has taken the shard over. `None` if that was known.
    pub(super) fn lose(&mut self, of: Ownership) -> Option<Departed> {
        match self.owned.iter().position(|owned| owned.ownership == of) {
            Some(index) => {
                let lost = self.owned.remove(index);
                Some(self.forget(lost, None))
            }
            None => self.give_up(of, LetGo::Fenced),
        }
    }

    fn forget(&mut self, mut owned: OwnedShard, reply: Option<(Reply, LetGo)>) -> Departed {
        let (of, counts) = (owned.ownership, owned.scheduler.take_counts());
        owned.scheduler.retire();
        if owned.has_requests() {
            self.lost.push(owned);
        }
        Departed { of, counts, reply }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::super::testing::settings;
    use super::*;
    use crate::delivery::Settings;
    use crate::delivery::scheduler::{Clock, Limits, Now, WorkerState};
    use crate::store::{Epoch, ShardState};

    fn ownership(shard: u16, epoch: u64) -> Ownership {
        Ownership { shard: Shard(shard), epoch: Epoch(epoch) }
    }

    /// A shard that nobody subscribes to.
    fn owned(of: Ownership) -> OwnedShard {
        let (now, Settings { per_host, retry, breaker, .. }) = (Now::for_test(), settings());
        let worker = WorkerState::new(1, per_host, now.monotonic);
        let limits = Limits { per_host, window: 1, retry, breaker, steps: 1, span: 1, passed_by: 1 };
        let clock = Clock::new(now, None);
        OwnedShard::new(of, Scheduler::new(of.shard, limits, worker, ShardState::default(), clock, now))
    }

    fn shards<const N: usize>(of: [Ownership; N]) -> Shards {
        let mut shards = Shards::default();
        for of in of {
            shards.take_over(owned(of));
        }
        shards
    }

    fn names(shards: &Shards) -> Vec<Ownership> {
        shards.owned().iter().map(|owned| owned.ownership).collect()
    }

    #[test]
    fn requests_of_a_lost_shard_end_where_they_were_made_also_once_it_is_taken_back() {
        let (first, kept, again) = (ownership(3, 1), ownership(4, 1), ownership(3, 3));
        let mut shards = shards([first, kept]);
        shards.owned_mut()[0].begin();
        shards.owned_mut()[0].begin();
        assert!(shards.lose(first).is_some());
        assert!(shards.lose(first).is_none(), "that is known");
        assert_eq!(names(&shards), [kept]);
        shards.take_over(owned(again));
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
        let mut shards = shards([0, 1, 2].map(|shard| ownership(shard, 1)));
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

    /// Where the answer to a letting go comes.
    type LetGoAnswer = oneshot::Receiver<Result<(LetGo, Epoch), NotOwned>>;

    /// Lets a shard go from now on; returns where the answer comes.
    fn let_go(shards: &mut Shards, shard: u16, now: Instant) -> LetGoAnswer {
        let (reply, answer) = oneshot::channel();
        shards.let_go(Shard(shard), now, reply);
        answer
    }

    /// A shard that is let go from now on with a request under way, and where the answer comes.
    fn leaving(of: Ownership, now: Instant) -> (Shards, LetGoAnswer) {
        let mut shards = shards([of]);
        shards.owned_mut()[0].begin();
        let answer = let_go(&mut shards, of.shard.0, now);
        (shards, answer)
    }

    /// Reports to nobody but who waits.
    fn report(given_up: Option<Departed>) {
        given_up.unwrap().report(&Counters::new(16), &Workers::new(Vec::new(), 16));
    }

    #[test]
    fn a_shard_that_is_let_go_waits_for_its_requests_and_for_its_last_checkpoint() {
        let (of, now) = (ownership(3, 1), Instant::now());
        let (mut shards, mut answer) = leaving(of, now);
        assert!(names(&shards).is_empty() && shards.next().is_none(), "nothing more is started");
        assert!(shards.has(Shard(3)), "it is nobody else's yet");
        assert_eq!(shards.with_progress().count(), 1, "its progress is still saved");
        assert_eq!(shards.step(of, now, false), Step::Wait, "a request is under way");
        shards.end(of, |_| {});
        assert_eq!(shards.step(of, now, true), Step::Wait, "an earlier checkpoint is");
        assert_eq!(shards.step(of, now, false), Step::GiveUp(LetGo::Saved));
        assert!(answer.try_recv().is_err(), "not before it is given up");
        report(shards.give_up(of, LetGo::Saved));
        assert_eq!(answer.try_recv(), Ok(Ok((LetGo::Saved, Epoch(1)))));
        assert!(!shards.has(Shard(3)) && shards.give_up(of, LetGo::Saved).is_none());
    }

    #[test]
    fn what_is_under_way_for_too_long_is_cut_once_and_a_store_that_takes_nothing_holds_no_shard() {
        let (of, now) = (ownership(3, 1), Instant::now());
        let (mut shards, mut answer) = leaving(of, now);
        let after = |millis| now + Duration::from_millis(millis);
        assert_eq!(shards.step(of, after(900), false), Step::Wait);
        assert_eq!(shards.step(of, after(1_000), false), Step::Cut);
        assert_eq!(shards.step(of, after(1_001), false), Step::Wait, "it ends in a moment");
        shards.end(of, |_| {});
        assert_eq!(shards.step(of, after(2_999), true), Step::Wait);
        assert_eq!(shards.step(of, after(3_000), true), Step::GiveUp(LetGo::Unsaved));
        report(shards.give_up(of, LetGo::Unsaved));
        assert_eq!(answer.try_recv(), Ok(Ok((LetGo::Unsaved, Epoch(1)))));
    }

    #[test]
    fn who_lets_a_shard_go_hears_that_it_was_somebody_elses_already() {
        let (of, now) = (ownership(3, 1), Instant::now());
        let (mut shards, mut answer) = leaving(of, now);
        assert_eq!(let_go(&mut shards, 3, now).try_recv(), Ok(Err(NotOwned(Shard(3)))), "once is enough");
        report(shards.lose(of));
        assert_eq!(answer.try_recv(), Ok(Ok((LetGo::Fenced, Epoch(1)))));
        assert_eq!((shards.has(Shard(3)), shards.lost.len()), (false, 1), "its request ends here");
        assert_eq!(let_go(&mut shards, 3, now).try_recv(), Ok(Err(NotOwned(Shard(3)))));
    }
}
