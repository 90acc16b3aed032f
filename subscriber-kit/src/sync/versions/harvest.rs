//! What a run does about the versions that its changes tell of: it keeps those whose bytes are here, and lets the others wait.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;

use resync_core::document::{Entry, Metadata};
use tokio::sync::Mutex;

use super::batches::Batches;
use super::local::{Local, LocalVersions};
use super::queue::Queue;
use super::store::VersionStore;
use crate::blocking::blocking;
use crate::memento::MementoError;
use crate::sync::failure::Failure;
use crate::sync::reading::change_reader::{Point, Reached};
use crate::sync::reading::changes::Changes;
use crate::sync::reading::collector::Collector;
use crate::sync::reading::gaps::GapPolicy;
use crate::sync::reading::packages::{Bitstream, BitstreamPath, OpenPackage, Packages, bitstream};
use crate::sync::reading::told::{AllTold, Told, ToldVersion, VersionLines};
use crate::sync::report::VersionsReport;
use crate::sync::run::Run;
use crate::sync::{ResourceError, SyncError};

/// Why versions are lost that are only counted.
const LEFT_OUT: &str =
    "some changes tell no time, or of more versions than --max-list-size allows; their versions are not kept";

/// The versions that changes tell of, and the packages that have some of them.
pub(crate) struct Telling {
    told: Arc<Told>,
    packages: Packages,
    /// Why more may be missing.
    unproven: Option<String>,
}

impl Run<'_> {
    /// What takes the versions that changes tell of; `None` if they are not wanted.
    pub(in crate::sync) fn telling(&self) -> Result<Option<Arc<Told>>, SyncError> {
        if self.options.versions.is_none() || self.options.dry_run {
            return Ok(None);
        }
        let scratch = self.lists.staging.scratch()?;
        Ok(Some(Arc::new(Told::new(scratch, self.options.max_list_bytes))))
    }

    /// Reads the changes since this point for their versions alone: a baseline reads only those since the Resource List.
    pub(in crate::sync) async fn tell_since(&self, point: &Point) -> Result<Option<Telling>, SyncError> {
        let (Some(told), Some(root)) = (self.telling()?, self.lists.changes) else { return Ok(None) };
        let scratch = self.lists.staging.scratch()?;
        // Those of the copy itself were read before.
        self.lists.counted.reset();
        let collector = Collector::new(&self.lists, scratch).telling(Some(Arc::clone(&told)));
        let changes = Changes { lists: &self.lists, root, policy: GapPolicy::Tolerated };
        let (packages, unproven) = match Box::pin(changes.since(collector, point)).await {
            Ok(Reached { collector, continuity, .. }) => (collector.packages, continuity.unproven),
            // The copy does not wait for versions.
            Err(error) => {
                tracing::warn!(%error, "cannot read which versions there were since the last run");
                let unproven = format!("the changes since the last run are unknown: {error}");
                (Packages::default(), Some(unproven))
            }
        };
        Ok(Some(Telling { told, packages, unproven }))
    }

    /// Keeps the versions of a baseline.
    pub(in crate::sync) async fn harvest_all(&self, telling: Telling) -> Box<VersionsReport> {
        let Telling { told, packages, unproven } = telling;
        let mut report = self.harvest(&told, &Mutex::new(packages)).await;
        report.unproven = unproven.or(report.unproven);
        report
    }

    /// Keeps the versions whose bytes are here, and durably lets the others wait. Comes before the run saves how far it came, so that none
    /// is forgotten (MEM-071): if that cannot be done, the run must not save it.
    pub(in crate::sync) async fn harvest(
        &self,
        told: &Told,
        packages: &Mutex<Packages>,
    ) -> Box<VersionsReport> {
        let mut report = VersionsReport::default();
        if let Err(error) = self.harvest_into(&mut report, told, packages).await {
            tracing::error!(%error, "cannot keep the versions of this run; the next one reads its changes again");
            report.unproven = Some(format!("versions of this run are not kept yet: {error}"));
            report.are_forgotten = true;
        }
        Box::new(report)
    }

    async fn harvest_into(
        &self,
        report: &mut VersionsReport,
        told: &Told,
        packages: &Mutex<Packages>,
    ) -> io::Result<()> {
        let AllTold { lines, left_out } = told.all()?;
        let newest = blocking(move || Newest::of(lines)).await?;
        report.lost = left_out;
        report.unproven = (left_out > 0).then(|| LEFT_OUT.to_owned());
        if newest.last.is_empty() {
            return Ok(());
        }
        let store = self.store().await;
        let local = Arc::new(LocalVersions::new(&self.target.directory, &self.target.base));
        let queue = Queue::of(&self.target.directory);
        let beginning = queue.clone();
        let mut waiting = blocking(move || beginning.begin(&[])).await?;
        let mut versions = Batches::of(told.all()?.lines);
        let mut number = 0;
        while let Some(version) = versions.next().await? {
            let has_place = !version.links.is_empty() || self.options.timegate.is_some();
            let may_be_found = has_place || newest.is_last(&version, number);
            number += 1;
            let kept = match &store {
                Some(store) => self.keep(store, &local, &version, packages).await,
                None => Ok(Local::Elsewhere),
            };
            let is_left = match kept {
                Ok(Local::Kept(is_new)) => {
                    report.kept += u64::from(is_new);
                    false
                }
                Ok(Local::Elsewhere) if may_be_found || store.is_none() => true,
                Ok(Local::Elsewhere) => {
                    report.fail(Failure::of(&version.loc, &MementoError::NoTimeGate.into()), false);
                    false
                }
                Err(error) => {
                    let is_for_later = error.is_for_later() && may_be_found;
                    report.fail(Failure::of(&version.loc, &error), is_for_later);
                    is_for_later
                }
            };
            if is_left && !waiting.push(&ToldVersion { packed: None, ..version })? {
                report.lost += 1;
            }
        }
        report.waiting = waiting.count;
        blocking(move || {
            store.map_or(Ok(()), |store| store.sync())?;
            queue.end(waiting, &[])
        })
        .await
    }

    /// The directory of versions; `None` while it cannot be used, and all of them wait.
    async fn store(&self) -> Option<Arc<VersionStore>> {
        let (directory, base) = (self.options.versions.clone()?, self.target.base.clone());
        let opened = blocking(move || VersionStore::open(&directory, &base)).await;
        opened
            .inspect_err(|error| tracing::warn!(%error, "cannot use the directory of versions"))
            .ok()
            .map(Arc::new)
    }

    async fn keep(
        &self,
        store: &Arc<VersionStore>,
        local: &Arc<LocalVersions>,
        version: &ToldVersion,
        packages: &Mutex<Packages>,
    ) -> Result<Local, ResourceError> {
        let (copy, place, wanted) = (Arc::clone(local), Arc::clone(store), version.clone());
        let kept = blocking(move || copy.keep(&place, &wanted)).await?;
        let (Local::Elsewhere, Some(packed)) = (&kept, &version.packed) else { return Ok(kept) };
        let (entry, folder) = (packed_entry(version, packed), Arc::clone(&self.folder));
        let max = self.options.max_resource_bytes;
        let take = move |open: &mut OpenPackage| bitstream(open, &entry, &folder, max);
        match packages.lock().await.read(packed.package, &self.lists, take).await {
            Some(Bitstream::Received(received)) => {
                let (place, wanted) = (Arc::clone(store), version.clone());
                blocking(move || place.put_received(&wanted, received).map(Local::Kept)).await
            }
            Some(Bitstream::Refused(error)) => Err(error),
            Some(Bitstream::Unusable) | None => Ok(kept),
        }
    }
}

/// The manifest entry of this version.
fn packed_entry(version: &ToldVersion, packed: &BitstreamPath) -> Entry {
    let (length, hash) = (version.facts.length, version.facts.hashes.clone());
    let metadata = Metadata { path: Some(packed.path.clone()), length, hash, ..Metadata::default() };
    Entry::with_metadata(version.loc.clone(), metadata)
}

/// Which version of each resource is the last one that was told. Only hashes are in memory.
struct Newest {
    keys: RandomState,
    last: HashMap<u64, u64>,
}

impl Newest {
    fn of(lines: VersionLines) -> io::Result<Self> {
        let mut newest = Self { keys: RandomState::new(), last: HashMap::new() };
        for (number, version) in (0..).zip(lines) {
            let key = newest.keys.hash_one(version?.url);
            newest.last.insert(key, number);
        }
        Ok(newest)
    }

    fn is_last(&self, version: &ToldVersion, number: u64) -> bool {
        self.last.get(&self.keys.hash_one(&version.url)) == Some(&number)
    }
}
