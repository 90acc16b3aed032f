//! Change Lists: differences, rotation, and what a poller sees at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Duration;

use proptest::prelude::*;
use resync_core::build::{
    BuildError, ChangeLists, Event, Item, MemoryInventory, MemorySink, Position, Published, Rotation, Sink,
    differences,
};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest};
use resync_core::document::{
    Capability, Change, ChangeList, ChangeListIndex, Document, Link, Relation, ResourceChange,
};
use resync_core::xml::{self, Limits};

use super::site::{ROOT, Watched, check_each, check_site, document, item, judge_each, moment, site};

type Told = (String, DateTime, Change);

fn event(number: u32, seconds: u32) -> Event {
    let change = Change::ALL[number as usize % 3];
    Event::new(change, moment(seconds), item(number, seconds))
}

fn told(event: &Event) -> Told {
    (event.item.loc.clone(), event.moment, event.change)
}

/// What a Destination learns that comes anew: index, then every list.
fn all_told(sink: &MemorySink) -> Vec<Told> {
    let Some(index) = sink.get("changelist.xml").map(|_| document(sink, "changelist.xml")) else {
        return Vec::new();
    };
    let names = index.entries().iter().map(|entry| entry.loc.strip_prefix(ROOT).unwrap().to_owned());
    names.flat_map(|name| changes(&document(sink, &name))).collect()
}

fn changes(list: &Document) -> Vec<Told> {
    let told = list.entries().iter().map(|entry| {
        let metadata = entry.metadata.as_ref().unwrap();
        (entry.loc.clone(), metadata.datetime.unwrap(), metadata.change.unwrap())
    });
    told.collect()
}

/// A Destination that knows where it is: polls its open list from the first entry it has not seen; once closed, asks the index for the
/// list that goes on (RS-192 to RS-194).
#[derive(Default)]
struct Poller {
    list: Option<String>,
    /// How many entries of that list were seen.
    place: usize,
    seen: Vec<Told>,
}

impl Poller {
    fn poll(&mut self, sink: &MemorySink) {
        loop {
            let Some(name) = self.list.clone().or_else(|| first(sink)) else { return };
            self.list = Some(name.clone());
            let list = document(sink, &name);
            let told = changes(&list);
            self.seen.extend_from_slice(&told[self.place..]);
            self.place = told.len();
            let Some(until) = list.header().metadata.until else { return };
            let index = document(sink, "changelist.xml");
            let next = index.entries().iter().find(|entry| {
                let goes_on = entry.metadata.as_ref().and_then(|metadata| metadata.from) == Some(until);
                goes_on && number(&entry.loc) > number(&name)
            });
            // No successor yet: ask again later.
            let Some(next) = next else { return };
            (self.list, self.place) = (Some(next.loc.strip_prefix(ROOT).unwrap().to_owned()), 0);
        }
    }
}

/// Lists that were closed once; they are never written again (RS-023).
#[derive(Default)]
struct Closed(BTreeMap<String, Vec<u8>>);

impl Closed {
    fn look(&mut self, sink: &MemorySink) {
        for name in sink.names().filter(|name| name.starts_with("changelist-")) {
            let bytes = sink.get(name).unwrap();
            if let Some(before) = self.0.get(name) {
                assert!(before == bytes, "{name} was closed and changed");
            } else if document(sink, name).header().metadata.until.is_some() {
                self.0.insert(name.to_owned(), bytes.to_vec());
            }
        }
    }
}

fn first(sink: &MemorySink) -> Option<String> {
    sink.get("changelist.xml")?;
    let index = document(sink, "changelist.xml");
    index.entries().first().map(|entry| entry.loc.strip_prefix(ROOT).unwrap().to_owned())
}

fn number(name: &str) -> u32 {
    name.rsplit('-').next().unwrap().strip_suffix(".xml").unwrap().parse().unwrap()
}

fn batches() -> impl Strategy<Value = Vec<Vec<(u32, u32)>>> {
    // Each event: a resource, and how long after the one before it.
    prop::collection::vec(prop::collection::vec((0..20_u32, 0..4_u32), 0..9), 1..6)
}

fn dated(batches: Vec<Vec<(u32, u32)>>) -> Vec<Vec<Event>> {
    let mut clock = 1;
    let mut date = |(number, later): (u32, u32)| {
        clock += later;
        event(number, clock)
    };
    batches.into_iter().map(|batch| batch.into_iter().map(&mut date).collect()).collect()
}

fn lists(entries: usize, age: Option<u64>) -> ChangeLists {
    ChangeLists::new(&site()).rotation(Rotation { entries: Some(entries), age: age.map(Duration::from_secs) })
}

/// With a link to its version, where it has one.
fn linked(mut event: Event) -> Event {
    if event.change != Change::Deleted {
        let href = format!("https://example.org/versions/20260101000000/{}", event.item.loc);
        let modified = Some(event.moment);
        event.item.links.push(Link { modified, ..Link::new(Relation::Memento, href) });
    }
    event
}

/// All documents, by their names.
fn documents(sink: &MemorySink) -> Vec<(&str, &[u8])> {
    sink.names().map(|name| (name, sink.get(name).unwrap())).collect()
}

/// Puts other bytes in the place of a document.
fn digest(bytes: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, bytes)
}

fn replace(sink: &mut MemorySink, name: &str, bytes: &[u8]) {
    let mut draft = sink.create(name).unwrap();
    draft.write_all(bytes).unwrap();
    let staged = sink.stage(draft).unwrap();
    sink.publish(staged).unwrap();
}

fn now_after(batch: &[Event], now: DateTime) -> DateTime {
    batch.last().map_or(now, |last| last.moment)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rs130_no_step_of_a_rotation_breaks_a_rule_or_hides_a_change(
        batches in batches(), entries in 1..6_usize, age in prop::option::of(1..12_u64),
    ) {
        let lists = lists(entries, age);
        let mut sink = MemorySink::default();
        let mut poller = Poller::default();
        let mut closed = Closed::default();
        let mut recorded: Vec<Told> = Vec::new();
        let mut now = moment(1);
        for batch in dated(batches) {
            let before: BTreeSet<Told> = recorded.iter().cloned().collect();
            let mut after = |seen: &MemorySink| {
                check_each(seen);
                closed.look(seen);
                poller.poll(seen);
                let known: BTreeSet<Told> = all_told(seen).into_iter().collect();
                assert!(known.is_superset(&before), "a change went missing");
            };
            now = now_after(&batch, now);
            recorded.extend(batch.iter().map(told));
            let mut watched = Watched { sink, steps_left: usize::MAX, after: &mut after };
            lists.record(&mut watched, moment(0), batch.into_iter().map(Ok), now).unwrap();
            sink = watched.sink;
            prop_assert_eq!(&all_told(&sink), &recorded);
            let report = check_site(&sink, Capability::ChangeList, "changelist.xml");
            prop_assert!(report.is_conforming(), "{}", report);
        }
        poller.poll(&sink);
        prop_assert_eq!(poller.seen, recorded);
        judge_each(&sink);
    }

    #[test]
    fn entries_that_are_taken_over_as_bytes_give_the_documents_that_reading_them_gives(
        batches in batches(), entries in 1..30_usize, age in prop::option::of(1..12_u64),
        bytes in 4_000..20_000_u64, is_closed in any::<bool>(),
    ) {
        let lists = lists(entries, age).limits(Limits { bytes, ..Limits::default() });
        let (mut read, mut taken) = (MemorySink::default(), MemorySink::default());
        let mut now = moment(1);
        let batches = dated(batches);
        let last = batches.len() - 1;
        for (number, batch) in batches.into_iter().enumerate() {
            now = now_after(&batch, now);
            let events = || batch.iter().cloned().map(linked).map(Ok);
            let lists = if is_closed && number == last { lists.clone().close() } else { lists.clone() };
            let expected = lists.record(&mut read, moment(0), events(), now).unwrap();
            let position = lists.position(&taken).unwrap();
            let open = taken.get(&format!("changelist-{}.xml", position.document));
            let lists = lists.clone().known_open(position, digest(open.unwrap_or_default()));
            prop_assert_eq!(lists.record(&mut taken, moment(0), events(), now).unwrap(), expected);
            prop_assert_eq!(documents(&taken), documents(&read));
        }
    }

    #[test]
    fn rs130_however_often_a_run_is_killed_every_change_is_told_once_and_in_its_order(
        batches in batches(), entries in 1..5_usize, age in prop::option::of(1..12_u64),
        deaths in prop::collection::vec(prop::collection::vec(0..7_usize, 0..4), 5),
        deaths_of_close in prop::collection::vec(0..7_usize, 0..5),
    ) {
        let lists = lists(entries, age);
        let mut sink = MemorySink::default();
        let (mut poller, mut closed) = (Poller::default(), Closed::default());
        let mut recorded: Vec<Told> = Vec::new();
        let mut now = moment(1);
        for (batch, deaths) in dated(batches).into_iter().zip(deaths) {
            now = now_after(&batch, now);
            recorded.extend(batch.iter().map(told));
            let position = lists.position(&sink).unwrap();
            let mut look = |seen: &MemorySink| {
                check_each(seen);
                closed.look(seen);
                poller.poll(seen);
                assert!(recorded.starts_with(&poller.seen), "lost, repeated or out of order");
            };
            for steps_left in deaths.into_iter().chain([usize::MAX]) {
                let events = batch.iter().cloned().map(Ok);
                let mut watched = Watched { sink, steps_left, after: &mut look };
                let outcome = lists.clone().resume(position).record(&mut watched, moment(0), events, now);
                sink = watched.sink;
                prop_assert!(outcome.is_ok() || steps_left < usize::MAX);
            }
            poller.poll(&sink);
            prop_assert_eq!(&poller.seen, &recorded);
            prop_assert_eq!(&all_told(&sink), &recorded);
            let report = check_site(&sink, Capability::ChangeList, "changelist.xml");
            prop_assert!(report.is_conforming(), "{}", report);
        }

        let last = [event(1, 900), event(2, 900), event(3, 901)];
        recorded.extend(last.iter().map(told));
        let position = lists.position(&sink).unwrap();
        let mut look = |seen: &MemorySink| {
            check_each(seen);
            closed.look(seen);
            poller.poll(seen);
            assert!(recorded.starts_with(&poller.seen), "lost, repeated or out of order");
        };
        for steps_left in deaths_of_close.into_iter().chain([usize::MAX, usize::MAX]) {
            let events = last.iter().cloned().map(Ok);
            let mut watched = Watched { sink, steps_left, after: &mut look };
            let outcome = lists.clone().resume(position).close().record(&mut watched, moment(0), events, moment(905));
            sink = watched.sink;
            prop_assert!(outcome.is_ok() || steps_left < usize::MAX, "{:?}", outcome);
        }
        poller.poll(&sink);
        prop_assert_eq!(&poller.seen, &recorded);
        prop_assert_eq!(&all_told(&sink), &recorded);
        prop_assert_eq!(lists.end(&sink).unwrap(), Some(moment(905)));
        let end = lists.position(&sink).unwrap();
        let list = document(&sink, &format!("changelist-{}.xml", end.document));
        prop_assert_eq!(list.entries().len() as u64, end.entries);
        prop_assert!(end.entries > 0, "a list for nothing but the end");
        let report = check_site(&sink, Capability::ChangeList, "changelist.xml");
        prop_assert!(report.is_conforming(), "{}", report);
    }

    #[test]
    fn differences_lead_from_one_inventory_to_the_other(
        before in prop::collection::btree_map(0..30_u32, 0..3_u32, 0..20),
        after in prop::collection::btree_map(0..30_u32, 0..3_u32, 0..20),
    ) {
        let inventory = |set: &BTreeMap<u32, u32>| -> MemoryInventory {
            set.iter().map(|(&number, &version)| item(number, version)).collect()
        };
        let (old, new) = (inventory(&before), inventory(&after));
        let mut copy: BTreeMap<String, Item> =
            old.items().iter().map(|item| (item.loc.clone(), item.clone())).collect();
        for event in differences(old.into_iter(), new.clone().into_iter(), moment(9)) {
            let Event { change, item, .. } = event.unwrap();
            let loc = item.loc.clone();
            match change {
                Change::Deleted => prop_assert!(copy.remove(&loc).is_some()),
                Change::Created => prop_assert!(copy.insert(loc, item).is_none()),
                Change::Updated => prop_assert!(copy.insert(loc, item).is_some()),
            }
        }
        prop_assert_eq!(copy.into_values().collect::<Vec<_>>(), new.items());
    }
}

#[test]
fn differences_end_with_the_first_error() {
    let items = |broken: bool| {
        (0..3).map(
            move |n| if broken && n == 1 { Err(std::io::Error::other("x").into()) } else { Ok(item(n, 0)) },
        )
    };
    for (before, after) in [(true, false), (false, true), (true, true)] {
        let found: Vec<_> = differences(items(before), items(after), moment(9)).collect();
        assert_eq!(found.len(), 1);
        assert!(matches!(found[0], Err(BuildError::Io(_))));
    }
}

#[test]
fn rs121_changes_out_of_order_are_refused_and_change_nothing() {
    let mut sink = MemorySink::default();
    let lists = lists(9, None);
    lists.record(&mut sink, moment(0), [Ok(event(1, 5))], moment(5)).unwrap();
    let before = sink.get("changelist-1.xml").unwrap().to_vec();
    let late = [Ok(event(2, 6)), Ok(event(3, 4))];
    assert!(matches!(
        lists.record(&mut sink, moment(0), late, moment(9)),
        Err(BuildError::ChangeOrder { .. })
    ));
    assert_eq!(sink.get("changelist-1.xml").unwrap(), before);
}

#[test]
fn only_the_bytes_that_are_known_to_be_unchanged_are_taken_over_and_no_change_comes_before_them() {
    const OPEN: &str = "changelist-1.xml";
    let lists = lists(9, None);
    let mut sink = MemorySink::default();
    lists.record(&mut sink, moment(0), [Ok(event(1, 5)), Ok(event(2, 6))], moment(6)).unwrap();
    let position = lists.position(&sink).unwrap();
    let marked = str::from_utf8(sink.get(OPEN).unwrap()).unwrap().replacen("<loc>", "<!-- a --><loc>", 1);
    replace(&mut sink, OPEN, marked.as_bytes());
    let is_taken_over = |lists: &ChangeLists, sink: &MemorySink| {
        let mut sink = sink.clone();
        lists.record(&mut sink, moment(0), [Ok(event(3, 7))], moment(7)).unwrap();
        assert_eq!(document(&sink, OPEN).entries().len(), 3);
        str::from_utf8(sink.get(OPEN).unwrap()).unwrap().contains("<!-- a -->")
    };
    let known = |position, bytes: &[u8]| lists.clone().known_open(position, digest(bytes));
    assert!(is_taken_over(&known(position, marked.as_bytes()), &sink));
    assert!(!is_taken_over(&lists, &sink));
    assert!(!is_taken_over(&known(position, b"other bytes"), &sink));
    for (document, entries) in [(1, 1), (1, 3), (2, 2)] {
        assert!(!is_taken_over(&known(Position { document, entries }, marked.as_bytes()), &sink));
    }
    let late = known(position, marked.as_bytes());
    let late = late.record(&mut sink.clone(), moment(0), [Ok(event(3, 4))], moment(9));
    assert!(matches!(late, Err(BuildError::ChangeOrder { .. })));

    let otherwise = marked.replacen("?>", " ?>", 1);
    replace(&mut sink, OPEN, otherwise.as_bytes());
    assert!(!is_taken_over(&known(position, otherwise.as_bytes()), &sink), "it begins otherwise");
    let damaged = marked.replacen("</loc>", "</lnc>", 1);
    replace(&mut sink, OPEN, damaged.as_bytes());
    let damaged = known(position, marked.as_bytes());
    let damaged = damaged.record(&mut sink.clone(), moment(0), [Ok(event(3, 7))], moment(7));
    assert!(matches!(damaged, Err(BuildError::Published { .. })));
    let cut = &marked.as_bytes()[..marked.len() - 12];
    replace(&mut sink, OPEN, cut);
    let cut = known(position, cut).record(&mut sink, moment(0), [Ok(event(3, 7))], moment(7));
    assert!(matches!(cut, Err(BuildError::Published { .. })));
}

#[test]
fn nothing_new_publishes_nothing_and_age_alone_rotates() {
    let mut sink = MemorySink::default();
    let lists = lists(9, Some(60));
    assert_eq!(lists.record(&mut sink, moment(0), [], moment(0)).unwrap().documents.len(), 2);
    assert_eq!(lists.end(&sink).unwrap(), Some(moment(0)));
    assert!(lists.record(&mut sink, moment(0), [], moment(500)).unwrap().documents.is_empty());
    lists.record(&mut sink, moment(0), [Ok(event(1, 500))], moment(500)).unwrap();
    let published = lists.record(&mut sink, moment(0), [], moment(560)).unwrap();
    assert_eq!(published.documents, ["changelist-1.xml", "changelist-2.xml", "changelist.xml"]);
    let (closed, open) = (document(&sink, "changelist-1.xml"), document(&sink, "changelist-2.xml"));
    assert_eq!(closed.header().metadata.until, Some(moment(500)));
    assert_eq!((open.header().metadata.from, open.header().metadata.until), (Some(moment(500)), None));
}

#[test]
fn rs125_a_series_that_is_closed_has_until_everywhere_and_does_not_go_on() {
    let mut sink = MemorySink::default();
    let lists = lists(2, None);
    lists.record(&mut sink, moment(0), (1..4).map(|n| Ok(event(n, n))), moment(5)).unwrap();
    let position = lists.position(&sink).unwrap();
    lists
        .clone()
        .resume(position)
        .close()
        .record(&mut sink, moment(0), [Ok(event(4, 6))], moment(9))
        .unwrap();
    check_each(&sink);
    judge_each(&sink);
    let report = check_site(&sink, Capability::ChangeList, "changelist.xml");
    assert!(report.is_conforming(), "{report}");
    assert_eq!(document(&sink, "changelist.xml").header().metadata.until, Some(moment(9)));
    let more = lists.record(&mut sink, moment(0), [Ok(event(5, 10))], moment(10));
    assert!(matches!(more, Err(BuildError::NotContinuable { .. })));
    assert_eq!(lists.end(&sink).unwrap(), Some(moment(9)));
    let position = lists.position(&sink).unwrap();
    assert_eq!(position, Position { document: 2, entries: 2 });
    let again = lists.clone().resume(position).close().record(&mut sink, moment(0), [], moment(9)).unwrap();
    assert_eq!(again.documents, [""; 0]);
    for (events, until) in [(vec![Ok(event(5, 9))], moment(9)), (vec![], moment(10))] {
        let other = lists.clone().resume(position).close().record(&mut sink, moment(0), events, until);
        assert!(matches!(other, Err(BuildError::NotContinuable { .. })));
    }
}

/// The lists that a Destination finds, in the archive or in the index.
fn reachable(sink: &MemorySink) -> BTreeSet<String> {
    let names =
        ["changelist-archive.xml", "changelist.xml"].into_iter().filter(|name| sink.get(name).is_some());
    names.flat_map(|name| locs(&document(sink, name))).collect()
}

fn locs(document: &Document) -> Vec<String> {
    document.entries().iter().map(|entry| entry.loc.clone()).collect()
}

#[test]
fn ar014_old_lists_move_into_the_archive_and_are_within_reach_at_every_step() {
    let lists = lists(1, None);
    let url = |number: u32| format!("{ROOT}changelist-{number}.xml");
    let mut before = MemorySink::default();
    lists.record(&mut before, moment(0), (1..=5).map(|n| Ok(event(n, n))), moment(5)).unwrap();
    for steps_left in 0.. {
        let mut look = |seen: &MemorySink| {
            check_each(seen);
            assert_eq!(reachable(seen), (1..=5).map(url).collect::<BTreeSet<_>>());
        };
        let mut watched = Watched { sink: before.clone(), steps_left, after: &mut look };
        let outcome = lists.archive(&mut watched, moment(3), moment(9));
        let mut sink = watched.sink;
        let is_through = outcome.is_ok();
        if !is_through {
            lists.archive(&mut sink, moment(3), moment(9)).unwrap();
        }
        let archive = document(&sink, "changelist-archive.xml");
        assert_eq!(locs(&archive), [1, 2, 3].map(url));
        let interval = archive.entries()[1].metadata.clone().unwrap();
        assert_eq!((interval.from, interval.until), (Some(moment(1)), Some(moment(2))));
        assert_eq!(locs(&document(&sink, "changelist.xml")), [4, 5].map(url));

        // The series goes on, says where the archive is, and may be archived further, up to its open list.
        lists.record(&mut sink, moment(0), [Ok(event(6, 6))], moment(6)).unwrap();
        lists.archive(&mut sink, moment(99), moment(10)).unwrap();
        assert_eq!(locs(&document(&sink, "changelist-archive.xml")), [1, 2, 3, 4, 5].map(url));
        let index = document(&sink, "changelist.xml");
        assert_eq!(locs(&index), [url(6)]);
        let archive = format!("{ROOT}changelist-archive.xml");
        assert_eq!(index.link(&Relation::Archives).map(|link| &link.href), Some(&archive));
        let nothing = lists.archive(&mut sink, moment(99), moment(11)).unwrap();
        assert_eq!(nothing.documents, [""; 0]);
        let report = check_site(&sink, Capability::ChangeList, "changelist.xml");
        assert!(report.is_conforming(), "{report}");
        if is_through {
            break;
        }
    }
}

#[test]
fn ar014_an_archive_longer_than_one_document_keeps_its_order_and_a_closed_series_keeps_its_last_list() {
    let lists = lists(1, None).limits(Limits { entries: 2, ..Limits::default() });
    let mut sink = MemorySink::default();
    lists.record(&mut sink, moment(0), (1..=6).map(|n| Ok(event(n, n))), moment(6)).unwrap();
    lists.archive(&mut sink, moment(3), moment(9)).unwrap();
    let position = lists.position(&sink).unwrap();
    lists.clone().resume(position).close().record(&mut sink, moment(0), [], moment(8)).unwrap();
    lists.archive(&mut sink, moment(99), moment(10)).unwrap();
    let parts = locs(&document(&sink, "changelist-archive.xml"));
    assert_eq!(parts.len(), 3);
    let archived: Vec<_> =
        parts.iter().flat_map(|part| locs(&document(&sink, part.strip_prefix(ROOT).unwrap()))).collect();
    let url = |number: u32| format!("{ROOT}changelist-{number}.xml");
    assert_eq!(archived, [1, 2, 3, 4, 5].map(url));
    assert_eq!(locs(&document(&sink, "changelist.xml")), [url(6)]);
    assert_eq!(lists.end(&sink).unwrap(), Some(moment(8)));
    judge_each(&sink);
}

#[test]
fn rs044_a_full_index_says_so_and_goes_on_when_its_oldest_lists_are_archived() {
    const FULL: u32 = 50_000;
    let lists = lists(1, None);
    let url = |number: u32| format!("{ROOT}changelist-{number}.xml");
    let up = site().capability_list();
    let full = (1..FULL).fold(ChangeListIndex::new(moment(0), &up), |index, number| {
        index.closed(url(number), moment(number - 1), moment(number))
    });
    let full = full.open(url(FULL), moment(FULL - 1)).build().unwrap();
    let change = ResourceChange::updated("https://example.org/a").datetime(moment(FULL));
    let open = ChangeList::new(moment(FULL - 1), &up).index(format!("{ROOT}changelist.xml")).change(change);
    let mut sink = MemorySink::default();
    for (name, document) in
        [("changelist.xml".to_owned(), full), (format!("changelist-{FULL}.xml"), open.build().unwrap())]
    {
        let mut draft = sink.create(&name).unwrap();
        std::io::Write::write_all(&mut draft, &xml::write(&document)).unwrap();
        sink.publish(draft).unwrap();
    }
    let more = |sink: &mut MemorySink| lists.record(sink, moment(0), [Ok(event(1, FULL + 1))], moment(0));
    assert!(matches!(more(&mut sink), Err(BuildError::TooManyDocuments { .. })));
    assert_eq!(
        lists.archive(&mut sink, moment(FULL - 10), moment(FULL)).unwrap().entries,
        u64::from(FULL) - 10
    );
    assert_eq!(more(&mut sink).unwrap().entries, 1);
    assert_eq!(locs(&document(&sink, "changelist.xml")).len(), 11);
}

#[test]
fn a_batch_is_one_document_and_the_index_is_written_only_when_a_list_is_closed() {
    let mut sink = MemorySink::default();
    let lists = ChangeLists::new(&site());
    let burst = |first: u32| (first..first + 4_000).map(|n| Ok(event(n, n)));
    let names = |published: Published| published.documents;
    let first = lists.record(&mut sink, moment(0), burst(1), moment(1)).unwrap();
    assert_eq!(first.top(), Some("changelist.xml"));
    assert_eq!(names(first), ["changelist-1.xml", "changelist.xml"]);
    let one_more = lists.record(&mut sink, moment(0), [Ok(event(1, 4_001))], moment(1)).unwrap();
    assert_eq!(one_more.top(), None);
    assert_eq!(names(one_more), ["changelist-1.xml"]);
    let rotated = lists.record(&mut sink, moment(0), burst(4_002), moment(1)).unwrap();
    assert_eq!(names(rotated), ["changelist-1.xml", "changelist-2.xml", "changelist.xml"]);
    assert_eq!(document(&sink, "changelist-1.xml").entries().len(), 5_000);
    assert_eq!(lists.position(&sink).unwrap(), Position { document: 2, entries: 3_001 });
}

#[test]
fn a_position_that_the_lists_never_reached_is_refused() {
    let mut sink = MemorySink::default();
    let beyond = Position { document: 1, entries: 7 };
    let resumed = lists(9, None).resume(beyond).record(&mut sink, moment(0), [], moment(0));
    assert!(matches!(resumed, Err(BuildError::NotContinuable { .. })));
}
