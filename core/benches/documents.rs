//! How fast documents are read and written, held against what bounds them, and how much memory a long one takes.
//!
//! ```text
//! cargo bench -p resync-core --bench documents                  speed
//! cargo bench -p resync-core --bench documents -- memory        5,000,000 entries, then speed
//! cargo bench -p resync-core --bench documents -- memory-only   5,000,000 entries alone
//! ```
//!
//! The inputs are made here. *Speed*: one Resource List of 50,000 entries with `loc`, `lastmod`, `rs:md` with sha-256,
//! length and type. In each round every candidate runs once, bound and ours in turn, so that a busy machine slows both.
//! Told are the best and the median of the rounds; a ratio is that of the best ones (bound ÷ ours: 0.5 means that ours
//! takes twice as long), since whatever else a machine does can only add to a time.
//!
//! The bounds:
//! * reading, strict: events of `quick-xml` over a `str` in memory, borrowed, nothing copied;
//! * reading, like for like: events of `quick-xml` over a `BufReader`, which our reader is built on, so that the rest is the
//!   price of attributes, namespaces, positions, limits and values;
//! * writing: the events of the same document, made and escaped before, through `quick_xml::Writer`, which comes to copying
//!   them (strict); and a loop of `write!` that turns values into text as ours must. Neither checks a rule: `write` takes a
//!   document that is checked already, `Writer` checks every rule for every entry.
//!
//! *Memory*: one document of 5,000,000 entries is read from a generator, plain and gzip, and as many entries are written
//! as documents of 50,000; then the peak of resident memory is read from `/proc/self/status`, which must stay below 64 MiB.
#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark fails by panicking and prints rounded figures"
)]

mod resident;

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::bufread::GzEncoder;
use quick_xml::events::Event;
use resident::{peak, peak_kib};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest, Hashes};
use resync_core::document::{Capability, Entry, Header, Link, Metadata, Relation, Root};
use resync_core::xml::{Limits, Mode, Options, Reader, Writer};

const ENTRIES: usize = 50_000;
const MANY: usize = 5_000_000;
/// So many that each candidate has some rounds in which nothing else runs.
const ROUNDS: usize = 50;

fn main() {
    let wants = |argument: &str| std::env::args().any(|given| given == argument);
    // Speed is measured with whole documents at hand, which would count as memory.
    if wants("memory") || wants("memory-only") {
        memory();
    }
    if !wants("memory-only") {
        speed();
    }
}

fn speed() {
    let entries: Vec<Entry> = (0..ENTRIES).map(entry).collect();
    let list = written(&entries);
    let mut zipped = Vec::new();
    gzip(list.as_slice()).read_to_end(&mut zipped).unwrap();
    let text = String::from_utf8(list.clone()).unwrap();
    println!("a Resource List of {ENTRIES} entries, {} bytes ({} as gzip)", list.len(), zipped.len());

    let mut reading = Table::new(vec![
        Candidate::new("quick-xml events, str", || quick_events(&text)),
        Candidate::new("quick-xml events, BufReader", || quick_buffered(&list)),
        Candidate::new("resync-core Reader, slice", || read(list.as_slice())),
        Candidate::new("resync-core Reader, BufReader", || read(BufReader::new(list.as_slice()))),
        Candidate::new("resync-core read, all rules", || {
            resync_core::xml::read(&list).unwrap().document.entries.len()
        }),
    ]);
    reading.run();
    reading.print("reading", list.len());
    println!("  bound ÷ ours, the goal is 0.5 or more:");
    reading.ratio("strict bound: quick-xml str ÷ Reader slice", 0, 2);
    reading.ratio("like for like: quick-xml BufReader ÷ Reader BufReader", 1, 3);

    let document = resync_core::xml::read(&list).unwrap().into_document().unwrap();
    let events = owned_events(&text);
    let values: Vec<Values> = entries.iter().map(Values::of).collect();
    let mut writing = Table::new(vec![
        Candidate::new("quick-xml Writer events", || quick_written(&events)),
        Candidate::new("loop of write!", || looped(&values)),
        Candidate::new("resync-core write of a Document", || resync_core::xml::write(&document).len()),
        Candidate::new("resync-core Writer, with rules", || written(&entries).len()),
    ]);
    writing.run();
    writing.print("writing", list.len());
    println!("  bound ÷ ours, the goal is 0.5 or more:");
    writing.ratio("strict bound: quick-xml Writer events ÷ write", 0, 2);
    writing.ratio("loop of write! ÷ write", 1, 2);
    writing.ratio("quick-xml Writer events ÷ Writer, with rules", 0, 3);
    writing.ratio("loop of write! ÷ Writer, with rules", 1, 3);

    let mut unzipping =
        Table::new(vec![Candidate::new("resync-core Reader, gzip", || read(zipped.as_slice()))]);
    unzipping.run();
    unzipping.print("gzip, which has no bound here", list.len());
}

struct Candidate<'a> {
    name: &'static str,
    run: Box<dyn Fn() -> usize + 'a>,
    /// How long it took in each round.
    times: Vec<Duration>,
}

impl<'a> Candidate<'a> {
    fn new(name: &'static str, run: impl Fn() -> usize + 'a) -> Self {
        Self { name, run: Box::new(run), times: Vec::new() }
    }

    /// The best and the median of the rounds, in seconds.
    fn seconds(&self) -> (f64, f64) {
        let mut times = self.times.clone();
        times.sort();
        (times[0].as_secs_f64(), times[times.len() / 2].as_secs_f64())
    }
}

struct Table<'a>(Vec<Candidate<'a>>);

impl<'a> Table<'a> {
    fn new(candidates: Vec<Candidate<'a>>) -> Self {
        Self(candidates)
    }

    fn run(&mut self) {
        for round in 0..=ROUNDS {
            for candidate in &mut self.0 {
                let start = Instant::now();
                black_box((candidate.run)());
                // The first round warms up.
                if round > 0 {
                    candidate.times.push(start.elapsed());
                }
            }
        }
    }

    fn print(&self, title: &str, bytes: usize) {
        println!("\n{title}, best and median of {ROUNDS} rounds");
        for candidate in &self.0 {
            let (best, median) = candidate.seconds();
            let speed = bytes as f64 / best / 1e6;
            println!(
                "  {:<32} {:7.2} ms {:7.2} ms {speed:7.0} MB/s",
                candidate.name,
                best * 1e3,
                median * 1e3
            );
        }
    }

    fn ratio(&self, title: &str, bound: usize, ours: usize) {
        let best = |number: usize| self.0[number].seconds().0;
        println!("    {title}: {:.2}", best(bound) / best(ours));
    }
}

fn read(input: impl BufRead) -> usize {
    Reader::new(input).unwrap().filter(|entry| black_box(entry).is_ok()).count()
}

fn quick_events(text: &str) -> usize {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut count = 0;
    while !matches!(black_box(reader.read_event().unwrap()), Event::Eof) {
        count += 1;
    }
    count
}

fn quick_buffered(bytes: &[u8]) -> usize {
    let mut reader = quick_xml::Reader::from_reader(BufReader::new(bytes));
    let mut buffer = Vec::new();
    let mut count = 0;
    while !matches!(black_box(reader.read_event_into(&mut buffer).unwrap()), Event::Eof) {
        count += 1;
        buffer.clear();
    }
    count
}

fn owned_events(text: &str) -> Vec<Event<'static>> {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut events = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => return events,
            event => events.push(event.into_owned()),
        }
    }
}

fn quick_written(events: &[Event<'static>]) -> usize {
    let mut writer = quick_xml::Writer::new(Vec::new());
    for event in events {
        writer.write_event(event.borrow()).unwrap();
    }
    writer.into_inner().len()
}

/// What a loop without a model has at hand.
struct Values {
    loc: String,
    lastmod: DateTime,
    hash: Digest,
    length: u64,
    media_type: String,
}

impl Values {
    fn of(entry: &Entry) -> Self {
        let metadata = entry.metadata.clone().unwrap();
        Self {
            loc: entry.loc.clone(),
            lastmod: entry.lastmod.unwrap(),
            hash: *metadata.hash.iter().next().unwrap(),
            length: metadata.length.unwrap(),
            media_type: metadata.media_type.unwrap(),
        }
    }
}

fn looped(values: &[Values]) -> usize {
    let mut out = String::new();
    for Values { loc, lastmod, hash, length, media_type } in values {
        write!(
            out,
            "  <url>\n    <loc>{loc}</loc>\n    <lastmod>{lastmod}</lastmod>\n    \
             <rs:md hash=\"{hash}\" length=\"{length}\" type=\"{media_type}\"/>\n  </url>\n"
        )
        .unwrap();
    }
    out.len()
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for entry in entries {
        writer.entry(entry).unwrap();
    }
    writer.finish().unwrap()
}

fn header() -> Header {
    let mut header = Header::new(Root::UrlSet, Capability::ResourceList);
    header.metadata.at = Some(moment(0));
    header.links.push(Link::new(Relation::Up, "https://repository.example.org/capabilitylist.xml"));
    header
}

fn entry(number: usize) -> Entry {
    let metadata = Metadata {
        hash: Hashes::from(Digest::of(Algorithm::Sha256, &number.to_le_bytes())),
        length: u64::try_from(1_000 + number % 90_000).ok(),
        media_type: Some("application/pdf".to_owned()),
        ..Metadata::default()
    };
    let loc = format!("https://repository.example.org/items/{number:07}/content.pdf");
    Entry { lastmod: Some(moment(number)), ..Entry::with_metadata(loc, metadata) }
}

fn moment(number: usize) -> DateTime {
    DateTime::from_unix_millis(1_767_225_600_000 + 1_000 * i64::try_from(number).unwrap()).unwrap()
}

fn memory() {
    let limits = Limits { bytes: u64::MAX, entries: MANY };
    println!("\n{MANY} entries, peak of resident memory {} at the start", peak());
    let timed = |what: &str, work: &dyn Fn() -> usize| {
        let start = Instant::now();
        assert_eq!(work(), MANY);
        println!("  {what:<32} {:6.1} s, peak {}", start.elapsed().as_secs_f64(), peak());
        assert!(peak_kib().is_none_or(|kib| kib < 64 * 1024), "memory is not constant");
    };
    let drain = |input: &mut dyn BufRead, mode| {
        let options = Options { mode, limits, ..Options::default() };
        Reader::with_options(input, options).unwrap().map(Result::unwrap).count()
    };
    timed("read, plain", &|| drain(&mut BufReader::new(Generated::default()), Mode::Lenient));
    timed("read, every rule checked", &|| drain(&mut BufReader::new(Generated::default()), Mode::Checking));
    timed("read, gzip", &|| {
        let zipped = gzip(BufReader::new(Generated::default()));
        drain(&mut BufReader::new(zipped), Mode::Lenient)
    });
    timed("written", &|| {
        for start in (0..MANY).step_by(ENTRIES) {
            let mut writer = Writer::new(io::sink(), &header()).unwrap();
            for number in start..start + ENTRIES {
                writer.entry(&entry(number)).unwrap();
            }
            writer.finish().unwrap();
        }
        MANY
    });
}

fn gzip<R: BufRead>(plain: R) -> GzEncoder<R> {
    GzEncoder::new(plain, Compression::fast())
}

/// A Resource List that exists only as far as it is read.
#[derive(Default)]
struct Generated {
    number: usize,
    text: String,
    taken: usize,
}

impl Generated {
    fn go_on(&mut self) {
        self.text.clear();
        self.taken = 0;
        if self.number == 0 {
            self.text.push_str(
                "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                 xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n<rs:md capability=\"resourcelist\"/>\n",
            );
        }
        if self.number < MANY {
            let Values { loc, lastmod, hash, length, .. } = Values::of(&entry(self.number));
            writeln!(
                self.text,
                "<url><loc>{loc}</loc><lastmod>{lastmod}</lastmod><rs:md hash=\"{hash}\" length=\"{length}\"/></url>"
            )
            .unwrap();
        } else if self.number == MANY {
            self.text.push_str("</urlset>\n");
        }
        self.number += 1;
    }
}

impl Read for Generated {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.text.len() {
            self.go_on();
        }
        let length = (&self.text.as_bytes()[self.taken..]).read(target)?;
        self.taken += length;
        Ok(length)
    }
}
