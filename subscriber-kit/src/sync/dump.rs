//! Resource Dumps: many resources in one download (RS-100…RS-111).
//!
//! A dump only fills a copy: what lies in its packages is put where a listed resource has no file yet, checked against
//! the manifest. The list decides after that as it always does, so that a package that is old, incomplete or a lie costs
//! downloads and nothing else.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Hasher};
use resync_core::document::{Capability, Entry, Root};
use resync_core::package::{Package, PackageError};
use resync_core::xml::Reader;
use tempfile::NamedTempFile;
use url::Url;

use super::download::{Came, Transfer, blocking, put};
use super::lists::Lists;
use super::local::Facts;
use super::memory::Known;
use super::path::relative_path;
use super::put::Placing;
use super::{Baseline, SyncError};
use crate::fetch::{FetchError, Fetched};
use crate::state::STATE_FOLDER;

/// What one request costs, in bytes that could have come instead.
const REQUEST: u64 = 4096;

/// A package that a dump lists.
struct Listed {
    url: Url,
    facts: Facts,
}

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
                tracing::warn!(%error, "the Resource Dump is of no use");
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
        let (mut packages, dumps) = self.read(self.root).await?;
        for dump in dumps {
            let (more, nested) = self.read(&dump).await?;
            if !nested.is_empty() {
                return Err(SyncError::NestedIndex { url: dump });
            }
            packages.extend(more);
        }
        Ok(packages)
    }

    /// The packages of a dump, or the dumps of an index.
    async fn read(&self, url: &Url) -> Result<(Vec<Listed>, Vec<Url>), SyncError> {
        let fetched = self.lists.fetch(url, None).await?;
        let fetched = fetched.ok_or_else(|| FetchError::Status { url: url.clone(), status: 304 })?;
        let home = self.lists.list.origin();
        let authority = self.lists.options.authority;
        let (packages, dumps) = blocking(move || read(fetched)).await?;
        let may_be_asked = |url: &Url| authority.allows(url, &home);
        let all = packages.iter().map(|package| &package.url).chain(&dumps);
        match all.clone().find(|url| !may_be_asked(url)) {
            Some(foreign) => Err(SyncError::ForeignComponent { url: foreign.clone() }),
            None => Ok((packages, dumps)),
        }
    }
}

fn read(fetched: Fetched) -> Result<(Vec<Listed>, Vec<Url>), SyncError> {
    let Fetched { url, file, .. } = fetched;
    let unreadable = |source| SyncError::List { url: url.clone(), source: Box::new(source) };
    let mut reader = Reader::new(BufReader::new(file)).map_err(unreadable)?;
    if reader.header().capability() != Some(&Capability::ResourceDump) {
        let found = reader.header().capability().map_or_else(|| "sitemap".to_owned(), ToString::to_string);
        return Err(SyncError::NotAResourceDump { url, found });
    }
    let is_index = reader.header().root == Root::SitemapIndex;
    let (mut packages, mut dumps) = (Vec::new(), Vec::new());
    for entry in reader.by_ref() {
        let entry = entry.map_err(unreadable)?;
        let place = url.join(entry.loc.trim());
        let place = place.map_err(|_| SyncError::Component { index: url.clone(), loc: entry.loc.clone() })?;
        if is_index {
            dumps.push(place);
        } else if is_zip(&entry) {
            packages.push(Listed { url: place, facts: Facts::of(&entry) });
        }
    }
    Ok((packages, dumps))
}

/// RS-101: other formats are a matter of communities.
fn is_zip(entry: &Entry) -> bool {
    let media_type = entry.metadata.as_ref().and_then(|metadata| metadata.media_type.as_deref());
    media_type.is_none_or(|one| one.eq_ignore_ascii_case("application/zip"))
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
pub(crate) type Filled = HashMap<PathBuf, Option<Known>>;

/// Puts what lies in the packages where a file is missing. Whatever goes wrong is left to the list.
pub(crate) async fn fill(dump: Dump, lists: &Lists<'_>, placing: &Arc<Placing>, bytes: &AtomicU64) -> Filled {
    let mut filled = Filled::new();
    for Listed { url, facts } in dump.0 {
        let transfer = Transfer {
            client: lists.client,
            options: lists.options,
            folder: &placing.folder,
            url: &url,
            mirrors: &[],
            facts: &facts,
            bytes,
        };
        let came = match transfer.run().await {
            Ok(came) => came,
            Err(error) => {
                tracing::warn!(%url, %error, "a package is of no use");
                continue;
            }
        };
        let (placing, base) = (Arc::clone(placing), lists.base.clone());
        let (more, result) = blocking(move || unpack(&came, &placing, &base)).await;
        if let Err(error) = result {
            tracing::warn!(%url, %error, "the rest of a package is of no use");
        }
        filled.extend(more);
    }
    filled
}

fn unpack(came: &Came, placing: &Placing, base: &Url) -> (Filled, Result<(), PackageError>) {
    let mut filled = Filled::new();
    let result = unpack_into(&mut filled, came, placing, base);
    (filled, result)
}

fn unpack_into(filled: &mut Filled, came: &Came, placing: &Placing, base: &Url) -> Result<(), PackageError> {
    let file = came.file.reopen().map_err(PackageError::Io)?;
    let mut package = Package::open(BufReader::new(file))?;
    while let Some(entry) = package.next_entry()? {
        let Some(relative) = missing(&entry, placing, base) else { continue };
        let file = placing.folder.unfinished().map_err(PackageError::Io)?;
        let mut out = Hashing { file, hasher: Hasher::new([Algorithm::Sha256]) };
        match package.copy(&entry, &mut out) {
            Ok(_) => {}
            Err(error) if error.is_about_one_entry() => {
                tracing::debug!(loc = entry.loc, %error, "a bitstream is of no use");
                continue;
            }
            Err(error) => return Err(error),
        }
        let modified = entry.lastmod.map(DateTime::to_system_time);
        match put(placing, out.file, &relative, modified, out.hasher.finish()) {
            Ok(known) => drop(filled.insert(relative, known)),
            Err(error) => tracing::debug!(loc = entry.loc, %error, "a bitstream cannot be put in place"),
        }
    }
    Ok(())
}

/// Where a bitstream belongs, if a listed resource has no file there.
fn missing(entry: &Entry, placing: &Placing, base: &Url) -> Option<PathBuf> {
    let url = base.join(entry.loc.trim()).ok()?;
    let relative = relative_path(&entry.loc, &url, base).ok()?;
    let is_wanted = placing.places.wants(&relative) && placing.can_be_reached(&relative).unwrap_or(false);
    let is_there = placing.directory.join(&relative).symlink_metadata().is_ok();
    (is_wanted && !is_there).then_some(relative)
}

/// Writes and hashes at once.
struct Hashing {
    file: NamedTempFile,
    hasher: Hasher,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
