//! Tenants of one origin in the world of the simulation: what those who fail cost those whose deliveries succeed.

use super::scenarios::{append, join};
use super::*;
use crate::delivery::scheduler::lanes::OpenLanes;
use crate::store::{Failing, Laggard, Topic, Watermark};

const ORIGIN: &str = "http://shared.example";
const HONEST: TopicId = TopicId(1);
/// Paths of the attacker's own that succeed: so many at most, with topics from here on.
const DECOYS: u64 = 8;
const DECOY: u64 = 2;
/// The first of the attacker's topics, whose subscribers fail.
const ATTACKED: u64 = 10;
/// A few seconds.
const BOUND: Duration = Duration::from_secs(5);
/// How long a request may hang.
const TIMEOUT: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(100);

/// A world whose limits are the release configuration's.
fn world(seed: u64) -> World {
    let mut world = World::new(seed);
    let (open, open_max) = (Duration::from_secs(30), Duration::from_secs(600));
    let mut limits =
        Limits { per_host: 8, breaker: BreakerPolicy { failures: 5, open, open_max }, ..limits() };
    limits.retry.trouble = [10, 30, 120, 600, 1_800, 3_600].map(Duration::from_secs).to_vec();
    limits.window = 1_024;
    let clock = Clock::new(world.now, None);
    world.scheduler = Scheduler::new(Shard(0), limits, worker(), ShardState::default(), clock, world.now);
    world
}

/// The next request, as a worker has it: one that was interrupted asks again at once.
fn next(world: &mut World) -> Option<Attempt> {
    loop {
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL);
        if attempt.is_some() || !world.scheduler.is_interrupted() {
            return attempt;
        }
    }
}

/// Answers everything that is sent now; returns the topics of what was delivered.
fn serve(world: &mut World, failure: impl Fn(TopicId) -> Option<DeliveryOutcome>) -> Vec<TopicId> {
    let mut delivered = Vec::new();
    loop {
        let attempts: Vec<_> = std::iter::from_fn(|| next(world)).collect();
        if attempts.is_empty() {
            return delivered;
        }
        for attempt in attempts {
            let outcome = failure(attempt.topic).unwrap_or(DeliveryOutcome::Delivered);
            if outcome == DeliveryOutcome::Delivered {
                delivered.push(attempt.topic);
            }
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.attempt_finished(&attempt, answered, world.now);
        }
    }
}

fn pass(world: &mut World, time: Duration) {
    world.now.monotonic += time;
    world.now.wall = DateTime::from_system_time(world.now.wall.to_system_time() + time);
}

/// An error, and a wish for an hour's peace.
fn an_hour_please() -> DeliveryOutcome {
    DeliveryOutcome::of_status(http::StatusCode::SERVICE_UNAVAILABLE, Some(Duration::from_secs(3_600)))
}

/// Serves what may be served, where some requests hang until their timeout, as `hanging` says until when.
fn serve_beside(
    world: &mut World,
    hanging: &mut Vec<(Instant, Attempt)>,
    hangs: bool,
    failure: impl Fn(TopicId) -> Option<DeliveryOutcome>,
) -> Vec<TopicId> {
    let now = world.now.monotonic;
    let (over, still): (Vec<_>, Vec<_>) =
        std::mem::take(hanging).into_iter().partition(|(due, _)| *due <= now);
    *hanging = still;
    for (_, attempt) in over {
        let answered = Finished::Answered { offset: attempt.offset, outcome: DeliveryOutcome::unreachable() };
        world.scheduler.attempt_finished(&attempt, answered, world.now);
    }
    if !hangs {
        return serve(world, failure);
    }
    let mut delivered = Vec::new();
    while let Some(attempt) = next(world) {
        if failure(attempt.topic).is_some() {
            hanging.push((now + TIMEOUT, attempt));
            continue;
        }
        delivered.push(attempt.topic);
        let answered = Finished::Answered { offset: attempt.offset, outcome: DeliveryOutcome::Delivered };
        world.scheduler.attempt_finished(&attempt, answered, world.now);
    }
    delivered
}

/// How long one may have to wait at most: where something was delivered to it before, a few seconds, and until those have ended once that
/// hang after a success; otherwise until the attacker's topics have had their turn.
fn bound(topics: u64, hangs: bool, is_proven: bool, turned: bool) -> Duration {
    let topics = u32::try_from(topics).unwrap();
    match (hangs, is_proven) {
        (true, true) if turned => BOUND + TIMEOUT,
        (_, true) => BOUND,
        (false, false) => BOUND + topics * Duration::from_millis(100),
        (true, false) => TIMEOUT + topics * Duration::from_secs(5),
    }
}

fn run(seed: u64) -> usize {
    let _told = Told(seed);
    let (mut world, mut rng) = (world(seed), Rng::with_seed(seed));
    join(&mut world, HONEST, 1, ORIGIN);
    let decoys = DECOY..DECOY + rng.u64(1..=DECOYS);
    decoys.clone().for_each(|decoy| join(&mut world, TopicId(decoy), decoy, ORIGIN));
    let mut is_proven = rng.bool();
    if is_proven {
        append(&mut world, HONEST, ContentKind::Posted);
        serve(&mut world, |_| None);
    }
    let (hangs, mut hanging) = (rng.bool(), Vec::new());
    let topics = rng.u64(1..300);
    let (mut next_id, mut opened) = (DECOY + DECOYS, 0);
    // From some time on, the attacker's paths that have succeeded so far fail too.
    let turn = rng.u32(0..6_000);
    let mut posted: Option<Duration> = None;
    for step in 0..3_000_u32 {
        let now = STEP * step;
        let turned = step >= turn;
        let failure =
            |topic: TopicId| (topic.0 >= if turned { DECOY } else { ATTACKED }).then(an_hour_please);
        if rng.u8(0..100) == 0 {
            // Whoever failed has its hour, so that the attacker brings new ones.
            for topic in ATTACKED..ATTACKED + topics {
                for _ in 0..rng.u8(0..if topics < 30 { 12 } else { 3 }) {
                    join(&mut world, TopicId(topic), next_id, ORIGIN);
                    next_id += 1;
                }
                append(&mut world, TopicId(topic), ContentKind::Posted);
            }
        }
        if rng.u8(0..40) == 0 {
            // Now one of them succeeds, and now all, so that something was delivered to others last.
            let first = rng.u64(decoys.clone());
            let all = rng.bool();
            for decoy in decoys.clone().filter(|decoy| all || *decoy == first) {
                append(&mut world, TopicId(decoy), ContentKind::Posted);
            }
        }
        if posted.is_none() && rng.u8(0..40) == 0 {
            append(&mut world, HONEST, ContentKind::Posted);
            posted = Some(now);
        }
        if serve_beside(&mut world, &mut hanging, hangs, failure).contains(&HONEST) {
            posted = None;
            is_proven = true;
        }
        let waited = posted.map_or(Duration::ZERO, |posted| now.saturating_sub(posted));
        assert!(
            waited <= bound(topics, hangs, is_proven, turned),
            "seed {seed}: it has waited for {waited:?}, beside {topics} topics that {}, {} a delivery before",
            if hangs { "hang" } else { "fail" },
            if is_proven { "with" } else { "without" },
        );
        let pauses = world.scheduler.take_opened();
        opened += pauses.len();
        assert!(
            pauses.iter().all(|(_, pause)| *pause <= Duration::from_secs(600)),
            "seed {seed}: {pauses:?}"
        );
        world.scheduler.checkpoint(world.now);
        pass(&mut world, STEP);
    }
    opened
}

#[test]
fn failures_of_some_tenants_never_delay_one_whose_deliveries_succeed_by_more_than_seconds() {
    let opened: Vec<usize> = seeds(50).map(run).collect();
    let (runs, opened) = (opened.len(), opened.into_iter().sum::<usize>());
    assert!(opened > 100 || runs < 20, "breakers opened {opened} times");
}

/// Paths of one origin: one that has succeeded all day, and more that succeed last than the host remembers one by one.
fn beside_decoys(seed: u64) -> World {
    let mut world = world(seed);
    join(&mut world, HONEST, 1, ORIGIN);
    append(&mut world, HONEST, ContentKind::Posted);
    serve(&mut world, |_| None);
    for decoy in DECOY..DECOY + DECOYS {
        join(&mut world, TopicId(decoy), decoy, ORIGIN);
        append(&mut world, TopicId(decoy), ContentKind::Posted);
        serve(&mut world, |_| None);
    }
    world
}

/// Joins so many topics whose subscribers fail, after those of the decoys.
fn attack(world: &mut World, topics: u64) {
    for topic in ATTACKED..ATTACKED + topics {
        join(world, TopicId(topic), topic, ORIGIN);
        append(world, TopicId(topic), ContentKind::Posted);
    }
}

/// How long a post to the honest one takes.
fn honest_waits(world: &mut World, hangs: bool) -> Duration {
    let failure = |topic: TopicId| (topic.0 >= ATTACKED).then(an_hour_please);
    let (mut hanging, mut waited) = (Vec::new(), Duration::ZERO);
    serve_beside(world, &mut hanging, hangs, failure);
    append(world, HONEST, ContentKind::Posted);
    while !serve_beside(world, &mut hanging, hangs, failure).contains(&HONEST) {
        assert!(waited < Duration::from_secs(2_000), "it waits for ever");
        waited += STEP;
        pass(world, STEP);
    }
    waited
}

#[test]
fn a_path_that_succeeded_all_day_is_served_within_seconds_however_many_decoys_succeeded_after_it() {
    for topics in [10, 300, 5_000] {
        for hangs in [false, true] {
            let mut world = beside_decoys(17);
            attack(&mut world, topics);
            let waited = honest_waits(&mut world, hangs);
            assert!(
                waited <= bound(topics, hangs, true, false),
                "{waited:?}, beside {topics} that hang: {hangs}"
            );
        }
    }
}

#[test]
fn who_fails_after_a_success_has_used_that_up() {
    let mut world = beside_decoys(19);
    attack(&mut world, 200);
    serve(&mut world, |_| None);
    for topic in ATTACKED..ATTACKED + 200 {
        append(&mut world, TopicId(topic), ContentKind::Posted);
    }
    let waited = honest_waits(&mut world, false);
    assert!(waited <= Duration::from_secs(20), "{waited:?}: a tenth of a second for each");
    attack(&mut world, 200);
    let waited = honest_waits(&mut world, false);
    assert!(waited <= BOUND, "{waited:?}: they have failed since");
}

#[test]
fn after_a_restart_it_is_known_to_whom_the_last_attempt_was_delivered() {
    let (mut world, topic) = (world(23), TopicId(1));
    let slot = |id: u64, start: u64| SubscriptionSummary {
        id: SubscriptionId(id),
        topic,
        origin: ORIGIN.into(),
        start: Offset(start),
        lease_end: world.lease(LONG),
        address: None,
    };
    let laggard = |id: u64, cursor: u64, failing| Laggard {
        topic,
        subscription: SubscriptionId(id),
        cursor: Offset(cursor),
        streak_failures: 0,
        next_attempt: world.now.wall,
        pause: Duration::ZERO,
        failing,
        class: FailureClass::NotFailed,
    };
    let state = ShardState {
        slots: vec![slot(1, 0), slot(2, 5), slot(3, 0), slot(4, 0), slot(5, 0)],
        topics: vec![Topic { head: Offset(5), ..world.topic(topic) }],
        watermarks: vec![(topic, Watermark { done: Offset(5), sweep: None })],
        laggards: vec![
            laggard(3, 2, Some(Failing { since: world.now.wall, lasted: Duration::ZERO })),
            laggard(4, 2, None),
            laggard(5, 0, None),
        ],
        ..ShardState::default()
    };
    world.scheduler =
        Scheduler::new(Shard(0), limits(), worker(), state, Clock::new(world.now, None), world.now);
    let known = world.scheduler.topics[&topic].table.iter().map(|(id, entry)| (id.0, entry.is_proven));
    assert_eq!(known.collect::<Vec<_>>(), [(1, true), (2, false), (3, false), (4, true), (5, false)]);
}

#[test]
fn after_an_outage_the_probe_is_for_whom_something_was_delivered_to_last() {
    let mut world = world(7);
    join(&mut world, HONEST, 1, ORIGIN);
    append(&mut world, HONEST, ContentKind::Posted);
    assert_eq!(serve(&mut world, |_| None), [HONEST]);
    for id in 2..30 {
        join(&mut world, TopicId(ATTACKED + id % 3), id, ORIGIN);
    }
    (0..3).for_each(|topic| append(&mut world, TopicId(ATTACKED + topic), ContentKind::Posted));
    append(&mut world, HONEST, ContentKind::Posted);
    let down = |_| Some(DeliveryOutcome::unreachable());
    // The outage lasts for an hour, and all tenants are tried again now and then.
    for _ in 0..3_600 {
        assert_eq!(serve(&mut world, down), []);
        pass(&mut world, Duration::from_secs(1));
    }
    // Then some of the tenants fail still. The healthy one is served at the time of its own next attempt.
    let due = world.scheduler.laggards(None, 1, world.now)[0].next_attempt_in.unwrap_or_default();
    let failure = |topic: TopicId| (topic.0 >= ATTACKED).then(an_hour_please);
    let mut waited = Duration::ZERO;
    while !serve(&mut world, failure).contains(&HONEST) {
        waited += STEP;
        pass(&mut world, STEP);
        assert!(waited <= due + BOUND, "{due:?} was its pause, and it has waited for {waited:?}");
    }
    append(&mut world, HONEST, ContentKind::Posted);
    assert!(serve(&mut world, failure).contains(&HONEST), "and what is posted later at once");
}

#[test]
fn who_has_not_failed_is_served_within_seconds_of_an_outage_whatever_fails_beside_it() {
    let mut world = world(11);
    join(&mut world, HONEST, 1, ORIGIN);
    join(&mut world, TopicId(DECOY), DECOY, ORIGIN);
    for topic in [HONEST, TopicId(DECOY)] {
        append(&mut world, topic, ContentKind::Posted);
        serve(&mut world, |_| None);
    }
    for id in 10..20 {
        join(&mut world, TopicId(ATTACKED), id, ORIGIN);
    }
    append(&mut world, TopicId(ATTACKED), ContentKind::Posted);
    for _ in 0..600 {
        serve(&mut world, |_| Some(DeliveryOutcome::unreachable()));
        pass(&mut world, Duration::from_secs(1));
    }
    append(&mut world, HONEST, ContentKind::Posted);
    let failure = |topic: TopicId| (topic.0 >= ATTACKED).then(an_hour_please);
    let mut waited = Duration::ZERO;
    while !serve(&mut world, failure).contains(&HONEST) {
        waited += STEP;
        pass(&mut world, STEP);
        assert!(waited <= BOUND, "{waited:?}");
    }
}
