//! One topic in one shard: the watermark, the sweep that moves it, and the laggards that do not hold it back.
//!
//! A sweep brings every subscription, in the order of the ids, from the watermark to a target. A subscription is *active* while it is
//! on its way. An active subscription that is *attached* holds the sweep back. One that is slower than a checkpoint interval is *passed by*:
//! it holds the sweep back no more, and needs no record either, since the saved watermark stays below it. What others have got above that
//! would be repeated after a crash. So it is *detached* when it fails, and when the next sweep is due. It is also detached when nothing has
//! moved for a whole span of checkpoints, when what others got in the last span but one is unsaved because of it, or when too many are
//! passed by. From then on it is a laggard with a record of its own, and the watermark goes on without it. So a healthy sweep leaves a
//! handful of records, whatever its size, and however long it takes, unless many thousands wait for one host.

mod checkpoint;
mod operator;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub(super) use sweep::SweepStep;

use self::sweep::Sweep;
use super::active::{ActiveSubscription, FailingSince, Phase};
use super::host::HostId;
use super::subscription_table::{SubscriptionEntry, SubscriptionTable};
use super::wait_queue::LastAttempt;
use crate::store::{
    FailureClass, Laggard, Offset, SubscriptionId, SubscriptionSummary, Topic, TopicId, Watermark,
};

/// The state of one topic in one shard.
#[derive(Debug)]
pub(super) struct TopicState {
    id: TopicId,
    /// The newest notification.
    pub(super) head: Offset,
    /// The newest fetched version.
    newest_fetched: Offset,
    /// The newest posted notification: everybody gets it, although there are newer ones.
    pub(super) posted: Offset,
    /// Of the newest body; zero until there is one in this life.
    pub(super) bytes: u64,
    /// The watermark: every subscription is done through here, except the laggards.
    done: Offset,
    sweep: Option<Sweep>,
    /// All subscriptions.
    pub(super) table: SubscriptionTable,
    pub(super) active: BTreeMap<SubscriptionId, ActiveSubscription>,
    /// Active subscriptions that hold the sweep back.
    attached: BTreeSet<SubscriptionId>,
    /// Active subscriptions that are slower: the sweep has passed them by, and they hold only the watermark back.
    passed_by: BTreeSet<SubscriptionId>,
    /// Active subscriptions that are at the target already, or beyond it.
    parked: BTreeSet<SubscriptionId>,
    /// Those that the next checkpoint has to look at.
    changed: BTreeSet<SubscriptionId>,
    /// Those whose records the next checkpoint removes.
    caught_up: Vec<SubscriptionId>,
    /// As counted last.
    laggards: usize,
    /// Those that could have been sent something while the topic was paused.
    held: Vec<SubscriptionId>,
    /// The watermark as the last checkpoint left it, if this is known.
    saved: Option<Watermark>,
}

impl TopicState {
    /// As its watermark in the store has it.
    pub(super) fn new(topic: &Topic, watermark: Watermark) -> Self {
        Self { saved: Some(watermark), ..Self::at(topic, watermark) }
    }

    /// One that the shard learns of by its first subscription: nothing before that is owed to anybody here. What the store has of it
    /// may be older.
    pub(super) fn fresh(topic: &Topic) -> Self {
        Self::at(topic, Watermark { done: topic.head, sweep: None })
    }

    fn at(topic: &Topic, watermark: Watermark) -> Self {
        let sweep = watermark.sweep.map(|sweep| Sweep::new(sweep.target, sweep.through));
        Self {
            id: topic.id,
            head: topic.head,
            newest_fetched: topic.latest,
            posted: topic.posted,
            bytes: 0,
            done: watermark.done,
            sweep,
            table: SubscriptionTable::default(),
            active: BTreeMap::new(),
            attached: BTreeSet::new(),
            passed_by: BTreeSet::new(),
            parked: BTreeSet::new(),
            changed: BTreeSet::new(),
            caught_up: Vec::new(),
            laggards: 0,
            held: Vec::new(),
            saved: None,
        }
    }

    /// Puts back a laggard of an earlier life, due at `due`.
    pub(super) fn restore(&mut self, laggard: &Laggard, due: Instant, failing: Option<FailingSince>) {
        let active = ActiveSubscription {
            streak_failures: laggard.streak_failures,
            // Of a topic that is fetched, the failures may be of versions that nobody needs any more.
            notification_failures: if self.newest_fetched.0 > 0 { 0 } else { laggard.streak_failures },
            failing,
            unconfirmed_times: u16::from(laggard.class == FailureClass::Unsent),
            class: laggard.class,
            phase: Phase::Backoff(due),
            saved: true,
            ..ActiveSubscription::waiting(laggard.cursor, 0)
        };
        self.active.insert(laggard.subscription, active);
        let start = self.table.get(laggard.subscription).map_or(Offset(0), |entry| entry.start);
        self.set_proven(laggard.subscription, failing.is_none() && laggard.cursor > start);
    }

    /// To be called before the laggards of an earlier life are restored: all without a record have got what sweeps were about.
    pub(super) fn assume_proven(&mut self) {
        let (done, sweep) = (self.done, self.sweep.as_ref().map(|sweep| (sweep.position, sweep.target)));
        for (id, entry) in self.table.iter_mut() {
            let done = sweep.filter(|(position, _)| id <= *position).map_or(done, |(_, target)| target);
            entry.is_proven = entry.start < done;
        }
    }

    /// Records whether a subscription is proven.
    pub(super) fn set_proven(&mut self, id: SubscriptionId, is_proven: bool) {
        if let Some(entry) = self.table.get_mut(id) {
            entry.is_proven = is_proven;
        }
    }

    /// Returns what it replaces.
    pub(super) fn put(
        &mut self,
        id: SubscriptionId,
        slot: &SubscriptionSummary,
        host: HostId,
    ) -> Option<SubscriptionEntry> {
        let is_proven = self.table.get(id).is_some_and(|before| before.host == host && before.is_proven);
        self.table
            .insert(id, SubscriptionEntry { host, start: slot.start, lease_end: slot.lease_end, is_proven })
    }

    /// Returns what it removes.
    pub(super) fn remove(&mut self, id: SubscriptionId) -> Option<SubscriptionEntry> {
        self.deactivate(id);
        self.table.remove(id)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.table.is_empty() && !self.is_unsaved()
    }

    pub(super) fn active_mut(&mut self, id: SubscriptionId) -> Option<&mut ActiveSubscription> {
        self.active.get_mut(&id)
    }

    /// What the last attempt for a subscription says of it.
    pub(super) fn last_attempt(&self, id: SubscriptionId) -> LastAttempt {
        if self.active.get(&id).is_some_and(ActiveSubscription::is_retry) {
            return LastAttempt::Failed;
        }
        self.table.get(id).map_or(LastAttempt::Untried, SubscriptionEntry::last)
    }

    /// The newest fetched version that the present sweep is about: nothing newer is sent, so that nobody gets ahead of it.
    pub(super) fn newest_fetched_in_sweep(&self) -> Offset {
        self.newest_fetched.min(self.target())
    }

    /// Whether the sweep goes beyond this offset, in a topic of posted notifications only.
    pub(super) fn has_after(&self, offset: Offset) -> bool {
        self.newest_fetched == Offset(0) && offset < self.target()
    }

    /// Where active subscriptions have to get.
    pub(super) fn target(&self) -> Offset {
        self.sweep.as_ref().map_or(self.done, |sweep| sweep.target)
    }

    /// Through where an idle subscription is done.
    pub(super) fn done_of(&self, id: SubscriptionId) -> Offset {
        match &self.sweep {
            Some(sweep) if id <= sweep.position => sweep.target,
            Some(_) | None => self.done,
        }
    }

    /// Whether the watermark stays below some active subscription.
    fn is_held_back(&self) -> bool {
        !(self.attached.is_empty() && self.passed_by.is_empty())
    }

    /// Whether the watermark stays below this active subscription, so that it needs no record.
    fn holds_watermark(&self, id: SubscriptionId) -> bool {
        self.attached.contains(&id) || self.passed_by.contains(&id)
    }

    /// Puts a subscription aside until the topic is resumed.
    pub(super) fn hold(&mut self, id: SubscriptionId) {
        self.held.push(id);
    }

    /// Those that were put aside and still wait.
    pub(super) fn take_held(&mut self) -> Vec<(HostId, SubscriptionId)> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().filter_map(|id| Some((self.table.get(id)?.host, id))).collect()
    }

    /// The subscription is idle from now on.
    fn deactivate(&mut self, id: SubscriptionId) {
        self.attached.remove(&id);
        self.passed_by.remove(&id);
        self.parked.remove(&id);
        self.changed.remove(&id);
        if self.active.remove(&id).is_some_and(|active| active.saved) {
            self.caught_up.push(id);
        }
    }
}
