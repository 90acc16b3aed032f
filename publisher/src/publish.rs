//! A run of the Source: takes an inventory, compares it with the published documents, and publishes the changes.
//!
//! The inventory of the last run says what the documents tell. A run takes the next one, decides, keeps its plan, and carries it out; one that was
//! cut short is completed by the next before that looks at the collection anew.

mod dump_staging;
mod dumps;
mod listing;
mod maintenance;
mod new_folders;
mod owner;
mod planning;
mod retire;
mod run;
mod sets;
mod snapshots;
mod staging;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use resync_core::{
    build::{self, Inventory, Item, Skipped, Unportable},
    datetime::DateTime,
    document::{Capability, Change},
    rules::Violations,
};

pub use self::dumps::{Dump, Dumped, dump, dump_with_progress};
pub(crate) use self::maintenance::DumpBackoff;
pub use self::maintenance::{Maintenance, MaintenanceFailure, MaintenanceReport};
pub use self::owner::{Claim, claim};
pub(crate) use self::retire::left;
pub use self::retire::{RetireFailure, clear};
pub(crate) use self::run::{is_in_place, restamp};
use self::{
    listing::Listing,
    new_folders::NewFolders,
    planning::{Run, complete, is_outdated},
};
use crate::{
    collection,
    inventory::{self, Before, Changes, Scope},
    lock::Lock,
    outbox::OutboxError,
    plan::Plan,
    settings::Settings,
    site::DOCUMENT_FOLDER,
    state::{self, State, StateError},
};

/// The folders under OUT in which nothing but the site's own files lies.
pub(crate) const OWN_FOLDERS: [&str; 3] = [DOCUMENT_FOLDER, ".well-known", state::FOLDER];

/// What a build did.
#[derive(Clone, Debug)]
pub struct Built {
    /// Number of resources.
    pub resources: u64,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
    /// How many files were read because they might have changed.
    pub reads: u64,
    /// Changes that the Change List contains now, including those of an interrupted run that was completed.
    pub changes: Changes,
    /// The documents that were written, in that order.
    pub written: Vec<Written>,
    /// Number of documents without new content, which were not touched.
    pub unchanged: usize,
    /// What lies in the collection and was left out.
    pub skipped: Vec<Skipped>,
    /// The resources whose names not every Destination can keep.
    pub unportable: Vec<Unportable>,
    /// Archives and dumps that were due and failed.
    pub failures: Vec<MaintenanceFailure>,
    /// Whether a due Resource List waits for a later build, as in a watch with changes to publish.
    pub list_is_due: bool,
    /// Whether a due dump waits for a later build.
    pub dump_is_due: bool,
    /// When the next dump comes due that is not due now.
    pub(crate) next_dump: Option<Instant>,
    /// URL of the Source Description, where Destinations start.
    pub source_description: String,
}

/// A document that a build wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What it is.
    pub capability: Capability,
    /// Its URL.
    pub url: String,
    /// Whether it is an index of others.
    pub is_index: bool,
}

/// Why a build failed. The site stays as it was, or the next build completes it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The collection's folder cannot be opened.
    #[error("cannot open the collection `{}`: {source}", path.display())]
    Collection {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The collection lies among the documents that the build would write.
    #[error("the collection `{}` is inside the documents of the site in `{}`; choose another --out", path.display(), out.display())]
    CollectionInSite {
        /// The collection.
        path: PathBuf,
        /// The site.
        out: PathBuf,
    },
    /// The site is built from another configuration file.
    #[error(
        "the site in `{}` belongs to `{}`, and would lose sets that `{}` does not list; list all sets in one file, use another `out`, or take the site over with --take-over",
        out.display(), owner.display(), configuration.display()
    )]
    OfAnother {
        /// The site.
        out: PathBuf,
        /// The file that it was built from last.
        owner: PathBuf,
        /// The file that it was to be built from.
        configuration: PathBuf,
    },
    /// Another configuration file has had the site since.
    #[error(
        "the site in `{}` now belongs to `{}`; it is no longer built from `{}`",
        out.display(), owner.display(), configuration.display()
    )]
    TakenOver {
        /// The site.
        out: PathBuf,
        /// The file that it is built from.
        owner: PathBuf,
        /// The file that it was built from before.
        configuration: PathBuf,
    },
    /// A resource cannot be read, or a list cannot be written.
    #[error(transparent)]
    Lists(#[from] build::BuildError),
    /// A document would break a rule of its specification.
    #[error("a document would break a rule: {0}")]
    Document(#[from] Violations),
    /// A pattern of files to ignore is none.
    #[error("`ignore` of the collection: {reason}")]
    Ignore {
        /// What is wrong with it.
        reason: String,
    },
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// Other dumps, or another site, came while a dump was packed.
    #[error("the site in `{}` changed while a dump was packed; make the dump again", out.display())]
    Overtaken {
        /// The site.
        out: PathBuf,
    },
    /// Changes cannot be told without the Change Lists that they go on from.
    #[error("cannot continue the Change Lists in `{}`, since somebody changed them; list all resources again", out.display())]
    NotListed {
        /// The folder of the set.
        out: PathBuf,
    },
    /// A document, or the folder of a site, cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The document or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A document cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The document.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl From<OutboxError> for BuildError {
    fn from(error: OutboxError) -> Self {
        match error {
            OutboxError::Changes(error) => Self::Lists(error),
            OutboxError::Notification(violations) => Self::Document(violations),
            OutboxError::Write { path, source } => Self::Write { path, source },
        }
    }
}

/// Updates the site in `out` from the collection of `settings`; [`Build`] has more options. Documents whose content did not change keep their bytes
/// and times.
///
/// Unchanged files are not read. Changes go to the open Change List; the Resource List is written anew by [rule](crate::settings::Rules). Blocks while
/// another build or notification uses the same `out`. Uses all cores for hashing.
pub fn build(settings: &Settings, out: &Path) -> Result<Built, BuildError> {
    Build::new(settings, out).run()
}

/// How much a build does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildMode {
    /// Everything that is due.
    Full,
    /// Only what is needed to publish changes soon. A due Resource List, due dumps and the whole inventory wait for a full build.
    Quick,
    /// Everything that is due except dumps, which another task makes meanwhile.
    WithoutDumps,
}

/// A build with options.
pub struct Build<'a> {
    settings: &'a Settings,
    out: &'a Path,
    claim: Option<&'a Claim>,
    mode: BuildMode,
    scope: Option<Scope>,
    backoff: Option<&'a mut DumpBackoff>,
    progress: &'a dyn Fn(Progress),
}

impl fmt::Debug for Build<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Build").field("out", &self.out).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl<'a> Build<'a> {
    /// A full build of the site in `out`.
    #[must_use]
    pub fn new(settings: &'a Settings, out: &'a Path) -> Self {
        let (claim, mode, scope, backoff) = (None, BuildMode::Full, None, None);
        Self { settings, out, claim, mode, scope, backoff, progress: &|_| () }
    }

    /// Fails if another configuration file took over the claimed site.
    #[must_use]
    pub fn claim(self, claim: Option<&'a Claim>) -> Self {
        Self { claim, ..self }
    }

    /// How much the build does.
    #[must_use]
    pub fn mode(self, mode: BuildMode) -> Self {
        Self { mode, ..self }
    }

    /// Reports progress now and then.
    #[must_use]
    pub fn progress(self, progress: &'a dyn Fn(Progress)) -> Self {
        Self { progress, ..self }
    }

    /// Looks only at these files and folders, by their paths below the collection. The caller knows that nothing else changed.
    #[must_use]
    pub(crate) fn only(self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { scope: Some(Scope::new(paths)), ..self }
    }

    /// Pauses after failed dumps, for a caller that builds repeatedly.
    #[must_use]
    pub(crate) fn backoff(self, backoff: &'a mut DumpBackoff) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    /// Runs the build.
    ///
    /// # Errors
    /// [`BuildError`]: the site stays as it was, or the next build completes it.
    pub fn run(self) -> Result<Built, BuildError> {
        let Self { settings, out, claim, mode, scope, backoff, progress } = self;
        let directory = settings.directory.as_path();
        let unopened = |source| BuildError::Collection { path: directory.to_owned(), source };
        let directory = directory.canonicalize().map_err(unopened)?;
        let folders = NewFolders::make(settings, out);
        let lock = Lock::acquire(out)?;
        claim.map_or(Ok(()), Claim::check)?;
        refuse_own_documents(&directory, out)?;
        let settings = Settings { directory, ..settings.clone() };
        let run = Run { mode, folders, ..Run::begin(settings, lock)? };
        // Without Change Lists to continue, or with new settings, all files count as changed.
        let is_another = run.before.as_ref().is_none_or(|before| before.settings != run.settings);
        let scope = scope.filter(|_| !is_another && matches!(run.published(), Before::Published { .. }));
        let collection = collection::open_within(&run.settings, out, scope.clone())?;
        let expected = run.before.as_ref().filter(|_| scope.is_none()).map(|state| state.resources);
        let looked = |files| progress(Progress { work: Work::Looking, done: files, all: expected });
        let mut listing = run.listing()?;
        let mut found =
            |started, item| listing.as_mut().map_or(Ok(()), |listing| listing.hear(started, item));
        let taken = inventory::take(
            collection,
            &run.settings,
            out,
            run.published(),
            scope.as_ref(),
            &mut found,
            &looked,
        )?;
        listing.as_mut().map_or(Ok(()), Listing::accepted)?;
        let mut fresh = DumpBackoff::default();
        run.carry_out(taken, listing, claim, backoff.unwrap_or(&mut fresh), progress, &|| ())
    }
}

/// Makes the dumps that are due in a site, while others build. Skips a dump that another process makes.
pub fn make_due_dumps(out: &Path, claim: Option<&Claim>, tell: &dyn Fn(Progress)) -> MaintenanceReport {
    maintenance::dumps((out, claim), BuildMode::Full, &mut DumpBackoff::default(), tell)
}

/// As [`make_due_dumps`], with pauses after failed dumps, for a caller that does so repeatedly.
pub(crate) fn make_due_dumps_with_backoff(
    out: &Path,
    claim: Option<&Claim>,
    backoff: &mut DumpBackoff,
) -> MaintenanceReport {
    maintenance::dumps((out, claim), BuildMode::Full, backoff, &|_| ())
}

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub work: Work,
    /// How many resources have been through it,
    pub done: u64,
    /// and how many there are, where that is known, or was at the last build.
    pub all: Option<u64>,
}

/// What takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Files are looked at, and read where need be.
    Looking,
    /// The Resource List is written.
    Listing,
    /// Resources are packed into a Resource Dump.
    Packing,
    /// Changes are packed into a Change Dump.
    PackingChanges,
}

/// Builds from resources that are not files, in ascending order of their URIs; used by [`source`](crate::source).
///
/// `open` is called under the lock. `kept` is called when the plan is saved: from then on the next run completes this one.
pub(crate) fn build_from<I: Inventory>(
    settings: &Settings,
    out: &Path,
    open: impl FnOnce() -> Result<I, build::BuildError>,
    backoff: &mut DumpBackoff,
    kept: &dyn Fn(),
) -> Result<Built, BuildError> {
    let run = Run::begin(settings.clone(), Lock::acquire(out)?)?;
    let resources = open()?;
    let mut listing = run.listing()?;
    let mut found = |started, item| listing.as_mut().map_or(Ok(()), |listing| listing.hear(started, item));
    let taken = inventory::take_from(resources, settings, out, run.published(), &mut found, &|_| ())?;
    listing.as_mut().map_or(Ok(()), Listing::accepted)?;
    run.carry_out(taken, listing, None, backoff, &|_| (), kept)
}

/// Publishes given changes; everything else counts as unchanged.
pub(crate) fn record(
    settings: &Settings,
    out: &Path,
    changes: &[(Change, Item)],
    mode: BuildMode,
    backoff: &mut DumpBackoff,
    kept: &dyn Fn(),
) -> Result<Built, BuildError> {
    if !is_cut_short(out) {
        State::load(out)?;
    }
    let run = Run { mode, ..Run::begin(settings.clone(), Lock::acquire(out)?)? };
    let Before::Published { until, resources, bytes, quickly, .. } = run.published() else {
        return Err(BuildError::NotListed { out: out.to_owned() });
    };
    let taken = inventory::take_changes(changes, settings, out, (until, resources, bytes), quickly)?;
    run.carry_out(taken, None, None, backoff, &|_| (), kept)
}

/// Whether the rules require a new Resource List for the site in `out`.
pub(crate) fn is_list_due(settings: &Settings, out: &Path) -> Result<bool, BuildError> {
    let Some(State { series: Some(series), resources, .. }) = State::load_if_built(out)? else {
        return Ok(false);
    };
    Ok(is_outdated(&series, settings.rules, (resources, 0), DateTime::now()))
}

/// Whether documents of the site in `out` are being written, or a run that wrote them was cut short; of a site of several sets, those of any.
pub(crate) fn is_under_way(out: &Path) -> bool {
    let sets = fs::read_dir(out).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    std::iter::once(out.to_owned()).chain(sets).any(|out| Plan::is_kept(&out) || dumps::is_under_way(&out))
}

/// Whether a run has still to be completed.
pub(crate) fn is_cut_short(out: &Path) -> bool {
    Plan::is_kept(out)
}

/// Brings the Source Description of a site of several sets in step with them, for the set in `out`: once all of them are built, so that it leads to
/// no set before there is one, and each channel tells of it.
pub fn describe(out: &Path) -> Result<Vec<Written>, BuildError> {
    let lock = Lock::acquire(out)?;
    complete(&lock)?;
    let (_, written) = run::describe(&lock, State::load(out)?)?;
    Ok(written)
}

/// As [`describe`], before hubs are notified of the set: another set may have written the Source Description since, or have left, and then have failed to
/// be built (FN-004). A run that was cut short has to be completed first, by a build.
pub(crate) fn describe_again(lock: &Lock, state: State) -> Result<State, BuildError> {
    let is_shared = state.settings.root.is_some() || state.left.is_some();
    if !is_shared || Plan::is_kept(lock.out()) {
        return Ok(state);
    }
    let (state, _) = run::describe(lock, state)?;
    Ok(state)
}

fn refuse_own_documents(directory: &Path, out: &Path) -> Result<(), BuildError> {
    let unopened = |source| BuildError::Collection { path: out.to_owned(), source };
    let inside = out.canonicalize().map_err(unopened)?;
    let own = OWN_FOLDERS.map(|folder| inside.join(folder));
    if own.iter().any(|folder| directory.starts_with(folder)) {
        return Err(BuildError::CollectionInSite { path: directory.to_owned(), out: out.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
