//! When a notification is given up, and when it must not be.

use super::*;

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

#[test]
fn what_is_given_up_is_saved_together_with_how_far_its_subscription_is_and_not_sent_again() {
    let (mut world, topic) = (World::new(113), TopicId(1));
    world.span = 4;
    let [hanging, refusing] = [(); 2].map(|()| world.subscribe_to(topic, world.lease(LONG)));
    (0..3).for_each(|_| append(&mut world, topic, ContentKind::Posted));
    // In its next life the hub has one sweep about all three.
    world.crash();
    world.scheduler.limits.retry.refused = Vec::new();
    let attempts = all_sent(&mut world);
    let attempt = attempts.iter().find(|attempt| attempt.subscription == refusing).unwrap();
    refuse(&mut world, attempt);
    // The other one keeps the watermark below both.
    let checkpoint = world.scheduler.checkpoint(world.now);
    world.durable.save(&checkpoint);
    assert_eq!((checkpoint.skips.len(), checkpoint.laggards.len()), (1, 1), "{checkpoint:?}");
    world.crash();
    let sent = all_sent(&mut world).into_iter();
    let sent: BTreeMap<_, _> = sent.map(|attempt| (attempt.subscription, attempt.offset)).collect();
    assert_eq!(sent, BTreeMap::from([(hanging, Offset(1)), (refusing, Offset(2))]));
}

/// How a subscriber fails at its second notification of five, the others of which it takes; returns what it got by the time that
/// all others came, and whether the second was given up.
fn failing_at_the_second(world: &mut World, failure: &DeliveryOutcome) -> (Vec<u64>, bool) {
    let trouble = [10, 30, 120, 600, 1_800, 3_600].map(Duration::from_secs).to_vec();
    world.scheduler.limits.retry.trouble = trouble;
    let topic = TopicId(1);
    let id = world.subscribe_to(topic, world.lease(LONG));
    (0..5).for_each(|_| world.publish_to(topic));
    let (mut got, mut waited) = (Vec::new(), 0);
    while got.len() < 4 {
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            let outcome =
                if attempt.offset == Offset(2) { failure.clone() } else { DeliveryOutcome::Delivered };
            if outcome == DeliveryOutcome::Delivered {
                got.push(attempt.offset.0);
            }
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.attempt_finished(&attempt, answered, world.now);
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
    let error = DeliveryOutcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None);
    let (got, skipped) = failing_at_the_second(&mut World::new(3), &error);
    assert_eq!((got, skipped), (vec![1, 3, 4, 5], true));
}

/// A subscriber takes all of five notifications but the second, which it answers so, one answer after the other, before it takes that too;
/// returns what it got, and what was given up. Whenever it has taken the third, its host has no permit for so many seconds.
fn answering_the_second(answers: &[u16], busy: u64) -> (Vec<u64>, [u64; 4]) {
    let mut world = World::new(71);
    world.scheduler.limits.retry.trouble = [10, 30, 120, 600, 1_800, 3_600].map(Duration::from_secs).to_vec();
    let topic = TopicId(1);
    world.subscribe_to(topic, world.lease(LONG));
    (0..5).for_each(|_| world.publish_to(topic));
    let (mut got, mut answers) = (Vec::new(), answers.iter());
    while world.scheduler.next_timer().is_some() || got.is_empty() {
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            let status = if attempt.offset == Offset(2) { answers.next() } else { None };
            let status = status.map_or(http::StatusCode::OK, |status| (*status).try_into().unwrap());
            let outcome = DeliveryOutcome::of_status(status, None);
            if outcome == DeliveryOutcome::Delivered {
                got.push(attempt.offset.0);
            }
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.attempt_finished(&attempt, answered, world.now);
            if attempt.offset == Offset(3) {
                world.wait(busy);
            }
        }
        world.wait(1);
    }
    (got, world.scheduler.take_counts().given_up)
}

#[test]
fn a_server_that_comes_back_between_two_attempts_gets_what_it_failed_at_behind_the_next_one() {
    assert_eq!(answering_the_second(&[500; 4], 0), (vec![1, 3, 2, 4, 5], [0; 4]));
    assert_eq!(answering_the_second(&[500; 5], 0), (vec![1, 3, 4, 5], [0, 0, 1, 0]));
    // It asks for patience: the order is what it was, and what it has comes again.
    assert_eq!(answering_the_second(&[500, 500, 500, 500, 429], 0), (vec![1, 3, 2, 3, 4, 5], [0; 4]));
}

#[test]
fn a_failure_long_after_the_next_notification_was_taken_does_not_show_that_it_is_for_what_was_sent() {
    assert_eq!(answering_the_second(&[500; 5], 5), (vec![1, 3, 4, 5], [0, 0, 1, 0]));
    assert_eq!(answering_the_second(&[500; 5], 6), (vec![1, 3, 3, 2, 3, 4, 5], [0; 4]));
}

#[test]
fn what_was_taken_behind_a_suspect_comes_again_where_the_operator_wants_it_so() {
    for is_of_all in [false, true] {
        let (mut world, topic) = (World::new(73), TopicId(1));
        world.scheduler.limits.retry.trouble = vec![Duration::from_secs(10); 6];
        let id = world.subscribe_to(topic, world.lease(LONG));
        (0..3).for_each(|_| world.publish_to(topic));
        let error = DeliveryOutcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None);
        let (mut got, mut failures) = (Vec::new(), 0);
        for _ in 0..120 {
            while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
                let fails = attempt.offset == Offset(2) && failures < 4;
                failures += u32::from(fails);
                let outcome = if fails { error.clone() } else { DeliveryOutcome::Delivered };
                if !fails {
                    got.push(attempt.offset.0);
                }
                let answered = Finished::Answered { offset: attempt.offset, outcome };
                world.scheduler.attempt_finished(&attempt, answered, world.now);
                if got == [1, 3] {
                    let subscription = (!is_of_all).then_some(id);
                    let replay = Command::Replay { topic, subscription, from: Offset(3) };
                    world.scheduler.execute(&replay, world.now);
                }
            }
            world.wait(1);
        }
        assert_eq!(got, [1, 3, 2, 3], "{is_of_all}");
    }
}

/// What a subscriber has got after 13 minutes whose server hangs up on the second of five notifications, or lets it time out, and what
/// was given up; `others`: whether its host answers somebody else every few seconds.
fn unanswered_at_the_second(outcome: &DeliveryOutcome, others: bool) -> (Vec<u64>, [u64; 4]) {
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
            let outcome = if is_second { outcome.clone() } else { DeliveryOutcome::Delivered };
            if attempt.topic == topic && !is_second {
                got.push(attempt.offset.0);
            }
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.attempt_finished(&attempt, answered, world.now);
        }
        world.wait(1);
    }
    (got, world.scheduler.take_counts().given_up)
}

#[test]
fn a_notification_on_which_a_server_hangs_up_is_given_up_where_its_host_answers_others_and_only_there() {
    assert_eq!(unanswered_at_the_second(&DeliveryOutcome::cut(), true), (vec![1, 3, 4, 5], [0, 0, 1, 0]));
    assert_eq!(unanswered_at_the_second(&DeliveryOutcome::cut(), false), (vec![1], [0; 4]));
    assert_eq!(unanswered_at_the_second(&DeliveryOutcome::unreachable(), true), (vec![1], [0; 4]));
}

#[test]
fn a_notification_that_met_an_outage_is_not_given_up_for_errors_after_it() {
    let error = DeliveryOutcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None);
    for unanswered in 1..6 {
        let mut world = World::new(59);
        world.scheduler.limits.retry.trouble = vec![Duration::from_secs(10); 15];
        let topic = TopicId(1);
        world.subscribe_to(topic, world.lease(LONG));
        (0..3).for_each(|_| world.publish_to(topic));
        let mut answers = vec![error.clone(); 3];
        answers.resize(3 + unanswered, DeliveryOutcome::unreachable());
        answers.resize(6 + unanswered, error.clone());
        let mut got = Vec::new();
        while world.scheduler.next_timer().is_some() || got.is_empty() {
            while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
                let outcome = answers.pop().unwrap_or(DeliveryOutcome::Delivered);
                if outcome == DeliveryOutcome::Delivered {
                    got.push(attempt.offset.0);
                }
                let answered = Finished::Answered { offset: attempt.offset, outcome };
                world.scheduler.attempt_finished(&attempt, answered, world.now);
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
    world.scheduler = Scheduler::new(Shard(0), limits, worker(), ShardState::default(), clock, world.now);
    world.scheduler.limits.retry.trouble = [10, 30, 120, 600, 1_800, 3_600].map(Duration::from_secs).to_vec();
    let topic = TopicId(1);
    for outage in (60_u64..3_600).step_by(60) {
        world.subscribe_to(topic, world.lease(LONG));
        (0..3).for_each(|_| world.publish_to(topic));
        let mut failing = outage;
        while failing > 0 || world.scheduler.next_timer().is_some() {
            while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
                let outcome =
                    if failing > 0 { DeliveryOutcome::unreachable() } else { DeliveryOutcome::Delivered };
                let answered = Finished::Answered { offset: attempt.offset, outcome };
                world.scheduler.attempt_finished(&attempt, answered, world.now);
            }
            world.wait(5);
            failing = failing.saturating_sub(5);
        }
        assert_eq!(world.scheduler.take_counts().given_up, [0; 4], "after {outage} s");
    }
}

#[test]
fn a_subscription_that_ends_while_the_next_notification_is_tried_is_forgotten() {
    let (mut world, topic) = (World::new(43), TopicId(1));
    world.scheduler.limits.retry.trouble = [10, 30, 120, 600].map(Duration::from_secs).to_vec();
    let id = world.subscribe_to(topic, world.lease(LONG));
    (0..3).for_each(|_| world.publish_to(topic));
    let error = DeliveryOutcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None);
    let past_suspect = (0..13 * 60).find_map(|_| {
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            let offset = attempt.offset;
            if offset == Offset(3) {
                return Some(attempt);
            }
            let outcome = if offset == Offset(2) { error.clone() } else { DeliveryOutcome::Delivered };
            world.scheduler.attempt_finished(&attempt, Finished::Answered { offset, outcome }, world.now);
        }
        world.wait(1);
        None
    });
    world.scheduler.attempt_finished(&past_suspect.unwrap(), Finished::SubscriptionEnded, world.now);
    assert_eq!(world.scheduler.progress(topic, id, world.now), None);
}
