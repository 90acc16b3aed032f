//! Resource Dumps and Change Dumps as ZIP packages (RS-100 to RS-109, RS-140 to RS-148).

use super::change_list::{Event, Rotation};
use super::inventory::Ordered;
use super::rotation::{self, Series};
use super::settings::{Published, Settings, Site, settings};
use super::snapshot::{self, Snapshot};
use super::walk::extension;
use super::zip::{Packed, Packer, stamp};
use super::{BuildError, Completed, Contents, Inventory, Item, Sink};
use crate::datetime::DateTime;
use crate::document::{
    self, Change, ChangeDumpManifest, ChangePackage, Entry, Header, PackedChange, ResourceDumpManifest,
};
use crate::xml::MAX_ENTRIES;

/// When one package ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageLimits {
    /// Most bitstreams of one package; 50,000 at most, since a manifest cannot be split (RS-109).
    pub bitstreams: usize,
    /// Most bytes of the bitstreams of one package, before compression; a longer bitstream has a package of its own.
    pub bytes: u64,
}

impl Default for PackageLimits {
    /// 50,000 bitstreams, 100 MiB.
    fn default() -> Self {
        Self { bitstreams: MAX_ENTRIES, bytes: 100 * 1024 * 1024 }
    }
}

impl PackageLimits {
    pub(super) fn entries(self) -> usize {
        self.bitstreams.clamp(1, MAX_ENTRIES)
    }
}

/// What both kinds of dump have in common.
#[derive(Clone, Debug)]
struct Packing {
    limits: PackageLimits,
    has_copies: bool,
}

impl Packing {
    const DEFAULT: Self = Self {
        limits: PackageLimits { bitstreams: MAX_ENTRIES, bytes: 100 * 1024 * 1024 },
        has_copies: true,
    };
}

/// Gives a generator with a field `packing` its methods.
macro_rules! packing {
    ($generator:ident) => {
        impl $generator {
            /// When one package ends and the next begins.
            pub fn package_limits(mut self, limits: PackageLimits) -> Self {
                self.packing.limits = limits;
                self
            }

            /// Whether a copy of each manifest is published beside its package (RS-103); it is, unless you say otherwise.
            pub fn manifest_copies(mut self, has_copies: bool) -> Self {
                self.packing.has_copies = has_copies;
                self
            }
        }
    };
}

/// The packages of one run, while they come in.
struct Packages<'a, S: Sink> {
    settings: &'a Settings,
    packing: &'a Packing,
    stamp: String,
    packer: Option<Packer>,
    staged: Vec<S::Staged>,
    names: Vec<String>,
    ended: u64,
    bitstreams: u64,
}

impl<'a, S: Sink> Packages<'a, S> {
    fn new(settings: &'a Settings, packing: &'a Packing, moment: DateTime) -> Self {
        let (staged, names) = (Vec::new(), Vec::new());
        Self { settings, packing, stamp: stamp(moment), packer: None, staged, names, ended: 0, bitstreams: 0 }
    }

    fn takes(&self, entry: &Entry) -> Result<bool, BuildError> {
        self.packer.as_ref().map_or(Ok(true), |packer| packer.takes(entry))
    }

    /// The package that is open, or a new one.
    fn packer(&mut self, manifest: impl FnOnce() -> Header) -> Result<&mut Packer, BuildError> {
        let packer = match self.packer.take() {
            Some(packer) => packer,
            None => Packer::new(manifest(), self.packing.limits)?,
        };
        Ok(self.packer.insert(packer))
    }

    /// Where the next bitstream lies: a number keeps every change of a resource apart (RS-145), and is a name everywhere.
    fn next_path(&mut self, folder: &str, loc: &str) -> String {
        self.bitstreams += 1;
        let end = extension(loc).map(|extension| format!(".{extension}")).unwrap_or_default();
        format!("/{folder}/{:07}{end}", self.bitstreams)
    }

    /// Ends the open package, if there is one; gives its URL, length, digest and the URL of its manifest's copy.
    fn end(&mut self, sink: &mut S, manifest: &Header) -> Result<Option<Done>, BuildError> {
        let Some(packer) = self.packer.take() else { return Ok(None) };
        self.ended += 1;
        let base = format!("{}-{}-{}", self.settings.stem, self.stamp, self.ended);
        let name = format!("{base}.zip");
        let copy = self.packing.has_copies.then(|| format!("{base}-manifest.xml"));
        let Packed { package, contents, length, hashes } =
            packer.stage(sink, &name, copy.as_deref(), manifest)?;
        self.staged.extend(contents);
        self.names.extend(copy.clone());
        self.staged.push(package);
        self.names.push(name.clone());
        let site = &self.settings.site;
        Ok(Some(Done { url: site.url(&name), length, hashes, contents: copy.map(|copy| site.url(&copy)) }))
    }

    fn publish(self, sink: &mut S) -> Result<Vec<String>, BuildError> {
        for staged in self.staged {
            sink.publish(staged)?;
        }
        Ok(self.names)
    }
}

struct Done {
    url: String,
    length: u64,
    hashes: crate::digest::Hashes,
    contents: Option<String>,
}

/// Makes a Resource Dump: packages with every resource, and the documents that list them.
///
/// Packages are named after the moment of the snapshot, so that those of an earlier one stay while somebody still takes them;
/// remove them when you like. A resource that is gone when it is packed is left out and counted in [`Published::gone`]; one
/// that changed is packed as it is, and the manifest says so.
///
/// ```
/// use resync_core::build::{Item, MemoryInventory, MemorySink, Package, ResourceDumps, Site};
/// use std::io::Cursor;
///
/// let inventory: MemoryInventory = (0..3).map(|n| Item::new(format!("https://example.org/{n}.txt"))).collect();
/// let mut sink = MemorySink::default();
/// let published = ResourceDumps::new(&Site::new("https://example.org/resync"), "2026-01-03T09:00:00Z".parse()?)
///     .write(inventory.into_iter(), |item: &Item| Ok(Some(Cursor::new(item.loc.clone()))), &mut sink)?;
/// assert_eq!(published.top(), Some("resourcedump.xml"));
///
/// let bytes = sink.get("resourcedump-20260103T090000Z-1.zip").unwrap();
/// let mut package = Package::open(Cursor::new(bytes))?;
/// let mut contents = Vec::new();
/// while let Some(entry) = package.next_entry()? {
///     let mut content = Vec::new();
///     package.copy(&entry, &mut content)?;
///     contents.push(String::from_utf8(content)?);
/// }
/// assert_eq!(contents, ["https://example.org/0.txt", "https://example.org/1.txt", "https://example.org/2.txt"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceDumps {
    settings: Settings,
    packing: Packing,
    at: DateTime,
    completed: Completed,
}

impl ResourceDumps {
    /// Dumps called `resourcedump.xml` and, where there are more packages than one document lists, `resourcedump-1.xml`, …;
    /// `at` is when the taking of the inventory started.
    pub fn new(site: &Site, at: DateTime) -> Self {
        let settings = Settings::new(site, "resourcedump");
        Self { settings, packing: Packing::DEFAULT, at, completed: Completed::Untold }
    }

    /// What is said of the end of the snapshot.
    pub fn completed(mut self, completed: Completed) -> Self {
        self.completed = completed;
        self
    }

    /// Packs every resource of the inventory.
    pub fn write<S: Sink>(
        &self,
        inventory: impl Inventory,
        mut contents: impl Contents,
        sink: &mut S,
    ) -> Result<Published, BuildError> {
        let kind = snapshot::Kind::ResourceDump;
        let mut dump = Snapshot::new(kind, &self.settings, self.at, self.completed, sink)?;
        let mut packages = Packages::new(&self.settings, &self.packing, self.at);
        let mut gone = 0;
        for item in Ordered::new(inventory) {
            let item = item?;
            let Some(content) = contents.open(&item)? else {
                gone += 1;
                continue;
            };
            let path = packages.next_path("resources", &item.loc);
            let entry = item.into_bitstream(&path);
            if !packages.takes(&entry)? {
                self.end_package(&mut packages, &mut dump)?;
            }
            packages.packer(|| self.manifest(None))?.pack(entry, content)?;
        }
        self.end_package(&mut packages, &mut dump)?;
        let mut documents = packages.publish(dump.sink())?;
        let published = dump.publish()?;
        documents.extend(published.documents);
        Ok(Published { documents, gone, ..published })
    }

    fn end_package<S: Sink>(
        &self,
        packages: &mut Packages<'_, S>,
        dump: &mut Snapshot<'_, S>,
    ) -> Result<(), BuildError> {
        let completed = self.completed.after(self.at);
        let Some(done) = packages.end(dump.sink(), &self.manifest(completed))? else { return Ok(()) };
        let mut package = document::Package::zip(done.url, done.length).at(self.at).hashes(done.hashes);
        if let Some(completed) = completed {
            package = package.completed(completed);
        }
        if let Some(contents) = done.contents {
            package = package.contents(contents);
        }
        dump.entry(&package.into())
    }

    fn manifest(&self, completed: Option<DateTime>) -> Header {
        let manifest = ResourceDumpManifest::new(self.at, self.settings.site.capability_list());
        completed.map_or(manifest.clone(), |completed| manifest.completed(completed)).header()
    }
}

settings!(ResourceDumps);
packing!(ResourceDumps);

/// Makes Change Dumps that go on from run to run, as [`ChangeLists`](super::ChangeLists) do: `changedump.xml` is the index,
/// `changedump-1.xml`, … list packages, the last one open.
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeDumps {
    settings: Settings,
    packing: Packing,
    rotation: Rotation,
}

impl ChangeDumps {
    /// Dumps that rotate only at the limits.
    pub fn new(site: &Site) -> Self {
        let settings = Settings::new(site, "changedump");
        Self { settings, packing: Packing::DEFAULT, rotation: Rotation::default() }
    }

    /// When a dump is closed and the next one opened; entries are packages.
    pub fn rotation(mut self, rotation: Rotation) -> Self {
        self.rotation = rotation;
        self
    }

    /// Up to when the published dumps have all changes; `None` before the first run.
    pub fn end<S: Sink>(&self, sink: &S) -> Result<Option<DateTime>, BuildError> {
        self.series().end(sink)
    }

    /// Packs the changes from [`end`](Self::end), or `from` the first time, up to `until`, oldest first.
    ///
    /// A change whose bytes are gone, because another one followed, is left out and counted in [`Published::gone`]: no manifest can
    /// tell of it without a path (RS-144).
    pub fn record<S: Sink>(
        &self,
        sink: &mut S,
        from: DateTime,
        events: impl IntoIterator<Item = Result<Event, BuildError>>,
        mut contents: impl Contents,
        until: DateTime,
    ) -> Result<Published, BuildError> {
        let start = self.end(sink)?.unwrap_or(from);
        let mut packages = Packages::new(&self.settings, &self.packing, until);
        let mut run = Run { dumps: self, from: start, last: start, entries: Vec::new(), gone: 0 };
        for event in events {
            run.add(event?, &mut contents, &mut packages, sink)?;
        }
        if until < run.last {
            return Err(BuildError::ChangeOrder { moment: until, after: run.last });
        }
        run.end_package(&mut packages, sink, until)?;
        let mut documents = packages.publish(sink)?;
        let published = self.series().record(sink, from, run.entries.into_iter().map(Ok), until, None)?;
        documents.extend(published.documents);
        Ok(Published { documents, gone: run.gone, ..published })
    }

    fn series(&self) -> Series<'_> {
        Series { kind: rotation::Kind::ChangeDump, settings: &self.settings, rotation: self.rotation }
    }
}

settings!(ChangeDumps);
packing!(ChangeDumps);

/// The changes of one run.
struct Run<'a> {
    dumps: &'a ChangeDumps,
    /// Where the open package starts.
    from: DateTime,
    last: DateTime,
    /// The packages, one entry each.
    entries: Vec<Entry>,
    gone: u64,
}

impl Run<'_> {
    fn add<S: Sink>(
        &mut self,
        event: Event,
        contents: &mut impl Contents,
        packages: &mut Packages<'_, S>,
        sink: &mut S,
    ) -> Result<(), BuildError> {
        let Event { change, moment, item } = event;
        if moment < self.last {
            return Err(BuildError::ChangeOrder { moment, after: self.last });
        }
        let (entry, content) = if change == Change::Deleted {
            let told = PackedChange::deleted(item.loc).datetime(moment);
            (Entry { links: item.links, ..told.into() }, None)
        } else {
            let Some(content) = contents.open(&item)? else {
                self.gone += 1;
                return Ok(());
            };
            let path = packages.next_path("changes", &item.loc);
            (packed(change, moment, item, &path), Some(content))
        };
        if !packages.takes(&entry)? {
            self.end_package(packages, sink, self.last)?;
        }
        self.last = moment;
        let packer = packages.packer(|| self.manifest(None))?;
        match content {
            Some(content) => packer.pack(entry, content),
            None => packer.tell(&entry),
        }
    }

    fn end_package<S: Sink>(
        &mut self,
        packages: &mut Packages<'_, S>,
        sink: &mut S,
        until: DateTime,
    ) -> Result<(), BuildError> {
        let Some(done) = packages.end(sink, &self.manifest(Some(until)))? else { return Ok(()) };
        let mut package =
            ChangePackage::zip(done.url, done.length).interval(self.from, until).hashes(done.hashes);
        if let Some(contents) = done.contents {
            package = package.contents(contents);
        }
        self.entries.push(package.into());
        self.from = until;
        Ok(())
    }

    fn manifest(&self, until: Option<DateTime>) -> Header {
        let manifest = ChangeDumpManifest::new(self.from, self.dumps.settings.site.capability_list());
        until.map_or(manifest.clone(), |until| manifest.until(until)).header()
    }
}

fn packed(change: Change, moment: DateTime, item: Item, path: &str) -> Entry {
    let mut entry = item.into_bitstream(path);
    let metadata = entry.metadata.get_or_insert_default();
    metadata.change = Some(change);
    metadata.datetime = Some(moment);
    entry
}
