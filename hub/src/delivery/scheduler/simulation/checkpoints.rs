//! Checkpoints of the simulated world, and the next life after a crash or a stop.

use super::*;
use crate::store::Uptime;

impl World {
    /// As a worker does: a checkpoint that was not taken is offered again before there is another one.
    pub(super) fn checkpoint(&mut self) {
        self.seen.breakers += self.scheduler.take_opened().len();
        if self.unsaved.is_none() {
            self.unsaved = Some(self.scheduler.checkpoint(self.now));
            self.interval += 1;
        }
        match self.rng.u8(0..12) {
            // It is durable, and the hub hears of an error: the same is saved again.
            0 => {
                let checkpoint = self.unsaved.clone().expect("it was taken a moment ago");
                self.save_all_of(&checkpoint);
                self.seen.unlearned += 1;
            }
            1 | 2 => {}
            _ => self.save(),
        }
        self.take_ended();
        for (topic, id, why) in std::mem::take(&mut self.ending) {
            // As the store does: a renewal at the last moment wins, and an end is no error when it comes twice.
            let Some(slot) = self.durable.slots.get(&id) else { continue };
            match why {
                Ended::Expired if slot.lease_end > self.now.wall => continue,
                Ended::Gone { lease_end } if slot.lease_end != lease_end => continue,
                Ended::Gone { .. } => {
                    assert!(self.gone.contains_key(&id), "W-151: {id:?} ends although it has said yes since");
                }
                Ended::Expired => {}
            }
            self.durable.slots.remove(&id);
            self.durable.laggards.remove(&(topic, id));
            self.inboxes.remove(&id);
            self.scheduler.apply(&StoreEvent::Unsubscribed { shard: Shard(0), topic, id });
        }
    }

    /// What is over is on its way to the store, which takes its time.
    pub(super) fn take_ended(&mut self) {
        self.ending.extend(self.scheduler.take_ended(2));
    }

    pub(super) fn save(&mut self) {
        let Some(checkpoint) = self.unsaved.take() else { return };
        self.save_all_of(&checkpoint);
    }

    /// The process dies, and with it what it has learned since the last checkpoint, in its interval, and in as many before as two spans have
    /// beyond two.
    pub(super) fn crash(&mut self) {
        self.end_life(self.saved.saturating_sub(2 * (self.span - 1)));
    }

    /// The hub stops while requests are under way that never end: whatever it has learned by then stays known.
    pub(super) fn stop(&mut self) {
        self.save();
        self.scheduler.detach_all();
        self.checkpoint();
        self.save();
        self.end_life(self.interval);
    }

    /// The store has it, and the hub may not hear of that.
    fn save_all_of(&mut self, checkpoint: &Checkpoint) {
        self.saved = self.interval - 1;
        self.durable.seen = Some(self.now.wall);
        self.durable.save(checkpoint);
    }

    /// Requests under way may have arrived or not; nobody will ever know here. What was learned before the interval `forgotten`
    /// is still known in the next life.
    fn end_life(&mut self, forgotten: u32) {
        for attempt in std::mem::take(&mut self.in_flight) {
            let Ok(offset) = self.owed(&attempt) else { continue };
            let refused = self.suspects.contains(&(attempt.subscription, offset));
            if self.rng.bool() && !refused && !self.sick.contains_key(&attempt.subscription) {
                self.receive(attempt, offset, None);
            }
        }
        self.unsaved = None;
        self.ending.clear();
        self.sent_before_yes.clear();
        self.outdated.clear();
        for learned in self.inboxes.values_mut().flat_map(|inbox| inbox.got.values_mut()) {
            *learned = learned.filter(|interval| *interval < forgotten);
        }
        self.interval = self.saved + 1;
        let state = ShardState {
            slots: self.durable.slots.values().cloned().collect(),
            topics: (1..=TOPICS).map(|id| self.topic(TopicId(id))).collect(),
            watermarks: self.durable.watermarks.iter().map(|(topic, saved)| (*topic, *saved)).collect(),
            laggards: self.durable.laggards.values().copied().collect(),
            paused: self.durable.paused.iter().copied().collect(),
        };
        let uptime = Uptime { seen: self.durable.seen.unwrap_or(self.now.wall), clock_jumps: Vec::new() };
        let clock = Clock::new(self.now, doubt_at_start(&uptime, self.now));
        let limits = Limits { steps: self.steps, span: self.span, passed_by: self.passed_by, ..limits() };
        self.scheduler = Scheduler::new(Shard(0), limits, worker(), state, clock, self.now);
    }
}
