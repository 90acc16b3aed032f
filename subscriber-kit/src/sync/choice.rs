//! A synchronisation, and the choice of its method: incremental while the changes since the last run are known, else a
//! baseline.

use std::sync::Arc;

use resync_core::datetime::DateTime;

use super::report::{Report, VersionsReport};
use super::run::Run;
use super::{Offer, SyncError, SyncOptions, Target, fetch_versions};
use crate::blocking::blocking;
use crate::fetch::Client;
use crate::notification::DatedChange;
use crate::sync::reading::change_reader::Point;
use crate::sync::reading::gaps::GapPolicy;
use crate::sync::reading::snapshot::{LastSeen, Snapshot};
use crate::sync::saved::cache::{FileCache, HandledSnapshot};
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

/// As [`synchronise`], and applies changes from notifications, oldest first, except deletions. The lists may not contain them yet.
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

/// What to do if the Resource List is the one that was handled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice<S> {
    /// Handle the changes since this state.
    Changes(S, GapPolicy),
    /// Compare everything.
    Baseline,
    /// Handle the changes from notifications, if there are any, and repeat the report of the list.
    Notified(Option<S>),
}

/// What the choice depends on of a list that was handled before.
#[derive(Clone, Copy, Debug)]
struct HandledList {
    /// As [`HandledSnapshot::is_without_point`].
    is_without_point: bool,
    /// As [`HandledSnapshot::names_versions`].
    names_versions: bool,
}

/// Chooses for a list that has not changed. `saved` is the state from which changes are followed, and `is_from_elsewhere` says that
/// `--since` gave it.
fn choose<S>(has_changes: bool, saved: Option<S>, is_from_elsewhere: bool, list: HandledList) -> Choice<S> {
    match (has_changes, saved) {
        // The copy is newer than this list, except after --since. If the list names versions, reading it again cannot close a gap, so
        // the gap is tolerated. Otherwise everything is fetched again.
        (true, Some(saved)) if list.names_versions && !is_from_elsewhere => {
            Choice::Changes(saved, GapPolicy::Tolerated)
        }
        (true, Some(saved)) => Choice::Changes(saved, GapPolicy::Refused),
        // A killed run saved no point, so the changes since the list are unknown.
        (true, None) if !list.is_without_point => Choice::Baseline,
        // Without a Change List, notifications are the only record of changes until the next Resource List.
        (_, saved) => Choice::Notified(saved),
    }
}

impl Run<'_> {
    async fn synchronise(&self, depth: Depth) -> Result<Report, SyncError> {
        let now = DateTime::now();
        let saved = self.starting_state(depth)?;
        let saved = saved.as_ref();
        if let Some(report) = Box::pin(self.changes_alone(depth, saved, now)).await? {
            return self.settle(report).await;
        }
        let loading = Arc::clone(&self.folder);
        let cache = blocking(move || FileCache::load(&loading)).await;
        let handled = cache.snapshot_of(&self.scope).filter(|handled| match depth {
            Depth::Full => false,
            Depth::IfOutOfStep => handled.report.is_done(),
            Depth::Changes | Depth::IfListChanged => true,
        });
        let mut snapshot = None;
        if let Some(handled) = handled {
            let last_seen = LastSeen { validators: &handled.validators, digest: &handled.digest };
            snapshot = self.lists.read(Some(last_seen)).await?;
            if snapshot.is_none()
                && let Some(report) = Box::pin(self.with_unchanged_list(handled, saved, now)).await?
            {
                return Ok(report);
            }
        }
        let snapshot = match snapshot {
            Some(snapshot) => snapshot,
            None => self.lists.read_anew().await?,
        };
        Box::pin(self.compare(snapshot, cache, saved, now)).await
    }

    /// Handles the changes since the last run without a look at the Resource List; `None` if the list has to be read.
    async fn changes_alone(
        &self,
        depth: Depth,
        saved: Option<&CopyState>,
        now: DateTime,
    ) -> Result<Option<Report>, SyncError> {
        let Some(saved) = self.followed(saved).filter(|_| depth == Depth::Changes) else { return Ok(None) };
        let policy = if self.options.from.is_some() { GapPolicy::Refused } else { saved.gaps.policy(now) };
        // After a gap, a newer Resource List is tried first, unless it was read a short time ago.
        if saved.unproven.is_some() && policy == GapPolicy::Refused {
            return Ok(None);
        }
        Box::pin(self.incremental(saved, saved.gaps, policy)).await
    }

    /// Brings the copy in step although the list says nothing new; `None` if everything has to be compared.
    async fn with_unchanged_list(
        &self,
        handled: &HandledSnapshot,
        saved: Option<&CopyState>,
        now: DateTime,
    ) -> Result<Option<Report>, SyncError> {
        let HandledSnapshot { is_without_point, names_versions, .. } = *handled;
        let list = HandledList { is_without_point, names_versions };
        match choose(self.lists.changes.is_some(), saved, self.options.from.is_some(), list) {
            Choice::Changes(saved, policy) => {
                let gaps = saved.gaps.list_read_at(now, names_versions);
                match Box::pin(self.incremental(saved, gaps, policy)).await {
                    Ok(Some(report)) => self.settle(report).await.map(Some),
                    Err(error) if error.is_about_a_document() => {
                        tracing::warn!(%error, "cannot read the Change List; comparing all files instead");
                        Ok(None)
                    }
                    other => other,
                }
            }
            Choice::Baseline => Ok(None),
            Choice::Notified(saved) => Box::pin(self.notified_alone(handled, saved)).await.map(Some),
        }
    }

    /// Handles what only notifications named; if that is nothing, reports what the list came to.
    async fn notified_alone(
        &self,
        handled: &HandledSnapshot,
        saved: Option<&CopyState>,
    ) -> Result<Report, SyncError> {
        let is_due = |saved: &&CopyState| !self.lists.new_changes.is_empty() || saved.has_notified_retries();
        if let Some(saved) = saved.filter(is_due)
            && let Some(report) = Box::pin(self.incremental(saved, saved.gaps, GapPolicy::Refused)).await?
        {
            return Ok(report);
        }
        let reached = saved.map(|saved| saved.point.reached());
        let in_copy = saved.map_or(handled.report.in_copy, |saved| saved.resources);
        Ok(Report { in_copy, reached, ..handled.report.clone().repeated() })
    }

    /// Compares every file with the list.
    async fn compare(
        &self,
        snapshot: Snapshot,
        cache: FileCache,
        saved: Option<&CopyState>,
        now: DateTime,
    ) -> Result<Report, SyncError> {
        if self.options.delete && snapshot.collected.file_map.is_empty() {
            return Err(SyncError::Empty { url: self.lists.list.clone() });
        }
        let gaps = self.followed(saved).map(|saved| saved.gaps).unwrap_or_default();
        let gaps = gaps.with(&snapshot.continuity, now).list_read_at(now, snapshot.collected.names_versions);
        // Of the changes since the last run, a baseline reads only those since the list.
        let telling = match saved {
            Some(saved) => Box::pin(self.tell_since(&saved.point)).await?,
            None => None,
        };
        let report = Box::pin(self.baseline(snapshot, cache, gaps, telling)).await?;
        self.settle(report).await
    }

    /// The state, if the Source has a Change List in which its changes can be followed.
    fn followed<'s>(&self, saved: Option<&'s CopyState>) -> Option<&'s CopyState> {
        saved.filter(|_| self.lists.changes.is_some())
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

#[cfg(test)]
mod tests {
    use super::Choice::{Baseline, Changes, Notified};
    use super::GapPolicy::{Refused, Tolerated};
    use super::*;

    /// By digits, of which `?` is either: whether there is a Change List, whether there is a saved state, whether `--since` gave it, whether
    /// the list is without a point, and whether it names versions.
    const CHOICES: [(&str, Choice<()>); 7] = [
        ("00???", Notified(None)),
        ("01???", Notified(Some(()))),
        ("10?0?", Baseline),
        ("10?1?", Notified(None)),
        ("110?0", Changes((), Refused)),
        ("110?1", Changes((), Tolerated)),
        ("111??", Changes((), Refused)),
    ];

    #[test]
    fn whatever_is_known_of_an_unchanged_list_exactly_one_choice_follows() {
        for number in 0..32 {
            let facts = format!("{number:05b}");
            let is_of = |pattern: &str| {
                pattern.bytes().zip(facts.bytes()).all(|(wanted, fact)| wanted == b'?' || wanted == fact)
            };
            let expected: Vec<_> = CHOICES.iter().filter(|(pattern, _)| is_of(pattern)).collect();
            let [has_changes, is_saved, is_from_elsewhere, is_without_point, names_versions] =
                [0, 1, 2, 3, 4].map(|at| facts.as_bytes()[at] == b'1');
            let list = HandledList { is_without_point, names_versions };
            let chosen = choose(has_changes, is_saved.then_some(()), is_from_elsewhere, list);
            assert_eq!(expected.iter().map(|(_, choice)| *choice).collect::<Vec<_>>(), [chosen], "{facts}");
        }
    }
}
