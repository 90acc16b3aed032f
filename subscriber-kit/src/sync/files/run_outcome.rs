//! What a run leaves for the next: changed folders, failed resources, and how many resources there are.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use resync_core::datetime::DateTime;

use crate::sync::ResourceError;
use crate::sync::reading::changes::Point;
use crate::sync::reading::plan::Line;
use crate::sync::saved::cache::Scope;
use crate::sync::saved::copy_state::{CopyState, MAX_RETRIES, Retry};

/// What a run leaves for the next.
#[derive(Default)]
pub(crate) struct RunOutcome {
    /// The folders that were changed.
    pub(crate) changed: HashSet<PathBuf>,
    /// Failed resources to try again, up to a limit.
    retries: Vec<Retry>,
    /// How often in a row resources were missing before, by their URIs.
    times_missing: HashMap<String, u32>,
    /// Whether more failed than that.
    has_overflowed: bool,
    /// Whether a retry of these may succeed.
    lost_retryable: bool,
    /// The URIs of resources that failed in earlier runs, and whether they were to be deleted.
    failed_before: HashMap<String, bool>,
    /// How many more resources there are than before.
    growth: i64,
    /// Whether files and changes contradict each other, so that this is not known.
    is_uncertain: bool,
}

impl RunOutcome {
    /// For a run that tries these `again`.
    pub(crate) fn after<'u>(again: impl Iterator<Item = &'u Retry>) -> Self {
        Self {
            times_missing: again.map(|retry| (retry.line.loc.clone(), retry.times_missing)).collect(),
            ..Self::default()
        }
    }

    /// Resources that failed in earlier runs.
    pub(crate) fn count_no_more<'u>(&mut self, failed: impl Iterator<Item = &'u Retry>) {
        self.failed_before = failed.map(|retry| (retry.line.loc.clone(), retry.line.is_deleted)).collect();
    }

    /// How many resources there are, if there were `before`; `None` if that is not certain.
    pub(crate) fn count_after(&self, before: u64) -> Option<u64> {
        (!self.is_uncertain).then(|| before.saturating_add_signed(self.growth))
    }

    /// Counts a resource that was created or updated. Its file proves nothing if the change says otherwise: it may have been kept or
    /// be of an earlier run, or somebody has removed it.
    pub(super) fn came(&mut self, line: &Line, was_there: bool) {
        match (self.failed_before.get(&line.loc), line.is_created, was_there) {
            // It has been counted.
            (Some(false), ..) | (None, false, true) => {}
            (None, true, false) => self.growth += 1,
            _ => self.is_uncertain = true,
        }
    }

    /// Counts a resource that was deleted; its file may stay. A file that an earlier run could not remove was perhaps never listed.
    pub(super) fn went(&mut self, line: &Line, was_there: bool, stays: bool) {
        let was_counted = self.failed_before.get(&line.loc).map_or(was_there, |was_deleted| !was_deleted);
        if was_counted && !(was_there && stays) {
            self.growth -= 1;
        } else {
            self.is_uncertain = true;
        }
    }

    pub(crate) fn failed(&mut self, line: &Line, error: &ResourceError) {
        if !error.is_for_later() {
            return;
        }
        if self.retries.len() < MAX_RETRIES {
            let times_missing = self.times_missing.get(&line.loc).copied().unwrap_or(0);
            self.retries.push(Retry::new(line.clone().for_later(), error, times_missing, DateTime::now()));
        } else {
            self.has_overflowed = true;
            self.lost_retryable |= error.retry_may_help();
        }
    }

    /// Keeps a resource that this run does not request.
    pub(crate) fn postpone(&mut self, retry: &Retry) {
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
