//! What an operator may do with the deliveries of a shard: retry, skip, replay.

use super::Scheduler;
use super::active::Phase;
use super::clock::Now;
use super::retry_policy::GivenUp;
use super::wait_queue::LastAttempt;
use crate::store::{Command, Offset, Replayed, Skip, SubscriptionId, Target, TopicId};

impl Scheduler {
    /// Carries out a command; returns how many subscriptions of this shard that concerns.
    pub(crate) fn execute(&mut self, command: &Command, now: Now) -> usize {
        match command {
            Command::Retry(target) => self.retry(target),
            Command::Skip(id) => {
                self.topic_of(*id, now).map_or(0, |topic| usize::from(self.give_up(topic, *id, now)))
            }
            Command::Replay { topic, subscription: Some(id), from } => {
                usize::from(self.replay(*topic, *id, *from, now))
            }
            Command::Replay { topic, subscription: None, from } => self.replay_topic(*topic, *from, now),
        }
    }

    fn retry(&mut self, target: &Target) -> usize {
        let host = match target {
            Target::Host(origin) => self.hosts.find(origin),
            Target::Topic(_) | Target::Subscription(_) => None,
        };
        let (mut concerned, mut open) = (Vec::new(), Vec::new());
        for (topic, state) in &mut self.topics {
            let chosen = |id, of| match target {
                Target::Host(_) => Some(of) == host,
                Target::Topic(wanted) => wanted == topic,
                Target::Subscription(wanted) => *wanted == id,
            };
            let (ended, waiting) = state.end_pauses(chosen);
            concerned.extend(ended.into_iter().map(|(of, id)| (of, (*topic, id))));
            open.extend(waiting.into_iter().filter(|of| self.hosts.is_open(*of)));
        }
        if let Some(host) = host {
            self.hosts.probe_now(host);
        }
        for (of, waiter) in &concerned {
            self.hosts.enqueue(*of, *waiter, LastAttempt::Failed);
            self.hosts.probe_now(*of);
            self.touched.insert(waiter.0);
        }
        for of in &open {
            self.hosts.probe_now(*of);
        }
        concerned.len() + open.len()
    }

    fn give_up(&mut self, topic: TopicId, id: SubscriptionId, now: Now) -> bool {
        let Some(state) = self.topics.get_mut(&topic) else { return false };
        let target = state.target();
        let Some(active) = state.active_mut(id) else { return false };
        if active.phase == Phase::InFlight || active.cursor >= target {
            return false;
        }
        let offset = active.cursor.next();
        let class = active.class;
        active.passed(offset);
        active.suspect = None;
        // Its record is saved together with what was given up.
        state.detach(id);
        let skip = Skip { topic, subscription: id, offset, at: now.wall, class, status: None };
        self.skip(skip, GivenUp::Operator);
        self.go_on(topic, id, now);
        true
    }

    fn replay(&mut self, topic: TopicId, id: SubscriptionId, from: Offset, now: Now) -> bool {
        let Some(state) = self.topics.get_mut(&topic) else { return false };
        let Some(entry) = state.table.get(id).copied().filter(|entry| entry.is_in_force(now)) else {
            return false;
        };
        let rewound = state.rewind(id, from);
        if rewound {
            self.owe_again(Replayed { topic, subscription: Some(id), from });
            self.hosts.enqueue(entry.host, (topic, id), LastAttempt::Failed);
            self.settle(topic);
        }
        rewound
    }

    /// What was given up is owed again.
    fn owe_again(&mut self, replayed: Replayed) {
        self.unsaved.skips.retain(|skip| !replayed.covers(skip));
        self.unsaved.replayed.push(replayed);
    }

    fn replay_topic(&mut self, topic: TopicId, from: Offset, now: Now) -> usize {
        let Some(state) = self.topics.get_mut(&topic).filter(|state| from <= state.head) else { return 0 };
        for (host, id) in state.rewind_all(from) {
            self.hosts.enqueue(host, (topic, id), LastAttempt::Failed);
        }
        let concerned = state.table.in_force(now);
        self.owe_again(Replayed { topic, subscription: None, from });
        self.settle(topic);
        concerned
    }
}
