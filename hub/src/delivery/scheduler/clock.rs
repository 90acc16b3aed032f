//! Whether the wall clock can be believed when it says that a lease is over.
//!
//! Somebody may set it wrong by hours, and right again a minute later. A lease that was ended in between is lost for good, and
//! the subscriber does not know. So for a while after a jump no subscription is ended; nothing is sent to them meanwhile either.

use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;

use crate::clock_jump::{jump, jump_while_down};
use crate::store::Uptime;

/// How long it may take until a clock that has jumped is set right.
const DOUBTED: Duration = Duration::from_secs(600);

/// The present moment on both clocks: leases follow the wall, timers the monotonic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// For pauses.
    pub(crate) monotonic: Instant,
    /// For leases and for what is written down.
    pub(crate) wall: DateTime,
}

/// How many milliseconds after `begun` this moment is.
pub(crate) fn millis(begun: Instant, moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(begun).as_millis()).unwrap_or(u64::MAX)
}

/// The wall clock, looked at beside the monotonic one.
#[derive(Debug)]
pub(crate) struct Clock {
    looked: Now,
    doubted_until: Option<Instant>,
}

/// Until when the wall clock is in doubt at a start: a hub that was down cannot tell time that has passed from a clock that is
/// set wrong. Nor can one that was started a moment after that.
pub(crate) fn doubt_at_start(uptime: &Uptime, now: Now) -> Option<Instant> {
    let here = jump_while_down(uptime.seen.to_system_time(), now.wall.to_system_time());
    let known = uptime.clock_jumps.iter().map(|jump| jump.up_since);
    let up_since = known.chain(here.map(|_| Duration::ZERO)).min()?;
    let left = DOUBTED.checked_sub(up_since).filter(|left| !left.is_zero())?;
    Some(now.monotonic + left)
}

/// Until when the wall clock is in doubt at a start where it is not known when the hub was up last.
pub(crate) fn doubt(now: Now) -> Instant {
    now.monotonic + DOUBTED
}

impl Clock {
    pub(crate) fn new(now: Now, doubted_until: Option<Instant>) -> Self {
        Self { looked: now, doubted_until }
    }

    /// Whether the wall clock is in doubt at this moment, because it has jumped forward lately.
    pub(super) fn is_in_doubt(&mut self, now: Now) -> bool {
        self.doubted_until(now).is_some()
    }

    /// Until when it is, looked at now.
    pub(crate) fn doubted_until(&mut self, now: Now) -> Option<Instant> {
        let before = std::mem::replace(&mut self.looked, now);
        let passed = now.monotonic.saturating_duration_since(before.monotonic);
        // A clock that was set back ends nobody's lease.
        if let Some(jump) = jump(before.wall.to_system_time(), now.wall.to_system_time(), passed) {
            tracing::warn!(
                seconds = jump.as_secs(),
                "the clock has jumped forward: no lease ends for a while, in case that it is set right"
            );
            self.doubted_until = Some(doubt(now));
        }
        self.doubted_until.filter(|until| now.monotonic < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ClockJump;

    const MINUTE: Duration = Duration::from_secs(60);

    fn after(now: Now, wall: Duration, monotonic: Duration) -> Now {
        let wall = DateTime::from_system_time(now.wall.to_system_time() + wall);
        Now { wall, monotonic: now.monotonic + monotonic }
    }

    #[test]
    fn a_clock_that_jumps_forward_is_in_doubt_for_ten_minutes() {
        let begin = Now::for_test();
        let mut clock = Clock::new(begin, None);
        let now = after(begin, 120 * MINUTE, 120 * MINUTE);
        assert!(!clock.is_in_doubt(now), "time passes on both");
        let jumped = after(now, 60 * MINUTE, Duration::ZERO);
        assert!(clock.is_in_doubt(jumped));
        assert!(clock.is_in_doubt(after(jumped, 9 * MINUTE, 9 * MINUTE)));
        assert!(!clock.is_in_doubt(after(jumped, 10 * MINUTE, 10 * MINUTE)));
    }

    /// For how many minutes a hub that starts now is in doubt, after it was seen last so long ago and with these clock jumps, by how
    /// long it has been up since.
    fn doubted_at_start(seen: Duration, clock_jumps: &[Duration]) -> Option<u64> {
        let now = Now::for_test();
        let seen = DateTime::from_system_time(now.wall.to_system_time() - seen);
        let clock_jumps =
            clock_jumps.iter().map(|up_since| ClockJump { length: 60 * MINUTE, up_since: *up_since });
        let until = doubt_at_start(&Uptime { seen, clock_jumps: clock_jumps.collect() }, now)?;
        assert!(Clock::new(now, Some(until)).is_in_doubt(now));
        Some((until - now.monotonic).as_secs() / 60)
    }

    #[test]
    fn a_start_long_after_the_last_life_is_in_doubt_and_so_is_the_next_one() {
        assert_eq!(doubted_at_start(60 * MINUTE, &[]), Some(10));
        assert_eq!(doubted_at_start(Duration::ZERO, &[60 * MINUTE, 4 * MINUTE]), Some(6));
    }

    #[test]
    fn a_start_after_a_moment_is_not_in_doubt() {
        assert_eq!(doubted_at_start(MINUTE / 3, &[]), None);
        assert_eq!(doubted_at_start(Duration::ZERO, &[10 * MINUTE]), None);
    }

    #[test]
    fn a_start_right_after_a_crash_is_not_in_doubt_although_the_hub_was_seen_a_minute_ago() {
        for seconds in [59, 90] {
            assert_eq!(doubted_at_start(Duration::from_secs(seconds), &[]), None, "{seconds} seconds");
        }
        assert_eq!(doubted_at_start(Duration::from_secs(91), &[]), Some(10));
    }

    #[test]
    fn a_clock_that_is_set_back_is_believed() {
        let now = after(Now::for_test(), 60 * MINUTE, 60 * MINUTE);
        let mut clock = Clock::new(now, None);
        let back = Now { wall: Now::for_test().wall, monotonic: now.monotonic };
        assert!(!clock.is_in_doubt(back));
    }
}
