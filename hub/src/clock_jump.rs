//! Clock jumps: the wall clock was set, the machine slept, or the hub was down.

use std::time::{Duration, SystemTime};

/// By how much the wall clock may move more than time passed without a jump.
const TOLERATED: Duration = Duration::from_secs(30);

/// How often the store saves that the hub is up.
pub(crate) const UPTIME_SAVED_EVERY: Duration = Duration::from_secs(60);

/// For so long a hub may have been up although the store does not know it.
pub(crate) const UNSEEN: Duration = UPTIME_SAVED_EVERY.saturating_add(TOLERATED);

/// By how much the wall clock moved more than `passed`, the time between the two readings; `None` without a jump. A clock that was
/// set back did not jump.
pub(crate) fn jump(before: SystemTime, now: SystemTime, passed: Duration) -> Option<Duration> {
    let gained = now.duration_since(before).unwrap_or_default();
    Some(gained.saturating_sub(passed)).filter(|jump| *jump > TOLERATED)
}

/// How far the wall clock moved between the last time that the hub was known to be up and its next start; `None` if the hub may
/// have been up for nearly all of it.
pub(crate) fn jump_while_down(seen: SystemTime, now: SystemTime) -> Option<Duration> {
    let gained = now.duration_since(seen).unwrap_or_default();
    Some(gained).filter(|jump| *jump > UNSEEN)
}
