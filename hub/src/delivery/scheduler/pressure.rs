//! How many requests may keep a worker busy: as many as it needs to have something to do, and no more.
//!
//! Every request that is answered while its worker is busy with others waits in the worker's queue. Beyond a short queue more of them
//! gain nothing: what they need is out of the processor's caches when they are served, and each delivery costs more the more wait.
//! The measure is the processor time of one pass through that queue. It is short while the worker waits for subscribers, however
//! many and however slow they are, and long as soon as answers wait for the worker.

use std::cmp::min;
use std::time::Duration;

/// Requests that are always allowed: with fewer it is not worth while to measure.
const FEWEST: usize = 64;
/// A pass that takes longer than this, in processor time, has more to do than keeps the worker busy.
pub(crate) const LONG_PASS: Duration = Duration::from_millis(2);
/// After one that takes longer than this, answers wait for the worker so long that those of a moment ago are not all that keep it busy.
const TOO_LONG: Duration = Duration::from_millis(32);
/// By what part of themselves the requests under way may become more or fewer with each measurement.
const STEP: usize = 8;

/// The requests that a worker may have under way.
#[derive(Debug)]
pub(crate) struct Pressure {
    most: usize,
    allowed: usize,
    /// More were wanted than were allowed since the last measurement.
    missed: bool,
    /// The last pass took too long.
    is_behind: bool,
}

impl Pressure {
    /// At most so many are ever allowed.
    pub(super) fn new(most: usize) -> Self {
        Self { most, allowed: min(FEWEST, most), missed: false, is_behind: false }
    }

    /// How many may be under way now.
    pub(super) fn allowed(&self) -> usize {
        self.allowed
    }

    /// Whether the worker has so much to do that all requests under way count, however long ago they began.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Fewer were allowed than could have been made: the next measurement may allow more.
    pub(crate) fn missed(&mut self) {
        self.missed = true;
    }

    /// Takes in the processor time of a pass.
    pub(crate) fn take(&mut self, pass: Duration) {
        self.is_behind = pass > TOO_LONG;
        let step = self.allowed.div_ceil(STEP);
        if pass > LONG_PASS {
            self.allowed = (self.allowed - step).max(min(FEWEST, self.most));
        } else if self.missed {
            self.allowed = min(self.allowed + step, self.most);
        }
        self.missed = false;
    }
}

#[cfg(test)]
impl Pressure {
    /// One that allows all of so many.
    pub(super) fn at_most(most: usize) -> Self {
        Self { allowed: most, ..Self::new(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1_024;
    const CPU: Duration = Duration::from_micros(25);

    /// What a worker settles at whose subscribers answer after `answer`, and of whom `hang` never do, measured so often.
    fn settles_at(answer: Duration, hang: usize, passes: usize) -> (usize, usize) {
        let mut pressure = Pressure::new(MOST);
        let busy = (answer.as_nanos() / CPU.as_nanos()) as usize;
        let mut waiting = 0;
        for _ in 0..passes {
            // Of those who answer, as many as the worker serves while one answers are on the network; the others wait for it.
            waiting = pressure.allowed().saturating_sub(hang).saturating_sub(busy);
            pressure.missed = true;
            pressure.take(CPU * u32::try_from(waiting).unwrap());
        }
        (pressure.allowed(), waiting)
    }

    #[test]
    fn where_subscribers_answer_at_once_few_are_under_way() {
        let (allowed, waiting) = settles_at(Duration::from_micros(200), 0, 1_000);
        assert!((FEWEST..128).contains(&allowed), "{allowed}");
        assert!(waiting > 0, "the worker always has something to do");
    }

    #[test]
    fn where_they_are_far_away_as_many_are_under_way_as_keep_it_busy() {
        let (allowed, waiting) = settles_at(Duration::from_millis(10), 0, 1_000);
        assert!((400..600).contains(&allowed), "{allowed}");
        assert!(waiting > 0, "the worker always has something to do");
        assert_eq!(settles_at(Duration::from_secs(1), 0, 1_000), (MOST, 0), "and never more than may be");
    }

    #[test]
    fn requests_that_hang_take_nothing_from_those_that_are_answered() {
        let (allowed, waiting) = settles_at(Duration::from_micros(200), 500, 1_000);
        assert!(allowed > 500 && waiting > 0, "{allowed}");
        let (soon, _) = settles_at(Duration::from_micros(200), 500, 25);
        assert!(soon > 500, "within a quarter of a second");
    }

    #[test]
    fn nothing_changes_where_no_more_were_wanted() {
        let mut pressure = Pressure::new(MOST);
        pressure.take(Duration::ZERO);
        assert_eq!(pressure.allowed(), FEWEST);
        assert_eq!(Pressure::new(3).allowed(), 3, "a small bound holds");
    }
}
