//! Single courses of events in the world of the simulation: what each of them must lead to.

mod clock;
mod crowded_hosts;
mod giving_up;
mod gone;
mod operator;
mod retention;
mod retries;
mod sweeps;
mod unconfirmed;

use super::*;
use crate::delivery::scheduler::lanes::OpenLanes;

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

/// Everything that can be sent now is under way.
fn all_sent(world: &mut World) -> Vec<Attempt> {
    std::iter::from_fn(|| world.scheduler.next(world.now, OpenLanes::ALL)).collect()
}

/// Lets everything that can be sent arrive.
fn deliver_all(world: &mut World) -> Vec<Offset> {
    let mut delivered = Vec::new();
    while let Some(attempt) = world.scheduler.next(world.now, OpenLanes::ALL) {
        let finished = match world.owed(&attempt) {
            Ok(offset) => {
                delivered.push(offset);
                Finished::Answered { offset, outcome: DeliveryOutcome::Delivered }
            }
            Err(without) => without,
        };
        world.scheduler.attempt_finished(&attempt, finished, world.now);
    }
    delivered
}

fn accept(world: &mut World, attempt: &Attempt) {
    let delivered = Finished::Answered { offset: attempt.offset, outcome: DeliveryOutcome::Delivered };
    world.scheduler.attempt_finished(attempt, delivered, world.now);
}

fn refuse(world: &mut World, attempt: &Attempt) {
    let outcome = DeliveryOutcome::of_status(http::StatusCode::NOT_FOUND, None);
    let refused = Finished::Answered { offset: attempt.offset, outcome };
    world.scheduler.attempt_finished(attempt, refused, world.now);
}
