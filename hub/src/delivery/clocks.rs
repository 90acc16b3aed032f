//! The clocks that tell the scheduler what time it is: whoever calls it reads them, so that it does not.

use std::time::Instant;

use super::scheduler::Now;
use crate::store::WallClock;

impl Now {
    /// What they say: the computer's for pauses, and the store's for what is stored.
    pub(crate) fn read(wall: &WallClock) -> Self {
        Self { monotonic: Instant::now(), wall: wall.now() }
    }
}

#[cfg(test)]
impl Now {
    /// By a clock that no store has put right.
    pub(crate) fn for_test() -> Self {
        Self::read(&WallClock::default())
    }
}
