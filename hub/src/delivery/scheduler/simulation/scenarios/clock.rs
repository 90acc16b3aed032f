//! Courses of events in the world of the simulation in which leases end, or the clock is wrong.

use super::*;

#[test]
fn a_clock_that_is_set_forward_for_a_minute_ends_no_lease() {
    let mut world = World::new(59);
    let topic = TopicId(1);
    for hours in 1..=6 {
        world.subscribe_to(topic, world.lease(hours * 3_600));
    }
    world.jump_forward(12 * 3_600);
    world.publish_to(topic);
    assert_that_no_lease_ends_while_the_clock_is_ahead(&mut world);
}

#[test]
fn leases_end_late_after_a_jump_of_the_clock_and_on_time_without_one() {
    let mut world = World::new(61);
    world.subscribe_to(TopicId(1), world.lease(60));
    world.wait(60);
    world.scheduler.expire(world.now);
    assert_eq!(world.scheduler.take_ended(10).len(), 1);
    world.jump_forward(3_600);
    world.scheduler.expire(world.now);
    assert_eq!(world.scheduler.take_ended(10), []);
    world.wait(600);
    world.scheduler.expire(world.now);
    assert_eq!(world.scheduler.take_ended(10).len(), 1);
}

#[test]
fn when_many_leases_are_over_at_once_they_end_a_few_at_a_time() {
    let mut world = World::new(71);
    for _ in 0..1_000 {
        world.subscribe_to(TopicId(1), world.lease(60));
    }
    world.wait(60);
    world.scheduler.expire(world.now);
    let ends: Vec<_> = std::iter::from_fn(|| Some(world.scheduler.take_ended(400)))
        .take_while(|ended| !ended.is_empty())
        .map(|ended| ended.len())
        .collect();
    assert_eq!(ends, [400, 400, 200]);
}

#[test]
fn a_clock_that_is_set_forward_makes_nobody_dormant() {
    let mut world = World::new(79);
    world.scheduler.limits.retry.refused = vec![Duration::from_secs(10); 4];
    let topic = TopicId(1);
    world.subscribe_to(topic, world.lease(LONG));
    world.publish_to(topic);
    let mut attempts = 0;
    for second in 0..45 {
        if second == 5 {
            world.jump_forward(25 * 3_600);
        }
        while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
            attempts += 1;
            let outcome = DeliveryOutcome::of_status(http::StatusCode::NOT_FOUND, None);
            world.scheduler.attempt_finished(
                &attempt,
                Finished::Answered { offset: Offset(1), outcome },
                world.now,
            );
        }
        world.wait(1);
    }
    assert!(attempts >= 4, "{attempts}: it has been failing for seconds, not for a day");
}

#[test]
fn a_clock_that_was_ahead_in_the_life_before_postpones_nothing() {
    let mut world = World::new(83);
    world.subscribe_to(TopicId(1), world.lease(LONG));
    world.publish_to(TopicId(1));
    world.jump_forward(50 * 24 * 3_600);
    world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    world.scheduler.detach_all();
    world.checkpoint();
    world.save();
    assert_eq!(world.durable.laggards.len(), 1);
    world.jump_back(50 * 24 * 3_600);
    world.crash();
    assert_eq!(deliver_all(&mut world), [Offset(1)], "it was never told to wait");
}

#[test]
fn a_hub_that_starts_while_the_clock_is_ahead_makes_nobody_dormant() {
    let mut world = World::new(85);
    let topic = TopicId(1);
    world.subscribe_to(topic, world.lease(LONG));
    world.publish_to(topic);
    let refuse = |world: &mut World| {
        let attempt = world.scheduler.next(world.now, OpenLanes::ALL)?;
        let outcome = DeliveryOutcome::of_status(http::StatusCode::NOT_FOUND, None);
        world.scheduler.attempt_finished(
            &attempt,
            Finished::Answered { offset: Offset(1), outcome },
            world.now,
        );
        world.scheduler.laggards(None, 1, world.now)[0].next_attempt_in
    };
    let pause = refuse(&mut world).unwrap();
    world.checkpoint();
    world.save();
    world.jump_forward(50 * 24 * 3_600);
    world.crash();
    world.wait(pause.as_secs() + 1);
    let pause = refuse(&mut world).unwrap();
    assert!(pause < Duration::from_secs(3_600), "{pause:?}: it has been failing for a moment");
}

#[test]
fn a_hub_that_starts_while_the_clock_is_ahead_ends_no_lease() {
    let mut world = World::new(89);
    for hours in 1..=6 {
        world.subscribe_to(TopicId(1), world.lease(hours * 3_600));
    }
    world.checkpoint();
    world.save();
    world.jump_forward(12 * 3_600);
    world.crash();
    world.publish_to(TopicId(1));
    assert_that_no_lease_ends_while_the_clock_is_ahead(&mut world);
}

#[test]
fn who_waits_for_the_end_of_its_lease_is_written_down_once() {
    let mut world = World::new(91);
    for _ in 0..6 {
        world.subscribe_to(TopicId(1), world.lease(3_600));
    }
    world.publish_to(TopicId(1));
    world.jump_forward(12 * 3_600);
    let mut records = Vec::new();
    // In doubt at first, and then while the store takes its time to end them.
    for _ in 0..30 {
        assert_eq!(deliver_all(&mut world), []);
        records.push(world.scheduler.checkpoint(world.now).laggards.len());
        world.wait(30);
    }
    assert_eq!(world.scheduler.take_ended(10).len(), 6);
    assert_eq!(records.iter().sum::<usize>(), 6, "{records:?}");
}

/// The clock is half a day ahead of six subscriptions that are owed one notification, for a minute.
fn assert_that_no_lease_ends_while_the_clock_is_ahead(world: &mut World) {
    for _ in 0..6 {
        world.scheduler.expire(world.now);
        assert_eq!(deliver_all(world), [], "W-123: by what the clock says, all leases are over");
        world.wait(10);
    }
    world.jump_back(12 * 3_600);
    assert_eq!(world.scheduler.take_ended(10), []);
    world.wait(30);
    assert_eq!(deliver_all(world), [Offset(1); 6]);
}
