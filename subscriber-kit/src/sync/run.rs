//! One run over the resources of a plan: each is compared, and fetched where it differs; what came is put in place together.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_core::datetime::DateTime;
use url::Url;

use super::batch::{self, Ready, Written, put_all};
use super::changes::Point;
use super::copy_state::{CopyState, MAX_RETRIES, Retry};
use super::download::{Transfer, blocking};
use super::dump::Filled;
use super::file_map::FileMap;
use super::lists::Lists;
use super::local::{self, Local};
use super::memory::{KnownFile, Learn, Memory, Scope};
use super::packages::Packages;
use super::path::relative_path;
use super::plan::{Line, Plan, Planned};
use super::put::Placing;
use super::report::{Outcome, Report};
use super::work::Work;
use super::{Authority, ResourceError, SyncError, SyncOptions, Target, delete};

/// What the work on every resource of one run shares.
pub(super) struct Run<'s> {
    pub(super) target: &'s Target,
    pub(super) options: &'s SyncOptions,
    pub(super) lists: &'s Lists<'s>,
    pub(super) home: url::Origin,
    pub(super) placing: Arc<Placing>,
    known: Memory,
    /// What a dump brought, before the list decides.
    pub(super) filled: Filled,
    /// What became of the lines whose bitstreams lie in packages.
    pub(super) unpacked: Mutex<HashMap<u32, Result<Synced, ResourceError>>>,
    pub(super) packages: tokio::sync::Mutex<Packages>,
    pub(super) patched: AtomicU64,
}

/// What the work on all of them left.
#[derive(Default)]
pub(super) struct RunOutcome {
    /// The folders that were changed.
    pub(super) changed: HashSet<PathBuf>,
    /// What failed and is to be tried again, as much as is remembered.
    retries: Vec<Retry>,
    /// How often runs before this one asked in vain for what they left undone and nothing new is told of, by its URI.
    times_missing: HashMap<String, u32>,
    /// Whether more failed than that.
    has_overflowed: bool,
    /// Whether some of that may mend by itself.
    lost_retryable: bool,
}

impl RunOutcome {
    /// For a run that tries `again` what others left undone.
    pub(super) fn after<'u>(again: impl Iterator<Item = &'u Retry>) -> Self {
        Self {
            times_missing: again.map(|retry| (retry.line.loc.clone(), retry.times_missing)).collect(),
            ..Self::default()
        }
    }

    pub(super) fn failed(&mut self, line: &Line, error: &ResourceError) {
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

    /// What this run lets rest stays undone.
    pub(super) fn postpone(&mut self, retry: &Retry) {
        self.retries.push(retry.clone());
    }

    /// After how long a later run is to ask again for what is not there, of what it `is_requested` for.
    pub(super) fn retry_in(&self, is_requested: impl Fn(&Line) -> bool) -> Option<Duration> {
        let now = DateTime::now();
        let not_there =
            self.retries.iter().filter(|retry| retry.times_missing > 0 && is_requested(&retry.line));
        not_there.map(|retry| retry.pause_at(now)).min()
    }

    /// Where the copy stands after a run over changes; `None` if too much failed to be remembered, so that they must be
    /// read again.
    pub(super) fn copy_state(&mut self, scope: &Scope, point: Point) -> Option<CopyState> {
        let retries = std::mem::take(&mut self.retries);
        (!self.has_overflowed).then(|| CopyState::new(scope.clone(), point, retries))
    }

    /// The same after a baseline. Of what only a new list mends, as much is remembered as there is room for, since that
    /// list leads to all of it.
    pub(super) fn copy_state_after_baseline(&mut self, scope: &Scope, point: Point) -> Option<CopyState> {
        self.has_overflowed = self.lost_retryable;
        self.copy_state(scope, point)
    }
}

struct Done {
    line: Line,
    /// `None` for a path that could not be found again.
    relative: Option<PathBuf>,
    /// `None` where another line is the last word.
    result: Option<Result<Synced, ResourceError>>,
}

/// How far one line is.
enum Step {
    Done(Done),
    New(Line, New),
}

/// What is to be put in place next.
#[derive(Default)]
struct Waiting {
    files: Vec<(Line, New)>,
    /// How many bytes of memory they take.
    held: usize,
}

impl Waiting {
    fn push(&mut self, line: Line, new: New) {
        self.held += new.ready.held();
        self.files.push((line, new));
    }

    /// Each batch is a sync more, so that a second one at the same time must be worth it.
    fn are_worth_another(&self) -> bool {
        self.files.len() >= batch::MOST / 2 || self.held >= batch::MOST_BYTES / 2
    }

    /// Whether there is room for one more than those that `come`, which hold so many bytes at most.
    fn have_room(&self, come: usize, held: usize) -> bool {
        self.files.len() + come < batch::MOST && self.held + held < batch::MOST_BYTES
    }
}

/// The new file of a resource, and what was there before.
pub(super) struct New {
    pub(super) ready: Ready,
    pub(super) comparison: local::Comparison,
    pub(super) is_patched: bool,
}

/// What became of a resource that was looked at.
enum Found {
    Done(Synced),
    New(New),
}

/// What bringing one file in step brought.
pub(super) struct Synced {
    pub(super) outcome: Outcome,
    pub(super) known: Option<KnownFile>,
    pub(super) hashed: u64,
}

impl<'s> Run<'s> {
    pub(super) fn new(work: &'s Work<'s>, file_map: Arc<FileMap>, known: Memory, may_remove: bool) -> Self {
        let Work { target, options, .. } = *work;
        let placing = Placing {
            directory: target.directory.clone(),
            base: target.base.clone(),
            progress: options.progress.clone(),
            folder: Arc::clone(&work.folder),
            file_map,
            may_remove,
            removed: AtomicU64::new(0),
            one_at_a_time: Mutex::new(()),
            pretended: Mutex::default(),
        };
        Self {
            target,
            options,
            lists: &work.lists,
            home: work.lists.list.origin(),
            placing: Arc::new(placing),
            known,
            filled: Filled::new(),
            unpacked: Mutex::default(),
            packages: tokio::sync::Mutex::default(),
            patched: AtomicU64::new(0),
        }
    }

    pub(super) fn account(&self, report: &mut Report) {
        report.deleted += self.placing.removed.load(Ordering::Relaxed);
        report.bytes_fetched = self.lists.bytes.load(Ordering::Relaxed);
        report.patched = self.patched.load(Ordering::Relaxed);
    }

    /// Removes the files of what was deleted, if that is asked for.
    pub(super) async fn deletions(
        &self,
        plan: &Plan,
        report: &mut Report,
        run_outcome: &mut RunOutcome,
    ) -> Result<(), SyncError> {
        let mut steps = plan.begin(true)?;
        while let Some(Planned { number, url, line, .. }) = steps.next().await? {
            let Ok(relative) = relative_path(&line.loc, &url, &self.target.base) else { continue };
            if !self.placing.file_map.is_last_word(&relative, number) {
                continue;
            }
            let (target, path) = (self.target.clone(), relative.clone());
            let really = self.options.delete && !self.options.dry_run;
            let was_there = blocking(move || delete::one(&target, &path, really)).await;
            match (was_there, self.options.delete) {
                (Ok(true), true) => {
                    report.count(&self.options.progress, &line.loc, Ok(Outcome::Deleted));
                    run_outcome.changed.extend(folders_above(&self.target.directory, &relative));
                }
                (Ok(true), false) => report.count(&self.options.progress, &line.loc, Ok(Outcome::Kept)),
                (Ok(false), _) => {}
                (Err(error), _) => {
                    let error = ResourceError::Remove(error);
                    report.not_removed(&self.options.progress, &line.loc, &error);
                    run_outcome.failed(&line, &error);
                }
            }
        }
        Ok(())
    }

    /// Brings every resource in step.
    pub(super) async fn resources(
        &self,
        plan: &Plan,
        report: &mut Report,
        run_outcome: &mut RunOutcome,
        learnt: &mut dyn Learn,
    ) -> Result<(), SyncError> {
        let (mut work, mut placing) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut waiting = Waiting::default();
        let (looking, base) = (Arc::clone(&self.placing), self.target.base.clone());
        let mut missing = None;
        let mut steps = plan.begin_with(false, move |planned| looking.lacks(planned, &base, &mut missing))?;
        // How many bytes what is under way may take in memory.
        let (mut planning, mut coming) = (true, 0);
        self.options.progress.begin(self.placing.file_map.wanted());
        loop {
            // What comes while one batch is put in place is the next; while one is made durable another is written.
            let is_time = match placing.len() {
                0 => !waiting.files.is_empty(),
                1 => waiting.are_worth_another(),
                _ => false,
            };
            if is_time {
                placing.push(self.put(std::mem::take(&mut waiting).files));
            }
            let has_room = work.len() < self.options.parallel.max(1) && waiting.have_room(work.len(), coming);
            tokio::select! {
                planned = steps.next(), if planning && has_room => match planned? {
                    Some(planned) => {
                        let most = batch::most_held(&planned.line.facts);
                        coming += most;
                        work.push(async move { (most, self.resource(planned).await) });
                    }
                    None => planning = false,
                },
                Some((most, step)) = work.next(), if !work.is_empty() => {
                    coming -= most;
                    match step {
                        Step::Done(done) => self.note(done, run_outcome, report, learnt),
                        Step::New(line, new) => waiting.push(line, new),
                    }
                },
                Some(put) = placing.next(), if !placing.is_empty() => for done in put {
                    self.note(done, run_outcome, report, learnt);
                },
                else => return Ok(()),
            }
        }
    }

    async fn put(&self, batch: Vec<(Line, New)>) -> Vec<Done> {
        let (lines, batch): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let paths: Vec<PathBuf> = batch.iter().map(|new| new.ready.relative.clone()).collect();
        let put = self.put_new(batch).await;
        let done = |((line, relative), result)| Done { line, relative: Some(relative), result: Some(result) };
        lines.into_iter().zip(paths).zip(put).map(done).collect()
    }

    /// Puts new files in place; gives what that brought for each, in their order.
    pub(super) async fn put_new(&self, batch: Vec<New>) -> Vec<Result<Synced, ResourceError>> {
        let parts =
            batch.into_iter().map(|New { ready, comparison, is_patched }| (ready, (comparison, is_patched)));
        let (ready, before): (Vec<_>, Vec<_>) = parts.unzip();
        let placing = Arc::clone(&self.placing);
        let put = blocking(move || put_all(&placing, ready)).await;
        let brought = |(put, (comparison, is_patched)): (Result<Written, _>, (local::Comparison, bool))| {
            self.patched.fetch_add(u64::from(is_patched && put.is_ok()), Ordering::Relaxed);
            put.map(|written| Synced::of(written, &comparison))
        };
        put.into_iter().zip(before).map(brought).collect()
    }

    fn note(&self, done: Done, run_outcome: &mut RunOutcome, report: &mut Report, learnt: &mut dyn Learn) {
        let Done { line, relative, result } = done;
        let Some(result) = result else { return };
        self.options.progress.one_done();
        if let Err(error) = &result {
            run_outcome.failed(&line, error);
        }
        let outcome = result.map(|Synced { outcome, known, hashed }| {
            let is_filled = relative.as_ref().is_some_and(|relative| self.filled.contains_key(relative));
            let outcome = if is_filled { Outcome::Created } else { outcome };
            report.bytes_hashed += hashed;
            if let Some(relative) = relative {
                if outcome != Outcome::Unchanged {
                    run_outcome.changed.extend(folders_above(&self.target.directory, &relative));
                }
                if let Some(known) = known {
                    learnt.learn(&relative, known, outcome != Outcome::Unchanged);
                }
            }
            outcome
        });
        report.count(&self.options.progress, &line.loc, outcome);
    }

    async fn resource(&self, planned: Planned) -> Step {
        let (relative, result) = match relative_path(&planned.line.loc, &planned.url, &self.target.base) {
            Ok(relative) if !self.placing.file_map.is_last_word(&relative, planned.number) => (None, None),
            Ok(relative) => match self.bring_in_step(&planned, &relative).await {
                Ok(Found::New(new)) => return Step::New(planned.line, new),
                Ok(Found::Done(brought)) => (Some(relative), Some(Ok(brought))),
                Err(error) => (Some(relative), Some(Err(error))),
            },
            Err(error) => (None, Some(Err(error.into()))),
        };
        Step::Done(Done { line: planned.line, relative, result })
    }

    async fn bring_in_step(&self, planned: &Planned, relative: &Path) -> Result<Found, ResourceError> {
        let unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner).remove(&planned.number);
        if let Some(unpacked) = unpacked {
            return unpacked.map(Found::Done);
        }
        let comparison = if planned.is_missing {
            local::Comparison::of(Local::Missing)
        } else {
            self.compare(planned, relative).await?
        };
        if comparison.local == Local::Same {
            let local::Comparison { known, hashed, .. } = comparison;
            return Ok(Found::Done(Synced { outcome: Outcome::Unchanged, known, hashed }));
        }
        if self.options.dry_run {
            let outcome =
                if comparison.local == Local::Missing { Outcome::Created } else { Outcome::Updated };
            if outcome == Outcome::Created && !planned.is_missing {
                let (placing, relative) = (Arc::clone(&self.placing), relative.to_owned());
                blocking(move || placing.pretend(&relative)).await?;
            }
            return Ok(Found::Done(Synced { outcome, known: None, hashed: comparison.hashed }));
        }
        if let Some(received) = self.patch(&planned.line, relative, comparison.local).await {
            let ready = Ready::new(received, &planned.line.facts, relative);
            return Ok(Found::New(New { ready, comparison, is_patched: true }));
        }
        let line = &planned.line;
        let alternate = line.alternate.as_deref().and_then(|place| Url::parse(place).ok());
        let (mirrors, via) = (self.elsewhere(line, &line.mirrors), self.elsewhere(line, line.via.as_slice()));
        let url = alternate.as_ref().unwrap_or(&planned.url);
        let sent = comparison.known.as_ref().and_then(|known| known.sent.clone());
        let sent = sent.filter(|sent| comparison.local == Local::Unverifiable && sent.url == url.as_str());
        let transfer = Transfer {
            mirrors: &mirrors,
            via: via.first(),
            unless: sent.as_ref().map(|sent| &sent.validators).filter(|_| mirrors.is_empty()),
            ..self.lists.transfer(url, &line.facts)
        };
        let received = match transfer.run().await {
            Err(error) if transfer.unless.is_some() && error.is_unchanged() => {
                let local::Comparison { known, hashed, .. } = comparison;
                return Ok(Found::Done(Synced { outcome: Outcome::Unchanged, known, hashed }));
            }
            received => received?,
        };
        let ready = Ready::new(received, &line.facts, relative);
        Ok(Found::New(New { ready, comparison, is_patched: false }))
    }

    /// Where else the bytes may be had: another origin is believed only if a hash proves what it sends.
    fn elsewhere(&self, line: &Line, urls: &[String]) -> Vec<Url> {
        let is_proven = line.facts.algorithm().is_some();
        let is_allowed = |place: &Url| {
            Authority::SameOrigin.allows(place, &self.home)
                || (is_proven && (self.options.mirrors || self.options.authority.allows(place, &self.home)))
        };
        urls.iter().filter_map(|place| Url::parse(place).ok()).filter(is_allowed).collect()
    }

    /// Compares the file of a resource with the facts. One that is not there because something must make way
    /// is missing.
    pub(super) async fn compare(
        &self,
        planned: &Planned,
        relative: &Path,
    ) -> Result<local::Comparison, ResourceError> {
        let filled = self.filled.get(relative).cloned().flatten();
        let known = filled.or_else(|| self.known.files.get(relative).cloned());
        let (placing, relative, facts) =
            (Arc::clone(&self.placing), relative.to_owned(), planned.line.facts.clone());
        blocking(move || {
            if !placing.can_be_reached(&relative)? {
                return Ok(local::Comparison::of(Local::Missing));
            }
            Ok(local::compare(&placing.directory.join(relative), &facts, known.as_ref())?)
        })
        .await
    }
}

impl Synced {
    pub(super) fn of(written: Written, comparison: &local::Comparison) -> Self {
        let (outcome, known) = match (written, comparison.local) {
            (Written::Identical(known), _) => (Outcome::Unchanged, known),
            (Written::Replaced(known), Local::Missing) => (Outcome::Created, known),
            (Written::Replaced(known), _) => (Outcome::Updated, known),
        };
        Self { outcome, known, hashed: comparison.hashed }
    }
}

fn folders_above(directory: &Path, relative: &Path) -> impl Iterator<Item = PathBuf> {
    relative.ancestors().skip(1).map(|folder| directory.join(folder)).collect::<Vec<_>>().into_iter()
}
