//! Dumps on request: packages with every resource, or with every change since the last such dump.
//!
//! They tell what the lists tell, as of the build before (RS-007). A dump that was cut short is made anew by the next. Builds go on while one is packed: what
//! changes meanwhile is packed as it is then, and the manifest says so, or is left out, as with every dump of files.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use resync_core::{
    build::{
        self, ChangeDumps, Completed, Event, FileContents, FileInventory, Item, Known, Published,
        ResourceDumps, Rotation, Versions,
    },
    datetime::DateTime,
    document::{Capability, Link},
    xml::{ReadError, Reader},
};

use super::{
    BuildError, Claim, Progress, Work, Written, complete,
    dump_staging::DumpStaging,
    listing::documents_of as documents_of_set,
    run,
    snapshots::{Archive, Snapshots},
    staging::Staging,
};
use crate::{
    collection, files,
    inventory::{Kept, PATCH_FOLDER},
    links::Linker,
    lock::{DumpLock, Lock},
    site::{DOCUMENT_FOLDER, Site},
    state::{DocumentRecord, FOLDER, Part, Series, State, StateError},
};

/// What is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// Every resource (RS-100).
    Resources,
    /// Every change since the last Change Dump, with the bytes that it led to (RS-140).
    Changes,
}

impl Dump {
    /// The capability of its documents.
    pub fn capability(self) -> Capability {
        match self {
            Self::Resources => Capability::ResourceDump,
            Self::Changes => Capability::ChangeDump,
        }
    }
}

/// What a dump holds.
#[derive(Clone, Debug, Default)]
pub struct Dumped {
    /// Number of packages that were added.
    pub packages: u64,
    /// How many resources or changes it does not tell of, because their bytes are gone.
    pub gone: u64,
    /// The documents that were written, in that order.
    pub written: Vec<Written>,
}

/// Packs the resources, or the changes, that the last build of the set in `out` told of. Build first, so that the dump is of now.
///
/// The site is locked while it is found out what the dump holds, and while its documents come to their places, and not while it is packed: builds go on.
pub fn dump(out: &Path, what: Dump) -> Result<Dumped, BuildError> {
    dump_with_progress(out, what, &|_| ())
}

/// As [`dump`], with progress reports.
pub fn dump_with_progress(out: &Path, what: Dump, tell: &dyn Fn(Progress)) -> Result<Dumped, BuildError> {
    let turn = DumpLock::acquire(out)?;
    Ok(make(&turn, (out, None), what, &|_| true, tell)?.unwrap_or_default())
}

/// The same for a site that was claimed, where the dump is still wanted of the site as it is once that is locked.
pub(super) fn make(
    turn: &DumpLock,
    (out, claim): (&Path, Option<&Claim>),
    what: Dump,
    is_wanted: &dyn Fn(&State) -> bool,
    tell: &dyn Fn(Progress),
) -> Result<Option<Dumped>, BuildError> {
    let lock = settled(out, claim)?;
    let before = State::load(out)?;
    if !is_wanted(&before) {
        return Ok(None);
    }
    let mut dump_staging = DumpStaging::open(out, turn)?;
    let task = Task::of(what, out, &before, &dump_staging)?;
    drop(lock);
    let published = task.pack((out, &before), &mut dump_staging, tell)?;
    let lock = settled(out, claim)?;
    let state = State::load(out)?;
    if is_overtaken(what, &before, &state) {
        return Err(BuildError::Overtaken { out: out.to_owned() });
    }
    let was_cut_short = is_under_way(out);
    let mut staging = Staging::open(out.join(DOCUMENT_FOLDER))?;
    let carried_out =
        announce(what, out, &before, &mut staging).and_then(|()| Ok(dump_staging.carry_out(&mut staging)?));
    if carried_out.is_err() && !was_cut_short && !staging.has_published() {
        // All documents agree. The failure to tell is the one before.
        let _ = through(out);
    }
    carried_out?;
    drop(staging);
    let documents = documents_of(what, &Site::of(&before.settings), &published);
    let until = before.series.map(|series| series.until);
    let written = run::note_dump(&lock, state, (what, until), documents)?;
    if what == Dump::Changes {
        through(out)?;
    }
    Ok(Some(Dumped { packages: published.entries, gone: published.gone, written }))
}

/// The right to change a site, on which nothing is left to be done.
fn settled(out: &Path, claim: Option<&Claim>) -> Result<Lock, BuildError> {
    let lock = Lock::acquire(out)?;
    claim.map_or(Ok(()), Claim::check)?;
    complete(&lock)?;
    Ok(lock)
}

/// Whether the dumps that were gone on from are not what they were, or the site is another one, or tells its changes anew (RS-143).
fn is_overtaken(what: Dump, before: &State, now: &State) -> bool {
    fn dumps(state: &State, what: Dump) -> impl Iterator<Item = &DocumentRecord> {
        state.documents.iter().filter(move |record| record.capability == what.capability())
    }
    let is_same_site = before.settings.base_url == now.settings.base_url && now.left.is_none();
    let begun = |state: &State| state.series.as_ref().map(|series| series.begun);
    let is_same_series = what == Dump::Resources || begun(before) == begun(now);
    !is_same_site || !is_same_series || !dumps(before, what).eq(dumps(now, what))
}

/// What a dump holds, and how it is made.
enum Task {
    Resources(ResourceDumps, Box<dyn Iterator<Item = Result<Known, build::BuildError>>>),
    Changes(ChangeDumps, Recorded),
}

impl Task {
    /// As of the state `before`, under its lock: what is opened now is read later, whatever replaces it.
    fn of(what: Dump, out: &Path, before: &State, dump_staging: &DumpStaging) -> Result<Self, BuildError> {
        let Some(series) = &before.series else {
            return Err(StateError::NotBuilt { out: out.to_owned() }.into());
        };
        let documents = documents_of_set(&before.settings);
        Ok(match what {
            Dump::Resources => {
                let (stem, most) = naming(before, series.until);
                let dumps =
                    ResourceDumps::new(&documents, series.until).completed(Completed::Now).stem(&stem);
                let archive = Archive::of_dumps(dump_staging, &documents, current(before), &stem, most)?;
                let dumps = archive.url(&documents).into_iter().fold(dumps, ResourceDumps::archives);
                Self::Resources(dumps, Box::new(Kept::last(out).resources()?))
            }
            Dump::Changes => {
                // One that is of an age for the archive has to be closed first.
                let rotation = Rotation { age: before.settings.rules.archive_age(), ..Rotation::default() };
                let dumps = ChangeDumps::new(&documents).rotation(rotation);
                let end = dumps.end(dump_staging)?;
                let recorded = recorded(out, &Site::of(&before.settings), series, end)?;
                Self::Changes(dumps, recorded)
            }
        })
    }

    fn pack(
        self,
        (out, before): (&Path, &State),
        dump_staging: &mut DumpStaging,
        tell: &dyn Fn(Progress),
    ) -> Result<Published, BuildError> {
        let collection = collection::open(&before.settings, out)?;
        let contents = FileInventory::below(collection, before.settings.base_url.as_str()).contents();
        Ok(match self {
            Self::Resources(dumps, resources) => {
                let linker = Linker::of(&before.settings);
                let items = resources.zip(1..).map(|(known, done)| {
                    tell(Progress { work: Work::Packing, done, all: Some(before.resources) });
                    known.map(|known| linker.item(known.item))
                });
                dumps.write(items, contents, dump_staging)?
            }
            Self::Changes(dumps, Recorded { from, until, events }) => {
                let all = u64::try_from(events.len()).ok();
                let events = events.into_iter().zip(1..).map(|(event, done)| {
                    tell(Progress { work: Work::PackingChanges, done, all });
                    Ok(event)
                });
                let versions = Present { contents, out, url: Site::of(&before.settings).place("").url };
                dumps.record(dump_staging, from, events, versions, until)?
            }
        })
    }
}

/// What the names of the next Resource Dump begin with, and how many of those before stay.
fn naming(state: &State, at: DateTime) -> (String, usize) {
    let most = state.settings.rules.resource_dumps_kept.saturating_sub(1);
    (if most > 0 { Snapshots::Dumps.stem_at(at) } else { Snapshots::Dumps.stem().to_owned() }, most)
}

/// The name of the Resource Dump that there is.
fn current(state: &State) -> Option<&str> {
    let is_top = |record: &&DocumentRecord| {
        record.capability == Capability::ResourceDump && !matches!(record.part, Part::Component { .. })
    };
    state.documents.iter().find(is_top).and_then(|record| record.path.rsplit('/').next())
}

/// Comes before anybody sees the first document of a dump: the one before is archived where it is to stay, and who checks the site is told that an index
/// may be late.
fn announce(what: Dump, out: &Path, before: &State, staging: &mut Staging) -> Result<(), BuildError> {
    match (what, &before.series) {
        (Dump::Resources, Some(series)) => {
            let (stem, most) = naming(before, series.until);
            let documents = documents_of_set(&before.settings);
            let archive = Archive::of_dumps(staging, &documents, current(before), &stem, most)?;
            Ok(archive.write(staging, &documents, DateTime::now())?)
        }
        (Dump::Resources, None) => Ok(()),
        (Dump::Changes, _) => under_way(out),
    }
}

/// Says that a Change Dump is being made, so that a check knows why its index may be late. It needs no plan: one that was cut short is made anew.
fn under_way(out: &Path) -> Result<(), BuildError> {
    let path = mark(out);
    files::replace(&path, b"").map_err(|source| BuildError::Write { path, source })
}

fn through(out: &Path) -> Result<(), BuildError> {
    let path = mark(out);
    files::remove(&path).map_err(|source| BuildError::Write { path, source })
}

/// Whether a Change Dump is being made, or was cut short.
pub(super) fn is_under_way(out: &Path) -> bool {
    mark(out).exists()
}

fn mark(out: &Path) -> PathBuf {
    out.join(FOLDER).join("change-dump-under-way")
}

/// The present bytes of files, and the patches of the site.
struct Present<'a> {
    contents: FileContents,
    out: &'a Path,
    url: String,
}

impl Versions for Present<'_> {
    type Content = File;

    fn open_version(&mut self, event: &Event) -> io::Result<Option<File>> {
        self.contents.open_version(event)
    }

    fn open_patch(&mut self, link: &Link) -> io::Result<Option<File>> {
        let path = link.href.strip_prefix(&self.url).filter(|path| Path::new(path).starts_with(PATCH_FOLDER));
        path.map(|path| File::open(self.out.join(path))).transpose()
    }
}

/// The documents to note, with their places among each other.
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

struct Recorded {
    from: DateTime,
    until: DateTime,
    events: Vec<Event>,
}

/// What the Change Lists tell after a moment, oldest first; all of it without one.
fn recorded(
    out: &Path,
    site: &Site,
    series: &Series,
    after: Option<DateTime>,
) -> Result<Recorded, BuildError> {
    let mut lists = Vec::new();
    let mut from = None;
    // Closed lists that end before the moment have nothing to add, and neither have those before them.
    for number in (1..=series.position.document).rev() {
        let name = site.change_list_component(number).path;
        let unreadable = |source| build::BuildError::Published { name: name.clone(), source };
        let file = File::open(out.join(&name)).map_err(|source| unreadable(ReadError::Io(source)))?;
        let list = Reader::new(BufReader::new(file)).map_err(unreadable)?;
        let metadata = list.header().metadata.clone();
        from = metadata.from.or(from);
        if metadata.until.zip(after).is_some_and(|(until, after)| until <= after) {
            break;
        }
        let mut events = Vec::new();
        for entry in list {
            let entry = entry.map_err(unreadable)?;
            let recorded =
                entry.metadata.as_ref().and_then(|metadata| metadata.change.zip(metadata.datetime));
            let Some((change, moment)) = recorded else { continue };
            if after.is_none_or(|after| moment > after) {
                events.push(Event::new(change, moment, Item::from_entry(entry)));
            }
        }
        lists.push(events);
    }
    let from =
        from.ok_or_else(|| io::Error::other("a Change List has no from")).map_err(build::BuildError::from)?;
    Ok(Recorded { from, until: series.until, events: lists.into_iter().rev().flatten().collect() })
}
