//! The end of subscriptions: by their leases, or after a repeated 410.

use std::cmp::Reverse;
use std::time::Duration;

use resync_core::datetime::DateTime;

use super::Scheduler;
use super::active::Phase;
use super::clock::Now;
use super::topic::TopicState;
use crate::store::{Ended, SubscriptionId, TopicId};

/// How long the end of a subscription may take before it is asked for again.
const ENDING: Duration = Duration::from_secs(5);

impl Scheduler {
    /// Ends all subscriptions whose lease is over (W-123); delivery itself never waits for this.
    pub(crate) fn expire(&mut self, now: Now) {
        if self.clock.is_in_doubt(now) {
            return;
        }
        let expiring: Vec<_> = self.expiring(now).map(|(topic, _)| topic).collect();
        for id in expiring {
            let Some(topic) = self.topics.get_mut(&id) else { continue };
            self.ended.extend(topic.table.over(now).map(|(over, _)| ((id, over), Ended::Expired)));
            let before = topic.table.first_end();
            topic.table.look_at_ends(now);
            let after = topic.table.first_end();
            self.note_first_end(id, before, after);
        }
    }

    /// The topics in which leases may be over.
    pub(super) fn expiring(&self, now: Now) -> impl Iterator<Item = (TopicId, &TopicState)> {
        let expiring = self.first_ends.iter().take_while(move |(first, _)| *first <= now.wall);
        expiring.filter_map(|(_, id)| Some((*id, self.topics.get(id)?)))
    }

    /// Before this moment no lease of this topic ends, and before that one none did.
    pub(super) fn note_first_end(&mut self, topic: TopicId, before: Option<DateTime>, now: Option<DateTime>) {
        if before != now {
            before.map(|end| self.first_ends.remove(&(end, topic)));
            self.first_ends.extend(now.map(|end| (end, topic)));
        }
    }

    /// At most so many subscriptions that are over and have to be ended in the store.
    pub(crate) fn take_ended(&mut self, limit: usize) -> Vec<(TopicId, SubscriptionId, Ended)> {
        let over = std::iter::from_fn(|| self.ended.pop_first());
        over.take(limit).map(|((topic, id), why)| (topic, id, why)).collect()
    }

    /// Asks for the end of a subscription. Until the store says that it has ended, or that it was renewed at the last moment,
    /// it stays and gets nothing.
    pub(super) fn end(&mut self, topic: TopicId, id: SubscriptionId, why: Ended, now: Now) {
        self.ended.insert((topic, id), why);
        match why {
            Ended::Expired => self.withhold(topic, id, ENDING, now),
            Ended::Gone { .. } => self.back_off(topic, id, ENDING, now),
        }
    }

    /// Puts off a subscription whose lease is over. Where it has a record of its own, that says what the next life has to know: there may be
    /// very many, for minutes, and each moment of theirs is not worth a write.
    pub(super) fn withhold(&mut self, topic: TopicId, id: SubscriptionId, pause: Duration, now: Now) {
        let due = now.monotonic + pause;
        let active = self.topics.get_mut(&topic).and_then(|state| state.active_mut(id));
        match active.filter(|active| active.saved) {
            Some(active) => {
                active.phase = Phase::Backoff(due);
                self.timers.push(Reverse((due, topic, id)));
            }
            None => self.back_off(topic, id, pause, now),
        }
    }
}
