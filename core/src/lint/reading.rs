//! One document read for what others may contradict: its kind, times and links, but not its entries.

use std::hash::{BuildHasher as _, Hash, Hasher as _, RandomState};

use super::Kind;
use super::tally::{Gathering, Tally};
use super::versions::VersionKind;
use crate::datetime::DateTime;
use crate::digest::Hashes;
use crate::document::{Capability, Change, Entry, Header, Relation, Root, ZIP};
use crate::rules::{Place, Rule, Times, Violations};
use crate::xml::{Mode, Options, ReadError, Reader};

/// Most bytes of a URL that is followed (RS-047); longer ones would be kept by the thousand.
pub(super) const MAX_URL: usize = 2_048;

/// What a document is kept as.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) kind: Kind,
    pub(super) times: Times,
    /// Where it points up; absolute once it has been read in its place.
    pub(super) up: Option<String>,
    /// The earliest and latest change that it lists.
    pub(super) changes: Option<(DateTime, DateTime)>,
    /// How many entries it has.
    pub(super) entries: usize,
    /// Of Resource Lists and manifests that were read whole: which resources they name, if that is beyond doubt.
    pub(super) resources: Option<Tally>,
    /// Of manifests: equal for equal content.
    pub(super) fingerprint: Option<u64>,
}

/// A link as it was written, before it is resolved.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) role: Role,
    pub(super) href: String,
    pub(super) place: Place,
    /// The times that the entry gives for its target.
    pub(super) times: Times,
}

/// In what way a document leads to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Up,
    Index,
    Archives,
    /// An entry of a Source Description or a Capability List says what is there.
    Listed(Capability),
    /// An entry of an index.
    Component,
    /// An entry of an archive.
    Archived,
    /// A copy of a package's manifest.
    Contents,
    /// The manifest in a package.
    Package(Box<PackageListing>),
    /// A channel's topic, and the hubs that it should name.
    Topic(Vec<String>),
    /// Where versions of this original are.
    Version(VersionKind, String),
    /// An entry that looks as if the document were an index.
    Sample,
}

/// What a dump says of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackageListing {
    pub(super) length: Option<u64>,
    pub(super) hashes: Hashes,
}

/// What reading a document gave.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) summary: Option<Summary>,
    pub(super) references: Vec<Reference>,
    pub(super) violations: Violations,
}

/// Reads and checks a document; one that cannot be read to its end is known by what came before.
pub(super) fn read(bytes: &[u8], key: &RandomState) -> Reading {
    let unreadable = |error: &ReadError, violations: &mut Violations| {
        violations.push(Rule::Unreadable, Place::default(), error.to_string());
    };
    let mut violations = Violations::default();
    let mut reader = match Reader::with_options(bytes, Options { mode: Mode::Checking, ..Options::default() })
    {
        Ok(reader) => reader,
        Err(error) => {
            unreadable(&error, &mut violations);
            return Reading { summary: None, references: Vec::new(), violations };
        }
    };
    let mut collector = Collector::new(reader.header(), reader.header_position(), key);
    let mut is_whole = true;
    while let Some(entry) = reader.next() {
        match entry {
            Ok(entry) => {
                let place = Place { position: Some(reader.position()), entry: Some(reader.number()) };
                collector.entry(&entry, place);
            }
            Err(error) => {
                unreadable(&error, &mut violations);
                is_whole = false;
                break;
            }
        }
    }
    violations.append(reader.take_violations());
    let summary = collector.summary(reader.header(), is_whole && reader.refused() == 0);
    Reading { summary: Some(summary), references: collector.references, violations }
}

struct Collector<'k> {
    kind: Kind,
    key: &'k RandomState,
    entries: usize,
    resources: Gathering,
    changes: Option<(DateTime, DateTime)>,
    references: Vec<Reference>,
    fingerprint: std::hash::DefaultHasher,
    sampled: bool,
    /// To which kinds of versions an entry has led.
    leads_to: [bool; VersionKind::COUNT],
}

impl<'k> Collector<'k> {
    fn new(header: &Header, position: crate::xml::Position, key: &'k RandomState) -> Self {
        let place = Place { position: Some(position), entry: None };
        let roles =
            [(Relation::Up, Role::Up), (Relation::Index, Role::Index), (Relation::Archives, Role::Archives)];
        let references = roles.into_iter().filter_map(|(relation, role)| {
            let href = header.link(&relation)?.href.clone();
            Some(Reference { role, href, place, times: Times::default() })
        });
        let mut fingerprint = key.build_hasher();
        header.hash(&mut fingerprint);
        Self {
            kind: Kind::of(header),
            key,
            entries: 0,
            resources: Gathering::default(),
            changes: None,
            references: references.collect(),
            fingerprint,
            sampled: false,
            leads_to: [false; VersionKind::COUNT],
        }
    }

    fn entry(&mut self, entry: &Entry, place: Place) {
        self.entries += 1;
        if self.names_resources() {
            self.resources.add(entry, self.key);
        }
        if let Some(datetime) = entry.metadata.as_ref().and_then(|metadata| metadata.datetime) {
            let (first, last) = self.changes.unwrap_or((datetime, datetime));
            self.changes = Some((first.min(datetime), last.max(datetime)));
        }
        if self.is_manifest() {
            entry.hash(&mut self.fingerprint);
        }
        self.follow(entry, place);
        self.lead_to_versions(entry, place);
    }

    fn follow(&mut self, entry: &Entry, place: Place) {
        use Capability as C;
        if self.kind.root == Root::SitemapIndex {
            return self.refer(Role::Component, entry, &entry.loc, place);
        }
        match &self.kind.capability {
            Some(C::Description) => self.refer(Role::Listed(C::CapabilityList), entry, &entry.loc, place),
            Some(C::CapabilityList) => {
                // What other communities list may be no document at all, and a topic is none (FN-063).
                match entry.capability() {
                    None | Some(C::Other(_)) => {}
                    Some(channel) if channel.is_notification() => {
                        let hubs = entry.links_with(&Relation::Hub).map(|hub| hub.href.clone()).collect();
                        self.refer(Role::Topic(hubs), entry, &entry.loc, place);
                    }
                    Some(capability) => {
                        self.refer(Role::Listed(capability.clone()), entry, &entry.loc, place);
                    }
                }
            }
            Some(capability) if archived(capability).is_some() => {
                self.refer(Role::Archived, entry, &entry.loc, place);
            }
            Some(C::ResourceDump | C::ChangeDump) => {
                for contents in entry.links_with(&Relation::Contents) {
                    self.refer(Role::Contents, entry, &contents.href, place);
                }
                if !self.sample(entry, place) && is_zip(entry) {
                    let metadata = entry.metadata.clone().unwrap_or_default();
                    let said = PackageListing { length: metadata.length, hashes: metadata.hash };
                    self.refer(Role::Package(Box::new(said)), entry, &entry.loc, place);
                }
            }
            Some(C::ResourceList | C::ChangeList) => {
                self.sample(entry, place);
            }
            _ => {}
        }
    }

    /// An index that was published as a urlset has entries that look like documents (IN-003); one look is enough.
    fn sample(&mut self, entry: &Entry, place: Place) -> bool {
        let path = entry.loc.split(['?', '#']).next().unwrap_or_default();
        let name = path.strip_suffix(".gz").unwrap_or(path);
        let is_xml =
            name.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("xml"));
        let looks_like_document = is_xml && entry.change().is_none();
        if looks_like_document && !self.sampled {
            self.sampled = true;
            self.refer(Role::Sample, entry, &entry.loc, place);
        }
        looks_like_document
    }

    /// One link of each kind is enough: there may be as many as entries.
    fn lead_to_versions(&mut self, entry: &Entry, place: Place) {
        // The memento of a deletion has nothing to give (MEM-031).
        if entry.change() == Some(Change::Deleted) || entry.loc.len() > MAX_URL {
            return;
        }
        for link in &entry.links {
            let Some(kind) = VersionKind::of(&link.rel) else { continue };
            if !std::mem::replace(&mut self.leads_to[kind.index()], true) {
                self.refer(Role::Version(kind, entry.loc.clone()), entry, &link.href, place);
            }
        }
    }

    fn refer(&mut self, role: Role, entry: &Entry, href: &str, place: Place) {
        let times = entry.metadata.as_ref().map(Times::of).unwrap_or_default();
        self.references.push(Reference { role, href: href.to_owned(), place, times });
    }

    fn names_resources(&self) -> bool {
        self.kind.is(&Capability::ResourceDumpManifest)
            || self.kind.root == Root::UrlSet && self.kind.is(&Capability::ResourceList)
    }

    fn is_manifest(&self) -> bool {
        self.kind.is(&Capability::ResourceDumpManifest) || self.kind.is(&Capability::ChangeDumpManifest)
    }

    /// By the header as it is after the last entry.
    fn summary(&self, header: &Header, is_whole: bool) -> Summary {
        Summary {
            entries: self.entries,
            resources: self.resources.tally().filter(|_| is_whole && self.names_resources()),
            kind: Kind::of(header),
            times: Times::of(&header.metadata),
            up: header.link(&Relation::Up).map(|up| up.href.clone()).filter(|up| up.len() <= MAX_URL),
            changes: self.changes,
            fingerprint: self.is_manifest().then(|| self.fingerprint.finish()),
        }
    }
}

/// By its type, or by its name where it has no type (RS-101).
fn is_zip(package: &Entry) -> bool {
    if let Some(media_type) = package.metadata.as_ref().and_then(|metadata| metadata.media_type.as_deref()) {
        return media_type.eq_ignore_ascii_case(ZIP);
    }
    let path = package.loc.split(['?', '#']).next().unwrap_or_default();
    path.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("zip"))
}

/// What an archive of this capability holds.
pub(super) fn archived(archive: &Capability) -> Option<Capability> {
    match archive {
        Capability::ResourceListArchive => Some(Capability::ResourceList),
        Capability::ResourceDumpArchive => Some(Capability::ResourceDump),
        Capability::ChangeListArchive => Some(Capability::ChangeList),
        Capability::ChangeDumpArchive => Some(Capability::ChangeDump),
        _ => None,
    }
}
