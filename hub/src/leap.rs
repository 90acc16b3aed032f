//! Leaps of the wall clock: somebody has set it, the machine has slept, or the hub was down.

use std::time::{Duration, SystemTime};

/// What the wall clock may gain between two looks without having leapt.
const TOLERATED: Duration = Duration::from_secs(30);

/// How often it is written down that the hub is up.
pub(crate) const NOTED_EVERY: Duration = Duration::from_secs(60);

/// How much further than `passed`, the time between two looks, the wall clock went; `None` where it did not leap. One that was set back
/// has not.
pub(crate) fn leapt(before: SystemTime, now: SystemTime, passed: Duration) -> Option<Duration> {
    let gained = now.duration_since(before).unwrap_or_default();
    Some(gained.saturating_sub(passed)).filter(|leap| *leap > TOLERATED)
}

/// How far the wall clock went between the last time that the hub is known to have been up and its next start; `None` where it may
/// have been up for nearly all of that.
pub(crate) fn leapt_while_down(seen: SystemTime, now: SystemTime) -> Option<Duration> {
    let gained = now.duration_since(seen).unwrap_or_default();
    Some(gained).filter(|leap| *leap > NOTED_EVERY + TOLERATED)
}
