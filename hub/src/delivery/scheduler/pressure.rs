//! How many requests may keep a worker busy: as many as it needs to have something to do, and no more.
//!
//! Every request that is answered while its worker is busy with others waits in the worker's queue, or at its subscriber, where that one
//! shares the processors. Beyond a short queue more of them gain nothing: what they need is out of the processor's caches when they are
//! served, they take more connections, and each delivery costs more the more wait. The measure is the part of its time for which the
//! worker has something to do. It is small while the worker waits for subscribers, however many and however slow they are, and all of it
//! as soon as answers wait for the worker.

use std::cmp::min;
use std::time::Duration;

/// Requests that are always allowed: with fewer, answers come one by one and not many at a time, and each has to wake its worker.
const FEWEST: usize = 256;
/// A worker that is busy for a smaller part of its time than this needs more requests.
const IDLE_BELOW: f64 = 0.92;
/// A worker that is busy for a larger part of its time than this has more requests than it needs.
const FULL_ABOVE: f64 = 0.98;
/// When the worker is later than this, answers wait for it so long that those of a moment ago are not all that keep it busy.
const TOO_LATE: Duration = Duration::from_millis(32);
/// By what part of themselves the requests under way may become more with each measurement.
const MORE: usize = 8;
/// By what part of themselves they may become fewer. That is less, since some of them may hang: it must not be those that are answered who go.
const FEWER: usize = 32;

/// How much a worker had to do for a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// The part of the time in which it had a processor, or nothing to do, for which it worked; at most 1.
    pub(crate) busy: f64,
    /// How long what was due had to wait for it.
    pub(crate) late: Duration,
}

impl Load {
    /// It always had something to do, and was in time with it.
    pub(crate) const FULL: Self = Self { busy: 1.0, late: Duration::ZERO };

    /// It worked for so long of the time in which it could.
    pub(crate) fn of(worked: Duration, could: Duration, late: Duration) -> Self {
        let busy = worked.as_secs_f64() / could.as_secs_f64();
        Self { busy: if busy < 1.0 { busy } else { 1.0 }, late }
    }
}

/// The requests that a worker may have under way.
#[derive(Debug)]
pub(crate) struct Pressure {
    most: usize,
    allowed: usize,
    /// More were wanted than were allowed since the last measurement.
    missed: bool,
    /// It was too late the last time.
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

    /// Allows more or fewer, after how much the worker had to do.
    pub(crate) fn adjust_to(&mut self, load: Load) {
        self.is_behind = load.late > TOO_LATE;
        if load.busy > FULL_ABOVE {
            self.allowed = (self.allowed - self.allowed.div_ceil(FEWER)).max(min(FEWEST, self.most));
        } else if load.busy < IDLE_BELOW && self.missed {
            self.allowed = min(self.allowed + self.allowed.div_ceil(MORE), self.most);
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

    /// How many a worker settles at whose subscribers answer after `answer`, and of whom `hang` never do, measured so often; and for
    /// what part of its time it is busy in the second half of that.
    fn settles_at(answer: Duration, hang: usize, measured: u32) -> (usize, f64) {
        let mut pressure = Pressure::new(MOST);
        let mut busy = 0.0;
        for number in 0..measured {
            // Each of those who answer gives it so much to do once in the time of an answer.
            let answering = u32::try_from(pressure.allowed().saturating_sub(hang)).unwrap();
            let load = Load::of(CPU * answering, answer + CPU, Duration::ZERO);
            if number >= measured / 2 {
                busy += load.busy / f64::from(measured - measured / 2);
            }
            pressure.missed = true;
            pressure.adjust_to(load);
        }
        (pressure.allowed(), busy)
    }

    #[test]
    fn where_subscribers_answer_at_once_few_are_under_way() {
        let (allowed, busy) = settles_at(Duration::from_micros(200), 0, 1_000);
        assert!(
            allowed == FEWEST && busy > 0.999,
            "the worker always has something to do: {allowed}, {busy}"
        );
    }

    #[test]
    fn where_they_are_far_away_as_many_are_under_way_as_keep_it_busy() {
        let (allowed, busy) = settles_at(Duration::from_millis(10), 0, 1_000);
        assert!((350..450).contains(&allowed), "{allowed}");
        assert!(busy > 0.9, "the worker nearly always has something to do: {busy}");
        let (allowed, _) = settles_at(Duration::from_secs(1), 0, 1_000);
        assert_eq!(allowed, MOST, "and never more than may be");
    }

    #[test]
    fn requests_that_hang_take_nothing_from_those_that_are_answered() {
        let (allowed, busy) = settles_at(Duration::from_micros(200), 500, 1_000);
        assert!((480..600).contains(&allowed) && busy > 0.7, "{allowed}, {busy}");
        let (_, soon) = settles_at(Duration::from_micros(200), 500, 50);
        assert!(soon > 0.7, "and from a quarter of a second on: {soon}");
    }

    #[test]
    fn nothing_changes_where_no_more_were_wanted() {
        let mut pressure = Pressure::new(MOST);
        pressure.adjust_to(Load { busy: 0.0, late: Duration::ZERO });
        assert_eq!(pressure.allowed(), FEWEST);
        assert_eq!(Pressure::new(3).allowed(), 3, "a small bound holds");
    }

    #[test]
    fn a_moment_in_which_it_could_not_work_counts_as_full() {
        assert_eq!(Load::of(Duration::ZERO, Duration::ZERO, Duration::ZERO), Load::FULL);
        assert_eq!(Load::of(2 * CPU, CPU, Duration::ZERO), Load::FULL);
    }
}
