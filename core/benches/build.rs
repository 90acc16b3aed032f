//! How fast a Resource List is built from files, held against what bounds it, and how much memory a long one takes.
//!
//! ```text
//! cargo bench -p resync-core --bench build                    100,000 files, then 1,000,000 synthetic entries
//! cargo bench -p resync-core --bench build -- 20000           20,000 files
//! cargo bench -p resync-core --bench build -- large FOLDER    a package of more than 4 GiB, left in FOLDER
//! ```
//!
//! The files are made here, 1 to 4 kB each, a hundred folders. The bound is a bare loop: walk the folder into a list of paths, then two
//! threads take turns to open, read to the end and hash (sha-256). It keeps one digest and writes nothing. Ours is
//! `FileInventory` with two threads into `ResourceLists` into memory. In each round both run once, in turn, so that what else the
//! machine does meets both; a figure is the minimum of the rounds, which other work disturbs least, and the ratio is that of the
//! minima (bound ÷ ours).
//!
//! *Changes* are recorded in a folder, fsync included: a burst of 10,000 in one run, and single ones behind an open list that is nearly
//! full, where each run reads and writes it whole.
//!
//! *Memory* is measured in a process of its own: the peak of resident memory from `/proc/self/status`.
#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark fails by panicking and prints rounded figures"
)]

mod resident;

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use resident::{peak, peak_kib};
use resync_core::build::{
    ChangeLists, Documents, Event, FileInventory, FolderSink, Item, MemorySink, PackageLimits, ResourceDumps,
    ResourceLists, Sink, Site,
};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest, Hasher, Hashes};
use resync_core::document::Change;
use resync_core::package::Package;

const FILES: usize = 100_000;
const FOLDERS: usize = 100;
const ENTRIES: usize = 1_000_000;
const THREADS: usize = 2;
const ROUNDS: usize = 7;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "memory") {
        return memory();
    }
    if let Some(place) = arguments.iter().position(|argument| argument == "large") {
        return large(Path::new(&arguments[place + 1]));
    }
    speed(arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(FILES));
    changes();
    let here = std::env::current_exe().unwrap();
    assert!(Command::new(here).arg("memory").status().unwrap().success());
}

fn speed(count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = make_files(folder.path(), count);
    println!("{count} files, {bytes} bytes, {THREADS} threads, sha-256");
    let (mut bounds, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let bound = timed(|| assert_eq!(bare(folder.path()), count));
        let own = timed(|| assert_eq!(listed(folder.path()), count));
        // The first round warms up.
        if round > 0 {
            bounds.push(bound);
            ours.push(own);
        }
    }
    let least = |times: &[Duration]| times.iter().min().unwrap().as_secs_f64();
    for (name, times) in [("bare walk, read, hash", &bounds), ("FileInventory to ResourceLists", &ours)] {
        let seconds = least(times);
        println!("  {name:<32} {:8.1} ms {:8.0} files/s", seconds * 1e3, count as f64 / seconds);
    }
    let ratio = least(&bounds) / least(&ours);
    println!("  ratio (bound ÷ ours): {ratio:.2}");
}

fn make_files(folder: &Path, count: usize) -> usize {
    let mut bytes = 0;
    for number in 0..FOLDERS {
        fs::create_dir(folder.join(format!("{number:02}"))).unwrap();
    }
    for number in 0..count {
        let length = 1_024 + number * 7_919 % 3_072;
        let content: Vec<u8> =
            (0..length).map(|place| u8::try_from((place * 31 + number) % 251).unwrap()).collect();
        fs::write(folder.join(format!("{:02}/item-{number:06}.txt", number % FOLDERS)), content).unwrap();
        bytes += length;
    }
    bytes
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn bare(folder: &Path) -> usize {
    let mut paths = Vec::new();
    walk(folder, &mut paths);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut buffer = vec![0; 256 * 1024];
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut hasher = Hasher::new([Algorithm::Sha256]);
            let mut file = File::open(path).unwrap();
            loop {
                let count = file.read(&mut buffer).unwrap();
                if count == 0 {
                    break;
                }
                hasher.update(&buffer[..count]);
            }
            black_box(hasher.finish());
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    paths.len()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), paths);
        } else {
            paths.push(entry.path());
        }
    }
}

fn listed(folder: &Path) -> usize {
    let files = FileInventory::of(folder, "https://repository.example.org/items")
        .unwrap()
        .threads(THREADS)
        .start()
        .unwrap();
    let lists = ResourceLists::new(&Site::new("https://repository.example.org/resync"), files.started());
    let published = lists.write(files, &mut MemorySink::default()).unwrap();
    usize::try_from(published.entries).unwrap()
}

fn changes() {
    const BURST: usize = 10_000;
    const NEARLY_FULL: usize = 4_950;
    let folder = tempfile::tempdir().unwrap();
    let mut sink = FolderSink::open(folder.path()).unwrap();
    let lists = ChangeLists::new(&Site::new("https://repository.example.org/resync"));
    let mut record = |numbers: std::ops::Range<usize>| {
        let now = moment(numbers.end);
        let events = numbers.map(|number| Ok(Event::new(Change::Updated, moment(number), item(number))));
        timed(|| drop(lists.record(&mut sink, moment(0), events, now).unwrap()))
    };
    println!("{BURST} changes in one run: {:.1} ms", record(0..BURST).as_secs_f64() * 1e3);
    let singles = BURST + NEARLY_FULL;
    record(BURST..singles);
    let times = (singles..singles + 40).map(|number| record(number..number + 1).as_secs_f64() * 1e3);
    println!("  a single one behind {NEARLY_FULL} others: {:.1} ms", median(times));
}

fn memory() {
    println!("{ENTRIES} synthetic entries, peak of resident memory {} at the start", peak());
    let start = Instant::now();
    let inventory = (0..ENTRIES).map(|number| Ok(item(number)));
    let lists = ResourceLists::new(&Site::new("https://repository.example.org/resync"), moment(0));
    let published = lists.write(inventory, &mut Nowhere).unwrap();
    assert_eq!(published.entries, ENTRIES as u64);
    println!(
        "  {} documents in {:.1} s, peak {}",
        published.documents.len(),
        start.elapsed().as_secs_f64(),
        peak()
    );
    assert!(peak_kib().is_none_or(|kib| kib < 100 * 1024), "memory is not constant");
}

/// A package with a member of more than 4 GiB and others behind it, announced as short, is written and read back (RS-109).
fn large(folder: &Path) {
    const LENGTHS: [u64; 4] = [10, (4 << 30) + 1_000_000, 200_000, 10];
    let start = Instant::now();
    let mut sink = FolderSink::open(folder).unwrap();
    let items = (0..LENGTHS.len()).map(|number| Ok(Item { length: Some(10), ..Item::new(loc(number)) }));
    let zeros = |item: &Item| {
        let number = (0..LENGTHS.len()).find(|&number| loc(number) == item.loc).unwrap();
        Ok(Some(io::repeat(0).take(LENGTHS[number])))
    };
    let published = ResourceDumps::new(&Site::new("https://repository.example.org/resync"), moment(0))
        .package_limits(PackageLimits { bytes: u64::MAX, ..PackageLimits::default() })
        .write(items, zeros, &mut sink)
        .unwrap();
    let name = published.documents.iter().find(|name| name.contains(".zip")).unwrap();
    println!("{} in {:.1} s", sink.path(name).display(), start.elapsed().as_secs_f64());
    let mut package = Package::open(File::open(sink.path(name)).unwrap()).unwrap();
    let mut lengths = Vec::new();
    while let Some(entry) = package.next_entry().unwrap() {
        lengths.push(package.copy(&entry, &mut io::sink()).unwrap());
    }
    assert_eq!(lengths, LENGTHS);
    println!("read back in {:.1} s, lengths and digests agree: {lengths:?}", start.elapsed().as_secs_f64());
}

fn loc(number: usize) -> String {
    format!("https://repository.example.org/items/{number:07}/content.pdf")
}

fn item(number: usize) -> Item {
    Item {
        lastmod: Some(moment(number)),
        length: u64::try_from(1_000 + number % 90_000).ok(),
        hashes: Hashes::from(Digest::of(Algorithm::Sha256, &number.to_le_bytes())),
        media_type: Some("application/pdf".to_owned()),
        ..Item::new(loc(number))
    }
}

fn moment(number: usize) -> DateTime {
    DateTime::from_unix_millis(1_767_225_600_000 + 1_000 * i64::try_from(number).unwrap()).unwrap()
}

/// A sink that keeps nothing, so that only what generating takes is measured.
struct Nowhere;

impl Documents for Nowhere {
    type Published = io::Empty;

    fn open(&self, _: &str) -> io::Result<Option<io::Empty>> {
        Ok(None)
    }

    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl Sink for Nowhere {
    type Draft = io::Sink;
    type Staged = ();

    fn create(&mut self, _: &str) -> io::Result<io::Sink> {
        Ok(io::sink())
    }

    fn stage(&mut self, _: io::Sink) -> io::Result<()> {
        Ok(())
    }

    fn publish(&mut self, (): ()) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, _: &str) -> io::Result<bool> {
        Ok(false)
    }
}
