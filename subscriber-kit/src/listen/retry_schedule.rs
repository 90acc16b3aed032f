//! When a copy is synchronised again after a failure. Each reason has its own pauses, so that a lasting one does not delay others.

use std::time::Duration;

use resync_common::backoff::Backoff;

use crate::timing::{LONGEST_RETRY, pauses};

/// The longest pause after failures of resources: each further run requests the same resources again.
const LONGEST_FAILURE_PAUSE: Duration = Duration::from_secs(3600);

/// The pauses for each reason.
#[derive(Debug)]
pub(super) struct RetrySchedule {
    unreachable: Backoff,
    failing: Backoff,
    missing: Backoff,
}

/// What a synchronisation left undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    /// Whether it handled a notification for the first time.
    pub(super) is_new: bool,
    /// After how long, at the earliest, failed resources are requested again.
    pub(super) retry_after: Option<Duration>,
    /// Whether notifications are missing whose changes the lists do not contain yet.
    pub(super) has_gap: bool,
}

impl Default for RetrySchedule {
    fn default() -> Self {
        let failing = pauses(LONGEST_FAILURE_PAUSE);
        Self { unreachable: pauses(LONGEST_RETRY), failing, missing: failing }
    }
}

impl RetrySchedule {
    /// The pause after a synchronisation that failed, at least the one that the Source asks for.
    pub(super) fn after_error(&mut self, requested: Option<Duration>) -> Duration {
        self.unreachable.after_failure().max(requested.unwrap_or_default())
    }

    /// The pause after a synchronisation that left something undone.
    pub(super) fn after(
        &mut self,
        Remaining { is_new, retry_after, has_gap }: Remaining,
    ) -> Option<Duration> {
        self.unreachable.reset();
        // A new failure is tried again soon, however long another one has lasted.
        if is_new || retry_after.is_none() {
            self.failing.reset();
        }
        if !has_gap {
            self.missing.reset();
        }
        let failing = retry_after.map(|least| self.failing.after_failure().max(least));
        let missing = has_gap.then(|| self.missing.after_failure());
        failing.into_iter().chain(missing).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(3);
    const LATE: Duration = Duration::from_secs(60);
    const NOTHING: Remaining = Remaining { is_new: false, retry_after: None, has_gap: false };
    const GAP: Remaining = Remaining { has_gap: true, ..NOTHING };
    const FAILED: Remaining = Remaining { retry_after: Some(Duration::ZERO), ..NOTHING };

    fn is_soon(pause: Option<Duration>) -> bool {
        pause.is_some_and(|pause| pause < SOON)
    }

    /// After so many times the same.
    fn after(again: &mut RetrySchedule, left: Remaining, times: u32) -> Option<Duration> {
        (0..times).map(|_| again.after(left)).last().flatten()
    }

    #[test]
    fn cn016_a_gap_that_stays_open_slows_no_resource_that_fails_nor_that_a_gap() {
        for (old, new) in [(GAP, FAILED), (FAILED, GAP)] {
            let mut again = RetrySchedule::default();
            assert!(after(&mut again, old, 10) > Some(LATE));
            let both =
                Remaining { retry_after: old.retry_after.or(new.retry_after), has_gap: true, ..NOTHING };
            assert!(is_soon(again.after(both)));
        }
    }

    #[test]
    fn what_is_new_and_fails_is_tried_again_soon_although_another_has_failed_for_long() {
        let mut again = RetrySchedule::default();
        assert!(after(&mut again, FAILED, 10) > Some(LATE));
        assert!(is_soon(again.after(Remaining { is_new: true, ..FAILED })));
        assert!(!is_soon(again.after(FAILED)), "and goes on from there");
    }

    #[test]
    fn what_is_not_there_is_not_asked_for_before_it_is_due_and_what_is_done_not_at_all() {
        let mut again = RetrySchedule::default();
        assert_eq!(again.after(Remaining { retry_after: Some(LATE), ..NOTHING }), Some(LATE));
        assert_eq!(again.after(NOTHING), None);
    }

    #[test]
    fn a_source_that_was_away_for_long_slows_nothing_once_it_is_back() {
        let mut again = RetrySchedule::default();
        for _ in 0..10 {
            again.after_error(None);
        }
        assert!(again.after_error(None) > LATE);
        assert_eq!(again.after_error(Some(LONGEST_FAILURE_PAUSE)), LONGEST_FAILURE_PAUSE);
        assert!(is_soon(again.after(FAILED)) && is_soon(Some(again.after_error(None))));
    }
}
