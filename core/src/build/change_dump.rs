//! Change Dumps as ZIP packages (RS-140 to RS-148).

use super::change_list::{Event, Rotation};
use super::packages::{Packages, Packing, packing};
use super::rotation::{Kind, Series};
use super::settings::{Published, Settings, Site, settings};
use super::{BuildError, Contents, Item, PackageLimits, Sink};
use crate::datetime::DateTime;
use crate::document::{Change, ChangeDumpManifest, ChangePackage, Entry, Header, PackedChange};

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
        let published =
            self.series().record(sink, from, None, run.entries.into_iter().map(Ok), until, None)?;
        documents.extend(published.documents);
        Ok(Published { documents, gone: run.gone, ..published })
    }

    fn series(&self) -> Series<'_> {
        Series { kind: Kind::ChangeDump, settings: &self.settings, rotation: self.rotation }
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
