//! A seeded simulation of one shard: publishes, subscribers of every temper, crashes at any moment, against a naive model.
//!
//! The model knows what each subscriber was owed and what it got. Nothing owed may be missing at the end, nothing may
//! arrive out of order, and only what was under way at a crash, or younger than two checkpoints then, may arrive twice.

use std::collections::{BTreeMap, HashMap};

use fastrand::Rng;

use super::*;
use crate::store::{Laggard, Watermark};

const TOPICS: u64 = 4;
/// A topic whose content is fetched: only the newest version counts.
const FETCHED: TopicId = TopicId(4);
const HOSTS: u64 = 4;
/// A lease, in seconds, that outlives the simulation.
const LONG: u64 = 100_000_000;

/// What the store would hold: what a machine is started from after a crash.
#[derive(Default)]
struct Durable {
    slots: BTreeMap<SubscriptionId, Slot>,
    heads: HashMap<TopicId, Offset>,
    /// The oldest notification that retention has left.
    firsts: HashMap<TopicId, Offset>,
    marks: HashMap<TopicId, Watermark>,
    laggards: BTreeMap<(TopicId, SubscriptionId), Laggard>,
    skips: Vec<Skip>,
}

/// What a subscriber has got, each offset with the checkpoint interval in which the hub learned that it came; `None` where a
/// crash may have made the hub forget it.
#[derive(Default)]
struct Inbox {
    got: BTreeMap<Offset, Option<u32>>,
    last: Option<Offset>,
}

struct World {
    rng: Rng,
    now: Now,
    durable: Durable,
    machine: Machine,
    in_flight: Vec<Attempt>,
    inboxes: BTreeMap<SubscriptionId, Inbox>,
    /// Subscribers that refuse everything from now on.
    sick: HashMap<SubscriptionId, u16>,
    /// Checkpoints taken, and how many of them the store has.
    interval: u32,
    saved: u32,
    /// A checkpoint that the store did not take yet; until it does, nothing is sent.
    unsaved: Option<Checkpoint>,
    next_id: u64,
}

fn limits() -> Limits {
    let second = Duration::from_secs(1);
    let retry = RetryPolicy {
        trouble: vec![second, 4 * second, 9 * second],
        refused: vec![second],
        gone_confirm_after: second,
    };
    Limits { per_host: 3, window: 5, retry }
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Now::read();
        // The schedule's jitter comes from here.
        fastrand::seed(seed);
        Self {
            rng: Rng::with_seed(seed),
            now,
            durable: Durable::default(),
            machine: Machine::new(Shard(0), limits(), ShardState::default(), now),
            in_flight: Vec::new(),
            inboxes: BTreeMap::new(),
            sick: HashMap::new(),
            interval: 1,
            saved: 0,
            unsaved: None,
            next_id: 1,
        }
    }

    fn topic(&self, id: TopicId) -> Topic {
        let head = self.durable.heads.get(&id).copied().unwrap_or_default();
        Topic {
            id,
            url: "http://source.example/t".parse().unwrap(),
            first: Offset(1),
            head,
            latest: if id == FETCHED { head } else { Offset(0) },
            posted: if id == FETCHED { Offset(0) } else { head },
        }
    }

    fn first(&self, id: TopicId) -> Offset {
        self.durable.firsts.get(&id).copied().unwrap_or(Offset(1))
    }

    /// Retention forgets everything but the newest notification.
    fn trim(&mut self) {
        let topic = self.any_topic();
        let head = self.topic(topic).head.max(Offset(1));
        self.durable.firsts.insert(topic, head);
    }

    fn any_topic(&mut self) -> TopicId {
        TopicId(self.rng.u64(1..=TOPICS))
    }

    fn publish(&mut self) {
        let topic = self.any_topic();
        let head = self.durable.heads.entry(topic).or_default();
        *head = head.next();
        let rule = if topic == FETCHED { Rule::Latest } else { Rule::Every };
        let event = StoreEvent::Appended { topic, offset: *head, rule };
        self.machine.apply(&event);
    }

    fn subscribe(&mut self) {
        let lease_end = self.some_lease();
        self.subscribe_until(lease_end);
    }

    fn subscribe_until(&mut self, lease_end: DateTime) {
        let topic = self.any_topic();
        let id = SubscriptionId(self.next_id);
        self.next_id += 1;
        let slot = Slot {
            id,
            topic,
            origin: format!("http://host{}.example", self.rng.u64(0..HOSTS)),
            start: self.topic(topic).head,
            lease_end,
        };
        self.durable.slots.insert(id, slot.clone());
        self.inboxes.insert(id, Inbox::default());
        let topic = Box::new(self.topic(topic));
        self.machine.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
    }

    /// Most leases outlive the simulation, some are short.
    fn some_lease(&mut self) -> DateTime {
        let seconds = if self.rng.u8(0..4) == 0 { self.rng.u64(1..30) } else { LONG };
        self.lease(seconds)
    }

    fn lease(&self, seconds: u64) -> DateTime {
        DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(seconds))
    }

    fn renew(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let lease_end = self.some_lease();
        let slot = self.durable.slots.get_mut(&id).unwrap();
        slot.lease_end = lease_end;
        let slot = slot.clone();
        let topic = Box::new(self.topic(slot.topic));
        self.machine.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
    }

    fn unsubscribe(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let slot = self.durable.slots.remove(&id).unwrap();
        self.durable.laggards.remove(&(slot.topic, id));
        self.inboxes.remove(&id);
        self.machine.apply(&StoreEvent::Unsubscribed { shard: Shard(0), topic: slot.topic, id });
    }

    fn some_subscription(&mut self) -> Option<SubscriptionId> {
        let ids: Vec<_> = self.durable.slots.keys().copied().collect();
        self.rng.choice(ids)
    }

    fn send(&mut self) {
        if self.unsaved.is_some() {
            return;
        }
        for _ in 0..self.rng.usize(1..20) {
            match self.machine.next(self.now) {
                Some(attempt) => {
                    if let Some(slot) = self.durable.slots.get(&attempt.subscription) {
                        assert!(
                            slot.lease_end > self.now.wall,
                            "W-123: {attempt:?} after the end of its lease"
                        );
                    }
                    self.in_flight.push(attempt);
                }
                None => return,
            }
        }
    }

    fn answer(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = self.rng.usize(0..self.in_flight.len());
        let attempt = self.in_flight.swap_remove(at);
        let (first, offset) = (self.first(attempt.topic), sent(&attempt));
        if offset < first {
            return self.machine.finished(&attempt, Finished::Gap { next: first }, self.now);
        }
        if self.rng.u8(0..30) == 0 {
            return self.machine.finished(&attempt, Finished::Postponed, self.now);
        }
        let outcome = match self.sick.get(&attempt.subscription) {
            Some(status) => Outcome::of_status(http::StatusCode::from_u16(*status).unwrap(), None),
            None if self.rng.u8(0..20) == 0 => Outcome::unreachable(),
            None => Outcome::Delivered,
        };
        if outcome == Outcome::Delivered {
            self.receive(attempt, Some(self.interval));
        }
        self.machine.finished(&attempt, Finished::Answered { offset, outcome }, self.now);
    }

    /// `learned` is the interval in which the hub learns of it.
    fn receive(&mut self, attempt: Attempt, learned: Option<u32>) {
        let Some(slot) = self.durable.slots.get(&attempt.subscription) else { return };
        let (offset, first) = (sent(&attempt), self.first(attempt.topic));
        assert!(offset > slot.start, "{attempt:?} is older than its subscription");
        let excused = |offset: Offset| {
            let skips = self.durable.skips.iter().chain(&self.machine.skips);
            let mut skips = skips.chain(self.unsaved.iter().flat_map(|checkpoint| &checkpoint.skips));
            offset < first || skips.any(|s| s.subscription == attempt.subscription && s.offset == offset)
        };
        let inbox = self.inboxes.get_mut(&attempt.subscription).unwrap();
        let last = inbox.last.unwrap_or(slot.start);
        if let Some(earlier) = inbox.got.get(&offset) {
            assert_eq!(*earlier, None, "{attempt:?} came twice although the hub knew it for two checkpoints");
        } else if attempt.topic == FETCHED {
            assert!(offset > last, "{attempt:?} is older than what came before");
        } else {
            let mut between = (last.0 + 1..offset.0).map(Offset);
            let missing = between.find(|offset| !excused(*offset) && !inbox.got.contains_key(offset));
            assert_eq!(missing, None, "{attempt:?} came too early");
        }
        inbox.got.insert(offset, learned);
        inbox.last = Some(offset);
    }

    /// As a worker does: a checkpoint that was not taken is offered again before there is another one.
    fn checkpoint(&mut self) {
        if self.unsaved.is_none() {
            self.unsaved = Some(self.machine.checkpoint(self.now));
            self.interval += 1;
        }
        if self.rng.u8(0..6) > 0 {
            self.save();
        }
        for (topic, id, why) in self.machine.take_ended() {
            // As the store does: a renewal at the last moment wins, and an end is no error when it comes twice.
            let Some(slot) = self.durable.slots.get(&id) else { continue };
            if why == Ended::Expired && slot.lease_end > self.now.wall {
                continue;
            }
            self.durable.slots.remove(&id);
            self.durable.laggards.remove(&(topic, id));
            self.inboxes.remove(&id);
            self.machine.apply(&StoreEvent::Unsubscribed { shard: Shard(0), topic, id });
        }
    }

    fn save(&mut self) {
        let Some(checkpoint) = self.unsaved.take() else { return };
        self.saved = self.interval - 1;
        self.durable.marks.extend(checkpoint.watermarks);
        for laggard in checkpoint.laggards {
            if self.durable.slots.contains_key(&laggard.subscription) {
                self.durable.laggards.insert((laggard.topic, laggard.subscription), laggard);
            }
        }
        for key in checkpoint.caught_up {
            self.durable.laggards.remove(&key);
        }
        self.durable.skips.extend(checkpoint.skips);
    }

    /// The process dies. Requests under way may have arrived or not; nobody will ever know here.
    fn crash(&mut self) {
        for attempt in std::mem::take(&mut self.in_flight) {
            if self.rng.bool() && !self.sick.contains_key(&attempt.subscription) {
                self.receive(attempt, None);
            }
        }
        self.unsaved = None;
        for learned in self.inboxes.values_mut().flat_map(|inbox| inbox.got.values_mut()) {
            *learned = learned.filter(|interval| *interval < self.saved);
        }
        self.interval = self.saved + 1;
        let state = ShardState {
            slots: self.durable.slots.values().cloned().collect(),
            topics: (1..=TOPICS).map(|id| self.topic(TopicId(id))).collect(),
            watermarks: self.durable.marks.iter().map(|(topic, mark)| (*topic, *mark)).collect(),
            laggards: self.durable.laggards.values().copied().collect(),
        };
        self.machine = Machine::new(Shard(0), limits(), state, self.now);
    }

    fn wait(&mut self, seconds: u64) {
        self.now.monotonic += Duration::from_secs(seconds);
        self.now.wall =
            DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(seconds));
    }

    /// Somebody sets the wall clock, by up to a minute either way.
    fn jump(&mut self) {
        let (back, seconds) = (self.rng.bool(), Duration::from_secs(self.rng.u64(0..60)));
        let wall = self.now.wall.to_system_time();
        self.now.wall = DateTime::from_system_time(if back { wall - seconds } else { wall + seconds });
    }

    fn anything(&mut self) {
        match self.rng.u8(0..100) {
            0..15 => self.publish(),
            15..20 => self.subscribe(),
            20..22 => self.unsubscribe(),
            22..24 => self.renew(),
            24..25 => self.machine.expire(self.now),
            25..50 => self.send(),
            50..85 => self.answer(),
            85..92 => self.checkpoint(),
            92..95 => {
                let seconds = self.rng.u64(0..5);
                self.wait(seconds);
            }
            95..97 => {
                if let Some(id) = self.some_subscription() {
                    let status = *self.rng.choice(&[404_u16, 410, 500]).unwrap();
                    self.sick.insert(id, status);
                }
            }
            97 => self.sick.clear(),
            98 => match self.rng.u8(0..3) {
                0 => self.trim(),
                1 => self.jump(),
                _ => self.sick.clear(),
            },
            _ => self.crash(),
        }
    }

    /// Everybody is well again and has all the time in the world.
    fn run_dry(&mut self) {
        self.sick.clear();
        for _ in 0..10_000 {
            self.save();
            self.send();
            while !self.in_flight.is_empty() {
                while !self.in_flight.is_empty() {
                    self.answer();
                }
                self.send();
            }
            self.checkpoint();
            if self.machine.next_timer().is_none() && self.is_complete() {
                return;
            }
            self.wait(5);
        }
        let missing: Vec<_> = self.durable.slots.values().map(|slot| (slot, self.missing(slot))).collect();
        panic!("deliveries never came to an end: {missing:#?} {:?}", self.machine);
    }

    fn is_complete(&self) -> bool {
        self.durable.slots.values().all(|slot| self.missing(slot).is_none())
    }

    fn missing(&self, slot: &Slot) -> Option<Offset> {
        let inbox = &self.inboxes[&slot.id];
        let head = self.topic(slot.topic).head;
        let owed = if slot.topic == FETCHED { head } else { slot.start.next().max(self.first(slot.topic)) };
        (owed.max(slot.start.next()).0..=head.0).map(Offset).find(|offset| {
            let skipped = self.durable.skips.iter().any(|s| s.subscription == slot.id && s.offset == *offset);
            !skipped && !inbox.got.contains_key(offset)
        })
    }
}

/// What the courier sends for an attempt: the newest version where only that counts.
fn sent(attempt: &Attempt) -> Offset {
    if attempt.topic == FETCHED { attempt.offset.max(attempt.latest) } else { attempt.offset }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
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
    world.save();
    world.checkpoint();
    world.save();
    assert!(world.durable.laggards.is_empty(), "seed {seed}: everybody is done, nobody is behind");
    assert_eq!(world.machine.laggards(), 0, "seed {seed}");
}

#[test]
fn nothing_owed_is_lost_or_out_of_order_whatever_happens() {
    for seed in 0..1_500 {
        run(seed);
    }
}

#[test]
fn a_healthy_fan_out_leaves_a_watermark_and_hardly_any_records_of_subscriptions() {
    let mut world = World::new(7);
    (0..500).for_each(|_| world.subscribe_until(world.lease(LONG)));
    (0..TOPICS * 4).for_each(|_| world.publish());
    let (mut records, mut deliveries) = (0, 0);
    while let Some(attempt) = world.machine.next(world.now) {
        deliveries += 1;
        world.receive(attempt, Some(1));
        let finished = Finished::Answered { offset: sent(&attempt), outcome: Outcome::Delivered };
        world.machine.finished(&attempt, finished, world.now);
        if world.rng.u16(0..200) == 0 {
            let checkpoint = world.machine.checkpoint(world.now);
            records += checkpoint.laggards.len();
            assert!(checkpoint.watermarks.len() as u64 <= TOPICS);
        }
    }
    assert!(world.is_complete());
    // Only those who are under way when one sweep gives way to the next are written down for a moment.
    assert!(records * 20 < deliveries, "{records} records for {deliveries} deliveries");
}

#[test]
fn w160_after_a_skip_the_next_notification_is_tried_at_once() {
    let mut world = World::new(11);
    world.subscribe_until(world.lease(LONG));
    let (id, topic) = world.durable.slots.values().map(|slot| (slot.id, slot.topic)).next().unwrap();
    let publish = |world: &mut World| {
        let head = world.durable.heads.entry(topic).or_default();
        *head = head.next();
        let event = StoreEvent::Appended { topic, offset: *head, rule: Rule::Every };
        world.machine.apply(&event);
    };
    publish(&mut world);
    world.sick.insert(id, 404);
    for _ in 0..2 {
        world.send();
        world.answer();
        world.wait(2);
    }
    assert!(world.machine.next(world.now).is_none(), "the first notification has been given up");
    assert_eq!(world.machine.take_counts().skipped, 1);
    world.sick.clear();
    publish(&mut world);
    let attempt = world.machine.next(world.now).expect("the next notification is tried");
    assert_eq!((attempt.offset, attempt.number), (Offset(2), 1));
}
