//! The clocks of the simulated world: time passes, and somebody sets the wall clock.

use super::*;

impl World {
    pub(super) fn wait(&mut self, seconds: u64) {
        self.now.monotonic += Duration::from_secs(seconds);
        self.now.wall =
            DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(seconds));
    }

    /// Somebody sets the wall clock, by up to hours either way.
    pub(super) fn jump(&mut self) {
        let longest = if self.rng.bool() { 60 } else { 5 * 3_600 };
        let (back, seconds) = (self.rng.bool(), self.rng.u64(0..longest));
        if back { self.jump_back(seconds) } else { self.jump_forward(seconds) }
    }

    pub(super) fn jump_forward(&mut self, seconds: u64) {
        self.now.wall =
            DateTime::from_system_time(self.now.wall.to_system_time() + Duration::from_secs(seconds));
    }

    pub(super) fn jump_back(&mut self, seconds: u64) {
        self.now.wall =
            DateTime::from_system_time(self.now.wall.to_system_time() - Duration::from_secs(seconds));
    }
}
