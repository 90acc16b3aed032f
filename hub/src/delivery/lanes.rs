//! The places of a worker: how many requests may be under way in each lane, and the last ones, which are kept for few.

use std::time::Instant;

use super::pressure::Pressure;
use super::recent::Recent;

/// So many tenths of all places are for everybody; the last one is kept for networks that have little under way.
const FOR_ALL: usize = 9;

/// What kind of work a request is. Each has a share of all requests under way, so that none can crowd out the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The first attempt at a notification.
    First,
    /// What failed before is tried again.
    Again,
    /// Whatever goes to a host that has been slow lately.
    Slow,
}

impl Lane {
    pub(super) const ALL: [Self; 3] = [Self::First, Self::Again, Self::Slow];

    /// What metrics call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Again => "again",
            Self::Slow => "slow",
        }
    }
}

/// The lanes that have a place left, and the places that are kept for networks with few requests where none has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenLanes {
    open: [bool; 3],
    scarce: bool,
    spare: usize,
}

impl OpenLanes {
    #[cfg(test)]
    pub(super) const ALL: Self = Self { open: [true; 3], scarce: false, spare: 0 };

    pub(super) fn new(has_place: impl Fn(Lane) -> bool) -> Self {
        Self { open: Lane::ALL.map(has_place), scarce: false, spare: 0 }
    }

    /// The same where all places but these are taken. A network may have one of them while it has fewer under way than are left, so
    /// that there is always one for who has none.
    pub(super) fn with_spare(self, spare: usize) -> Self {
        Self { scarce: true, spare, ..self }
    }

    pub(super) fn any(self) -> bool {
        self.open.contains(&true)
    }

    pub(super) fn has(self, lane: Lane) -> bool {
        self.open[lane as usize]
    }

    /// Whether only places are left that are kept for few.
    pub(super) fn is_scarce(self) -> bool {
        self.scarce
    }

    pub(super) fn spare(self) -> usize {
        self.spare
    }
}

/// The requests under way, by lane.
#[derive(Debug)]
pub(super) struct Lanes {
    max: usize,
    /// Bounds what may keep the worker busy: the requests of a moment ago, but for those to slow hosts.
    pub(super) pressure: Pressure,
    recent: Recent,
    taken: [usize; 3],
}

impl Lanes {
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { max, pressure: Pressure::new(max), recent: Recent::new(), taken: [0; 3] }
    }

    /// Of so many places, those for repetitions.
    pub(super) fn for_again(max: usize) -> usize {
        max / 4
    }

    /// Of so many places, those for slow hosts.
    pub(super) fn for_slow(max: usize) -> usize {
        max / 5
    }

    /// The lanes that have places, and how many are left where none has.
    pub(super) fn open(&self) -> OpenLanes {
        let taken = self.taken.iter().sum::<usize>();
        let left = self.max.saturating_sub(taken);
        let scarce = taken >= (self.max * FOR_ALL / 10).max(1);
        let allowed = self.pressure.allowed();
        let pressed = self.busy_with(Lane::First) + self.busy_with(Lane::Again) >= allowed;
        let is_full = |lane, share: usize| pressed || self.busy_with(lane) >= share.max(1);
        let lanes = OpenLanes::new(|lane| {
            let (closed, share) = match lane {
                Lane::First => (is_full(lane, allowed * FOR_ALL / 10), self.max),
                Lane::Again => (is_full(lane, allowed / 4), Self::for_again(self.max)),
                Lane::Slow => (false, Self::for_slow(self.max)),
            };
            !scarce && !closed && self.taken(lane) < share.max(1)
        });
        if scarce { lanes.with_spare(left) } else { lanes }
    }

    /// Whether repetitions have places left and may not begin, since others began a moment ago.
    pub(super) fn holds_back_repetitions(&self, open: OpenLanes) -> bool {
        let has_places = self.taken(Lane::Again) < Self::for_again(self.max).max(1);
        has_places && !open.is_scarce() && !open.has(Lane::Again)
    }

    pub(super) fn all_taken(&self) -> [usize; 3] {
        self.taken
    }

    /// Those that may keep the worker busy: what a subscriber has kept waiting for longer does not, unless it is the worker that is late.
    fn busy_with(&self, lane: Lane) -> usize {
        if self.pressure.is_behind() { self.taken(lane) } else { self.recent.count(lane) }
    }

    fn taken(&self, lane: Lane) -> usize {
        self.taken[lane as usize]
    }

    /// It is now so late, which `open` needs to know.
    pub(super) fn age(&mut self, now: Instant) {
        self.recent.age(now);
    }

    /// A request begins, which may keep the worker busy from this moment on.
    pub(super) fn take(&mut self, lane: Lane, busy_from: Option<Instant>) {
        self.taken[lane as usize] += 1;
        if let Some(now) = busy_from {
            self.recent.add(lane, now);
        }
    }

    /// One has ended of which that was said when it began.
    pub(super) fn release(&mut self, lane: Lane, busy_from: Option<Instant>) {
        self.taken[lane as usize] -= 1;
        if let Some(began) = busy_from {
            self.recent.remove(lane, began);
        }
    }
}

#[cfg(test)]
impl Lanes {
    /// One whose subscribers keep nobody busy, so that all places are allowed.
    pub(super) fn of_an_idle_worker(max: usize) -> Self {
        Self { pressure: Pressure::at_most(max), ..Self::new(max) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn with(max: usize, taken: [usize; 3]) -> Lanes {
        Lanes { taken, ..Lanes::of_an_idle_worker(max) }
    }

    #[test]
    fn the_last_tenth_of_all_places_is_spared_whatever_takes_the_others() {
        for taken in [[90, 0, 0], [70, 10, 10], [60, 10, 20]] {
            let open = with(100, taken).open();
            assert_eq!((open.any(), open.spare()), (false, 10), "{taken:?}");
        }
        assert_eq!(with(100, [98, 0, 0]).open().spare(), 2);
        assert_eq!(with(100, [60, 10, 19]).open().spare(), 0, "there are others");
    }

    #[test]
    fn those_who_wait_for_subscribers_take_nothing_from_quick_ones_unless_the_worker_is_late() {
        let (mut lanes, now) = (Lanes::new(1_000), Instant::now());
        let mut taken = 0;
        while lanes.open().has(Lane::First) {
            lanes.take(Lane::First, Some(now));
            taken += 1;
        }
        assert!(taken < 100, "a worker that is not known to be idle begins few: {taken}");
        lanes.age(now + Duration::from_millis(50));
        assert!(!lanes.open().has(Lane::First));
        lanes.age(now + Duration::from_millis(200));
        assert!(lanes.open().has(Lane::First));
        lanes.pressure.take(Duration::from_millis(640));
        assert!(!lanes.open().has(Lane::First), "it is the worker that they wait for");
        lanes.pressure.take(Duration::ZERO);
        assert!(lanes.open().has(Lane::First));
    }

    #[test]
    fn any_number_of_those_known_to_take_long_may_begin_at_once() {
        let (mut lanes, now) = (Lanes::new(1_000), Instant::now());
        (0..500).for_each(|_| lanes.take(Lane::First, None));
        assert!(lanes.open().has(Lane::First));
        (0..500).for_each(|_| lanes.release(Lane::First, None));
        lanes.take(Lane::First, Some(now));
        assert_eq!(lanes.all_taken(), [1, 0, 0]);
    }

    #[test]
    fn repetitions_are_held_back_where_many_began_a_moment_ago_and_not_where_they_have_all_their_places() {
        let (mut lanes, now) = (Lanes::new(1_000), Instant::now());
        assert!(!lanes.holds_back_repetitions(lanes.open()));
        while lanes.open().has(Lane::Again) {
            lanes.take(Lane::Again, Some(now));
        }
        assert!(lanes.holds_back_repetitions(lanes.open()));
        let full = with(100, [0, 25, 0]);
        assert!(!full.open().has(Lane::Again) && !full.holds_back_repetitions(full.open()));
        let scarce = with(100, [90, 0, 0]);
        assert!(!scarce.holds_back_repetitions(scarce.open()));
    }

    #[test]
    fn each_lane_has_its_share() {
        let open = |taken| Lane::ALL.map(|lane| with(100, taken).open().has(lane));
        assert_eq!(open([0, 0, 0]), [true, true, true]);
        assert_eq!(open([0, 25, 0]), [true, false, true]);
        assert_eq!(open([0, 0, 20]), [true, true, false]);
        assert_eq!(with(1, [0, 0, 0]).open().spare(), 0);
        assert!(with(1, [0, 0, 0]).open().has(Lane::First), "a single place is for everybody");
    }
}
