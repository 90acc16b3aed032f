//! What is in a collection, kept from one run to the next ([`Kept`]), and how it differs from what the last run told.
//!
//! A run keeps the next inventory beside the last one, and beside both what differs. Files that are as they were are not read again.

mod kept;
mod moments;
mod patches;
mod scope;

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    io::{self, BufWriter},
    path::Path,
    sync::mpsc::channel,
};

use resync_core::{
    build::{
        BuildError, Event, FileInventory, Folder, FolderDraft, FolderSink, Inventory, Item, Known, Sink as _,
        SkipReason, Skipped, Unportable,
    },
    datetime::DateTime,
    document::Change,
};
use serde::{Deserialize, Serialize};

use self::{
    kept::{First, Line, Side, Stored, write_known, write_line},
    moments::{Moments, later},
    patches::Patches,
};
pub(crate) use self::{
    kept::{Kept, is_whole},
    moments::length,
    patches::{PATCH_FOLDER, PATCH_TYPE},
    scope::Scope,
};
use crate::{files, settings::Settings, state::FOLDER, stored::text};

/// What differs between the last inventory and the next one.
const CHANGES: &str = "changes.jsonl";

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
    /// All changes up to this moment: what differs from its inventory, with so many resources and bytes, is told. To be told `quickly`, the whole
    /// inventory is written only when as much as that has changed. `relinked`: the resources get other links than they had.
    Published { until: DateTime, resources: u64, bytes: u64, quickly: bool, relinked: bool },
    /// Nothing that could go on.
    Nothing,
}

/// Hears of each resource of a snapshot that was begun at this moment, in their order, and of none when it is through.
pub(crate) type Heard<'a> = &'a mut dyn FnMut(DateTime, Option<Item>) -> Result<(), BuildError>;

/// Takes the next inventory of `collection`, and what differs from the last one, into the state of the site in `out`.
///
/// With a `scope` only what that names is looked at, and everything else is as it was; then nobody hears of that.
pub(crate) fn take(
    collection: Folder,
    settings: &Settings,
    out: &Path,
    before: Before,
    scope: Option<&Scope>,
    heard: Heard<'_>,
    record: &dyn Fn(u64),
) -> Result<Taken, BuildError> {
    let ((skip, skipped), (wonder, unportable)) = (channel(), channel());
    let last = Kept::last(out);
    let known = match scope {
        None => None,
        Some(scope) => Some(scope.known(&last, &settings.base_url)?),
    };
    let files = FileInventory::below(collection, settings.base_url.as_str())
        .algorithms(settings.hash.iter().copied())
        .media_type(|path| mime_guess::from_path(path).first_raw().map(str::to_ascii_lowercase))
        .on_skipped(move |one| drop(skip.send(one)))
        .on_unportable(move |one| drop(wonder.send(one)));
    let mut files = match &known {
        None => files.known(last.resources()?),
        Some(known) => files.known(known.clone().into_iter().map(Ok)),
    }
    .start()?;
    let started = files.started();
    let mut looked = 0;
    let next = || {
        looked += 1;
        record(looked);
        files.next_known()
    };
    let mut patches = Patches::of(settings, out);
    let compared = match (known, before) {
        (Some(known), Before::Published { until, resources, bytes, quickly, .. }) => {
            let moments = Moments::new(started.max(later(until, 1)), settings);
            let news = of_scope(moments, known, next, &mut patches)?;
            news.keep(out, &last, (resources, bytes), last.is_due(quickly))?
        }
        _ => compare((started, settings), next, out, before, &mut patches, heard)?,
    };
    // What vanished is no news.
    let mut skipped: Vec<_> = skipped.iter().filter(|one| one.reason != SkipReason::Dangling).collect();
    skipped.sort_by(|one, other| one.path.cmp(&other.path));
    let mut unportable: Vec<_> = unportable.iter().collect();
    unportable.sort_by(|one, other| one.path.cmp(&other.path));
    let taken = Taken::of(started, &compared);
    Ok(Taken { reads: files.reads(), skipped, unportable, ..taken })
}

/// The same for resources that are no files, in the order of their URIs.
pub(crate) fn take_from(
    mut resources: impl Inventory,
    settings: &Settings,
    out: &Path,
    before: Before,
    heard: Heard<'_>,
    record: &dyn Fn(u64),
) -> Result<Taken, BuildError> {
    let started = DateTime::now();
    let mut looked = 0;
    let next = || {
        looked += 1;
        record(looked);
        resources.next().map(|item| item.map(|item| Known { item, stamp: None }))
    };
    Ok(Taken::of(started, &compare((started, settings), next, out, before, &mut Patches::none(), heard)?))
}

/// The same where changes are told and everything else is as it was. They are told as they are, in their order.
pub(crate) fn take_changes(
    recorded: &[(Change, Item)],
    settings: &Settings,
    out: &Path,
    before: (DateTime, u64, u64),
    quickly: bool,
) -> Result<Taken, BuildError> {
    let started = DateTime::now();
    let (until, resources, bytes) = before;
    let mut news = ChangeRecorder::new(Moments::new(started.max(later(until, 1)), settings));
    for (change, item) in recorded {
        news.record(*change, item.clone())?;
        let known = (*change != Change::Deleted).then(|| Known { item: item.clone(), stamp: None });
        news.outcome.insert(item.loc.clone(), known);
    }
    let last = Kept::last(out);
    let compared = news.keep(out, &last, (resources, bytes), last.is_due(quickly))?;
    Ok(Taken::of(started, &compared))
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

/// Few changes, in memory.
struct ChangeRecorder {
    moments: Moments,
    changes: Changes,
    events: Vec<Event>,
    /// How the resources are now, and which are gone.
    outcome: BTreeMap<String, Option<Known>>,
}

impl ChangeRecorder {
    fn new(moments: Moments) -> Self {
        let (changes, events, outcome) = Default::default();
        Self { moments, changes, events, outcome }
    }

    fn record(&mut self, change: Change, item: Item) -> Result<(), BuildError> {
        let moment = self.moments.next(change, &item)?;
        self.changes.count(change);
        self.events.push(Event::new(change, moment, item));
        Ok(())
    }

    /// Keeps the changes and the next inventory, in which everything else is as it was.
    fn keep(
        self,
        out: &Path,
        last: &Kept,
        (resources, bytes): (u64, u64),
        is_whole: bool,
    ) -> Result<Compared, BuildError> {
        let Self { moments, changes, events, outcome } = self;
        let until = moments.last();
        let (mut resources, mut bytes) = (resources, bytes);
        let mut finder = last.finder()?;
        for (loc, now) in &outcome {
            let before = finder.find(loc)?;
            let length = |known: &Known| known.item.length.unwrap_or(0);
            resources = resources + u64::from(now.is_some()) - u64::from(before.is_some());
            bytes =
                (bytes + now.as_ref().map_or(0, length)).saturating_sub(before.as_ref().map_or(0, length));
        }
        let mut next = Writing::begin(out, is_whole)?;
        for event in events {
            next.event(&event)?;
        }
        if next.is_whole {
            for side in with_outcome(last.sides()?, outcome) {
                if let Some(known) = side?.into_now() {
                    next.known(&known)?;
                }
            }
        } else {
            last.write_since(outcome, &mut next.lines)?;
        }
        next.publish()?;
        Ok(Compared { resources, bytes, changes, until })
    }
}

/// Sides of which some are another way now.
fn with_outcome(
    sides: impl Iterator<Item = Result<Side, BuildError>>,
    outcome: BTreeMap<String, Option<Known>>,
) -> impl Iterator<Item = Result<Side, BuildError>> {
    let outcome = outcome.into_iter().map(|(loc, now)| Ok(Side { loc, first: First::Nothing, now }));
    joined(sides, outcome, |side| side.loc.as_str(), |side| side.loc.as_str()).map(|pair| match pair? {
        (_, Some(after)) => Ok(after),
        (Some(before), None) => Ok(before),
        (None, None) => Err(io::Error::other("a pair of nothing").into()),
    })
}

/// What differs between what is known of a few resources and what they are.
fn of_scope(
    moments: Moments,
    known: Vec<Known>,
    next: impl FnMut() -> Option<Result<Known, BuildError>>,
    patches: &mut Patches,
) -> Result<ChangeRecorder, BuildError> {
    let mut news = ChangeRecorder::new(moments);
    let after = std::iter::from_fn(next);
    for pair in joined(known.into_iter().map(Ok), after, loc_of, loc_of) {
        match pair? {
            (Some(before), None) => {
                patches.forget(&before.item);
                news.outcome.insert(before.item.loc.clone(), None);
                news.record(Change::Deleted, Item::new(before.item.loc))?;
            }
            (before, Some(after)) => {
                if let Some((change, item)) = patches.change(before.as_ref(), &after.item)? {
                    news.record(change, item)?;
                }
                if before.as_ref() != Some(&after) {
                    news.outcome.insert(after.item.loc.clone(), Some(after));
                }
            }
            (None, None) => {}
        }
    }
    Ok(news)
}

/// One pass over both inventories: what the new one has another way is kept, and what differs is told.
fn compare(
    (started, settings): (DateTime, &Settings),
    next: impl FnMut() -> Option<Result<Known, BuildError>>,
    out: &Path,
    before: Before,
    patches: &mut Patches,
    heard: Heard<'_>,
) -> Result<Compared, BuildError> {
    let last = Kept::last(out);
    let (sides, first, is_whole): (Box<dyn Iterator<Item = _>>, _, _) = match before {
        Before::Published { until, quickly, .. } => {
            (Box::new(last.sides()?), started.max(later(until, 1)), last.is_due(quickly))
        }
        Before::Nothing => (Box::new(std::iter::empty()), started, true),
    };
    let is_recorded = matches!(before, Before::Published { .. });
    let is_relinked = matches!(before, Before::Published { relinked: true, .. });
    let mut kept = Writing::begin(out, is_whole)?;
    let mut moments = Moments::new(first, settings);
    let (mut resources, mut bytes, mut changes) = (0, 0, Changes::default());
    for pair in joined(sides, Ordered::new(std::iter::from_fn(next)), |side: &Side| side.loc.as_str(), loc_of)
    {
        let (side, after) = pair?;
        let mut recorded = None;
        match (side, after) {
            (Some(Side { loc, first, now }), None) => {
                let is_first = !matches!(first, First::Nothing);
                if let Some(gone) = (Side { loc: loc.clone(), first, now }).into_now() {
                    patches.forget(&gone.item);
                    recorded = Some((Change::Deleted, Item::new(loc.clone())));
                }
                if is_first && !kept.is_whole {
                    kept.line(&Line::gone(&loc))?;
                }
            }
            (side, Some(after)) => {
                resources += 1;
                bytes += after.item.length.unwrap_or(0);
                let is_first = side.as_ref().is_some_and(|side| match &side.first {
                    First::True(known) | First::Past(known) => *known == after,
                    First::Nothing => false,
                });
                let before = side.and_then(Side::into_now);
                if is_recorded && (is_relinked || before.as_ref() != Some(&after)) {
                    moments.check(&after.item)?;
                }
                if is_recorded || patches.are_wanted() {
                    recorded = patches.change(before.as_ref(), &after.item)?;
                }
                if kept.is_whole || !is_first {
                    kept.known(&after)?;
                }
                heard(started, Some(after.item))?;
            }
            (None, None) => {}
        }
        if let Some((change, item)) = recorded.filter(|_| is_recorded) {
            let moment = moments.next(change, &item)?;
            changes.count(change);
            kept.event(&Event::new(change, moment, item))?;
        }
    }
    heard(started, None)?;
    kept.publish()?;
    Ok(Compared { resources, bytes, changes, until: moments.last() })
}

fn loc_of(known: &Known) -> &str {
    known.item.loc.as_str()
}

/// Two series in the order of their URLs as one; what both have comes as a pair.
fn joined<A, B>(
    one: impl Iterator<Item = Result<A, BuildError>>,
    other: impl Iterator<Item = Result<B, BuildError>>,
    loc_of_one: impl Fn(&A) -> &str,
    loc_of_other: impl Fn(&B) -> &str,
) -> impl Iterator<Item = Result<(Option<A>, Option<B>), BuildError>> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let mut has_failed = false;
    std::iter::from_fn(move || {
        if has_failed {
            return None;
        }
        let order = match (one.peek(), other.peek()) {
            (None, None) => return None,
            (Some(Err(_)), _) | (Some(_), None) => Ordering::Less,
            (_, Some(Err(_))) | (None, Some(_)) => Ordering::Greater,
            (Some(Ok(one)), Some(Ok(other))) => loc_of_one(one).cmp(loc_of_other(other)),
        };
        let first = if order == Ordering::Greater { None } else { one.next() };
        let second = if order == Ordering::Less { None } else { other.next() };
        let pair = first.transpose().and_then(|first| Ok((first, second.transpose()?)));
        has_failed = pair.is_err();
        Some(pair)
    })
}

/// Ends with an error where resources are out of order.
struct Ordered<I> {
    resources: I,
    last: String,
}

impl<I> Ordered<I> {
    fn new(resources: I) -> Self {
        Self { resources, last: String::new() }
    }
}

impl<I: Iterator<Item = Result<Known, BuildError>>> Iterator for Ordered<I> {
    type Item = Result<Known, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let known = match self.resources.next()? {
            Ok(known) => known,
            Err(error) => return Some(Err(error)),
        };
        if !self.last.is_empty() && self.last >= known.item.loc {
            let after = self.last.clone();
            return Some(Err(BuildError::ResourceOrder { loc: known.item.loc, after }));
        }
        self.last.clone_from(&known.item.loc);
        Some(Ok(known))
    }
}

/// What a run keeps until it is through.
struct Writing {
    sink: FolderSink,
    /// Whether the lines are the whole inventory, and not what has changed since that was written.
    is_whole: bool,
    /// The line that is being written.
    text: String,
    lines: BufWriter<FolderDraft>,
    changes: BufWriter<FolderDraft>,
}

impl Writing {
    fn begin(out: &Path, is_whole: bool) -> Result<Self, BuildError> {
        kept::begin(out)?;
        let mut sink = FolderSink::open(out.join(FOLDER))?;
        let name = if is_whole { kept::NEXT } else { kept::NEXT_SINCE };
        let lines = BufWriter::with_capacity(kept::BUFFER, sink.create(name)?);
        let changes = BufWriter::new(sink.create(CHANGES)?);
        Ok(Self { sink, is_whole, text: String::new(), lines, changes })
    }

    fn known(&mut self, known: &Known) -> io::Result<()> {
        write_known(&mut self.lines, &mut self.text, known)
    }

    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        write_line(&mut self.lines, line)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        write_line(&mut self.changes, &EventLine::from(event))
    }

    /// Puts both into their places; one without the other is of no harm before there is a plan.
    fn publish(self) -> Result<(), BuildError> {
        let Self { mut sink, lines, changes, .. } = self;
        let written =
            |lines: BufWriter<FolderDraft>| lines.into_inner().map_err(io::IntoInnerError::into_error);
        Ok(sink.publish_together([written(lines)?, written(changes)?])?)
    }
}

/// The inventory of the run that is not through, or of the last one.
pub(crate) fn newest(
    out: &Path,
) -> Result<impl Iterator<Item = Result<Item, BuildError>> + use<>, BuildError> {
    Ok(Kept::newest(out).resources()?.map(|known| known.map(|known| known.item)))
}

/// What differs between the last inventory and the next one.
pub(crate) fn changes(
    out: &Path,
) -> Result<impl Iterator<Item = Result<Event, BuildError>> + use<>, BuildError> {
    let lines = Stored::<EventLine<'static>>::open(out.join(FOLDER).join(CHANGES))?;
    Ok(lines.map(|line| line.map(Event::from)))
}

/// Makes the next inventory the last one. Does nothing where that is done. What was told may come back after a crash, until something else is made
/// durable there: without a plan nobody reads it.
pub(crate) fn advance(out: &Path) -> io::Result<()> {
    kept::advance(out)?;
    files::remove_for_now(&out.join(FOLDER).join(CHANGES))
}

#[derive(Serialize, Deserialize)]
struct EventLine<'a> {
    #[serde(with = "text")]
    change: Change,
    #[serde(with = "text")]
    moment: DateTime,
    resource: Line<'a>,
}

impl<'a> From<&'a Event> for EventLine<'a> {
    fn from(Event { change, moment, item }: &'a Event) -> Self {
        Self { change: *change, moment: *moment, resource: Line::of(item, None) }
    }
}

impl From<EventLine<'static>> for Event {
    fn from(EventLine { change, moment, resource }: EventLine<'static>) -> Self {
        let loc = resource.loc.clone();
        Self::new(change, moment, resource.into_known().map_or_else(|| Item::new(loc), |known| known.item))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        time::SystemTime,
    };

    use resync_core::digest::{Algorithm, Digest};

    use super::*;
    use crate::{BaseUrl, collection};

    fn taken(data: &Path, out: &Path, before: Before) -> Taken {
        fs::create_dir_all(out).unwrap();
        let base = BaseUrl::parse("http://example.org/c").unwrap();
        let collection = collection::open(&Settings::new(data, base.clone()), out).unwrap();
        let settings = Settings::new(data, base);
        take(collection, &settings, out, before, None, &mut |_, _| Ok(()), &|_| ()).unwrap()
    }

    fn told_until(until: DateTime) -> Before {
        Before::Published { until, resources: 0, bytes: 0, quickly: false, relinked: false }
    }

    fn recorded(out: &Path) -> Vec<(Change, String)> {
        let name = |event: Event| event.item.loc.replace("http://example.org/c/", "");
        changes(out).unwrap().map(Result::unwrap).map(|event| (event.change, name(event))).collect()
    }

    #[test]
    fn what_was_taken_is_kept_with_length_digest_and_type_in_the_order_of_urls() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir_all(data.join("b")).unwrap();
        for name in ["c.txt", "b/z.xml", "b/a b.pdf", "a", "b.part", "d.xlsm"] {
            fs::write(data.join(name), name).unwrap();
        }
        let taken = taken(&data, &out, Before::Nothing);
        assert_eq!((taken.resources, taken.bytes, taken.skipped.len(), taken.reads), (5, 28, 1, 5));
        assert_eq!((taken.changes, recorded(&out)), (Changes::default(), vec![]));
        assert!(taken.started <= taken.completed);
        let items: Vec<_> = newest(&out).unwrap().map(Result::unwrap).collect();
        let locs: Vec<_> =
            items.iter().map(|item| item.loc.strip_prefix("http://example.org/c/").unwrap()).collect();
        assert_eq!(locs, ["a", "b/a%20b.pdf", "b/z.xml", "c.txt", "d.xlsm"]);
        let text = &items[3];
        assert_eq!(text.length, Some(5));
        assert_eq!(text.hashes.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, b"c.txt")));
        assert_eq!(text.media_type.as_deref(), Some("text/plain"));
        assert!(text.lastmod.is_some_and(|lastmod| lastmod <= taken.started));
        assert_eq!(items[0].media_type, None);
        let macros = "application/vnd.ms-excel.sheet.macroenabled.12";
        assert_eq!(items[4].media_type.as_deref(), Some(macros), "as it always was");
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
        let second = taken(&data, &out, told_until(ahead));
        let expected = [(Change::Updated, "a"), (Change::Deleted, "b"), (Change::Created, "d")];
        assert_eq!(recorded(&out), expected.map(|(change, name)| (change, name.to_owned())));
        assert_eq!(second.changes, Changes { created: 1, updated: 1, deleted: 1 });
        assert!(second.until > ahead, "the clock was set back, time goes on");
        advance(&out).unwrap();
        advance(&out).unwrap();
        let third = taken(&data, &out, told_until(second.until));
        assert_eq!((third.changes.total(), recorded(&out)), (0, vec![]));
    }
}
