//! Sweeps: what a fan-out leaves behind, whom it takes up, and what it reads ahead or keeps.

use std::collections::VecDeque;

use super::*;
use crate::delivery::scheduler::next::MOST_KEPT;
use crate::store::{CachePolicy, ReadAhead};

/// Checkpoints of a span, as a hub has them.
const SPAN_CHECKPOINTS: u32 = 4;
/// How often a hub takes one. A span of so many lasts as long as it may.
const INTERVAL: Duration = Duration::from_millis(125);

#[test]
fn after_a_stop_only_what_was_under_way_is_sent_again() {
    let mut world = World::new(17);
    world.scheduler.limits.window = 100;
    let topic = TopicId(1);
    while world.durable.slots.values().filter(|slot| slot.topic == topic).count() < 20 {
        world.subscribe_until(world.lease(LONG));
    }
    while world.topic(topic).head == Offset(0) {
        world.publish();
    }
    let (mut hanging, mut delivered) = (BTreeSet::new(), BTreeSet::new());
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        // The first of every topic never answers, and holds the sweep back.
        if !hanging.insert(attempt.topic) {
            delivered.insert((attempt.subscription, world.owed(&attempt).unwrap()));
            let finished = Finished::Answered {
                offset: world.owed(&attempt).unwrap(),
                outcome: DeliveryOutcome::Delivered,
            };
            world.scheduler.attempt_finished(&attempt, finished, world.now);
        }
    }
    assert!(delivered.len() > 10, "{} got something", delivered.len());
    world.stop();
    let again = all_sent(&mut world);
    let again: BTreeSet<_> =
        again.iter().map(|attempt| (attempt.subscription, world.owed(attempt).unwrap())).collect();
    assert!(!again.is_empty(), "what was under way is tried again");
    assert!(again.is_disjoint(&delivered), "{again:?} although {delivered:?} was known");
}

#[test]
fn a_crash_brings_nobody_a_version_again_that_a_sweep_has_left_for_a_newer_one() {
    let mut world = World::new(19);
    let first = world.subscribe_to(MIXED, world.lease(LONG));
    world.subscribe_to(MIXED, world.lease(LONG));
    append(&mut world, MIXED, ContentKind::Posted);
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        let finished = Finished::Answered { offset: Offset(1), outcome: DeliveryOutcome::Delivered };
        world.scheduler.attempt_finished(&attempt, finished, world.now);
    }
    append(&mut world, MIXED, ContentKind::Fetched);
    let save = |world: &mut World| {
        let checkpoint = world.scheduler.checkpoint(world.now);
        world.durable.save(&checkpoint);
    };
    save(&mut world);
    // Who comes first gets it; the other one's request never ends, and a newer version comes.
    let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    assert_eq!((attempt.subscription, world.owed(&attempt)), (first, Ok(Offset(2))));
    assert!(world.scheduler.next(world.now, OpenLanes::ALL).is_some());
    let finished = Finished::Answered { offset: Offset(2), outcome: DeliveryOutcome::Delivered };
    world.scheduler.attempt_finished(&attempt, finished, world.now);
    append(&mut world, MIXED, ContentKind::Fetched);
    (0..3).for_each(|_| save(&mut world));
    append(&mut world, MIXED, ContentKind::Posted);
    world.crash();
    let again = all_sent(&mut world);
    let again: Vec<_> = again.iter().map(|attempt| world.owed(attempt)).collect();
    assert!(!again.is_empty() && again.iter().all(|owed| *owed == Ok(Offset(3))), "{again:?}");
}

#[test]
fn a_healthy_fan_out_leaves_a_watermark_and_hardly_any_records_of_subscriptions() {
    let mut world = World::new(7);
    (0..500).for_each(|_| world.subscribe_until(world.lease(LONG)));
    (0..TOPICS * 4).for_each(|_| world.publish());
    let (mut records, mut deliveries) = (0, 0);
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        deliveries += 1;
        let offset = world.owed(&attempt).unwrap();
        world.receive(attempt, offset, Some(1));
        let finished = Finished::Answered { offset, outcome: DeliveryOutcome::Delivered };
        world.scheduler.attempt_finished(&attempt, finished, world.now);
        if world.rng.u16(0..200) == 0 {
            let checkpoint = world.scheduler.checkpoint(world.now);
            records += checkpoint.laggards.len();
            assert!(checkpoint.watermarks.len() as u64 <= TOPICS);
        }
    }
    assert!(world.is_complete());
    // Only those who are under way when one sweep gives way to the next are written down for a moment.
    assert!(records * 20 < deliveries, "{records} records for {deliveries} deliveries");
}

#[test]
fn a_fan_out_that_is_larger_than_the_hub_leaves_hardly_any_records_either() {
    let mut world = World::new(13);
    world.scheduler.limits.window = 1_024;
    for id in 1..=20_000 {
        let (id, lease_end, topic) = (SubscriptionId(id), world.lease(LONG), TopicId(1));
        let slot = SubscriptionSummary {
            id,
            topic,
            origin: format!("http://host{}.example", id.0).into(),
            start: Offset(0),
            lease_end,
            address: None,
        };
        let known = Box::new(world.topic(topic));
        world.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic: known });
    }
    while world.topic(TopicId(1)).head == Offset(0) {
        world.publish();
    }
    let (mut under_way, mut records, mut deliveries) = (VecDeque::new(), 0, 0);
    loop {
        // A hundred first attempts at once; the permits for retries are free all the time.
        let open = OpenLanes::new(|lane| lane != Lane::First || under_way.len() < 100);
        if let Some(attempt) = world.scheduler.next(world.now, open) {
            under_way.push_back(attempt);
            continue;
        }
        let Some(attempt) = under_way.pop_front() else { break };
        deliveries += 1;
        let finished =
            Finished::Answered { offset: world.owed(&attempt).unwrap(), outcome: DeliveryOutcome::Delivered };
        world.scheduler.attempt_finished(&attempt, finished, world.now);
        if deliveries % 500 == 0 {
            records += world.scheduler.checkpoint(world.now).laggards.len();
        }
    }
    assert!(
        deliveries >= 20_000 && records * 20 < deliveries,
        "{records} records for {deliveries} deliveries"
    );
}

/// What ends the spans of a hub.
#[derive(Clone, Copy, Debug)]
enum SpanEnds {
    /// They have all their checkpoints before any time has passed.
    ByCheckpoints,
    /// Their time is over long before.
    ByTime,
}

/// What becomes of a fan-out that takes many intervals.
#[derive(Default)]
struct LongFanOut {
    /// The intervals in which each subscription got it.
    got: BTreeMap<SubscriptionId, Vec<u64>>,
    intervals: u64,
    /// What its checkpoints have written.
    laggards: usize,
    watermarks: u64,
}

/// So many subscriptions, each at a host of its own, are served a hundred at a time, with a checkpoint after each interval. The hub dies after
/// the interval `death`. `ends` tells what ends a span. `answers` tells after how many intervals a subscription answers, if it ever does.
fn long_fan_out(
    many: u64,
    death: u64,
    ends: SpanEnds,
    answers: impl Fn(SubscriptionId) -> Option<u64>,
) -> LongFanOut {
    let (mut world, topic) = (World::new(101), TopicId(1));
    let (span, interval_lasts) = match ends {
        SpanEnds::ByCheckpoints => (SPAN_CHECKPOINTS, Duration::ZERO),
        SpanEnds::ByTime => (1_000_000, INTERVAL),
    };
    (world.span, world.scheduler.limits.span) = (span, span);
    for id in (1..=many).map(SubscriptionId) {
        let (origin, lease_end) = (format!("http://host{}.example", id.0).into(), world.lease(LONG));
        let slot = SubscriptionSummary { id, topic, origin, start: Offset(0), lease_end, address: None };
        world.durable.slots.insert(id, slot.clone());
        let known = Box::new(world.topic(topic));
        world.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic: known });
    }
    append(&mut world, topic, ContentKind::Posted);
    let answering = (1..=many).filter(|id| answers(SubscriptionId(*id)).is_some()).count();
    let (mut fan_out, mut under_way) = (LongFanOut::default(), Vec::new());
    for interval in 0..1_000 {
        world.scheduler.limits.window = 1_024;
        while under_way.len() < 100
            && let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL)
        {
            under_way.extend(answers(attempt.subscription).map(|after| (interval + after, attempt)));
        }
        let (answered, waiting): (Vec<_>, Vec<_>) =
            under_way.into_iter().partition(|(due, _)| *due <= interval);
        under_way = waiting;
        for (_, attempt) in answered {
            fan_out.got.entry(attempt.subscription).or_default().push(interval);
            accept(&mut world, &attempt);
        }
        world.now.monotonic += interval_lasts;
        let checkpoint = world.scheduler.checkpoint(world.now);
        world.durable.save(&checkpoint);
        fan_out.laggards += checkpoint.laggards.len();
        fan_out.watermarks += checkpoint.watermarks.len() as u64;
        fan_out.intervals = interval + 1;
        if interval == death {
            under_way.clear();
            world.crash();
        } else if under_way.is_empty() && fan_out.got.len() == answering {
            return fan_out;
        }
    }
    panic!("{} of {answering} have got it", fan_out.got.len());
}

/// A long fan-out to hosts of several speeds. What ends a span makes no difference.
fn assert_few_records_and_repetitions(ends: SpanEnds) {
    const MANY: u64 = 6_000;
    const DEATH: u64 = 42;
    let span = u64::from(SPAN_CHECKPOINTS);
    // In the same interval, or up to three later; one in two hundred hangs.
    let answers = |id: SubscriptionId| (!id.0.is_multiple_of(200)).then_some(id.0 % 4);
    let LongFanOut { got, intervals, laggards, watermarks } = long_fan_out(MANY, DEATH, ends, answers);
    assert!(intervals > 100, "it takes {intervals} intervals");
    assert!(laggards as u64 * 100 < MANY, "{laggards} records for {MANY} deliveries");
    assert!(watermarks <= intervals / span + 4, "{watermarks} watermarks in {intervals} intervals");
    let mut repeated = 0;
    for (id, times) in got {
        if let [first, again] = times[..] {
            repeated += 1;
            assert!(first + 2 * span > DEATH + 1 && again > DEATH, "{id:?} got it in {times:?}");
        } else {
            assert_eq!(times.len(), 1, "{id:?} got it in {times:?}");
        }
    }
    assert!((1..=2 * span * 100).contains(&repeated), "{repeated} were repeated");
}

#[test]
fn a_long_fan_out_to_hosts_of_several_speeds_leaves_hardly_any_records_and_a_death_repeats_two_spans() {
    assert_few_records_and_repetitions(SpanEnds::ByCheckpoints);
}

#[test]
fn so_does_one_whose_spans_end_by_time() {
    assert_few_records_and_repetitions(SpanEnds::ByTime);
}

/// So many subscriptions at one host, of which at most `window` are taken up at once, are owed a notification.
fn crowd(seed: u64, number: u64, window: usize) -> (World, TopicId) {
    let (mut world, topic) = (World::new(seed), TopicId(1));
    (world.scheduler.limits.window, world.scheduler.limits.span) = (window, SPAN_CHECKPOINTS);
    (1..=number).for_each(|id| join(&mut world, topic, id, "http://crowded.example"));
    append(&mut world, topic, ContentKind::Posted);
    (world, topic)
}

#[test]
fn only_so_many_wait_without_a_record_that_one_checkpoint_can_take_them() {
    const MOST: usize = 300;
    const WINDOW: usize = 100;
    let (mut world, topic) = crowd(127, 3_050, WINDOW);
    world.scheduler.limits.passed_by = MOST;
    let mut most = 0;
    for interval in 0..100 {
        let attempts = all_sent(&mut world);
        assert!(!attempts.is_empty(), "somebody is served in interval {interval}");
        for attempt in attempts {
            accept(&mut world, &attempt);
        }
        if interval == 0 {
            // Once the first sweep has taken up the last one, the next is due, and all that wait become laggards at once.
            append(&mut world, topic, ContentKind::Posted);
        }
        most = most.max(world.scheduler.checkpoint(world.now).laggards.len());
    }
    assert!((MOST..=MOST + WINDOW).contains(&most), "{most} records in one checkpoint");
}

#[test]
fn who_waits_long_for_its_turn_at_its_own_host_needs_no_record() {
    let (mut world, _) = crowd(103, 3_000, 1_024);
    let (mut delivered, mut records) = (0, 0);
    while delivered < 3_000 {
        let attempts = all_sent(&mut world);
        assert!(!attempts.is_empty(), "{delivered} were delivered");
        for attempt in attempts {
            delivered += 1;
            accept(&mut world, &attempt);
        }
        records += world.scheduler.checkpoint(world.now).laggards.len();
        assert_eq!(world.scheduler.laggard_count(), 0, "nobody is late");
    }
    assert_eq!(records, 0);
}

#[test]
fn of_those_who_fail_one_after_the_other_each_has_a_record_once_it_has_failed() {
    let (mut world, _) = crowd(109, 3_000, 1_024);
    world.scheduler.limits.breaker.failures = 0;
    let (mut failed, mut records) = (0, 0);
    while failed < 3_000 {
        let attempts = all_sent(&mut world);
        assert!(!attempts.is_empty(), "{failed} have failed");
        for attempt in attempts {
            failed += 1;
            refuse(&mut world, &attempt);
        }
        records += world.scheduler.checkpoint(world.now).laggards.len();
        assert_eq!(records, failed, "nobody is late who waits for those that fail");
    }
}

#[test]
fn who_gives_no_answer_is_late_once_nothing_has_moved_for_a_span() {
    let (mut world, topic) = (World::new(107), TopicId(1));
    world.scheduler.limits.span = SPAN_CHECKPOINTS;
    join(&mut world, topic, 1, "http://host.example");
    append(&mut world, topic, ContentKind::Posted);
    assert!(world.scheduler.next(world.now, OpenLanes::ALL).is_some());
    assert!(world.scheduler.next(world.now, OpenLanes::ALL).is_none());
    let late = (0..3 * SPAN_CHECKPOINTS).map(|_| {
        let records = world.scheduler.checkpoint(world.now).laggards.len();
        (records, world.scheduler.laggard_count())
    });
    let late: Vec<_> = late.collect();
    assert!(late[..=SPAN_CHECKPOINTS as usize].iter().all(|late| *late == (0, 0)), "{late:?}");
    assert_eq!(late.iter().filter(|(records, _)| *records > 0).count(), 1, "it has one record: {late:?}");
    assert_eq!(late.last(), Some(&(0, 1)), "{late:?}");
    assert!(!world.scheduler.has_progress(), "and needs no more looks");
}

#[test]
fn many_that_fail_do_not_hold_up_those_that_succeed() {
    let mut world = World::new(97);
    world.scheduler.limits.window = 1_024;
    let (failing, healthy) = (TopicId(1), TopicId(2));
    for id in 1..=20_010 {
        let topic = if id <= 20_000 { failing } else { healthy };
        join(&mut world, topic, id, &format!("http://host{id}.example"));
    }
    append(&mut world, failing, ContentKind::Posted);
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        refuse(&mut world, &attempt);
    }
    // What the sweep finds of them now is that they have to wait.
    append(&mut world, failing, ContentKind::Posted);
    append(&mut world, healthy, ContentKind::Posted);
    let (mut calls, mut served) = (0, 0);
    loop {
        calls += 1;
        match world.scheduler.next(world.now, OpenLanes::ALL) {
            Some(attempt) => {
                assert_eq!(attempt.topic, healthy);
                served += 1;
                let delivered = Finished::Answered { offset: Offset(1), outcome: DeliveryOutcome::Delivered };
                world.scheduler.attempt_finished(&attempt, delivered, world.now);
                assert!(calls < 20, "the {served}th had to wait for {calls} calls");
            }
            None if world.scheduler.is_interrupted() => {}
            None => break,
        }
    }
    assert_eq!(served, 10);
    assert!(calls > 20_000 / 256, "{calls} calls looked at all of them");
}

#[test]
fn without_permits_nobody_is_taken_up_even_to_wait_for_its_own_host() {
    let (mut world, topic) = (World::new(41), TopicId(1));
    let limit = world.scheduler.limits.per_host as u64;
    (1..=limit + 1).for_each(|id| join(&mut world, topic, id, "http://host.example"));
    append(&mut world, topic, ContentKind::Posted);
    for _ in 0..limit {
        assert!(world.scheduler.next(world.now, OpenLanes::ALL).is_some());
    }
    assert!(world.scheduler.next(world.now, OpenLanes::new(|_| false)).is_none());
    let last = world.scheduler.progress(topic, SubscriptionId(limit + 1), world.now).unwrap();
    assert_eq!(last.waits, WaitsFor::Sweep);
}

#[test]
fn in_a_sweep_over_many_each_is_read_for_one_use_unless_it_is_owed_more() {
    for (subscriptions, of_last) in
        [(MOST_KEPT as u64 - 1, CachePolicy::Keep), (MOST_KEPT as u64 + 1, CachePolicy::Drop)]
    {
        let mut world = World::new(19);
        let topic = TopicId(1);
        for id in 1..=subscriptions {
            join(&mut world, topic, id, &format!("http://host{id}.example"));
        }
        // The first has a sweep of its own, the others share the next.
        for offset in (1..=3).map(Offset) {
            world.scheduler.apply(&StoreEvent::Appended {
                topic,
                offset,
                kind: ContentKind::Posted,
                bytes: 0,
            });
        }
        let mut attempts = 0;
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            let expected = if attempt.offset == Offset(2) { CachePolicy::Keep } else { of_last };
            assert_eq!(attempt.keep, expected, "{attempt:?}");
            let finished = Finished::Answered { offset: attempt.offset, outcome: DeliveryOutcome::Delivered };
            world.scheduler.attempt_finished(&attempt, finished, world.now);
            attempts += 1;
        }
        assert_eq!(attempts, 3 * subscriptions);
    }
}

#[test]
fn beyond_its_topic_is_read_ahead_only_for_a_small_one_among_many() {
    for (topics, subscriptions, expected) in [
        (1, 2, ReadAhead::Topic),
        (100, 2, ReadAhead::Shard),
        (1, 50, ReadAhead::Topic),
        (100, 50, ReadAhead::Topic),
    ] {
        let mut world = World::new(23);
        for topic in (1..=topics).map(TopicId) {
            for id in 1..=subscriptions {
                join(&mut world, topic, topic.0 * 100 + id, &format!("http://host{id}.example"));
            }
            append(&mut world, topic, ContentKind::Posted);
        }
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
        assert_eq!(attempt.ahead, expected, "{subscriptions} of each of {topics} topics");
    }
}
