//! W-151: subscribers that answer with 410, and those that say yes after it.

use super::retries::refusing_what_changes_every_minute;
use super::*;

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
        let outcome = DeliveryOutcome::of_status(http::StatusCode::GONE, None);
        let answered = Finished::Answered { offset: world.owed(&attempt).unwrap(), outcome };
        world.scheduler.attempt_finished(&attempt, answered, world.now);
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
            let outcome = DeliveryOutcome::of_status(http::StatusCode::GONE, None);
            let answered = Finished::Answered { offset: attempt.offset, outcome };
            world.scheduler.attempt_finished(&attempt, answered, world.now);
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
