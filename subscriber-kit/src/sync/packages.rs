//! The packages of dumps: what their manifests tell, and their bitstreams, fetched once one of them is needed.

use std::fs::File;
use std::io::{self, BufReader, Write};

use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Hasher};
use resync_core::document::{Capability, Entry, Link, Metadata, Relation};
use resync_core::package::{Package, PackageError};
use resync_core::rules::Violations;
use resync_core::xml::Reader;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use url::Url;

use super::SyncError;
use super::download::{Came, Transfer, blocking};
use super::lists::Lists;
use super::local::Facts;

/// A package that was opened.
pub(crate) type Opened = Package<BufReader<File>>;

/// A package as a dump lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) url: Url,
    pub(crate) facts: Facts,
    pub(crate) at: Option<DateTime>,
    pub(crate) until: Option<DateTime>,
    /// Where its manifest is too (RS-103).
    contents: Option<Url>,
}

impl Listed {
    /// `None` for other formats than ZIP, which are a matter of communities (RS-101).
    pub(crate) fn of(entry: &Entry, dump: &Url) -> Result<Option<Self>, SyncError> {
        let nameless = || SyncError::Component { index: dump.clone(), loc: entry.loc.clone() };
        let metadata = entry.metadata.clone().unwrap_or_default();
        if metadata.media_type.is_some_and(|one| !one.eq_ignore_ascii_case("application/zip")) {
            return Ok(None);
        }
        let contents = entry.link(&Relation::Contents);
        Ok(Some(Self {
            url: dump.join(entry.loc.trim()).map_err(|_| nameless())?,
            facts: Facts::of(entry),
            at: metadata.at,
            until: metadata.until,
            contents: contents.and_then(|link| dump.join(link.href.trim()).ok()),
        }))
    }
}

/// Where a bitstream lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packed {
    /// The number of the package, of this run.
    pub(crate) package: u32,
    pub(crate) path: String,
}

/// The packages of one run, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Packages(Vec<Slot>);

#[derive(Debug)]
struct Slot {
    url: Url,
    facts: Facts,
    file: Option<NamedTempFile>,
    is_useless: bool,
}

impl Packages {
    /// Gives a package its number; what was fetched of it is kept.
    pub(crate) fn add(&mut self, listed: &Listed, file: Option<NamedTempFile>) -> u32 {
        let slot = Slot { url: listed.url.clone(), facts: listed.facts.clone(), file, is_useless: false };
        self.0.push(slot);
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Opens a package, which is fetched now if it was not before; `None` if it is of no use, which is told once.
    pub(crate) async fn open(&mut self, number: u32, lists: &Lists<'_>) -> Option<Opened> {
        let slot = self.0.get_mut(usize::try_from(number).ok()?).filter(|slot| !slot.is_useless)?;
        let opened = async {
            let file = match slot.file.take() {
                Some(file) => file,
                None => lists.package(&slot.url, &slot.facts).await?.file,
            };
            let open = file.reopen()?;
            slot.file = Some(file);
            let unreadable = |source| package_error(&slot.url, source);
            blocking(move || Package::open(BufReader::new(open))).await.map_err(unreadable)
        };
        match opened.await {
            Ok(opened) => Some(opened),
            Err(error) => {
                tracing::warn!(%error, "a package is of no use: what is in it is fetched one by one");
                self.spoil(number);
                None
            }
        }
    }

    /// A package that turned out to be of no use.
    pub(crate) fn spoil(&mut self, number: u32) {
        if let Some(slot) = usize::try_from(number).ok().and_then(|number| self.0.get_mut(number)) {
            slot.is_useless = true;
            slot.file = None;
        }
    }
}

/// What a package holds, by the manifest in it or by the copy beside it.
pub(crate) enum Manifest {
    Inside(Url, Box<Opened>),
    Beside(Url, Box<Reader<BufReader<File>>>),
}

impl Manifest {
    pub(crate) fn url(&self) -> &Url {
        match self {
            Self::Inside(url, _) | Self::Beside(url, _) => url,
        }
    }

    /// What the manifest says before its first entry.
    pub(crate) fn metadata(&self) -> &Metadata {
        match self {
            Self::Inside(_, package) => &package.header().metadata,
            Self::Beside(_, reader) => &reader.header().metadata,
        }
    }

    pub(crate) fn is_of_changes(&self) -> bool {
        self.metadata().capability == Some(Capability::ChangeDumpManifest)
    }

    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, SyncError> {
        match self {
            Self::Inside(url, package) => package.next_entry().map_err(|source| package_error(url, source)),
            Self::Beside(url, reader) => {
                let unreadable = |source| SyncError::List { url: url.clone(), source: Box::new(source) };
                reader.next().transpose().map_err(unreadable)
            }
        }
    }

    /// How many entries could not be understood, and what was lived with.
    pub(crate) fn end(self) -> (usize, Violations) {
        match self {
            Self::Inside(_, package) => (package.refused(), package.violations().clone()),
            Self::Beside(_, mut reader) => (reader.refused(), reader.take_violations()),
        }
    }
}

impl Lists<'_> {
    /// The manifest of a package: the copy beside it if there is one that can be read, or else the one in it, with
    /// what was fetched for that.
    pub(crate) async fn manifest(
        &self,
        listed: &Listed,
    ) -> Result<(Manifest, Option<NamedTempFile>), SyncError> {
        if let Some(contents) = &listed.contents {
            match self.beside(contents).await {
                Ok(manifest) => return Ok((manifest, None)),
                Err(error) => {
                    tracing::warn!(%error, "the manifest beside a package is of no use: the package is fetched");
                }
            }
        }
        let came = self.package(&listed.url, &listed.facts).await?;
        let open = came.file.reopen()?;
        let package = blocking(move || Package::open(BufReader::new(open))).await;
        let package = package.map_err(|source| package_error(&listed.url, source))?;
        Ok((Manifest::Inside(listed.url.clone(), Box::new(package)), Some(came.file)))
    }

    async fn beside(&self, contents: &Url) -> Result<Manifest, SyncError> {
        self.check_origin(contents)?;
        let fetched = self.fetch_anew(contents).await?;
        let url = fetched.url.clone();
        self.check_origin(&url)?;
        let read = blocking(move || Reader::new(BufReader::new(fetched.file))).await;
        let reader = read.map_err(|source| SyncError::List { url: url.clone(), source: Box::new(source) })?;
        let capability = reader.header().capability();
        if !matches!(capability, Some(Capability::ResourceDumpManifest | Capability::ChangeDumpManifest)) {
            return Err(package_error(&url, PackageError::NotAManifest));
        }
        Ok(Manifest::Beside(url, Box::new(reader)))
    }

    async fn package(&self, url: &Url, facts: &Facts) -> Result<Came, SyncError> {
        self.check_origin(url)?;
        let transfer = Transfer {
            client: self.client,
            options: self.options,
            room: &self.room,
            url,
            mirrors: &[],
            via: None,
            facts,
            bytes: &self.bytes,
        };
        let failed = |source| SyncError::PackageFetch { url: url.clone(), source: Box::new(source) };
        transfer.run().await.map_err(failed)
    }
}

fn package_error(url: &Url, source: PackageError) -> SyncError {
    SyncError::Package { url: url.clone(), source: Box::new(source) }
}

/// One bitstream, complete and as its entry says; `None` where only this one is of no use.
pub(crate) fn bitstream(
    package: &mut Opened,
    entry: &Entry,
    file: NamedTempFile,
) -> Result<Option<Came>, PackageError> {
    let mut out = Hashing { file, hasher: Hasher::new([Algorithm::Sha256]) };
    match package.copy(entry, &mut out) {
        Ok(length) => Ok(Some(Came { file: out.file, length, hashes: out.hasher.finish(), modified: None })),
        Err(error) if error.is_about_one_entry() => {
            tracing::debug!(loc = entry.loc, %error, "a bitstream is of no use");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What a link of an entry leads to within the package; `None` where that is of no use.
pub(crate) fn linked(package: &mut Opened, link: &Link, max: u64) -> Option<Vec<u8>> {
    let mut out = Bounded { bytes: Vec::new(), max };
    match package.copy_linked(link, &mut out) {
        Ok(_) => Some(out.bytes),
        Err(error) => {
            tracing::debug!(href = link.href, %error, "what is linked in a package is of no use");
            None
        }
    }
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

/// Takes no more than is worth it.
struct Bounded {
    bytes: Vec<u8>,
    max: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.max {
            return Err(io::Error::other("it is longer than is taken into memory"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
