//! An incremental synchronisation: handles the changes since the last run (RS-191).

use std::sync::Arc;

use resync_core::datetime::DateTime;

use super::SyncError;
use super::report::{Method, Report};
use super::run::{Run, copy_state};
use crate::blocking::blocking;
use crate::sync::files::executor::Executor;
use crate::sync::files::run_outcome::RunOutcome;
use crate::sync::reading::change_reader::Reached;
use crate::sync::reading::changes::Changes;
use crate::sync::reading::collector::{Collected, Collector};
use crate::sync::reading::gaps::{GapHistory, GapPolicy};
use crate::sync::reading::lists::Lists;
use crate::sync::reading::told::Told;
use crate::sync::saved::cache::{AddedFiles, FileCache};
use crate::sync::saved::copy_state::{CopyState, MAX_RETRIES, Retry};
use crate::sync::saved::origins::OriginRecord;

impl Run<'_> {
    /// Handles the changes since the last run; `None` if the Change Lists have a gap that `policy` refuses (RS-197). Without a
    /// Change List, handles the changes from notifications.
    pub(super) async fn incremental(
        &self,
        copy_state: &CopyState,
        gaps: GapHistory,
        policy: GapPolicy,
    ) -> Result<Option<Report>, SyncError> {
        let told = self.telling()?;
        let mut collector = Collector::new(&self.lists, self.lists.staging.scratch()?).telling(told.clone());
        let now = DateTime::now();
        let (paused, due): (Vec<_>, Vec<_>) =
            copy_state.retries.iter().partition(|one| one.is_paused_at(now));
        let mut retry_lines = Vec::new();
        for retry in due {
            retry_lines.extend(collector.retry(&retry.line)?.map(|number| (retry, number)));
        }
        let reached = match self.lists.changes {
            None => Ok(Reached::nothing(collector, &copy_state.point)),
            Some(root) => {
                let changes = Changes { lists: &self.lists, root, policy };
                Box::pin(changes.since(collector, &copy_state.point)).await
            }
        };
        let reached = match reached {
            Ok(reached) => reached,
            Err(
                error @ (SyncError::LostChanges { .. }
                | SyncError::BrokenChain { .. }
                | SyncError::PackageFormat { .. }),
            ) => {
                tracing::warn!(%error, "the Change Lists have a gap; reading the Resource List");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Reached { collector, point, continuity } = reached;
        if let Some(why) = &continuity.unproven {
            tracing::warn!(why, "changes may be missing until a newer Resource List");
        }
        let collector = Lists::take_notified(collector, &self.lists.new_changes, &point)?;
        self.record_origin().await?;
        let (mut report, mut run_outcome) =
            self.handle(collector, told, copy_state, (&retry_lines, &paused)).await?;
        report.in_copy = copy_state.resources.and_then(|before| run_outcome.count_after(before));
        report.unproven = continuity.unproven.clone().or_else(|| copy_state.unproven.clone());
        report.reached = Some(point.reached());
        report.awaited = self.lists.awaited_after(point.reached());
        report.retry_in = self.retry_in(&run_outcome);
        report.gaps = Box::new(gaps.with(&continuity, now));
        report.deletion_skipped = report.unproven.clone().filter(|_| self.options.delete);
        let (next, before) = if report.forgets_versions() {
            // The next run reads the same changes, which must not count twice. The point may be that of --since, which is not saved.
            (Some(copy_state.clone().with_resources(None)), self.saved.as_ref())
        } else {
            let next = run_outcome.copy_state(&self.scope, point);
            let next = next.map(|next| next.with_gaps(report.unproven.clone(), *report.gaps));
            (next.map(|next| next.with_resources(report.in_copy)), Some(copy_state))
        };
        report.is_remembered = next.is_some();
        self.save(run_outcome.changed.into_folders(), None, next, before).await?;
        Ok(Some(report))
    }

    /// Handles the collected changes, and the versions that they told. `retry_lines` are failures of earlier runs that are due again, with
    /// their line numbers; those in `paused` are only reported.
    async fn handle(
        &self,
        collector: Collector,
        told: Option<Arc<Told>>,
        copy_state: &CopyState,
        (retry_lines, paused): (&[(&Retry, u32)], &[&Retry]),
    ) -> Result<(Report, RunOutcome), SyncError> {
        let Collected {
            file_map,
            plan,
            mut report,
            packages,
            has_unplaced_changes,
            has_excluded_changes,
            ..
        } = blocking(move || collector.end()).await?;
        report.method = Method::Incremental;
        // A newer change of the same resource starts the count of tries anew.
        let path = |retry: &Retry| retry.line.place(&self.target.base);
        let is_last_word = |(retry, number): &&(&Retry, u32)| {
            path(retry).is_some_and(|path| file_map.is_last_word(&path, *number))
        };
        let again = retry_lines.iter().filter(is_last_word).map(|(retry, _)| *retry);
        let mut run_outcome = RunOutcome::after(copy_state, again, !self.options.delete);
        if has_unplaced_changes || has_excluded_changes {
            run_outcome.loses_count();
        }
        for retry in paused {
            if !path(retry).is_some_and(|path| file_map.knows(&path)) {
                report.postponed(&self.options.progress, retry);
                run_outcome.postpone(retry);
            }
        }
        let executor = Executor::new(self, file_map, FileCache::default(), false);
        let mut executor = executor.recording(OriginRecord::added);
        // Deletions come first: a folder may have to give way to a file, or the other way round.
        executor.deletions(&plan, &mut report, &mut run_outcome).await?;
        Box::pin(executor.unpack(&plan, packages)).await?;
        let mut updates = AddedFiles::new(&self.folder);
        Box::pin(executor.resources(&plan, &mut report, &mut run_outcome, &mut updates)).await?;
        executor.account(&mut report);
        executor.save_origins().await;
        if let Some(told) = told {
            report.versions = Some(Box::pin(self.harvest(&told, &executor.packages)).await);
        }
        Ok((report, run_outcome))
    }

    /// Reads the changes once more if a downloaded file did not match its list: it may be newer than the list (RS-199).
    pub(super) async fn settle(&self, report: Report) -> Result<Report, SyncError> {
        // Beyond this limit the failures are not all recorded.
        let is_remembered = report.mismatched && report.failed <= MAX_RETRIES as u64;
        if !is_remembered || self.options.dry_run || self.lists.changes.is_none() {
            return Ok(report);
        }
        let copy_state = copy_state(&self.folder, &self.scope).await;
        let Some(copy_state) = copy_state.filter(|copy_state| !copy_state.retries.is_empty()) else {
            return Ok(report);
        };
        Ok(match Box::pin(self.incremental(&copy_state, copy_state.gaps, GapPolicy::Refused)).await {
            Ok(Some(next)) => report.followed_by(next, &copy_state.retries),
            Ok(None) => report,
            Err(error) => {
                tracing::warn!(%error, "cannot read the changes once more; the next run will");
                report
            }
        })
    }
}
