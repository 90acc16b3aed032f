//! A synchronisation: a baseline, for which the whole list is read, what differs is fetched, and what is no longer
//! listed goes; or an incremental one, which deals with what changed since the last.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use url::Url;

use super::changes::{Changes, Gap, Point, Reached};
use super::download::{Job, Transfer, Written, blocking};
use super::dump::{Dumps, Filled, fill, is_empty};
use super::filter::Filter;
use super::folder::CopyFolder;
use super::lists::{Collected, Collector, LastSeen, Line, Lists, Plan, Planned, Reading, Snapshot, Unity};
use super::local::{self, Local};
use super::memory::{Known, Memory, Scope, Settled};
use super::path::relative_path;
use super::places::Places;
use super::put::Placing;
use super::report::{Method, Outcome, Report};
use super::standing::{MAX_UNDONE, Standing};
use super::{Authority, Offer, ResourceError, SyncError, SyncOptions, Target, delete};
use crate::fetch::Client;

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// Deal with the changes since the last run (RS-191); without a Change List, or a run to build on, as
    /// [`Look::AtNewList`].
    Changes,
    /// Do nothing if the list is still the one that was dealt with as far as was possible: what failed then
    /// and needs a new list, such as a 404, is not tried again. Changes since the list are dealt with all the same.
    AtNewList,
    /// Do nothing if the list is still the one that the copy was in step with (RS-096).
    UnlessInStep,
    /// Compare every file.
    Everything,
}

/// Baseline synchronisation (RS-190): brings the directory in step with the Resource List or index, and with what
/// changed since that was made (RS-196).
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
    look(client, offer, target, options, Look::Everything).await
}

/// As [`baseline`], and as closely as `look` says.
///
/// # Errors
/// As for [`baseline`].
pub async fn look(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
    look: Look,
) -> Result<Report, SyncError> {
    let max = options.max_run_time;
    let run = whole_run(client, offer, target, options, look);
    tokio::time::timeout(max, run).await.unwrap_or(Err(SyncError::TooLong { max }))
}

async fn whole_run(
    client: &Client,
    offer: &Offer,
    target: &Target,
    options: &SyncOptions,
    look: Look,
) -> Result<Report, SyncError> {
    let list = offer.resource_list.as_ref().ok_or(SyncError::NothingOffered)?;
    let lists = Lists { client, list, changes: offer.change_list.as_ref(), base: &target.base, options };
    let scope = Scope::of(&lists);
    let (opening, wanted) = (target.clone(), scope.clone());
    let (folder, standing) = blocking(move || {
        let folder = CopyFolder::open(&opening)?;
        let standing = Standing::load(&folder, &wanted);
        Ok::<_, SyncError>((Arc::new(folder), standing))
    })
    .await?;
    let dump = offer.resource_dump.as_ref();
    let work = Work { client, target, options, lists, dump, scope, folder };
    let standing = standing.filter(|_| work.lists.changes.is_some());
    if let (Look::Changes, Some(standing)) = (look, &standing)
        && let Some(report) = work.incremental(standing).await?
    {
        return Ok(report);
    }
    let loading = Arc::clone(&work.folder);
    let memory = blocking(move || Memory::load(&loading)).await;
    let enough = memory.settled_for(&work.scope).filter(|settled| match look {
        Look::Everything => false,
        Look::UnlessInStep => settled.report.in_step(),
        Look::Changes | Look::AtNewList => true,
    });
    let seen = enough.map(|settled| LastSeen { validators: &settled.validators, digest: &settled.digest });
    let snapshot = match (work.lists.read(seen, || work.folder.scratch()).await?, enough, &standing) {
        (Reading::New(snapshot), ..) => *snapshot,
        (Reading::Known, _, Some(standing)) => match work.incremental(standing).await? {
            Some(report) => return Ok(report),
            None => work.lists.read_anew(|| work.folder.scratch()).await?,
        },
        (Reading::Known, Some(settled), None) => return Ok(settled.report.clone().repeated()),
        // Only what was seen can be known.
        (Reading::Known, None, None) => return Ok(Report::default()),
    };
    if options.delete && snapshot.places.is_empty() {
        return Err(SyncError::Empty { url: list.clone() });
    }
    work.baseline(snapshot, memory).await
}

impl Scope {
    fn of(lists: &Lists<'_>) -> Self {
        let Lists { list, base, options, .. } = lists;
        let all = Filter::default();
        Self {
            list: list.to_string(),
            base: base.to_string(),
            delete: options.delete,
            any_origin: options.authority == Authority::Any,
            filter: if options.filter == all { String::new() } else { format!("{:?}", options.filter) },
        }
    }
}

/// One run on one copy, which is locked.
struct Work<'s> {
    client: &'s Client,
    target: &'s Target,
    options: &'s SyncOptions,
    lists: Lists<'s>,
    dump: Option<&'s Url>,
    scope: Scope,
    folder: Arc<CopyFolder>,
}

impl Work<'_> {
    async fn baseline(&self, snapshot: Snapshot, memory: Memory) -> Result<Report, SyncError> {
        let Snapshot { places, plan, mut report, bytes, unity, validators, digest, point } = snapshot;
        let deletion_skipped = why_no_deletion(&unity, report.failed, self.options);
        let may_remove = self.options.delete && deletion_skipped.is_none();
        let mut run = Run::new(self, Arc::clone(&places), memory, may_remove);
        run.filled = self.fill(&run, places.wanted(), bytes).await?;
        let mut learnt = Memory::default();
        let mut made = run.resources(&plan, &mut report, &mut learnt).await?;
        if may_remove {
            let (target, really) = (self.target.clone(), !self.options.dry_run);
            report.deleted = blocking(move || delete::unlisted(&target, &places, really)).await?;
        }
        run.account(&mut report);
        report.deletion_skipped = deletion_skipped;
        report.may_mend |= matches!(unity, Unity::Mixed(_));
        // An index that does not say when it is true stays the same while its lists change.
        if !report.may_mend && unity == Unity::One {
            learnt.settled =
                Some(Settled { scope: self.scope.clone(), validators, digest, report: report.clone() });
        }
        let standing = point.and_then(|point| made.standing(&self.scope, point));
        self.keep(made.changed, Some(learnt), standing).await?;
        Ok(report)
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
            Some(dump) => Ok(fill(dump, &self.lists, &run.placing, &run.bytes).await),
            None => Ok(Filled::new()),
        }
    }

    /// Deals with what changed since the last run; `None` where changes were lost (RS-197).
    async fn incremental(&self, standing: &Standing) -> Result<Option<Report>, SyncError> {
        let Some(root) = self.lists.changes else { return Ok(None) };
        let mut collector = Collector::new(&self.lists, self.lists.list.origin(), self.folder.scratch()?);
        for line in &standing.undone {
            collector.again(line)?;
        }
        let changes = Changes { lists: &self.lists, root, gap: Gap::Refused };
        let Reached { collector, point } = match changes.since(collector, &standing.point).await {
            Ok(reached) => reached,
            Err(error @ SyncError::LostChanges { .. }) => {
                tracing::warn!(%error, "changes were lost: the copy is synchronised as a whole");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Collected { places, plan, mut report, .. } = blocking(move || collector.end()).await?;
        report.method = Method::Incremental;
        let run = Run::new(self, Arc::new(places), Memory::default(), false);
        // First, since a folder may stand where a file belongs now, or the other way round.
        let mut changed = run.deletions(&plan, &mut report).await?;
        let mut made = run.resources(&plan, &mut report, &mut Memory::default()).await?;
        run.account(&mut report);
        changed.extend(std::mem::take(&mut made.changed));
        let next = made.standing(&self.scope, point).filter(|next| next != standing);
        self.keep(changed, None, next).await?;
        Ok(Some(report))
    }

    /// Makes durable what was done, and then what is remembered of it.
    async fn keep(
        &self,
        changed: HashSet<PathBuf>,
        learnt: Option<Memory>,
        standing: Option<Standing>,
    ) -> Result<(), SyncError> {
        if self.options.dry_run {
            return Ok(());
        }
        let folder = Arc::clone(&self.folder);
        blocking(move || {
            sync_folders(&changed)?;
            // After the files: what is remembered of them must not outlive them.
            let learnt = learnt.map_or(Ok(()), |learnt| learnt.save(&folder));
            if let Err(error) = learnt.and_then(|()| standing.map_or(Ok(()), |one| one.save(&folder))) {
                tracing::warn!(%error, "what is known of the copy is not kept: the next run does more than it needs to");
            }
            Ok(())
        })
        .await
    }
}

/// Why nothing is deleted, if so. An entry without a place may mean any file there is.
fn why_no_deletion(unity: &Unity, failed: u64, options: &SyncOptions) -> Option<String> {
    if !options.delete {
        return None;
    }
    match (unity, failed) {
        (Unity::Mixed(why), _) => Some(format!("the Source is making a new snapshot: {why}")),
        (Unity::Untold(why), _) => Some(why.clone()),
        (Unity::One, 0) => None,
        (Unity::One, count) => Some(format!(
            "{count} of the listed resources have no place here, and any file may be one of them"
        )),
    }
}

/// What the work on every resource of one run shares.
struct Run<'s> {
    client: &'s Client,
    target: &'s Target,
    options: &'s SyncOptions,
    home: url::Origin,
    placing: Arc<Placing>,
    known: Memory,
    /// What a dump brought.
    filled: Filled,
    bytes: AtomicU64,
}

/// What the work on all of them left.
#[derive(Default)]
struct Made {
    /// The folders that were changed.
    changed: HashSet<PathBuf>,
    /// What failed and may mend, at most one more than is remembered.
    undone: Vec<Line>,
}

impl Made {
    /// Where the copy stands after that; `None` if too much failed to be remembered.
    fn standing(&mut self, scope: &Scope, point: Point) -> Option<Standing> {
        let undone = std::mem::take(&mut self.undone);
        (undone.len() <= MAX_UNDONE).then(|| Standing::new(scope.clone(), point, undone))
    }
}

struct Done {
    line: Line,
    /// `None` for a path that could not be found again.
    relative: Option<PathBuf>,
    /// `None` where another line is the last word.
    result: Option<Result<Brought, ResourceError>>,
}

/// What bringing one file in step brought.
struct Brought {
    outcome: Outcome,
    known: Option<Known>,
    hashed: u64,
}

impl<'s> Run<'s> {
    fn new(work: &Work<'s>, places: Arc<Places>, known: Memory, may_remove: bool) -> Self {
        let Work { client, target, options, .. } = *work;
        let placing = Placing {
            directory: target.directory.clone(),
            folder: Arc::clone(&work.folder),
            places,
            may_remove,
            removed: AtomicU64::new(0),
            one_at_a_time: Mutex::new(()),
        };
        let (home, placing, bytes) = (work.lists.list.origin(), Arc::new(placing), AtomicU64::new(0));
        Self { client, target, options, home, placing, known, filled: Filled::new(), bytes }
    }

    fn account(&self, report: &mut Report) {
        report.deleted += self.placing.removed.load(Ordering::Relaxed);
        report.bytes_fetched = self.bytes.load(Ordering::Relaxed);
    }

    /// Removes the files of what was deleted, if that is asked for; gives the folders that were changed.
    async fn deletions(&self, plan: &Plan, report: &mut Report) -> Result<HashSet<PathBuf>, SyncError> {
        let mut changed = HashSet::new();
        let mut steps = plan.begin(true)?;
        while let Some(Planned { number, url, line }) = steps.next().await? {
            let Ok(relative) = relative_path(&line.loc, &url, &self.target.base) else { continue };
            if !self.placing.places.is_last_word(&relative, number) {
                continue;
            }
            let (target, path) = (self.target.clone(), relative.clone());
            let really = self.options.delete && !self.options.dry_run;
            let was_there = blocking(move || delete::one(&target, &path, really)).await?;
            match (was_there, self.options.delete) {
                (true, true) => {
                    report.deleted += 1;
                    changed.extend(folders_above(&self.target.directory, &relative));
                }
                (true, false) => report.kept += 1,
                (false, _) => {}
            }
        }
        Ok(changed)
    }

    /// Brings every resource in step.
    async fn resources(
        &self,
        plan: &Plan,
        report: &mut Report,
        learnt: &mut Memory,
    ) -> Result<Made, SyncError> {
        let mut made = Made::default();
        let mut work = FuturesUnordered::new();
        let mut steps = plan.begin(false)?;
        let mut planning = true;
        self.options.progress.begin(self.placing.places.wanted());
        while planning || !work.is_empty() {
            tokio::select! {
                planned = steps.next(), if planning && work.len() < self.options.parallel.max(1) => match planned? {
                    Some(planned) => work.push(self.resource(planned)),
                    None => planning = false,
                },
                Some(done) = work.next(), if !work.is_empty() => self.note(done, &mut made, report, learnt),
            }
        }
        Ok(made)
    }

    fn note(&self, done: Done, made: &mut Made, report: &mut Report, learnt: &mut Memory) {
        let Done { line, relative, result } = done;
        let Some(result) = result else { return };
        self.options.progress.one_done();
        if result.as_ref().is_err_and(ResourceError::may_mend) && made.undone.len() <= MAX_UNDONE {
            made.undone.push(line.clone());
        }
        let outcome = result.map(|Brought { outcome, known, hashed }| {
            let is_filled = relative.as_ref().is_some_and(|relative| self.filled.contains_key(relative));
            let outcome = if is_filled { Outcome::Created } else { outcome };
            report.bytes_hashed += hashed;
            if let Some(relative) = relative {
                if outcome != Outcome::Unchanged {
                    made.changed.extend(folders_above(&self.target.directory, &relative));
                }
                if let Some(known) = known {
                    learnt.files.insert(relative.into(), known);
                }
            }
            outcome
        });
        report.count(&line.loc, outcome);
    }

    async fn resource(&self, planned: Planned) -> Done {
        let (relative, result) = match relative_path(&planned.line.loc, &planned.url, &self.target.base) {
            Ok(relative) if !self.placing.places.is_last_word(&relative, planned.number) => (None, None),
            Ok(relative) => {
                let result = self.bring_in_step(&planned, &relative).await;
                (Some(relative), Some(result))
            }
            Err(error) => (None, Some(Err(error.into()))),
        };
        Done { line: planned.line, relative, result }
    }

    async fn bring_in_step(&self, planned: &Planned, relative: &Path) -> Result<Brought, ResourceError> {
        let look = self.compare(planned, relative).await?;
        if look.local == Local::Same {
            return Ok(Brought { outcome: Outcome::Unchanged, known: look.known, hashed: look.hashed });
        }
        if self.options.dry_run {
            let outcome = if look.local == Local::Missing { Outcome::Created } else { Outcome::Updated };
            return Ok(Brought { outcome, known: None, hashed: look.hashed });
        }
        let transfer = Transfer {
            client: self.client,
            options: self.options,
            folder: &self.placing.folder,
            url: &planned.url,
            mirrors: &self.mirrors(&planned.line),
            facts: &planned.line.facts,
            bytes: &self.bytes,
        };
        let job = Job { transfer, placing: &self.placing, relative };
        let (outcome, known) = match (job.run().await?, look.local) {
            (Written::Identical, _) => (Outcome::Unchanged, None),
            (Written::Replaced(known), Local::Missing) => (Outcome::Created, known),
            (Written::Replaced(known), _) => (Outcome::Updated, known),
        };
        Ok(Brought { outcome, known, hashed: look.hashed })
    }

    /// Where else the bytes may be had: another origin is believed only if a hash proves what it sends.
    fn mirrors(&self, line: &Line) -> Vec<Url> {
        let is_proven = line.facts.algorithm().is_some();
        let is_allowed = |mirror: &Url| {
            mirror.origin() == self.home
                || (is_proven && (self.options.mirrors || self.options.authority == Authority::Any))
        };
        line.mirrors.iter().filter_map(|mirror| Url::parse(mirror).ok()).filter(is_allowed).collect()
    }

    /// Compares the file of a resource with the facts. One that is not there because something must make way
    /// is missing.
    async fn compare(&self, planned: &Planned, relative: &Path) -> Result<local::Look, ResourceError> {
        let filled = self.filled.get(relative).cloned().flatten();
        let known = filled.or_else(|| self.known.files.get(relative).cloned());
        let (placing, relative, facts) =
            (Arc::clone(&self.placing), relative.to_owned(), planned.line.facts.clone());
        blocking(move || {
            if !placing.can_be_reached(&relative)? {
                return Ok(local::Look::of(Local::Missing));
            }
            Ok(local::compare(&placing.directory.join(relative), &facts, known.as_ref())?)
        })
        .await
    }
}

fn folders_above(directory: &Path, relative: &Path) -> impl Iterator<Item = PathBuf> {
    relative.ancestors().skip(1).map(|folder| directory.join(folder)).collect::<Vec<_>>().into_iter()
}

/// Makes the renames durable; once per folder is enough.
fn sync_folders(folders: &HashSet<PathBuf>) -> std::io::Result<()> {
    for folder in folders {
        match std::fs::File::open(folder) {
            Ok(folder) => folder.sync_all()?,
            // Gone since then.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
