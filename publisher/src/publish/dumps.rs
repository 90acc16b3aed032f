//! Dumps on request: packages with every resource, or with every change since the last such dump.
//!
//! They contain what the lists have as of the last build (RS-007). An interrupted dump is made anew by the next. Builds go on while one is packed: what changes
//! meanwhile is packed as it is then, and the manifest says so, or is left out.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use resync_core::{
    build::{
        self, ChangeDumps, Completed, Event, FileContents, FileInventory, Known, Published, ResourceDumps,
        Rotation, Versions,
    },
    datetime::DateTime,
    digest::Algorithm,
    document::{Capability, Link},
};

use super::{
    Claim, Dump, Progress, Work, Written, completing,
    dump_staging::DumpStaging,
    execution,
    listed_changes::ListedChanges,
    listing::documents_of as documents_of_set,
    snapshots::{Archive, Snapshots},
    staging::Staging,
};
use crate::{
    error::{Action, Error},
    helpers::files,
    inventory::{Linker, PATCH_FOLDER, StoredInventory, collection},
    site::{DOCUMENT_FOLDER, Site},
    state::{DumpLock, FOLDER, Lock, Part, State},
    versions::Store,
};

/// What a dump holds.
#[derive(Clone, Debug, Default)]
pub struct Dumped {
    /// Number of packages that were added.
    pub packages: u64,
    /// How many resources or changes it does not contain, because their bytes are gone.
    pub gone: u64,
    /// The documents that were written, in that order.
    pub written: Vec<Written>,
}

/// Packs the resources, or the changes, that the last build of the set in `out` listed. Build first, so that the dump is up to date.
///
/// Reports progress now and then. The site is locked while the content of the dump is determined, and while its documents are published, but not while it
/// is packed: builds go on.
pub fn dump(out: &Path, what: Dump, progress: &dyn Fn(Progress)) -> Result<Dumped, Error> {
    let lock = DumpLock::acquire(out)?;
    let task = DumpTask { lock: &lock, out, claim: None, what, progress };
    Ok(task.make(&|_| true)?.unwrap_or_default())
}

/// A dump to be made.
pub(super) struct DumpTask<'a> {
    pub(super) lock: &'a DumpLock,
    pub(super) out: &'a Path,
    pub(super) claim: Option<&'a Claim>,
    pub(super) what: Dump,
    pub(super) progress: &'a dyn Fn(Progress),
}

impl DumpTask<'_> {
    /// Makes it, if the site still needs it once that is locked.
    pub(super) fn make(&self, is_needed: &dyn Fn(&State) -> bool) -> Result<Option<Dumped>, Error> {
        let Self { out, claim, what, .. } = *self;
        let lock = settled(out, claim)?;
        let before = State::load(out)?;
        if !is_needed(&before) {
            return Ok(None);
        }
        if !before.settings.has_files() {
            return Err(Error::NotOfFiles { out: out.to_owned() });
        }
        let mut dump_staging = DumpStaging::open(out, self.lock)?;
        let content = Content::of(what, out, &before, &dump_staging)?;
        drop(lock);
        let packed = content.pack(out, &before, &mut dump_staging, self.progress);
        let lock = settled(out, claim)?;
        let state = State::load(out)?;
        if is_overtaken(what, &before, &state) {
            return Err(Error::Overtaken { out: out.to_owned() });
        }
        let published = packed?;
        let was_interrupted = is_under_way(out);
        let mut staging = Staging::open(out.join(DOCUMENT_FOLDER))?;
        let carried_out = announce(what, out, &before, &mut staging)
            .and_then(|()| Ok(dump_staging.carry_out(&mut staging)?));
        if carried_out.is_err() && !was_interrupted && !staging.has_published() {
            // All documents agree. The error to return is the one before.
            let _ = complete(out);
        }
        carried_out?;
        drop(staging);
        let documents = documents_of(what, &Site::of(&before.settings), &published);
        let until = before.series.map(|series| series.until);
        let written = execution::record_dump(&lock, state, what, until, documents)?;
        if what == Dump::Changes {
            complete(out)?;
        }
        Ok(Some(Dumped { packages: published.entries, gone: published.gone, written }))
    }
}

/// Locks a site and completes an interrupted run.
fn settled(out: &Path, claim: Option<&Claim>) -> Result<Lock, Error> {
    let lock = Lock::acquire(out)?;
    claim.map_or(Ok(()), Claim::check)?;
    completing::complete(&lock)?;
    Ok(lock)
}

/// Whether the dumps to be continued have changed, or the site is another one, or its Change Lists started anew (RS-143).
fn is_overtaken(what: Dump, before: &State, now: &State) -> bool {
    let capability = what.capability();
    let is_same_site = before.settings.base_url == now.settings.base_url && now.retired.is_none();
    let begun = |state: &State| state.series.as_ref().map(|series| series.begun);
    let is_same_series = what == Dump::Resources || begun(before) == begun(now);
    !is_same_site || !is_same_series || !before.of_kind(&capability).eq(now.of_kind(&capability))
}

/// What a dump will contain.
enum Content {
    Resources(ResourceDumps, Box<dyn Iterator<Item = Result<Known, build::BuildError>>>),
    Changes(ChangeDumps, ListedChanges),
}

impl Content {
    /// As of the state `before`, under its lock: files that are opened now are read later, even if they are replaced.
    fn of(what: Dump, out: &Path, before: &State, dump_staging: &DumpStaging) -> Result<Self, Error> {
        let Some(series) = &before.series else {
            return Err(Error::NotBuilt { out: out.to_owned() });
        };
        let documents = documents_of_set(&before.settings);
        Ok(match what {
            Dump::Resources => {
                let (stem, most) = naming(before, series.until);
                let dumps =
                    ResourceDumps::new(&documents, series.until).completed(Completed::Now).stem(&stem);
                let archive = Archive::of_dumps(dump_staging, &documents, current(before), &stem, most)?;
                let dumps = archive.url(&documents).into_iter().fold(dumps, ResourceDumps::archives);
                Self::Resources(dumps, Box::new(StoredInventory::last(out).resources()?))
            }
            Dump::Changes => {
                // A dump that is old enough for the archive has to be closed first.
                let rotation = Rotation { age: before.settings.rules.archive_age(), ..Rotation::default() };
                let dumps = ChangeDumps::new(&documents).rotation(rotation);
                let end = dumps.end(dump_staging)?;
                let site = Site::of(&before.settings);
                Self::Changes(dumps, ListedChanges::after(end, out, &site, series)?)
            }
        })
    }

    fn pack(
        self,
        out: &Path,
        before: &State,
        dump_staging: &mut DumpStaging,
        progress: &dyn Fn(Progress),
    ) -> Result<Published, Error> {
        let collection = collection::open(&before.settings, out)?;
        let contents = FileInventory::below(collection, before.settings.base_url.as_str()).contents();
        Ok(match self {
            Self::Resources(dumps, resources) => {
                let linker = Linker::of(&before.settings);
                let items = resources.zip(1..).map(|(known, done)| {
                    progress(Progress { work: Work::Packing, done, all: Some(before.totals.resources) });
                    known.map(|known| linker.item(known.item))
                });
                dumps.write(items, contents, dump_staging)?
            }
            Self::Changes(dumps, changes) => {
                let all = Some(changes.count()?);
                let events = changes.events().zip(1..).map(|(event, done)| {
                    progress(Progress { work: Work::PackingChanges, done, all });
                    event
                });
                let (from, until) = (changes.from, changes.until);
                let (store, url) = (Store::of(out), Site::of(&before.settings).place("").url);
                let versions = Present { contents, store, out, url };
                dumps.record(dump_staging, from, events, versions, until)?
            }
        })
    }
}

/// The beginning of the names of the next Resource Dump, and how many earlier ones stay.
fn naming(state: &State, at: DateTime) -> (String, usize) {
    let most = state.settings.rules.resource_dumps_kept.saturating_sub(1);
    (if most > 0 { Snapshots::Dumps.stem_at(at) } else { Snapshots::Dumps.stem().to_owned() }, most)
}

/// The name of the present Resource Dump.
fn current(state: &State) -> Option<&str> {
    let top = state.of_kind(&Capability::ResourceDump).find(|record| record.is_top());
    top.and_then(|record| record.path.rsplit('/').next())
}

/// Is called before the first document of a dump is published: archives the dump before if it is to stay, and marks that an index may be late.
fn announce(what: Dump, out: &Path, before: &State, staging: &mut Staging) -> Result<(), Error> {
    match (what, &before.series) {
        (Dump::Resources, Some(series)) => {
            let (stem, most) = naming(before, series.until);
            let documents = documents_of_set(&before.settings);
            let archive = Archive::of_dumps(staging, &documents, current(before), &stem, most)?;
            Ok(archive.write(staging, &documents, DateTime::now())?)
        }
        (Dump::Resources, None) => Ok(()),
        (Dump::Changes, _) => mark_under_way(out),
    }
}

/// Marks that a Change Dump is being published, so that a check knows why its index may be late. It needs no plan: an interrupted one is made anew.
fn mark_under_way(out: &Path) -> Result<(), Error> {
    let path = mark(out);
    files::replace(&path, b"").map_err(Error::cannot(Action::Write, &path))
}

fn complete(out: &Path) -> Result<(), Error> {
    let path = mark(out);
    files::remove(&path).map_err(Error::cannot(Action::Write, &path))
}

/// Whether a Change Dump is being published, or was interrupted.
pub(super) fn is_under_way(out: &Path) -> bool {
    mark(out).exists()
}

fn mark(out: &Path) -> PathBuf {
    out.join(FOLDER).join("change-dump-under-way")
}

/// The versions that are kept, the present bytes of files, and the patches of the site.
struct Present<'a> {
    contents: FileContents,
    store: Store,
    out: &'a Path,
    url: String,
}

impl Versions for Present<'_> {
    type Content = File;

    fn open_version(&mut self, event: &Event) -> io::Result<Option<File>> {
        let digest = event.item.hashes.get(Algorithm::Sha256);
        let kept = digest.map(|digest| self.store.open(digest)).transpose()?.flatten();
        kept.map_or_else(|| self.contents.open_version(event), |kept| Ok(Some(kept)))
    }

    fn open_patch(&mut self, link: &Link) -> io::Result<Option<File>> {
        let path = link.href.strip_prefix(&self.url).filter(|path| Path::new(path).starts_with(PATCH_FOLDER));
        path.map(|path| File::open(self.out.join(path))).transpose()
    }
}

/// The documents to record, with their parts.
fn documents_of(what: Dump, site: &Site, published: &Published) -> Vec<(String, Capability, Part)> {
    let index = |name: &str| site.place(&format!("{DOCUMENT_FOLDER}/{name}")).url;
    let names: Vec<String> = match what {
        Dump::Resources => {
            let is_list = |name: &&String| {
                let bytes = name.as_bytes();
                bytes.ends_with(b".xml") && !bytes.ends_with(b"-manifest.xml")
            };
            published.documents.iter().filter(is_list).cloned().collect()
        }
        Dump::Changes => {
            let open = published.position().unwrap_or_default().document;
            vec![format!("changedump-{open}.xml"), "changedump.xml".to_owned()]
        }
    };
    let top = names.last().cloned().unwrap_or_default();
    let is_one = names.len() == 1;
    let part = |name: &str| match (is_one, name == top) {
        (true, _) => Part::Whole,
        (_, true) => Part::Index,
        _ => Part::Component { index: index(&top) },
    };
    names.iter().map(|name| (name.clone(), what.capability(), part(name))).collect()
}
