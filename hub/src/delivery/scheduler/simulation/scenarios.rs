//! Single courses of events in the world of the simulation: what each of them must lead to.

use std::collections::VecDeque;

use super::super::next::MOST_KEPT;
use super::*;
use crate::store::{CachePolicy, ReadAhead};

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
            let finished =
                Finished::Answered { offset: world.owed(&attempt).unwrap(), outcome: Outcome::Delivered };
            world.scheduler.finished(&attempt, finished, world.now);
        }
    }
    assert!(delivered.len() > 10, "{} got something", delivered.len());
    world.stop();
    let again = std::iter::from_fn(|| world.scheduler.next(world.now, OpenLanes::ALL));
    let again: Vec<_> = again.collect();
    let again: BTreeSet<_> =
        again.iter().map(|attempt| (attempt.subscription, world.owed(attempt).unwrap())).collect();
    assert!(!again.is_empty(), "what was under way is tried again");
    assert!(again.is_disjoint(&delivered), "{again:?} although {delivered:?} was known");
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
        let finished = Finished::Answered { offset, outcome: Outcome::Delivered };
        world.scheduler.finished(&attempt, finished, world.now);
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
            Finished::Answered { offset: world.owed(&attempt).unwrap(), outcome: Outcome::Delivered };
        world.scheduler.finished(&attempt, finished, world.now);
        if deliveries % 500 == 0 {
            records += world.scheduler.checkpoint(world.now).laggards.len();
        }
    }
    assert!(
        deliveries >= 20_000 && records * 20 < deliveries,
        "{records} records for {deliveries} deliveries"
    );
}

#[test]
fn w160_after_a_skip_the_next_notification_is_tried_at_once() {
    let mut world = World::new(11);
    let topic = TopicId(1);
    world.subscribe_to(topic, world.lease(LONG));
    world.publish_to(topic);
    for _ in 0..2 {
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
        refuse(&mut world, &attempt);
        world.wait(2);
    }
    assert!(
        world.scheduler.next(world.now, OpenLanes::ALL).is_none(),
        "the first notification has been given up"
    );
    assert_eq!(world.scheduler.take_counts().given_up, [1, 0, 0, 0], "by the schedule for refusals");
    world.publish_to(topic);
    let attempt = world.scheduler.next(world.now, OpenLanes::ALL).expect("the next notification is tried");
    assert_eq!((attempt.offset, attempt.number), (Offset(2), 1));
}

/// How a subscriber fails at its second notification of five, the others of which it takes; returns what it got by the time that
/// all others came, and whether the second was given up.
fn failing_at_the_second(world: &mut World, failure: &Outcome) -> (Vec<u64>, bool) {
    let trouble = [10, 30, 120, 600, 1_800, 3_600].map(Duration::from_secs).to_vec();
    world.scheduler.limits.retry.trouble = trouble;
    let topic = TopicId(1);
    let id = world.subscribe_to(topic, world.lease(LONG));
    (0..5).for_each(|_| world.publish_to(topic));
    let (mut got, mut waited) = (Vec::new(), 0);
    while got.len() < 4 {
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            let outcome = if attempt.offset == Offset(2) { failure.clone() } else { Outcome::Delivered };
            if outcome == Outcome::Delivered {
                got.push(attempt.offset.0);
            }
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.finished(&attempt, answered, world.now);
        }
        world.wait(1);
        waited += 1;
        assert!(waited < 13 * 60, "still blocked after {waited} s, with {got:?}");
    }
    let skips = world.scheduler.checkpoint(world.now).skips;
    (got, skips.iter().any(|skip| (skip.subscription, skip.offset) == (id, Offset(2))))
}

#[test]
fn a_subscriber_that_fails_at_one_notification_gets_the_others_within_minutes() {
    let error = Outcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None);
    let (got, skipped) = failing_at_the_second(&mut World::new(3), &error);
    assert_eq!((got, skipped), (vec![1, 3, 4, 5], true));
}

/// What a subscriber has got after 13 minutes whose server hangs up on the second of five notifications, or lets it time out, and what
/// was given up; `others`: whether its host answers somebody else every few seconds.
fn unanswered_at_the_second(outcome: &Outcome, others: bool) -> (Vec<u64>, [u64; 4]) {
    let mut world = World::new(67);
    world.scheduler.limits.retry.trouble = [10, 30, 120, 600, 1_800, 3_600].map(Duration::from_secs).to_vec();
    let (topic, other) = (TopicId(1), TopicId(2));
    join(&mut world, topic, 1, "http://crowded.example");
    join(&mut world, other, 2, "http://crowded.example");
    (0..5).for_each(|_| append(&mut world, topic, ContentKind::Posted));
    let mut got = Vec::new();
    for second in 0..13 * 60 {
        if others && second % 5 == 0 {
            append(&mut world, other, ContentKind::Posted);
        }
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            let is_second = (attempt.topic, attempt.offset) == (topic, Offset(2));
            let outcome = if is_second { outcome.clone() } else { Outcome::Delivered };
            if attempt.topic == topic && !is_second {
                got.push(attempt.offset.0);
            }
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.finished(&attempt, answered, world.now);
        }
        world.wait(1);
    }
    (got, world.scheduler.take_counts().given_up)
}

#[test]
fn a_notification_on_which_a_server_hangs_up_is_given_up_where_its_host_answers_others_and_only_there() {
    assert_eq!(unanswered_at_the_second(&Outcome::cut(), true), (vec![1, 3, 4, 5], [0, 0, 1, 0]));
    assert_eq!(unanswered_at_the_second(&Outcome::cut(), false), (vec![1], [0; 4]));
    assert_eq!(unanswered_at_the_second(&Outcome::unreachable(), true), (vec![1], [0; 4]));
}

#[test]
fn a_notification_that_met_an_outage_is_not_given_up_for_errors_after_it() {
    let error = Outcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None);
    for unanswered in 1..6 {
        let mut world = World::new(59);
        world.scheduler.limits.retry.trouble = vec![Duration::from_secs(10); 15];
        let topic = TopicId(1);
        world.subscribe_to(topic, world.lease(LONG));
        (0..3).for_each(|_| world.publish_to(topic));
        let mut answers = vec![error.clone(); 3];
        answers.resize(3 + unanswered, Outcome::unreachable());
        answers.resize(6 + unanswered, error.clone());
        let mut got = Vec::new();
        while world.scheduler.next_timer().is_some() || got.is_empty() {
            while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
                let outcome = answers.pop().unwrap_or(Outcome::Delivered);
                if outcome == Outcome::Delivered {
                    got.push(attempt.offset.0);
                }
                let answered = Finished::Answered { offset: attempt.offset, outcome };
                world.scheduler.finished(&attempt, answered, world.now);
            }
            world.wait(5);
        }
        assert_eq!((got, world.scheduler.take_counts().given_up), (vec![1, 2, 3], [0; 4]), "{unanswered}");
    }
}

#[test]
fn what_failed_while_a_host_was_down_is_not_given_up_when_it_comes_back() {
    let mut world = World::new(53);
    let (open, open_max) = (Duration::from_secs(30), Duration::from_secs(600));
    let limits = Limits { breaker: BreakerPolicy { failures: 5, open, open_max }, ..limits() };
    let clock = Clock::new(world.now, None);
    world.scheduler = Scheduler::new(Shard(0), limits, ShardState::default(), clock, world.now);
    world.scheduler.limits.retry.trouble = [10, 30, 120, 600, 1_800, 3_600].map(Duration::from_secs).to_vec();
    let topic = TopicId(1);
    for outage in (60_u64..3_600).step_by(60) {
        world.subscribe_to(topic, world.lease(LONG));
        (0..3).for_each(|_| world.publish_to(topic));
        let mut failing = outage;
        while failing > 0 || world.scheduler.next_timer().is_some() {
            while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
                let outcome = if failing > 0 { Outcome::unreachable() } else { Outcome::Delivered };
                let answered = Finished::Answered { offset: attempt.offset, outcome };
                world.scheduler.finished(&attempt, answered, world.now);
            }
            world.wait(5);
            failing = failing.saturating_sub(5);
        }
        assert_eq!(world.scheduler.take_counts().given_up, [0; 4], "after {outage} s");
    }
}

#[test]
fn a_host_with_fifty_thousand_subscriptions_comes_back_slowly_and_gets_everything() {
    let mut world = World::new(5);
    world.scheduler.limits.window = 1_024;
    let topic = TopicId(1);
    (1..=50_000).for_each(|id| join(&mut world, topic, id, "http://crowded.example"));
    world.scheduler.apply(&StoreEvent::Appended {
        topic,
        offset: Offset(1),
        kind: ContentKind::Posted,
        bytes: 0,
    });
    let (mut delivered, mut failed, mut most) = (0, 0, 0);
    for second in 0.. {
        assert!(second < 10_000, "{delivered} delivered after {second} s");
        let is_up = second > 600;
        loop {
            let attempts: Vec<_> =
                std::iter::from_fn(|| world.scheduler.next(world.now, OpenLanes::ALL)).collect();
            if attempts.is_empty() {
                break;
            }
            most = most.max(attempts.len());
            for attempt in attempts {
                let outcome = if is_up { Outcome::Delivered } else { Outcome::unreachable() };
                delivered += usize::from(is_up);
                failed += usize::from(!is_up);
                world.scheduler.finished(
                    &attempt,
                    Finished::Answered { offset: Offset(1), outcome },
                    world.now,
                );
            }
        }
        world.scheduler.checkpoint(world.now);
        world.wait(1);
        if delivered == 50_000 {
            break;
        }
    }
    assert!(most <= 3, "{most} at once, although the host takes 3");
    assert!(failed < 250, "{failed} requests to a host that was known to be down");
}

/// The operator's view of how long a subscription has been failing.
fn failing_since(world: &World) -> Option<DateTime> {
    world.scheduler.laggards(None, 10, world.now).first().and_then(|late| late.failing_since)
}

#[test]
fn after_a_day_of_nothing_but_failures_new_posts_are_tried_at_most_hourly() {
    const MINUTE: u64 = 60;
    let mut world = World::new(19);
    world.scheduler.limits.retry.refused = [10, 30, 120, 600].map(Duration::from_secs).to_vec();
    let topic = TopicId(1);
    world.subscribe_to(topic, world.lease(LONG));
    let began = world.now.wall;
    let mut attempts = Vec::new();
    for minute in 0..72 * MINUTE {
        if minute % 20 == 0 {
            world.publish_to(topic);
        }
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            attempts.push(minute);
            let outcome = Outcome::of_status(http::StatusCode::NOT_FOUND, None);
            let offset = world.owed(&attempt).unwrap();
            world.scheduler.finished(&attempt, Finished::Answered { offset, outcome }, world.now);
        }
        assert_eq!(failing_since(&world), Some(began), "after {minute} minutes");
        world.checkpoint();
        world.save();
        if minute % (7 * MINUTE) == 0 {
            world.stop();
            world.scheduler.limits.retry.refused = [10, 30, 120, 600].map(Duration::from_secs).to_vec();
        }
        world.wait(MINUTE);
    }
    let on_the_first_day = attempts.iter().filter(|minute| **minute < 24 * MINUTE).count();
    assert!(on_the_first_day > 200, "W-160: {on_the_first_day} attempts");
    let later: Vec<_> = attempts.into_iter().filter(|minute| *minute > 25 * MINUTE).collect();
    assert!(later.len() > 30, "{later:?}");
    assert!(later.windows(2).all(|pair| pair[1] - pair[0] >= MINUTE), "{later:?}");
    world.run_dry();
    assert_eq!(failing_since(&world), None, "the first success ends it");
}

#[test]
fn a_replay_of_what_is_not_there_yet_disturbs_nobody() {
    let mut world = World::new(23);
    let topic = TopicId(1);
    for _ in 0..4 {
        world.subscribe_to(topic, world.lease(LONG));
    }
    world.publish_to(topic);
    let first = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    world.scheduler.finished(
        &first,
        Finished::Answered { offset: Offset(1), outcome: Outcome::Delivered },
        world.now,
    );
    let command = Command::Replay { topic, subscription: None, from: Offset(2) };
    assert_eq!(world.scheduler.execute(&command, world.now), 0);
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        assert_ne!(attempt.subscription, first.subscription, "it has got everything");
        let delivered = Finished::Answered { offset: attempt.offset, outcome: Outcome::Delivered };
        world.scheduler.finished(&attempt, delivered, world.now);
    }
    let command = Command::Replay { topic, subscription: None, from: Offset(1) };
    assert_eq!(world.scheduler.execute(&command, world.now), 4);
}

/// A subscriber of content that changes every minute answers everything with this status; returns the minutes of the attempts.
fn refusing_what_changes_every_minute(world: &mut World, status: u16) -> Vec<u64> {
    world.scheduler.limits.retry.refused = [10, 30, 120, 600].map(Duration::from_secs).to_vec();
    world.scheduler.limits.retry.gone_confirm_after = Duration::from_secs(60);
    world.subscribe_to(FETCHED, world.lease(LONG));
    let mut attempts = Vec::new();
    for minute in 0..12 * 60 {
        world.publish_to(FETCHED);
        for _ in 0..6 {
            while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
                attempts.push(minute);
                if status == 410 {
                    world.count_gone(&attempt);
                }
                let outcome = Outcome::of_status(http::StatusCode::from_u16(status).unwrap(), None);
                let answered = Finished::Answered { offset: world.owed(&attempt).unwrap(), outcome };
                world.scheduler.finished(&attempt, answered, world.now);
            }
            world.checkpoint();
            world.wait(10);
        }
    }
    attempts
}

#[test]
fn content_that_changes_fast_does_not_shorten_the_pauses() {
    let attempts = refusing_what_changes_every_minute(&mut World::new(29), 404);
    assert!((60..=100).contains(&attempts.len()), "{attempts:?}");
}

#[test]
fn a_subscription_whose_record_cannot_be_read_is_tried_every_hour() {
    let mut world = World::new(93);
    world.subscribe_to(TopicId(1), world.lease(LONG));
    world.publish_to(TopicId(1));
    for _ in 0..3 {
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
        world.scheduler.finished(&attempt, Finished::Unreadable, world.now);
        world.wait(3_599);
        assert_eq!(world.scheduler.next(world.now, OpenLanes::ALL), None);
        world.wait(1);
    }
}

#[test]
fn content_that_changes_fast_does_not_keep_alive_who_is_gone() {
    let mut world = World::new(31);
    let attempts = refusing_what_changes_every_minute(&mut world, 410);
    assert_eq!(attempts.len(), 2, "W-151: once more after a minute, and never again: {attempts:?}");
    assert!(world.durable.slots.is_empty());
}

#[test]
fn w151_who_says_yes_after_a_410_is_asked_twice_again_before_the_subscription_ends() {
    let mut world = World::new(37);
    world.scheduler.limits.retry.gone_confirm_after = Duration::from_secs(60);
    world.subscribe_to(TopicId(1), world.lease(LONG));
    world.publish_to(TopicId(1));
    let gone = |world: &mut World| {
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
        world.count_gone(&attempt);
        let outcome = Outcome::of_status(http::StatusCode::GONE, None);
        let answered = Finished::Answered { offset: world.owed(&attempt).unwrap(), outcome };
        world.scheduler.finished(&attempt, answered, world.now);
        world.checkpoint();
        world.wait(120);
    };
    gone(&mut world);
    let id = *world.durable.slots.keys().next().unwrap();
    let slot = world.renewed(id, world.lease(LONG));
    let topic = Box::new(world.topic(slot.topic));
    world.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
    gone(&mut world);
    assert_eq!(world.durable.slots.len(), 1, "only one 410 since then");
    gone(&mut world);
    assert!(world.durable.slots.is_empty());
}

/// The yes comes when the end is on its way to the store, and by the clock it comes long before the question.
#[test]
fn w151_who_says_yes_after_the_second_410_stays_wherever_the_clock_is_set() {
    for set_back in [0, 3_600] {
        let mut world = World::new(43);
        let id = world.subscribe_to(TopicId(1), world.lease(LONG));
        world.publish_to(TopicId(1));
        for _ in 0..2 {
            let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
            let outcome = Outcome::of_status(http::StatusCode::GONE, None);
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.finished(&attempt, answered, world.now);
            world.wait(120);
        }
        world.take_ended();
        assert_eq!(world.ending.len(), 1, "the second 410 ends it");
        world.jump_back(set_back);
        world.renewed(id, world.lease(LONG));
        world.checkpoint();
        assert!(world.durable.slots.contains_key(&id), "set back by {set_back} s");
    }
}

fn refuse(world: &mut World, attempt: &Attempt) {
    let outcome = Outcome::of_status(http::StatusCode::NOT_FOUND, None);
    let refused = Finished::Answered { offset: attempt.offset, outcome };
    world.scheduler.finished(attempt, refused, world.now);
}

/// Lets everything that can be sent arrive.
pub(super) fn deliver_all(world: &mut World) -> Vec<Offset> {
    let mut delivered = Vec::new();
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        let finished = match world.owed(&attempt) {
            Ok(offset) => {
                delivered.push(offset);
                Finished::Answered { offset, outcome: Outcome::Delivered }
            }
            Err(without) => without,
        };
        world.scheduler.finished(&attempt, finished, world.now);
    }
    delivered
}

/// Somebody subscribes for long, with a number and at a host of the scenario's own.
pub(super) fn join(world: &mut World, topic: TopicId, id: u64, origin: &str) {
    let (id, origin, lease_end) = (SubscriptionId(id), origin.into(), world.lease(LONG));
    let slot = SubscriptionSummary { id, topic, origin, start: Offset(0), lease_end, address: None };
    let known = Box::new(world.topic(topic));
    world.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic: known });
}

pub(super) fn append(world: &mut World, topic: TopicId, kind: ContentKind) {
    world.durable.logs.entry(topic).or_default().push(kind);
    let offset = world.topic(topic).head;
    world.scheduler.apply(&StoreEvent::Appended { topic, offset, kind, bytes: 0 });
}

#[test]
fn a_version_that_is_superseded_is_not_lost() {
    let mut world = World::new(37);
    world.subscribe_to(MIXED, world.lease(LONG));
    for kind in [ContentKind::Fetched, ContentKind::Posted, ContentKind::Fetched] {
        append(&mut world, MIXED, kind);
    }
    deliver_all(&mut world);
    let command = Command::Replay { topic: MIXED, subscription: None, from: Offset(1) };
    assert_eq!(world.scheduler.execute(&command, world.now), 1);
    assert_eq!(deliver_all(&mut world), [Offset(2), Offset(3)]);
    assert_eq!(world.scheduler.take_counts().lost_to_retention, 0);
}

#[test]
fn a_gap_is_counted_once_and_by_what_is_missing() {
    let mut world = World::new(41);
    let topic = TopicId(1);
    world.subscribe_to(topic, world.lease(LONG));
    append(&mut world, topic, ContentKind::Posted);
    let first = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    (0..8).for_each(|_| append(&mut world, topic, ContentKind::Posted));
    world.durable.firsts.insert(topic, Offset(6));
    let gap = world.owed(&first).unwrap_err();
    world.scheduler.finished(&first, gap, world.now);
    assert_eq!(deliver_all(&mut world), [6, 7, 8, 9].map(Offset));
    assert_eq!(world.scheduler.take_counts().lost_to_retention, 5);
}

#[test]
fn a_version_that_is_gone_gives_way_to_the_newest_which_comes_once() {
    let mut world = World::new(43);
    world.subscribe_to(FETCHED, world.lease(LONG));
    (0..3).for_each(|_| append(&mut world, FETCHED, ContentKind::Fetched));
    let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    append(&mut world, FETCHED, ContentKind::Fetched);
    append(&mut world, FETCHED, ContentKind::Fetched);
    world.durable.firsts.insert(FETCHED, Offset(5));
    let without = world.owed(&attempt).unwrap_err();
    world.scheduler.finished(&attempt, without, world.now);
    assert_eq!(deliver_all(&mut world), [Offset(5)]);
    world.stop();
    assert_eq!(deliver_all(&mut world), []);
    append(&mut world, FETCHED, ContentKind::Fetched);
    assert_eq!(deliver_all(&mut world), [Offset(6)]);
    assert_eq!(world.scheduler.take_counts().lost_to_retention, 0);
}

#[test]
fn what_was_posted_after_a_version_that_is_gone_is_not_lost_in_silence() {
    let mut world = World::new(83);
    world.subscribe_to(MIXED, world.lease(LONG));
    append(&mut world, MIXED, ContentKind::Fetched);
    let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    append(&mut world, MIXED, ContentKind::Posted);
    append(&mut world, MIXED, ContentKind::Fetched);
    world.durable.firsts.insert(MIXED, Offset(3));
    let without = world.owed(&attempt).unwrap_err();
    world.scheduler.finished(&attempt, without, world.now);
    assert_eq!(deliver_all(&mut world), [Offset(3)]);
    let gaps = world.scheduler.checkpoint(world.now).gaps;
    assert_eq!(gaps.iter().map(|gap| (gap.from, gap.to)).collect::<Vec<_>>(), [(Offset(2), Offset(2))]);
}

#[test]
fn after_a_gap_the_next_notification_has_all_its_attempts() {
    let mut world = World::new(47);
    let topic = TopicId(1);
    world.subscribe_to(topic, world.lease(LONG));
    append(&mut world, topic, ContentKind::Posted);
    let first = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    refuse(&mut world, &first);
    (0..3).for_each(|_| append(&mut world, topic, ContentKind::Posted));
    world.durable.firsts.insert(topic, Offset(3));
    world.wait(2);
    let numbers: Vec<_> = (0..2)
        .map(|_| {
            let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
            if let Err(without) = world.owed(&attempt) {
                world.scheduler.finished(&attempt, without, world.now);
            }
            (attempt.offset.0, attempt.number)
        })
        .collect();
    assert_eq!(numbers, [(1, 2), (3, 1)]);
}

#[test]
fn a_crowd_of_one_topic_holds_up_no_other_at_the_same_host() {
    let mut world = World::new(67);
    world.scheduler.limits.window = 1_024;
    let (crowd, few) = (TopicId(1), TopicId(2));
    for id in 1..=5_010 {
        join(&mut world, if id <= 5_000 { crowd } else { few }, id, "http://crowded.example");
    }
    append(&mut world, crowd, ContentKind::Posted);
    // Each checkpoint detaches who waits, so that in the end the whole crowd is in the host's queue.
    let mut in_flight = VecDeque::new();
    for _ in 0..10 {
        in_flight.extend(std::iter::from_fn(|| world.scheduler.next(world.now, OpenLanes::ALL)));
        world.scheduler.checkpoint(world.now);
    }
    append(&mut world, few, ContentKind::Posted);
    let (mut served, mut few_left) = (0, 10);
    while few_left > 0 {
        let attempt: Attempt = in_flight.pop_front().expect("somebody is served");
        served += 1;
        few_left -= usize::from(attempt.topic == few);
        let delivered = Finished::Answered { offset: Offset(1), outcome: Outcome::Delivered };
        world.scheduler.finished(&attempt, delivered, world.now);
        in_flight.extend(std::iter::from_fn(|| world.scheduler.next(world.now, OpenLanes::ALL)));
    }
    assert!(served <= 50, "the ten had to wait for {served}");
}

#[test]
fn the_operator_can_retry_at_a_host_whose_breaker_is_open() {
    let mut world = World::new(73);
    let topic = TopicId(1);
    (1..=4).for_each(|id| join(&mut world, topic, id, "http://one.example"));
    append(&mut world, topic, ContentKind::Posted);
    let failing: Vec<_> = std::iter::from_fn(|| world.scheduler.next(world.now, OpenLanes::ALL)).collect();
    assert_eq!(failing.len(), 3, "as many as the host takes at once");
    let fail = |world: &mut World, attempt: Attempt| {
        let failed = Finished::Answered { offset: Offset(1), outcome: Outcome::unreachable() };
        world.scheduler.finished(&attempt, failed, world.now);
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

/// A world with a subscriber whose name leads to an unconfirmed address, and a notification for it that was not sent.
fn rate_limited(seed: u64) -> (World, SubscriptionSummary) {
    let mut world = World::new(seed);
    let id = world.subscribe_to(TopicId(1), world.lease(LONG));
    let slot = world.durable.slots[&id].clone();
    world.publish_to(TopicId(1));
    let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    world.scheduler.finished(&attempt, Finished::RateLimited(Duration::from_secs(1_800)), world.now);
    (world, slot)
}

#[test]
fn what_waits_for_a_confirmation_for_days_has_not_failed_and_is_not_given_up() {
    let (mut world, _) = rate_limited(101);
    let mut times = 0;
    for _ in 0..3 * 24 * 60 {
        world.wait(60);
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            assert_eq!((attempt.offset, attempt.number), (Offset(1), 1), "it was never sent");
            world.scheduler.finished(&attempt, Finished::RateLimited(Duration::from_secs(1)), world.now);
            times += 1;
        }
    }
    assert!(times > 3 * 24 * 4, "{times}: the pauses stay short");
    assert_eq!(world.scheduler.take_counts(), Counts::default());
    assert_eq!(world.scheduler.take_opened(), [], "nor does it say anything about the host");
    let late = world.scheduler.laggards(None, 1, world.now);
    assert_eq!((late[0].class, late[0].failing_since), (FailureClass::Unsent, None));
    world.wait(1_000);
    assert_eq!(deliver_all(&mut world), [Offset(1)]);
}

#[test]
fn what_waits_for_a_confirmation_goes_out_as_soon_as_its_host_confirms_also_in_another_shard_and_after_a_restart()
 {
    let address = Some(std::net::Ipv4Addr::LOCALHOST.into());
    for (seed, shard, restart) in [(103, 0, false), (107, 1, false), (109, 0, true)] {
        let (mut world, slot) = rate_limited(seed);
        if restart {
            world.checkpoint();
            world.save();
            world.crash();
        }
        assert_eq!(deliver_all(&mut world), [], "it waits for half an hour");
        let elsewhere =
            SubscriptionSummary { origin: "http://other.example".into(), address, ..slot.clone() };
        let confirmed = SubscriptionSummary { address, ..slot };
        for (slot, expected) in [(elsewhere, vec![]), (confirmed, vec![Offset(1)])] {
            let topic = Box::new(world.topic(slot.topic));
            // In another shard it is another subscription.
            let slot =
                SubscriptionSummary { id: if shard == 0 { slot.id } else { SubscriptionId(99) }, ..slot };
            let shard = if expected.is_empty() { Shard(1) } else { Shard(shard) };
            world.scheduler.apply(&StoreEvent::Subscribed { shard, slot, topic });
            assert_eq!(deliver_all(&mut world), expected);
        }
    }
}

#[test]
fn what_waits_for_re_verification_goes_out_with_a_yes_and_otherwise_comes_again_in_seconds() {
    for answered in [true, false] {
        let mut world = World::new(127);
        world.subscribe_to(TopicId(1), world.lease(LONG));
        world.publish_to(TopicId(1));
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
        world.scheduler.finished(&attempt, Finished::Reverifying, world.now);
        assert_eq!(deliver_all(&mut world), []);
        if answered {
            let origin = world.scheduler.hosts.origin(attempt.host).to_owned();
            world.scheduler.release(&origin);
        } else {
            world.wait(6);
        }
        assert_eq!(deliver_all(&mut world), [Offset(1)]);
        assert_eq!(world.scheduler.take_counts().failed, 0);
    }
}

#[test]
fn what_is_refused_a_moment_before_its_host_confirms_does_not_wait_although_that_is_reported_last() {
    let address = Some(std::net::Ipv4Addr::LOCALHOST.into());
    for asked in [true, false] {
        let mut world = World::new(113);
        let id = world.subscribe_to(TopicId(1), world.lease(LONG));
        let slot = SubscriptionSummary { address, ..world.durable.slots[&id].clone() };
        world.publish_to(TopicId(1));
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
        if asked {
            world.scheduler.release(&slot.origin);
        } else {
            let topic = Box::new(world.topic(slot.topic));
            world.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
        }
        world.scheduler.finished(&attempt, Finished::RateLimited(Duration::from_secs(1_800)), world.now);
        assert_eq!(deliver_all(&mut world), [Offset(1)]);
    }
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
                let delivered = Finished::Answered { offset: Offset(1), outcome: Outcome::Delivered };
                world.scheduler.finished(&attempt, delivered, world.now);
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
            let finished = Finished::Answered { offset: attempt.offset, outcome: Outcome::Delivered };
            world.scheduler.finished(&attempt, finished, world.now);
            attempts += 1;
        }
        assert_eq!(attempts, 3 * subscriptions);
    }
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
fn a_subscription_that_ends_while_the_next_notification_is_tried_is_forgotten() {
    let (mut world, topic) = (World::new(43), TopicId(1));
    world.scheduler.limits.retry.trouble = [10, 30, 120, 600].map(Duration::from_secs).to_vec();
    let id = world.subscribe_to(topic, world.lease(LONG));
    (0..3).for_each(|_| world.publish_to(topic));
    let error = Outcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None);
    let past_suspect = (0..13 * 60).find_map(|_| {
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            let offset = attempt.offset;
            if offset == Offset(3) {
                return Some(attempt);
            }
            let outcome = if offset == Offset(2) { error.clone() } else { Outcome::Delivered };
            world.scheduler.finished(&attempt, Finished::Answered { offset, outcome }, world.now);
        }
        world.wait(1);
        None
    });
    world.scheduler.finished(&past_suspect.unwrap(), Finished::SubscriptionEnded, world.now);
    assert_eq!(world.scheduler.progress(topic, id, world.now), None);
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

#[test]
fn what_could_be_served_and_is_not_is_past_due_and_what_waits_for_its_next_attempt_is_not() {
    let (begun, topic) = (Now::read(), TopicId(1));
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
    let mut scheduler = Scheduler::new(Shard(0), limits(), state, Clock::new(begun, None), begun);
    let at = |seconds| Now { monotonic: begun.monotonic + Duration::from_secs(seconds), ..begun };
    assert_eq!(scheduler.past_due(at(1).monotonic), 0);
    assert_eq!(scheduler.past_due(at(50).monotonic), 0, "the sweep has not been waiting for long");
    assert_eq!(scheduler.past_due(at(70).monotonic), 2, "nobody was taken up");

    let attempts: Vec<_> = std::iter::from_fn(|| scheduler.next(at(71), OpenLanes::ALL)).collect();
    assert_eq!(attempts.len(), 2);
    assert_eq!(scheduler.past_due(at(200).monotonic), 0, "what is under way is not past due");
    for attempt in &attempts {
        let failed = Finished::Answered { offset: attempt.offset, outcome: Outcome::unreachable() };
        scheduler.finished(attempt, failed, at(201));
    }
    assert_eq!(scheduler.past_due(at(201).monotonic), 0, "the next attempt has its time");
    assert_eq!(scheduler.past_due(at(300).monotonic), 2, "that time has passed, and nobody was served");
}
