//! Dumps on request: packages with every resource, or with every change since the last such dump.
//!
//! They tell what the lists tell, as of the last build (RS-007). A dump that was cut short is made anew by the next.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use resync_core::{
    build::{
        self, ChangeDumps, Completed, Event, FileContents, FileInventory, Item, Published, ResourceDumps,
        Rotation, Versions,
    },
    datetime::DateTime,
    document::{Capability, Link},
    xml::{ReadError, Reader},
};

use super::{
    BuildError, Progress, Work, Written, complete,
    desk::Desk,
    run,
    snapshots::{self, Snapshots},
};
use crate::{
    collection, files,
    inventory::{Kept, PATCH_FOLDER},
    links::Linker,
    lock::Lock,
    plan::StoredPosition,
    site::{DOCUMENT_FOLDER, Site},
    state::{DocumentRecord, FOLDER, Part, State, StateError},
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
#[derive(Clone, Debug)]
pub struct Dumped {
    /// Number of packages that were added.
    pub packages: u64,
    /// How many resources or changes it does not tell of, because their bytes are gone.
    pub gone: u64,
    /// The documents that were written, in that order.
    pub written: Vec<Written>,
}

/// Packs the resources, or the changes, that the last build of the set in `out` told of. Build first, so that the dump is of now.
pub fn dump(out: &Path, what: Dump) -> Result<Dumped, BuildError> {
    dump_telling(out, what, &|_| ())
}

/// The same, saying now and then how far it has come.
pub fn dump_telling(out: &Path, what: Dump, tell: &dyn Fn(Progress)) -> Result<Dumped, BuildError> {
    let lock = Lock::acquire(out)?;
    complete(&lock)?;
    pack(&lock, what, tell)
}

/// The same for who may change the site.
pub(super) fn pack(lock: &Lock, what: Dump, tell: &dyn Fn(Progress)) -> Result<Dumped, BuildError> {
    let out = lock.out();
    let before = State::load(out)?;
    let Some(series) = before.series.clone() else {
        return Err(StateError::NotBuilt { out: out.to_owned() }.into());
    };
    let collection = collection::open(&before.settings, out)?;
    let contents = FileInventory::below(collection, before.settings.base_url.as_str()).contents();
    let site = Site::of(&before.settings);
    let documents = build::Site::new(&site.place(DOCUMENT_FOLDER).url);
    let linker = Linker::of(&before.settings);
    let mut sink = Desk::open(out.join(DOCUMENT_FOLDER))?;
    let published = match what {
        Dump::Resources => resource_dumps(&before, &documents, &mut sink, series.until)?.write(
            Kept::last(out).resources()?.zip(1..).map(|(known, done)| {
                tell(Progress { work: Work::Packing, done, all: Some(before.resources) });
                known.map(|known| linker.item(known.item))
            }),
            contents,
            &mut sink,
        )?,
        Dump::Changes => {
            // One that is of an age for the archive has to be closed first.
            let rotation = Rotation { age: before.settings.rules.archive_age(), ..Rotation::default() };
            let dumps = ChangeDumps::new(&documents).rotation(rotation);
            let end = dumps.end(&sink)?;
            let changes = told(out, &site, series.position, end)?;
            let all = u64::try_from(changes.events.len()).ok();
            let events = changes.events.into_iter().zip(1..).map(|(event, done)| {
                tell(Progress { work: Work::PackingChanges, done, all });
                Ok(event)
            });
            let versions = Present { contents, out, url: site.place("").url };
            let was_cut_short = is_under_way(out);
            under_way(out)?;
            let recorded = dumps.record(&mut sink, changes.from, events, versions, series.until);
            if recorded.is_err() && !was_cut_short && !sink.has_published() {
                // All documents agree. The failure to tell is the one before.
                let _ = through(out);
            }
            recorded?
        }
    };
    drop(sink);
    let documents = documents_of(what, &site, &published);
    let written = run::note_dump(lock, before, documents)?;
    through(out)?;
    Ok(Dumped { packages: published.entries, gone: published.gone, written })
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

/// How the next Resource Dump is made; the one before is archived where it is to stay.
fn resource_dumps(
    state: &State,
    documents: &build::Site,
    sink: &mut Desk,
    at: DateTime,
) -> Result<ResourceDumps, BuildError> {
    let dumps = ResourceDumps::new(documents, at).completed(Completed::Now);
    let most = state.settings.rules.resource_dumps_kept.saturating_sub(1);
    let is_top = |record: &&DocumentRecord| {
        record.capability == Capability::ResourceDump && !matches!(record.part, Part::Component { .. })
    };
    let current = state.documents.iter().find(is_top);
    let current = current.and_then(|record| record.path.rsplit('/').next());
    let stem = if most > 0 { Snapshots::Dumps.stem_at(at) } else { Snapshots::Dumps.stem().to_owned() };
    let is_archived = snapshots::archive_dump(sink, documents, current, &stem, most, DateTime::now())?;
    let dumps = dumps.stem(stem);
    Ok(if is_archived { dumps.archives(documents.url(&Snapshots::Dumps.archive())) } else { dumps })
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

struct Told {
    from: DateTime,
    events: Vec<Event>,
}

/// What the Change Lists tell after a moment, oldest first; all of it without one.
fn told(out: &Path, site: &Site, open: StoredPosition, after: Option<DateTime>) -> Result<Told, BuildError> {
    let mut lists = Vec::new();
    let mut from = None;
    // Closed lists that end before the moment have nothing to add, and neither have those before them.
    for number in (1..=open.document).rev() {
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
            let told = entry.metadata.as_ref().and_then(|metadata| metadata.change.zip(metadata.datetime));
            let Some((change, moment)) = told else { continue };
            if after.is_none_or(|after| moment > after) {
                events.push(Event::new(change, moment, Item::from_entry(entry)));
            }
        }
        lists.push(events);
    }
    let from =
        from.ok_or_else(|| io::Error::other("a Change List has no from")).map_err(build::BuildError::from)?;
    Ok(Told { from, events: lists.into_iter().rev().flatten().collect() })
}
