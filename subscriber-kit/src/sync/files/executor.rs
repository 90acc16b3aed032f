//! Executes the plan of a run: each resource is compared, and fetched if it differs; finished files are put in place in batches.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_common::locks::lock;
use url::Url;

use super::batch::{self, FinishedFile, Written, place_all};
use super::delete;
use super::download::Transfer;
use super::dump::Filled;
use super::folder::CopyFolder;
use super::local::{self, FileState};
use super::past::Past;
use super::place::Placer;
use super::run_outcome::{Evidence, RunOutcome};
use crate::blocking::blocking;
use crate::sync::progress::Outcome;
use crate::sync::reading::file_map::FileMap;
use crate::sync::reading::lists::Lists;
use crate::sync::reading::packages::Packages;
use crate::sync::reading::path::relative_path;
use crate::sync::reading::plan::{Line, Plan, Planned};
use crate::sync::report::{Method, Report};
use crate::sync::run::Run;
use crate::sync::saved::cache::{CacheUpdates, CachedFile, FileCache};
use crate::sync::saved::earlier_files::EarlierFiles;
use crate::sync::saved::origins::OriginRecord;
use crate::sync::{Authority, ResourceError, SyncError, SyncOptions, Target};

/// What all resources of one plan share.
pub(crate) struct Executor<'s> {
    pub(crate) target: &'s Target,
    pub(crate) options: &'s SyncOptions,
    pub(crate) lists: &'s Lists<'s>,
    pub(crate) home: url::Origin,
    pub(crate) placer: Arc<Placer>,
    earlier: Arc<EarlierFiles>,
    known: FileCache,
    /// Files from a dump, before they are compared with the list.
    pub(crate) filled: Filled,
    /// The results of lines that were unpacked.
    pub(crate) unpacked: Mutex<HashMap<u32, Result<FileResult, ResourceError>>>,
    pub(crate) packages: tokio::sync::Mutex<Packages>,
    pub(crate) patched: AtomicU64,
    /// From where the files come.
    pub(crate) origins: Mutex<OriginRecord>,
    /// For a copy of the past.
    pub(crate) past: Option<Past<'s>>,
}

/// The result of one line of the plan.
struct LineResult {
    line: Line,
    /// `None` if it has no valid path.
    relative: Option<PathBuf>,
    /// `None` if a later line counts instead.
    result: Option<Result<FileResult, ResourceError>>,
}

/// What is to be done next about a line: its result is known, or the file that was fetched is put in place.
enum NextStep {
    Record(LineResult),
    Place(Line, FetchedFile),
}

/// The finished files of the next batch.
#[derive(Default)]
struct NextBatch {
    files: Vec<(Line, FetchedFile)>,
    /// How many bytes of memory they take.
    bytes: usize,
}

impl NextBatch {
    fn push(&mut self, line: Line, new: FetchedFile) {
        self.bytes += new.ready.in_memory();
        self.files.push((line, new));
    }

    /// Whether a second batch at the same time is worth another sync.
    fn are_worth_another(&self) -> bool {
        self.files.len() >= batch::MAX_FILES / 2 || self.bytes >= batch::MAX_BYTES / 2
    }

    /// Whether there is room for one more besides the `come` downloads, which take at most `bytes`.
    fn have_room(&self, come: usize, bytes: usize) -> bool {
        self.files.len() + come < batch::MAX_FILES && self.bytes + bytes < batch::MAX_BYTES
    }
}

/// The new file of a resource before it is put in place, and what was there before.
pub(crate) struct FetchedFile {
    pub(crate) ready: FinishedFile,
    pub(crate) comparison: local::Comparison,
    pub(crate) is_patched: bool,
}

/// What comparing a resource with its file led to: it is finished, or its new file was fetched.
enum Compared {
    Finished(FileResult),
    Fetched(FetchedFile),
}

/// The result of bringing one file in step.
pub(crate) struct FileResult {
    pub(crate) outcome: Outcome,
    pub(crate) known: Option<CachedFile>,
    pub(crate) hashed: u64,
}

impl<'s> Executor<'s> {
    pub(crate) fn new(run: &'s Run<'s>, file_map: Arc<FileMap>, known: FileCache, may_remove: bool) -> Self {
        let Run { target, options, .. } = *run;
        run.folder.begin_changes();
        let placer = Placer {
            directory: target.directory.clone(),
            base: target.base.clone(),
            progress: options.progress.clone(),
            folder: Arc::clone(&run.folder),
            file_map,
            filter: options.filter.clone(),
            may_remove,
            removed: AtomicU64::new(0),
            one_at_a_time: Mutex::new(()),
            pretended: Mutex::default(),
        };
        Self {
            target,
            options,
            lists: &run.lists,
            home: run.lists.list.origin(),
            placer: Arc::new(placer),
            earlier: Arc::clone(&run.earlier),
            known,
            filled: Filled::new(),
            unpacked: Mutex::default(),
            packages: tokio::sync::Mutex::default(),
            patched: AtomicU64::new(0),
            origins: Mutex::default(),
            past: None,
        }
    }

    /// Records from where the files come, in `record`.
    pub(crate) fn recording(self, record: impl FnOnce(&CopyFolder) -> OriginRecord) -> Self {
        let origins = if self.options.dry_run { OriginRecord::None } else { record(&self.placer.folder) };
        Self { origins: Mutex::new(origins), ..self }
    }

    /// Saves what was recorded.
    pub(crate) async fn save_origins(&self) {
        let record = std::mem::take(&mut *lock(&self.origins));
        let folder = Arc::clone(&self.placer.folder);
        blocking(move || record.save(&folder)).await;
    }

    pub(crate) fn account(&self, report: &mut Report) {
        report.deleted += self.placer.removed.load(Ordering::Relaxed);
        report.bytes_fetched = self.lists.bytes.load(Ordering::Relaxed);
        report.patched = self.patched.load(Ordering::Relaxed);
        report.earlier_files = self.earlier.count();
    }

    /// Removes the files of deleted resources, if that is requested.
    pub(crate) async fn deletions(
        &self,
        plan: &Plan,
        report: &mut Report,
        run_outcome: &mut RunOutcome,
    ) -> Result<(), SyncError> {
        let mut steps = plan.begin(true)?;
        while let Some(Planned { number, url, line, .. }) = steps.next().await? {
            let Ok(relative) = relative_path(&line.loc, &url, &self.target.base) else { continue };
            if !self.placer.file_map.is_last_word(&relative, number) {
                continue;
            }
            let (target, path) = (self.target.clone(), relative.clone());
            let removes = self.options.delete && !self.options.dry_run;
            let removed = blocking(move || delete::one(&target, &path, removes)).await;
            // Its resource counts no more, also if its file stays.
            let was_there = match removed {
                Ok(was_there) => was_there,
                Err(_) => self.has_file(&relative),
            };
            let first = self.placer.file_map.first_change(&relative);
            run_outcome.went(&line, Evidence { first, was_there, is_barred: false });
            match (removed, self.options.delete) {
                (Ok(true), true) => {
                    report.count(&self.options.progress, &line.loc, Ok(Outcome::Deleted));
                    run_outcome.changed.add_above(&self.target.directory, &relative);
                    self.sync_changed(run_outcome).await?;
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
    pub(crate) async fn resources(
        &self,
        plan: &Plan,
        report: &mut Report,
        run_outcome: &mut RunOutcome,
        updates: &mut dyn CacheUpdates,
    ) -> Result<(), SyncError> {
        let (mut resources, mut batches) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut waiting = NextBatch::default();
        let (placer, base) = (Arc::clone(&self.placer), self.target.base.clone());
        let mut missing = None;
        let mut steps = plan.begin_with(false, move |planned| placer.lacks(planned, &base, &mut missing))?;
        // How many bytes of memory the downloads may take.
        let (mut planning, mut coming) = (true, 0);
        self.options.progress.begin(self.placer.file_map.wanted());
        loop {
            // Files that are finished during one batch are the next; while one is synced, another is written.
            let is_time = match batches.len() {
                0 => !waiting.files.is_empty(),
                1 => waiting.are_worth_another(),
                _ => false,
            };
            if is_time {
                batches.push(self.place_batch(std::mem::take(&mut waiting).files));
            }
            let has_room =
                resources.len() < self.options.parallel.max(1) && waiting.have_room(resources.len(), coming);
            tokio::select! {
                planned = steps.next(), if planning && has_room => match planned? {
                    Some(planned) => {
                        let bytes = batch::max_in_memory(&planned.line.facts);
                        coming += bytes;
                        resources.push(async move { (bytes, self.resource(planned).await) });
                    }
                    None => planning = false,
                },
                Some((bytes, step)) = resources.next(), if !resources.is_empty() => {
                    coming -= bytes;
                    match step {
                        NextStep::Record(done) => {
                            self.record(done, run_outcome, report, updates);
                            self.sync_changed(run_outcome).await?;
                        }
                        NextStep::Place(line, new) => waiting.push(line, new),
                    }
                },
                Some(batch) = batches.next(), if !batches.is_empty() => for done in batch {
                    self.record(done, run_outcome, report, updates);
                    self.sync_changed(run_outcome).await?;
                },
                else => return Ok(()),
            }
        }
    }

    /// Syncs the changed folders once they are many. A dry run changed none.
    async fn sync_changed(&self, run_outcome: &mut RunOutcome) -> Result<(), SyncError> {
        let Some(changed) = run_outcome.changed.take_if_many().filter(|_| !self.options.dry_run) else {
            return Ok(());
        };
        let folder = Arc::clone(&self.placer.folder);
        Ok(blocking(move || folder.sync_folders(&changed)).await?)
    }

    async fn place_batch(&self, batch: Vec<(Line, FetchedFile)>) -> Vec<LineResult> {
        let (lines, batch): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let paths: Vec<PathBuf> = batch.iter().map(|new| new.ready.relative.clone()).collect();
        let results = self.place_new(batch).await;
        let done =
            |((line, relative), result)| LineResult { line, relative: Some(relative), result: Some(result) };
        lines.into_iter().zip(paths).zip(results).map(done).collect()
    }

    /// Puts new files in place; returns the results in the same order.
    pub(crate) async fn place_new(&self, batch: Vec<FetchedFile>) -> Vec<Result<FileResult, ResourceError>> {
        let parts = batch
            .into_iter()
            .map(|FetchedFile { ready, comparison, is_patched }| (ready, (comparison, is_patched)));
        let (ready, before): (Vec<_>, Vec<_>) = parts.unzip();
        let placer = Arc::clone(&self.placer);
        let results = blocking(move || place_all(&placer, ready)).await;
        let synced = |(result, (comparison, is_patched)): (Result<Written, _>, (local::Comparison, bool))| {
            self.patched.fetch_add(u64::from(is_patched && result.is_ok()), Ordering::Relaxed);
            result.map(|written| FileResult::of(written, &comparison))
        };
        results.into_iter().zip(before).map(synced).collect()
    }

    fn record(
        &self,
        done: LineResult,
        run_outcome: &mut RunOutcome,
        report: &mut Report,
        updates: &mut dyn CacheUpdates,
    ) {
        let LineResult { line, relative, result } = done;
        let Some(result) = result else { return };
        self.options.progress.one_done();
        if let Err(error) = &result {
            run_outcome.failed(&line, error);
        }
        // A baseline counts all.
        if let (Method::Incremental, Some(relative)) = (report.method, &relative) {
            run_outcome.came(&line, self.evidence(relative, &result));
        }
        let outcome = result.map(|FileResult { outcome, known, hashed }| {
            let is_filled = relative.as_ref().is_some_and(|relative| self.filled.contains_key(relative));
            let outcome = if is_filled { Outcome::Created } else { outcome };
            report.bytes_hashed += hashed;
            if let Some(relative) = relative {
                let mut origins = lock(&self.origins);
                origins.take(&relative, &line, known.as_ref(), outcome != Outcome::Unchanged);
                drop(origins);
                if outcome != Outcome::Unchanged {
                    run_outcome.changed.add_above(&self.target.directory, &relative);
                }
                if let Some(known) = known {
                    updates.add(&relative, known, outcome != Outcome::Unchanged);
                }
            }
            outcome
        });
        report.count(&self.options.progress, &line.loc, outcome);
    }

    /// What shows whether a resource was counted before it was brought in step, or was not.
    fn evidence(&self, relative: &Path, result: &Result<FileResult, ResourceError>) -> Evidence {
        let was_there = match result {
            Ok(synced) => synced.outcome != Outcome::Created,
            // It is no file of the copy.
            Err(ResourceError::EarlierFile) => false,
            Err(_) => self.has_file(relative),
        };
        let is_barred = result.as_ref().is_err_and(|error| !error.is_for_later());
        Evidence { first: self.placer.file_map.first_change(relative), was_there, is_barred }
    }

    fn has_file(&self, relative: &Path) -> bool {
        self.target.directory.join(relative).symlink_metadata().is_ok()
    }

    async fn resource(&self, planned: Planned) -> NextStep {
        let (relative, result) = match relative_path(&planned.line.loc, &planned.url, &self.target.base) {
            Ok(relative) if !self.placer.file_map.is_last_word(&relative, planned.number) => (None, None),
            Ok(relative) => match self.bring_in_step(&planned, &relative).await {
                Ok(Compared::Fetched(new)) => return NextStep::Place(planned.line, new),
                Ok(Compared::Finished(synced)) => (Some(relative), Some(Ok(synced))),
                Err(error) => (Some(relative), Some(Err(error))),
            },
            Err(error) => (None, Some(Err(error.into()))),
        };
        NextStep::Record(LineResult { line: planned.line, relative, result })
    }

    async fn bring_in_step(&self, planned: &Planned, relative: &Path) -> Result<Compared, ResourceError> {
        let unpacked = lock(&self.unpacked).remove(&planned.number);
        if let Some(unpacked) = unpacked {
            return unpacked.map(Compared::Finished);
        }
        let comparison = if planned.is_missing {
            local::Comparison::of(FileState::Missing)
        } else {
            self.compare(planned, relative).await?
        };
        if comparison.local == FileState::Same {
            let local::Comparison { known, hashed, .. } = comparison;
            return Ok(Compared::Finished(FileResult { outcome: Outcome::Unchanged, known, hashed }));
        }
        if self.options.dry_run {
            let outcome =
                if comparison.local == FileState::Missing { Outcome::Created } else { Outcome::Updated };
            if outcome == Outcome::Created && !planned.is_missing {
                let (placer, relative) = (Arc::clone(&self.placer), relative.to_owned());
                blocking(move || placer.pretend(&relative)).await?;
            }
            return Ok(Compared::Finished(FileResult { outcome, known: None, hashed: comparison.hashed }));
        }
        if let Some(received) = self.patch(&planned.line, relative, comparison.local).await {
            let ready = FinishedFile::new(received, &planned.line.facts, relative);
            return Ok(Compared::Fetched(FetchedFile { ready, comparison, is_patched: true }));
        }
        let line = &planned.line;
        let alternate = line.alternate.as_deref().and_then(|place| Url::parse(place).ok());
        let (mirrors, via) = (self.elsewhere(line, &line.mirrors), self.elsewhere(line, line.via.as_slice()));
        let url = alternate.as_ref().unwrap_or(&planned.url);
        let sent = comparison.known.as_ref().and_then(|known| known.sent.clone());
        let sent = sent
            .filter(|sent| comparison.local == FileState::Unverifiable && sent.url == url.as_str())
            .filter(|sent| line.accept.is_none() || sent.validators.tell_representations());
        let transfer = Transfer {
            mirrors: &mirrors,
            via: via.first(),
            accept: line.accept.as_deref(),
            unless: sent.as_ref().map(|sent| &sent.validators).filter(|_| mirrors.is_empty()),
            ..self.lists.transfer(url, &line.facts)
        };
        let received = match &self.past {
            Some(past) => Box::pin(past.receive(planned, relative, &transfer)).await,
            None => transfer.run().await,
        };
        let received = match received {
            Err(error) if transfer.unless.is_some() && error.is_unchanged() => {
                let local::Comparison { known, hashed, .. } = comparison;
                return Ok(Compared::Finished(FileResult { outcome: Outcome::Unchanged, known, hashed }));
            }
            received => received?,
        };
        let ready = FinishedFile::new(received, &line.facts, relative);
        Ok(Compared::Fetched(FetchedFile { ready, comparison, is_patched: false }))
    }

    /// The URLs that may be used: other origins only if the list has a hash.
    fn elsewhere(&self, line: &Line, urls: &[String]) -> Vec<Url> {
        let is_proven = line.facts.algorithm().is_some();
        let is_allowed = |place: &Url| {
            Authority::SameOrigin.allows(place, &self.home)
                || (is_proven
                    && (self.options.foreign_mirrors || self.options.authority.allows(place, &self.home)))
        };
        urls.iter().filter_map(|place| Url::parse(place).ok()).filter(is_allowed).collect()
    }

    /// Compares the file of a resource with the facts. If something must make way first, it is missing. An earlier file that
    /// differs is an error, since it stays.
    pub(crate) async fn compare(
        &self,
        planned: &Planned,
        relative: &Path,
    ) -> Result<local::Comparison, ResourceError> {
        let filled = self.filled.get(relative).cloned().flatten();
        let known = filled.or_else(|| self.known.files.get(relative).cloned());
        let (placer, relative, facts) =
            (Arc::clone(&self.placer), relative.to_owned(), planned.line.facts.clone());
        let earlier = Arc::clone(&self.earlier);
        blocking(move || {
            if !placer.can_be_reached(&relative)? {
                return Ok(local::Comparison::of(FileState::Missing));
            }
            let comparison = local::compare(&placer.directory.join(&relative), &facts, known.as_ref());
            let comparison = comparison.map_err(ResourceError::Read)?;
            match comparison.local {
                FileState::Same | FileState::Missing => earlier.adopt(&relative),
                FileState::Different | FileState::Unverifiable if earlier.protect(&relative) => {
                    return Err(ResourceError::EarlierFile);
                }
                FileState::Different | FileState::Unverifiable => {}
            }
            Ok(comparison)
        })
        .await
    }
}

impl FileResult {
    pub(crate) fn of(written: Written, comparison: &local::Comparison) -> Self {
        let (outcome, known) = match (written, comparison.local) {
            (Written::Identical(known), _) => (Outcome::Unchanged, known),
            (Written::Replaced(known), FileState::Missing) => (Outcome::Created, known),
            (Written::Replaced(known), _) => (Outcome::Updated, known),
        };
        Self { outcome, known, hashed: comparison.hashed }
    }
}
