//! A seeded simulation of one shard: publishes, subscribers of every temper, crashes at any moment, against a naive model.
//!
//! The model knows what each subscriber was owed and what it got. Nothing owed may be missing at the end, nothing may
//! arrive out of order, and only what was under way at a crash, or younger than two checkpoints then, may arrive twice; after
//! a stop, only what was under way.

use std::collections::{BTreeMap, HashMap, HashSet};

use fastrand::Rng;

use super::lanes::OpenLanes;
use super::*;
use crate::store::{Gap, Laggard, Offset, Topic, Uptime, Watermark};

mod adversaries;
mod clock;
mod owners;
mod scenarios;
mod tenants;

const TOPICS: u64 = 4;
/// A topic whose content is fetched: only the newest version counts.
const FETCHED: TopicId = TopicId(4);
/// A topic whose content is posted at times and fetched at times.
const MIXED: TopicId = TopicId(3);
const HOSTS: u64 = 4;
/// A lease, in seconds, that outlives the simulation.
const LONG: u64 = 100_000_000;

/// What the store would hold: what a scheduler is started from after a crash.
#[derive(Default)]
struct Durable {
    slots: BTreeMap<SubscriptionId, SubscriptionSummary>,
    /// What was appended, from offset 1 on.
    logs: HashMap<TopicId, Vec<ContentKind>>,
    /// The oldest notification that retention has left.
    firsts: HashMap<TopicId, Offset>,
    marks: HashMap<TopicId, Watermark>,
    laggards: BTreeMap<(TopicId, SubscriptionId), Laggard>,
    paused: BTreeSet<TopicId>,
    skips: Vec<Skip>,
    gaps: Vec<Gap>,
    /// When the hub was up last.
    seen: Option<DateTime>,
}

impl Durable {
    fn save(&mut self, checkpoint: &Checkpoint) {
        self.marks.extend(checkpoint.watermarks.iter().copied());
        for key in &checkpoint.caught_up {
            self.laggards.remove(key);
        }
        for laggard in &checkpoint.laggards {
            if self.slots.contains_key(&laggard.subscription) {
                self.laggards.insert((laggard.topic, laggard.subscription), *laggard);
            }
        }
        let owed_again = |skip: &Skip| {
            checkpoint.replayed.iter().any(|replayed| replayed.covers(skip))
                && !checkpoint.skips.contains(skip)
        };
        self.skips.retain(|skip| !owed_again(skip));
        for skip in &checkpoint.skips {
            if !self.skips.contains(skip) {
                self.skips.push(*skip);
            }
        }
        self.gaps.extend(checkpoint.gaps.iter().copied());
    }
}

/// What a subscriber has got, each offset with the checkpoint interval in which the hub learned that it came; `None` where a
/// crash may have made the hub forget it.
#[derive(Default)]
struct Inbox {
    got: BTreeMap<Offset, Option<u32>>,
    last: Option<Offset>,
}

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
}

fn limits() -> Limits {
    let second = Duration::from_secs(1);
    let retry = RetryPolicy {
        trouble: vec![second, 2 * second, 4 * second, 6 * second, 9 * second],
        refused: vec![second],
        gone_confirm_after: second,
    };
    let breaker = BreakerPolicy { failures: 3, open: 2 * second, open_max: 10 * second };
    Limits {
        per_host: 3,
        window: 5,
        retry,
        breaker,
        steps: 256,
        worker: WorkerState::new(1_000, 3, std::time::Instant::now()),
    }
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
            scheduler: Scheduler::new(Shard(0), limits(), ShardState::default(), Clock::new(now, None), now),
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
        }
    }

    fn topic(&self, id: TopicId) -> Topic {
        let log = self.durable.logs.get(&id).map_or([].as_slice(), Vec::as_slice);
        let newest = |of| log.iter().rposition(|kind| *kind == of).map_or(0, |index| index as u64 + 1);
        Topic {
            id,
            url: "http://source.example/t".parse().unwrap(),
            first: self.first(id),
            head: Offset(log.len() as u64),
            latest: Offset(newest(ContentKind::Fetched)),
            posted: Offset(newest(ContentKind::Posted)),
        }
    }

    fn kind(&self, topic: TopicId, offset: Offset) -> ContentKind {
        self.durable.logs[&topic][usize::try_from(offset.0).unwrap() - 1]
    }

    /// What the sender sends for an attempt now, or what it answers instead.
    fn owed(&self, attempt: &Attempt) -> Result<Offset, Finished> {
        let Topic { first, head, .. } = self.topic(attempt.topic);
        let mut sought = attempt.sought();
        loop {
            let found = sought.max(first);
            if found > head {
                let gap = Finished::Gap { from: sought, next: first };
                return Err(if first > sought { gap } else { Finished::Postponed });
            }
            match attempt.judge(sought, found, self.kind(attempt.topic, found)) {
                Find::Send => return Ok(found),
                Find::Gap => return Err(Finished::Gap { from: sought, next: found }),
                Find::Later => return Err(Finished::Superseded),
                Find::Pass => sought = found.next(),
            }
        }
    }

    /// What the scheduler says that it owes in all: the subscriptions, one by one, that are not done through the newest notification.
    fn owed_in_all(&self) -> Owed {
        self.assert_counts();
        let owed = self.scheduler.owed(self.now);
        let progress = self
            .durable
            .slots
            .values()
            .filter_map(|slot| self.scheduler.progress(slot.topic, slot.id, self.now));
        let behind = progress.filter(|one| one.cursor < one.head).count();
        assert_eq!(owed.in_turn + owed.behind, behind, "{:?}", self.scheduler);
        owed
    }

    /// What the scheduler counts without looking at each subscription.
    fn assert_counts(&self) {
        let now = self.now;
        let in_force = self.durable.slots.values().filter(|slot| slot.lease_end > now.wall);
        assert_eq!(self.scheduler.in_force(now), in_force.count(), "{:?}", self.scheduler);
        for id in self.scheduler.topics.keys() {
            let TopicCounts { subscriptions, laggards } = self.scheduler.topic_counts(*id, now);
            let slots = self.durable.slots.values();
            let in_force = slots.filter(|slot| slot.topic == *id && slot.lease_end > now.wall);
            let late = self.scheduler.laggards(None, usize::MAX, now).into_iter();
            let late = late.filter(|late| late.topic == *id);
            assert_eq!((subscriptions, laggards), (in_force.count(), late.count()), "{:?}", self.scheduler);
        }
    }

    fn first(&self, id: TopicId) -> Offset {
        self.durable.firsts.get(&id).copied().unwrap_or(Offset(1))
    }

    /// Retention forgets everything but the newest notification; of what is fetched for strangers that may have to make room too.
    fn trim(&mut self) {
        let topic = self.any_topic();
        let head = self.topic(topic).head;
        let all = topic == FETCHED && self.rng.bool();
        self.durable.firsts.insert(topic, if all { head.next() } else { head.max(Offset(1)) });
        self.seen.emptied += usize::from(all);
    }

    fn any_topic(&mut self) -> TopicId {
        TopicId(self.rng.u64(1..=TOPICS))
    }

    fn publish(&mut self) {
        let topic = self.any_topic();
        self.publish_to(topic);
    }

    fn publish_to(&mut self, topic: TopicId) {
        let kind = match topic {
            FETCHED => ContentKind::Fetched,
            MIXED if self.rng.bool() => ContentKind::Fetched,
            _ => ContentKind::Posted,
        };
        self.durable.logs.entry(topic).or_default().push(kind);
        let (offset, bytes) = (self.topic(topic).head, 1 << self.rng.u32(0..=20));
        let event = StoreEvent::Appended { topic, offset, kind, bytes };
        self.scheduler.apply(&event);
    }

    fn subscribe(&mut self) {
        let lease_end = self.some_lease();
        self.subscribe_until(lease_end);
    }

    fn subscribe_until(&mut self, lease_end: DateTime) {
        let topic = self.any_topic();
        self.subscribe_to(topic, lease_end);
    }

    fn subscribe_to(&mut self, topic: TopicId, lease_end: DateTime) -> SubscriptionId {
        let id = SubscriptionId(self.next_id);
        self.next_id += 1;
        let slot = SubscriptionSummary {
            id,
            topic,
            origin: format!("http://host{}.example", self.rng.u64(0..HOSTS)).into(),
            start: self.topic(topic).head,
            lease_end,
            address: None,
        };
        self.durable.slots.insert(id, slot.clone());
        self.inboxes.insert(id, Inbox::default());
        let topic = Box::new(self.topic(topic));
        self.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
        id
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
        let slot = self.renewed(id, lease_end);
        if self.in_flight.iter().any(|attempt| attempt.subscription == id) {
            self.sent_before_yes.insert(id);
        }
        let topic = Box::new(self.topic(slot.topic));
        self.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
    }

    /// What the store has of a subscription that said yes now; the scheduler does not know it yet.
    fn renewed(&mut self, id: SubscriptionId, lease_end: DateTime) -> SubscriptionSummary {
        // The moments of this world are whole seconds. Two yeses of one subscriber take longer than none.
        self.renewals += 1;
        let later = lease_end.to_system_time() + Duration::from_millis(self.renewals);
        let slot = self.durable.slots.get_mut(&id).unwrap();
        slot.lease_end = DateTime::from_system_time(later);
        self.gone.remove(&id);
        slot.clone()
    }

    fn unsubscribe(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let slot = self.durable.slots.remove(&id).unwrap();
        self.durable.laggards.remove(&(slot.topic, id));
        self.inboxes.remove(&id);
        self.scheduler.apply(&StoreEvent::Unsubscribed { shard: Shard(0), topic: slot.topic, id });
    }

    fn some_subscription(&mut self) -> Option<SubscriptionId> {
        let ids: Vec<_> = self.durable.slots.keys().copied().collect();
        self.rng.choice(ids)
    }

    fn send(&mut self) {
        if self.unsaved.is_some() {
            return;
        }
        // Other shards may have taken what a lane has.
        let permits = [(); 3].map(|()| self.rng.u8(0..8) > 0);
        let open = OpenLanes::new(|lane| permits[lane as usize]);
        for _ in 0..self.rng.usize(1..20) {
            match self.scheduler.next(self.now, open) {
                Some(attempt) => {
                    assert!(
                        !self.durable.paused.contains(&attempt.topic),
                        "{attempt:?} although it is paused"
                    );
                    self.seen.suspects += usize::from(attempt.past_suspect);
                    if let Some(slot) = self.durable.slots.get(&attempt.subscription) {
                        assert!(
                            slot.lease_end > self.now.wall,
                            "W-123: {attempt:?} after the end of its lease"
                        );
                        // A proven subscription may have more where others hang.
                        let most = limits().per_host * if attempt.permit.is_proven { 2 } else { 1 };
                        assert!(
                            self.under_way(&slot.origin) < most,
                            "{attempt:?} although its host has all that it may have"
                        );
                    }
                    self.in_flight.push(attempt);
                }
                None if self.scheduler.is_interrupted() => self.seen.interruptions += 1,
                None => return,
            }
        }
    }

    /// Requests to this host, apart from those whose subscription has ended.
    fn under_way(&self, origin: &str) -> usize {
        let to = |attempt: &&Attempt| {
            self.durable.slots.get(&attempt.subscription).is_some_and(|slot| *slot.origin == *origin)
        };
        self.in_flight.iter().filter(to).count()
    }

    fn answer(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = self.rng.usize(0..self.in_flight.len());
        let attempt = self.in_flight.swap_remove(at);
        let sent_before_yes = self.sent_before_yes.remove(&attempt.subscription);
        let offset = match self.owed(&attempt) {
            Ok(offset) => offset,
            Err(without) => return self.scheduler.finished(&attempt, without, self.now),
        };
        if self.rng.u8(0..30) == 0 {
            let finished = match self.rng.u8(0..4) {
                0 => Finished::RateLimited(Duration::from_secs(self.rng.u64(0..20))),
                1 => Finished::Reverifying,
                _ => Finished::Postponed,
            };
            return self.scheduler.finished(&attempt, finished, self.now);
        }
        let outcome = match self.sick.get(&attempt.subscription).copied() {
            None if self.suspects.contains(&(attempt.subscription, offset)) => match offset.0 % 2 {
                0 => Outcome::cut(),
                _ => Outcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None),
            },
            Some(status) => {
                if status == 410 && !sent_before_yes {
                    self.count_gone(&attempt);
                }
                let hint = (self.rng.u8(0..3) == 0).then(|| Duration::from_secs(self.rng.u64(0..7_200)));
                Outcome::of_status(http::StatusCode::from_u16(status).unwrap(), hint)
            }
            None if self.rng.u8(0..20) == 0 => Outcome::unreachable(),
            None => Outcome::Delivered,
        };
        if outcome == Outcome::Delivered {
            self.receive(attempt, offset, Some(self.interval));
        }
        self.scheduler.finished(&attempt, Finished::Answered { offset, outcome }, self.now);
    }

    fn count_gone(&mut self, attempt: &Attempt) {
        *self.gone.entry(attempt.subscription).or_default() += 1;
    }

    /// `learned` is the interval in which the hub learns of it.
    fn receive(&mut self, attempt: Attempt, offset: Offset, learned: Option<u32>) {
        let Some(slot) = self.durable.slots.get(&attempt.subscription) else { return };
        let (first, log) = (self.first(attempt.topic), &self.durable.logs[&attempt.topic]);
        let kind = |offset: Offset| log[usize::try_from(offset.0).unwrap() - 1];
        assert!(offset > slot.start, "{attempt:?} is older than its subscription");
        let excused = |offset: Offset| {
            let skips = self.durable.skips.iter().chain(&self.scheduler.unsaved.skips);
            let mut skips = skips.chain(self.unsaved.iter().flat_map(|checkpoint| &checkpoint.skips));
            // A suspect is given up at once when the next one is taken.
            let suspected = attempt.past_suspect && offset.next() == attempt.offset;
            offset < first
                || suspected
                || skips.any(|s| s.subscription == attempt.subscription && s.offset == offset)
        };
        let inbox = self.inboxes.get_mut(&attempt.subscription).unwrap();
        if self.outdated.remove(&(attempt.subscription, offset)) {
            inbox.got.entry(offset).or_default();
            return;
        }
        let last = inbox.last.unwrap_or(slot.start);
        if let Some(earlier) = inbox.got.get(&offset) {
            assert_eq!(*earlier, None, "{attempt:?} came twice although the hub knew it for two checkpoints");
        } else {
            // Where a sweep has not left behind what was posted, a crash may bring a version back that it was about.
            let forgotten = attempt.topic == MIXED && inbox.got.get(&last).is_none_or(Option::is_none);
            let ordered = kind(offset) == ContentKind::Posted || offset > last || forgotten;
            assert!(ordered, "{attempt:?} is older than what came before");
            let mut between =
                (last.0 + 1..offset.0).map(Offset).filter(|offset| kind(*offset) == ContentKind::Posted);
            let missing = between.find(|offset| !excused(*offset) && !inbox.got.contains_key(offset));
            assert_eq!(missing, None, "{attempt:?} came too early");
        }
        inbox.got.insert(offset, learned);
        inbox.last = Some(offset);
    }

    /// As a worker does: a checkpoint that was not taken is offered again before there is another one.
    fn checkpoint(&mut self) {
        self.seen.breakers += self.scheduler.take_opened().len();
        if self.unsaved.is_none() {
            self.unsaved = Some(self.scheduler.checkpoint(self.now));
            self.interval += 1;
        }
        match self.rng.u8(0..12) {
            // It is durable, and the hub hears of an error: the same is saved again.
            0 => {
                let checkpoint = self.unsaved.clone().expect("it was taken a moment ago");
                self.save_all_of(&checkpoint);
                self.seen.unlearned += 1;
            }
            1 | 2 => {}
            _ => self.save(),
        }
        self.take_ended();
        for (topic, id, why) in std::mem::take(&mut self.ending) {
            // As the store does: a renewal at the last moment wins, and an end is no error when it comes twice.
            let Some(slot) = self.durable.slots.get(&id) else { continue };
            match why {
                Ended::Expired if slot.lease_end > self.now.wall => continue,
                Ended::Gone { lease_end } if slot.lease_end != lease_end => continue,
                Ended::Gone { .. } => {
                    assert!(self.gone.contains_key(&id), "W-151: {id:?} ends although it has said yes since");
                }
                Ended::Expired => {}
            }
            self.durable.slots.remove(&id);
            self.durable.laggards.remove(&(topic, id));
            self.inboxes.remove(&id);
            self.scheduler.apply(&StoreEvent::Unsubscribed { shard: Shard(0), topic, id });
        }
    }

    /// What is over is on its way to the store, which takes its time.
    fn take_ended(&mut self) {
        self.ending.extend(self.scheduler.take_ended(2));
    }

    fn save(&mut self) {
        let Some(checkpoint) = self.unsaved.take() else { return };
        self.save_all_of(&checkpoint);
    }

    /// The store has it, and the hub may not hear of that.
    fn save_all_of(&mut self, checkpoint: &Checkpoint) {
        self.saved = self.interval - 1;
        self.durable.seen = Some(self.now.wall);
        self.durable.save(checkpoint);
    }

    /// The process dies, and with it what it has learned in the interval of the last checkpoint and since.
    fn crash(&mut self) {
        self.end_life(self.saved);
    }

    /// The hub stops while requests are under way that never end: whatever it has learned by then stays known.
    fn stop(&mut self) {
        self.save();
        self.scheduler.detach_all();
        self.checkpoint();
        self.save();
        self.end_life(self.interval);
    }

    /// Requests under way may have arrived or not; nobody will ever know here. What was learned before the interval `forgotten`
    /// is still known in the next life.
    fn end_life(&mut self, forgotten: u32) {
        for attempt in std::mem::take(&mut self.in_flight) {
            let Ok(offset) = self.owed(&attempt) else { continue };
            let refused = self.suspects.contains(&(attempt.subscription, offset));
            if self.rng.bool() && !refused && !self.sick.contains_key(&attempt.subscription) {
                self.receive(attempt, offset, None);
            }
        }
        self.unsaved = None;
        self.ending.clear();
        self.sent_before_yes.clear();
        self.outdated.clear();
        for learned in self.inboxes.values_mut().flat_map(|inbox| inbox.got.values_mut()) {
            *learned = learned.filter(|interval| *interval < forgotten);
        }
        self.interval = self.saved + 1;
        let state = ShardState {
            slots: self.durable.slots.values().cloned().collect(),
            topics: (1..=TOPICS).map(|id| self.topic(TopicId(id))).collect(),
            watermarks: self.durable.marks.iter().map(|(topic, mark)| (*topic, *mark)).collect(),
            laggards: self.durable.laggards.values().copied().collect(),
            paused: self.durable.paused.iter().copied().collect(),
        };
        let uptime = Uptime { seen: self.durable.seen.unwrap_or(self.now.wall), clock_jumps: Vec::new() };
        let clock = Clock::new(self.now, doubt_at_start(&uptime, self.now));
        let limits = Limits { steps: self.steps, ..limits() };
        self.scheduler = Scheduler::new(Shard(0), limits, state, clock, self.now);
    }

    fn wait(&mut self, seconds: u64) {
        self.now.monotonic += Duration::from_secs(seconds);
        self.now.wall =
            DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(seconds));
    }

    /// The operator pauses a topic, or lets it go on.
    fn pause(&mut self) {
        let topic = self.any_topic();
        let event = if self.durable.paused.insert(topic) {
            self.seen.held += 1;
            StoreEvent::Paused { topic }
        } else {
            self.durable.paused.remove(&topic);
            StoreEvent::Resumed { topic }
        };
        self.scheduler.apply(&event);
    }

    /// The operator wants late subscriptions to be tried, or one notification to be given up.
    fn retry(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let command = match self.rng.u8(0..4) {
            0 => Command::Retry(Target::Topic(self.any_topic())),
            1 => Command::Retry(Target::Host(self.durable.slots[&id].origin.to_string())),
            2 => Command::Retry(Target::Subscription(id)),
            _ => Command::Skip(id),
        };
        self.scheduler.execute(&command, self.now);
    }

    /// The operator wants everything from somewhere on to be delivered once more, to one subscription or to all of a topic,
    /// and hears that it will be when that is durable.
    fn replay(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let topic = self.durable.slots[&id].topic;
        let from = Offset(self.rng.u64(0..=self.topic(topic).head.0 + 1));
        let subscription = self.rng.bool().then_some(id);
        self.save();
        let concerned = self.scheduler.execute(&Command::Replay { topic, subscription, from }, self.now);
        self.checkpoint();
        self.save();
        if concerned == 0 {
            return;
        }
        self.seen.replays += 1;
        let to = Offset(from.0.saturating_sub(1));
        let whose =
            |slot: &&SubscriptionSummary| slot.topic == topic && subscription.is_none_or(|id| slot.id == id);
        for slot in self.durable.slots.values().filter(whose) {
            let to = to.max(slot.start);
            let inbox = self.inboxes.get_mut(&slot.id).unwrap();
            inbox.got.split_off(&to.next());
            inbox.got.values_mut().for_each(|learned| *learned = None);
            inbox.last = inbox.last.map(|last| last.min(to));
            let under_way = self.in_flight.iter().filter(|attempt| attempt.subscription == slot.id);
            let sent: Vec<_> = under_way.filter_map(|attempt| self.owed(attempt).ok()).collect();
            self.outdated.extend(sent.into_iter().map(|offset| (slot.id, offset)));
        }
    }

    /// Somebody sets the wall clock, by up to hours either way.
    fn jump(&mut self) {
        let longest = if self.rng.bool() { 60 } else { 5 * 3_600 };
        let (back, seconds) = (self.rng.bool(), self.rng.u64(0..longest));
        if back { self.jump_back(seconds) } else { self.jump_forward(seconds) }
    }

    fn jump_forward(&mut self, seconds: u64) {
        self.now.wall =
            DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(seconds));
    }

    fn jump_back(&mut self, seconds: u64) {
        self.now.wall =
            DateTime::from_system_time(self.now.wall.to_system_time() - Duration::from_secs(seconds));
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
            let nothing_owed = self.owed_in_all() == Owed::default();
            assert!(
                !nothing_owed || self.those_in_force_miss_nothing(),
                "who misses something is owed it: {:?}",
                self.scheduler
            );
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

    /// Who is over stays until the store has ended it, and is owed nothing.
    fn those_in_force_miss_nothing(&self) -> bool {
        let mut in_force = self.durable.slots.values().filter(|slot| slot.lease_end > self.now.wall);
        in_force.all(|slot| self.missing(slot).is_none())
    }

    fn is_complete(&self) -> bool {
        self.durable.slots.values().all(|slot| self.missing(slot).is_none())
    }

    fn missing(&self, slot: &SubscriptionSummary) -> Option<Offset> {
        let inbox = &self.inboxes[&slot.id];
        let Topic { first, head, latest, .. } = self.topic(slot.topic);
        (slot.start.next().0..=head.0).map(Offset).find(|offset| {
            if self.kind(slot.topic, *offset) == ContentKind::Fetched
                && (*offset != latest || *offset < first)
            {
                return false;
            }
            // What is gone from the log is no secret.
            let mut gaps =
                self.durable.gaps.iter().filter(|gap| gap.subscription == slot.id && gap.to < first);
            if gaps.any(|gap| (gap.from..=gap.to).contains(offset)) {
                return false;
            }
            let skipped = self.durable.skips.iter().any(|s| s.subscription == slot.id && s.offset == *offset);
            !skipped && !inbox.got.contains_key(offset)
        })
    }
}

fn run(seed: u64) -> Seen {
    let _told = Told(seed);
    let mut world = World::new(seed);
    world.steps = world.rng.usize(1..10);
    world.scheduler.limits.steps = world.steps;
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
