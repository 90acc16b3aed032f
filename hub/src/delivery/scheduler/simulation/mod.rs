//! A seeded simulation of one shard: publishes, subscribers of every temper, crashes at any moment, against a naive model.
//!
//! The model knows what each subscriber was owed and what it got. Nothing owed may be missing at the end, nothing may
//! arrive out of order, and only what was under way at a crash, or younger than the checkpoints of two spans then, may arrive twice;
//! after a stop, only what was under way.

mod adversaries;
mod checkpoints;
mod clock;
mod durable;
mod model;
mod operator;
mod owners;
mod requests;
mod scenarios;
mod subscriptions;
mod tenants;
mod topics;

use std::collections::{BTreeMap, HashMap, HashSet};

use fastrand::Rng;

use self::durable::Durable;
use self::model::Inbox;
use super::*;
use crate::store::Offset;

const TOPICS: u64 = 4;
/// A topic whose content is fetched: only the newest version counts.
const FETCHED: TopicId = TopicId(4);
/// A topic whose content is posted at times and fetched at times.
const MIXED: TopicId = TopicId(3);
const HOSTS: u64 = 4;
/// A lease, in seconds, that outlives the simulation.
const LONG: u64 = 100_000_000;

/// What a simulation came across, to check that it tried what it is meant to try.
#[derive(Debug, Default)]
struct Seen {
    breakers: usize,
    suspects: usize,
    replays: usize,
    held: usize,
    interruptions: usize,
    emptied: usize,
    unlearned: usize,
}

struct World {
    rng: Rng,
    now: Now,
    durable: Durable,
    scheduler: Scheduler,
    in_flight: Vec<Attempt>,
    inboxes: BTreeMap<SubscriptionId, Inbox>,
    /// Subscribers that refuse everything from now on.
    sick: HashMap<SubscriptionId, u16>,
    /// Single notifications that a subscriber's server fails at.
    suspects: HashSet<(SubscriptionId, Offset)>,
    /// How many requests that were sent since their subscriber said yes last it has answered with 410.
    gone: HashMap<SubscriptionId, u32>,
    /// Whose request was under way when it said yes.
    sent_before_yes: HashSet<SubscriptionId>,
    /// Ends on their way to the store.
    ending: Vec<(TopicId, SubscriptionId, Ended)>,
    /// Requests that were under way when the operator sent their subscriptions back.
    outdated: HashSet<(SubscriptionId, Offset)>,
    seen: Seen,
    /// Checkpoints taken, and how many of them the store has.
    interval: u32,
    saved: u32,
    /// A checkpoint that the store did not take yet; until it does, nothing is sent.
    unsaved: Option<Checkpoint>,
    next_id: u64,
    renewals: u64,
    /// Subscriptions that a scheduler looks at in one call.
    steps: usize,
    /// Checkpoints of a span.
    span: u32,
    /// Subscriptions of one topic that may wait without a record.
    passed_by: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Now::for_test();
        // The schedule's jitter comes from here.
        fastrand::seed(seed);
        Self {
            rng: Rng::with_seed(seed),
            now,
            durable: Durable::default(),
            scheduler: Scheduler::new(
                Shard(0),
                limits(),
                worker(),
                ShardState::default(),
                Clock::new(now, None),
                now,
            ),
            in_flight: Vec::new(),
            inboxes: BTreeMap::new(),
            suspects: HashSet::new(),
            gone: HashMap::new(),
            sent_before_yes: HashSet::new(),
            ending: Vec::new(),
            outdated: HashSet::new(),
            seen: Seen::default(),
            sick: HashMap::new(),
            interval: 1,
            saved: 0,
            unsaved: None,
            next_id: 1,
            renewals: 0,
            steps: limits().steps,
            span: limits().span,
            passed_by: limits().passed_by,
        }
    }

    fn anything(&mut self) {
        match self.rng.u8(0..100) {
            0..15 => self.publish(),
            15..20 => self.subscribe(),
            20..22 => self.unsubscribe(),
            22..24 => self.renew(),
            24..25 => {
                self.assert_counts();
                self.scheduler.expire(self.now);
                self.take_ended();
            }
            25..50 => self.send(),
            50..85 => self.answer(),
            85..92 => self.checkpoint(),
            92..95 => {
                let seconds = self.rng.u64(0..5);
                self.wait(seconds);
            }
            95..97 => {
                if let Some(id) = self.some_subscription() {
                    let status = *self.rng.choice(&[404_u16, 410, 429, 500]).unwrap();
                    self.sick.insert(id, status);
                }
            }
            97 => {
                self.sick.clear();
                if let Some(id) = self.some_subscription() {
                    let head = self.topic(self.durable.slots[&id].topic).head;
                    self.suspects.insert((id, Offset(head.0 + self.rng.u64(0..4))));
                }
            }
            98 => match self.rng.u8(0..8) {
                0 => self.trim(),
                1 => self.jump(),
                2 => self.pause(),
                3 | 4 => self.retry(),
                5 => self.replay(),
                6 => self.stop(),
                _ => self.sick.clear(),
            },
            _ => self.crash(),
        }
    }

    /// Every subscriber takes everything again, and has all the time in the world.
    fn run_dry(&mut self) {
        self.sick.clear();
        self.suspects.clear();
        for topic in std::mem::take(&mut self.durable.paused) {
            self.scheduler.apply(&StoreEvent::Resumed { topic });
        }
        self.save();
        self.checkpoint();
        for _ in 0..10_000 {
            self.save();
            if self.owed_in_all() == Owed::default() {
                let missed = self.missed_by_those_in_force();
                assert!(
                    missed.is_empty(),
                    "who misses something is owed it: {missed:?} {:?}",
                    self.scheduler
                );
            }
            self.send();
            while !self.in_flight.is_empty() {
                while !self.in_flight.is_empty() {
                    self.answer();
                }
                self.send();
            }
            self.checkpoint();
            if self.scheduler.next_timer().is_none() && self.is_complete() {
                return;
            }
            self.wait(5);
        }
        let missing: Vec<_> = self.durable.slots.values().map(|slot| (slot, self.missing(slot))).collect();
        panic!("deliveries never came to an end: {missing:#?} {:?}", self.scheduler);
    }
}

fn limits() -> Limits {
    let second = Duration::from_secs(1);
    let retry = RetryPolicy {
        trouble: vec![second, 2 * second, 4 * second, 6 * second, 9 * second],
        refused: vec![second],
        gone_confirm_after: second,
    };
    let breaker = BreakerPolicy { failures: 3, open: 2 * second, open_max: 10 * second };
    Limits { per_host: 3, window: 5, retry, breaker, steps: 256, span: 1, passed_by: 8_192 }
}

/// A worker that has no other shards.
fn worker() -> WorkerState {
    WorkerState::new(1_000, 3, std::time::Instant::now())
}

fn run(seed: u64) -> Seen {
    let _told = Told(seed);
    let mut world = World::new(seed);
    world.steps = world.rng.usize(1..10);
    world.scheduler.limits.steps = world.steps;
    world.span = world.rng.u32(1..=4);
    world.scheduler.limits.span = world.span;
    world.passed_by = world.rng.usize(1..=20);
    world.scheduler.limits.passed_by = world.passed_by;
    for _ in 0..600 {
        world.anything();
    }
    world.run_dry();
    for slot in world.durable.slots.values() {
        assert_eq!(
            world.missing(slot),
            None,
            "seed {seed}: subscription {:?} misses a notification",
            slot.id
        );
    }
    // What had failed and was never owed anything since is remembered until something succeeds.
    (1..=TOPICS).for_each(|topic| world.publish_to(TopicId(topic)));
    world.run_dry();
    world.save();
    // The last look of a sweep may have had no permit, since other shards had them all.
    for _ in 0..50 {
        world.send();
        world.checkpoint();
        world.save();
    }
    assert!(world.durable.laggards.is_empty(), "seed {seed}: everybody is done, nobody is behind");
    assert_eq!(world.scheduler.laggard_count(), 0, "seed {seed}");
    assert_eq!(world.owed_in_all(), Owed::default(), "seed {seed}");
    world.seen
}

/// The seeds of one in so many of 1,000 simulations, or of as many as `RESYNC_TEST_SEEDS` says. The first is drawn anew in each run, unless
/// `RESYNC_TEST_SEED` has it, and printed.
fn seeds(of: u64) -> impl Iterator<Item = u64> {
    let given = |name| std::env::var(name).ok().map(|number| number.parse().expect("it is a number"));
    let first = given("RESYNC_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    let many = given("RESYNC_TEST_SEEDS").unwrap_or(1_000).div_ceil(of);
    println!("{many} simulations from RESYNC_TEST_SEED={first}");
    (0..many).map(move |number| first.wrapping_add(number))
}

/// Tells which simulation it is that fails.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this one alone: RESYNC_TEST_SEED={} RESYNC_TEST_SEEDS=1", self.0);
        }
    }
}

#[test]
fn nothing_owed_is_lost_or_out_of_order_whatever_happens() {
    let mut all = Seen::default();
    let mut runs = 0;
    for seed in seeds(1) {
        runs += 1;
        let Seen { breakers, suspects, replays, held, interruptions, emptied, unlearned } = run(seed);
        all.unlearned += unlearned;
        all.breakers += breakers;
        all.suspects += suspects;
        all.replays += replays;
        all.held += held;
        all.interruptions += interruptions;
        all.emptied += emptied;
    }
    if runs >= 1_000 {
        assert!(all.breakers > 100 && all.suspects > 0 && all.replays > 200 && all.held > 300, "{all:?}");
        assert!(all.interruptions > 10_000 && all.emptied > 40 && all.unlearned > 10_000, "{all:?}");
    }
}
