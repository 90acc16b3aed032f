//! A copy of the past: the Source as it was at a moment (MEM-060 to MEM-063).

pub(super) mod plan;

use std::sync::Arc;

use resync_common::words::counted;
use resync_core::datetime::DateTime;

use super::SyncError;
use super::baseline::deletion_obstacle;
use super::report::Report;
use super::run::Run;
use crate::blocking::blocking;
use crate::sync::files::executor::Executor;
use crate::sync::files::past::Past;
use crate::sync::files::run_outcome::RunOutcome;
use crate::sync::reading::collector::Collected;
use crate::sync::reading::later::LaterChanges;
use crate::sync::saved::cache::FileCache;
use crate::sync::saved::origins::OriginRecord;
use plan::PastSnapshot;

impl Run<'_> {
    /// Makes the copy as the Source was at this moment.
    pub(super) async fn at(&self, moment: DateTime) -> Result<Report, SyncError> {
        let snapshot = Box::pin(self.lists.past(moment)).await?;
        let PastSnapshot { collected, consistency, unproven, known_since, known_until } = snapshot;
        let Collected { file_map, plan, mut report, packages, later, .. } = collected;
        if self.options.delete && file_map.is_empty() {
            return Err(SyncError::Empty { url: self.lists.list.clone() });
        }
        let deletion_skipped = deletion_obstacle(&consistency, report.failed, self.options);
        let may_remove = self.options.delete && deletion_skipped.is_none();
        self.record_origin().await?;
        let loading = Arc::clone(&self.folder);
        let cache = blocking(move || FileCache::load(&loading)).await;
        let later = Arc::new(later.unwrap_or_else(|| LaterChanges::of(moment)));
        let timegate = self.options.timegate.as_ref();
        let executor = Executor::new(self, Arc::clone(&file_map), cache, may_remove);
        let mut executor = executor.recording(OriginRecord::whole);
        executor.past = Some(Past::new(&self.lists, timegate, later, known_since, known_until));
        Box::pin(executor.unpack(&plan, packages)).await?;
        let (mut updates, mut run_outcome) = (FileCache::default(), RunOutcome::default());
        Box::pin(executor.resources(&plan, &mut report, &mut run_outcome, &mut updates)).await?;
        if may_remove {
            self.remove_unlisted(file_map, &mut report, &mut run_outcome).await;
        }
        executor.account(&mut report);
        executor.save_origins().await;
        report.at = Some(moment);
        report.in_copy = Some(report.resources);
        report.deletion_skipped = deletion_skipped;
        let undated = executor.past.as_ref().map_or(0, Past::undated);
        report.unproven = unproven.or_else(|| not_had(report.failed, moment)).or_else(|| not_dated(undated));
        self.save(run_outcome.changed.into_folders(), Some(updates), None, None).await?;
        Ok(report)
    }
}

/// Why the copy is not proven to be that of the moment, if something failed.
fn not_had(failed: u64, moment: DateTime) -> Option<String> {
    (failed > 0).then(|| format!("{} cannot be had as of {moment}", counted(failed, "resource", "resources")))
}

/// Why the copy is not proven to be that of the moment, if some files may be of after it.
fn not_dated(undated: u64) -> Option<String> {
    let one = "resource has neither a hash nor Last-Modified, so it may be newer";
    let many = "resources have neither hash nor Last-Modified, so they may be newer";
    (undated > 0).then(|| counted(undated, one, many))
}
