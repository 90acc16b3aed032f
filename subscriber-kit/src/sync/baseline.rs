//! A baseline: reads the whole list, fetches what differs, and removes what is no longer listed (RS-190).

use std::sync::Arc;

use super::report::Report;
use super::run::Run;
use super::{ResourceError, SyncError, SyncOptions};
use crate::blocking::blocking;
use crate::sync::files::delete;
use crate::sync::files::dump::{Dumps, Filled, fill, is_empty};
use crate::sync::files::executor::Executor;
use crate::sync::files::run_outcome::RunOutcome;
use crate::sync::reading::change_reader::Point;
use crate::sync::reading::collector::Collected;
use crate::sync::reading::file_map::FileMap;
use crate::sync::reading::gaps::GapHistory;
use crate::sync::reading::path::{uri_or_path, url_of};
use crate::sync::reading::plan::Line;
use crate::sync::reading::snapshot::{Consistency, Snapshot};
use crate::sync::saved::cache::{FileCache, HandledSnapshot};
use crate::sync::saved::origins::OriginRecord;
use crate::sync::versions::Telling;

impl Run<'_> {
    pub(super) async fn baseline(
        &self,
        snapshot: Snapshot,
        cache: FileCache,
        gaps: GapHistory,
        telling: Option<Telling>,
    ) -> Result<Report, SyncError> {
        let Snapshot { collected, consistency, point, validators, digest, .. } = snapshot;
        let Collected {
            file_map,
            plan,
            mut report,
            packages,
            bytes,
            names_versions,
            has_unplaced_changes,
            ..
        } = collected;
        let deletion_skipped = deletion_obstacle(&consistency, report.failed, self.options);
        let may_remove = self.options.delete && deletion_skipped.is_none();
        self.record_origin().await?;
        let executor = Executor::new(self, Arc::clone(&file_map), cache, may_remove);
        let mut executor = executor.recording(OriginRecord::whole);
        executor.filled = self.fill(&executor, file_map.wanted(), bytes).await?;
        Box::pin(executor.unpack(&plan, packages)).await?;
        let mut updates = FileCache::default();
        let mut run_outcome = RunOutcome::default();
        Box::pin(executor.resources(&plan, &mut report, &mut run_outcome, &mut updates)).await?;
        if may_remove {
            self.remove_unlisted(file_map, &mut report, &mut run_outcome).await;
        }
        executor.account(&mut report);
        executor.save_origins().await;
        report.deletion_skipped = deletion_skipped;
        report.retry_may_help |= matches!(consistency, Consistency::Mixed(_));
        // An index without `at` may stay the same while its lists change, so it must be read again. After a gap, the same
        // list has nothing more to say.
        let is_final = match consistency {
            Consistency::Consistent => true,
            Consistency::Gap(_) => point.is_some(),
            Consistency::Mixed(_) | Consistency::Undated(_) => false,
        };
        report.in_copy = (!has_unplaced_changes).then_some(report.resources);
        report.unproven = consistency.reason();
        report.reached = point.as_ref().map(Point::reached);
        report.awaited = report.reached.and_then(|reached| self.lists.awaited_after(reached));
        report.retry_in = self.retry_in(&run_outcome);
        report.gaps = Box::new(gaps);
        if !report.retry_may_help && is_final {
            let (scope, report, is_without_point) = (self.scope.clone(), report.clone(), point.is_none());
            updates.handled =
                Some(HandledSnapshot { scope, validators, digest, report, is_without_point, names_versions });
        }
        if let Some(telling) = telling {
            report.versions = Some(Box::pin(self.harvest_all(telling)).await);
        }
        let copy_state = if report.forgets_versions() {
            // The next run reads the changes since then once more.
            updates.handled = None;
            self.saved.clone().map(|saved| saved.with_resources(None))
        } else {
            let next = point.and_then(|point| run_outcome.copy_state_after_baseline(&self.scope, point));
            next.map(|next| next.with_gaps(report.unproven.clone(), gaps).with_resources(report.in_copy))
        };
        report.is_remembered = copy_state.is_some();
        self.save(run_outcome.changed.into_folders(), Some(updates), copy_state, self.saved.as_ref()).await?;
        Ok(report)
    }

    /// Removes files that no list names.
    pub(super) async fn remove_unlisted(
        &self,
        file_map: Arc<FileMap>,
        report: &mut Report,
        run_outcome: &mut RunOutcome,
    ) {
        let (target, filter) = (self.target.clone(), self.options.filter.clone());
        let (removes, progress) = (!self.options.dry_run, self.options.progress.clone());
        let found = blocking(move || delete::unlisted(&target, &file_map, &filter, removes, &progress)).await;
        report.deleted = found.deleted;
        for (path, error) in found.failures {
            let error = ResourceError::Remove(error);
            let uri = uri_or_path(&path, &self.target.base);
            if url_of(&path, &self.target.base).is_some() {
                let line = Line { loc: uri.clone(), url: uri.clone(), is_deleted: true, ..Line::default() };
                run_outcome.failed(&line, &error);
            }
            report.not_removed(&self.options.progress, &uri, &error);
        }
        report.not_deleted = found.failed;
    }

    /// Fills an empty copy from a Resource Dump, if that is cheaper (RS-190).
    async fn fill(&self, executor: &Executor<'_>, resources: u64, bytes: u64) -> Result<Filled, SyncError> {
        let Some(root) = self.dump.filter(|_| !self.options.dry_run) else { return Ok(Filled::new()) };
        let directory = self.target.directory.clone();
        if !blocking(move || is_empty(&directory)).await? {
            return Ok(Filled::new());
        }
        let dumps = Dumps { lists: &self.lists, root };
        match dumps.cheaper_than(resources, bytes).await {
            Some(dump) => Ok(fill(dump, &self.lists, &executor.placer).await),
            None => Ok(Filled::new()),
        }
    }
}

/// Why nothing may be deleted, if so: any file may belong to an entry without a path.
pub(super) fn deletion_obstacle(
    consistency: &Consistency,
    failed: u64,
    options: &SyncOptions,
) -> Option<String> {
    if !options.delete {
        return None;
    }
    match (consistency, failed) {
        (Consistency::Mixed(why), _) => Some(format!("the Source is making a new snapshot: {why}")),
        (Consistency::Undated(why) | Consistency::Gap(why), _) => Some(why.clone()),
        (Consistency::Consistent, 0) => None,
        (Consistency::Consistent, count) => {
            Some(format!("{count} listed resources have no path here, so any file may belong to one of them"))
        }
    }
}
