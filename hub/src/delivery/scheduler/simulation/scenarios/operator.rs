//! What an operator sees and does: replays, retries, and what is late.

use super::*;
use crate::store::Topic;

#[test]
fn a_replay_of_what_is_not_there_yet_disturbs_nobody() {
    let mut world = World::new(23);
    let topic = TopicId(1);
    for _ in 0..4 {
        world.subscribe_to(topic, world.lease(LONG));
    }
    world.publish_to(topic);
    let first = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    world.scheduler.attempt_finished(
        &first,
        Finished::Answered { offset: Offset(1), outcome: DeliveryOutcome::Delivered },
        world.now,
    );
    let command = Command::Replay { topic, subscription: None, from: Offset(2) };
    assert_eq!(world.scheduler.execute(&command, world.now), 0);
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        assert_ne!(attempt.subscription, first.subscription, "it has got everything");
        let delivered = Finished::Answered { offset: attempt.offset, outcome: DeliveryOutcome::Delivered };
        world.scheduler.attempt_finished(&attempt, delivered, world.now);
    }
    let command = Command::Replay { topic, subscription: None, from: Offset(1) };
    assert_eq!(world.scheduler.execute(&command, world.now), 4);
}

#[test]
fn a_replay_for_one_subscription_brings_it_again_what_it_has_and_nothing_else() {
    let (mut world, topic) = (World::new(37), TopicId(1));
    (1..=2).for_each(|id| join(&mut world, topic, id, &format!("http://host{id}.example")));
    append(&mut world, topic, ContentKind::Posted);
    assert_eq!(deliver_all(&mut world), [Offset(1); 2]);
    for (from, expected) in [(1, vec![Offset(1)]), (2, vec![])] {
        let command = Command::Replay { topic, subscription: Some(SubscriptionId(1)), from: Offset(from) };
        assert_eq!(world.scheduler.execute(&command, world.now), expected.len());
        assert_eq!(deliver_all(&mut world), expected);
    }
}

#[test]
fn the_operator_can_retry_at_a_host_whose_breaker_is_open() {
    let mut world = World::new(73);
    let topic = TopicId(1);
    (1..=4).for_each(|id| join(&mut world, topic, id, "http://one.example"));
    append(&mut world, topic, ContentKind::Posted);
    let failing = all_sent(&mut world);
    assert_eq!(failing.len(), 3, "as many as the host takes at once");
    let fail = |world: &mut World, attempt: Attempt| {
        let failed = Finished::Answered { offset: Offset(1), outcome: DeliveryOutcome::unreachable() };
        world.scheduler.attempt_finished(&attempt, failed, world.now);
    };
    for attempt in failing {
        fail(&mut world, attempt);
    }
    let trial = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    assert_eq!(trial.subscription, SubscriptionId(4), "a subscription that has not failed is tried");
    fail(&mut world, trial);
    assert_eq!(world.scheduler.next(world.now, OpenLanes::ALL), None, "its breaker is open");
    let command = Command::Retry(Target::Subscription(SubscriptionId(4)));
    assert_eq!(world.scheduler.execute(&command, world.now), 1);
    let probe = world.scheduler.next(world.now, OpenLanes::ALL);
    assert_eq!(probe.map(|attempt| attempt.subscription), Some(SubscriptionId(4)));
}

#[test]
fn who_is_owed_something_waits_for_the_sweep_and_who_has_everything_for_nothing() {
    let (mut world, topic) = (World::new(29), TopicId(1));
    join(&mut world, topic, 1, "http://host.example");
    let waits = |world: &World| world.scheduler.progress(topic, SubscriptionId(1), world.now).unwrap().waits;
    assert_eq!(waits(&world), WaitsFor::Nothing);
    append(&mut world, topic, ContentKind::Posted);
    assert_eq!(waits(&world), WaitsFor::Sweep);
    assert_eq!(deliver_all(&mut world), [Offset(1)]);
    assert_eq!(waits(&world), WaitsFor::Nothing);
}

#[test]
fn who_was_passed_by_is_counted_as_behind() {
    let (mut world, topic) = (World::new(31), TopicId(1));
    (1..=3).for_each(|id| join(&mut world, topic, id, &format!("http://host{id}.example")));
    append(&mut world, topic, ContentKind::Posted);
    for behind in 1..=3 {
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
        refuse(&mut world, &attempt);
        assert_eq!(world.scheduler.laggard_count(), behind);
    }
}

#[test]
fn what_could_be_served_and_is_not_is_past_due_and_what_waits_for_its_next_attempt_is_not() {
    let (begun, topic) = (Now::for_test(), TopicId(1));
    let slot = |id| SubscriptionSummary {
        id: SubscriptionId(id),
        topic,
        origin: "http://destination.example".into(),
        start: Offset(0),
        lease_end: DateTime::from_unix_millis(begun.wall.unix_millis() + 1_000_000_000).unwrap(),
        address: None,
    };
    let news = Topic {
        id: topic,
        url: "http://source.example/t".parse().unwrap(),
        first: Offset(1),
        head: Offset(1),
        latest: Offset(0),
        posted: Offset(1),
    };
    let state = ShardState { slots: vec![slot(1), slot(2)], topics: vec![news], ..ShardState::default() };
    let mut scheduler = Scheduler::new(Shard(0), limits(), worker(), state, Clock::new(begun, None), begun);
    let at = |seconds| Now { monotonic: begun.monotonic + Duration::from_secs(seconds), ..begun };
    assert_eq!(scheduler.past_due(at(1).monotonic), 0);
    assert_eq!(scheduler.past_due(at(50).monotonic), 0, "the sweep has not been waiting for long");
    assert_eq!(scheduler.past_due(at(70).monotonic), 2, "nobody was taken up");

    let attempts: Vec<_> = std::iter::from_fn(|| scheduler.next(at(71), OpenLanes::ALL)).collect();
    assert_eq!(attempts.len(), 2);
    assert_eq!(scheduler.past_due(at(200).monotonic), 0, "what is under way is not past due");
    for attempt in &attempts {
        let failed = Finished::Answered { offset: attempt.offset, outcome: DeliveryOutcome::unreachable() };
        scheduler.attempt_finished(attempt, failed, at(201));
    }
    assert_eq!(scheduler.past_due(at(201).monotonic), 0, "the next attempt has its time");
    assert_eq!(scheduler.past_due(at(300).monotonic), 2, "that time has passed, and nobody was served");
}
