//! How many requests began a moment ago, by lane. What a subscriber keeps waiting for longer does not keep the worker busy, however much of
//! it there is.

use std::time::Instant;

use super::lanes::Lane;

/// Time is counted in steps of so many milliseconds.
const STEP: u64 = 16;
/// So many steps are a moment: longer than an answer waits for a busy worker.
const STEPS: usize = 8;

/// Counts by the step in which they began.
#[derive(Debug)]
pub(super) struct RecentStarts {
    epoch: Instant,
    /// The step that it is now.
    step: usize,
    /// Of the last steps, each at its number modulo their count.
    begun: [[usize; Lane::ALL.len()]; STEPS],
    sums: [usize; Lane::ALL.len()],
}

impl RecentStarts {
    pub(super) fn new(now: Instant) -> Self {
        Self { epoch: now, step: 0, begun: Default::default(), sums: Default::default() }
    }

    /// How many there are in this lane.
    pub(super) fn count(&self, lane: Lane) -> usize {
        self.sums[lane as usize]
    }

    /// One begins at this moment.
    pub(super) fn add(&mut self, lane: Lane, now: Instant) {
        self.age(now);
        let step = self.step_at(now);
        if self.is_recent(step) {
            self.begun[step % STEPS][lane as usize] += 1;
            self.sums[lane as usize] += 1;
        }
    }

    /// One that began at this moment has ended.
    pub(super) fn remove(&mut self, lane: Lane, began: Instant) {
        let step = self.step_at(began);
        if self.is_recent(step) {
            self.begun[step % STEPS][lane as usize] -= 1;
            self.sums[lane as usize] -= 1;
        }
    }

    /// Leaves out what began too long before this moment.
    pub(super) fn age(&mut self, now: Instant) {
        let step = self.step_at(now);
        let passed = step.saturating_sub(self.step).min(STEPS);
        for left in (self.step + 1..).take(passed) {
            let old = std::mem::take(&mut self.begun[left % STEPS]);
            self.sums.iter_mut().zip(old).for_each(|(sum, old)| *sum -= old);
        }
        self.step = self.step.max(step);
    }

    fn step_at(&self, moment: Instant) -> usize {
        let steps = moment.saturating_duration_since(self.epoch).as_millis() / u128::from(STEP);
        usize::try_from(steps).unwrap_or(usize::MAX)
    }

    fn is_recent(&self, step: usize) -> bool {
        step + STEPS > self.step
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_counts_what_began_a_moment_ago_and_has_not_ended(
            events in prop::collection::vec((0_u64..60, any::<bool>(), 0_usize..3), 1..200),
        ) {
            let mut recent = RecentStarts::new(Instant::now());
            let (mut now, mut under_way) = (recent.epoch, Vec::new());
            for (pause, begins, lane) in events {
                now += Duration::from_millis(pause);
                recent.age(now);
                if begins {
                    recent.add(Lane::ALL[lane], now);
                    under_way.push((lane, now));
                } else if !under_way.is_empty() {
                    let (lane, began) = under_way.remove(lane % under_way.len());
                    recent.remove(Lane::ALL[lane], began);
                }
                for lane in Lane::ALL {
                    let is_recent = |began| recent.step_at(began) + STEPS > recent.step_at(now);
                    let expected =
                        under_way.iter().filter(|(of, began)| *of == lane as usize && is_recent(*began)).count();
                    prop_assert_eq!(recent.count(lane), expected);
                }
            }
        }
    }
}
