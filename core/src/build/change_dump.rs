//! Change Dumps as ZIP packages (RS-140 to RS-148).
//!
//! The claim of a dump is that applying it, in its order, to a copy as of its start makes a copy as of its end. Bytes are packed only
//! where they are those of the very change; a change whose bytes are gone is told by the next one of the same resource. Where there
//! is none, the claim cannot be kept, and there is no dump.

use std::collections::HashMap;

use tempfile::SpooledTempFile;

use super::change_list::{Event, Rotation};
use super::generation::Generation;
use super::packages::{Packages, Packing, packing};
use super::rotation::{Kind, Series};
use super::scratch::Scratch;
use super::settings::{Published, Settings, Site, settings};
use super::{BuildError, Item, PackageLimits, Sink, Versions};
use crate::datetime::DateTime;
use crate::digest::{Agreement, Digest, Hasher};
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
    /// Dumps that rotate as [`Rotation::default`] says.
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
    /// A change whose bytes are gone is left out and counted in [`Published::gone`] where another one of the same resource follows, which
    /// then tells the sum of both; no manifest can tell of it without a path (RS-144). Where none follows, nothing is published
    /// ([`BuildError::BytesGone`]).
    ///
    /// After a run that was killed, tell again what happened from [`end`](Self::end) on: a change at that very moment may then be in two
    /// packages, which does no harm (RS-128).
    pub fn record<S: Sink>(
        &self,
        sink: &mut S,
        from: DateTime,
        events: impl IntoIterator<Item = Result<Event, BuildError>>,
        mut versions: impl Versions,
        until: DateTime,
    ) -> Result<Published, BuildError> {
        let start = self.end(sink)?.unwrap_or(from);
        let generation = Generation::new(sink, &self.settings.stem, until)?;
        let mut packages = Packages::new(&self.settings, &self.packing, generation, sink);
        let awaited = HashMap::new();
        let mut run = Run { dumps: self, from: start, last: start, entries: Vec::new(), awaited, gone: 0 };
        for event in events {
            run.add(event?, &mut versions, &mut packages, sink)?;
        }
        if until < run.last {
            return Err(BuildError::ChangeOrder { moment: until, after: run.last });
        }
        run.check_complete()?;
        run.end_package(&mut packages, sink, until)?;
        let mut documents = packages.into_ready().publish_new(sink)?;
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
    /// The resources of which the bytes are gone, until another change of theirs comes: the first change that was left out.
    awaited: HashMap<String, (Change, DateTime)>,
    gone: u64,
}

impl Run<'_> {
    fn add<S: Sink>(
        &mut self,
        mut event: Event,
        versions: &mut impl Versions,
        packages: &mut Packages<'_, S>,
        sink: &mut S,
    ) -> Result<(), BuildError> {
        let (before, moment) = (self.last, event.moment);
        if moment < before {
            return Err(BuildError::ChangeOrder { moment, after: before });
        }
        self.last = moment;
        let content = match event.change {
            Change::Deleted => None,
            Change::Created | Change::Updated => {
                let Some(content) = version(versions, &mut event, &Scratch::of(sink))? else {
                    self.gone += 1;
                    self.awaited.entry(event.item.loc).or_insert((event.change, moment));
                    return Ok(());
                };
                Some(content)
            }
        };
        let Event { change, item, .. } = event;
        let change = self.sum(change, &item);
        let entry = if content.is_some() {
            let path = packages.next_path("changes", &item.loc);
            packed(change, moment, item, &path)
        } else {
            let told = PackedChange::deleted(item.loc).datetime(moment);
            Entry { links: item.links, ..told.into() }
        };
        if !packages.takes(&entry)? {
            self.end_package(packages, sink, before)?;
        }
        let packer = packages.packer(|| self.manifest(None))?;
        match content {
            Some(content) => packer.pack(entry, content),
            None => packer.tell(&entry),
        }
    }

    /// What a change amounts to together with those of the same resource that were left out before it.
    fn sum(&mut self, change: Change, item: &Item) -> Change {
        match (self.awaited.remove(&item.loc), change) {
            (Some((Change::Created, _)), Change::Updated) => Change::Created,
            _ => change,
        }
    }

    fn check_complete(&self) -> Result<(), BuildError> {
        let first = self.awaited.iter().min_by_key(|(loc, (_, moment))| (*moment, *loc));
        first.map_or(Ok(()), |(loc, (_, moment))| {
            Err(BuildError::BytesGone { loc: loc.clone(), moment: *moment })
        })
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

/// The bytes that a change led to, compared with the length and the digests of its item; what was not known of its length is, then.
fn version(
    versions: &mut impl Versions,
    event: &mut Event,
    scratch: &Scratch,
) -> Result<Option<SpooledTempFile>, BuildError> {
    let opened = versions.open_version(event);
    let unreadable = |source| BuildError::Content { loc: event.item.loc.clone(), source };
    let Some(content) = opened.map_err(unreadable)? else { return Ok(None) };
    let Item { loc, length: listed_length, hashes: listed, .. } = &mut event.item;
    let mut hasher = Hasher::new(listed.iter().map(Digest::algorithm));
    let (bytes, length) = scratch.copy(loc, content, |bytes| hasher.update(bytes))?;
    let is_another = listed_length.is_some_and(|listed| listed != length)
        || listed.compare(&hasher.finish()) == Agreement::Different;
    *listed_length = Some(length);
    Ok((!is_another).then_some(bytes))
}
