//! A synchronisation, and the choice of its method: incremental while the changes since the last run are known, else a
//! baseline.

use std::sync::Arc;

use resync_core::datetime::DateTime;

use super::report::{Report, VersionsReport};
use super::run::Run;
use super::{Offer, SyncError, SyncOptions, Target, fetch_versions};
use crate::fetch::Client;
use crate::notification::DatedChange;
use crate::sync::files::download::blocking;
use crate::sync::reading::change_reader::Point;
use crate::sync::reading::gaps::GapPolicy;
use crate::sync::reading::snapshot::LastSeen;
use crate::sync::saved::cache::FileCache;
use crate::sync::saved::copy_state::CopyState;

/// How much a synchronisation compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Only the changes since the last run (RS-191). Without a Change List or an earlier run, as [`Depth::IfListChanged`].
    Changes,
    /// Everything if the Resource List changed; else the changes since the last run. If the Source publishes no changes and
    /// the list is the same, failures that only a new list can resolve, such as a 404, are not retried.
    IfListChanged,
    /// Everything, unless the list is the same and the copy was in step with it (RS-096).
    IfOutOfStep,
    /// Every file.
    Full,
}

/// Brings a copy in step: compares its files with the Resource List, or with the Resource Dump if there is no list, and with the
/// changes since then (RS-190, RS-196). If `depth` and the state of the copy allow it, handles only the changes since the last run.
///
/// Only files that differ are fetched. Each file is replaced in one step after its length and hash were verified; on a
/// failure the old file stays. With [`SyncOptions::delete`], unlisted files are removed, but only if the list was read to
/// its end, is from one snapshot, and every entry has a path here. Otherwise the report says why nothing was deleted
/// (RS-201).
///
/// # Errors
/// [`SyncError`] if there is no complete list, or if another run works on the copy. Failures of single resources are in the
/// [`Report`]; a version that cannot be kept is no failure of the copy.
pub async fn synchronise(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
    depth: Depth,
) -> Result<Report, SyncError> {
    let mut report = synchronise_with_notified(client, offer, target, options, depth, &[]).await?;
    // The copy is in step before anything is fetched for its versions.
    if let Some(fetched) = Box::pin(fetch_versions(client, offer, target, options)).await {
        let before = report.versions.map(|before| Box::new(VersionsReport { waiting: 0, ..*before }));
        report.versions = VersionsReport::joined(before, Some(fetched));
    }
    Ok(report)
}

/// As [`synchronise`], and applies changes from notifications, oldest first. The lists may not contain them yet.
pub(crate) async fn synchronise_with_notified(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
    depth: Depth,
    notified: &[DatedChange],
) -> Result<Report, SyncError> {
    let max = options.max_run_time;
    let synchronising = async {
        let run = Run::open(client, offer, target, options, notified).await?;
        match options.at {
            Some(moment) => Box::pin(run.at(moment)).await,
            None => Box::pin(run.synchronise(depth)).await,
        }
    };
    let ended = tokio::time::timeout(max, Box::pin(synchronising)).await;
    ended.unwrap_or(Err(SyncError::TooLong { max })).map_err(|error| error.within(&target.directory))
}

impl Run<'_> {
    async fn synchronise(&self, depth: Depth) -> Result<Report, SyncError> {
        let saved = self.starting_state(depth)?;
        let copy_state = saved.as_ref().filter(|_| self.lists.changes.is_some());
        let now = DateTime::now();
        let is_from_elsewhere = self.options.from.is_some();
        let policy = match copy_state {
            Some(copy_state) if !is_from_elsewhere => copy_state.gaps.policy(now),
            _ => GapPolicy::Refused,
        };
        // After a gap, a newer Resource List is tried first, unless it was read a short time ago.
        if let (Depth::Changes, Some(copy_state)) = (depth, copy_state)
            && (copy_state.unproven.is_none() || policy == GapPolicy::Tolerated)
            && let Some(report) = Box::pin(self.incremental(copy_state, copy_state.gaps, policy)).await?
        {
            return self.settle(report).await;
        }
        let loading = Arc::clone(&self.folder);
        let cache = blocking(move || FileCache::load(&loading)).await;
        let enough = cache.snapshot_of(&self.scope).filter(|handled| match depth {
            Depth::Full => false,
            Depth::IfOutOfStep => handled.report.is_done(),
            Depth::Changes | Depth::IfListChanged => true,
        });
        let last_seen =
            enough.map(|handled| LastSeen { validators: &handled.validators, digest: &handled.digest });
        let snapshot = match (self.lists.read(last_seen).await?, enough, copy_state) {
            (Some(snapshot), ..) => snapshot,
            (None, _, Some(copy_state)) => {
                // The copy is newer than this list, except after --since. If the list names versions, reading it again cannot
                // close a gap, so the gap is tolerated. Otherwise everything is fetched again.
                let names_versions = enough.is_some_and(|handled| handled.names_versions);
                let policy = if names_versions && !is_from_elsewhere {
                    GapPolicy::Tolerated
                } else {
                    GapPolicy::Refused
                };
                let gaps = copy_state.gaps.list_read_at(now, names_versions);
                match Box::pin(self.incremental(copy_state, gaps, policy)).await {
                    Ok(Some(report)) => return self.settle(report).await,
                    Ok(None) => self.lists.read_anew().await?,
                    Err(error) if error.is_about_a_document() => {
                        tracing::warn!(%error, "cannot read the Change List; comparing all files instead");
                        self.lists.read_anew().await?
                    }
                    Err(error) => return Err(error),
                }
            }
            // A killed run saved no point, so the changes since the list are unknown.
            (None, Some(handled), None) if self.lists.changes.is_some() && !handled.is_without_point => {
                self.lists.read_anew().await?
            }
            (None, Some(handled), None) => {
                // Without a Change List, notifications are the only record of changes until the next Resource List.
                let is_due =
                    |saved: &&CopyState| !self.lists.new_changes.is_empty() || saved.has_notified_retries();
                if let Some(saved) = saved.as_ref().filter(is_due)
                    && let Some(report) =
                        Box::pin(self.incremental(saved, saved.gaps, GapPolicy::Refused)).await?
                {
                    return Ok(report);
                }
                let reached = saved.as_ref().map(|saved| saved.point.reached());
                let in_copy = saved.as_ref().map_or(handled.report.in_copy, |saved| saved.resources);
                return Ok(Report { in_copy, reached, ..handled.report.clone().repeated() });
            }
            // Cannot happen: without an earlier list, none counts as unchanged.
            (None, None, None) => return Ok(Report::default()),
        };
        if self.options.delete && snapshot.collected.file_map.is_empty() {
            return Err(SyncError::Empty { url: self.lists.list.clone() });
        }
        let gaps = copy_state.map(|copy_state| copy_state.gaps).unwrap_or_default();
        let gaps = gaps.with(&snapshot.continuity, now).list_read_at(now, snapshot.collected.names_versions);
        // Of the changes since the last run, a baseline reads only those since the list.
        let telling = match &saved {
            Some(saved) => Box::pin(self.tell_since(&saved.point)).await?,
            None => None,
        };
        let report = Box::pin(self.baseline(snapshot, cache, gaps, telling)).await?;
        self.settle(report).await
    }

    /// The state from which changes are followed: that of earlier runs, or `--since`, which keeps retries and gaps.
    fn starting_state(&self, depth: Depth) -> Result<Option<CopyState>, SyncError> {
        let saved = self.saved.clone();
        let Some(from) = self.options.from.filter(|_| depth == Depth::Changes) else { return Ok(saved) };
        if from > DateTime::now() {
            return Err(SyncError::InFuture { from: from.to_string() });
        }
        let point = Point::at(from);
        Ok(Some(match saved {
            Some(saved) => saved.at(point),
            None => CopyState::new(self.scope.clone(), point, Vec::new()),
        }))
    }
}
