//! Shards that a worker is about to take over: what happens until they come is kept for them.
//!
//! The state of a shard is read from the store while the worker takes in events for the shards that it has. What becomes durable after that
//! reading must reach the new scheduler too, and in its order. So the order is this:
//!
//! 1. The worker begins to keep each event that it takes in, and says so.
//! 2. Only then the state is read: whatever was taken in before is in it, since the store tells of nothing that it does not show.
//! 3. The scheduler comes to the worker, is given what was kept, and is one of those that get the next event.
//!
//! All events come from one receiver, so none is missed between the kept ones and the next, and none is out of order. Those that came between
//! 1 and 2 are in the state already. They are applied once more, which changes nothing: the last one of each subscription and of each topic
//! decides, and it is among them.

use std::collections::BTreeMap;

use crate::store::{Shard, StoreEvent};

/// What is kept for the shards that are expected.
#[derive(Debug, Default)]
pub(super) struct Expected(BTreeMap<Shard, Vec<StoreEvent>>);

impl Expected {
    /// From now on events are kept for this shard.
    pub(super) fn begin(&mut self, shard: Shard) {
        self.0.insert(shard, Vec::new());
    }

    /// Whether this shard is expected.
    pub(super) fn contains(&self, shard: Shard) -> bool {
        self.0.contains_key(&shard)
    }

    /// An event was taken in. Those about subscriptions of other shards are left out, and so kept once at most.
    pub(super) fn keep(&mut self, event: &StoreEvent) {
        match event {
            StoreEvent::Subscribed { shard, .. } | StoreEvent::Unsubscribed { shard, .. } => {
                if let Some(kept) = self.0.get_mut(shard) {
                    kept.push(event.clone());
                }
            }
            StoreEvent::Appended { .. }
            | StoreEvent::Paused { .. }
            | StoreEvent::Resumed { .. }
            | StoreEvent::Resync => {
                self.0.values_mut().for_each(|kept| kept.push(event.clone()));
            }
        }
    }

    /// The shard is here, or will not come. Returns what was kept for it.
    pub(super) fn end(&mut self, shard: Shard) -> Vec<StoreEvent> {
        self.0.remove(&shard).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SubscriptionId, TopicId};

    fn paused(topic: u64) -> StoreEvent {
        StoreEvent::Paused { topic: TopicId(topic) }
    }

    fn topics(kept: &[StoreEvent]) -> Vec<u64> {
        let topic = |event: &StoreEvent| match event {
            StoreEvent::Paused { topic } => topic.0,
            event => panic!("{event:?}"),
        };
        kept.iter().map(topic).collect()
    }

    #[test]
    fn what_happens_from_the_moment_when_a_shard_is_expected_is_kept_for_it_in_its_order() {
        let mut expected = Expected::default();
        expected.keep(&paused(1));
        expected.begin(Shard(7));
        expected.keep(&paused(2));
        expected.begin(Shard(8));
        expected.keep(&paused(3));
        assert!(expected.contains(Shard(7)));
        assert_eq!(topics(&expected.end(Shard(7))), [2, 3]);
        expected.keep(&paused(4));
        assert_eq!(topics(&expected.end(Shard(8))), [3, 4]);
        expected.begin(Shard(7));
        assert!(expected.end(Shard(7)).is_empty(), "nothing is left of the time before");
    }

    #[test]
    fn what_is_about_a_subscription_is_kept_for_its_shard_alone() {
        let mut expected = Expected::default();
        [7, 8].map(Shard).into_iter().for_each(|shard| expected.begin(shard));
        for shard in [8, 9].map(Shard) {
            expected.keep(&StoreEvent::Unsubscribed { shard, topic: TopicId(1), id: SubscriptionId(1) });
        }
        assert_eq!([7, 8, 9].map(|shard| expected.end(Shard(shard)).len()), [0, 1, 0]);
    }
}
