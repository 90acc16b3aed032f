//! What the other modules have in common: a site in memory that can be checked, watched and broken.

use std::io::{self, Cursor};

use resync_core::build::{Documents, Item, MemoryDraft, MemorySink, Sink, Site, publish_capability_list};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest, Hashes};
use resync_core::document::{Capability, CapabilityList, Document, SourceDescription};
use resync_core::lint::{self, Fetch, FetchFailure, Fetched, PackageBytes, Report};
use resync_core::xml;

pub(crate) const ROOT: &str = "https://example.org/resync/";
pub(crate) const SOURCE: &str = "https://example.org/.well-known/resourcesync";

pub(crate) fn site() -> Site {
    Site::new(ROOT)
}

pub(crate) fn moment(seconds: u32) -> DateTime {
    DateTime::from_unix_millis(1_767_225_600_000 + 1_000 * i64::from(seconds)).unwrap()
}

pub(crate) fn item(number: u32, version: u32) -> Item {
    let content = content(number, version);
    Item {
        lastmod: Some(moment(version)),
        length: Some(content.len() as u64),
        hashes: Hashes::from(Digest::of(Algorithm::Sha256, content.as_bytes())),
        media_type: Some("text/plain".to_owned()),
        ..Item::new(format!("https://example.org/items/{number:04}.txt?a&b"))
    }
}

pub(crate) fn content(number: u32, version: u32) -> String {
    format!("item {number} version {version}\n").repeat(1 + number as usize % 5)
}

pub(crate) fn document(sink: &MemorySink, name: &str) -> Document {
    let bytes = sink.get(name).unwrap_or_else(|| panic!("no {name}"));
    xml::read(bytes).unwrap().into_document().unwrap_or_else(|violations| panic!("{name}: {violations}"))
}

/// Checks every XML document by itself.
pub(crate) fn check_each(sink: &MemorySink) {
    for name in sink.names().filter(|name| !name.contains(".zip")) {
        document(sink, name);
    }
}

/// Judges from outside see every XML document.
pub(crate) fn judge_each(sink: &MemorySink) {
    let names = sink.names().filter(|name| !name.contains(".zip"));
    resync_judge::written("build", names.map(|name| (name, sink.get(name).unwrap())));
}

/// Checks the site as a whole, with a Capability List for `capability`.
pub(crate) fn check_site(sink: &MemorySink, capability: Capability, top: &str) -> Report {
    let mut whole = sink.clone();
    let list = CapabilityList::new(SOURCE).described_by("https://example.org/set.html");
    publish_capability_list(list.capability(capability, site().url(top)), &mut whole).unwrap();
    let about = "https://example.org/about.html";
    let description = SourceDescription::new()
        .described_by(about)
        .capability_list_described_by(site().capability_list(), about)
        .build()
        .unwrap();
    lint::check(&mut Web { sink: whole, description: xml::write(&description) }, SOURCE)
}

struct Web {
    sink: MemorySink,
    description: Vec<u8>,
}

impl Fetch for Web {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        let bytes = if url == SOURCE {
            Some(self.description.as_slice())
        } else {
            url.strip_prefix(ROOT).and_then(|name| self.sink.get(name))
        };
        Ok(Fetched {
            bytes: bytes.ok_or_else(|| FetchFailure::new("404 Not Found"))?.to_vec(),
            content_type: Some("application/xml".to_owned()),
            last_url: url.to_owned(),
        })
    }

    fn package(&mut self, url: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        Ok(Some(Box::new(Cursor::new(self.get(url)?.bytes))))
    }
}

/// A site that tells what it looks like after every step, and that breaks down after some.
pub(crate) struct Watched<'a> {
    pub(crate) sink: MemorySink,
    pub(crate) steps_left: usize,
    pub(crate) after: &'a mut dyn FnMut(&MemorySink),
}

impl Documents for Watched<'_> {
    type Published = <MemorySink as Documents>::Published;

    fn open(&self, name: &str) -> io::Result<Option<Self::Published>> {
        self.sink.open(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.sink.list(prefix)
    }
}

impl Sink for Watched<'_> {
    type Draft = MemoryDraft;
    type Staged = MemoryDraft;

    fn create(&mut self, name: &str) -> io::Result<MemoryDraft> {
        self.sink.create(name)
    }

    fn stage(&mut self, draft: MemoryDraft) -> io::Result<MemoryDraft> {
        self.sink.stage(draft)
    }

    fn publish(&mut self, staged: MemoryDraft) -> io::Result<()> {
        if self.steps_left == 0 {
            return Err(io::Error::other("killed"));
        }
        self.steps_left -= 1;
        self.sink.publish(staged)?;
        (self.after)(&self.sink);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        self.sink.remove(name)
    }
}
