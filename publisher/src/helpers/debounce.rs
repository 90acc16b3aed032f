//! Waiting until changes pause, before a Resource List or a dump that they made due is written.

use std::time::{Duration, Instant};

/// Waits while changes go on, but not for long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debounce {
    quiet: Instant,
    latest: Instant,
}

impl Debounce {
    /// The pause in changes that ends the wait.
    const QUIET: Duration = Duration::from_secs(2);
    /// The longest wait after the first change.
    pub(crate) const LATEST: Duration = Duration::from_secs(30);

    /// After one more change.
    pub(crate) fn after(before: Option<Self>, now: Instant) -> Self {
        Self { quiet: now + Self::QUIET, latest: before.map_or(now + Self::LATEST, |before| before.latest) }
    }

    /// When the wait ends if nothing else changes.
    pub(crate) fn due(self) -> Instant {
        self.quiet.min(self.latest)
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_off_waits_for_a_pause_of_the_changes_though_not_for_long() {
        let first = Instant::now();
        let mut debounce = Debounce::after(None, first);
        assert_eq!(debounce.due(), first + Duration::from_secs(2));
        for second in 1..40 {
            debounce = Debounce::after(Some(debounce), first + Duration::from_secs(second));
            assert_eq!(debounce.due(), first + Duration::from_secs((second + 2).min(30)));
        }
    }
}
