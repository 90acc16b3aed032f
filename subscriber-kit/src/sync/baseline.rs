//! A synchronisation: a baseline, for which the whole list is read, what differs is fetched, and what is no longer
//! listed goes; or an incremental one, which deals with what changed since the last.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::document::Entry;
use url::Url;

use super::changes::{Changes, GapPolicy, Point, Reached};
use super::collector::{Collected, Collector};
use super::copy_state::{CopyState, MAX_RETRIES, Retry};
use super::download::blocking;
use super::dump::{Dumps, Filled, fill, is_empty};
use super::file_map::FileMap;
use super::filter::Filter;
use super::folder::{CopyFolder, Staging};
use super::gaps::GapHistory;
use super::lists::{Consistency, Counted, LastSeen, Lists, Reading, Snapshot};
use super::memory::{Memory, More, Scope, Settled};
use super::path::{uri_or_path, url_of};
use super::plan::Line;
use super::report::{Method, Report};
use super::run::{Run, RunOutcome};
use super::{Authority, ChangesFrom, Offer, ResourceError, SyncError, SyncOptions, Target, delete};
use crate::fetch::Client;

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Deal with the changes since the last run (RS-191); without a Change List, or a run to build on, as
    /// [`Depth::IfListChanged`].
    Changes,
    /// Do nothing if the list is still the one that was dealt with as far as was possible: what failed then
    /// and needs a new list, such as a 404, is not tried again where the Source tells of no changes. Changes since the
    /// list are dealt with all the same.
    IfListChanged,
    /// Do nothing if the list is still the one that the copy was in step with (RS-096).
    IfOutOfStep,
    /// Compare every file.
    Full,
}

/// Baseline synchronisation (RS-190): brings the directory in step with the Resource List or index, or with the Resource
/// Dump where that is all there is, and with what changed since that was made (RS-196).
///
/// Only what differs is fetched. Each file is replaced in one step, once its length and hash are right; on
/// any failure the old file stays. With [`SyncOptions::delete`], files that are not listed are removed, but
/// only if the list was read to its end, is of one time and every entry has a place here; else the report
/// says why nothing was deleted (RS-201).
///
/// # Errors
/// [`SyncError`] when there is no complete list, or another run works on the copy; single resources that fail
/// are in the [`Report`].
pub async fn baseline(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
) -> Result<Report, SyncError> {
    synchronise(client, offer, target, options, Depth::Full).await
}

/// As [`baseline`], and as closely as `depth` says.
///
/// # Errors
/// As for [`baseline`].
pub async fn synchronise(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
    depth: Depth,
) -> Result<Report, SyncError> {
    synchronise_with_notified(client, offer, target, options, depth, &[]).await
}

/// The same, with the changes that notifications told of, oldest first: the lists may not have them yet.
pub(crate) async fn synchronise_with_notified(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
    depth: Depth,
    notified: &[(DateTime, Entry)],
) -> Result<Report, SyncError> {
    let max = options.max_run_time;
    let run = async {
        let work = Work::open(client, offer, target, options, notified).await?;
        work.run(depth).await
    };
    tokio::time::timeout(max, Box::pin(run)).await.unwrap_or(Err(SyncError::TooLong { max }))
}

impl Scope {
    fn of(offer: &Offer, list: &Url, target: &Target, options: &SyncOptions) -> Self {
        let SyncOptions { filter, prefer, authority, .. } = options;
        let others = if let Authority::Origins(others) = authority { others.as_slice() } else { &[] };
        let is_all = *filter == Filter::default() && prefer.is_empty() && others.is_empty();
        let by_list = offer.changes(ChangesFrom::List);
        Self {
            list: list.to_string(),
            base: target.base.to_string(),
            delete: options.delete,
            any_origin: *authority == Authority::Any,
            filter: if is_all { String::new() } else { format!("{filter:?} {prefer:?} {others:?}") },
            by_dump: offer.changes(options.changes) != by_list,
        }
    }
}

/// One run on one copy, which is locked.
pub(super) struct Work<'s> {
    pub(super) client: &'s Client,
    pub(super) target: &'s Target,
    pub(super) options: &'s SyncOptions,
    pub(super) lists: Lists<'s>,
    dump: Option<&'s Url>,
    scope: Scope,
    pub(super) folder: Arc<CopyFolder>,
    /// What earlier runs left.
    left: Option<CopyState>,
}

impl<'s> Work<'s> {
    /// Takes the copy.
    async fn open(
        client: &'s Client,
        offer: &'s Offer,
        target: &'s Target,
        options: &'s SyncOptions,
        notified: &[(DateTime, Entry)],
    ) -> Result<Self, SyncError> {
        let list = offer.base(options.baseline).ok_or(SyncError::NothingOffered)?;
        let changes = offer.changes(options.changes);
        let scope = Scope::of(offer, list, target, options);
        let opening = target.clone();
        let open = if options.dry_run { CopyFolder::inspect } else { CopyFolder::open };
        let folder = Arc::new(blocking(move || open(&opening)).await?);
        let left = copy_state(&folder, &scope).await;
        let mut remembered = left.as_ref().map(|left| left.notified.clone()).unwrap_or_default();
        let new_changes = remembered.take(notified);
        let (staging, bytes) = (Staging::Copy(Arc::clone(&folder)), AtomicU64::new(0));
        let counted = Counted::default();
        let base = &target.base;
        let lists = Lists {
            client,
            list,
            changes,
            base,
            options,
            notified: remembered,
            new_changes,
            staging,
            bytes,
            counted,
        };
        // The dump that is the list itself has nothing to add to it.
        let dump = offer.resource_dump.as_ref().filter(|dump| *dump != list);
        Ok(Self { client, target, options, lists, dump, scope, folder, left })
    }

    /// Where the copy stands in the Source's changes, by what is told of it or else by what earlier runs left. What those
    /// owe, and what they doubt, stays.
    fn beginning(&self, depth: Depth) -> Result<Option<CopyState>, SyncError> {
        let left = self.left.clone();
        let Some(from) = self.options.from.filter(|_| depth == Depth::Changes) else { return Ok(left) };
        if from > DateTime::now() {
            return Err(SyncError::InFuture { from: from.to_string() });
        }
        let point = Point::at(from);
        Ok(Some(match left {
            Some(left) => left.at(point),
            None => CopyState::new(self.scope.clone(), point, Vec::new()),
        }))
    }
}

/// What runs of these settings left so far.
async fn copy_state(folder: &Arc<CopyFolder>, scope: &Scope) -> Option<CopyState> {
    let (folder, scope) = (Arc::clone(folder), scope.clone());
    blocking(move || CopyState::load(&folder, &scope)).await
}

impl Work<'_> {
    async fn run(&self, depth: Depth) -> Result<Report, SyncError> {
        let left = self.beginning(depth)?;
        let copy_state = left.as_ref().filter(|_| self.lists.changes.is_some());
        let now = DateTime::now();
        let is_from_elsewhere = self.options.from.is_some();
        let gap = match copy_state {
            Some(copy_state) if !is_from_elsewhere => copy_state.gaps.policy(now),
            _ => GapPolicy::Refused,
        };
        // Where changes are missing, a newer list has the first word, unless it rests.
        if let (Depth::Changes, Some(copy_state)) = (depth, copy_state)
            && (copy_state.unproven.is_none() || gap == GapPolicy::Tolerated)
            && let Some(report) = Box::pin(self.incremental(copy_state, copy_state.gaps, gap)).await?
        {
            return self.settle(report).await;
        }
        let loading = Arc::clone(&self.folder);
        let memory = blocking(move || Memory::load(&loading)).await;
        let enough = memory.settled_for(&self.scope).filter(|settled| match depth {
            Depth::Full => false,
            Depth::IfOutOfStep => settled.report.is_done(),
            Depth::Changes | Depth::IfListChanged => true,
        });
        let seen =
            enough.map(|settled| LastSeen { validators: &settled.validators, digest: &settled.digest });
        let snapshot = match (self.lists.read(seen).await?, enough, copy_state) {
            (Reading::New(snapshot), ..) => *snapshot,
            (Reading::Unchanged, _, Some(copy_state)) => {
                // The point is later than the list; one from elsewhere may not be. What is missing since, the list does not
                // tell if it says which versions it is of; else all that it names is fetched.
                let names_versions = enough.is_some_and(|settled| settled.names_versions);
                let gap = if names_versions && !is_from_elsewhere {
                    GapPolicy::Tolerated
                } else {
                    GapPolicy::Refused
                };
                let gaps = copy_state.gaps.list_read_at(now, names_versions);
                match Box::pin(self.incremental(copy_state, gaps, gap)).await {
                    Ok(Some(report)) => return self.settle(report).await,
                    Ok(None) => self.lists.read_anew().await?,
                    Err(error) if error.is_about_a_document() => {
                        tracing::warn!(%error, "changes cannot be read: the copy is synchronised as a whole");
                        self.lists.read_anew().await?
                    }
                    Err(error) => return Err(error),
                }
            }
            // A run that was killed left no point: it is not known what changed since the list.
            (Reading::Unchanged, Some(settled), None)
                if self.lists.changes.is_some() && !settled.is_without_point =>
            {
                self.lists.read_anew().await?
            }
            (Reading::Unchanged, Some(settled), None) => {
                // Where nothing else tells of changes, the notifications do until the next list.
                let is_due =
                    |left: &&CopyState| !self.lists.new_changes.is_empty() || left.has_notified_retries();
                if let Some(left) = left.as_ref().filter(is_due)
                    && let Some(report) =
                        Box::pin(self.incremental(left, left.gaps, GapPolicy::Refused)).await?
                {
                    return Ok(report);
                }
                let reached = left.as_ref().map(|left| left.point.reached());
                return Ok(Report { reached, ..settled.report.clone().repeated() });
            }
            // Only what was seen can be known.
            (Reading::Unchanged, None, None) => return Ok(Report::default()),
        };
        if self.options.delete && snapshot.file_map.is_empty() {
            return Err(SyncError::Empty { url: self.lists.list.clone() });
        }
        let gaps = copy_state.map(|copy_state| copy_state.gaps).unwrap_or_default();
        let gaps = gaps
            .with(&snapshot.new_gaps, &snapshot.contiguous_at, now)
            .list_read_at(now, snapshot.names_versions);
        let report = Box::pin(self.baseline(snapshot, memory, gaps)).await?;
        self.settle(report).await
    }

    async fn baseline(
        &self,
        snapshot: Snapshot,
        memory: Memory,
        gaps: GapHistory,
    ) -> Result<Report, SyncError> {
        let Snapshot { file_map, plan, mut report, packages, bytes, consistency, point, .. } = snapshot;
        let Snapshot { validators, digest, names_versions, .. } = snapshot;
        let deletion_skipped = deletion_obstacle(&consistency, report.failed, self.options);
        let may_remove = self.options.delete && deletion_skipped.is_none();
        let mut run = Run::new(self, Arc::clone(&file_map), memory, may_remove);
        run.filled = self.fill(&run, file_map.wanted(), bytes).await?;
        Box::pin(run.unpack(&plan, packages)).await?;
        let mut learnt = Memory::default();
        let mut run_outcome = RunOutcome::default();
        Box::pin(run.resources(&plan, &mut report, &mut run_outcome, &mut learnt)).await?;
        if may_remove {
            self.unlisted(file_map, &mut report, &mut run_outcome).await;
        }
        run.account(&mut report);
        report.deletion_skipped = deletion_skipped;
        report.retry_may_help |= matches!(consistency, Consistency::Mixed(_));
        // An index that does not say when it is true stays the same while its lists change; what changed before the point
        // and is told nowhere, the same list will not tell either.
        let is_settled = match consistency {
            Consistency::Consistent => true,
            Consistency::Gap(_) => point.is_some(),
            Consistency::Mixed(_) | Consistency::Undated(_) => false,
        };
        report.unproven = consistency.reason();
        report.reached = point.as_ref().map(Point::reached);
        report.retry_in = self.retry_in(&run_outcome);
        report.gaps = Box::new(gaps);
        if !report.retry_may_help && is_settled {
            let (scope, report, is_without_point) = (self.scope.clone(), report.clone(), point.is_none());
            learnt.settled =
                Some(Settled { scope, validators, digest, report, is_without_point, names_versions });
        }
        let copy_state = point.and_then(|point| run_outcome.copy_state_after_baseline(&self.scope, point));
        let copy_state = copy_state.map(|copy_state| copy_state.with_gaps(report.unproven.clone(), gaps));
        report.is_remembered = copy_state.is_some();
        self.keep(run_outcome.changed, Some(learnt), copy_state, self.left.as_ref()).await?;
        Ok(report)
    }

    /// Removes what is not listed.
    async fn unlisted(&self, file_map: Arc<FileMap>, report: &mut Report, run_outcome: &mut RunOutcome) {
        let (target, filter) = (self.target.clone(), self.options.filter.clone());
        let (really, progress) = (!self.options.dry_run, self.options.progress.clone());
        let found = blocking(move || delete::unlisted(&target, &file_map, &filter, really, &progress)).await;
        report.deleted = found.deleted;
        for (path, error) in found.failures {
            let error = ResourceError::Remove(error);
            let notified = uri_or_path(&path, &self.target.base);
            if url_of(&path, &self.target.base).is_some() {
                let line =
                    Line { loc: notified.clone(), url: notified.clone(), is_gone: true, ..Line::default() };
                run_outcome.failed(&line, &error);
            }
            report.not_removed(&self.options.progress, &notified, &error);
        }
        report.not_deleted = found.failed;
    }

    /// Fills a copy that has no files yet from a Resource Dump, if that is the cheaper way (RS-190).
    async fn fill(&self, run: &Run<'_>, resources: u64, bytes: u64) -> Result<Filled, SyncError> {
        let Some(root) = self.dump.filter(|_| !self.options.dry_run) else { return Ok(Filled::new()) };
        let directory = self.target.directory.clone();
        if !blocking(move || is_empty(&directory)).await? {
            return Ok(Filled::new());
        }
        let dumps = Dumps { lists: &self.lists, root };
        match dumps.cheaper_than(resources, bytes).await {
            Some(dump) => Ok(fill(dump, &self.lists, &run.placing).await),
            None => Ok(Filled::new()),
        }
    }

    /// Deals with what changed since the last run, of which these `gaps` are known now; `None` where changes were lost and
    /// that is not tolerated (RS-197). Without lists of changes that is what notifications told of.
    async fn incremental(
        &self,
        copy_state: &CopyState,
        gaps: GapHistory,
        gap: GapPolicy,
    ) -> Result<Option<Report>, SyncError> {
        let mut collector = Collector::new(&self.lists, self.lists.staging.scratch()?);
        let now = DateTime::now();
        let (resting, due): (Vec<_>, Vec<_>) =
            copy_state.retries.iter().partition(|one| one.is_paused_at(now));
        let mut retry_lines = Vec::new();
        for retry in due {
            retry_lines.extend(collector.retry(&retry.line)?.map(|number| (retry, number)));
        }
        let reached = match self.lists.changes {
            None => Ok(Reached::nothing(collector, &copy_state.point)),
            Some(root) => {
                let changes = Changes { lists: &self.lists, root, gap };
                Box::pin(changes.since(collector, &copy_state.point)).await
            }
        };
        let reached = match reached {
            Ok(reached) => reached,
            Err(error @ (SyncError::LostChanges { .. } | SyncError::PackageFormat { .. })) => {
                tracing::warn!(%error, "changes were lost: the Resource List is asked for");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Reached { collector, point, new_gaps, contiguous_at, gap } = reached;
        if let Some(why) = &gap {
            tracing::warn!(why, "changes may be missing: a newer list will have them");
        }
        let collector = Lists::take_notified(collector, &self.lists.new_changes, &point)?;
        let (mut report, mut run_outcome) = self.deal(collector, &retry_lines, &resting).await?;
        report.unproven = gap.or_else(|| copy_state.unproven.clone());
        report.reached = Some(point.reached());
        report.retry_in = self.retry_in(&run_outcome);
        report.gaps = Box::new(gaps.with(&new_gaps, &contiguous_at, now));
        report.deletion_skipped = report.unproven.clone().filter(|_| self.options.delete);
        let reason = report.unproven.clone();
        let next =
            run_outcome.copy_state(&self.scope, point).map(|next| next.with_gaps(reason, *report.gaps));
        report.is_remembered = next.is_some();
        self.keep(run_outcome.changed, None, next, Some(copy_state)).await?;
        Ok(Some(report))
    }

    /// Deals with the changes of a collector, of which lines with these numbers are tried `retry_lines`, and tells of what rests.
    async fn deal(
        &self,
        collector: Collector,
        retry_lines: &[(&Retry, u32)],
        resting: &[&Retry],
    ) -> Result<(Report, RunOutcome), SyncError> {
        let Collected { file_map, plan, mut report, packages, .. } =
            blocking(move || collector.end()).await?;
        report.method = Method::Incremental;
        // Of what changed since, that is the last word.
        let place = |retry: &Retry| retry.line.place(&self.target.base);
        let is_no_news = |(retry, number): &&(&Retry, u32)| {
            place(retry).is_some_and(|place| file_map.is_last_word(&place, *number))
        };
        let mut run_outcome =
            RunOutcome::after(retry_lines.iter().filter(is_no_news).map(|(retry, _)| *retry));
        for retry in resting {
            if !place(retry).is_some_and(|place| file_map.knows(&place)) {
                report.postponed(&self.options.progress, &retry.line.loc, &retry.cause);
                run_outcome.postpone(retry);
            }
        }
        let mut run = Run::new(self, Arc::new(file_map), Memory::default(), false);
        // First, since a folder may stand where a file belongs now, or the other way round.
        run.deletions(&plan, &mut report, &mut run_outcome).await?;
        Box::pin(run.unpack(&plan, packages)).await?;
        let mut learnt = More::new(&self.folder);
        Box::pin(run.resources(&plan, &mut report, &mut run_outcome, &mut learnt)).await?;
        run.account(&mut report);
        Ok((report, run_outcome))
    }

    /// What came and was not what was told may be newer than that: the changes are asked for once more before it counts as
    /// a failure (RS-199).
    async fn settle(&self, report: Report) -> Result<Report, SyncError> {
        // With more failures than are remembered it is not known which they are.
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
                tracing::warn!(%error, "what changed meanwhile cannot be found out: the next run does");
                report
            }
        })
    }

    /// After how long what is not there is to be asked for again, by a run over changes: where no list tells of them, that
    /// asks for what notifications told of.
    fn retry_in(&self, run_outcome: &RunOutcome) -> Option<Duration> {
        run_outcome.retry_in(|line| self.lists.changes.is_some() || self.lists.notified.knows(&line.loc))
    }

    /// Makes durable what was done, and then what is remembered of it: where the copy stands `next`, or else as `before`, and
    /// what notifications told of.
    async fn keep(
        &self,
        changed: HashSet<PathBuf>,
        learnt: Option<Memory>,
        next: Option<CopyState>,
        before: Option<&CopyState>,
    ) -> Result<(), SyncError> {
        if self.options.dry_run {
            return Ok(());
        }
        let copy_state =
            next.or_else(|| before.cloned()).map(|next| next.with_notified(&self.lists.notified));
        let copy_state = copy_state.filter(|copy_state| Some(copy_state) != before);
        let has_new_changes = !self.lists.new_changes.is_empty();
        let folder = Arc::clone(&self.folder);
        blocking(move || {
            // Of the renames; once per folder is enough.
            folder.sync_folders(&changed)?;
            // After the files: what is remembered of them must not outlive them. That a list was dealt with counts only with
            // the point from which its changes go on.
            let point = copy_state.map_or(Ok(()), |one| one.save(&folder));
            match point.and_then(|()| learnt.map_or(Ok(()), |learnt| learnt.save(&folder))) {
                Ok(()) => Ok(()),
                // Nobody tells it again once this run is a success.
                Err(error) if has_new_changes => Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "what is known of the copy is not kept: the next run does more than it needs to");
                    Ok(())
                }
            }
        })
        .await
    }
}

/// Why nothing is deleted, if so. An entry without a place may mean any file there is.
fn deletion_obstacle(consistency: &Consistency, failed: u64, options: &SyncOptions) -> Option<String> {
    if !options.delete {
        return None;
    }
    match (consistency, failed) {
        (Consistency::Mixed(why), _) => Some(format!("the Source is making a new snapshot: {why}")),
        (Consistency::Undated(why) | Consistency::Gap(why), _) => Some(why.clone()),
        (Consistency::Consistent, 0) => None,
        (Consistency::Consistent, count) => Some(format!(
            "{count} of the listed resources have no place here, and any file may be one of them"
        )),
    }
}
