//! Fills an empty copy from a Resource Dump: many resources in one download (RS-100…RS-111).
//!
//! If there is a Resource List too, it decides: files from packages, checked against the manifest, are put where listed resources
//! have no file yet, and then each is compared with the list as usual. So an old, incomplete or wrong package only costs
//! downloads.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use resync_core::document::Entry;
use resync_core::package::PackageError;
use url::Url;

use super::batch::{self, FinishedFile, Written, place_all};
use super::local::Facts;
use super::place::Placer;
use crate::blocking::blocking;
use crate::fetch::Fetched;
use crate::state_folder::STATE_FOLDER;
use crate::sync::reading::document::{Document, Expected, ListedPackage};
use crate::sync::reading::lists::Lists;
use crate::sync::reading::packages::{Bitstream, OpenPackage, Packages, bitstream};
use crate::sync::reading::path::relative_path;
use crate::sync::saved::cache::CachedFile;
use crate::sync::{BaselineFrom, ResourceError, SyncError};

/// The cost of one request, in bytes of transfer.
const REQUEST: u64 = 4096;

/// The packages of a dump that is cheaper than single requests.
pub(crate) struct Dump(Vec<ListedPackage>);

/// A Resource Dump.
pub(crate) struct Dumps<'s> {
    pub(crate) lists: &'s Lists<'s>,
    pub(crate) root: &'s Url,
}

impl Dumps<'_> {
    /// The dump, if it is requested, or cheaper than `resources` requests for `bytes` bytes. An unknown cost counts as too high.
    pub(crate) async fn cheaper_than(&self, resources: u64, bytes: u64) -> Option<Dump> {
        if self.lists.options.baseline == BaselineFrom::List {
            return None;
        }
        let packages = match self.packages().await {
            Ok(packages) => packages,
            Err(error) => {
                tracing::warn!(%error, "cannot use the Resource Dump");
                return None;
            }
        };
        if self.lists.options.baseline == BaselineFrom::Dump {
            return Some(Dump(packages));
        }
        let lengths: Option<u64> = packages.iter().map(|package| package.facts.length).sum();
        let cost = lengths?.saturating_add(REQUEST.saturating_mul(packages.len() as u64));
        let other = bytes.saturating_add(REQUEST.saturating_mul(resources));
        (cost < other).then_some(Dump(packages))
    }

    async fn packages(&self) -> Result<Vec<ListedPackage>, SyncError> {
        let root = self.read(self.root).await?;
        let mut packages = root.packages;
        for part in root.parts {
            let dump = self.read(&part.url).await?;
            if dump.is_index {
                return Err(SyncError::NestedIndex { url: part.url });
            }
            packages.extend(dump.packages);
        }
        packages.retain(|listed| listed.other_format.is_none());
        Ok(packages)
    }

    async fn read(&self, url: &Url) -> Result<Document, SyncError> {
        let Fetched { url, file, .. } = self.lists.fetch_anew(url).await?;
        self.lists.check_origin(&url)?;
        let dump = blocking(move || {
            Document::read(&url, &file, Expected::ResourceDump).map(|(document, _)| document)
        });
        let dump = dump.await?;
        self.lists.count_parts(dump.urls())?;
        let packages = dump.packages.iter().map(|package| &package.url);
        for url in packages.chain(dump.parts.iter().map(|part| &part.url)) {
            self.lists.check_origin(url)?;
        }
        Ok(dump)
    }
}

/// Whether a copy has no files yet.
pub(crate) fn is_empty(directory: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        if entry?.file_name() != STATE_FOLDER {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The files that were put in place, and what is known about them.
pub(crate) type Filled = HashMap<PathBuf, Option<CachedFile>>;

/// Puts files from the packages where they are missing. All failures are left to the list.
pub(crate) async fn fill(dump: Dump, lists: &Lists<'_>, placer: &Arc<Placer>) -> Filled {
    let mut filled = Filled::new();
    for listed in dump.0 {
        // One at a time, so that the disk need not hold all of them.
        let mut packages = Packages::default();
        let number = packages.add(&listed, None);
        let Some(mut package) = packages.open(number, lists).await else { continue };
        let (placer, base, max) = (Arc::clone(placer), lists.base.clone(), lists.options.max_resource_bytes);
        let (more, result) = blocking(move || {
            let mut more = Filled::new();
            let result = unpack_into(&mut more, &mut package, &placer, &base, max);
            (more, result)
        })
        .await;
        if let Err(error) = result {
            tracing::warn!(url = %listed.url, %error, "cannot use the rest of a package");
        }
        filled.extend(more);
    }
    filled
}

fn unpack_into(
    filled: &mut Filled,
    package: &mut OpenPackage,
    placer: &Placer,
    base: &Url,
    max: u64,
) -> Result<(), PackageError> {
    let mut batch = Vec::new();
    let ended = loop {
        let entry = match package.next_entry() {
            Ok(Some(entry)) => entry,
            ended => break ended.map(drop),
        };
        let Some(relative) = missing(&entry, placer, base) else { continue };
        match bitstream(package, &entry, &placer.folder, max) {
            Ok(Bitstream::Received(received)) => {
                batch.push(FinishedFile::new(received, &Facts::of(&entry), &relative));
            }
            Ok(Bitstream::Unusable | Bitstream::Refused(ResourceError::TooLarge { .. })) => {}
            Ok(Bitstream::Refused(error)) => {
                tracing::warn!(loc = entry.loc, %error, "skipping the rest of a package, since the disk has no space for it");
                break Ok(());
            }
            Err(error) => break Err(error),
        }
        if batch.len() >= batch::MAX_FILES {
            place_into(filled, placer, std::mem::take(&mut batch));
        }
    };
    place_into(filled, placer, batch);
    ended
}

fn place_into(filled: &mut Filled, placer: &Placer, batch: Vec<FinishedFile>) {
    let paths: Vec<PathBuf> = batch.iter().map(|ready| ready.relative.clone()).collect();
    for (relative, result) in paths.into_iter().zip(place_all(placer, batch)) {
        match result {
            Ok(Written::Replaced(known)) => drop(filled.insert(relative, known)),
            // Another process made it meanwhile.
            Ok(Written::Identical(_)) => drop(filled.insert(relative, None)),
            Err(error) => {
                tracing::debug!(path = %relative.display(), %error, "cannot move a bitstream into place");
            }
        }
    }
}

/// The path of a bitstream, if its resource is wanted and has no file yet.
fn missing(entry: &Entry, placer: &Placer, base: &Url) -> Option<PathBuf> {
    let url = base.join(entry.loc.trim()).ok()?;
    let relative = relative_path(&entry.loc, &url, base).ok()?;
    let is_wanted = placer.file_map.wants(&relative) && placer.can_be_reached(&relative).unwrap_or(false);
    let is_there = placer.directory.join(&relative).symlink_metadata().is_ok();
    (is_wanted && !is_there).then_some(relative)
}
