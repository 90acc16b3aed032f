//! Resource Dumps and Change Dumps, written and read back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read};

use proptest::prelude::*;
use resync_core::build::{
    BuildError, ChangeDumps, Documents, Event, Item, MemoryInventory, MemorySink, PackageLimits,
    ResourceDumps, Rotation, Sink,
};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest};
use resync_core::document::{Bitstream, Capability, Change, Entry, Relation, ResourceDumpManifest};
use resync_core::package::Package;
use resync_core::xml::{self, Limits};

use super::site::{ROOT, Watched, check_each, check_site, content, document, item, moment, site};

type Bytes = Cursor<Vec<u8>>;

fn number_of(item: &Item) -> u32 {
    item.loc["https://example.org/items/".len()..][..4].parse().unwrap()
}

fn open(sink: &MemorySink, url: &str) -> Package<Cursor<Vec<u8>>> {
    let bytes = sink.get(url.strip_prefix(ROOT).unwrap_or(url)).unwrap();
    Package::open(Cursor::new(bytes.to_vec())).unwrap()
}

/// Every entry of a package with its bytes.
fn unpack(package: &mut Package<Cursor<Vec<u8>>>) -> Vec<(Entry, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(entry) = package.next_entry().unwrap() {
        let mut bytes = Vec::new();
        package.copy(&entry, &mut bytes).unwrap();
        found.push((entry, bytes));
    }
    found
}

/// The packages under a dump that may be an index.
fn packages(sink: &MemorySink, top: &str) -> Vec<Entry> {
    let whole = document(sink, top);
    let entries = whole.entries().iter().cloned();
    let is_package = |entry: &Entry| entry.loc.contains(".zip");
    if whole.entries().iter().all(is_package) {
        return entries.collect();
    }
    entries
        .flat_map(|entry| document(sink, entry.loc.strip_prefix(ROOT).unwrap()).entries().to_vec())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rs105_any_inventory_comes_out_of_its_dump_again(
        count in 0..25_u32, bitstreams in 1..9_usize, bytes in 1..400_u64, entries in 1..5_usize, gone in 0..30_u32,
    ) {
        let inventory: MemoryInventory = (0..count).map(|number| item(number, number % 3)).collect();
        let open_one = |item: &Item| -> io::Result<Option<Bytes>> {
            let number = number_of(item);
            Ok((number != gone).then(|| Cursor::new(content(number, number % 3).into_bytes())))
        };
        let mut sink = MemorySink::default();
        let published = ResourceDumps::new(&site(), moment(50))
            .package_limits(PackageLimits { bitstreams, bytes })
            .limits(Limits { entries, ..Limits::default() })
            .write(inventory.into_iter(), open_one, &mut sink)
            .unwrap();
        check_each(&sink);
        let report = check_site(&sink, Capability::ResourceDump, "resourcedump.xml");
        prop_assert!(report.is_conforming(), "{}", report);
        prop_assert_eq!(published.gone, u64::from(gone < count));
        let mut all = BTreeMap::new();
        for listed in packages(&sink, "resourcedump.xml") {
            let raw = sink.get(listed.loc.strip_prefix(ROOT).unwrap()).unwrap();
            prop_assert_eq!(listed.metadata.as_ref().unwrap().length, Some(raw.len() as u64));
            let found = unpack(&mut open(&sink, &listed.loc));
            prop_assert!(found.len() <= bitstreams);
            let total: u64 = found.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            prop_assert!(found.len() == 1 || total <= bytes);
            for (entry, content) in found {
                all.insert(entry.loc, String::from_utf8(content).unwrap());
            }
        }
        let wanted: BTreeMap<_, _> = (0..count)
            .filter(|&number| number != gone)
            .map(|number| (item(number, 0).loc, content(number, number % 3)))
            .collect();
        prop_assert_eq!(all, wanted);
    }

    #[test]
    fn rs143_any_changes_come_out_of_their_dump_again_in_order(
        batches in prop::collection::vec(prop::collection::vec((0..9_u32, 0..3_u32), 0..8), 1..5),
        bitstreams in 1..5_usize,
        rotate in 1..4_usize,
    ) {
        let dumps = ChangeDumps::new(&site())
            .package_limits(PackageLimits { bitstreams, ..PackageLimits::default() })
            .rotation(Rotation { entries: Some(rotate), age: None });
        let mut sink = MemorySink::default();
        let (mut clock, mut wanted) = (1, Vec::new());
        for batch in batches {
            let mut events = Vec::new();
            for (number, later) in batch {
                clock += later;
                events.push(Event::new(Change::ALL[number as usize % 3], moment(clock), item(number, clock)));
            }
            wanted.extend(events.iter().map(|event| (event.item.loc.clone(), event.change, event.moment)));
            clock += 1;
            let bytes = |event: &Event| -> io::Result<Option<Bytes>> { Ok(Some(Cursor::new(bytes_of(event)))) };
            dumps.record(&mut sink, moment(0), events.into_iter().map(Ok), bytes, moment(clock)).unwrap();
            check_each(&sink);
            let report = check_site(&sink, Capability::ChangeDump, "changedump.xml");
            prop_assert!(report.is_conforming(), "{}", report);
        }
        let mut found = Vec::new();
        for package in packages(&sink, "changedump.xml") {
            for (entry, bytes) in unpack(&mut open(&sink, &package.loc)) {
                let metadata = entry.metadata.unwrap();
                let change = metadata.change.unwrap();
                if change != Change::Deleted {
                    prop_assert_eq!(metadata.hash.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, &bytes)));
                }
                found.push((entry.loc, change, metadata.datetime.unwrap()));
            }
        }
        prop_assert_eq!(found, wanted);
    }
}

/// The bytes of the version that an event led to; the tests date versions by their number.
fn bytes_of(event: &Event) -> Vec<u8> {
    let version = (event.moment.unix_millis() - moment(0).unix_millis()) / 1_000;
    content(number_of(&event.item), version.try_into().unwrap()).into_bytes()
}

/// What happened to a few resources: when, what, and whether somebody kept the bytes.
#[derive(Clone, Debug)]
struct Happened {
    event: Event,
    is_kept: bool,
}

/// Batches of changes that could be: what is not there is created, what is there is updated or deleted.
fn histories() -> impl Strategy<Value = Vec<Vec<Happened>>> {
    let one = (0..4_u32, 0..3_u32, prop::bool::weighted(0.3), any::<bool>());
    prop::collection::vec(prop::collection::vec(one, 0..7), 1..6).prop_map(|batches| {
        let (mut clock, mut present) = (0, BTreeSet::new());
        let mut happen = |(number, later, is_deletion, is_kept)| {
            clock += 1 + later;
            let change = match (present.contains(&number), is_deletion) {
                (true, true) => Change::Deleted,
                (true, false) => Change::Updated,
                (false, _) => Change::Created,
            };
            if change == Change::Deleted {
                present.remove(&number)
            } else {
                present.insert(number)
            };
            Happened { event: Event::new(change, moment(clock), item(number, clock)), is_kept }
        };
        batches.into_iter().map(|batch| batch.into_iter().map(&mut happen).collect()).collect()
    })
}

/// The resources and their bytes after some changes.
fn world<'a>(happened: impl IntoIterator<Item = &'a Happened>) -> BTreeMap<String, Vec<u8>> {
    let mut world = BTreeMap::new();
    for Happened { event, .. } in happened {
        match event.change {
            Change::Deleted => drop(world.remove(&event.item.loc)),
            Change::Created | Change::Updated => drop(world.insert(event.item.loc.clone(), bytes_of(event))),
        }
    }
    world
}

/// What a Destination has that knows nothing but the packages, and that wonders about nothing but what is impossible. After each
/// package it has what `told` led to at the end that the package claims.
fn applied(sink: &MemorySink, told: &[Happened]) -> BTreeMap<String, Vec<u8>> {
    let mut copy = BTreeMap::new();
    if sink.get("changedump.xml").is_none() {
        return copy;
    }
    for package in packages(sink, "changedump.xml") {
        for (entry, bytes) in unpack(&mut open(sink, &package.loc)) {
            let is_there = copy.contains_key(&entry.loc);
            match entry.change().unwrap() {
                // One that came and went between two dumps may be deleted without ever having been there.
                Change::Deleted => drop(copy.remove(&entry.loc)),
                change => {
                    assert_eq!(change == Change::Updated, is_there, "{}", entry.loc);
                    copy.insert(entry.loc, bytes);
                }
            }
        }
        let until = package.metadata.as_ref().and_then(|metadata| metadata.until).unwrap();
        let claimed = world(told.iter().filter(|one| one.event.moment <= until));
        assert_eq!(copy, claimed, "{} does not hold what it claims", package.loc);
    }
    copy
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn rs143_applying_all_packages_leads_to_the_state_at_their_end_or_there_is_no_dump(
        batches in histories(), ahead in 0..3_usize, bitstreams in 1..5_usize,
    ) {
        let dumps = ChangeDumps::new(&site())
            .package_limits(PackageLimits { bitstreams, ..PackageLimits::default() });
        let mut sink = MemorySink::default();
        let (mut told, mut waiting, mut until) = (Vec::new(), Vec::<Happened>::new(), moment(0));
        for number in 0..batches.len() {
            waiting.extend(batches[number].clone());
            // The files are further than the changes that are told.
            let files = world(batches[..(number + ahead + 1).min(batches.len())].iter().flatten());
            let kept: Vec<_> = waiting.iter().filter(|one| one.is_kept).map(|one| one.event.clone()).collect();
            let versions = |event: &Event| -> io::Result<Option<Bytes>> {
                let bytes = if kept.contains(event) { Some(bytes_of(event)) } else { files.get(&event.item.loc).cloned() };
                Ok(bytes.map(Cursor::new))
            };
            until = waiting.last().map_or(until, |last| last.event.moment);
            let events = waiting.iter().map(|one| Ok(one.event.clone()));
            let before: Vec<_> = sink.names().map(str::to_owned).collect();
            match dumps.record(&mut sink, moment(0), events, versions, until) {
                Ok(_) => told.append(&mut waiting),
                Err(BuildError::BytesGone { loc, moment }) => {
                    prop_assert!(sink.names().eq(&before));
                    let lost = |one: &&Happened| one.event.item.loc == loc && one.event.moment >= moment;
                    prop_assert!(waiting.iter().filter(lost).all(|one| !one.is_kept));
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
            check_each(&sink);
            prop_assert_eq!(applied(&sink, &told), world(&told));
        }
    }
}

/// What the packages tell, in order.
fn packed(sink: &MemorySink) -> Vec<(String, Change, DateTime)> {
    let mut found = Vec::new();
    for package in packages(sink, "changedump.xml") {
        for (entry, _) in unpack(&mut open(sink, &package.loc)) {
            let metadata = entry.metadata.unwrap();
            found.push((entry.loc, metadata.change.unwrap(), metadata.datetime.unwrap()));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rs130_however_often_a_run_is_killed_every_change_is_packed_once_and_in_its_order(
        batches in prop::collection::vec(prop::collection::vec((0..9_u32, 0..3_u32), 0..8), 1..4),
        bitstreams in 1..4_usize, rotate in 1..3_usize,
        deaths in prop::collection::vec(prop::collection::vec(0..12_usize, 0..4), 4),
    ) {
        let dumps = ChangeDumps::new(&site())
            .package_limits(PackageLimits { bitstreams, ..PackageLimits::default() })
            .rotation(Rotation { entries: Some(rotate), age: None });
        let bytes = |event: &Event| -> io::Result<Option<Bytes>> { Ok(Some(Cursor::new(bytes_of(event)))) };
        let mut sink = MemorySink::default();
        let (mut clock, mut wanted, last) = (1, Vec::new(), batches.len() - 1);
        for (place, (batch, deaths)) in batches.into_iter().zip(deaths).enumerate() {
            let mut events = Vec::new();
            for (number, later) in batch {
                clock += later;
                events.push(Event::new(Change::ALL[number as usize % 3], moment(clock), item(number, clock)));
            }
            wanted.extend(events.iter().map(|event| (event.item.loc.clone(), event.change, event.moment)));
            let position = dumps.position(&sink).unwrap();
            for steps_left in deaths.into_iter().chain([usize::MAX, usize::MAX]) {
                let events = events.iter().cloned().map(Ok);
                let mut watched = Watched { sink, steps_left, after: &mut |seen| check_each(seen) };
                let until = moment(clock);
                let outcome = if place == last {
                    dumps.clone().resume(position).close().record(&mut watched, moment(0), events, bytes, until)
                } else {
                    dumps.clone().resume(position).record(&mut watched, moment(0), events, bytes, until)
                };
                sink = watched.sink;
                prop_assert!(outcome.is_ok() || steps_left < usize::MAX, "{:?}", outcome);
            }
            prop_assert_eq!(&packed(&sink), &wanted);
            prop_assert_eq!(dumps.end(&sink).unwrap() <= Some(moment(clock)), true);
            let report = check_site(&sink, Capability::ChangeDump, "changedump.xml");
            prop_assert!(report.is_conforming(), "{}", report);
        }
        prop_assert_eq!(document(&sink, "changedump.xml").header().metadata.until, Some(moment(clock)));
        prop_assert_eq!(dumps.end(&sink).unwrap(), Some(moment(clock)));
        let more = dumps.record(&mut sink, moment(0), [], bytes, moment(clock + 1));
        let is_refused = matches!(more, Err(BuildError::NotContinuable { .. }));
        prop_assert!(is_refused, "{:?}", more);
    }
}

#[test]
fn ar014_old_dumps_move_into_the_archive_with_their_packages_where_they_are() {
    let dumps = ChangeDumps::new(&site()).rotation(Rotation { entries: Some(1), age: None });
    let bytes = |event: &Event| -> io::Result<Option<Bytes>> { Ok(Some(Cursor::new(bytes_of(event)))) };
    let record = |sink: &mut MemorySink, second: u32| {
        let event = Event::new(Change::Updated, moment(second), item(second, second));
        dumps.record(sink, moment(0), [Ok(event)], bytes, moment(second)).unwrap();
    };
    let mut sink = MemorySink::default();
    (1..=4).for_each(|second| record(&mut sink, second));
    let packages = |sink: &MemorySink| sink.names().filter(|name| name.contains(".zip")).count();
    dumps.archive(&mut sink, moment(2), moment(9)).unwrap();
    record(&mut sink, 5);
    assert_eq!(packages(&sink), 5);
    let archive = document(&sink, "changedump-archive.xml");
    let archived: Vec<_> = archive.entries().iter().map(|entry| entry.loc.as_str()).collect();
    assert_eq!(archived, [1, 2].map(|number| format!("{ROOT}changedump-{number}.xml")));
    check_each(&sink);
}

#[test]
fn rs143_a_package_that_cannot_hold_what_its_interval_promises_is_not_published() {
    // The bytes of the first change come back after more changes than a manifest can list.
    let event = |number: u32, second| Event::new(Change::Deleted, moment(second), item(number, second));
    let first = Event::new(Change::Created, moment(1), item(1, 1));
    let last = Event::new(Change::Updated, moment(60_000), item(1, 60_000));
    let events = [Ok(event(2, 0)), Ok(first.clone())]
        .into_iter()
        .chain((2..50_010).map(|second| Ok(event(3, second))));
    let bytes = |event: &Event| -> io::Result<Option<Bytes>> {
        Ok((*event != first).then(|| Cursor::new(bytes_of(event))))
    };
    let mut sink = MemorySink::default();
    let outcome = ChangeDumps::new(&site()).record(
        &mut sink,
        moment(0),
        events.chain([Ok(last)]),
        bytes,
        moment(60_000),
    );
    assert!(matches!(outcome, Err(BuildError::BytesGone { .. })), "{outcome:?}");
    assert_eq!(sink.names().count(), 0);
}

fn write_one(item: Item, bytes: Vec<u8>) -> MemorySink {
    let mut sink = MemorySink::default();
    let mut bytes = Some(bytes);
    let contents = move |_: &Item| -> io::Result<Option<Bytes>> { Ok(bytes.take().map(Cursor::new)) };
    ResourceDumps::new(&site(), moment(0)).write([Ok(item)].into_iter(), contents, &mut sink).unwrap();
    sink
}

fn package_of(sink: &MemorySink) -> &[u8] {
    let name = sink.names().find(|name| name.contains(".zip")).unwrap();
    sink.get(name).unwrap()
}

#[test]
fn rs109_the_manifest_is_the_first_member_and_its_copy_is_equal() {
    let sink = write_one(item(1, 1), b"text".to_vec());
    let package = package_of(&sink);
    assert_eq!(&package[..4], b"PK\x03\x04");
    assert_eq!(&package[30..42], b"manifest.xml");
    let mut archive = zip::ZipArchive::new(Cursor::new(package)).unwrap();
    let mut manifest = Vec::new();
    archive.by_index(0).unwrap().read_to_end(&mut manifest).unwrap();
    let listed = document(&sink, "resourcedump.xml").entries()[0].clone();
    let copy = listed.link(&Relation::Contents).unwrap().href.strip_prefix(ROOT).unwrap();
    assert_eq!(sink.get(copy).unwrap(), manifest);
}

#[test]
fn equal_dumps_are_equal_bytes() {
    let one = write_one(item(1, 1), b"text".to_vec());
    let two = write_one(item(1, 1), b"text".to_vec());
    assert_eq!(package_of(&one), package_of(&two));
}

#[test]
fn a_resource_that_changed_since_it_was_listed_is_packed_as_it_is_and_said_so() {
    let sink = write_one(item(1, 1), b"something newer".to_vec());
    let name = sink.names().find(|name| name.contains(".zip")).unwrap();
    let (entry, bytes) = unpack(&mut open(&sink, name)).remove(0);
    assert_eq!(bytes, b"something newer");
    assert_eq!((entry.metadata.unwrap().length, entry.lastmod), (Some(15), None));
}

#[test]
fn what_compresses_like_a_bomb_is_packed_so_that_our_own_reader_takes_it() {
    let zeros = vec![0; 20 * 1024 * 1024];
    let sink = write_one(Item::new("https://example.org/zeros"), zeros.clone());
    let name = sink.names().find(|name| name.contains(".zip")).unwrap();
    assert_eq!(unpack(&mut open(&sink, name))[0].1, zeros);
}

#[test]
fn rs101_other_tools_read_the_packages() {
    let sink = write_one(item(3, 1), content(3, 1).into_bytes());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("package.zip"), package_of(&sink)).unwrap();
    let script = "import zipfile; z = zipfile.ZipFile('package.zip'); assert z.testzip() is None; \
                  assert z.namelist()[0] == 'manifest.xml'; print(z.read(z.namelist()[1]).decode(), end='')";
    let python =
        std::process::Command::new("python3").args(["-c", script]).current_dir(folder.path()).output();
    let output = python.expect("python3 is the other tool: `tests/run` installs it");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        content(3, 1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Where each member begins, and how the header there and the one in the directory say its lengths.
fn lengths_in_zip64(package: &[u8]) -> Vec<(bool, bool)> {
    let in_zip64 = |place: usize| package[place..][..8] == [0xFF; 8];
    let starts = |signature: &'static [u8; 4]| {
        package.windows(4).enumerate().filter(move |(_, window)| window == signature).map(|(place, _)| place)
    };
    let (local, central) = (starts(b"PK\x03\x04"), starts(b"PK\x01\x02"));
    local.zip(central).map(|(local, central)| (in_zip64(local + 18), in_zip64(central + 20))).collect()
}

#[test]
fn rs109_a_bitstream_that_grows_while_it_is_read_is_packed_whole_with_room_for_any_length() {
    let listed = Item { length: Some(3), ..Item::new("https://example.org/log.txt") };
    let grown = b"line\n".repeat(60_000);
    let sink = write_one(listed, grown.clone());
    let name = sink.names().find(|name| name.contains(".zip")).unwrap();
    assert_eq!(unpack(&mut open(&sink, name))[0].1, grown);
    assert_eq!(lengths_in_zip64(package_of(&sink)), [(false, false), (true, true)]);
}

#[test]
fn rs109_a_package_of_more_than_65_535_members_is_read() {
    const MEMBERS: usize = 66_000;
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::DEFAULT.compression_method(zip::CompressionMethod::Stored);
    zip.start_file("manifest.xml", stored).unwrap();
    let header = ResourceDumpManifest::new(moment(0), site().capability_list()).header();
    let mut manifest = xml::Writer::new(&mut zip, &header).unwrap();
    let path = format!("/{}", MEMBERS - 1);
    manifest.entry(&Bitstream::new("https://example.org/last", path).into()).unwrap();
    manifest.finish().unwrap();
    for number in 0..MEMBERS {
        zip.start_file(number.to_string(), stored).unwrap();
    }
    io::Write::write_all(&mut zip, b"last").unwrap();
    let mut package = Package::open(zip.finish().unwrap()).unwrap();
    assert_eq!(unpack(&mut package)[0].1, b"last");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn rs109_a_package_keeps_to_its_bytes_where_lengths_are_not_listed(
        lengths in prop::collection::vec((any::<bool>(), 0..120_usize), 1..12),
        bytes in 1..200_u64,
    ) {
        let loc = |number: usize| format!("https://example.org/items/{number:04}");
        let listed = lengths.iter().enumerate().map(|(number, (listed, length))| Ok(Item { length: listed.then_some(*length as u64), ..Item::new(loc(number)) }));
        let open_one = |item: &Item| -> io::Result<Option<Bytes>> {
            let number = number_of(item) as usize;
            Ok(Some(Cursor::new(vec![u8::try_from(number).unwrap(); lengths[number].1])))
        };
        let mut sink = MemorySink::default();
        ResourceDumps::new(&site(), moment(0))
            .package_limits(PackageLimits { bytes, ..PackageLimits::default() })
            .write(listed, open_one, &mut sink)
            .unwrap();
        let mut found = Vec::new();
        for listed in packages(&sink, "resourcedump.xml") {
            let members = unpack(&mut open(&sink, &listed.loc));
            let total: usize = members.iter().map(|(_, content)| content.len()).sum();
            prop_assert!(members.len() == 1 || total as u64 <= bytes);
            found.extend(members.into_iter().map(|(entry, content)| (entry.loc, content.len())));
        }
        let wanted: Vec<_> = lengths.iter().enumerate().map(|(number, (_, length))| (loc(number), *length)).collect();
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn a_temporary_file_that_fails_is_told_with_its_folder() {
    struct Nowhere(MemorySink);

    impl Documents for Nowhere {
        type Published = <MemorySink as Documents>::Published;

        fn open(&self, name: &str) -> io::Result<Option<Self::Published>> {
            self.0.open(name)
        }

        fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
            self.0.list(prefix)
        }
    }

    impl Sink for Nowhere {
        type Draft = <MemorySink as Sink>::Draft;
        type Staged = <MemorySink as Sink>::Staged;

        fn create(&mut self, name: &str) -> io::Result<Self::Draft> {
            self.0.create(name)
        }

        fn stage(&mut self, draft: Self::Draft) -> io::Result<Self::Staged> {
            self.0.stage(draft)
        }

        fn publish(&mut self, staged: Self::Staged) -> io::Result<()> {
            self.0.publish(staged)
        }

        fn remove(&mut self, name: &str) -> io::Result<bool> {
            self.0.remove(name)
        }

        fn scratch_folder(&self) -> Option<&std::path::Path> {
            Some("/nowhere/at/all".as_ref())
        }
    }

    let mut sink = Nowhere(MemorySink::default());
    let items = (0..2).map(|number| Ok(item(number, 0)));
    let content = |_: &Item| -> io::Result<Option<Bytes>> { Ok(Some(Cursor::new(Vec::new()))) };
    let error = ResourceDumps::new(&site(), moment(0)).write(items, content, &mut sink).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    assert_eq!(sink.0.names().count(), 0);
}
