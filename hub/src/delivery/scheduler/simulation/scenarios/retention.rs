//! Retention and versions that are superseded: what is lost, and how that is counted.

use super::*;

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
    world.scheduler.attempt_finished(&first, gap, world.now);
    assert_eq!(deliver_all(&mut world), [6, 7, 8, 9].map(Offset));
    assert_eq!(world.scheduler.take_counts().lost_to_retention, 5);
}

#[test]
fn a_gap_is_saved_together_with_how_far_its_subscription_is_and_found_once() {
    let (mut world, topic) = (World::new(109), TopicId(1));
    (world.span, world.scheduler.limits.span) = (4, 4);
    let [hanging, behind] = [(); 2].map(|()| world.subscribe_to(topic, world.lease(LONG)));
    append(&mut world, topic, ContentKind::Posted);
    let attempts = all_sent(&mut world);
    let attempt = attempts.iter().find(|attempt| attempt.subscription == behind).unwrap();
    world.durable.firsts.insert(topic, Offset(2));
    let gap = world.owed(attempt).unwrap_err();
    world.scheduler.attempt_finished(attempt, gap, world.now);
    // The other one keeps the watermark below both.
    let checkpoint = world.scheduler.checkpoint(world.now);
    world.durable.save(&checkpoint);
    assert_eq!((checkpoint.gaps.len(), checkpoint.laggards.len()), (1, 1), "{checkpoint:?}");
    world.crash();
    deliver_all(&mut world);
    let checkpoint = world.scheduler.checkpoint(world.now);
    world.durable.save(&checkpoint);
    let found: Vec<_> = world.durable.gaps.iter().map(|gap| gap.subscription).collect();
    assert_eq!((found, world.scheduler.take_counts().lost_to_retention), (vec![behind, hanging], 1));
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
    world.scheduler.attempt_finished(&attempt, without, world.now);
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
    world.scheduler.attempt_finished(&attempt, without, world.now);
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
                world.scheduler.attempt_finished(&attempt, without, world.now);
            }
            (attempt.offset.0, attempt.number)
        })
        .collect();
    assert_eq!(numbers, [(1, 2), (3, 1)]);
}
