//! Retries: the pauses between the attempts at a subscription.

use super::*;

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
            let outcome = DeliveryOutcome::of_status(http::StatusCode::NOT_FOUND, None);
            let offset = world.owed(&attempt).unwrap();
            world.scheduler.attempt_finished(&attempt, Finished::Answered { offset, outcome }, world.now);
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

/// A subscriber of content that changes every minute answers everything with this status; returns the minutes of the attempts.
pub(super) fn refusing_what_changes_every_minute(world: &mut World, status: u16) -> Vec<u64> {
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
                let outcome = DeliveryOutcome::of_status(http::StatusCode::from_u16(status).unwrap(), None);
                let answered = Finished::Answered { offset: world.owed(&attempt).unwrap(), outcome };
                world.scheduler.attempt_finished(&attempt, answered, world.now);
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
        world.scheduler.attempt_finished(&attempt, Finished::Unreadable, world.now);
        world.wait(3_599);
        assert_eq!(world.scheduler.next(world.now, OpenLanes::ALL), None);
        world.wait(1);
    }
}
