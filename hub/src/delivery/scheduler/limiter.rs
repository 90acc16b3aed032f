//! The concurrency limit of a worker: how many requests may be under way in each lane, and the last permits, which are reserved.

use std::time::Instant;

use super::lanes::{Lane, OpenLanes};
use super::pressure::Pressure;
use super::recent_starts::RecentStarts;

/// So many tenths of all permits are for everybody; the last one is reserved for networks that have little under way.
const FOR_ALL: usize = 9;

/// The permits of a worker: its requests under way, by lane.
#[derive(Debug)]
pub(crate) struct LaneLimiter {
    max: usize,
    /// Bounds what may keep the worker busy: the requests of a moment ago, but for those to slow hosts.
    pub(crate) pressure: Pressure,
    recent: RecentStarts,
    taken: [usize; 3],
}

impl LaneLimiter {
    pub(crate) fn new(max: usize, now: Instant) -> Self {
        let max = max.max(1);
        Self { max, pressure: Pressure::new(max), recent: RecentStarts::new(now), taken: [0; 3] }
    }

    /// The lanes that have permits, and how many are left where none has.
    pub(crate) fn open(&self) -> OpenLanes {
        let taken = self.taken.iter().sum::<usize>();
        let left = self.max.saturating_sub(taken);
        let scarce = taken >= (self.max * FOR_ALL / 10).max(1);
        let allowed = self.pressure.allowed();
        let pressed = self.busy_with(Lane::First) + self.busy_with(Lane::Retry) >= allowed;
        let is_full = |lane, share: usize| pressed || self.busy_with(lane) >= share.max(1);
        let lanes = OpenLanes::new(|lane| {
            let closed = match lane {
                Lane::First => is_full(lane, allowed * FOR_ALL / 10),
                Lane::Retry => is_full(lane, lane.share(allowed)),
                Lane::Slow => false,
            };
            !scarce && !closed && self.has_share_left(lane)
        });
        if scarce { lanes.with_spare(left) } else { lanes }
    }

    /// Whether retries have permits left and may not begin, since others began a moment ago.
    pub(crate) fn holds_back_retries(&self, open: OpenLanes) -> bool {
        self.has_share_left(Lane::Retry) && !open.is_scarce() && !open.has(Lane::Retry)
    }

    pub(crate) fn all_taken(&self) -> [usize; 3] {
        self.taken
    }

    /// Those that may keep the worker busy: what a subscriber has kept waiting for longer does not, unless it is the worker that is late.
    fn busy_with(&self, lane: Lane) -> usize {
        if self.pressure.is_behind() { self.taken(lane) } else { self.recent.count(lane) }
    }

    fn has_share_left(&self, lane: Lane) -> bool {
        self.taken(lane) < lane.share(self.max).max(1)
    }

    fn taken(&self, lane: Lane) -> usize {
        self.taken[lane as usize]
    }

    /// It is now so late, which `open` needs to know.
    pub(crate) fn age(&mut self, now: Instant) {
        self.recent.age(now);
    }

    /// A request begins, which may keep the worker busy from this moment on.
    pub(crate) fn take(&mut self, lane: Lane, busy_from: Option<Instant>) {
        self.taken[lane as usize] += 1;
        if let Some(now) = busy_from {
            self.recent.add(lane, now);
        }
    }

    /// A request has ended; `busy_from` as when it was taken.
    pub(crate) fn give_back(&mut self, lane: Lane, busy_from: Option<Instant>) {
        self.taken[lane as usize] -= 1;
        if let Some(began) = busy_from {
            self.recent.remove(lane, began);
        }
    }
}

#[cfg(test)]
impl LaneLimiter {
    /// One whose worker is idle, so that all permits may be taken.
    pub(super) fn of_an_idle_worker(max: usize) -> Self {
        Self { pressure: Pressure::at_most(max), ..Self::new(max, Instant::now()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::pressure::Load;
    use super::*;

    fn with(max: usize, taken: [usize; 3]) -> LaneLimiter {
        LaneLimiter { taken, ..LaneLimiter::of_an_idle_worker(max) }
    }

    #[test]
    fn the_last_tenth_of_all_permits_is_reserved_whatever_takes_the_others() {
        for taken in [[90, 0, 0], [70, 10, 10], [60, 10, 20]] {
            let open = with(100, taken).open();
            assert_eq!((open.any(), open.spare()), (false, 10), "{taken:?}");
        }
        assert_eq!(with(100, [98, 0, 0]).open().spare(), 2);
        assert_eq!(with(100, [60, 10, 19]).open().spare(), 0, "there are others");
    }

    #[test]
    fn those_who_wait_for_subscribers_take_nothing_from_quick_ones_unless_the_worker_is_late() {
        let now = Instant::now();
        let mut limiter = LaneLimiter::new(1_000, now);
        let mut taken = 0;
        while limiter.open().has(Lane::First) {
            limiter.take(Lane::First, Some(now));
            taken += 1;
        }
        assert!(taken <= 256, "a worker that is not known to be idle begins few: {taken}");
        limiter.age(now + Duration::from_millis(50));
        assert!(!limiter.open().has(Lane::First));
        limiter.age(now + Duration::from_millis(200));
        assert!(limiter.open().has(Lane::First));
        limiter.pressure.adjust_to(Load { late: Duration::from_millis(640), ..Load::FULL });
        assert!(!limiter.open().has(Lane::First), "it is the worker that they wait for");
        limiter.pressure.adjust_to(Load::FULL);
        assert!(limiter.open().has(Lane::First));
    }

    #[test]
    fn any_number_of_those_known_to_take_long_may_begin_at_once() {
        let now = Instant::now();
        let mut limiter = LaneLimiter::new(1_000, now);
        (0..500).for_each(|_| limiter.take(Lane::First, None));
        assert!(limiter.open().has(Lane::First));
        (0..500).for_each(|_| limiter.give_back(Lane::First, None));
        limiter.take(Lane::First, Some(now));
        assert_eq!(limiter.all_taken(), [1, 0, 0]);
    }

    #[test]
    fn retries_are_held_back_where_many_began_a_moment_ago_and_not_where_they_have_all_their_permits() {
        let now = Instant::now();
        let mut limiter = LaneLimiter::new(1_000, now);
        assert!(!limiter.holds_back_retries(limiter.open()));
        while limiter.open().has(Lane::Retry) {
            limiter.take(Lane::Retry, Some(now));
        }
        assert!(limiter.holds_back_retries(limiter.open()));
        let full = with(100, [0, 25, 0]);
        assert!(!full.open().has(Lane::Retry) && !full.holds_back_retries(full.open()));
        let scarce = with(100, [90, 0, 0]);
        assert!(!scarce.holds_back_retries(scarce.open()));
    }

    #[test]
    fn each_lane_has_its_share() {
        let open = |taken| Lane::ALL.map(|lane| with(100, taken).open().has(lane));
        assert_eq!(open([0, 0, 0]), [true, true, true]);
        assert_eq!(open([0, 25, 0]), [true, false, true]);
        assert_eq!(open([0, 0, 20]), [true, true, false]);
        assert_eq!(with(1, [0, 0, 0]).open().spare(), 0);
        assert!(with(1, [0, 0, 0]).open().has(Lane::First), "a single permit is for everybody");
    }
}
