//! Snapshots after snapshots: pollers that read between any two steps, and runs that break at any step.

use std::collections::BTreeSet;
use std::io::{self, Cursor};

use proptest::prelude::*;
use resync_core::build::{
    ArchiveKind, Archives, BuildError, ChangeDumps, ChangeLists, Event, Item, MemoryInventory, MemorySink,
    PackageLimits, Published, ResourceDumps, ResourceLists, Rotation, Sink,
};
use resync_core::document::{Change, Document, Relation, Root};
use resync_core::package::Package;
use resync_core::xml::{self, Limits};

use super::broken::{Break, Breaking};
use super::site::{ROOT, check_each, content, item, moment, site};

/// What is published again and again.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Lists,
    Dumps,
    Archives,
}

const KINDS: [Kind; 3] = [Kind::Lists, Kind::Dumps, Kind::Archives];

#[derive(Clone, Copy, Debug)]
struct Shape {
    items: u32,
    entries: usize,
    at: u32,
}

/// Two documents under an index at least.
const LONG: Shape = Shape { items: 7, entries: 2, at: 0 };

impl Kind {
    fn stem(self) -> &'static str {
        match self {
            Self::Lists => "resourcelist",
            Self::Dumps => "resourcedump",
            Self::Archives => "resourcelist-archive",
        }
    }

    fn top(self) -> String {
        format!("{}.xml", self.stem())
    }

    /// Publishes a generation; every entry tells its number.
    fn publish<S: Sink>(self, sink: &mut S, number: u32, shape: Shape) -> Result<Published, BuildError> {
        let limits = Limits { entries: shape.entries, ..Limits::default() };
        let inventory: MemoryInventory = (0..shape.items).map(|place| item(place, number)).collect();
        match self {
            Self::Lists => ResourceLists::new(&site(), moment(shape.at))
                .limits(limits)
                .write(inventory.into_iter(), sink),
            Self::Dumps => ResourceDumps::new(&site(), moment(shape.at))
                .limits(limits)
                .package_limits(PackageLimits { bitstreams: 2, ..PackageLimits::default() })
                .write(inventory.into_iter(), |item: &Item| bytes(item, number), sink),
            Self::Archives => {
                let name = |place| format!("https://example.org/{place}.xml");
                let archived = (0..shape.items).map(|place| (name(place), Some(moment(number)), None));
                Archives::new(&site(), ArchiveKind::ResourceLists, moment(shape.at))
                    .limits(limits)
                    .write(archived, sink)
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what contents give")]
fn bytes(item: &Item, version: u32) -> io::Result<Option<Cursor<String>>> {
    let number = item.loc["https://example.org/items/".len()..][..4].parse().unwrap();
    Ok(Some(Cursor::new(content(number, version))))
}

/// All that a document leads to.
#[derive(Debug, Default)]
struct Seen {
    names: BTreeSet<String>,
    generations: BTreeSet<u32>,
    resources: u32,
}

impl Seen {
    /// What somebody reads now who took the document some time ago.
    fn from(sink: &MemorySink, top: &Document) -> Self {
        let mut seen = Self::default();
        if top.root() == Root::SitemapIndex {
            for part in top.entries() {
                let part = seen.read(sink, &part.loc);
                seen.entries(sink, part.entries());
            }
        } else {
            seen.entries(sink, top.entries());
        }
        seen
    }

    fn entries(&mut self, sink: &MemorySink, entries: &[resync_core::document::Entry]) {
        for entry in entries {
            if let Some(copy) = entry.link(&Relation::Contents) {
                self.read(sink, &copy.href);
                self.unpack(sink, &entry.loc);
            } else {
                self.add(entry);
            }
        }
    }

    fn add(&mut self, entry: &resync_core::document::Entry) {
        let told = entry.lastmod.or(entry.metadata.as_ref().and_then(|metadata| metadata.at)).unwrap();
        let seconds = (told.unix_millis() - moment(0).unix_millis()) / 1_000;
        self.generations.insert(u32::try_from(seconds).unwrap());
        self.resources += 1;
    }

    fn get<'a>(&mut self, sink: &'a MemorySink, url: &str) -> &'a [u8] {
        let name = url.strip_prefix(ROOT).unwrap();
        self.names.insert(name.to_owned());
        sink.get(name).unwrap_or_else(|| panic!("{name} is gone"))
    }

    fn read(&mut self, sink: &MemorySink, url: &str) -> Document {
        xml::read(self.get(sink, url)).unwrap().into_document().unwrap()
    }

    fn unpack(&mut self, sink: &MemorySink, url: &str) {
        let mut package = Package::open(Cursor::new(self.get(sink, url))).unwrap();
        while let Some(entry) = package.next_entry().unwrap() {
            package.copy(&entry, &mut io::sink()).unwrap();
            self.add(&entry);
        }
    }
}

fn top(sink: &MemorySink, kind: Kind) -> Option<Document> {
    let bytes = sink.get(&kind.top())?;
    Some(xml::read(bytes).unwrap().into_document().unwrap())
}

/// Pollers that began at every step there was.
struct Pollers {
    kind: Kind,
    /// How many resources each generation has.
    items: Vec<u32>,
    /// The documents that led to everything, one after the other; pollers hold one of the last two.
    tops: Vec<Document>,
}

impl Pollers {
    fn look(&mut self, sink: &MemorySink) {
        if let Some(top) = top(sink, self.kind)
            && self.tops.last() != Some(&top)
        {
            self.tops.push(top);
        }
        for top in self.tops.iter().rev().take(2) {
            let seen = Seen::from(sink, top);
            let generation: Vec<u32> = seen.generations.into_iter().collect();
            assert_eq!(generation.len(), 1, "{generation:?}");
            assert_eq!(seen.resources, self.items[generation[0] as usize]);
        }
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    // Few moments, so that many snapshots have the same.
    (1..12_u32, 1..5_usize, 0..3_u32).prop_map(|(items, entries, at)| Shape { items, entries, at })
}

fn breaks() -> impl Strategy<Value = Option<(usize, Break)>> {
    prop::option::of((0..150_usize, prop::sample::select(&[Break::Once, Break::Late, Break::ForGood][..])))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn rs091_a_poller_sees_one_snapshot_whole_at_every_step_of_any_sequence_of_them(
        kind in prop::sample::select(&KINDS[..]),
        runs in prop::collection::vec((shapes(), breaks()), 1..7),
        last in shapes(),
    ) {
        let mut sink = MemorySink::default();
        let mut pollers = Pollers { kind, items: Vec::new(), tops: Vec::new() };
        for (shape, breaks) in runs.into_iter().chain([(last, None)]) {
            let number = u32::try_from(pollers.items.len()).unwrap();
            pollers.items.push(shape.items);
            let (steps, how) = breaks.unwrap_or((usize::MAX, Break::Once));
            let mut after = |sink: &MemorySink| pollers.look(sink);
            let outcome = kind.publish(&mut Breaking::new(&mut sink, steps, how, &mut after), number, shape);
            prop_assert!(outcome.is_ok() || breaks.is_some(), "{:?}", outcome);
            check_each(&sink);
        }
        // What is there is what the last two lead to, and nothing that a broken run left.
        let mut wanted = BTreeSet::from([kind.top()]);
        wanted.extend(pollers.tops.iter().rev().take(2).flat_map(|top| Seen::from(&sink, top).names));
        prop_assert_eq!(sink.names().map(str::to_owned).collect::<BTreeSet<_>>(), wanted);
    }
}

#[test]
fn a_step_that_fails_leaves_the_last_snapshot_or_the_next_one_and_its_error_says_which_document() {
    for kind in KINDS {
        for how in [Break::Once, Break::Late, Break::ForGood] {
            let mut before = MemorySink::default();
            kind.publish(&mut before, 0, LONG).unwrap();
            let mut steps = 0;
            loop {
                let mut sink = before.clone();
                let outcome = kind.publish(&mut Breaking::new(&mut sink, steps, how, &mut |_| {}), 1, LONG);
                let seen = Seen::from(&sink, &top(&sink, kind).unwrap());
                assert_eq!((seen.generations.len(), seen.resources), (1, LONG.items));
                check_each(&sink);
                let Err(error) = outcome else { break };
                assert!(error.to_string().contains(&format!("`{}", kind.stem())), "{error}");
                assert!(error.to_string().contains("no space left on device; "), "{error}");
                kind.publish(&mut sink, 2, LONG).unwrap();
                assert_eq!(Seen::from(&sink, &top(&sink, kind).unwrap()).generations, BTreeSet::from([2]));
                steps += 1;
            }
            assert!(steps > 20, "{steps}");
        }
    }
}

#[test]
fn a_run_that_fails_while_it_publishes_leaves_nothing_that_takes_up_room() {
    for kind in KINDS {
        let mut before = MemorySink::default();
        kind.publish(&mut before, 0, LONG).unwrap();
        for steps in 0.. {
            let mut sink = before.clone();
            let mut is_seen = false;
            let mut after = |sink: &MemorySink| {
                is_seen |= Seen::from(sink, &top(sink, kind).unwrap()).generations == BTreeSet::from([1]);
            };
            let mut breaking = Breaking::new(&mut sink, steps, Break::Once, &mut after);
            match kind.publish(&mut breaking, 1, LONG) {
                Ok(_) => break,
                // The last of all, which leads to the others, may or may not have come into its place.
                Err(BuildError::Write { name, .. }) if name == kind.top() => {}
                Err(_) if is_seen => {}
                Err(_) => assert!(sink.names().eq(before.names()), "{steps}"),
            }
        }
    }
}

#[test]
fn documents_that_somebody_else_put_there_are_never_removed() {
    let foreign = [
        "resourcelist-1.xml",
        "resourcelist-20260101T000000Z-1.xml.bak",
        "resourcelist-2026-1.xml",
        "resourcelist-archive-20260101T000000Z-1.xml",
        "robots.txt",
        "sub/resourcelist-20260101T000000Z-1.xml",
    ];
    let mut sink = MemorySink::default();
    for name in foreign {
        let draft = sink.create(name).unwrap();
        sink.publish(draft).unwrap();
    }
    for number in 0..4 {
        Kind::Lists.publish(&mut sink, number, Shape { at: number, ..LONG }).unwrap();
    }
    assert!(foreign.iter().all(|name| sink.get(name).is_some()));
}

#[test]
fn a_list_that_cannot_be_read_is_replaced_and_nothing_is_removed_that_it_may_have_led_to() {
    let mut sink = MemorySink::default();
    Kind::Lists.publish(&mut sink, 0, LONG).unwrap();
    let before: Vec<String> = sink.names().map(str::to_owned).collect();
    let mut draft = sink.create("resourcelist.xml").unwrap();
    io::Write::write_all(&mut draft, b"<urlset").unwrap();
    sink.publish(draft).unwrap();
    Kind::Lists.publish(&mut sink, 1, LONG).unwrap();
    assert!(before.iter().all(|name| sink.get(name).is_some()));
    assert_eq!(Seen::from(&sink, &top(&sink, Kind::Lists).unwrap()).generations, BTreeSet::from([1]));
}

/// Tells one change more than is told already.
fn change<S: Sink>(sink: &mut S, is_dump: bool, number: u32) -> Result<Published, BuildError> {
    let event = Event::new(Change::Updated, moment(number), item(number, 1));
    let rotation = Rotation { entries: Some(1), ..Rotation::default() };
    if is_dump {
        let bytes = |event: &Event| bytes(&event.item, 1);
        ChangeDumps::new(&site()).rotation(rotation).record(
            sink,
            moment(0),
            [Ok(event)],
            bytes,
            moment(number),
        )
    } else {
        ChangeLists::new(&site()).rotation(rotation).record(sink, moment(0), [Ok(event)], moment(number))
    }
}

#[test]
fn rs130_a_step_that_fails_leaves_change_documents_whole_and_the_next_run_goes_on() {
    for (is_dump, how) in [false, true]
        .into_iter()
        .flat_map(|is_dump| [Break::Once, Break::Late, Break::ForGood].map(|how| (is_dump, how)))
    {
        let mut before = MemorySink::default();
        change(&mut before, is_dump, 1).unwrap();
        for steps in 0.. {
            let mut sink = before.clone();
            let outcome = change(&mut Breaking::new(&mut sink, steps, how, &mut |_| {}), is_dump, 2);
            check_each(&sink);
            for name in sink.names().filter(|name| name.contains(".zip")) {
                Package::open(Cursor::new(sink.get(name).unwrap())).unwrap();
            }
            let Err(error) = outcome else { break };
            assert!(error.to_string().contains("no space left on device"), "{error}");
            change(&mut sink, is_dump, 3).unwrap();
            check_each(&sink);
        }
    }
}

/// The packages and copies of manifests that are there, and those that a dump names.
fn packages_there_and_named(sink: &MemorySink) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_package = |name: &&str| name.contains(".zip") || name.ends_with("-manifest.xml");
    let there = sink.names().filter(is_package).map(str::to_owned).collect();
    let mut named = BTreeSet::new();
    for name in sink.names().filter(|name| !is_package(name) && *name != "changedump.xml") {
        let dump = xml::read(sink.get(name).unwrap()).unwrap().into_document().unwrap();
        for entry in dump.entries() {
            let copy = entry.link(&Relation::Contents).unwrap();
            named.extend([&entry.loc, &copy.href].map(|url| url.strip_prefix(ROOT).unwrap().to_owned()));
        }
    }
    (there, named)
}

#[test]
fn rs140_no_package_stays_that_no_dump_names_whatever_a_run_broke_at() {
    for how in [Break::Once, Break::Late, Break::ForGood] {
        let mut before = MemorySink::default();
        change(&mut before, true, 1).unwrap();
        for steps in 0.. {
            let mut sink = before.clone();
            let outcome = change(&mut Breaking::new(&mut sink, steps, how, &mut |_| {}), true, 2);
            let (there, named) = packages_there_and_named(&sink);
            assert!(there.is_superset(&named), "{steps}: {named:?} are named, {there:?} are there");
            let is_through = outcome.is_ok();
            change(&mut sink, true, 3).unwrap();
            let (there, named) = packages_there_and_named(&sink);
            assert_eq!(there, named, "{how:?} at {steps}");
            if is_through {
                break;
            }
        }
    }
}

#[test]
fn archives_of_two_sets_in_one_folder_have_a_stem_each() {
    let mut sink = MemorySink::default();
    for stem in ["moss-archive", "fern-archive"] {
        let archives = Archives::new(&site(), ArchiveKind::ResourceLists, moment(5)).stem(stem);
        let archived = (0..3).map(|place| (format!("https://example.org/{stem}/{place}.xml"), None, None));
        archives.limits(Limits { entries: 2, ..Limits::default() }).write(archived, &mut sink).unwrap();
    }
    let names: Vec<&str> = sink.names().collect();
    assert_eq!(
        names,
        [
            "fern-archive-20260101T000005Z-1.xml",
            "fern-archive-20260101T000005Z-2.xml",
            "fern-archive.xml",
            "moss-archive-20260101T000005Z-1.xml",
            "moss-archive-20260101T000005Z-2.xml",
            "moss-archive.xml",
        ]
    );
}
