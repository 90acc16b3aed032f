//! Filling a copy that has no files yet from a Resource Dump: many resources in one download (RS-100…RS-111).
//!
//! Where there is a Resource List too, it has the last word: what lies in the packages is put where a listed resource has
//! no file yet, checked against the manifest, and then the list decides as it always does. So a package that is old,
//! incomplete or a lie costs downloads and nothing else.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use resync_core::document::Entry;
use resync_core::package::PackageError;
use url::Url;

use super::batch::{self, Ready, Written, put_all};
use super::document::{Document, Expected};
use super::download::blocking;
use super::lists::Lists;
use super::local::Facts;
use super::memory::KnownFile;
use super::packages::{Bitstream, Listed, Opened, Packages, bitstream};
use super::path::relative_path;
use super::put::Placing;
use super::{Baseline, ResourceError, SyncError};
use crate::fetch::Fetched;
use crate::state_folder::STATE_FOLDER;

/// What one request costs, in bytes that could have come instead.
const REQUEST: u64 = 4096;

/// A dump that is cheaper than fetching every resource by itself.
pub(crate) struct Dump(Vec<Listed>);

/// How a dump is looked at.
pub(crate) struct Dumps<'s> {
    pub(crate) lists: &'s Lists<'s>,
    pub(crate) root: &'s Url,
}

impl Dumps<'_> {
    /// The dump, if that is what is asked for or it is cheaper than `resources` requests for `bytes` bytes. What
    /// cannot be found out is dear.
    pub(crate) async fn cheaper_than(&self, resources: u64, bytes: u64) -> Option<Dump> {
        if self.lists.options.baseline == Baseline::List {
            return None;
        }
        let packages = match self.packages().await {
            Ok(packages) => packages,
            Err(error) => {
                tracing::warn!(%error, "cannot use the Resource Dump");
                return None;
            }
        };
        if self.lists.options.baseline == Baseline::Dump {
            return Some(Dump(packages));
        }
        let lengths: Option<u64> = packages.iter().map(|package| package.facts.length).sum();
        let cost = lengths?.saturating_add(REQUEST.saturating_mul(packages.len() as u64));
        let other = bytes.saturating_add(REQUEST.saturating_mul(resources));
        (cost < other).then_some(Dump(packages))
    }

    async fn packages(&self) -> Result<Vec<Listed>, SyncError> {
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

/// What was put in place, and what is known of it.
pub(crate) type Filled = HashMap<PathBuf, Option<KnownFile>>;

/// Puts what lies in the packages where a file is missing. Whatever goes wrong is left to the list.
pub(crate) async fn fill(dump: Dump, lists: &Lists<'_>, placing: &Arc<Placing>) -> Filled {
    let mut filled = Filled::new();
    for listed in dump.0 {
        // One at a time, so that the disk need not hold all of them.
        let mut packages = Packages::default();
        let number = packages.add(&listed, None);
        let Some(mut package) = packages.open(number, lists).await else { continue };
        let (placing, base, max) =
            (Arc::clone(placing), lists.base.clone(), lists.options.max_resource_bytes);
        let (more, result) = blocking(move || {
            let mut more = Filled::new();
            let result = unpack_into(&mut more, &mut package, &placing, &base, max);
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
    package: &mut Opened,
    placing: &Placing,
    base: &Url,
    max: u64,
) -> Result<(), PackageError> {
    let mut batch = Vec::new();
    let ended = loop {
        let entry = match package.next_entry() {
            Ok(Some(entry)) => entry,
            ended => break ended.map(drop),
        };
        let Some(relative) = missing(&entry, placing, base) else { continue };
        match bitstream(package, &entry, &placing.folder, max) {
            Ok(Bitstream::Received(came)) => batch.push(Ready::new(came, &Facts::of(&entry), &relative)),
            Ok(Bitstream::Useless | Bitstream::Refused(ResourceError::TooLarge { .. })) => {}
            Ok(Bitstream::Refused(error)) => {
                tracing::warn!(loc = entry.loc, %error, "skipping the rest of a package, since the disk has no space for it");
                break Ok(());
            }
            Err(error) => break Err(error),
        }
        if batch.len() >= batch::MOST {
            put_into(filled, placing, std::mem::take(&mut batch));
        }
    };
    put_into(filled, placing, batch);
    ended
}

fn put_into(filled: &mut Filled, placing: &Placing, batch: Vec<Ready>) {
    let paths: Vec<PathBuf> = batch.iter().map(|ready| ready.relative.clone()).collect();
    for (relative, put) in paths.into_iter().zip(put_all(placing, batch)) {
        match put {
            Ok(Written::Replaced(known)) => drop(filled.insert(relative, known)),
            // It was not there when it was unpacked.
            Ok(Written::Identical(_)) => drop(filled.insert(relative, None)),
            Err(error) => {
                tracing::debug!(path = %relative.display(), %error, "cannot move a bitstream into place");
            }
        }
    }
}

/// Where a bitstream belongs, if a listed resource has no file there.
fn missing(entry: &Entry, placing: &Placing, base: &Url) -> Option<PathBuf> {
    let url = base.join(entry.loc.trim()).ok()?;
    let relative = relative_path(&entry.loc, &url, base).ok()?;
    let is_wanted = placing.file_map.wants(&relative) && placing.can_be_reached(&relative).unwrap_or(false);
    let is_there = placing.directory.join(&relative).symlink_metadata().is_ok();
    (is_wanted && !is_there).then_some(relative)
}
