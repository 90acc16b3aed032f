//! Notifications that wait for a confirmation, since their name leads to an unconfirmed address.

use super::*;

/// A world with a subscriber whose name leads to an unconfirmed address, and a notification for it that was not sent.
fn rate_limited(seed: u64) -> (World, SubscriptionSummary) {
    let mut world = World::new(seed);
    let id = world.subscribe_to(TopicId(1), world.lease(LONG));
    let slot = world.durable.slots[&id].clone();
    world.publish_to(TopicId(1));
    let attempt = world.scheduler.next(world.now, OpenLanes::ALL).unwrap();
    world.scheduler.attempt_finished(&attempt, Finished::RateLimited(Duration::from_secs(1_800)), world.now);
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
            world.scheduler.attempt_finished(
                &attempt,
                Finished::RateLimited(Duration::from_secs(1)),
                world.now,
            );
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
        world.scheduler.attempt_finished(&attempt, Finished::Reverifying, world.now);
        assert_eq!(deliver_all(&mut world), []);
        if answered {
            let origin = world.scheduler.hosts.origin(attempt.host).to_owned();
            world.scheduler.origin_confirmed(&origin);
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
            world.scheduler.origin_confirmed(&slot.origin);
        } else {
            let topic = Box::new(world.topic(slot.topic));
            world.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
        }
        world.scheduler.attempt_finished(
            &attempt,
            Finished::RateLimited(Duration::from_secs(1_800)),
            world.now,
        );
        assert_eq!(deliver_all(&mut world), [Offset(1)]);
    }
}
