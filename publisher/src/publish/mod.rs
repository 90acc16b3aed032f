//! A run of the Source: takes an inventory, compares it with the published documents, and publishes the changes.
//!
//! The inventory of the last run is what the documents list. A run takes the next one, decides, saves its plan, and carries it out. The next run completes
//! an interrupted one before it looks at the collection.

mod archives;
mod completing;
mod documents;
mod dry_run;
mod due_dumps;
mod dump_staging;
mod dumps;
mod execution;
mod in_place;
mod listed_changes;
mod listing;
mod maintenance;
mod new_folders;
mod owner;
mod plan;
mod planning;
mod retire;
mod sets;
mod snapshots;
mod staging;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Instant,
};

use resync_core::{
    build::{self, Inventory, Item, Skipped, Unportable},
    datetime::DateTime,
    document::{Capability, Change},
};

pub(crate) use self::{
    completing::complete,
    due_dumps::DumpBackoff,
    in_place::{is_in_place, restamp},
    retire::retired_sets,
};
pub use self::{
    dry_run::DryRun,
    due_dumps::DueDumps,
    dumps::{Dumped, dump},
    maintenance::{Dump, Maintenance, MaintenanceFailure, MaintenanceReport},
    owner::{Claim, claim, configuration_of},
    retire::{RetireFailure, clear},
};
use self::{
    listing::Listing,
    new_folders::NewFolders,
    plan::Plan,
    planning::{Run, is_outdated},
};
pub use crate::versions::Unkept;
use crate::{
    error::{Action, Error},
    helpers::files,
    inventory::{Before, Changes, Scope, Snapshot, TakeSnapshot, collection},
    settings::Settings,
    site::DOCUMENT_FOLDER,
    state::{self, Lock, State},
    versions::Records,
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
    /// What was left out of the collection.
    pub skipped: Vec<Skipped>,
    /// The resources whose names not every Destination can store.
    pub unportable: Vec<Unportable>,
    /// Archives and dumps that were due and failed.
    pub failures: Vec<MaintenanceFailure>,
    /// Versions that could not be kept.
    pub unkept: Unkept,
    /// Where versions are to be served, if this was the first build that kept any.
    pub versions_begin: Option<String>,
    /// How many bytes were copied to keep versions; none where the file system shares them.
    pub versions_copied: u64,
    /// Whether a due Resource List waits for a later build, as in a watch with changes to publish.
    pub list_is_due: bool,
    /// Whether a due dump waits for a later build.
    pub dump_is_due: bool,
    /// The resources that are symbolic links, see [`Snapshot::links`].
    pub(crate) links: Vec<PathBuf>,
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

/// Updates the site in `out` from the collection of `settings`; [`Build`] has more options. Documents whose content did not change keep their bytes
/// and times.
///
/// Unchanged files are not read. Changes go to the open Change List; the Resource List is written anew by [rule](crate::settings::Rules). Blocks while
/// another build or notification uses the same `out`. Uses all cores for hashing.
pub fn build(settings: &Settings, out: &Path) -> Result<Built, Error> {
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
    scope: Option<Scope>,
    dry_run: Option<&'a DryRun>,
    records: Option<Records>,
    options: Options<'a>,
}

/// The options of a run.
struct Options<'a> {
    claim: Option<&'a Claim>,
    mode: BuildMode,
    allows_empty: bool,
    backoff: Option<&'a mut DumpBackoff>,
    progress: &'a dyn Fn(Progress),
    on_plan: &'a dyn Fn(),
}

impl Default for Options<'_> {
    fn default() -> Self {
        let (claim, mode, allows_empty, backoff) = (None, BuildMode::Full, false, None);
        Self { claim, mode, allows_empty, backoff, progress: &|_| (), on_plan: &|| () }
    }
}

impl fmt::Debug for Build<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Build")
            .field("out", &self.out)
            .field("mode", &self.options.mode)
            .finish_non_exhaustive()
    }
}

impl<'a> Build<'a> {
    /// A full build of the site in `out`.
    #[must_use]
    pub fn new(settings: &'a Settings, out: &'a Path) -> Self {
        Self { settings, out, scope: None, dry_run: None, records: None, options: Options::default() }
    }

    /// Fails if another configuration file took over the claimed site.
    #[must_use]
    pub fn claim(mut self, claim: Option<&'a Claim>) -> Self {
        self.options.claim = claim;
        self
    }

    /// Builds in `out` what a build of its original would write.
    #[must_use]
    pub fn dry_run(self, dry_run: Option<&'a DryRun>) -> Self {
        Self { dry_run, ..self }
    }

    /// How much the build does.
    #[must_use]
    pub fn mode(mut self, mode: BuildMode) -> Self {
        self.options.mode = mode;
        self
    }

    /// Whether to publish that all resources of the last build are gone. Otherwise such a build is refused, since a disk that is not mounted looks the same.
    #[must_use]
    pub fn allow_empty(mut self, allow_empty: bool) -> Self {
        self.options.allows_empty = allow_empty;
        self
    }

    /// Reports progress now and then.
    #[must_use]
    pub fn progress(mut self, progress: &'a dyn Fn(Progress)) -> Self {
        self.options.progress = progress;
        self
    }

    /// Looks only at these files and folders, by their paths below the collection. The caller knows that nothing else changed.
    #[must_use]
    pub(crate) fn only(self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { scope: Some(Scope::new(paths)), ..self }
    }

    /// Takes the bytes of versions from a program.
    #[must_use]
    pub(crate) fn records(self, records: Option<Records>) -> Self {
        Self { records, ..self }
    }

    /// Pauses after failed dumps, for a caller that builds repeatedly.
    #[must_use]
    pub(crate) fn backoff(mut self, backoff: &'a mut DumpBackoff) -> Self {
        self.options.backoff = Some(backoff);
        self
    }

    /// Calls `on_plan` when the plan is saved: from then on the next run completes this one.
    #[must_use]
    pub(crate) fn on_plan(mut self, on_plan: &'a dyn Fn()) -> Self {
        self.options.on_plan = on_plan;
        self
    }

    /// Runs the build. Once all sets of a site of several are built, call [`describe`] for each.
    ///
    /// # Errors
    /// The site stays as it was, or the next build completes it.
    pub fn run(self) -> Result<Built, Error> {
        let Self { settings, out, scope, dry_run, options, .. } = self;
        if !settings.has_files() {
            return Err(Error::NotOfFiles { out: out.to_owned() });
        }
        let directory = settings.directory.canonicalize();
        let directory = directory.map_err(Error::cannot(Action::OpenCollection, &settings.directory))?;
        let folders = NewFolders::make(settings, out);
        let lock = Lock::acquire(out)?;
        options.claim.map_or(Ok(()), Claim::check)?;
        // The documents of the site may lie in the collection.
        let original = dry_run.map(|dry_run| dry_run.original(out)).filter(|original| original.exists());
        let place = original.as_deref().unwrap_or(out);
        refuse_own_documents(&directory, place)?;
        let settings = Settings { directory, ..settings.clone() };
        let mut run = Run::begin(settings, lock, &options)?;
        (run.folders, run.is_dry) = (folders, dry_run.is_some());
        // Without Change Lists to continue, or with new settings, all files count as changed.
        let is_another = run.before.as_ref().is_none_or(|before| before.settings != run.settings);
        let scope = scope.filter(|_| !is_another && matches!(run.published(), Before::Published { .. }));
        let collection = collection::open_within(&run.settings, place, scope.clone())?;
        let expected = run.before.as_ref().filter(|_| scope.is_none()).map(|state| state.totals.resources);
        let progress = options.progress;
        let looked = |files| progress(Progress { work: Work::Looking, done: files, all: expected });
        let (snapshot, listing) =
            listed(&run, out, &looked, |task| task.of_files(collection, scope.as_ref()))?;
        run.carry_out(snapshot, listing, options)
    }

    /// Builds from resources that are not files, in ascending order of their URIs. `open` is called under the lock.
    pub(crate) fn list<I: Inventory>(
        self,
        open: impl FnOnce() -> Result<I, build::BuildError>,
    ) -> Result<Built, Error> {
        let Self { settings, out, records, options, .. } = self;
        let folders = NewFolders::make(settings, out);
        let mut run = Run::begin(settings.clone(), Lock::acquire(out)?, &options)?;
        run.folders = folders;
        let resources = open()?;
        let (snapshot, listing) = listed(&run, out, &|_| (), |mut task| {
            task.versions.contents_of(records);
            task.of_resources(resources)
        })?;
        run.carry_out(snapshot, listing, options)
    }

    /// Publishes given changes; everything else counts as unchanged.
    pub(crate) fn record(self, changes: &[(Change, Item)]) -> Result<Built, Error> {
        let Self { settings, out, records, options, .. } = self;
        if !is_interrupted(out) {
            State::load(out)?;
        }
        let run = Run::begin(settings.clone(), Lock::acquire(out)?, &options)?;
        let (before, mut versions) = (run.published(), run.taking());
        versions.contents_of(records);
        let task = TakeSnapshot {
            settings,
            out,
            before,
            // The caller says of each resource that it is gone.
            guarded: 0,
            observe: &mut |_, _| Ok(()),
            versions,
            progress: &|_| (),
        };
        match task.of_changes(changes)? {
            Some(snapshot) => run.carry_out(snapshot, None, options),
            None => Err(Error::NotListed { out: out.to_owned() }),
        }
    }
}

/// Takes a snapshot, and meanwhile writes the Resource List if the run certainly needs a new one.
fn listed(
    run: &Run,
    out: &Path,
    progress: &dyn Fn(u64),
    take: impl FnOnce(TakeSnapshot<'_>) -> Result<Snapshot, Error>,
) -> Result<(Snapshot, Option<Listing>), Error> {
    let mut listing = run.listing()?;
    let mut observe = |started, item| listing.as_mut().map_or(Ok(()), |listing| listing.add(started, item));
    let (before, guarded, versions) = (run.published(), run.guarded(), run.taking());
    let settings = &run.settings;
    let observe = &mut observe;
    let snapshot = take(TakeSnapshot { settings, out, before, guarded, observe, versions, progress })?;
    listing.as_mut().map_or(Ok(()), Listing::accepted)?;
    Ok((snapshot, listing))
}

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub work: Work,
    /// How many resources are done,
    pub done: u64,
    /// and how many there are, if that is known, or were at the last build.
    pub all: Option<u64>,
}

/// What takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Files are looked at, and read if they may have changed.
    Looking,
    /// The Resource List is written.
    Listing,
    /// Resources are packed into a Resource Dump.
    Packing,
    /// Changes are packed into a Change Dump.
    PackingChanges,
}

/// Whether the rules require a new Resource List for the site in `out`.
pub(crate) fn is_list_due(settings: &Settings, out: &Path) -> Result<bool, Error> {
    let Some(State { series: Some(series), totals, .. }) = State::load_if_built(out)? else {
        return Ok(false);
    };
    Ok(is_outdated(&series, settings.rules, totals.resources, DateTime::now()))
}

/// Whether documents of the site in `out` are being written, or a run that wrote them was interrupted; of a site of several sets, those of any.
pub(crate) fn is_under_way(out: &Path) -> bool {
    let sets = files::folders_in(out).unwrap_or_default();
    std::iter::once(out.to_owned()).chain(sets).any(|out| Plan::exists(&out) || dumps::is_under_way(&out))
}

/// Whether a run has still to be completed.
pub(crate) fn is_interrupted(out: &Path) -> bool {
    Plan::exists(out)
}

/// Writes the Source Description of a site of several sets anew if their number changed, on behalf of the set in `out`. Call it once all sets are built, so
/// that it lists no set before it exists and each channel has a notification of it.
pub fn describe(out: &Path) -> Result<Vec<Written>, Error> {
    let lock = Lock::acquire(out)?;
    complete(&lock)?;
    let (_, written) = execution::describe(&lock, State::load(out)?)?;
    Ok(written)
}

/// As [`describe`], before hubs are notified of the set: another set may have written the Source Description since, or been retired, and then have failed to
/// be built (FN-004). An interrupted run has to be completed by a build first.
pub(crate) fn describe_again(lock: &Lock, state: State) -> Result<State, Error> {
    let is_shared = state.settings.root.is_some() || state.retired.is_some();
    if !is_shared || is_interrupted(lock.out()) {
        return Ok(state);
    }
    let (state, _) = execution::describe(lock, state)?;
    Ok(state)
}

fn refuse_own_documents(directory: &Path, out: &Path) -> Result<(), Error> {
    let inside = out.canonicalize().map_err(Error::cannot(Action::OpenCollection, out))?;
    let own = OWN_FOLDERS.map(|folder| inside.join(folder));
    if own.iter().any(|folder| directory.starts_with(folder)) {
        return Err(Error::CollectionInSite { path: directory.to_owned(), out: out.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
