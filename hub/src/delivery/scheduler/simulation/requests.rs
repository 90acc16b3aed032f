//! The requests of the simulated world: which are made, and how they are answered.

use super::*;
use crate::delivery::scheduler::lanes::OpenLanes;
use crate::store::Topic;

impl World {
    pub(super) fn send(&mut self) {
        if self.unsaved.is_some() {
            return;
        }
        // Other shards may have taken what a lane has.
        let permits = [(); 3].map(|()| self.rng.u8(0..8) > 0);
        let open = OpenLanes::new(|lane| permits[lane as usize]);
        for _ in 0..self.rng.usize(1..20) {
            match self.scheduler.next(self.now, open) {
                Some(attempt) => {
                    assert!(
                        !self.durable.paused.contains(&attempt.topic),
                        "{attempt:?} although it is paused"
                    );
                    self.seen.suspects += usize::from(attempt.past_suspect);
                    if let Some(slot) = self.durable.slots.get(&attempt.subscription) {
                        assert!(
                            slot.lease_end > self.now.wall,
                            "W-123: {attempt:?} after the end of its lease"
                        );
                        // A proven subscription may have more where others hang.
                        let most = limits().per_host * if attempt.charge.counted_as_proven { 2 } else { 1 };
                        assert!(
                            self.under_way(&slot.origin) < most,
                            "{attempt:?} although its host has all that it may have"
                        );
                    }
                    self.in_flight.push(attempt);
                }
                None if self.scheduler.is_interrupted() => self.seen.interruptions += 1,
                None => return,
            }
        }
    }

    pub(super) fn answer(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = self.rng.usize(0..self.in_flight.len());
        let attempt = self.in_flight.swap_remove(at);
        let sent_before_yes = self.sent_before_yes.remove(&attempt.subscription);
        let offset = match self.owed(&attempt) {
            Ok(offset) => offset,
            Err(without) => return self.scheduler.attempt_finished(&attempt, without, self.now),
        };
        if self.rng.u8(0..30) == 0 {
            let finished = match self.rng.u8(0..4) {
                0 => Finished::RateLimited(Duration::from_secs(self.rng.u64(0..20))),
                1 => Finished::Reverifying,
                _ => Finished::Postponed,
            };
            return self.scheduler.attempt_finished(&attempt, finished, self.now);
        }
        let outcome = match self.sick.get(&attempt.subscription).copied() {
            None if self.suspects.contains(&(attempt.subscription, offset)) => match offset.0 % 2 {
                0 => DeliveryOutcome::cut(),
                _ => DeliveryOutcome::of_status(http::StatusCode::INTERNAL_SERVER_ERROR, None),
            },
            Some(status) => {
                if status == 410 && !sent_before_yes {
                    self.count_gone(&attempt);
                }
                let hint = (self.rng.u8(0..3) == 0).then(|| Duration::from_secs(self.rng.u64(0..7_200)));
                DeliveryOutcome::of_status(http::StatusCode::from_u16(status).unwrap(), hint)
            }
            None if self.rng.u8(0..20) == 0 => DeliveryOutcome::unreachable(),
            None => DeliveryOutcome::Delivered,
        };
        if outcome == DeliveryOutcome::Delivered {
            // What is taken behind a suspect is only known for good once that is taken or given up.
            let learned = (!attempt.past_suspect).then_some(self.interval);
            self.receive(attempt, offset, learned);
        }
        self.scheduler.attempt_finished(&attempt, Finished::Answered { offset, outcome }, self.now);
    }

    pub(super) fn count_gone(&mut self, attempt: &Attempt) {
        *self.gone.entry(attempt.subscription).or_default() += 1;
    }

    /// What the sender sends for an attempt now, or what it answers instead.
    pub(super) fn owed(&self, attempt: &Attempt) -> Result<Offset, Finished> {
        let Topic { first, head, .. } = self.topic(attempt.topic);
        let mut sought = attempt.sought();
        loop {
            let found = sought.max(first);
            if found > head {
                let gap = Finished::Gap { from: sought, next: first };
                return Err(if first > sought { gap } else { Finished::Postponed });
            }
            match attempt.judge(sought, found, self.kind(attempt.topic, found)) {
                Find::Send => return Ok(found),
                Find::Gap => return Err(Finished::Gap { from: sought, next: found }),
                Find::Later => return Err(Finished::Superseded),
                Find::Pass => sought = found.next(),
            }
        }
    }

    /// Requests to this host, apart from those whose subscription has ended.
    fn under_way(&self, origin: &str) -> usize {
        let to = |attempt: &&Attempt| {
            self.durable.slots.get(&attempt.subscription).is_some_and(|slot| *slot.origin == *origin)
        };
        self.in_flight.iter().filter(to).count()
    }
}
