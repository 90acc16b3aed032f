//! Change Dumps as ZIP packages (RS-140 to RS-148).
//!
//! The claim of a dump is that applying it, in its order, to a copy as of its start makes a copy as of its end. Bytes are packed only
//! where they are those of the very change; a change whose bytes are gone is covered by the next one of the same resource. Where there
//! is none, the claim cannot be kept, and there is no dump.

use std::collections::HashMap;
use std::io;

use tempfile::SpooledTempFile;

use super::change_list::Event;
use super::course::Course;
use super::generation::{Generation, sweep_packages};
use super::going_on::going_on;
use super::package_limits::PackageLimits;
use super::packages::{Packages, packing};
use super::rotation::Addition;
use super::scratch::Scratch;
use super::settings::{Published, Settings, Site, archived, settings};
use super::{BuildError, Item, Sink};
use crate::datetime::DateTime;
use crate::digest::{Agreement, Digest, Hasher};
use crate::document::{
    Change, ChangeDumpManifest, ChangePackage, Entry, Header, Link, PackedChange, Relation,
};
use crate::package::{Package, PackageReadLimits};

/// Where the bytes of a resource as a change left it come from, for Change Dumps. A closure will do.
pub trait Versions {
    /// What the bytes are read from.
    type Content: io::Read;

    /// Opens the representation that a change led to; `None` when it is gone.
    ///
    /// The event's item tells which one that is. Who has nothing but the present bytes may open those: a dump compares them with the
    /// item's length and digests, and takes them for gone where they differ.
    fn open_version(&mut self, event: &Event) -> io::Result<Option<Self::Content>>;

    /// Opens the patch that a link of a change leads to, to be packed with it (RS-146); `None` when it is not at hand, and then the dump does
    /// not tell of it.
    fn open_patch(&mut self, link: &Link) -> io::Result<Option<Self::Content>> {
        let _ = link;
        Ok(None)
    }
}

impl<R: io::Read, F: FnMut(&Event) -> io::Result<Option<R>>> Versions for F {
    type Content = R;

    fn open_version(&mut self, event: &Event) -> io::Result<Option<R>> {
        self(event)
    }
}

/// Makes Change Dumps that go on from run to run, as [`ChangeLists`](super::ChangeLists) do: `changedump.xml` is the index,
/// `changedump-1.xml`, … list packages, the last one open.
#[derive(Clone, Debug)]
#[must_use]
pub struct ChangeDumps {
    settings: Settings,
    packages: PackageLimits,
    course: Course,
}

impl ChangeDumps {
    /// Dumps that rotate as [`Rotation::default`](super::Rotation::default) says.
    pub fn new(site: &Site) -> Self {
        let settings = Settings::new(site, "changedump");
        Self { settings, packages: PackageLimits::default(), course: Course::default() }
    }

    /// Packs the changes from [`end`](Self::end), or `from` the first time, up to `until`, oldest first.
    ///
    /// A change whose bytes are gone is left out and counted in [`Published::gone`] where another one of the same resource follows, which
    /// then stands for both; no manifest can list it without a path (RS-144). Where none follows, nothing is published
    /// ([`BuildError::BytesGone`]). A package does not end in between, so that each holds what its interval promises; for that it may
    /// pass its [limits](Self::package_limits).
    ///
    /// A run that failed may have recorded some of the changes: [`resume`](Self::resume) goes on exactly. Without a position, record
    /// again what happened from [`end`](Self::end) on: a change at that very moment may then be in two packages, which does no harm
    /// (RS-128). A series that is [closed](Self::close) ends at `until`.
    pub fn record<S: Sink>(
        &self,
        sink: &mut S,
        from: DateTime,
        events: impl IntoIterator<Item = Result<Event, BuildError>>,
        mut versions: impl Versions,
        until: DateTime,
    ) -> Result<Published, BuildError> {
        let events = self.unrecorded(sink, events)?;
        let closed = self.course.is_last.then_some(until);
        let mut addition = Addition { until: closed, ..Addition::new(from, until) };
        let start = self.end(sink)?.unwrap_or(from);
        let generation = Generation::new(sink, &self.settings.stem, until)?;
        let mut packages = Packages::new(&self.settings, self.packages, generation, sink);
        let mut run = Run::new(self, start);
        for event in events {
            run.add(event?, &mut versions, &mut packages, sink)?;
        }
        if until < run.last {
            return Err(BuildError::ChangeOrder { moment: until, after: run.last });
        }
        run.check_complete()?;
        run.end_package(&mut packages, sink, until)?;
        addition.targets = packages.into_ready();
        let outcome = self.series().record(sink, addition, run.entries.into_iter().map(Ok));
        // Whatever came of it, a package that no dump names is of no use. The first failure is the one to report.
        let swept = sweep_packages(sink, &self.settings);
        let published = outcome?;
        swept?;
        Ok(Published { gone: run.gone, ..published })
    }

    /// The changes that no package has since the position that is resumed at.
    fn unrecorded<S: Sink, E: IntoIterator<Item = Result<Event, BuildError>>>(
        &self,
        sink: &S,
        events: E,
    ) -> Result<impl Iterator<Item = Result<Event, BuildError>> + use<S, E>, BuildError> {
        let series = self.series();
        let mut added = Vec::new();
        if let Some(position) = self.course.position {
            series.added_since(sink, position, |package| added.push(package))?;
        }
        let end = if added.is_empty() { None } else { series.end(sink)? };
        let mut at_end = Vec::new();
        for package in added {
            if package.metadata.as_ref().and_then(|metadata| metadata.until) == end {
                at_end.extend(self.recorded_at(sink, &package, end)?);
            }
        }
        Ok(events.into_iter().filter(move |event| {
            let (Some(end), Ok(event)) = (end, event) else { return true };
            // A package that is full may have ended between two changes of one moment.
            let is_recorded = event.moment < end
                || event.moment == end
                    && at_end
                        .iter()
                        .position(|loc| *loc == event.item.loc)
                        .map(|place| at_end.swap_remove(place))
                        .is_some();
            !is_recorded
        }))
    }

    /// The resources that a package has a change of at a moment.
    fn recorded_at<S: Sink>(
        &self,
        sink: &S,
        package: &Entry,
        moment: Option<DateTime>,
    ) -> Result<Vec<String>, BuildError> {
        let unfit = |reason| BuildError::NotContinuable { name: package.loc.clone(), reason };
        let name =
            self.settings.site.name(&package.loc).ok_or_else(|| unfit("it is a package of another site"))?;
        let published = sink.open(name)?.ok_or_else(|| unfit("it is missing"))?;
        let scratch = Scratch::of(sink);
        let (copy, _) = scratch.copy(&package.loc, published, |_| {})?;
        let limits = PackageReadLimits::default();
        let unreadable = |_| unfit("its manifest cannot be read");
        let mut package = Package::open_in(copy, limits, scratch.folder()).map_err(unreadable)?;
        let mut recorded = Vec::new();
        while let Some(entry) = package.next_entry().map_err(unreadable)? {
            if entry.metadata.as_ref().and_then(|metadata| metadata.datetime) == moment {
                recorded.push(entry.loc);
            }
        }
        Ok(recorded)
    }
}

settings!(ChangeDumps);
archived!(ChangeDumps);
packing!(ChangeDumps);
going_on!(ChangeDumps, ChangeDump);

/// The changes of one run.
struct Run<'a> {
    dumps: &'a ChangeDumps,
    /// Where the open package starts.
    from: DateTime,
    last: DateTime,
    /// The last change that was packed.
    packed: DateTime,
    /// The packages, one entry each.
    entries: Vec<Entry>,
    /// The resources of which the bytes are gone, until another change of theirs comes.
    awaited: HashMap<String, Awaited>,
    gone: u64,
}

/// The first change of a resource that was left out.
#[derive(Clone, Copy)]
struct Awaited {
    change: Change,
    moment: DateTime,
    /// The change before it, whatever it was of: a package up to then lacks nothing.
    before: DateTime,
}

impl<'a> Run<'a> {
    fn new(dumps: &'a ChangeDumps, start: DateTime) -> Self {
        let (entries, awaited) = (Vec::new(), HashMap::new());
        Self { dumps, from: start, last: start, packed: start, entries, awaited, gone: 0 }
    }

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
                    let awaited = Awaited { change: event.change, moment, before };
                    self.awaited.entry(event.item.loc).or_insert(awaited);
                    return Ok(());
                };
                Some(content)
            }
        };
        let Event { change, item, .. } = event;
        let change = self.sum(change, &item);
        let mut entry = if content.is_some() {
            let path = packages.next_path("changes", &item.loc);
            packed(change, moment, item, &path)
        } else {
            let deleted = PackedChange::deleted(item.loc).datetime(moment);
            Entry { links: item.links, ..deleted.into() }
        };
        let patches = self.patches(&mut entry, versions, packages)?;
        if !packages.takes(&entry)? {
            match self.complete(before) {
                Some(until) => self.end_package(packages, sink, until)?,
                None if packages.has_room(&entry)? => {}
                None => self.check_complete()?,
            }
        }
        // What this change makes up for is lacking until now, when it is packed.
        self.awaited.remove(&entry.loc);
        self.packed = moment;
        let packer = packages.packer(|| self.manifest(None))?;
        for (path, patch) in patches {
            packer.pack_beside(&entry, &path, patch)?;
        }
        match content {
            Some(content) => packer.pack(entry, content),
            None => packer.list(&entry),
        }
    }

    /// The patches of a change, with the places that they get (RS-146). There is none against a version that was left out.
    fn patches<V: Versions, S: Sink>(
        &self,
        entry: &mut Entry,
        versions: &mut V,
        packages: &mut Packages<'_, S>,
    ) -> Result<Vec<(String, V::Content)>, BuildError> {
        let follows = entry.change() == Some(Change::Updated) && !self.awaited.contains_key(&entry.loc);
        let mut patches = Vec::new();
        for mut link in std::mem::take(&mut entry.links) {
            if link.rel == Relation::Patch {
                let opened = if follows { versions.open_patch(&link) } else { Ok(None) };
                let unreadable = |source| BuildError::Content { loc: link.href.clone(), source };
                let Some(patch) = opened.map_err(unreadable)? else { continue };
                let path = packages.next_path("patches", &link.href);
                patches.push((path.clone(), patch));
                link.path = Some(path);
            }
            entry.links.push(link);
        }
        Ok(patches)
    }

    /// Up to when the open package lacks nothing, if it holds nothing later (RS-143); `last` is the last change there was.
    fn complete(&self, last: DateTime) -> Option<DateTime> {
        let first = self.awaited.values().map(|awaited| awaited.before).min();
        first.map_or(Some(last), |before| (self.packed <= before).then_some(before))
    }

    /// What a change amounts to together with those of the same resource that were left out before it.
    fn sum(&self, change: Change, item: &Item) -> Change {
        match (self.awaited.get(&item.loc), change) {
            (Some(Awaited { change: Change::Created, .. }), Change::Updated) => Change::Created,
            _ => change,
        }
    }

    fn check_complete(&self) -> Result<(), BuildError> {
        let first = self.awaited.iter().min_by_key(|(loc, awaited)| (awaited.moment, *loc));
        first.map_or(Ok(()), |(loc, awaited)| {
            Err(BuildError::BytesGone { loc: loc.clone(), moment: awaited.moment })
        })
    }

    fn end_package<S: Sink>(
        &mut self,
        packages: &mut Packages<'_, S>,
        sink: &mut S,
        until: DateTime,
    ) -> Result<(), BuildError> {
        let Some(done) = packages.end(sink, &self.manifest(Some(until)))? else { return Ok(()) };
        let package = ChangePackage::zip(done.url, done.length).interval(self.from, until);
        self.entries.push(package.hashes(done.hashes).contents(done.contents).into());
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
