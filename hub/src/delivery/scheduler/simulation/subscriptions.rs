//! The subscriptions of the simulated world: they begin, are renewed and end.

use super::*;

impl World {
    pub(super) fn subscribe(&mut self) {
        let lease_end = self.some_lease();
        self.subscribe_until(lease_end);
    }

    pub(super) fn subscribe_until(&mut self, lease_end: DateTime) {
        let topic = self.any_topic();
        self.subscribe_to(topic, lease_end);
    }

    pub(super) fn subscribe_to(&mut self, topic: TopicId, lease_end: DateTime) -> SubscriptionId {
        let id = SubscriptionId(self.next_id);
        self.next_id += 1;
        let slot = SubscriptionSummary {
            id,
            topic,
            origin: format!("http://host{}.example", self.rng.u64(0..HOSTS)).into(),
            start: self.topic(topic).head,
            lease_end,
            address: None,
        };
        self.durable.slots.insert(id, slot.clone());
        self.inboxes.insert(id, Inbox::default());
        let topic = Box::new(self.topic(topic));
        self.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
        id
    }

    pub(super) fn renew(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let lease_end = self.some_lease();
        let slot = self.renewed(id, lease_end);
        if self.in_flight.iter().any(|attempt| attempt.subscription == id) {
            self.sent_before_yes.insert(id);
        }
        let topic = Box::new(self.topic(slot.topic));
        self.scheduler.apply(&StoreEvent::Subscribed { shard: Shard(0), slot, topic });
    }

    /// What the store has of a subscription that said yes now; the scheduler does not know it yet.
    pub(super) fn renewed(&mut self, id: SubscriptionId, lease_end: DateTime) -> SubscriptionSummary {
        // The moments of this world are whole seconds. Two yeses of one subscriber take longer than none.
        self.renewals += 1;
        let later = lease_end.to_system_time() + Duration::from_millis(self.renewals);
        let slot = self.durable.slots.get_mut(&id).unwrap();
        slot.lease_end = DateTime::from_system_time(later);
        self.gone.remove(&id);
        slot.clone()
    }

    pub(super) fn unsubscribe(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let slot = self.durable.slots.remove(&id).unwrap();
        self.durable.laggards.remove(&(slot.topic, id));
        self.inboxes.remove(&id);
        self.scheduler.apply(&StoreEvent::Unsubscribed { shard: Shard(0), topic: slot.topic, id });
    }

    pub(super) fn some_subscription(&mut self) -> Option<SubscriptionId> {
        let ids: Vec<_> = self.durable.slots.keys().copied().collect();
        self.rng.choice(ids)
    }

    /// Most leases outlive the simulation, some are short.
    fn some_lease(&mut self) -> DateTime {
        let seconds = if self.rng.u8(0..4) == 0 { self.rng.u64(1..30) } else { LONG };
        self.lease(seconds)
    }

    pub(super) fn lease(&self, seconds: u64) -> DateTime {
        DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(seconds))
    }
}
