//! Hosts with many subscriptions: how they come back, and whom a crowd must not hold up.

use std::collections::VecDeque;

use super::*;

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
            let attempts = all_sent(&mut world);
            if attempts.is_empty() {
                break;
            }
            most = most.max(attempts.len());
            for attempt in attempts {
                let outcome = if is_up { DeliveryOutcome::Delivered } else { DeliveryOutcome::unreachable() };
                delivered += usize::from(is_up);
                failed += usize::from(!is_up);
                world.scheduler.attempt_finished(
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

#[test]
fn a_crowd_of_one_topic_holds_up_no_other_at_the_same_host() {
    let mut world = World::new(67);
    world.scheduler.limits.window = 1_024;
    let (crowd, few) = (TopicId(1), TopicId(2));
    for id in 1..=5_010 {
        join(&mut world, if id <= 5_000 { crowd } else { few }, id, "http://crowded.example");
    }
    append(&mut world, crowd, ContentKind::Posted);
    // Each checkpoint lets the sweep pass by who waits, so that in the end the whole crowd is in the host's queue.
    let mut in_flight = VecDeque::new();
    for _ in 0..10 {
        in_flight.extend(all_sent(&mut world));
        world.scheduler.checkpoint(world.now);
    }
    append(&mut world, few, ContentKind::Posted);
    let (mut served, mut few_left) = (0, 10);
    while few_left > 0 {
        let attempt: Attempt = in_flight.pop_front().expect("somebody is served");
        served += 1;
        few_left -= usize::from(attempt.topic == few);
        let delivered = Finished::Answered { offset: Offset(1), outcome: DeliveryOutcome::Delivered };
        world.scheduler.attempt_finished(&attempt, delivered, world.now);
        in_flight.extend(all_sent(&mut world));
    }
    assert!(served <= 50, "the ten had to wait for {served}");
}
