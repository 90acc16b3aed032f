//! The check of one document in one pass: header first, then entry by entry.

use std::collections::HashSet;

use super::shape::{EntryShape, Links, Need, Order, Shape, Times, shape};
use super::{Place, Rule, Violations, framework, links, values};
use crate::datetime::DateTime;
use crate::document::{Capability, Change, Entry, Header, Metadata, RawDocument, Relation, Root};
use crate::xml::{MAX_ENTRIES, Position};

/// Checks a whole document; places name entries, since there are no lines.
pub fn check(document: &RawDocument) -> Violations {
    let mut checker = Checker::new(&document.header);
    for entry in &document.entries {
        checker.entry(entry, None);
    }
    checker.finish()
}

/// Checks a document while it streams by.
///
/// ```
/// use resync_core::document::{Capability, Entry, Header, Root};
/// use resync_core::rules::{Checker, Rule};
///
/// let mut checker = Checker::new(&Header::new(Root::UrlSet, Capability::Description));
/// checker.entry(&Entry::new("capabilitylist.xml"), None);
/// let violations = checker.finish();
/// assert_eq!(violations.errors().next().map(|violation| violation.rule), Some(Rule::Loc));
/// ```
#[derive(Debug)]
pub struct Checker {
    capability: Option<Capability>,
    shape: Option<&'static Shape>,
    from: Option<DateTime>,
    until: Option<DateTime>,
    count: usize,
    /// The latest time that decides the order of entries.
    latest: Option<DateTime>,
    /// Whether the last entry of an index was open.
    open: bool,
    /// In a Capability List: what was listed.
    listed: HashSet<Capability>,
    violations: Violations,
}

impl Checker {
    /// Checks a header and gets ready for the entries.
    pub fn new(header: &Header) -> Self {
        Self::at(header, None)
    }

    /// The same for a header that was read at a position.
    pub fn at(header: &Header, position: Option<Position>) -> Self {
        let capability = header.capability().cloned();
        let mut checker = Self {
            shape: capability.as_ref().and_then(|capability| shape(capability, header.root)),
            capability,
            from: header.metadata.from,
            until: header.metadata.until,
            count: 0,
            latest: None,
            open: false,
            listed: HashSet::new(),
            violations: Violations::default(),
        };
        let place = Place { position, entry: None };
        check_header(header, checker.shape, &mut |rule, detail| checker.violations.push(rule, place, detail));
        checker
    }

    /// Checks the next entry.
    pub fn entry(&mut self, entry: &Entry, position: Option<Position>) {
        self.count += 1;
        let place = Place { position, entry: Some(self.count) };
        let mut violations = std::mem::take(&mut self.violations);
        let mut broken = |rule: Rule, detail: String| violations.push(rule, place, detail);
        if self.count == MAX_ENTRIES + 1 {
            broken(Rule::TooLarge, format!("this is entry {}; split the document", self.count));
        }
        values::check_entry(entry, self.path_need(), &mut broken);
        self.check_shape(entry, &mut broken);
        self.check_sequence(entry, &mut broken);
        self.violations = violations;
    }

    /// What was found so far.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// What was found since the last call.
    pub fn take_violations(&mut self) -> Violations {
        std::mem::take(&mut self.violations)
    }

    /// Ends the document and gives everything found.
    pub fn finish(self) -> Violations {
        self.violations
    }

    fn is(&self, capability: &Capability) -> bool {
        self.capability.as_ref() == Some(capability)
    }

    /// A kind of document that we do not know may have manifests of its own.
    fn path_need(&self) -> Need {
        self.shape.map_or(Need::May, |shape| shape.entry.path)
    }

    fn check_shape(&mut self, entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
        let (Some(shape), Some(document)) = (self.shape, &self.capability) else { return };
        check_entry_metadata(entry, document, &shape.entry, broken);
        check_relations(entry, document, shape.links, broken);
        for patch in entry.links_with(&Relation::Patch) {
            links::check_patch(patch, document, &mut *broken);
        }
        if self.is(&Capability::FrameworkNotification) {
            framework::check_entry(entry, &mut *broken);
        }
        if self.is(&Capability::CapabilityList) {
            self.check_channel(entry, broken);
        }
    }

    /// What an entry of a Capability List must satisfy (RS-082, FN-060, CN-019).
    fn check_channel(&mut self, entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
        let Some(capability) = entry.capability() else { return };
        let hub = entry.link(&Relation::Hub);
        match (capability, hub) {
            (Capability::ChangeNotification, None) => {
                broken(Rule::NotificationHub, format!("the channel {:?} has none", entry.loc));
            }
            (Capability::FrameworkNotification, None) => {
                broken(Rule::FrameworkHub, format!("the channel {:?} has none", entry.loc));
            }
            (capability, Some(_)) if !capability.is_notification() => {
                broken(Rule::HubPlace, format!("the entry is a {capability}"));
            }
            _ => {}
        }
        if !self.listed.insert(capability.clone()) {
            broken(Rule::CapabilityRepeated, format!("{capability} is listed before"));
        }
    }

    /// What an entry must satisfy towards the header and the entries before it.
    fn check_sequence(&mut self, entry: &Entry, broken: &mut impl FnMut(Rule, String)) {
        let metadata = entry.metadata.as_ref();
        if let Some(datetime) = metadata.and_then(|metadata| metadata.datetime) {
            if let Some(from) = self.from.filter(|&from| datetime < from) {
                broken(Rule::DatetimeOutside, format!("{datetime} is before {from}"));
            }
            if let Some(until) = self.until.filter(|&until| until < datetime) {
                broken(Rule::DatetimeOutside, format!("{datetime} is after {until}"));
            }
        }
        let Some(shape) = self.shape else { return };
        let (time, rule) = match shape.order {
            Order::Free => return,
            Order::ByDatetime(rule) => (metadata.and_then(|metadata| metadata.datetime), rule),
            Order::ByFrom(rule) => (metadata.and_then(|metadata| metadata.from), rule),
        };
        match (time, self.latest) {
            (Some(time), Some(latest)) if time < latest => {
                broken(rule, format!("{time} comes after {latest}"));
            }
            (Some(time), _) => self.latest = Some(time),
            (None, _) => {}
        }
        if shape.root == Root::SitemapIndex {
            if self.open {
                broken(Rule::OpenBeforeLast, format!("entry {} has from but no until", self.count - 1));
            }
            self.open = metadata.is_some_and(|metadata| metadata.from.is_some() && metadata.until.is_none());
        }
    }
}

fn check_header(header: &Header, shape: Option<&Shape>, broken: &mut impl FnMut(Rule, String)) {
    let metadata = &header.metadata;
    match header.capability() {
        None => broken(Rule::CapabilityMissing, format!("the {} names none", header.root.element())),
        Some(capability) if capability.token().is_empty() => {
            broken(Rule::CapabilityMissing, "the capability is empty".to_owned());
        }
        Some(capability) => {
            if shape.is_none() && !matches!(capability, Capability::Other(_)) {
                broken(root_rule(capability), format!("the root is a {}", header.root.element()));
            }
        }
    }
    values::check_metadata(metadata, Need::Unforeseen, broken);
    let speaks_of_representation = metadata.change.is_some()
        || metadata.datetime.is_some()
        || metadata.encoding.is_some()
        || !metadata.hash.is_empty()
        || metadata.length.is_some()
        || metadata.path.is_some()
        || metadata.media_type.is_some();
    if speaks_of_representation {
        broken(Rule::RootAttribute, "it has attributes that belong to entries".to_owned());
    }
    for link in &header.links {
        values::check_link(link, Need::Forbidden, broken);
    }
    if let (Some(shape), Some(capability)) = (shape, header.capability()) {
        check_head_shape(header, capability, shape, broken);
    }
}

/// Which rule says that this kind of document has no index.
fn root_rule(capability: &Capability) -> Rule {
    match capability {
        Capability::CapabilityList => Rule::CapabilityListIndex,
        Capability::ChangeNotification => Rule::NotificationRoot,
        Capability::FrameworkNotification => Rule::FrameworkRoot,
        _ => Rule::ShapeRoot,
    }
}

fn check_head_shape(
    header: &Header,
    document: &Capability,
    shape: &Shape,
    broken: &mut impl FnMut(Rule, String),
) {
    let missing = match document {
        Capability::ChangeNotification => Rule::NotificationInterval,
        _ => Rule::TimeMissing,
    };
    let subject = Subject { document, what: "root" };
    check_times(&header.metadata, shape.head.times, subject, missing, broken);

    let head = &shape.head;
    let cells = [
        (Relation::Up, head.up, Rule::UpMissing, "up link"),
        (Relation::Index, head.index, Rule::ShapeMissing, "index link"),
        (Relation::Archives, head.archives, Rule::ShapeMissing, "archives link"),
        (Relation::DescribedBy, head.described_by, Rule::ShapeMissing, "describedby link"),
    ];
    for (relation, need, missing, name) in cells {
        let rules = Cell { missing, unforeseen: Rule::RelationPlace, ..Cell::SHAPE };
        check_cell(need, header.link(&relation).is_some(), name, subject, rules, broken);
    }
    let root_relations = [Relation::Up, Relation::Index, Relation::Archives, Relation::DescribedBy];
    for link in &header.links {
        if !matches!(link.rel, Relation::Other(_)) && !root_relations.contains(&link.rel) {
            broken(Rule::RelationPlace, format!("the root has a {} link", link.rel));
        }
    }
}

fn check_entry_metadata(
    entry: &Entry,
    document: &Capability,
    shape: &EntryShape,
    broken: &mut impl FnMut(Rule, String),
) {
    let empty = Metadata::default();
    let metadata = entry.metadata.as_ref().unwrap_or(&empty);
    let subject = Subject { document, what: "entry" };
    check_times(metadata, shape.times, subject, Rule::TimeMissing, broken);

    let missing = match document {
        Capability::ChangeNotification => Rule::NotificationEntry,
        Capability::FrameworkNotification => Rule::FrameworkEntry,
        _ => Rule::ShapeMissing,
    };
    let deleted = metadata.change == Some(Change::Deleted);
    // Nothing is left of a deletion that could be described or packed (RS-129, RS-144).
    let unless_deleted = |need| match need {
        Need::Must | Need::Advised if deleted => Need::May,
        need => need,
    };
    let cells = [
        (shape.capability, metadata.capability.is_some(), "capability"),
        (shape.change, metadata.change.is_some(), "change"),
        (shape.datetime, metadata.datetime.is_some(), "datetime"),
        (shape.representation, !metadata.hash.is_empty(), "hash"),
        (shape.representation, metadata.encoding.is_some(), "encoding"),
        (unless_deleted(shape.length), metadata.length.is_some(), "length"),
        (unless_deleted(shape.media_type), metadata.media_type.is_some(), "type"),
    ];
    let rules = Cell { missing, ..Cell::SHAPE };
    for (need, present, name) in cells {
        check_cell(need, present, name, subject, rules, broken);
    }
    let rules = Cell { forbidden: Rule::PathPlace, ..Cell::SHAPE };
    check_cell(unless_deleted(shape.path), metadata.path.is_some(), "path", subject, rules, broken);
}

fn check_relations(
    entry: &Entry,
    document: &Capability,
    allowed: Links,
    broken: &mut impl FnMut(Rule, String),
) {
    // A patch has a rule of its own, and so has a hub in a Capability List.
    for link in entry.links.iter().filter(|link| link.rel != Relation::Patch) {
        if !links::is_foreseen(&link.rel, allowed) {
            broken(Rule::RelationPlace, format!("an entry of a {document} has a {} link", link.rel));
        }
    }
    if let Links::Only([Relation::DescribedBy]) = allowed
        && entry.link(&Relation::DescribedBy).is_none()
    {
        broken(Rule::ShapeAdvised, "the entry has no describedby link".to_owned());
    }
}

fn check_times(
    metadata: &Metadata,
    times: Times,
    subject: Subject<'_>,
    missing: Rule,
    broken: &mut impl FnMut(Rule, String),
) {
    let rules = Cell { missing, ..Cell::TIME };
    let cells = [
        (times.at, metadata.at, "at"),
        (times.completed, metadata.completed, "completed"),
        (times.from, metadata.from, "from"),
        (times.until, metadata.until, "until"),
    ];
    for (need, time, name) in cells {
        check_cell(need, time.is_some(), name, subject, rules, broken);
    }
}

/// What a cell speaks of, for the detail of a violation.
#[derive(Clone, Copy)]
struct Subject<'a> {
    document: &'a Capability,
    what: &'static str,
}

/// Which rule is broken when a cell of the matrices is not heeded.
#[derive(Clone, Copy)]
struct Cell {
    missing: Rule,
    advised: Rule,
    unforeseen: Rule,
    forbidden: Rule,
}

impl Cell {
    const TIME: Self = Self {
        missing: Rule::TimeMissing,
        advised: Rule::TimeAdvised,
        unforeseen: Rule::TimeUnforeseen,
        forbidden: Rule::TimeForbidden,
    };
    const SHAPE: Self = Self {
        missing: Rule::ShapeMissing,
        advised: Rule::ShapeAdvised,
        unforeseen: Rule::ShapeUnforeseen,
        forbidden: Rule::ShapeForbidden,
    };
}

fn check_cell(
    need: Need,
    present: bool,
    name: &str,
    subject: Subject<'_>,
    rules: Cell,
    broken: &mut impl FnMut(Rule, String),
) {
    let Subject { document, what } = subject;
    let rule = match (need, present) {
        (Need::Must, false) => rules.missing,
        (Need::Advised, false) => rules.advised,
        (Need::Unforeseen, true) => rules.unforeseen,
        (Need::Forbidden, true) => rules.forbidden,
        _ => return,
    };
    let verb = if present { "has" } else { "has no" };
    broken(rule, format!("the {what} of this {document} {verb} {name}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Hashes;
    use crate::document::{
        CapabilityList, ChangeNotification, Document, FrameworkChange, FrameworkNotification, Resource,
        ResourceChange, ResourceList, SourceDescription,
    };
    use crate::document::{ForeignAttribute, Link};
    use crate::rules::Severity;
    use crate::xml;

    const UP: &str = "http://example.org/capabilitylist.xml";

    fn time(text: &str) -> DateTime {
        text.parse().unwrap()
    }

    fn rules(violations: &Violations) -> Vec<Rule> {
        violations.iter().map(|violation| violation.rule).collect()
    }

    fn errors(document: Result<Document, Violations>) -> Vec<Rule> {
        match document {
            Ok(_) => vec![],
            Err(violations) => violations.errors().map(|violation| violation.rule).collect(),
        }
    }

    fn raw(root: Root, capability: Capability) -> RawDocument {
        RawDocument { header: Header::new(root, capability), entries: vec![] }
    }

    fn entry(metadata: Metadata) -> Entry {
        Entry::with_metadata("http://example.org/a.html", metadata)
    }

    /// A Change List open since 2013-01-01 with these entries.
    fn change_list(entries: Vec<Entry>) -> RawDocument {
        let mut document = raw(Root::UrlSet, Capability::ChangeList);
        document.header.metadata.from = Some(time("2013-01-01"));
        document.header.links.push(Link::new(Relation::Up, UP));
        document.entries = entries;
        document
    }

    fn change(datetime: &str) -> Metadata {
        Metadata { change: Some(Change::Updated), datetime: Some(time(datetime)), ..Metadata::default() }
    }

    #[test]
    fn rs010_a_document_without_capability_does_not_conform() {
        let mut document = raw(Root::UrlSet, Capability::ResourceList);
        document.header.metadata.capability = None;
        assert_eq!(rules(&check(&document)), [Rule::CapabilityMissing]);
        document.header.metadata.capability = Some(Capability::from(""));
        assert!(rules(&check(&document)).contains(&Rule::CapabilityMissing));
    }

    #[test]
    fn rs011_a_capability_of_others_is_only_warned_of() {
        let violations = check(&raw(Root::SitemapIndex, Capability::from("audio-list")));
        assert_eq!(rules(&violations), [Rule::CapabilityUnknown]);
        assert!(violations.is_conforming());
    }

    #[test]
    fn rs017_the_root_does_not_speak_of_a_representation() {
        let mut document = change_list(vec![]);
        document.header.metadata.length = Some(3);
        assert_eq!(rules(&check(&document)), [Rule::RootAttribute]);
    }

    #[test]
    fn rs021_rs022_nothing_ends_before_it_starts() {
        let at = time("2013-01-03T09:00:00Z");
        let list = ResourceList::new(at, UP).completed(time("2013-01-02"));
        assert_eq!(errors(list.build()), [Rule::SnapshotReversed]);
        let notification = ChangeNotification::new(at, time("2013-01-02"));
        assert_eq!(errors(notification.build()), [Rule::IntervalReversed]);
    }

    #[test]
    fn rs030_a_change_lies_within_the_interval_with_both_ends_included() {
        let (from, until) = (time("2013-01-01"), time("2013-01-02"));
        let notify = |datetime: &str| {
            let change = ResourceChange::created("http://example.org/a").datetime(time(datetime));
            errors(ChangeNotification::new(from, until).change(change).build())
        };
        assert_eq!(notify("2013-01-01T00:00:00Z"), []);
        assert_eq!(notify("2013-01-02T00:00:00Z"), []);
        assert_eq!(notify("2013-01-02T00:00:00.001Z"), [Rule::DatetimeOutside]);
        assert_eq!(notify("2012-12-31T23:59:59Z"), [Rule::DatetimeOutside]);
    }

    #[test]
    fn rs035_rs037_what_a_destination_can_ignore_is_a_warning() {
        let resource =
            Resource::new("http://example.org/a").hashes(Hashes::parse("crc32:00")).media_type("hypertext");
        let mut document = ResourceList::new(time("2013"), UP).build().unwrap().into_raw();
        document.entries.push(resource.into());
        let violations = check(&document);
        assert_eq!(rules(&violations), [Rule::HashUnknown, Rule::MediaType]);
        assert!(violations.is_conforming());
    }

    #[test]
    fn rs040_a_path_stands_only_in_manifests() {
        let metadata = Metadata { path: Some("/a".to_owned()), ..change("2013-01-02") };
        assert_eq!(rules(&check(&change_list(vec![entry(metadata.clone())]))), [Rule::PathPlace]);

        let mut manifest = change_list(vec![entry(metadata)]);
        manifest.header.metadata.capability = Some(Capability::ChangeDumpManifest);
        assert_eq!(rules(&check(&manifest)), [Rule::ShapeAdvised], "the type is advised");
        for (path, rule) in [("a", Rule::PathShape), ("/a/", Rule::PathShape), ("/../a", Rule::PathUnsafe)] {
            manifest.entries[0].metadata.as_mut().unwrap().path = Some(path.to_owned());
            assert!(rules(&check(&manifest)).contains(&rule), "{path}");
        }
    }

    #[test]
    fn rs041_pri_goes_from_1_to_999999() {
        for (pri, fits) in [(0, false), (1, true), (999_999, true), (1_000_000, false)] {
            let link =
                Link { pri: Some(pri), ..Link::new(Relation::Duplicate, "http://mirror.example.org/a") };
            let list = ResourceList::new(time("2013"), UP)
                .resource(Resource::new("http://example.org/a").link(link));
            assert_eq!(errors(list.build()), if fits { vec![] } else { vec![Rule::Priority] }, "{pri}");
        }
    }

    #[test]
    fn rs042_the_entry_after_the_fifty_thousandth_is_too_many() {
        let mut checker = Checker::new(&Header::new(Root::UrlSet, Capability::from("any")));
        let entry = Entry::new("http://example.org/a");
        for _ in 0..MAX_ENTRIES {
            checker.entry(&entry, None);
        }
        assert!(checker.violations().is_conforming());
        checker.entry(&entry, None);
        assert_eq!(
            checker.finish().errors().map(|violation| violation.rule).collect::<Vec<_>>(),
            [Rule::TooLarge]
        );
    }

    #[test]
    fn rs046_a_document_without_entries_conforms() {
        assert!(check(&change_list(vec![])).is_empty());
    }

    #[test]
    fn rs047_loc_is_an_absolute_uri_of_12_to_2048_characters() {
        for loc in [
            "",
            "/a.html",
            "http://a.b/",
            "http://example.org/a b",
            &format!("http://a.b/{}", "a".repeat(2048)),
        ] {
            let description = SourceDescription::new().capability_list(loc);
            assert_eq!(errors(description.build()), [Rule::Loc], "{loc:?}");
        }
    }

    #[test]
    fn rs053_what_lies_below_a_capability_list_points_up() {
        let mut document = change_list(vec![]);
        document.header.links.clear();
        assert_eq!(rules(&check(&document)), [Rule::UpMissing]);
        assert!(errors(FrameworkNotification::new().build()).is_empty(), "a notification need not");
    }

    #[test]
    fn rs057_a_relation_has_the_shape_of_a_name_or_uri() {
        let mut document = change_list(vec![entry(change("2013-01-02"))]);
        document.entries[0].links.push(Link::new(Relation::from("alternate mirror"), "http://example.org/b"));
        assert_eq!(rules(&check(&document)), [Rule::RelationShape]);
        document.entries[0].links[0] = Link::new(Relation::from("license"), "http://example.org/b");
        assert!(check(&document).is_empty());
    }

    #[test]
    fn rs060_times_that_a_kind_must_not_have_are_refused_and_advised_ones_asked_for() {
        let mut document = change_list(vec![]);
        document.header.metadata.at = Some(time("2013"));
        assert_eq!(rules(&check(&document)), [Rule::TimeForbidden]);
        document.header.metadata.at = None;
        document.header.metadata.from = None;
        assert_eq!(rules(&check(&document)), [Rule::TimeMissing]);

        let mut index = change_list(vec![Entry::new("http://example.org/changelist-1.xml")]);
        index.header.root = Root::SitemapIndex;
        let violations = check(&index);
        assert_eq!(rules(&violations), [Rule::TimeAdvised]);
        assert!(violations.is_conforming());
    }

    #[test]
    fn rs061_a_change_list_tells_how_each_resource_changed() {
        let unchanged = Metadata { datetime: Some(time("2013-01-02")), ..Metadata::default() };
        assert_eq!(rules(&check(&change_list(vec![entry(unchanged)]))), [Rule::ShapeMissing]);
        let mut list = ResourceList::new(time("2013"), UP).build().unwrap().into_raw();
        list.entries.push(entry(Metadata { change: Some(Change::Updated), ..Metadata::default() }));
        assert_eq!(rules(&check(&list)), [Rule::ShapeForbidden]);
    }

    #[test]
    fn rs061_a_manifest_cannot_be_an_index() {
        let document = raw(Root::SitemapIndex, Capability::ResourceDumpManifest);
        assert_eq!(rules(&check(&document)), [Rule::ShapeRoot]);
    }

    #[test]
    fn rs082_a_capability_is_listed_once() {
        let list = CapabilityList::new("http://example.org/description.xml")
            .capability(Capability::ResourceList, "http://example.org/resourcelist-1.xml")
            .capability(Capability::ResourceList, "http://example.org/resourcelist-2.xml");
        let violations = list.build().unwrap_err();
        let repeated: Vec<_> =
            violations.errors().map(|violation| (violation.rule, violation.place.entry)).collect();
        assert_eq!(repeated, [(Rule::CapabilityRepeated, Some(2))]);
    }

    #[test]
    fn rs083_capability_lists_have_no_index() {
        let document = raw(Root::SitemapIndex, Capability::CapabilityList);
        assert_eq!(rules(&check(&document)), [Rule::CapabilityListIndex]);
    }

    #[test]
    fn rs121_changes_come_oldest_first_and_one_without_datetime_breaks_no_order() {
        let undated = Metadata { datetime: None, ..change("2013-01-02") };
        let dates = |dates: [&str; 2]| {
            let mut entries: Vec<_> = dates.into_iter().map(|date| entry(change(date))).collect();
            entries.insert(1, entry(undated.clone()));
            rules(&check(&change_list(entries)))
        };
        assert_eq!(dates(["2013-01-02", "2013-01-02"]), [Rule::ShapeAdvised]);
        assert_eq!(dates(["2013-01-03", "2013-01-02"]), [Rule::ShapeAdvised, Rule::ChangeOrder]);
    }

    #[test]
    fn rs127_only_the_last_list_of_an_index_is_open() {
        let part = |from: &str| entry(Metadata { from: Some(time(from)), ..Metadata::default() });
        let mut index = change_list(vec![part("2013-01-01"), part("2013-01-02")]);
        index.header.root = Root::SitemapIndex;
        assert_eq!(rules(&check(&index)), [Rule::OpenBeforeLast]);
        index.entries[0].metadata.as_mut().unwrap().until = Some(time("2013-01-02"));
        assert!(check(&index).is_empty());
    }

    #[test]
    fn rs129_a_deletion_has_no_representation_and_rs144_needs_no_path() {
        let deleted = Metadata { change: Some(Change::Deleted), ..change("2013-01-02") };
        let mut manifest = change_list(vec![entry(deleted.clone())]);
        manifest.header.metadata.capability = Some(Capability::ChangeDumpManifest);
        assert!(check(&manifest).is_empty());
        let described = Metadata { length: Some(4), ..deleted };
        assert_eq!(rules(&check(&change_list(vec![entry(described)]))), [Rule::DeletedRepresentation]);
    }

    #[test]
    fn rs146_rs174_a_patch_has_a_type_a_place_and_in_a_manifest_a_path() {
        let mut document = change_list(vec![entry(change("2013-01-02"))]);
        document.entries[0].links.push(Link::new(Relation::Patch, "http://example.org/patch"));
        assert_eq!(rules(&check(&document)), [Rule::PatchType]);
        document.entries[0].links[0].media_type = Some("application/json-patch+json".to_owned());
        assert!(check(&document).is_empty());
        document.header.metadata.capability = Some(Capability::ChangeDumpManifest);
        assert!(rules(&check(&document)).contains(&Rule::PatchPath));
    }

    #[test]
    fn rs178_a_timegate_link_is_bare() {
        let gate = Link { length: Some(1), ..Link::new(Relation::TimeGate, "http://example.org/timegate") };
        let mut document = change_list(vec![entry(change("2013-01-02"))]);
        document.entries[0].links.push(gate);
        assert_eq!(rules(&check(&document)), [Rule::TimeGateAttributes]);
    }

    #[test]
    fn rs016_foreign_attributes_that_cannot_be_written_are_refused() {
        let attribute = |prefix: &str, namespace: &str, name: &str| ForeignAttribute {
            namespace: namespace.to_owned(),
            prefix: prefix.to_owned(),
            name: name.to_owned(),
            value: String::new(),
        };
        let good = [
            attribute("a", "urn:a", "x"),
            attribute("a", "urn:a", "y"),
            attribute("xml", xml::XML_NAMESPACE, "lang"),
        ];
        let checked = |foreign: &[ForeignAttribute]| {
            rules(&check(&change_list(vec![entry(Metadata {
                foreign: foreign.to_vec(),
                ..change("2013-01-02")
            })])))
        };
        assert_eq!(checked(&good), []);
        for bad in [
            vec![attribute("rs", "urn:a", "x")],
            vec![attribute("a", xml::RS_NAMESPACE, "x")],
            vec![attribute("a", "", "x")],
            vec![attribute("xml", "urn:a", "x")],
            vec![attribute("a", xml::XML_NAMESPACE, "x")],
            vec![attribute("", "urn:a", "x")],
            vec![attribute("a", "urn:a", "x y")],
            vec![attribute("a", "urn:a", "x"), attribute("b", "urn:a", "x")],
            vec![attribute("a", "urn:a", "x"), attribute("a", "urn:b", "y")],
        ] {
            assert_eq!(checked(&bad), [Rule::AttributeForeign], "{bad:?}");
        }
    }

    #[test]
    fn text_that_xml_cannot_carry_is_refused() {
        let list = ResourceList::new(time("2013"), UP)
            .resource(Resource::new("http://example.org/a").encoding("\0"));
        assert_eq!(errors(list.build()), [Rule::Characters]);
    }

    #[test]
    fn cn006_fn020_notifications_are_never_an_index() {
        let document = raw(Root::SitemapIndex, Capability::ChangeNotification);
        assert_eq!(rules(&check(&document)), [Rule::NotificationRoot]);
        let document = raw(Root::SitemapIndex, Capability::FrameworkNotification);
        assert_eq!(rules(&check(&document)), [Rule::FrameworkRoot]);
    }

    #[test]
    fn cn007_cn011_cn012_a_change_notification_has_an_interval_changes_and_their_order() {
        let mut document = change_list(vec![entry(change("2013-01-03")), entry(change("2013-01-02"))]);
        document.header.metadata.capability = Some(Capability::ChangeNotification);
        document.entries.push(Entry::new("http://example.org/b.html"));
        let wanted = [Rule::NotificationInterval, Rule::NotificationOrder, Rule::NotificationEntry];
        assert_eq!(rules(&check(&document)), wanted);
    }

    #[test]
    fn cn017_the_old_token_is_never_written() {
        let list = CapabilityList::new("http://example.org/description.xml")
            .capability(Capability::from("changelist-notification"), "http://example.org/topic");
        assert_eq!(errors(list.build()), [Rule::NotificationTokenWritten]);
    }

    #[test]
    fn fn021_a_framework_notification_may_have_an_interval_but_no_at() {
        let (from, until) = (time("2013-01-01"), time("2013-01-02"));
        let notification = FrameworkNotification::new().interval(from, until).build().unwrap();
        let mut document = notification.into_raw();
        assert!(check(&document).is_empty());
        document.header.metadata.at = Some(from);
        assert_eq!(rules(&check(&document)), [Rule::TimeForbidden]);
    }

    #[test]
    fn fn023_each_entry_needs_both_change_and_capability() {
        let change =
            FrameworkChange::new(Change::Created, Capability::ChangeList, "http://example.org/1.xml");
        let mut document = FrameworkNotification::new().change(change).build().unwrap().into_raw();
        document.entries[0].metadata.as_mut().unwrap().capability = None;
        document.entries.push(Entry::new("http://example.org/2.xml"));
        let wanted = [Rule::FrameworkEntry; 3];
        assert_eq!(rules(&check(&document)), wanted);
    }

    #[test]
    fn fn060_cn019_a_channel_names_a_hub_and_other_entries_do_not() {
        let list = |capability: Capability, hubs: &[&str]| {
            let up = "http://example.org/description.xml";
            errors(
                CapabilityList::new(up)
                    .channel(capability, "http://example.org/topic", hubs.iter().copied())
                    .build(),
            )
        };
        let hub = ["http://hub.example.org/websub/"];
        assert_eq!(list(Capability::FrameworkNotification, &hub), []);
        assert_eq!(list(Capability::FrameworkNotification, &[]), [Rule::FrameworkHub]);
        assert_eq!(list(Capability::ChangeNotification, &[]), [Rule::NotificationHub]);
        assert_eq!(list(Capability::ResourceList, &hub), [Rule::HubPlace]);
    }

    #[test]
    fn fn060_a_hub_link_elsewhere_is_warned_of() {
        let mut document = change_list(vec![entry(change("2013-01-02"))]);
        document.header.links.push(Link::new(Relation::Hub, "http://hub.example.org/"));
        document.entries[0].links.push(Link::new(Relation::Hub, "http://hub.example.org/"));
        let violations = check(&document);
        assert_eq!(rules(&violations), [Rule::RelationPlace, Rule::RelationPlace]);
        assert!(violations.iter().all(|violation| violation.rule.severity() == Severity::Warning));
    }
}
