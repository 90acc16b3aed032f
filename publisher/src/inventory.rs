//! What is in a collection, kept in a file from one run to the next: one line of JSON a resource, in the order of their URLs.
//!
//! A run writes the next inventory beside the last one, and beside both what differs, line by line: nobody ever holds the whole of it. Files
//! that are as they were are not read again.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Lines},
    path::{Path, PathBuf},
    sync::mpsc::channel,
    time::Duration,
};

use resync_core::{
    build::{
        BuildError, Event, FileInventory, Folder, FolderSink, Inventory, Item, Known, Sink as _, SkipReason,
        Skipped, Stamp, Unportable, differences,
    },
    datetime::DateTime,
    digest::{Algorithm, Hashes},
    document::Change,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    files,
    settings::BaseUrl,
    state::FOLDER,
    stored::{text, text_option},
};

/// The inventory that the published documents tell of.
const LAST: &str = "inventory.jsonl";
/// The inventory of a run that is not through.
const NEXT: &str = "inventory-next.jsonl";
/// What differs between the two.
const CHANGES: &str = "changes.jsonl";

/// Changes that are told to have happened at one moment, so that a burst can be cut into notifications (CN-014). With the longest URLs and all
/// digests they stay below the 1 MiB that a hub takes.
pub(crate) const CHANGES_OF_A_MOMENT: u64 = 250;

/// A snapshot of a collection. Every state in it is at least as new as `started` (RS-021).
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// Before the first file was looked at.
    pub(crate) started: DateTime,
    /// After the last file was read.
    pub(crate) completed: DateTime,
    /// The moment of the last change that is told, or of the snapshot.
    pub(crate) until: DateTime,
    /// Number of resources.
    pub(crate) resources: u64,
    /// Sum of their lengths in bytes.
    pub(crate) bytes: u64,
    /// Number of files that had to be read.
    pub(crate) reads: u64,
    /// What differs from the last inventory.
    pub(crate) changes: Changes,
    /// What lies in the folder and was left out, ordered by path.
    pub(crate) skipped: Vec<Skipped>,
    /// The resources whose names not every Destination can keep, ordered by path.
    pub(crate) unportable: Vec<Unportable>,
}

/// How many resources changed in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Resources that are new.
    pub created: u64,
    /// Resources with another representation.
    pub updated: u64,
    /// Resources that are gone.
    pub deleted: u64,
}

impl Changes {
    /// Of all kinds together.
    pub fn total(self) -> u64 {
        self.created + self.updated + self.deleted
    }

    /// These and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            created: self.created + other.created,
            updated: self.updated + other.updated,
            deleted: self.deleted + other.deleted,
        }
    }

    fn count(&mut self, change: Change) {
        match change {
            Change::Created => self.created += 1,
            Change::Updated => self.updated += 1,
            Change::Deleted => self.deleted += 1,
        }
    }
}

/// What the last run told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    /// All changes up to this moment: what differs from its inventory is told.
    Told(DateTime),
    /// Nothing that could go on.
    Nothing,
}

/// Takes the next inventory of `collection`, and what differs from the last one, into the state of the site in `out`.
pub(crate) fn take(
    collection: Folder,
    base: &BaseUrl,
    algorithms: &[Algorithm],
    out: &Path,
    before: Before,
) -> Result<Taken, BuildError> {
    let ((skip, skipped), (wonder, unportable)) = (channel(), channel());
    let mut files = FileInventory::below(collection, base.as_str())
        .algorithms(algorithms.iter().copied())
        .media_type(|path| mime_guess::from_path(path).first().map(|guess| guess.essence_str().to_owned()))
        .on_skipped(move |one| drop(skip.send(one)))
        .on_unportable(move |one| drop(wonder.send(one)))
        .known(last(out)?)
        .start()?;
    let started = files.started();
    let Compared { resources, bytes, changes, until } = compare(started, || files.next_known(), out, before)?;
    // What vanished is no news.
    let mut skipped: Vec<_> = skipped.iter().filter(|one| one.reason != SkipReason::Dangling).collect();
    skipped.sort_by(|one, other| one.path.cmp(&other.path));
    let mut unportable: Vec<_> = unportable.iter().collect();
    unportable.sort_by(|one, other| one.path.cmp(&other.path));
    let (reads, completed) = (files.reads(), DateTime::now().max(started));
    Ok(Taken { started, completed, until, resources, bytes, reads, changes, skipped, unportable })
}

/// The same for resources that are no files, in the order of their URIs.
pub(crate) fn take_from(
    mut resources: impl Inventory,
    out: &Path,
    before: Before,
) -> Result<Taken, BuildError> {
    let started = DateTime::now();
    let next = || resources.next().map(|item| item.map(|item| Known { item, stamp: None }));
    Ok(Taken::of(started, &compare(started, next, out, before)?))
}

/// The same where changes are told and everything else is as it was. They are told as they are, in their order.
pub(crate) fn take_changes(
    told: &[(Change, Item)],
    out: &Path,
    until: DateTime,
) -> Result<Taken, BuildError> {
    let started = DateTime::now();
    let first = started.max(later(until, 1));
    let mut sink = FolderSink::open(out.join(FOLDER))?;
    let mut lines = BufWriter::new(sink.create(CHANGES)?);
    let (mut changes, mut until, mut outcome) = (Changes::default(), first, BTreeMap::new());
    for (change, item) in told {
        until = later(first, changes.total() / CHANGES_OF_A_MOMENT);
        changes.count(*change);
        write_line(&mut lines, &EventLine::from(Event::new(*change, until, item.clone())))?;
        outcome.insert(item.loc.clone(), (*change != Change::Deleted).then(|| item.clone()));
    }
    let mut next = BufWriter::new(sink.create(NEXT)?);
    let (mut resources, mut bytes) = (0, 0);
    for known in with_changes(last(out)?, outcome) {
        let known = known?;
        resources += 1;
        bytes += known.item.length.unwrap_or(0);
        write_line(&mut next, &Line::from(known))?;
    }
    for lines in [next, lines] {
        let staged = sink.stage(lines.into_inner().map_err(io::IntoInnerError::into_error)?)?;
        sink.publish(staged)?;
    }
    Ok(Taken::of(started, &Compared { resources, bytes, changes, until }))
}

/// An inventory in which some resources are another way, or gone.
fn with_changes(
    known: impl Iterator<Item = Result<Known, BuildError>>,
    changes: BTreeMap<String, Option<Item>>,
) -> impl Iterator<Item = Result<Known, BuildError>> {
    let mut known = known.peekable();
    let mut changes = changes.into_iter().peekable();
    std::iter::from_fn(move || {
        loop {
            let order = match (known.peek(), changes.peek()) {
                (None, None) => return None,
                (Some(_), None) | (Some(Err(_)), _) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(Ok(known)), Some((loc, _))) => known.item.loc.cmp(loc),
            };
            if order == Ordering::Less {
                return known.next();
            }
            if order == Ordering::Equal {
                known.next();
            }
            if let Some((_, Some(item))) = changes.next() {
                return Some(Ok(Known { item, stamp: None }));
            }
        }
    })
}

impl Taken {
    /// Of resources that are no files.
    fn of(started: DateTime, compared: &Compared) -> Self {
        let Compared { resources, bytes, changes, until } = *compared;
        let completed = DateTime::now().max(started);
        let (skipped, unportable) = (Vec::new(), Vec::new());
        Self { started, completed, until, resources, bytes, reads: 0, changes, skipped, unportable }
    }
}

struct Compared {
    resources: u64,
    bytes: u64,
    changes: Changes,
    until: DateTime,
}

/// One pass over both inventories: the new one is kept, and what differs is, too.
fn compare(
    started: DateTime,
    next: impl FnMut() -> Option<Result<Known, BuildError>>,
    out: &Path,
    before: Before,
) -> Result<Compared, BuildError> {
    let mut sink = FolderSink::open(out.join(FOLDER))?;
    let mut lines = BufWriter::new(sink.create(NEXT)?);
    let mut told = BufWriter::new(sink.create(CHANGES)?);
    let (mut resources, mut bytes, mut changes) = (0, 0, Changes::default());
    let known: Box<dyn Iterator<Item = Result<Item, BuildError>>> = match before {
        Before::Told(_) => Box::new(last(out)?.map(|known| known.map(|known| known.item))),
        Before::Nothing => Box::new(std::iter::empty()),
    };
    let first = match before {
        Before::Told(until) => started.max(later(until, 1)),
        Before::Nothing => started,
    };
    let mut until = first;
    let after = std::iter::from_fn(next).map(|known| {
        let known = known?;
        resources += 1;
        bytes += known.item.length.unwrap_or(0);
        write_line(&mut lines, &Line::from(known.clone()))?;
        Ok(known.item)
    });
    for event in differences(known, after, first) {
        let event = event?;
        if let Before::Told(_) = before {
            until = later(first, changes.total() / CHANGES_OF_A_MOMENT);
            changes.count(event.change);
            write_line(&mut told, &EventLine::from(Event { moment: until, ..event }))?;
        }
    }
    for lines in [lines, told] {
        let staged = sink.stage(lines.into_inner().map_err(io::IntoInnerError::into_error)?)?;
        sink.publish(staged)?;
    }
    Ok(Compared { resources, bytes, changes, until })
}

/// So many milliseconds after a moment.
fn later(moment: DateTime, milliseconds: u64) -> DateTime {
    DateTime::from_system_time(moment.to_system_time() + Duration::from_millis(milliseconds))
}

fn write_line(lines: &mut impl io::Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.write_all(b"\n")
}

/// The inventory that the published documents tell of; empty before there are any.
fn last(out: &Path) -> Result<impl Iterator<Item = Result<Known, BuildError>> + Send + use<>, BuildError> {
    let lines = match kept::<Line>(out.join(FOLDER).join(LAST)) {
        Err(BuildError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        lines => Some(lines?),
    };
    Ok(lines.into_iter().flatten().map(|line| line.map(Known::from)))
}

/// Whether there is an inventory that the published documents tell of.
pub(crate) fn is_kept(out: &Path) -> bool {
    out.join(FOLDER).join(LAST).is_file()
}

/// The inventory of the run that is not through, or of the last one.
pub(crate) fn newest(
    out: &Path,
) -> Result<impl Iterator<Item = Result<Item, BuildError>> + use<>, BuildError> {
    let next = out.join(FOLDER).join(NEXT);
    let path = if next.exists() { next } else { out.join(FOLDER).join(LAST) };
    Ok(kept::<Line>(path)?.map(|line| line.map(|line| Known::from(line).item)))
}

/// What differs between the last inventory and the next one.
pub(crate) fn changes(
    out: &Path,
) -> Result<impl Iterator<Item = Result<Event, BuildError>> + use<>, BuildError> {
    Ok(kept::<EventLine>(out.join(FOLDER).join(CHANGES))?.map(|line| line.map(Event::from)))
}

/// Makes the next inventory the last one. Does nothing where that is done.
pub(crate) fn advance(out: &Path) -> io::Result<()> {
    let folder = out.join(FOLDER);
    files::rename(&folder.join(NEXT), &folder.join(LAST))?;
    files::remove(&folder.join(CHANGES))
}

/// Lines of JSON in a file.
#[derive(Debug)]
struct Kept<T> {
    lines: Lines<BufReader<File>>,
    path: PathBuf,
    of: std::marker::PhantomData<fn() -> T>,
}

fn kept<T>(path: PathBuf) -> Result<Kept<T>, BuildError> {
    match File::open(&path) {
        Ok(file) => Ok(Kept { lines: BufReader::new(file).lines(), path, of: std::marker::PhantomData }),
        Err(source) => Err(BuildError::File { path, source }),
    }
}

impl<T: DeserializeOwned> Iterator for Kept<T> {
    type Item = Result<T, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next()?;
        let line = line.and_then(|line| Ok(serde_json::from_str(&line)?));
        Some(line.map_err(|source| BuildError::File { path: self.path.clone(), source }))
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    loc: String,
    #[serde(with = "text_option")]
    lastmod: Option<DateTime>,
    length: Option<u64>,
    hashes: String,
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    stamp: Option<Stamp>,
}

impl From<Known> for Line {
    fn from(Known { item, stamp }: Known) -> Self {
        let Item { loc, lastmod, length, hashes, media_type, encoding, .. } = item;
        Self { loc, lastmod, length, hashes: hashes.to_string(), media_type, encoding, stamp }
    }
}

impl From<Line> for Known {
    fn from(line: Line) -> Self {
        let Line { loc, lastmod, length, hashes, media_type, encoding, stamp } = line;
        let hashes = Hashes::parse(&hashes);
        let item = Item { lastmod, length, hashes, media_type, encoding, ..Item::new(loc) };
        Self { item, stamp }
    }
}

#[derive(Serialize, Deserialize)]
struct EventLine {
    #[serde(with = "text")]
    change: Change,
    #[serde(with = "text")]
    moment: DateTime,
    #[serde(flatten)]
    line: Line,
}

impl From<Event> for EventLine {
    fn from(Event { change, moment, item, .. }: Event) -> Self {
        Self { change, moment, line: Line::from(Known { item, stamp: None }) }
    }
}

impl From<EventLine> for Event {
    fn from(EventLine { change, moment, line }: EventLine) -> Self {
        Self::new(change, moment, Known::from(line).item)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use resync_core::digest::Digest;

    use super::*;
    use crate::{collection, settings::Settings};

    fn taken(data: &Path, out: &Path, before: Before) -> Taken {
        fs::create_dir_all(out).unwrap();
        let base = BaseUrl::parse("http://example.org/c").unwrap();
        let collection = collection::open(&Settings::new(data, base.clone()), out).unwrap();
        take(collection, &base, &[Algorithm::Sha256], out, before).unwrap()
    }

    fn told(out: &Path) -> Vec<(Change, String)> {
        let name = |event: Event| event.item.loc.replace("http://example.org/c/", "");
        changes(out).unwrap().map(Result::unwrap).map(|event| (event.change, name(event))).collect()
    }

    #[test]
    fn what_was_taken_is_kept_with_length_digest_and_type_in_the_order_of_urls() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir_all(data.join("b")).unwrap();
        for name in ["c.txt", "b/z.xml", "b/a b.pdf", "a", "b.part"] {
            fs::write(data.join(name), name).unwrap();
        }
        let taken = taken(&data, &out, Before::Nothing);
        assert_eq!((taken.resources, taken.bytes, taken.skipped.len(), taken.reads), (4, 22, 1, 4));
        assert_eq!((taken.changes, told(&out)), (Changes::default(), vec![]));
        assert!(taken.started <= taken.completed);
        let items: Vec<_> = newest(&out).unwrap().map(Result::unwrap).collect();
        let locs: Vec<_> =
            items.iter().map(|item| item.loc.strip_prefix("http://example.org/c/").unwrap()).collect();
        assert_eq!(locs, ["a", "b/a%20b.pdf", "b/z.xml", "c.txt"]);
        let text = &items[3];
        assert_eq!(text.length, Some(5));
        assert_eq!(text.hashes.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, b"c.txt")));
        assert_eq!(text.media_type.as_deref(), Some("text/plain"));
        assert!(text.lastmod.is_some_and(|lastmod| lastmod <= taken.started));
        assert_eq!(items[0].media_type, None);
    }

    #[test]
    fn what_differs_is_told_once_after_the_last_moment_and_a_new_time_alone_is_no_difference() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir(&data).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(data.join(name), name).unwrap();
        }
        let first = taken(&data, &out, Before::Nothing);
        advance(&out).unwrap();
        fs::write(data.join("a"), "other").unwrap();
        fs::remove_file(data.join("b")).unwrap();
        fs::write(data.join("d"), "d").unwrap();
        let touched = File::options().write(true).open(data.join("c")).unwrap();
        touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let ahead = later(first.until, 3_600_000);
        let second = taken(&data, &out, Before::Told(ahead));
        let expected = [(Change::Updated, "a"), (Change::Deleted, "b"), (Change::Created, "d")];
        assert_eq!(told(&out), expected.map(|(change, name)| (change, name.to_owned())));
        assert_eq!(second.changes, Changes { created: 1, updated: 1, deleted: 1 });
        assert!(second.until > ahead, "the clock was set back, time goes on");
        advance(&out).unwrap();
        advance(&out).unwrap();
        let third = taken(&data, &out, Before::Told(second.until));
        assert_eq!((third.changes.total(), told(&out)), (0, vec![]));
    }

    #[test]
    fn cn014_a_burst_has_so_many_moments_that_it_can_be_cut() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir(&data).unwrap();
        let first = taken(&data, &out, Before::Nothing);
        advance(&out).unwrap();
        for number in 0..=2 * CHANGES_OF_A_MOMENT {
            fs::write(data.join(format!("{number:04}")), "").unwrap();
        }
        let burst = taken(&data, &out, Before::Told(first.until));
        let mut moments: Vec<_> = changes(&out).unwrap().map(|event| event.unwrap().moment).collect();
        assert!(moments.is_sorted() && moments[0] > first.until);
        assert_eq!(moments.last(), Some(&burst.until));
        moments.dedup();
        assert_eq!(moments.len(), 3);
    }
}
