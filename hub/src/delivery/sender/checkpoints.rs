//! Checkpoints: saves the progress of a worker's shards in the store, one save at a time.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use resync_core::websub::NotificationId;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::counters::Counters;
use super::losses::Losses;
use super::owned_shard::{OwnedShard, Ownership};
use super::shards::Shards;
use super::workers::Workers;
use crate::delivery::scheduler::Now;
use crate::store::{Checkpoint, Ended, Shard, Skip, Store, StoreError, SubscriptionId, TopicId};

/// How often progress is saved. What was delivered since the last save is delivered again after a crash; as one save may be under way
/// when the next is due, that may be the deliveries of two of these intervals. What is delivered while others wait is saved with the
/// checkpoint that ends the next span: a second later, or up to three where saves take a second.
pub(super) const CHECKPOINT_EVERY: Duration = Duration::from_millis(125);
/// After so many answers progress is saved sooner than that, so that a crash repeats no more deliveries of an interval than these.
const CHECKPOINT_AFTER: u64 = 2_048;
/// The pause after a save that failed.
const SAVE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a save may take before no more requests are started: what is delivered meanwhile may be delivered again.
const SLOW_SAVE: Duration = Duration::from_secs(1);
/// Subscriptions that are ended with one save. When many leases are over at once, publishers need room in the store too; nothing
/// is sent to those that wait for their end.
const ENDS: usize = 512;
/// How often a worker that stops tries to save what is left.
const LAST_SAVES: usize = 5;
/// The pause before it does so after one that failed.
const LAST_PAUSE: Duration = Duration::from_millis(300);

/// Something that the store has to take before it is forgotten here.
pub(super) enum Save {
    Checkpoint(Ownership, Checkpoint),
    End(Ownership, TopicId, SubscriptionId, Ended),
}

impl Save {
    fn of(&self) -> Ownership {
        let (Self::Checkpoint(of, ..) | Self::End(of, ..)) = self;
        *of
    }
}

/// What came of a save.
pub(super) type Results = Vec<(Save, Result<(), StoreError>)>;

/// A save under way.
struct Saving {
    /// What is saved is of these.
    of: Vec<Ownership>,
    put: Pin<Box<dyn Future<Output = Results>>>,
}

/// A command that was carried out.
struct Executed {
    reply: oneshot::Sender<Vec<(Shard, usize)>>,
    /// How many subscriptions it concerned in each shard.
    concerned: Vec<(Ownership, usize)>,
}

/// What is not durable yet.
pub(super) struct Checkpoints {
    store: Arc<dyn Store>,
    workers: Workers,
    unsaved: VecDeque<Save>,
    /// Commands that were carried out, whose effect the next save will make durable.
    executed: Vec<Executed>,
    /// Commands that were carried out, whose effect the save under way makes durable.
    being_saved: Vec<Executed>,
    saving: Option<Saving>,
    losses: Losses,
    /// Answers since the last save began.
    answers: u64,
    began: Instant,
    /// The last checkpoint failed: what is delivered now would be delivered again after a restart, so nothing is.
    has_failed: bool,
}

impl Checkpoints {
    /// `workers` hear of shards that somebody else has taken over.
    pub(super) fn new(store: Arc<dyn Store>, workers: Workers) -> Self {
        Self {
            store,
            workers,
            unsaved: VecDeque::new(),
            executed: Vec::new(),
            being_saved: Vec::new(),
            saving: None,
            losses: Losses::default(),
            answers: 0,
            began: Instant::now(),
            has_failed: false,
        }
    }

    /// A request was answered.
    pub(super) fn note_answer(&mut self) {
        self.answers += 1;
    }

    /// A command was carried out: the reply is sent once that is durable.
    pub(super) fn note_executed(
        &mut self,
        reply: oneshot::Sender<Vec<(Shard, usize)>>,
        concerned: Vec<(Ownership, usize)>,
    ) {
        self.executed.push(Executed { reply, concerned });
    }

    /// Whether the store has not taken yet what was to be saved of a shard.
    pub(super) fn have(&self, of: Ownership) -> bool {
        self.saving.as_ref().is_some_and(|saving| saving.of.contains(&of))
            || self.unsaved.iter().any(|save| save.of() == of)
    }

    /// A shard was given up before all of it was saved.
    pub(super) fn forget(&mut self, of: Ownership) {
        self.drop_saves(of);
        if self.saving.is_none() {
            // What failed may have been of this shard alone: the others need not wait for it.
            self.has_failed = self.have_checkpoint();
        }
    }

    /// Whether a checkpoint is to be saved. Between two saves that is one that failed.
    fn have_checkpoint(&self) -> bool {
        self.unsaved.iter().any(|save| matches!(save, Save::Checkpoint(..)))
    }

    /// Nothing of this shard will be saved any more: a command that was carried out there has no effect.
    fn drop_saves(&mut self, of: Ownership) {
        for executed in self.executed.iter_mut().chain(&mut self.being_saved) {
            executed.concerned.retain(|(shard, _)| *shard != of);
        }
        self.unsaved.retain(|save| save.of() != of);
    }

    /// Whether a checkpoint is due before its time.
    pub(super) fn is_due(&self) -> bool {
        self.answers >= CHECKPOINT_AFTER
    }

    /// Whether the last one failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether progress is being saved fast enough to make another request, and nobody else may take the shards over meanwhile.
    pub(super) fn are_in_time(&self) -> bool {
        let slow = self.saving.is_some() && (self.is_due() || self.began.elapsed() > SLOW_SAVE);
        !self.has_failed && !slow && self.store.may_begin()
    }

    /// Starts saving what has moved, unless a save is under way or has just failed.
    pub(super) fn save(&mut self, shards: &mut Shards, counters: &Counters) {
        let pausing = self.has_failed && self.began.elapsed() < SAVE_AGAIN_AFTER;
        if self.saving.is_none() && !pausing {
            self.start(shards, counters);
        }
    }

    /// Saves all that is left.
    pub(super) async fn save_all(&mut self, shards: &mut Shards, counters: &Counters) {
        for _ in 0..LAST_SAVES {
            if let Some(saving) = self.saving.take() {
                let results = saving.put.await;
                self.take(results, shards, counters);
            }
            // What had failed before goes first, and alone: then one more save is to come.
            let last = self.unsaved.is_empty();
            shards.with_progress().for_each(|owned| owned.scheduler.detach_all());
            self.start(shards, counters);
            let Some(saving) = self.saving.take() else { return };
            let results = saving.put.await;
            self.take(results, shards, counters);
            if last && self.unsaved.is_empty() {
                return;
            }
            if self.has_failed {
                sleep(LAST_PAUSE).await;
            }
        }
        warn!("the last progress of delivery is not saved: some deliveries will be repeated");
    }

    /// Lets other hubs claim these shards at once, of which nothing more is saved. What fails ends with this hub's lease.
    pub(super) async fn release(&self, owned: &[OwnedShard]) {
        let release = |owned: &OwnedShard| {
            let Ownership { shard, epoch } = owned.ownership;
            self.store.release(shard, epoch)
        };
        let released = join_all(owned.iter().map(release)).await;
        let mut failed = released.into_iter().filter_map(Result::err);
        // Fenced: somebody has taken it over by now.
        if let Some(error) = failed.find(|error| !matches!(error, StoreError::Fenced)) {
            warn!(%error, "shards not released: other hubs take them over when they take this one for dead");
        }
    }

    /// What came of the save under way; never returns where there is none.
    pub(super) async fn results(&mut self) -> Results {
        match &mut self.saving {
            Some(saving) => saving.put.as_mut().await,
            None => pending().await,
        }
    }

    /// Logs what subscriptions have lost to retention.
    pub(super) fn log_losses(&mut self) {
        self.losses.log();
    }

    pub(super) fn take(&mut self, results: Results, shards: &mut Shards, counters: &Counters) {
        self.saving = None;
        let mut again = VecDeque::new();
        for (save, result) in results {
            match result {
                Ok(()) => self.saved(&save, shards.owned(), counters),
                Err(StoreError::Fenced) => self.lose(save.of(), shards, counters),
                // Trying again mends no damage, and must not hold up everybody else.
                Err(error @ StoreError::Damaged { .. }) if matches!(save, Save::End(..)) => {
                    error!(%error, "the end of a subscription cannot be saved and is dropped");
                }
                // It was given up meanwhile.
                Err(_) if !shards.has_progress_of(save.of()) => {}
                Err(error) => {
                    error!(%error, "progress of delivery not saved: delivery waits until it is");
                    again.push_back(save);
                }
            }
        }
        again.append(&mut self.unsaved);
        // One that was refused may be of a shard that was lost by another one of these.
        again.retain(|save| shards.has_progress_of(save.of()));
        self.unsaved = again;
        self.has_failed = self.have_checkpoint();
        if self.unsaved.is_empty() {
            self.all_saved(shards.owned(), counters);
        }
    }

    fn start(&mut self, shards: &mut Shards, counters: &Counters) {
        self.began = Instant::now();
        self.answers = 0;
        let now = Now::read(self.store.clock());
        if !self.have_checkpoint() {
            self.being_saved.append(&mut self.executed);
        }
        let ends = self.unsaved.iter().filter(|save| matches!(save, Save::End(..))).count();
        let mut ends_left = ENDS.saturating_sub(ends);
        for OwnedShard { ownership, scheduler, .. } in shards.with_progress() {
            // A checkpoint that failed goes first and alone: a newer one beside it might be written before it.
            let waits =
                self.unsaved.iter().any(|save| matches!(save, Save::Checkpoint(of, _) if of == ownership));
            if scheduler.has_progress() && !waits {
                let checkpoint = scheduler.checkpoint(now);
                if !checkpoint.is_empty() {
                    self.unsaved.push_back(Save::Checkpoint(*ownership, checkpoint));
                }
            }
            let ended = scheduler.take_ended(ends_left);
            ends_left -= ended.len();
            let end = |(topic, id, why)| Save::End(*ownership, topic, id, why);
            self.unsaved.extend(ended.into_iter().map(end));
            for (origin, pause) in scheduler.take_opened() {
                warn!(origin, pause = pause.as_secs(), "host in trouble: circuit breaker opened");
            }
            counters.add(scheduler.take_counts());
        }
        if self.unsaved.is_empty() {
            self.all_saved(shards.owned(), counters);
        } else {
            let store = Arc::clone(&self.store);
            let saves = std::mem::take(&mut self.unsaved);
            let of = saves.iter().map(Save::of).collect();
            let put_all = async move { join_all(saves.into_iter().map(|save| put(&store, save))).await };
            self.saving = Some(Saving { of, put: Box::pin(put_all) });
        }
    }

    /// What was done before the last save began is durable.
    fn all_saved(&mut self, owned: &[OwnedShard], counters: &Counters) {
        let until = self.began.into_std();
        for OwnedShard { ownership, .. } in owned {
            counters.set_saved(ownership.shard, until);
        }
        for Executed { reply, concerned } in self.being_saved.drain(..) {
            let by_shard = concerned.into_iter().map(|(of, subscriptions)| (of.shard, subscriptions));
            let _ = reply.send(by_shard.collect());
        }
    }

    /// Another owner has taken the shard over: whatever is decided here counts no more.
    fn lose(&mut self, of: Ownership, shards: &mut Shards, counters: &Counters) {
        self.drop_saves(of);
        if let Some(given_up) = shards.lose(of) {
            error!(shard = of.shard.0, "this shard has a newer owner: delivery for it stops here");
            given_up.report(counters, &self.workers);
        }
    }

    fn saved(&mut self, save: &Save, owned: &[OwnedShard], counters: &Counters) {
        match save {
            Save::Checkpoint(ownership, checkpoint) => {
                for Skip { topic, subscription, offset, class, status, .. } in &checkpoint.skips {
                    let id = NotificationId { topic: topic.0, offset: offset.0 };
                    warn!(%id, subscription = subscription.0, ?class, status, "notification given up for this subscription");
                }
                checkpoint.gaps.iter().for_each(|gap| self.losses.add(gap));
                if let Some(owned) = owned.iter().find(|owned| owned.ownership == *ownership) {
                    counters.set_gauges(
                        ownership.shard,
                        owned.scheduler.laggard_count(),
                        owned.scheduler.open_breakers(),
                    );
                }
            }
            Save::End(_, topic, id, why) => {
                info!(topic = format!("{:016x}", topic.0), subscription = id.0, ?why, "subscription over");
            }
        }
    }
}

async fn put(store: &Arc<dyn Store>, save: Save) -> (Save, Result<(), StoreError>) {
    let result = match &save {
        Save::Checkpoint(Ownership { shard, epoch }, checkpoint) => {
            store.checkpoint(*shard, *epoch, checkpoint.clone()).await
        }
        Save::End(Ownership { shard, epoch }, topic, id, why) => {
            store.end(*shard, *epoch, *topic, *id, *why).await
        }
    };
    (save, result)
}
