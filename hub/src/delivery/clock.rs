//! Whether the wall clock can be believed when it says that a lease is over.
//!
//! Somebody may set it wrong by hours, and right again a minute later. A lease that was ended in between is lost for good, and
//! the subscriber does not know. So for a while after a leap nobody is ended; nothing is sent to them meanwhile either.

use std::time::{Duration, Instant};

use super::shard::Now;
use crate::leap::leapt;

/// How long a clock that has leapt may take to be set right.
const DOUBTED: Duration = Duration::from_secs(600);

/// The wall clock, looked at beside the monotonic one.
#[derive(Debug)]
pub(super) struct Clock {
    looked: Now,
    doubted_until: Option<Instant>,
}

impl Clock {
    pub(super) fn new(now: Now) -> Self {
        Self { looked: now, doubted_until: None }
    }

    /// Looks at both clocks; tells whether the wall clock is in doubt because it has leapt forward lately.
    pub(super) fn look(&mut self, now: Now) -> bool {
        let before = std::mem::replace(&mut self.looked, now);
        let passed = now.monotonic.saturating_duration_since(before.monotonic);
        // A clock that was set back ends nobody's lease.
        if let Some(leap) = leapt(before.wall.to_system_time(), now.wall.to_system_time(), passed) {
            tracing::warn!(
                seconds = leap.as_secs(),
                "the clock has leapt: no lease ends for a while, in case that it is set right"
            );
            self.doubted_until = Some(now.monotonic + DOUBTED);
        }
        self.doubted_until.is_some_and(|until| now.monotonic < until)
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn after(now: Now, wall: Duration, monotonic: Duration) -> Now {
        let wall = DateTime::from_system_time(now.wall.to_system_time() + wall);
        Now { wall, monotonic: now.monotonic + monotonic }
    }

    #[test]
    fn a_clock_that_leaps_forward_is_in_doubt_for_ten_minutes() {
        let begin = Now::read();
        let mut clock = Clock::new(begin);
        let now = after(begin, 120 * MINUTE, 120 * MINUTE);
        assert!(!clock.look(now), "time passes on both");
        let leapt = after(now, 60 * MINUTE, Duration::ZERO);
        assert!(clock.look(leapt));
        assert!(clock.look(after(leapt, 9 * MINUTE, 9 * MINUTE)));
        assert!(!clock.look(after(leapt, 10 * MINUTE, 10 * MINUTE)));
    }

    #[test]
    fn a_clock_that_is_set_back_is_believed() {
        let now = after(Now::read(), 60 * MINUTE, 60 * MINUTE);
        let mut clock = Clock::new(now);
        let back = Now { wall: Now::read().wall, monotonic: now.monotonic };
        assert!(!clock.look(back));
    }
}
