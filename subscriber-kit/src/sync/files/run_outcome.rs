//! What a run leaves for the next: changed folders, failed resources, and how many resources there are.

use std::collections::HashMap;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::document::Change;

use super::folder::ChangedFolders;
use crate::sync::ResourceError;
use crate::sync::reading::change_reader::Point;
use crate::sync::reading::plan::Line;
use crate::sync::saved::cache::Scope;
use crate::sync::saved::copy_state::{CopyState, MAX_RETRIES, MAX_RETRY_BYTES, Retry};

/// What a run leaves for the next.
#[derive(Default)]
pub(crate) struct RunOutcome {
    /// The folders that were changed and are not synced yet.
    pub(crate) changed: ChangedFolders,
    /// Failed resources to try again, up to a limit.
    retries: Vec<Retry>,
    /// How many bytes these take as they are saved.
    retry_bytes: usize,
    /// How often in a row resources were missing before, by their URIs.
    times_missing: HashMap<String, u32>,
    /// Whether more failed than that.
    has_overflowed: bool,
    /// Whether a retry of these may succeed.
    lost_retryable: bool,
    /// The URIs of resources that failed in earlier runs, and whether they were to be deleted.
    failed_before: HashMap<String, bool>,
    /// The URIs of resources whose changes earlier runs took from notifications, and whether they were deleted. Lists repeat these
    /// changes.
    notified_before: HashMap<String, bool>,
    /// Whether the files of deleted resources stay, so that a file proves nothing.
    keeps_deleted: bool,
    /// How many more resources there are than before; `None` if that is not certain.
    growth: Option<i64>,
}

/// What shows whether a resource was counted before its changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// What its first change says.
    pub(super) first: Option<Change>,
    /// Whether its file was there.
    pub(super) was_there: bool,
    /// Whether it can have no file here, so that a missing one proves nothing.
    pub(super) is_barred: bool,
}

impl RunOutcome {
    /// For a run that continues from this state and tries these `again`.
    pub(crate) fn after<'u>(
        copy_state: &CopyState,
        again: impl Iterator<Item = &'u Retry>,
        keeps_deleted: bool,
    ) -> Self {
        let failed = copy_state.retries.iter().map(|retry| (retry.line.loc.clone(), retry.line.is_deleted));
        let notified = copy_state.notified.resources();
        Self {
            times_missing: again.map(|retry| (retry.line.loc.clone(), retry.times_missing)).collect(),
            failed_before: failed.collect(),
            notified_before: notified.map(|(loc, is_deleted)| (loc.to_owned(), is_deleted)).collect(),
            keeps_deleted,
            growth: Some(0),
            ..Self::default()
        }
    }

    /// How many resources there are, if there were `before`; `None` if that is not certain.
    pub(crate) fn count_after(&self, before: u64) -> Option<u64> {
        self.growth.map(|growth| before.saturating_add_signed(growth))
    }

    /// There are changes that cannot be counted.
    pub(crate) fn loses_count(&mut self) {
        self.growth = None;
    }

    /// Counts a resource that was created or updated.
    pub(super) fn came(&mut self, line: &Line, evidence: Evidence) {
        let growth = self.was_counted(line, evidence).map(|was_counted| i64::from(!was_counted));
        self.grow(growth);
    }

    /// Counts a resource that was deleted; its file may stay.
    pub(super) fn went(&mut self, line: &Line, evidence: Evidence) {
        let growth = self.was_counted(line, evidence).map(|was_counted| -i64::from(was_counted));
        self.grow(growth);
    }

    fn grow(&mut self, by: Option<i64>) {
        self.growth = self.growth.zip(by).map(|(growth, by)| growth + by);
    }

    /// Whether the resource was counted before this run; `None` if that is not certain. Its first change and its file must agree:
    /// a change may be repeated, a file may have been kept or be of a run that was killed, and somebody may have removed it.
    fn was_counted(&self, line: &Line, evidence: Evidence) -> Option<bool> {
        if let Some(was_deleted) = self.failed_before.get(&line.loc) {
            return Some(!was_deleted);
        }
        let Evidence { first, was_there, is_barred } = evidence;
        match (self.notified_before.get(&line.loc), first) {
            (Some(true), _) | (None, Some(Change::Created)) => (!was_there).then_some(false),
            (None, Some(Change::Deleted)) => (was_there && !self.keeps_deleted).then_some(true),
            (Some(false), _) | (None, Some(Change::Updated) | None) => {
                (was_there || is_barred).then_some(true)
            }
        }
    }

    pub(crate) fn failed(&mut self, line: &Line, error: &ResourceError) {
        if !error.is_for_later() {
            return;
        }
        if self.retries.len() < MAX_RETRIES {
            let times_missing = self.times_missing.get(&line.loc).copied().unwrap_or(0);
            let retry = Retry::new(line.clone().for_later(), error, times_missing, DateTime::now());
            let bytes = self.retry_bytes + retry.saved_bytes();
            if bytes <= MAX_RETRY_BYTES {
                self.retry_bytes = bytes;
                self.retries.push(retry);
                return;
            }
        }
        self.has_overflowed = true;
        self.lost_retryable |= error.retry_may_help();
    }

    /// Keeps a resource that this run does not request.
    pub(crate) fn postpone(&mut self, retry: &Retry) {
        self.retry_bytes += retry.saved_bytes();
        self.retries.push(retry.clone());
    }

    /// When a later run should request missing resources again, of those that it requests.
    pub(crate) fn retry_in(&self, is_requested: impl Fn(&Line) -> bool) -> Option<Duration> {
        let now = DateTime::now();
        let not_there =
            self.retries.iter().filter(|retry| retry.times_missing > 0 && is_requested(&retry.line));
        not_there.map(|retry| retry.pause_at(now)).min()
    }

    /// The state after an incremental run; `None` if too many resources failed, so that the changes must be read again.
    pub(crate) fn copy_state(&mut self, scope: &Scope, point: Point) -> Option<CopyState> {
        let retries = std::mem::take(&mut self.retries);
        (!self.has_overflowed).then(|| CopyState::new(scope.clone(), point, retries))
    }

    /// The state after a baseline. Failures that only a new list can resolve may exceed the limit, since that list names all of
    /// them.
    pub(crate) fn copy_state_after_baseline(&mut self, scope: &Scope, point: Point) -> Option<CopyState> {
        self.has_overflowed = self.lost_retryable;
        self.copy_state(scope, point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a run with ten resources, of which `b` failed; the deletion of `c` came in a notification.
    fn after_ten(keeps_deleted: bool) -> RunOutcome {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/archive/state-1/point.json");
        let state: CopyState = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        RunOutcome::after(&state, std::iter::empty(), keeps_deleted)
    }

    /// How many there are if the resource is there after its changes, and if it was deleted.
    fn counts(keeps_deleted: bool, path: &str, evidence: Evidence) -> [Option<u64>; 2] {
        let line = Line { loc: format!("http://source.example/{path}"), ..Line::default() };
        let count = |take: fn(&mut RunOutcome, &Line, Evidence)| {
            let mut outcome = after_ten(keeps_deleted);
            take(&mut outcome, &line, evidence);
            outcome.count_after(10)
        };
        [count(RunOutcome::came), count(RunOutcome::went)]
    }

    #[test]
    fn the_first_change_and_the_file_say_whether_a_resource_was_counted() {
        const NEW: [Option<u64>; 2] = [Some(11), Some(10)];
        const COUNTED: [Option<u64>; 2] = [Some(10), Some(9)];
        const UNKNOWN: [Option<u64>; 2] = [None, None];
        let found = |first, was_there| Evidence { first, was_there, is_barred: false };
        let (created, updated, deleted) =
            (Some(Change::Created), Some(Change::Updated), Some(Change::Deleted));
        for (path, first, was_there, expected) in [
            ("x", created, false, NEW),
            ("x", created, true, UNKNOWN),
            ("x", updated, true, COUNTED),
            ("x", updated, false, UNKNOWN),
            ("x", None, true, COUNTED),
            ("x", deleted, true, COUNTED),
            ("x", deleted, false, UNKNOWN),
            // It failed, and counts.
            ("b", created, false, COUNTED),
            ("b", deleted, false, COUNTED),
            // The lists tell once more what was notified.
            ("c", deleted, false, NEW),
            ("c", created, false, NEW),
            ("c", deleted, true, UNKNOWN),
        ] {
            let counts = counts(false, path, found(first, was_there));
            assert_eq!(counts, expected, "{path}, {first:?}, {was_there}");
        }
        assert_eq!(counts(true, "x", found(deleted, true)), UNKNOWN, "the file may have been kept");
        assert_eq!(counts(true, "x", found(updated, true)), COUNTED);
        for (first, expected) in [(created, NEW), (updated, COUNTED), (deleted, UNKNOWN)] {
            let barred = Evidence { is_barred: true, ..found(first, false) };
            assert_eq!(counts(false, "x", barred), expected, "{first:?}");
        }
    }

    #[test]
    fn what_could_not_be_removed_counts_no_more() {
        let mut outcome = after_ten(false);
        let line = Line { loc: "http://source.example/x".to_owned(), is_deleted: true, ..Line::default() };
        let found = Evidence { first: Some(Change::Deleted), was_there: true, is_barred: false };
        outcome.went(&line, found);
        assert_eq!(outcome.count_after(10), Some(9));
        // As the next run finds it.
        let mut outcome = after_ten(false);
        outcome.failed_before.insert(line.loc.clone(), true);
        outcome.went(&line, found);
        assert_eq!(outcome.count_after(9), Some(9), "a later run can remove it");
    }

    #[test]
    fn failed_resources_are_kept_up_to_so_many_bytes_and_more_make_the_next_run_read_the_changes_again() {
        let mut outcome = after_ten(false);
        let long = Line { mirrors: vec!["m".repeat(MAX_RETRY_BYTES / 10)], ..Line::default() };
        let fail = |outcome: &mut RunOutcome, count: usize| {
            for _ in 0..count {
                outcome.failed(&long, &ResourceError::EarlierFile);
            }
            (outcome.retries.len(), outcome.has_overflowed)
        };
        assert_eq!(fail(&mut outcome, 9), (9, false));
        assert_eq!(fail(&mut outcome, 9), (9, true));
    }

    #[test]
    fn one_change_that_cannot_be_counted_makes_the_number_unknown() {
        let mut outcome = after_ten(false);
        outcome.loses_count();
        let line = Line { loc: "http://source.example/x".to_owned(), ..Line::default() };
        outcome.came(&line, Evidence { first: Some(Change::Created), was_there: false, is_barred: false });
        assert_eq!(outcome.count_after(10), None);
    }
}
