//! The places of a worker: how many requests may be under way in each lane, and the last ones, which are kept for few.

use super::hosts::{Lane, OpenLanes};
use super::pressure::Pressure;

/// So small a part of all places is kept for networks that have little under way.
const SPARE: usize = 10;

/// The requests under way, by lane.
#[derive(Debug)]
pub(super) struct Lanes {
    max: usize,
    /// Of those to slow hosts nobody expects that they keep the worker busy: it bounds the others.
    pub(super) pressure: Pressure,
    taken: [usize; 3],
}

impl Lanes {
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { max, pressure: Pressure::new(max), taken: [0; 3] }
    }

    /// The lanes that have places, and how many are left where none has.
    pub(super) fn open(&self) -> OpenLanes {
        let left = self.max.saturating_sub(self.taken.iter().sum());
        let scarce = left <= self.max / SPARE;
        let allowed = self.pressure.allowed();
        let pressed = self.taken(Lane::First) + self.taken(Lane::Again) >= allowed;
        let lanes = OpenLanes::new(|lane| {
            let (closed, share) = match lane {
                Lane::First => (pressed, allowed * 9 / 10),
                Lane::Again => (pressed, allowed / 4),
                Lane::Slow => (false, self.max / 5),
            };
            !scarce && !closed && self.taken(lane) < share.max(1)
        });
        if scarce { lanes.with_spare(left) } else { lanes }
    }

    pub(super) fn all_taken(&self) -> [usize; 3] {
        self.taken
    }

    fn taken(&self, lane: Lane) -> usize {
        self.taken[lane as usize]
    }

    pub(super) fn take(&mut self, lane: Lane) {
        self.taken[lane as usize] += 1;
    }

    pub(super) fn release(&mut self, lane: Lane) {
        self.taken[lane as usize] -= 1;
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
    fn each_lane_has_its_share() {
        let open = |taken| Lane::ALL.map(|lane| with(100, taken).open().has(lane));
        assert_eq!(open([0, 0, 0]), [true, true, true]);
        assert_eq!(open([0, 25, 0]), [true, false, true]);
        assert_eq!(open([0, 0, 20]), [true, true, false]);
        assert_eq!(with(1, [0, 0, 0]).open().spare(), 0);
        assert!(with(1, [0, 0, 0]).open().has(Lane::First), "a single place is for everybody");
    }
}
