//! How many hubs of one store take requests: each admits its part of what all of them may admit together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::config::Rate;

/// The number of hubs that are up, this one among them. Clones share it. It is 1 as long as nobody says otherwise.
#[derive(Clone, Debug, Default)]
pub struct LiveHubs(Arc<AtomicU32>);

impl LiveHubs {
    /// From now on there are so many.
    pub(crate) fn set(&self, hubs: usize) {
        self.0.store(u32::try_from(hubs).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// This hub's part of a rate. At least one event may come at once.
    pub(crate) fn part_of(&self, rate: Rate) -> Rate {
        let hubs = self.0.load(Ordering::Relaxed).max(1);
        Rate { per_second: rate.per_second / f64::from(hubs), burst: rate.burst.div_ceil(hubs).max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_divided_by_the_hubs_that_are_up_and_a_burst_is_never_nothing() {
        let (hubs, rate) = (LiveHubs::default(), Rate { per_second: 6.0, burst: 5 });
        assert_eq!(hubs.part_of(rate), rate, "nobody else is known");
        for (number, per_second, burst) in [(0, 6.0, 5), (1, 6.0, 5), (2, 3.0, 3), (3, 2.0, 2), (6, 1.0, 1)] {
            hubs.clone().set(number);
            assert_eq!(hubs.part_of(rate), Rate { per_second, burst }, "{number}");
        }
    }
}
