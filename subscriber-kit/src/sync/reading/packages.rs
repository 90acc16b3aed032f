//! The packages of dumps: their manifests, and their bitstreams. A package is fetched when it is first needed.

use std::fs::File;
use std::io::{self, BufReader, Write};

use resync_core::digest::{Algorithm, Hasher};
use resync_core::document::{Capability, Entry, Link, Metadata};
use resync_core::package::{Package, PackageError, PackageReadLimits};
use resync_core::rules::Violations;
use resync_core::xml::Reader;
use serde::{Deserialize, Serialize};
use tempfile::{NamedTempFile, TempPath};
use url::Url;

use super::document::{ListedPackage, unreadable};
use super::lists::Lists;
use crate::blocking::blocking;
use crate::sync::files::content::{Content, Space};
use crate::sync::files::download::Received;
use crate::sync::files::folder::{CopyFolder, Staging};
use crate::sync::files::local::Facts;
use crate::sync::{ResourceError, SyncError};

/// An open package.
pub(crate) type OpenPackage = Package<BufReader<File>>;

/// Where a bitstream is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BitstreamPath {
    /// The number of the package in this run.
    pub(crate) package: u32,
    pub(crate) path: String,
}

/// The packages of one run, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    slots: Vec<Slot>,
    /// How many are no longer needed.
    passed: usize,
    /// The last open one, with its number.
    opened: Option<(u32, Box<OpenPackage>)>,
}

#[derive(Debug)]
struct Slot {
    url: Url,
    facts: Facts,
    /// Closed, since there may be more packages than a process can have open.
    file: Option<TempPath>,
    is_unusable: bool,
    is_kept: bool,
}

impl Packages {
    /// Adds a package, with its file if it was fetched; returns its number.
    pub(crate) fn add(&mut self, listed: &ListedPackage, file: Option<TempPath>) -> u32 {
        let (url, facts) = (listed.url.clone(), listed.facts.clone());
        let is_unusable = listed.other_format.is_some();
        self.slots.push(Slot { url, facts, file, is_unusable, is_kept: false });
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    /// It has patches or versions, which are needed after the bitstreams of the copy.
    pub(crate) fn keep(&mut self, number: u32) {
        if let Some(slot) = self.slot(number) {
            slot.is_kept = true;
        }
    }

    /// Removes the packages before this one, except those that are kept: their bitstreams are no longer needed.
    pub(crate) fn pass_to(&mut self, number: u32) {
        let number = usize::try_from(number).unwrap_or(usize::MAX).min(self.slots.len());
        for slot in self.slots.iter_mut().take(number).skip(self.passed).filter(|slot| !slot.is_kept) {
            slot.file = None;
        }
        self.passed = number.max(self.passed);
        let opened = self.opened.take();
        self.opened = opened.filter(|(open, _)| self.slot(*open).is_some_and(|slot| slot.file.is_some()));
    }

    fn slot(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(number).ok()?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Reads from a package, and fetches and opens it first if necessary. `None` if it is unusable, which is reported once.
    pub(crate) async fn read<T: Send + 'static>(
        &mut self,
        number: u32,
        lists: &Lists<'_>,
        take: impl FnOnce(&mut OpenPackage) -> Result<T, PackageError> + Send + 'static,
    ) -> Option<T> {
        let opened = self.opened.take().filter(|(open, _)| *open == number);
        let mut package = match opened {
            Some((_, package)) => package,
            None => Box::new(Box::pin(self.open(number, lists)).await?),
        };
        let (package, taken) = blocking(move || {
            let taken = take(&mut package);
            (package, taken)
        })
        .await;
        match taken {
            Ok(taken) => {
                self.opened = Some((number, package));
                Some(taken)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot use the rest of a package");
                self.invalidate(number);
                None
            }
        }
    }

    /// Opens a package, and fetches it first if necessary. `None` if it is unusable, which is reported once.
    pub(crate) async fn open(&mut self, number: u32, lists: &Lists<'_>) -> Option<OpenPackage> {
        let slot = self.slot(number).filter(|slot| !slot.is_unusable)?;
        let opened = async {
            let file = match slot.file.take() {
                Some(file) => file,
                None => lists.package(&slot.url, &slot.facts).await?.into_temp_path(),
            };
            let open = File::open(&file)?;
            slot.file = Some(file);
            open_package(open, &slot.url, &lists.staging).await
        };
        match opened.await {
            Ok(opened) => Some(opened),
            Err(error) => {
                tracing::warn!(%error, "cannot use a package; fetching its resources one by one");
                self.invalidate(number);
                None
            }
        }
    }

    /// Marks a package as unusable.
    pub(crate) fn invalidate(&mut self, number: u32) {
        if let Some(slot) = self.slot(number) {
            slot.is_unusable = true;
            slot.file = None;
        }
    }
}

/// The manifest of a package: the one in it, or the copy beside it.
pub(crate) enum Manifest {
    Inside(Url, Box<OpenPackage>),
    Beside(Url, Box<Reader<BufReader<File>>>),
}

impl Manifest {
    pub(crate) fn url(&self) -> &Url {
        match self {
            Self::Inside(url, _) | Self::Beside(url, _) => url,
        }
    }

    /// The metadata of the manifest itself.
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
            Self::Beside(url, reader) => reader.next().transpose().map_err(|error| unreadable(url, error)),
        }
    }

    /// How many entries could not be read, and which rules were broken.
    pub(crate) fn end(self) -> (usize, Violations) {
        match self {
            Self::Inside(_, package) => (package.refused(), package.violations().clone()),
            Self::Beside(_, mut reader) => (reader.refused(), reader.take_violations()),
        }
    }
}

impl Lists<'_> {
    /// The manifest of a package: the copy beside it if that can be read, or else the one in it, with the fetched package.
    pub(crate) async fn manifest(
        &self,
        listed: &ListedPackage,
    ) -> Result<(Manifest, Option<TempPath>), SyncError> {
        if let Some(contents) = &listed.contents {
            match self.beside(contents).await {
                Ok(manifest) => return Ok((manifest, None)),
                Err(error @ SyncError::ListsTooLarge { .. }) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "cannot use the manifest beside a package; fetching the package");
                }
            }
        }
        if let Some(media_type) = listed.other_format.clone() {
            return Err(SyncError::PackageFormat { url: listed.url.clone(), media_type });
        }
        let file = self.package(&listed.url, &listed.facts).await?;
        let package = open_package(file.reopen()?, &listed.url, &self.staging).await?;
        let file = file.into_temp_path();
        Ok((Manifest::Inside(listed.url.clone(), Box::new(package)), Some(file)))
    }

    async fn beside(&self, contents: &Url) -> Result<Manifest, SyncError> {
        self.check_origin(contents)?;
        let fetched = self.fetch_anew(contents).await?;
        let url = fetched.url.clone();
        self.check_origin(&url)?;
        let read = blocking(move || Reader::new(BufReader::new(fetched.file))).await;
        let reader = read.map_err(|error| unreadable(&url, error))?;
        let capability = reader.header().capability();
        if !matches!(capability, Some(Capability::ResourceDumpManifest | Capability::ChangeDumpManifest)) {
            return Err(package_error(&url, PackageError::NotAManifest));
        }
        Ok(Manifest::Beside(url, Box::new(reader)))
    }

    async fn package(&self, url: &Url, facts: &Facts) -> Result<NamedTempFile, SyncError> {
        self.check_origin(url)?;
        let failed = |source| SyncError::PackageFetch { url: url.clone(), source: Box::new(source) };
        let received = self.transfer(url, facts).run().await.map_err(failed)?;
        let staging = self.staging.clone();
        blocking(move || received.content.into_file(&mut Space::of(&staging))).await.map_err(failed)
    }
}

fn package_error(url: &Url, source: PackageError) -> SyncError {
    SyncError::Package { url: url.clone(), source: Box::new(source) }
}

async fn open_package(file: File, url: &Url, staging: &Staging) -> Result<OpenPackage, SyncError> {
    let folder = staging.folder();
    let open = move || Package::open_in(BufReader::new(file), PackageReadLimits::default(), folder);
    blocking(open).await.map_err(|source| package_error(url, source))
}

/// The result of reading one bitstream.
pub(crate) enum Bitstream {
    /// Complete and as listed.
    Received(Received),
    /// Only this one is unusable; it may be fetched from its URI.
    Unusable,
    /// It cannot be written here, from whatever source.
    Refused(ResourceError),
}

/// Reads one bitstream of at most `max` bytes.
pub(crate) fn bitstream(
    package: &mut OpenPackage,
    entry: &Entry,
    folder: &CopyFolder,
    max: u64,
) -> Result<Bitstream, PackageError> {
    let listed = entry.metadata.as_ref().and_then(|metadata| metadata.length);
    let announced = listed.or_else(|| package.length(entry));
    let file = match file_for(announced, folder, max) {
        Ok(file) => file,
        Err(error) => return Ok(Bitstream::Refused(error)),
    };
    let mut out = Limited::new(Hashing { file, hasher: Hasher::new([Algorithm::Sha256]) }, max);
    match package.copy(entry, &mut out) {
        Ok(length) => {
            let hashes = out.out.hasher.finish();
            let content = Content::File(out.out.file);
            Ok(Bitstream::Received(Received { content, length, hashes, modified: None, sent: None }))
        }
        Err(PackageError::Output(_)) if out.is_full => {
            Ok(Bitstream::Refused(ResourceError::TooLarge { max }))
        }
        Err(PackageError::Output(error)) => Ok(Bitstream::Refused(error.into())),
        Err(error) if error.is_about_one_entry() => {
            tracing::debug!(loc = entry.loc, %error, "cannot use a bitstream");
            Ok(Bitstream::Unusable)
        }
        Err(error) => Err(error),
    }
}

fn file_for(announced: Option<u64>, folder: &CopyFolder, max: u64) -> Result<NamedTempFile, ResourceError> {
    if announced.is_some_and(|length| length > max) {
        return Err(ResourceError::TooLarge { max });
    }
    // If the free space is unknown, writing may fail.
    if let (Some(needed), Ok(free)) = (announced, folder.free_space())
        && needed > free
    {
        return Err(ResourceError::NoSpace { needed, free });
    }
    Ok(folder.unfinished()?)
}

/// Reads the target of a link in the package; `None` if only that is unusable.
pub(crate) fn linked(
    package: &mut OpenPackage,
    link: &Link,
    max: u64,
) -> Result<Option<Vec<u8>>, PackageError> {
    let mut out = Limited::new(Vec::new(), max);
    match package.copy_linked(link, &mut out) {
        Ok(_) => Ok(Some(out.out)),
        Err(error) if error.is_about_one_entry() || matches!(error, PackageError::Output(_)) => {
            tracing::debug!(href = link.href, %error, "cannot use a linked file of a package");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Writes into a file and hashes.
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

/// Writes up to a limit.
struct Limited<W> {
    out: W,
    remaining: u64,
    is_full: bool,
}

impl<W: Write> Limited<W> {
    fn new(out: W, max: u64) -> Self {
        Self { out, remaining: max, is_full: false }
    }
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.remaining {
            self.is_full = true;
            return Err(io::Error::other("it is larger than allowed"));
        }
        let written = self.out.write(bytes)?;
        self.remaining -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> ListedPackage {
        let url = Url::parse("http://a.example/1.zip").unwrap();
        ListedPackage {
            url,
            facts: Facts::default(),
            at: None,
            until: None,
            contents: None,
            other_format: None,
        }
    }

    #[test]
    fn a_package_goes_when_its_bitstreams_were_asked_for_unless_more_is_needed_of_it() {
        let files: Vec<TempPath> = (0..4).map(|_| NamedTempFile::new().unwrap().into_temp_path()).collect();
        let paths: Vec<_> = files.iter().map(|file| file.to_path_buf()).collect();
        let mut packages = Packages::default();
        for file in files {
            packages.add(&listed(), Some(file));
        }
        let there = || paths.iter().map(|path| path.exists()).collect::<Vec<_>>();
        packages.keep(1);
        packages.pass_to(0);
        assert_eq!(there(), [true; 4]);
        packages.pass_to(3);
        assert_eq!(there(), [false, true, false, true]);
        packages.pass_to(u32::MAX);
        assert_eq!(there(), [false, true, false, false]);
        drop(packages);
        assert_eq!(there(), [false; 4]);
    }
}
