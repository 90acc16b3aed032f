//! One package: a ZIP with `manifest.xml` first, then its bitstreams (RS-104, RS-109).
//!
//! What the manifest says of a bitstream is measured while the bitstream is packed, so the two always agree, whatever became of the
//! resource since it was listed. Bitstreams are packed into a temporary file; the manifest and they are then moved into the package
//! as they are. Nothing in a package depends on when it was made: equal contents are equal bytes.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

use flate2::write::DeflateEncoder;
use tempfile::SpooledTempFile;
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::output::{Careful, Measured};
use super::package_limits::PackageLimits;
use super::scratch::Scratch;
use super::spool::Spool;
use super::{BuildError, Sink, ready};
use crate::digest::{Agreement, Algorithm, Hasher, Hashes};
use crate::document::{Entry, Header};
use crate::package::MANIFEST;
use crate::xml::{FREE_EXPANSION, Limits};

const IN_MEMORY: usize = 1024 * 1024;
const BUFFER: usize = 64 * 1024;

/// A package while bitstreams come in.
pub(super) struct Packer {
    bitstreams: ZipWriter<Careful<BufWriter<File>>>,
    manifest: Spool,
    limits: PackageLimits,
    scratch: Scratch,
    bytes: u64,
    buffer: Vec<u8>,
}

/// A package that waits to be published.
#[derive(Debug)]
pub(super) struct Packed<S: Sink> {
    pub(super) package: S::Staged,
    pub(super) contents: S::Staged,
    pub(super) length: u64,
    pub(super) hashes: Hashes,
}

impl Packer {
    pub(super) fn new(manifest: Header, limits: PackageLimits, scratch: Scratch) -> Result<Self, BuildError> {
        Ok(Self {
            bitstreams: ZipWriter::new(Careful::new(BufWriter::new(scratch.file()?))),
            manifest: Spool::new(manifest, Limits::default(), scratch.clone())?,
            limits,
            scratch,
            bytes: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// Whether one more entry stays within the limits; an empty package takes any.
    pub(super) fn takes(&self, entry: &Entry) -> Result<bool, BuildError> {
        let length = entry.metadata.as_ref().and_then(|metadata| metadata.length).unwrap_or(0);
        let fits = self.manifest.entries() == 0 || self.bytes.saturating_add(length) <= self.limits.bytes;
        Ok(fits && self.manifest.entries() < self.limits.entries() && self.manifest.takes(entry)?)
    }

    /// Whether the manifest can hold one more entry.
    pub(super) fn has_room(&self, entry: &Entry) -> Result<bool, BuildError> {
        self.manifest.takes(entry)
    }

    /// Adds an entry that has no bitstream: a deletion.
    pub(super) fn list(&mut self, entry: &Entry) -> Result<(), BuildError> {
        self.manifest.add(entry)
    }

    /// Adds what a link of an entry leads to, at `path`.
    pub(super) fn pack_beside(
        &mut self,
        entry: &Entry,
        path: &str,
        content: impl Read,
    ) -> Result<(), BuildError> {
        self.store(&entry.loc, path, &Hashes::default(), content).map(drop)
    }

    fn store(
        &mut self,
        loc: &str,
        path: &str,
        listed: &Hashes,
        content: impl Read,
    ) -> Result<(u64, Hashes), BuildError> {
        let name = path.trim_start_matches('/');
        let (length, hashes) =
            store(&mut self.bitstreams, name, listed, content, &mut self.buffer).map_err(|failure| {
                match failure {
                    Failure::Content(source) => BuildError::Content { loc: loc.to_owned(), source },
                    Failure::Scratch(source) => self.scratch.error(source),
                }
            })?;
        self.bytes = self.bytes.saturating_add(length);
        Ok((length, hashes))
    }

    /// Adds an entry with its bitstream, to lie at the entry's `path`.
    pub(super) fn pack(&mut self, mut entry: Entry, content: impl Read) -> Result<(), BuildError> {
        let metadata = entry.metadata.get_or_insert_default();
        let path = metadata.path.as_deref().unwrap_or_default();
        let (length, hashes) = self.store(&entry.loc, path, &metadata.hash, content)?;
        if metadata.hash.compare(&hashes) == Agreement::Different {
            // It changed after it was listed, and when is not known.
            entry.lastmod = None;
        }
        metadata.length = Some(length);
        metadata.hash = hashes;
        self.manifest.add(&entry)
    }

    /// Puts the manifest first, and a copy of it under its own name.
    pub(super) fn stage<S: Sink>(
        self,
        sink: &mut S,
        name: &str,
        contents: &str,
        manifest: &Header,
    ) -> Result<Packed<S>, BuildError> {
        let Self { bitstreams, manifest: entries, scratch, .. } = self;
        let failed = |error| scratch.error(error);
        let mut text = scratch.spooled(IN_MEMORY);
        entries.write_to(&mut text, manifest).map_err(|error| match error {
            BuildError::Io(error) => failed(error),
            other => other,
        })?;
        let first = first_member(&scratch, &mut text).map_err(failed)?;
        let bitstreams = readable(bitstreams).map_err(failed)?;

        let (mut length, mut hashes) = (0, Hashes::default());
        let package = ready::stage(sink, name, |draft| {
            // Members are moved as they are, so that this never seeks.
            let mut package = ZipWriter::new(Careful::new(StreamWriter::new(Measured::new(draft))));
            package.merge_archive(first).map_err(io_error)?;
            if !bitstreams.is_empty() {
                package.merge_archive(bitstreams).map_err(io_error)?;
            }
            (length, hashes) = package.finish().map_err(io_error)?.into_inner()?.into_inner().finish();
            Ok(())
        })?;
        let contents = copy(sink, contents, &mut text)?;
        Ok(Packed { package, contents, length, hashes })
    }
}

/// The manifest as the only member of an archive.
fn first_member(scratch: &Scratch, text: &mut SpooledTempFile) -> io::Result<ZipArchive<SpooledTempFile>> {
    let mut first = ZipWriter::new(scratch.spooled(IN_MEMORY));
    first.start_file(MANIFEST, options(CompressionMethod::Deflated)).map_err(io_error)?;
    text.rewind()?;
    io::copy(text, &mut first)?;
    ZipArchive::new(first.finish().map_err(io_error)?).map_err(io_error)
}

fn readable(written: ZipWriter<Careful<BufWriter<File>>>) -> io::Result<ZipArchive<BufReader<File>>> {
    let written = written.finish().map_err(io_error)?.into_inner()?;
    let file = written.into_inner().map_err(io::IntoInnerError::into_error)?;
    ZipArchive::new(BufReader::new(file)).map_err(io_error)
}

fn copy<S: Sink>(sink: &mut S, name: &str, text: &mut SpooledTempFile) -> Result<S::Staged, BuildError> {
    ready::stage(sink, name, |draft| {
        text.rewind()?;
        io::copy(text, draft)?;
        Ok(())
    })
}

/// What failed: the resource, or the place it is packed at.
enum Failure {
    Content(io::Error),
    Scratch(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Scratch(error)
    }
}

/// Stores one bitstream and measures it: by the algorithms it was listed with, or sha-256.
fn store(
    zip: &mut ZipWriter<Careful<BufWriter<File>>>,
    name: &str,
    listed: &Hashes,
    mut content: impl Read,
    buffer: &mut [u8],
) -> Result<(u64, Hashes), Failure> {
    let known: Vec<Algorithm> = listed.iter().map(crate::digest::Digest::algorithm).collect();
    let mut hasher = Hasher::new(if known.is_empty() { vec![Algorithm::Sha256] } else { known });
    let mut filled = fill(&mut content, buffer).map_err(Failure::Content)?;
    // Whatever fills the buffer may grow to any length while it is read, and ZIP64 has to be known beforehand.
    let may_be_large = filled == buffer.len();
    let method = if may_be_large { method_for(&buffer[..filled])? } else { CompressionMethod::Deflated };
    zip.start_file(name, options(method).large_file(may_be_large)).map_err(io_error)?;
    let mut length = 0_u64;
    while filled > 0 {
        hasher.update(&buffer[..filled]);
        zip.write_all(&buffer[..filled])?;
        length += filled as u64;
        filled = fill(&mut content, buffer).map_err(Failure::Content)?;
    }
    Ok((length, hasher.finish()))
}

fn fill(content: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match content.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Compresses neither what does not get shorter, nor what would get so short that a careful reader takes it for a bomb.
fn method_for(beginning: &[u8]) -> io::Result<CompressionMethod> {
    let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(beginning)?;
    let compressed = encoder.finish()?.len().max(1);
    let grows = compressed * 20 > beginning.len() * 19;
    let suspect = beginning.len() / compressed > 100;
    Ok(if grows || suspect { CompressionMethod::Stored } else { CompressionMethod::Deflated })
}

fn options(method: CompressionMethod) -> SimpleFileOptions {
    SimpleFileOptions::DEFAULT.compression_method(method).unix_permissions(0o644)
}

fn io_error(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other),
    }
}

const _: () = assert!(BUFFER as u64 <= FREE_EXPANSION);
