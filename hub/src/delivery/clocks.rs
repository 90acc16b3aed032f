//! The computer's clocks: whoever calls the scheduler reads them, so that the scheduler does not.

use std::time::Instant;

use resync_core::datetime::DateTime;

use super::scheduler::Now;

impl Now {
    /// What they say.
    pub(crate) fn read() -> Self {
        Self { monotonic: Instant::now(), wall: DateTime::now() }
    }
}
