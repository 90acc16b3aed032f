//! Change Lists from events or from two inventories (RS-120 to RS-130).

use super::course::{Course, KnownOpen, Position};
use super::going_on::going_on;
use super::inventory::Ordered;
use super::joined::{Pair, joined};
use super::rotation::Addition;
use super::settings::{Published, Settings, Site, archived, settings};
use super::{BuildError, Inventory, Item, Sink};
use crate::datetime::DateTime;
use crate::digest::Digest;
use crate::document::{Change, Entry, ResourceChange};

/// One change of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How it changed.
    pub change: Change,
    /// When.
    pub moment: DateTime,
    /// What it is now; of a deletion only its URI and links are listed (RS-129).
    pub item: Item,
}

impl Event {
    /// A change at a moment.
    pub fn new(change: Change, moment: DateTime, item: Item) -> Self {
        Self { change, moment, item }
    }
}

impl From<Event> for ResourceChange {
    fn from(Event { change, moment, item }: Event) -> Self {
        let mut entry = ResourceChange::new(change, item.loc).datetime(moment).hashes(item.hashes);
        if let Some(length) = item.length {
            entry = entry.length(length);
        }
        if let Some(media_type) = item.media_type {
            entry = entry.media_type(media_type);
        }
        if let Some(encoding) = item.encoding {
            entry = entry.encoding(encoding);
        }
        if let Some(lastmod) = item.lastmod.filter(|_| change != Change::Deleted) {
            entry = entry.lastmod(lastmod);
        }
        item.links.into_iter().fold(entry, Self::link)
    }
}

/// What changed between two inventories of one set, in the order of URIs. Every change gets the `moment` at which the later
/// inventory was started.
///
/// Both inventories stream by; neither is held.
///
/// ```
/// use resync_core::build::{BuildError, Item, MemoryInventory, differences};
/// use resync_core::document::Change;
///
/// let inventory = |names: &[&str]| {
///     names.iter().map(|name| Item::new(format!("https://example.org/{name}"))).collect::<MemoryInventory>()
/// };
/// let (before, after) = (inventory(&["a", "b"]), inventory(&["b", "c"]));
/// let events = differences(before.into_iter(), after.into_iter(), "2026-01-03T09:00:00Z".parse()?)
///     .collect::<Result<Vec<_>, BuildError>>()?;
/// assert_eq!((events[0].change, events[0].item.loc.as_str()), (Change::Deleted, "https://example.org/a"));
/// assert_eq!((events[1].change, events[1].item.loc.as_str()), (Change::Created, "https://example.org/c"));
/// assert_eq!(events.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn differences(
    before: impl Inventory,
    after: impl Inventory,
    moment: DateTime,
) -> impl Iterator<Item = Result<Event, BuildError>> {
    let pairs = joined(
        Ordered::new(before),
        Ordered::new(after),
        |old: &Item| old.loc.as_str(),
        |new: &Item| new.loc.as_str(),
    );
    pairs.filter_map(move |pair| {
        let (change, item) = match pair {
            Ok(Pair::First(old)) => (Change::Deleted, Item::new(old.loc)),
            Ok(Pair::Second(new)) => (Change::Created, new),
            Ok(Pair::Both(old, new)) if !new.differs_from(&old) => return None,
            Ok(Pair::Both(_, new)) => (Change::Updated, new),
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Event::new(change, moment, item)))
    })
}

/// Makes Change Lists that go on from run to run: `changelist.xml` is their index from the first day, so that no URI ever changes its
/// kind; `changelist-1.xml`, … are the lists, the last one open.
///
/// The published documents are the only state. The order of RS-130 is kept: a list is closed, its successor published, then the
/// index entry, each in one step; a run that was killed in between is taken up by the next. Lists meet at the moment of the last
/// change of the earlier one, both ends included, so a Destination that goes by intervals misses nothing (RS-127, RS-128).
///
/// ```
/// use resync_core::build::{ChangeLists, Event, Item, MemorySink, Rotation, Site};
/// use resync_core::datetime::DateTime;
/// use resync_core::document::Change;
///
/// let hour = |hour: u8| format!("2026-01-03T{hour:02}:00:00Z").parse::<DateTime>();
/// let lists = ChangeLists::new(&Site::new("https://example.org/resync"))
///     .rotation(Rotation { entries: Some(2), ..Rotation::default() });
/// let mut sink = MemorySink::default();
/// for number in 1..=3 {
///     let page = Item::new(format!("https://example.org/{number}"));
///     lists.record(&mut sink, hour(0)?, [Ok(Event::new(Change::Created, hour(number)?, page))], hour(number)?)?;
/// }
/// assert!(sink.names().eq(["changelist-1.xml", "changelist-2.xml", "changelist.xml"]));
/// assert_eq!(lists.end(&sink)?, Some(hour(3)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeLists {
    settings: Settings,
    course: Course,
}

impl ChangeLists {
    /// Lists that rotate as [`Rotation::default`](super::Rotation::default) says.
    pub fn new(site: &Site) -> Self {
        Self { settings: Settings::new(site, "changelist"), course: Course::default() }
    }

    /// Says what digest the open list had when [`record`](Self::record) came to `position`. If it still has, its entries are taken over as
    /// they are; otherwise each is read, checked and written again. What is published is the same.
    pub fn known_open(mut self, position: Position, content: Digest) -> Self {
        self.course.known_open = Some(KnownOpen { position, content });
        self
    }

    /// Records changes, oldest first, none before [`end`](Self::end). The first list of all starts at `from`; `now` decides about
    /// age, and is the end of a series that is [closed](Self::close).
    ///
    /// The open list is written once for all `events`, and the index only when a list was closed. A run that failed may have recorded
    /// some of them: [`resume`](Self::resume) goes on exactly. Without a position, record again what happened at or after
    /// [`end`](Self::end); a change that is recorded twice does no harm (RS-128).
    pub fn record<S: Sink>(
        &self,
        sink: &mut S,
        from: DateTime,
        events: impl IntoIterator<Item = Result<Event, BuildError>>,
        now: DateTime,
    ) -> Result<Published, BuildError> {
        let Course { position, known_open, is_last, .. } = self.course;
        let until = is_last.then_some(now);
        let addition = Addition { position, known_open, until, ..Addition::new(from, now) };
        self.series().record(sink, addition, entries(events))
    }
}

settings!(ChangeLists);
archived!(ChangeLists);
going_on!(ChangeLists, ChangeList);

fn entries(
    events: impl IntoIterator<Item = Result<Event, BuildError>>,
) -> impl Iterator<Item = Result<Entry, BuildError>> {
    events.into_iter().map(|event| event.map(|event| ResourceChange::from(event).into()))
}
