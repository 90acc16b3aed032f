//! The scheduler of one shard: which request is next, and what an answer means.
//!
//! It is a state machine that does no input or output and reads no clock: time comes in with every call and requests go out as values, so
//! that the whole of it runs in a [simulation]. One thing it takes from outside: the jitter of pauses comes from the random numbers of its
//! thread (`fastrand`), which a simulation seeds. And it logs when the wall clock has jumped.

mod active;
mod answers;
mod attempt;
mod breaker;
mod breakers;
mod checkpoint;
mod clock;
mod commands;
mod host;
mod hosts;
mod in_flight;
mod lanes;
mod leases;
mod limiter;
mod networks;
mod next;
mod pressure;
mod queries;
mod ready;
mod recent_starts;
mod retry_policy;
mod round_robin;
#[cfg(test)]
mod simulation;
mod slowness;
mod subscription_table;
mod topic;
mod unconfirmed;
mod wait_queue;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;

use self::active::{FailingSince, Phase};
pub(crate) use self::attempt::{Attempt, Find, Finished};
pub use self::breaker::BreakerPolicy;
pub(crate) use self::clock::{Clock, Now, doubt, doubt_at_start, millis};
use self::hosts::Hosts;
pub use self::hosts::OpenHost;
pub(crate) use self::hosts::WorkerState;
pub(crate) use self::lanes::Lane;
pub(crate) use self::limiter::LaneLimiter;
pub(crate) use self::pressure::Load;
pub use self::queries::{LaggardProgress, Owed, Progress, TopicCounts, WaitsFor};
pub use self::retry_policy::RetryPolicy;
pub(crate) use self::retry_policy::{DeliveryOutcome, GivenUp};
use self::round_robin::RoundRobin;
use self::topic::TopicState;
use self::unconfirmed::Unconfirmed;
use crate::store::{
    Checkpoint, ContentKind, Ended, Failing, FailureClass, Shard, ShardState, Skip, StoreEvent,
    SubscriptionId, SubscriptionSummary, TopicId,
};
pub use crate::store::{Command, Target};

/// Limits of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Requests to one origin at once.
    pub(crate) per_host: usize,
    /// Subscriptions of one topic that a sweep has on their way at once.
    pub(crate) window: usize,
    /// When to repeat.
    pub(crate) retry: RetryPolicy,
    /// When the circuit breaker of a host opens.
    pub(crate) breaker: BreakerPolicy,
    /// Subscriptions that are looked at in one call, so that none takes long.
    pub(crate) steps: usize,
    /// Checkpoints of a span: what is delivered in one is in the checkpoint that ends the next one, at the latest.
    pub(crate) span: u32,
    /// Subscriptions of one topic that may wait without a record after the sweep has passed them by. If the next sweep is due, or nothing
    /// moves, one checkpoint gets a record of each.
    pub(crate) passed_by: usize,
}

/// What the shard has counted since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Answers of 2xx.
    pub(crate) delivered: u64,
    /// All other attempts.
    pub(crate) failed: u64,
    /// Notifications given up, by why.
    pub(crate) given_up: [u64; GivenUp::ALL.len()],
    /// Notifications that were owed and no longer in the log.
    pub(crate) lost_to_retention: u64,
}

/// The scheduler of one shard.
#[derive(Debug)]
pub(crate) struct Scheduler {
    shard: Shard,
    limits: Limits,
    clock: Clock,
    hosts: Hosts,
    /// Ordered, like all collections that are walked through: the same events make the same decisions.
    topics: BTreeMap<TopicId, TopicState>,
    /// Topics whose sweep can take up more.
    round_robin: RoundRobin,
    timers: BinaryHeap<Reverse<(Instant, TopicId, SubscriptionId)>>,
    touched: BTreeSet<TopicId>,
    subscriptions: usize,
    /// The topics that have subscriptions, each by the moment before which no lease ends.
    first_ends: BTreeSet<(DateTime, TopicId)>,
    laggards: usize,
    /// What the next checkpoint saves beside the progress of topics.
    unsaved: Checkpoint,
    ended: BTreeMap<(TopicId, SubscriptionId), Ended>,
    checkpoints: u32,
    /// Checkpoints until the present span ends, unless its time is over before.
    span_left: u32,
    span_began: Instant,
    counts: Counts,
    /// Topics of which nothing is delivered for now, also of those that have no subscriptions in this shard.
    paused: BTreeSet<TopicId>,
    unconfirmed: Unconfirmed,
    /// The last call looked at as many subscriptions as it may, but not at all of them.
    interrupted: bool,
    /// Until then permits count as scarce.
    scarce_until: Instant,
    retired: bool,
}

impl Scheduler {
    /// Goes on where the shard was left. `worker` is what it shares with the other shards of its worker.
    pub(crate) fn new(
        shard: Shard,
        limits: Limits,
        worker: WorkerState,
        state: ShardState,
        clock: Clock,
        now: Now,
    ) -> Self {
        let mut scheduler = Self {
            shard,
            clock,
            hosts: Hosts::new(limits.per_host, limits.breaker, worker, now.monotonic),
            span_left: limits.span,
            span_began: now.monotonic,
            limits,
            topics: BTreeMap::new(),
            round_robin: RoundRobin::default(),
            timers: BinaryHeap::new(),
            touched: BTreeSet::new(),
            subscriptions: 0,
            first_ends: BTreeSet::new(),
            laggards: 0,
            unsaved: Checkpoint::default(),
            ended: BTreeMap::new(),
            checkpoints: 1,
            counts: Counts::default(),
            paused: state.paused.iter().copied().collect(),
            unconfirmed: Unconfirmed::default(),
            interrupted: false,
            scarce_until: now.monotonic,
            retired: false,
        };
        scheduler.load(state, now);
        scheduler
    }

    fn load(&mut self, state: ShardState, now: Now) {
        let watermarks: HashMap<_, _> = state.watermarks.into_iter().collect();
        for topic in &state.topics {
            self.topics.insert(
                topic.id,
                TopicState::new(topic, watermarks.get(&topic.id).copied().unwrap_or_default()),
            );
        }
        for slot in &state.slots {
            self.put_subscription(slot);
        }
        self.topics.values_mut().for_each(TopicState::assume_proven);
        for laggard in &state.laggards {
            let Some(topic) = self.topics.get_mut(&laggard.topic) else { continue };
            let Some(entry) = topic.table.get(laggard.subscription) else { continue };
            if laggard.class == FailureClass::Unsent {
                self.unconfirmed.insert(entry.host, (laggard.topic, laggard.subscription));
            }
            let due = now.monotonic + pause_until(laggard.next_attempt, now.wall).min(laggard.pause);
            let failing = laggard.failing.map(|Failing { since, lasted }| FailingSince {
                since,
                before: lasted,
                counted: now.monotonic,
            });
            topic.restore(laggard, due, failing);
            self.timers.push(Reverse((due, laggard.topic, laggard.subscription)));
        }
        let topics: Vec<_> = self.topics.keys().copied().collect();
        for id in topics {
            // Versions may have come in after the last checkpoint. Nobody waits yet, so nobody is woken.
            self.topics.get_mut(&id).map(TopicState::begin_anew);
            self.settle(id);
        }
    }

    /// Takes in what became durable.
    pub(crate) fn apply(&mut self, event: &StoreEvent) {
        if self.retired {
            return;
        }
        match event {
            StoreEvent::Appended { topic, offset, kind, bytes } => {
                if let Some(state) = self.topics.get_mut(topic) {
                    for (host, id) in state.appended(*offset, *kind == ContentKind::Fetched, *bytes) {
                        self.hosts.enqueue(host, (*topic, id), state.last_attempt(id));
                    }
                    self.settle(*topic);
                }
            }
            StoreEvent::Subscribed { shard, slot, topic } => {
                if *shard == self.shard {
                    self.topics.entry(topic.id).or_insert_with(|| TopicState::fresh(topic));
                    // What was to end it came before its subscriber confirmed it.
                    self.ended.remove(&(topic.id, slot.id));
                    let known = self.topics.get_mut(&topic.id);
                    if let Some(active) = known.and_then(|topic| topic.active_mut(slot.id)) {
                        active.confirmed();
                    }
                    self.put_subscription(slot);
                }
                if slot.address.is_some() {
                    self.origin_confirmed(&slot.origin);
                }
            }
            StoreEvent::Unsubscribed { shard, topic, id } if *shard == self.shard => self.remove(*topic, *id),
            StoreEvent::Paused { topic } => drop(self.paused.insert(*topic)),
            StoreEvent::Resumed { topic } => self.resume(*topic),
            // Its worker gives the shard up, which is then read anew.
            StoreEvent::Unsubscribed { .. } | StoreEvent::Resync => {}
        }
    }

    /// How many hosts they are on.
    pub(crate) fn hosts(&self) -> usize {
        self.hosts.count()
    }

    /// How many subscriptions are behind the watermark.
    pub(crate) fn laggard_count(&self) -> usize {
        self.laggards
    }

    /// How many circuit breakers are open.
    pub(crate) fn open_breakers(&self) -> usize {
        self.hosts.open_breaker_count()
    }

    /// Whether a retry waits for a permit.
    pub(crate) fn has_retries(&self) -> bool {
        self.hosts.waits_in(Lane::Retry)
    }

    /// Hosts whose circuit breakers opened since the last call, and for how long.
    pub(crate) fn take_opened(&mut self) -> Vec<(String, Duration)> {
        self.hosts.take_opened()
    }

    /// What was counted since the last call.
    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Forgets everything: another owner delivers for this shard now.
    pub(crate) fn retire(&mut self) {
        self.retired = true;
        self.topics.clear();
        self.round_robin.clear();
        self.timers.clear();
        self.touched.clear();
        self.subscriptions = 0;
        self.first_ends.clear();
        self.laggards = 0;
        self.unsaved = Checkpoint::default();
        self.ended.clear();
        self.unconfirmed.clear();
    }

    fn put_subscription(&mut self, slot: &SubscriptionSummary) {
        let Some(topic) = self.topics.get_mut(&slot.topic) else { return };
        let host = self.hosts.join(&slot.origin, slot.address);
        let before = topic.table.first_end();
        match topic.put(slot.id, slot, host) {
            Some(before) => self.hosts.leave(before.host),
            None => self.subscriptions += 1,
        }
        let after = topic.table.first_end();
        self.note_first_end(slot.topic, before, after);
    }

    fn remove(&mut self, topic: TopicId, id: SubscriptionId) {
        if let Some(state) = self.topics.get_mut(&topic) {
            if let Some(entry) = state.remove(id) {
                self.subscriptions -= 1;
                self.unconfirmed.remove(entry.host, (topic, id));
                self.hosts.leave(entry.host);
            }
            self.settle(topic);
        }
    }

    fn resume(&mut self, topic: TopicId) {
        self.paused.remove(&topic);
        let Some(state) = self.topics.get_mut(&topic) else { return };
        for (host, id) in state.take_held() {
            self.hosts.enqueue(host, (topic, id), state.last_attempt(id));
        }
        self.settle(topic);
    }

    fn skip(&mut self, skip: Skip, why: GivenUp) {
        self.counts.given_up[why as usize] += 1;
        self.unsaved.skips.push(skip);
    }

    fn back_off(&mut self, topic: TopicId, id: SubscriptionId, pause: Duration, now: Now) {
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let due = now.monotonic + pause;
        if let Some(active) = state.active_mut(id) {
            active.phase = Phase::Backoff(due);
            state.detach(id);
            self.timers.push(Reverse((due, topic, id)));
        }
        self.settle(topic);
    }

    /// An active subscription has moved: it goes on to its next notification or is done.
    fn go_on(&mut self, topic: TopicId, id: SubscriptionId, now: Now) {
        let Some(state) = self.topics.get_mut(&topic) else { return };
        if state.advanced(id, now.monotonic)
            && let Some(entry) = state.table.get(id)
        {
            self.hosts.enqueue(entry.host, (topic, id), state.last_attempt(id));
        }
        self.settle(topic);
    }

    /// After anything that may have changed a topic: sweeps end and begin, and the next checkpoint looks at it.
    fn settle(&mut self, topic: TopicId) {
        self.touched.insert(topic);
        self.settle_quietly(topic);
    }

    fn settle_quietly(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.settle();
            let (before, after) = topic.count_laggards();
            self.laggards = self.laggards + after - before;
            self.join_round_robin(id);
        }
    }
}

/// Wall clocks may have jumped back: then there is no pause.
fn pause_until(later: DateTime, earlier: DateTime) -> Duration {
    later.to_system_time().duration_since(earlier.to_system_time()).unwrap_or_default()
}
