//! A package of a dump, read with suspicion (RS-110, RS-111).
//!
//! A package may come from anybody. Its manifest decides what is looked at, and nothing in the archive does: members that it does
//! not name are never touched, names in the archive are never used as names of files. What is refused has a cause of its own.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use thiserror::Error;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::digest::{Agreement, Digest, Hasher, Hashes, read_pieces};
use crate::document::{Capability, Entry, Header, Link};
use crate::rules::{PathFlaw, Violations, member_name};
use crate::xml::{FREE_EXPANSION, MAX_BYTES, MAX_EXPANSION, ReadError, Reader};

/// The name of every manifest (RS-104).
pub(crate) const MANIFEST: &str = "manifest.xml";

/// Most bytes of the directory of an archive: room for 50,000 members with long names. In memory it takes several times as much.
const MAX_DIRECTORY: u64 = 16 << 20;

/// How much of a package is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageReadLimits {
    /// Most bytes of all bitstreams that are taken, uncompressed.
    pub bytes: u64,
    /// Most times its compressed length that a bitstream may grow to.
    pub expansion: u64,
    /// Bytes of a bitstream for which `expansion` does not count.
    pub free: u64,
}

impl Default for PackageReadLimits {
    /// 64 GiB, [`MAX_EXPANSION`], [`FREE_EXPANSION`].
    fn default() -> Self {
        Self { bytes: 64 << 30, expansion: MAX_EXPANSION, free: FREE_EXPANSION }
    }
}

/// Why a package, or one bitstream of it, is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The archive cannot be understood.
    #[error("the package is not a readable ZIP archive: {reason}; fetch it again")]
    NotAZip {
        /// In what way.
        reason: String,
    },
    /// Two members of one name: which one is meant is anybody's guess.
    #[error("the package has two members of the same name; fetch the resources one by one")]
    DuplicateMember,
    /// Members that share bytes, as bombs do.
    #[error("members of the package overlap, as in a bomb; fetch the resources one by one")]
    Overlapping,
    /// The directory of the archive is too long to be held in memory.
    #[error("the directory of the package has more than {limit} bytes; fetch the resources one by one")]
    Directory {
        /// How many bytes are read.
        limit: u64,
    },
    /// No `manifest.xml` at the top (RS-104).
    #[error("the package has no manifest.xml at its top; fetch the resources one by one")]
    ManifestMissing,
    /// The manifest cannot be read.
    #[error("the manifest cannot be read: {0}")]
    Manifest(#[source] ReadError),
    /// What is called `manifest.xml` is another document.
    #[error("manifest.xml is not the manifest of a Resource Dump or Change Dump")]
    NotAManifest,
    /// Two entries of the manifest at one path (RS-145).
    #[error("the manifest names the path {path:?} twice")]
    DuplicatePath {
        /// The path.
        path: String,
    },
    /// The entry has no path, and is not a deletion (RS-106, RS-144).
    #[error("the entry of {loc} has no path; fetch it from there")]
    NoPath {
        /// The entry.
        loc: String,
    },
    /// A path that leads somewhere it must not.
    #[error("the path {path:?} {flaw}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        flaw: PathFlaw,
    },
    /// The archive has no such member (RS-111).
    #[error("the package has nothing at {path:?}; fetch the resource from its URI")]
    Missing {
        /// The path.
        path: String,
    },
    /// A symbolic link, which could lead anywhere.
    #[error("{path:?} is a symbolic link")]
    SymbolicLink {
        /// The path.
        path: String,
    },
    /// A folder.
    #[error("{path:?} is not a file")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// An encrypted member, or one in a compression other than deflate.
    #[error("{path:?} is encrypted or in a compression that is not read")]
    Unsupported {
        /// The path.
        path: String,
    },
    /// Manifest, archive and bytes do not have the same length.
    #[error("{path:?} has {found} bytes, but {expected} are announced; fetch the resource from its URI")]
    Length {
        /// The path.
        path: String,
        /// What was announced, by the manifest or else by the archive.
        expected: u64,
        /// What is there, or what the archive announces; a lower bound where reading was cut off.
        found: u64,
    },
    /// The bytes have other digests than the manifest says (RS-035).
    #[error("{path:?} does not have the digest that the manifest says; fetch the resource from its URI")]
    Hash {
        /// The path.
        path: String,
    },
    /// The bitstream grows too much when it is uncompressed.
    #[error("{path:?} grows to more than {limit} times its compressed length, as a bomb does")]
    Expansion {
        /// The path.
        path: String,
        /// How much it may grow.
        limit: u64,
    },
    /// All bitstreams together are too long.
    #[error("the package holds more than {limit} bytes; allow more, or fetch the resources one by one")]
    TooMuch {
        /// How many bytes are taken.
        limit: u64,
    },
    /// The compressed bytes are damaged.
    #[error("{path:?} is damaged: {reason}; fetch the resource from its URI")]
    Damaged {
        /// The path.
        path: String,
        /// In what way.
        reason: String,
    },
    /// The package could not be read, or a temporary file not be written.
    #[error("the package could not be read: {0}")]
    Io(#[source] io::Error),
    /// The bytes could not be handed on.
    #[error("the bitstream could not be written: {0}")]
    Output(#[source] io::Error),
}

impl PackageError {
    /// Whether only this entry is concerned, and others may be taken (RS-111).
    pub fn is_about_one_entry(&self) -> bool {
        matches!(
            self,
            Self::NoPath { .. }
                | Self::Path { .. }
                | Self::Missing { .. }
                | Self::SymbolicLink { .. }
                | Self::NotAFile { .. }
                | Self::Unsupported { .. }
                | Self::Length { .. }
                | Self::Hash { .. }
                | Self::Expansion { .. }
                | Self::Damaged { .. }
        )
    }
}

/// A package whose manifest was read to its end and found in order.
///
/// [`ResourceDumps`](crate::build::ResourceDumps) has an example.
pub struct Package<R: Read + Seek> {
    archive: ZipArchive<R>,
    manifest: Reader<BufReader<File>>,
    refused: usize,
    violations: Violations,
    limits: PackageReadLimits,
    taken: u64,
}

impl<R: Read + Seek> Package<R> {
    /// Opens a package with the [default limits](PackageReadLimits::default).
    pub fn open(package: R) -> Result<Self, PackageError> {
        Self::with_limits(package, PackageReadLimits::default())
    }

    /// Opens a package; its manifest is copied to where the system has temporary files.
    pub fn with_limits(package: R, limits: PackageReadLimits) -> Result<Self, PackageError> {
        Self::open_in(package, limits, std::env::temp_dir())
    }

    /// Opens a package, and copies its manifest to a file without a name in `folder`: up to 50 MB, which not every system has room for
    /// among its own temporary files.
    ///
    /// Memory depends on the directory of the archive, of which 16 MiB are read, and not on how long the members are.
    pub fn open_in(
        package: R,
        limits: PackageReadLimits,
        folder: impl AsRef<Path>,
    ) -> Result<Self, PackageError> {
        let mut archive = open_archive(package)?;
        if archive.has_duplicate_names() {
            return Err(PackageError::DuplicateMember);
        }
        if archive.has_overlapping_entries().map_err(not_a_zip)? {
            return Err(PackageError::Overlapping);
        }
        let mut text = tempfile::tempfile_in(folder).map_err(PackageError::Io)?;
        take_manifest(&mut archive, &mut text)?;
        text.rewind().map_err(PackageError::Io)?;
        let (refused, violations) = check_manifest(&text)?;
        text.rewind().map_err(PackageError::Io)?;
        let manifest = Reader::new(BufReader::new(text)).map_err(PackageError::Manifest)?;
        Ok(Self { archive, manifest, refused, violations, limits, taken: 0 })
    }

    /// How many entries of the manifest cannot be understood, so that [`next_entry`](Self::next_entry) does not give them
    /// ([`Reader::refused`]).
    ///
    /// Nobody knows what they were about: whoever deletes what a manifest does not name must not do so when there are any.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// What is wrong with the manifest, and was lived with.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    /// What stands before the first entry of the manifest.
    pub fn header(&self) -> &Header {
        self.manifest.header()
    }

    /// The bytes of the manifest, as they lie in the package.
    pub fn manifest(&mut self) -> Result<Vec<u8>, PackageError> {
        let mut text = Vec::new();
        take_manifest(&mut self.archive, &mut text)?;
        Ok(text)
    }

    /// How many bytes were uncompressed so far, right or wrong: what [`PackageReadLimits::bytes`] bounds.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The next entry of the manifest; `None` after the last one.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, PackageError> {
        self.manifest.next().transpose().map_err(PackageError::Manifest)
    }

    /// How many bytes the bitstream of an entry has by the archive; `None` if [`copy`](Self::copy) gives none of it.
    pub fn length(&self, entry: &Entry) -> Option<u64> {
        let path = entry.metadata.as_ref()?.path.as_deref()?;
        let place = self.archive.index_for_name(member_name(path).ok()?)?;
        self.announced(place, path, None).ok()
    }

    /// Copies the bitstream of an entry and gives its length; nothing for a deletion.
    ///
    /// Length and digests are known to be right only after the last byte, so copy to a place that nobody looks at yet, and throw it
    /// away when this fails.
    pub fn copy(&mut self, entry: &Entry, out: &mut impl Write) -> Result<u64, PackageError> {
        let metadata = entry.metadata.as_ref();
        match metadata.and_then(|metadata| metadata.path.as_deref()) {
            Some(path) => {
                let listed = metadata.and_then(|metadata| metadata.length);
                let hashes = metadata.map(|metadata| metadata.hash.clone()).unwrap_or_default();
                self.copy_path(path, listed, &hashes, out)
            }
            None if entry.change() == Some(crate::document::Change::Deleted) => Ok(0),
            None => Err(PackageError::NoPath { loc: entry.loc.clone() }),
        }
    }

    /// Copies what a link of an entry points at within the package, such as a patch (RS-146); as [`copy`](Self::copy) does.
    pub fn copy_linked(&mut self, link: &Link, out: &mut impl Write) -> Result<u64, PackageError> {
        match &link.path {
            Some(path) => self.copy_path(path, link.length, &link.hash, out),
            None => Err(PackageError::NoPath { loc: link.href.clone() }),
        }
    }

    fn copy_path(
        &mut self,
        path: &str,
        listed: Option<u64>,
        hashes: &Hashes,
        out: &mut impl Write,
    ) -> Result<u64, PackageError> {
        let name = member_name(path).map_err(|flaw| PackageError::Path { path: path.to_owned(), flaw })?;
        let place = self
            .archive
            .index_for_name(name)
            .ok_or_else(|| PackageError::Missing { path: path.to_owned() })?;
        let announced = self.announced(place, path, listed)?;
        let member = self.archive.by_index(place).map_err(|error| about_member(error, path))?;
        // What turns out to be wrong has been uncompressed, too.
        self.taken = self.taken.saturating_add(announced);
        hand_on(member, path, announced, hashes, out)
    }

    /// What the archive says of a member, checked before a byte is uncompressed.
    fn announced(&self, place: usize, path: &str, listed: Option<u64>) -> Result<u64, PackageError> {
        let member = self.archive.by_index_data(place).map_err(|error| about_member(error, path))?;
        let path = || path.to_owned();
        if member.is_symlink() {
            return Err(PackageError::SymbolicLink { path: path() });
        }
        if !member.is_file() {
            return Err(PackageError::NotAFile { path: path() });
        }
        if member.encrypted() {
            return Err(PackageError::Unsupported { path: path() });
        }
        let announced = member.size();
        if let Some(expected) = listed.filter(|&listed| listed != announced) {
            return Err(PackageError::Length { path: path(), expected, found: announced });
        }
        let allowed = member.compressed_size().saturating_mul(self.limits.expansion).max(self.limits.free);
        if announced > allowed {
            return Err(PackageError::Expansion { path: path(), limit: self.limits.expansion });
        }
        if self.taken.saturating_add(announced) > self.limits.bytes {
            return Err(PackageError::TooMuch { limit: self.limits.bytes });
        }
        Ok(announced)
    }
}

impl<R: Read + Seek> std::fmt::Debug for Package<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Package")
            .field("header", self.manifest.header())
            .field("refused", &self.refused)
            .field("limits", &self.limits)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

/// Opens an archive, unless more has to be read for that than a directory may have.
///
/// What an archive says of the length of its directory may be a lie, so what counts is what is read. It is read twice, since
/// an archive that is open does not give back the reader that counts.
fn open_archive<R: Read + Seek>(mut package: R) -> Result<ZipArchive<R>, PackageError> {
    let mut bounded = Bounded { package: &mut package, left: MAX_DIRECTORY, is_over: false };
    let tried = ZipArchive::new(&mut bounded).map(drop);
    if bounded.is_over {
        return Err(PackageError::Directory { limit: MAX_DIRECTORY });
    }
    tried.map_err(not_a_zip)?;
    ZipArchive::new(package).map_err(not_a_zip)
}

/// Gives so many bytes of a package and then fails.
struct Bounded<'a, R> {
    package: &'a mut R,
    left: u64,
    is_over: bool,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.package.read(buffer)?;
        let left = self.left.checked_sub(count as u64);
        self.is_over |= left.is_none();
        self.left = left.unwrap_or(0);
        if left.is_some() { Ok(count) } else { Err(io::Error::other("the directory is too long")) }
    }
}

impl<R: Seek> Seek for Bounded<'_, R> {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        self.package.seek(place)
    }
}

fn take_manifest<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    text: &mut impl Write,
) -> Result<(), PackageError> {
    let member = match archive.by_name(MANIFEST) {
        Ok(member) => member,
        Err(ZipError::FileNotFound) => return Err(PackageError::ManifestMissing),
        Err(error) => return Err(about_member(error, MANIFEST)),
    };
    if member.is_symlink() {
        return Err(PackageError::SymbolicLink { path: MANIFEST.to_owned() });
    }
    let pieces = read_pieces(
        member.take(MAX_BYTES + 1),
        |error| damaged(&error, MANIFEST),
        |piece| text.write_all(piece).map_err(PackageError::Io),
    );
    pieces.map(drop)
}

/// Reads the whole manifest once, so that no bitstream is taken before it is known to be in order. Gives how many entries were refused,
/// and what was lived with.
fn check_manifest(text: &File) -> Result<(usize, Violations), PackageError> {
    let mut reader = Reader::new(BufReader::new(text)).map_err(PackageError::Manifest)?;
    let is_manifest = matches!(
        reader.header().capability(),
        Some(Capability::ResourceDumpManifest | Capability::ChangeDumpManifest)
    );
    if !is_manifest {
        return Err(PackageError::NotAManifest);
    }
    let mut paths = HashSet::new();
    for entry in reader.by_ref() {
        let entry = entry.map_err(PackageError::Manifest)?;
        let Some(path) = entry.metadata.and_then(|metadata| metadata.path) else { continue };
        let name = path.strip_prefix('/').unwrap_or(&path).to_owned();
        if !paths.insert(name) {
            return Err(PackageError::DuplicatePath { path });
        }
    }
    Ok((reader.refused(), reader.take_violations()))
}

/// Copies as many bytes as are announced, and says what is wrong with them.
fn hand_on(
    member: impl Read,
    path: &str,
    announced: u64,
    hashes: &Hashes,
    out: &mut impl Write,
) -> Result<u64, PackageError> {
    let mut hasher = Hasher::new(hashes.iter().map(Digest::algorithm));
    let mut left = announced;
    let found = read_pieces(
        member.take(announced.saturating_add(1)),
        |error| damaged(&error, path),
        |piece| match left.checked_sub(piece.len() as u64) {
            Some(rest) => {
                left = rest;
                hasher.update(piece);
                out.write_all(piece).map_err(PackageError::Output)
            }
            None => Ok(()),
        },
    )?;
    if found != announced {
        return Err(PackageError::Length { path: path.to_owned(), expected: announced, found });
    }
    if hashes.compare(&hasher.finish()) == Agreement::Different {
        return Err(PackageError::Hash { path: path.to_owned() });
    }
    Ok(found)
}

fn damaged(error: &impl ToString, path: &str) -> PackageError {
    PackageError::Damaged { path: path.to_owned(), reason: error.to_string() }
}

fn not_a_zip(error: ZipError) -> PackageError {
    match error {
        ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => PackageError::Io(error),
        other => PackageError::NotAZip { reason: other.to_string() },
    }
}

fn about_member(error: ZipError, path: &str) -> PackageError {
    match error {
        ZipError::UnsupportedArchive(_) | ZipError::CompressionMethodNotSupported(_) => {
            PackageError::Unsupported { path: path.to_owned() }
        }
        ZipError::FileNotFound => PackageError::Missing { path: path.to_owned() },
        other => damaged(&other, path),
    }
}
