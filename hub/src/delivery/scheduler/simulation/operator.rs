//! What the operator of the simulated world does.

use super::*;

impl World {
    /// The operator pauses a topic, or lets it go on.
    pub(super) fn pause(&mut self) {
        let topic = self.any_topic();
        let event = if self.durable.paused.insert(topic) {
            self.seen.held += 1;
            StoreEvent::Paused { topic }
        } else {
            self.durable.paused.remove(&topic);
            StoreEvent::Resumed { topic }
        };
        self.scheduler.apply(&event);
    }

    /// The operator wants late subscriptions to be tried, or one notification to be given up.
    pub(super) fn retry(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let command = match self.rng.u8(0..4) {
            0 => Command::Retry(Target::Topic(self.any_topic())),
            1 => Command::Retry(Target::Host(self.durable.slots[&id].origin.to_string())),
            2 => Command::Retry(Target::Subscription(id)),
            _ => Command::Skip(id),
        };
        self.scheduler.execute(&command, self.now);
    }

    /// The operator wants everything from somewhere on to be delivered once more, to one subscription or to all of a topic,
    /// and hears that it will be when that is durable.
    pub(super) fn replay(&mut self) {
        let Some(id) = self.some_subscription() else { return };
        let topic = self.durable.slots[&id].topic;
        let from = Offset(self.rng.u64(0..=self.topic(topic).head.0 + 1));
        let subscription = self.rng.bool().then_some(id);
        self.save();
        let concerned = self.scheduler.execute(&Command::Replay { topic, subscription, from }, self.now);
        self.checkpoint();
        self.save();
        // Those whose lease is over by a clock that is in doubt are not counted, and get it again with all others of their topic.
        let is_of_all = subscription.is_none() && from <= self.topic(topic).head;
        if concerned == 0 && !is_of_all {
            return;
        }
        self.seen.replays += 1;
        let to = Offset(from.0.saturating_sub(1));
        let whose =
            |slot: &&SubscriptionSummary| slot.topic == topic && subscription.is_none_or(|id| slot.id == id);
        for slot in self.durable.slots.values().filter(whose) {
            let to = to.max(slot.start);
            let inbox = self.inboxes.get_mut(&slot.id).unwrap();
            inbox.got.split_off(&to.next());
            inbox.got.values_mut().for_each(|learned| *learned = None);
            inbox.last = inbox.last.map(|last| last.min(to));
            let under_way = self.in_flight.iter().filter(|attempt| attempt.subscription == slot.id);
            let sent: Vec<_> = under_way.filter_map(|attempt| self.owed(attempt).ok()).collect();
            self.outdated.extend(sent.into_iter().map(|offset| (slot.id, offset)));
        }
    }
}
