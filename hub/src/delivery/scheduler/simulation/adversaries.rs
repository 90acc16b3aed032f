//! A seeded simulation of a worker's permits: subscribers that hold them for as long as they may, against those who answer.
//!
//! Several shards share the permits of one worker, and every adversary knows the constants. Honest subscribers' deliveries are taken up
//! within a bound of simulated time, whatever the adversaries draw.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fastrand::Rng;
use resync_core::datetime::DateTime;

use super::{Told, seeds};
use crate::delivery::scheduler::slowness::SLOW;
use crate::delivery::scheduler::{
    Attempt, BreakerPolicy, Clock, DeliveryOutcome, Finished, Lane, LaneLimiter, Limits, Now, RetryPolicy,
    Scheduler, WorkerState,
};
use crate::store::{
    ContentKind, Offset, Shard, ShardState, StoreEvent, SubscriptionId, SubscriptionSummary, Topic, TopicId,
};

const PERMITS: usize = 128;
const PER_HOST: usize = 8;
const SHARDS: usize = 4;
const ATTACKED: TopicId = TopicId(1);
const HONEST: TopicId = TopicId(2);
/// By so much later than without adversaries all honest subscribers have what was posted: a permit that was given away before may be held
/// for as long as nobody is slow, and one more second goes by where adversaries subscribe to the honest topic as well.
const BOUND: Duration = SLOW.saturating_add(Duration::from_secs(1));
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const MILLISECOND: Duration = Duration::from_millis(1);

/// How long a host takes for its n-th answer.
type Answers = Box<dyn Fn(u64) -> Duration>;

struct Host {
    address: IpAddr,
    is_honest: bool,
    answers: Answers,
    answered: u64,
    /// How a delivery ends that it answers now.
    outcome: DeliveryOutcome,
}

/// A worker, and the world around it.
struct World {
    now: Now,
    limiter: LaneLimiter,
    schedulers: Vec<Scheduler>,
    turn: usize,
    hosts: Vec<Host>,
    host_of: HashMap<SubscriptionId, usize>,
    under_way: BTreeMap<(std::time::Instant, u64), (usize, Attempt)>,
    heads: HashMap<TopicId, u64>,
    next_id: u64,
    next_checkpoint: std::time::Instant,
    /// Deliveries to honest subscribers.
    honest: usize,
    most_under_way: usize,
    in_slow_lane: usize,
}

impl World {
    fn new() -> Self {
        Self::with(RetryPolicy { trouble: vec![], refused: vec![], gone_confirm_after: Duration::ZERO })
    }

    /// One in which failures are repeated so.
    fn with(retry: RetryPolicy) -> Self {
        let now = Now::for_test();
        let worker = WorkerState::new(PERMITS, PER_HOST, now.monotonic);
        let limits = Limits {
            per_host: PER_HOST,
            window: 1_024,
            retry,
            breaker: BreakerPolicy { failures: 0, open: Duration::ZERO, open_max: Duration::ZERO },
            steps: 256,
            span: 4,
            passed_by: 8_192,
        };
        let scheduler = |shard: usize| {
            let (shard, clock) = (Shard(u16::try_from(shard).unwrap()), Clock::new(now, None));
            Scheduler::new(shard, limits.clone(), worker.clone(), ShardState::default(), clock, now)
        };
        Self {
            now,
            limiter: LaneLimiter::of_an_idle_worker(PERMITS),
            schedulers: (0..SHARDS).map(scheduler).collect(),
            turn: 0,
            hosts: Vec::new(),
            host_of: HashMap::new(),
            under_way: BTreeMap::new(),
            heads: HashMap::new(),
            next_id: 1,
            next_checkpoint: now.monotonic,
            honest: 0,
            most_under_way: 0,
            in_slow_lane: 0,
        }
    }

    fn topic(&self, id: TopicId) -> Topic {
        let head = Offset(self.heads.get(&id).copied().unwrap_or_default());
        let url = "http://source.example/t".parse().unwrap();
        Topic { id, url, first: Offset(1), head, latest: Offset(0), posted: head }
    }

    /// A host with so many subscriptions of a topic, at this address.
    fn join(&mut self, topic: TopicId, address: Ipv4Addr, subscriptions: usize, answers: Answers) {
        let is_honest = topic == HONEST;
        let (address, outcome) = (address.into(), DeliveryOutcome::Delivered);
        self.hosts.push(Host { address, is_honest, answers, answered: 0, outcome });
        self.subscribe(self.hosts.len() - 1, topic, subscriptions);
    }

    fn subscribe(&mut self, host: usize, topic: TopicId, subscriptions: usize) {
        let address = Some(self.hosts[host].address);
        let lease_end =
            DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(100_000));
        for _ in 0..subscriptions {
            let id = SubscriptionId(self.next_id);
            self.next_id += 1;
            self.host_of.insert(id, host);
            let origin = format!("http://host{host}.example").into();
            let slot = SubscriptionSummary { id, topic, origin, start: Offset(0), lease_end, address };
            let (at, known) = (host % SHARDS, Box::new(self.topic(topic)));
            let shard = Shard(u16::try_from(at).unwrap());
            self.schedulers[at].apply(&StoreEvent::Subscribed { shard, slot, topic: known });
        }
    }

    fn post(&mut self, topic: TopicId) {
        let head = self.heads.entry(topic).or_default();
        *head += 1;
        let event =
            StoreEvent::Appended { topic, offset: Offset(*head), kind: ContentKind::Posted, bytes: 100 };
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.apply(&event));
    }

    /// Makes as many requests as may be made, as a worker does.
    fn start(&mut self) {
        self.limiter.age(self.now.monotonic);
        let mut idle = 0;
        while idle < SHARDS {
            let open = self.limiter.open();
            if !open.any() && open.spare() == 0 {
                break;
            }
            self.turn = (self.turn + 1) % SHARDS;
            let Some(attempt) = self.schedulers[self.turn].next(self.now, open) else {
                idle += 1;
                continue;
            };
            idle = 0;
            self.limiter.take(attempt.charge.lane, attempt.charge.busy_from());
            self.in_slow_lane += usize::from(attempt.charge.lane == Lane::Slow);
            let host = &mut self.hosts[self.host_of[&attempt.subscription]];
            host.answered += 1;
            let due = self.now.monotonic + (host.answers)(host.answered);
            let number = self.under_way.len() as u64 + (self.next_id << 32);
            self.next_id += 1;
            self.under_way.insert((due, number), (self.turn, attempt));
        }
        self.most_under_way = self.most_under_way.max(self.under_way.len());
    }

    /// Goes on until the honest ones have so many deliveries, or so much time has passed; tells how much has.
    fn run(&mut self, longest: Duration, honest: usize) -> Duration {
        let began = self.now.monotonic;
        let end = began + longest;
        while self.now.monotonic < end && self.honest < honest {
            self.start();
            let answer = self.under_way.keys().next().map(|(due, _)| *due);
            // A worker whose lanes are full looks again every ten milliseconds.
            let look = self.now.monotonic + 10 * MILLISECOND;
            self.now.monotonic = answer.map_or(look, |due| due.min(look));
            while let Some(next) = self.under_way.first_entry()
                && next.key().0 <= self.now.monotonic
            {
                let (at, attempt) = next.remove();
                self.limiter.give_back(attempt.charge.lane, attempt.charge.busy_from());
                let host = &self.hosts[self.host_of[&attempt.subscription]];
                let outcome = host.outcome.clone();
                let is_delivered = host.is_honest && outcome == DeliveryOutcome::Delivered;
                self.honest += usize::from(attempt.topic == HONEST && is_delivered);
                let answered = Finished::Answered { offset: attempt.offset, outcome };
                self.schedulers[at].attempt_finished(&attempt, answered, self.now);
            }
            if self.now.monotonic >= self.next_checkpoint {
                self.next_checkpoint = self.now.monotonic + 125 * MILLISECOND;
                for scheduler in &mut self.schedulers {
                    scheduler.checkpoint(self.now);
                }
            }
        }
        self.now.monotonic - began
    }
}

fn always(took: Duration) -> Answers {
    Box::new(move |_| took)
}

/// Adversaries with far more to be sent than there are permits for, and what they are.
fn adversaries(world: &mut World, rng: &mut Rng) -> &'static str {
    let just_below = *rng.choice(&[2_900, 1_900]).unwrap() * MILLISECOND;
    let (kind, hosts): (_, u8) = match rng.u8(0..5) {
        0 => ("just below the constant, each on a network of its own", rng.u8(32..64)),
        1 => ("quick and slow by turns", rng.u8(32..64)),
        2 => ("many hosts on one network, below every bound", rng.u8(64..128)),
        3 => ("many origins with one owner, on a few networks", rng.u8(64..128)),
        _ => ("slow now and then, in as many permits as may be", rng.u8(32..64)),
    };
    let networks = rng.u8(2..6);
    let period = rng.u64(2..5);
    for host in 0..hosts {
        let own = Ipv4Addr::new(198, 18, host, 1);
        let (address, answers): (_, Answers) = match kind.as_bytes()[0] {
            b'j' => (own, always(just_below)),
            b'q' => (own, Box::new(move |n| if n % period == 0 { MILLISECOND } else { just_below })),
            b'm' if kind.starts_with("many hosts") => {
                (Ipv4Addr::new(198, 18, 0, host), always(480 * MILLISECOND))
            }
            b'm' => (Ipv4Addr::new(198, 18, host % networks, host), always(480 * MILLISECOND)),
            _ => (own, Box::new(move |n| if n % (4 * period) == 0 { just_below } else { 100 * MILLISECOND })),
        };
        world.join(ATTACKED, address, PER_HOST, answers);
    }
    kind
}

/// How long a post to honest subscribers takes while adversaries have been there for a while.
fn run(seed: u64) {
    let _told = Told(seed);
    let mut rng = Rng::with_seed(seed);
    fastrand::seed(seed);
    let mut world = World::new();
    let kind = adversaries(&mut world, &mut rng);
    // Some of them are subscribers of the honest topic as well, and the first of these.
    let joins = rng.choice([1..3, 100..500]).unwrap();
    for host in 0..world.hosts.len() {
        if rng.u8(0..4) == 0 {
            world.subscribe(host, HONEST, rng.usize(joins.clone()));
        }
    }
    let (hosts, of_each) = (rng.u8(1..8), rng.usize(5..20));
    let far = rng.u64(1..150);
    let mut alone = World::new();
    for world in [&mut world, &mut alone] {
        for host in 0..hosts {
            let answers: Answers = Box::new(move |n| Duration::from_millis(1 + far / 10 * (n % 3)));
            world.join(HONEST, Ipv4Addr::new(203, 0, host, 1), of_each, answers);
        }
    }
    (0..100).for_each(|_| world.post(ATTACKED));
    for round in 1..=3_usize {
        let warm_up = Duration::from_millis(rng.u64(0..15_000));
        world.run(warm_up, usize::MAX);
        world.post(HONEST);
        let expected = usize::from(hosts) * of_each * round;
        let took = world.run(Duration::from_secs(60), expected);
        alone.post(HONEST);
        let without = alone.run(Duration::from_secs(60), expected);
        assert!(
            world.honest == expected && took <= without + BOUND,
            "seed {seed}: {kind}: {} of {expected} after {took:?}, with {warm_up:?} before, and alone after {without:?}",
            world.honest
        );
    }
}

#[test]
fn honest_subscribers_are_served_in_time_whatever_holds_permits_beside_them() {
    seeds(25).for_each(run);
}

/// Whoever never answers has a permit for as long as a request may take. What is far away is slow while the hub is crowded.
#[test]
fn tarpits_on_two_networks_leave_permits_of_the_slow_lane_to_slow_hosts_elsewhere() {
    for seed in 0..4 {
        let (mut world, mut rng) = (World::new(), Rng::with_seed(seed));
        for host in 0..200_u8 {
            let address = Ipv4Addr::new(198, 18, host % 2, host);
            world.join(ATTACKED, address, 4 * PER_HOST, always(TIMEOUT));
        }
        for host in 0..64_u8 {
            world.join(ATTACKED, Ipv4Addr::new(198, 19, host, 1), PER_HOST, always(480 * MILLISECOND));
        }
        for host in 0..4_u8 {
            let took = rng.u32(600..2_900) * MILLISECOND;
            world.join(HONEST, Ipv4Addr::new(203, 0, host, 1), PER_HOST, always(took));
        }
        (0..100).for_each(|_| world.post(ATTACKED));
        world.run(Duration::from_secs(15), usize::MAX);
        for round in 1..=2 {
            world.post(HONEST);
            let took = world.run(Duration::from_secs(120), round * 4 * PER_HOST);
            assert!(took <= 2 * TIMEOUT, "seed {seed}: {took:?}");
        }
        assert!(world.in_slow_lane > 0);
    }
}

/// Retries have a quarter of all permits, and whoever refuses slowly comes there again and again.
#[test]
fn hosts_that_refuse_slowly_hold_up_no_retries_of_a_host_that_was_down_for_a_moment() {
    let schedule = vec![Duration::from_secs(10); 200];
    let gone_confirm_after = Duration::from_secs(60);
    let mut world =
        World::with(RetryPolicy { trouble: schedule.clone(), refused: schedule, gone_confirm_after });
    for host in 0..5_000_u16 {
        let [network, number] = (host % 1_000).to_be_bytes();
        world.join(ATTACKED, Ipv4Addr::new(198, 18, network / 4, number), 1, always(2_900 * MILLISECOND));
        world.hosts[usize::from(host)].outcome =
            DeliveryOutcome::of_status(http::StatusCode::NOT_FOUND, None);
    }
    world.join(HONEST, Ipv4Addr::new(203, 0, 113, 1), 100, always(10 * MILLISECOND));
    world.post(ATTACKED);
    world.run(Duration::from_secs(150), usize::MAX);
    world.hosts.last_mut().unwrap().outcome = DeliveryOutcome::unreachable();
    world.post(HONEST);
    world.run(Duration::from_secs(5), usize::MAX);
    assert_eq!(world.honest, 0);
    world.hosts.last_mut().unwrap().outcome = DeliveryOutcome::Delivered;
    let took = world.run(Duration::from_secs(1_000), 100);
    assert!(took <= Duration::from_secs(30), "{} of 100 after {took:?}", world.honest);
}

/// Deliveries within so long, and the most that were under way, where all subscribers are alike.
fn among_alike(hosts: u8, network: impl Fn(u8) -> Ipv4Addr, took: Duration) -> World {
    let mut world = World::new();
    for host in 0..hosts {
        world.join(HONEST, network(host), 2 * PER_HOST, always(took));
    }
    (0..100).for_each(|_| world.post(HONEST));
    world.run(Duration::from_secs(10), usize::MAX);
    world
}

#[test]
fn a_single_network_has_all_permits_that_nobody_else_waits_for() {
    let world = among_alike(64, |host| Ipv4Addr::new(203, 0, 113, host), 100 * MILLISECOND);
    assert!(world.most_under_way >= PERMITS * 8 / 10, "{}", world.most_under_way);
    assert!(world.honest >= 10 * 10 * PERMITS * 8 / 10, "{}", world.honest);
}

#[test]
fn where_all_subscribers_are_far_away_nobody_is_slow_for_that() {
    for took in [300, 700, 1_500] {
        let world = among_alike(64, |host| Ipv4Addr::new(203, 0, host, 1), took * MILLISECOND);
        assert_eq!(world.in_slow_lane, 0, "{took} ms");
        assert!(world.most_under_way >= PERMITS * 8 / 10, "{}", world.most_under_way);
    }
}
