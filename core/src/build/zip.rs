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
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::spool::Spool;
use super::{BuildError, PackageLimits, Sink};
use crate::datetime::DateTime;
use crate::digest::{Agreement, Algorithm, Hasher, Hashes};
use crate::document::{Entry, Header};
use crate::xml::{FREE_EXPANSION, Format, Limits};

/// The name of every manifest (RS-104).
pub(super) const MANIFEST: &str = "manifest.xml";

const IN_MEMORY: usize = 1024 * 1024;
const BUFFER: usize = 64 * 1024;
/// From here on lengths in a ZIP take the form of ZIP64, which has to be known beforehand.
const LARGE: u64 = 0xFF00_0000;

/// A package while bitstreams come in.
pub(super) struct Packer {
    bitstreams: ZipWriter<BufWriter<File>>,
    manifest: Spool,
    limits: PackageLimits,
    bytes: u64,
    buffer: Vec<u8>,
}

/// A package that waits to be published.
#[derive(Debug)]
pub(super) struct Packed<S: Sink> {
    pub(super) package: S::Staged,
    pub(super) contents: Option<S::Staged>,
    pub(super) length: u64,
    pub(super) hashes: Hashes,
}

impl Packer {
    pub(super) fn new(manifest: Header, limits: PackageLimits) -> Result<Self, BuildError> {
        let entries = Limits { entries: limits.entries(), ..Limits::default() };
        Ok(Self {
            bitstreams: ZipWriter::new(BufWriter::new(tempfile::tempfile()?)),
            manifest: Spool::new(manifest, Format::default(), entries)?,
            limits,
            bytes: 0,
            buffer: vec![0; BUFFER],
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.manifest.entries() == 0
    }

    /// Whether one more entry stays within the limits; an empty package takes any.
    pub(super) fn takes(&self, entry: &Entry) -> Result<bool, BuildError> {
        let length = entry.metadata.as_ref().and_then(|metadata| metadata.length).unwrap_or(0);
        let fits = self.is_empty() || self.bytes.saturating_add(length) <= self.limits.bytes;
        Ok(fits && self.manifest.takes(entry)?)
    }

    /// Adds an entry that has no bitstream: a deletion.
    pub(super) fn tell(&mut self, entry: &Entry) -> Result<(), BuildError> {
        self.manifest.add(entry)
    }

    /// Adds an entry with its bitstream, to lie at the entry's `path`.
    pub(super) fn pack(&mut self, mut entry: Entry, content: impl Read) -> Result<(), BuildError> {
        let metadata = entry.metadata.get_or_insert_default();
        let name = metadata.path.as_deref().unwrap_or_default().trim_start_matches('/');
        let (length, hashes) =
            store(&mut self.bitstreams, name, metadata.length, &metadata.hash, content, &mut self.buffer)?;
        if metadata.hash.compare(&hashes) == Agreement::Different {
            // It changed after it was listed, and when is not known.
            entry.lastmod = None;
        }
        metadata.length = Some(length);
        metadata.hash = hashes;
        self.bytes = self.bytes.saturating_add(length);
        self.manifest.add(&entry)
    }

    /// Puts the manifest first, and a copy of it under its own name.
    pub(super) fn stage<S: Sink>(
        self,
        sink: &mut S,
        name: &str,
        contents: Option<&str>,
        manifest: &Header,
    ) -> Result<Packed<S>, BuildError> {
        let mut text = SpooledTempFile::new(IN_MEMORY);
        self.manifest.write_to(&mut text, manifest)?;
        let mut first = ZipWriter::new(SpooledTempFile::new(IN_MEMORY));
        first.start_file(MANIFEST, options(CompressionMethod::Deflated)).map_err(io_error)?;
        text.rewind()?;
        io::copy(&mut text, &mut first)?;
        let first = first.finish().map_err(io_error)?;
        let bitstreams = self.bitstreams.finish().map_err(io_error)?;
        let bitstreams = bitstreams.into_inner().map_err(io::IntoInnerError::into_error)?;

        let mut package = ZipWriter::new_stream(Measured::new(sink.create(name)?));
        package.merge_archive(ZipArchive::new(first).map_err(io_error)?).map_err(io_error)?;
        let bitstreams = ZipArchive::new(BufReader::new(bitstreams)).map_err(io_error)?;
        if !bitstreams.is_empty() {
            package.merge_archive(bitstreams).map_err(io_error)?;
        }
        let Measured { mut out, length, hasher } = package.finish().map_err(io_error)?.into_inner();
        out.flush()?;
        let package = sink.stage(out)?;
        let contents = contents.map(|name| copy(sink, name, &mut text)).transpose()?;
        Ok(Packed { package, contents, length, hashes: hasher.finish() })
    }
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer")
            .field("bytes", &self.bytes)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn copy<S: Sink>(sink: &mut S, name: &str, text: &mut SpooledTempFile) -> io::Result<S::Staged> {
    text.rewind()?;
    let mut draft = sink.create(name)?;
    io::copy(text, &mut draft)?;
    draft.flush()?;
    sink.stage(draft)
}

/// Stores one bitstream and measures it: by the algorithms it was listed with, or sha-256.
fn store(
    zip: &mut ZipWriter<BufWriter<File>>,
    name: &str,
    expected: Option<u64>,
    listed: &Hashes,
    mut content: impl Read,
    buffer: &mut [u8],
) -> Result<(u64, Hashes), BuildError> {
    let known: Vec<Algorithm> = listed.iter().map(crate::digest::Digest::algorithm).collect();
    let mut hasher = Hasher::new(if known.is_empty() { vec![Algorithm::Sha256] } else { known });
    let mut filled = fill(&mut content, buffer)?;
    let is_large = expected.is_none_or(|length| length >= LARGE) && filled == buffer.len();
    let method =
        if filled == buffer.len() { method_for(&buffer[..filled])? } else { CompressionMethod::Deflated };
    zip.start_file(name, options(method).large_file(is_large)).map_err(io_error)?;
    let mut length = 0_u64;
    while filled > 0 {
        hasher.update(&buffer[..filled]);
        zip.write_all(&buffer[..filled])?;
        length += filled as u64;
        filled = fill(&mut content, buffer)?;
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

/// Counts and hashes what passes.
#[derive(Debug)]
struct Measured<W> {
    out: W,
    length: u64,
    hasher: Hasher,
}

impl<W: Write> Measured<W> {
    fn new(out: W) -> Self {
        Self { out, length: 0, hasher: Hasher::new([Algorithm::Sha256]) }
    }
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A moment as part of a file name.
pub(super) fn stamp(moment: DateTime) -> String {
    moment.to_string().replace(['-', ':'], "")
}

const _: () = assert!(BUFFER as u64 <= FREE_EXPANSION);
