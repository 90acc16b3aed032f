//! What entries must satisfy towards the header and towards the entries before them.

use super::framework::{self, Level};
use super::seen::{Seen, Trace};
use super::shape::{Once, Order, Parts, Shape};
use super::{Rule, Times};
use crate::datetime::DateTime;
use crate::model::MAX_ENTRIES;
use crate::model::{Capability, Change, Entry, Header, Metadata, NO_METADATA, Relation, Root, ZIP};

/// What is remembered of a document while its entries pass by.
#[derive(Debug)]
pub(super) struct Sequence {
    shape: Option<&'static Shape>,
    /// Whether the times of the entries may go up and down.
    is_unordered: bool,
    /// The root element, which says what no two entries have in common where the shape does not.
    root: Root,
    /// The times of the root.
    whole: Times,
    /// The latest time that decides the order of entries.
    latest: Option<DateTime>,
    previous: Option<Times>,
    count: usize,
    /// What may come only once.
    seen: Seen,
    /// The media type of the first package.
    format: Option<String>,
    points_up: bool,
    level: Option<Level>,
}

/// What no two entries of a document have in common; `None` when the entry has nothing of the kind.
pub(super) type Mark = Option<Marked>;

/// It is computed once, to be looked for and to be remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked {
    /// What a second one breaks; `None` where that shows only when a later entry has shown what the document is.
    rule: Option<Rule>,
    trace: Trace,
}

impl Sequence {
    pub(super) fn new(header: &Header, shape: Option<&'static Shape>) -> Self {
        Self {
            shape,
            is_unordered: false,
            root: header.root,
            whole: Times::of(&header.metadata),
            latest: None,
            previous: None,
            count: 0,
            seen: Seen::at_most(MAX_ENTRIES),
            format: None,
            points_up: header.link(&Relation::Up).is_some(),
            level: None,
        }
    }

    /// From now on the times of the entries may go up and down.
    pub(super) fn allow_any_order(&mut self) {
        self.is_unordered = true;
    }

    /// Goes on with another header.
    pub(super) fn change_header(&mut self, header: &Header, shape: Option<&'static Shape>) {
        self.shape = shape;
        self.root = header.root;
        self.whole = Times::of(&header.metadata);
        self.points_up = header.link(&Relation::Up).is_some();
    }

    /// Reports what an entry would break if it came next; nothing is remembered of it.
    pub(super) fn check(&self, entry: &Entry, mark: Mark, broken: &mut impl FnMut(Rule, String)) {
        let metadata = entry.metadata.as_ref().unwrap_or(&NO_METADATA);
        self.check_datetime(metadata, broken);
        if let Some(Marked { rule: Some(rule), trace }) = mark
            && self.seen.contains(trace)
        {
            broken(rule, "an earlier entry has the same".to_owned());
        }
        let Some(shape) = self.shape else { return };
        if !self.is_unordered {
            self.check_order(shape, metadata, broken);
        }
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

    /// Remembers an entry as one of the document.
    pub(super) fn take(&mut self, entry: &Entry, mark: Mark) {
        self.count += 1;
        if let (Some(Marked { trace, .. }), Some((text, _))) = (mark, self.unique(entry)) {
            self.seen.remember(text, trace);
        }
        let Some(shape) = self.shape else { return };
        let metadata = entry.metadata.as_ref();
        let times = metadata.map(Times::of).unwrap_or_default();
        // None comes before any time.
        self.latest = self.latest.max(metadata.and_then(|metadata| shape.order.time(metadata)));
        self.previous = Some(times);
        if shape.is_dump() && self.format.is_none() {
            self.format = metadata.and_then(|metadata| metadata.media_type.clone());
        }
        if shape.capability == Capability::FrameworkNotification {
            self.level = self.level.or(entry.capability().and_then(framework::level));
        }
    }

    /// Remembers entries that follow each other as they should by the last of them, which has the latest time.
    pub(super) fn take_over(&mut self, count: usize, last: &Entry) {
        self.take(last, None);
        self.count += count.saturating_sub(1);
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

    fn check_order(&self, shape: &Shape, metadata: &Metadata, broken: &mut impl FnMut(Rule, String)) {
        let (Order::ByDatetime(rule) | Order::ByFrom(rule)) = shape.order else { return };
        if let (Some(time), Some(latest)) = (shape.order.time(metadata), self.latest)
            && time < latest
        {
            broken(rule, format!("{time} comes after {latest}"));
        }
    }

    /// The parts of a whole lie within it (RS-095), and those of an index follow each other (RS-125, RS-127).
    fn check_part(&self, shape: &Shape, part: Times, broken: &mut impl FnMut(Rule, String)) {
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
    }

    fn check_succession(&self, part: Times, broken: &mut impl FnMut(Rule, String)) {
        if part.is_open() && self.whole.until.is_some() {
            broken(Rule::OpenUnderClosed, "the index has until, and the entry has none".to_owned());
        }
        let Some(previous) = self.previous else { return };
        if previous.is_open() {
            broken(Rule::OpenBeforeLast, format!("entry {} has from but no until", self.count));
        }
        if let (Some(end), Some(start)) = (previous.until, part.from)
            && end != start
            && previous.from.is_none_or(|from| from <= start)
        {
            broken(Rule::BoundaryGap, format!("{end} is followed by {start}"));
        }
    }

    /// What is to be known of an entry before it is judged.
    pub(super) fn mark(&self, entry: &Entry) -> Mark {
        // What has no name breaks another rule, and repeats nobody's.
        let (text, rule) = self.unique(entry).filter(|(text, _)| !text.is_empty())?;
        Some(Marked { rule, trace: self.seen.trace(text) })
    }

    /// What no other entry may have, and what a second one breaks.
    fn unique<'e>(&self, entry: &'e Entry) -> Option<(&'e str, Option<Rule>)> {
        let metadata = entry.metadata.as_ref();
        let Some(shape) = self.shape else {
            // An index of whatever kind points at documents; what is no index may turn out to be a Resource List.
            let rule = (self.root == Root::SitemapIndex).then_some(Rule::EntryRepeated);
            return Some((&entry.loc, rule));
        };
        let (rule, text) = match shape.once {
            Once::Nothing => return None,
            Once::Loc => (Rule::EntryRepeated, entry.loc.as_str()),
            Once::Resource => (Rule::ResourceRepeated, entry.loc.as_str()),
            Once::Capability => (Rule::CapabilityRepeated, metadata?.capability.as_ref()?.token()),
            Once::Path => (Rule::PathRepeated, metadata?.path.as_deref()?),
            Once::NewUnderIndex => {
                entry.change().filter(|&change| change == Change::Created)?;
                (Rule::FrameworkIndexRepeated, entry.link(&Relation::Index)?.href.as_str())
            }
        };
        Some((text, Some(rule)))
    }

    fn check_format(&self, metadata: &Metadata, broken: &mut impl FnMut(Rule, String)) {
        let Some(format) = &metadata.media_type else { return };
        if !format.eq_ignore_ascii_case(ZIP) {
            broken(Rule::PackageFormat, "the type is not application/zip".to_owned());
        }
        if self.format.as_ref().is_some_and(|first| !first.eq_ignore_ascii_case(format)) {
            broken(Rule::PackageMixed, "the type is not that of the first package".to_owned());
        }
    }

    /// What the entries of a Framework Notification must satisfy together (FN-022, FN-026).
    fn check_framework(&self, entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
        let Some(level) = entry.capability().and_then(framework::level).filter(|_| self.points_up) else {
            return;
        };
        if level == Level::Source {
            broken(Rule::FrameworkUp, "nothing lies above a Source Description".to_owned());
        }
        if self.level.is_some_and(|first| first != level) {
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
