//! What entries must satisfy towards the header and towards the entries before them.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hash, RandomState};

use super::Rule;
use super::framework::{self, Level};
use super::shape::{Once, Order, Parts, Shape};
use crate::datetime::DateTime;
use crate::document::{Capability, Change, Entry, Header, Metadata, Relation, Root, ZIP};
use crate::xml::MAX_ENTRIES;

/// What is remembered of a document while its entries pass by.
#[derive(Debug)]
pub(super) struct Sequence {
    shape: Option<&'static Shape>,
    /// The times of the root.
    whole: Times,
    /// The latest time that decides the order of entries.
    latest: Option<DateTime>,
    previous: Option<Times>,
    count: usize,
    seen: Seen,
    /// The media type of the first package.
    format: Option<String>,
    points_up: bool,
    level: Option<Level>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    at: Option<DateTime>,
    completed: Option<DateTime>,
    from: Option<DateTime>,
    until: Option<DateTime>,
}

impl Times {
    fn of(metadata: &Metadata) -> Self {
        let Metadata { at, completed, from, until, .. } = *metadata;
        Self { at, completed, from, until }
    }

    fn is_open(&self) -> bool {
        self.from.is_some() && self.until.is_none()
    }
}

impl Sequence {
    pub(super) fn new(header: &Header, shape: Option<&'static Shape>) -> Self {
        Self {
            shape,
            whole: Times::of(&header.metadata),
            latest: None,
            previous: None,
            count: 0,
            seen: Seen::default(),
            format: None,
            points_up: header.link(&Relation::Up).is_some(),
            level: None,
        }
    }

    pub(super) fn entry(&mut self, entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
        self.count += 1;
        let empty = Metadata::default();
        let metadata = entry.metadata.as_ref().unwrap_or(&empty);
        self.check_datetime(metadata, broken);
        let Some(shape) = self.shape else { return };
        self.check_order(shape, metadata, broken);
        if shape.parts != Parts::Plain {
            self.check_part(shape, Times::of(metadata), broken);
        }
        if shape.is_dump() {
            self.check_format(metadata, broken);
        }
        if shape.capability == Capability::FrameworkNotification {
            self.check_framework(entry, broken);
        }
    }

    /// A change lies within the interval of its document, both ends included (RS-030).
    fn check_datetime(&self, metadata: &Metadata, broken: &mut impl FnMut(Rule, String)) {
        let Some(datetime) = metadata.datetime else { return };
        if let Some(from) = self.whole.from.filter(|&from| datetime < from) {
            broken(Rule::DatetimeOutside, format!("{datetime} is before {from}"));
        }
        if let Some(until) = self.whole.until.filter(|&until| until < datetime) {
            broken(Rule::DatetimeOutside, format!("{datetime} is after {until}"));
        }
    }

    fn check_order(&mut self, shape: &Shape, metadata: &Metadata, broken: &mut impl FnMut(Rule, String)) {
        let (time, rule) = match shape.order {
            Order::Free => return,
            Order::ByDatetime(rule) => (metadata.datetime, rule),
            Order::ByFrom(rule) => (metadata.from, rule),
        };
        match (time, self.latest) {
            (Some(time), Some(latest)) if time < latest => {
                broken(rule, format!("{time} comes after {latest}"));
            }
            (Some(time), _) => self.latest = Some(time),
            (None, _) => {}
        }
    }

    /// The parts of a whole lie within it (RS-095), and those of an index follow each other (RS-125, RS-127).
    fn check_part(&mut self, shape: &Shape, part: Times, broken: &mut impl FnMut(Rule, String)) {
        let whole = self.whole;
        match shape.parts {
            Parts::Plain => {}
            Parts::Snapshots => check_within(
                Rule::SnapshotOutside,
                [("at", part.at, whole.at), ("completed", part.completed, whole.completed)],
                broken,
            ),
            Parts::Intervals => {
                check_within(
                    Rule::IntervalOutside,
                    [("from", part.from, whole.from), ("until", part.until, whole.until)],
                    broken,
                );
                if shape.root == Root::SitemapIndex {
                    self.check_succession(part, broken);
                }
            }
            Parts::Archived => {
                if part.is_open() {
                    broken(Rule::ArchivedOpen, "the entry has from but no until".to_owned());
                }
            }
        }
        self.previous = Some(part);
    }

    fn check_succession(&self, part: Times, broken: &mut impl FnMut(Rule, String)) {
        if part.is_open() && self.whole.until.is_some() {
            broken(Rule::OpenUnderClosed, "the index has until, and the entry has none".to_owned());
        }
        let Some(previous) = self.previous else { return };
        if previous.is_open() {
            broken(Rule::OpenBeforeLast, format!("entry {} has from but no until", self.count - 1));
        }
        if let (Some(end), Some(start)) = (previous.until, part.from)
            && end != start
            && previous.from.is_none_or(|from| from <= start)
        {
            broken(Rule::BoundaryGap, format!("{end} is followed by {start}"));
        }
    }

    /// Whether an earlier entry has what no two entries may have in common. An entry that is refused anyway is not
    /// remembered, so that it may come again in order.
    pub(super) fn check_once(&mut self, entry: &Entry, refused: bool, broken: &mut impl FnMut(Rule, String)) {
        let Some(shape) = self.shape else { return };
        let metadata = entry.metadata.as_ref();
        match shape.once {
            Once::Nothing => {}
            Once::Loc => {
                if !self.seen.is_new(&entry.loc, refused) {
                    broken(Rule::EntryRepeated, "the loc stands in an earlier entry".to_owned());
                }
            }
            Once::Capability => {
                if let Some(capability) = metadata.and_then(|metadata| metadata.capability.as_ref())
                    && !self.seen.is_new(capability, refused)
                {
                    broken(Rule::CapabilityRepeated, format!("{capability} is listed before"));
                }
            }
            Once::Path => {
                if let Some(path) = metadata.and_then(|metadata| metadata.path.as_ref())
                    && !self.seen.is_new(path, refused)
                {
                    broken(Rule::PathRepeated, "the path stands in an earlier entry".to_owned());
                }
            }
        }
    }

    fn check_format(&mut self, metadata: &Metadata, broken: &mut impl FnMut(Rule, String)) {
        let Some(format) = &metadata.media_type else { return };
        if !format.eq_ignore_ascii_case(ZIP) {
            broken(Rule::PackageFormat, "the type is not application/zip".to_owned());
        }
        match &self.format {
            None => self.format = Some(format.clone()),
            Some(first) if first.eq_ignore_ascii_case(format) => {}
            Some(_) => broken(Rule::PackageMixed, "the type is not that of the first package".to_owned()),
        }
    }

    /// What the entries of a Framework Notification must satisfy together (FN-007, FN-022, FN-026).
    fn check_framework(&mut self, entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
        if let (Some(Change::Created), Some(index)) = (entry.change(), entry.link(&Relation::Index))
            && !self.seen.is_new(&index.href, false)
        {
            broken(
                Rule::FrameworkIndexRepeated,
                "an earlier entry tells of a new document under this index".to_owned(),
            );
        }
        let Some(level) = entry.capability().and_then(framework::level).filter(|_| self.points_up) else {
            return;
        };
        if level == Level::Source {
            broken(Rule::FrameworkUp, "nothing lies above a Source Description".to_owned());
        }
        if *self.level.get_or_insert(level) != level {
            broken(Rule::FrameworkUp, "the entries lie on different levels".to_owned());
        }
    }
}

/// The start of a part is not before that of the whole, and its end not after.
fn check_within(
    rule: Rule,
    [start, end]: [(&str, Option<DateTime>, Option<DateTime>); 2],
    broken: &mut impl FnMut(Rule, String),
) {
    if let (name, Some(part), Some(whole)) = start
        && part < whole
    {
        broken(rule, format!("{name} {part} is before {whole} of the root"));
    }
    if let (name, Some(part), Some(whole)) = end
        && whole < part
    {
        broken(rule, format!("{name} {part} is after {whole} of the root"));
    }
}

/// What was seen, by a keyed 64-bit hash: two different texts out of 50,000 are taken for one in less than a billionth of all documents,
/// and memory stays below a megabyte.
#[derive(Debug, Default)]
struct Seen {
    hashes: HashSet<u64>,
    key: RandomState,
}

impl Seen {
    /// Whether it is new, and remembers it unless it is only passing; beyond the entries that a document may have,
    /// nothing more is remembered.
    fn is_new(&mut self, value: impl Hash, passing: bool) -> bool {
        let hash = self.key.hash_one(value);
        if passing || self.hashes.len() == MAX_ENTRIES {
            !self.hashes.contains(&hash)
        } else {
            self.hashes.insert(hash)
        }
    }
}
