//! Resource Dumps as ZIP packages (RS-100 to RS-109).

use std::io::{self, Read};

use tempfile::SpooledTempFile;

use super::inventory::Ordered;
use super::packages::{Packages, packing};
use super::parts::Parts;
use super::scratch::Scratch;
use super::settings::{Published, Settings, Site, archived, settings};
use super::snapshot::Snapshot;
use super::{BuildError, Completed, Contents, Inventory, Item, PackageLimits, Sink};
use crate::datetime::DateTime;
use crate::document::{self, Capability, Header, ResourceDumpManifest};

/// Makes a Resource Dump: packages with every resource, and the documents that list them.
///
/// Packages are named after the moment of the snapshot, and never written again: those that the dump led to before stay while
/// somebody still takes them, until the next run is through. A resource that is gone when it is packed is left out and counted in [`Published::gone`]; one
/// that changed is packed as it is, and the manifest says so.
///
/// ```
/// use resync_core::build::{Item, MemoryInventory, MemorySink, ResourceDumps, Site};
/// use resync_core::package::Package;
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
    packages: PackageLimits,
    at: DateTime,
    completed: Completed,
}

impl ResourceDumps {
    /// Dumps called `resourcedump.xml` and, where there are more packages than one document lists, also
    /// `resourcedump-20260103T090000Z-1.xml`, …; `at` is when the taking of the inventory started.
    pub fn new(site: &Site, at: DateTime) -> Self {
        let settings = Settings::new(site, "resourcedump");
        Self { settings, packages: PackageLimits::default(), at, completed: Completed::Unstated }
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
        let &Self { ref settings, packages, at, completed } = self;
        let snapshot = Snapshot { capability: Capability::ResourceDump, settings, at, completed };
        let mut dump = Parts::new(snapshot, settings, at, sink)?;
        let mut packages = Packages::new(settings, packages, dump.generation().clone(), dump.sink());
        let scratch = Scratch::of(dump.sink());
        let mut gone = 0;
        for item in Ordered::new(inventory) {
            let mut item = item?;
            let unreadable = |source| BuildError::Content { loc: item.loc.clone(), source };
            let Some(content) = contents.open(&item).map_err(unreadable)? else {
                gone += 1;
                continue;
            };
            let content = Measured::new(&mut item, content, &scratch)?;
            let path = packages.next_path("resources", &item.loc);
            let entry = item.into_bitstream(&path);
            if !packages.takes(&entry)? {
                self.end_package(&mut packages, &mut dump)?;
            }
            packages.packer(|| self.manifest(None))?.pack(entry, content)?;
        }
        self.end_package(&mut packages, &mut dump)?;
        dump.lead_to(packages.into_ready());
        Ok(Published { gone, ..dump.stage()?.publish(sink)? })
    }

    fn end_package<S: Sink>(
        &self,
        packages: &mut Packages<'_, S>,
        dump: &mut Parts<'_, Snapshot<'_>, S>,
    ) -> Result<(), BuildError> {
        let completed = self.completed.after(self.at);
        let Some(done) = packages.end(dump.sink(), &self.manifest(completed))? else { return Ok(()) };
        let mut package = document::Package::zip(done.url, done.length).at(self.at).hashes(done.hashes);
        if let Some(completed) = completed {
            package = package.completed(completed);
        }
        dump.entry(&package.contents(done.contents).into())
    }

    fn manifest(&self, completed: Option<DateTime>) -> Header {
        let manifest = ResourceDumpManifest::new(self.at, self.settings.site.capability_list());
        completed.map_or(manifest.clone(), |completed| manifest.completed(completed)).header()
    }
}

/// The bytes of a resource whose length is known, so that it is known whether a package has room for them.
enum Measured<R> {
    Listed(R),
    Copied(SpooledTempFile),
}

impl<R: Read> Measured<R> {
    /// Gives the item its length if it has none.
    fn new(item: &mut Item, content: R, scratch: &Scratch) -> Result<Self, BuildError> {
        if item.length.is_some() {
            return Ok(Self::Listed(content));
        }
        let (copy, length) = scratch.copy(&item.loc, content, |_| {})?;
        item.length = Some(length);
        Ok(Self::Copied(copy))
    }
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Listed(content) => content.read(buffer),
            Self::Copied(copy) => copy.read(buffer),
        }
    }
}

settings!(ResourceDumps);
archived!(ResourceDumps);
packing!(ResourceDumps);
