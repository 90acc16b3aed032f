//! What an archive is written to.

use std::io::{self, Seek, SeekFrom, Write};

use crate::digest::{Algorithm, Hasher, Hashes};

/// Reports the first failure, and then swallows everything: a writer of archives that is dropped halfway tries to end its archive,
/// and prints where that fails, too.
#[derive(Debug)]
pub(super) struct Careful<W> {
    out: W,
    is_broken: bool,
}

impl<W> Careful<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, is_broken: false }
    }

    /// Where everything was written to; an error where not everything was.
    pub(super) fn into_inner(self) -> io::Result<W> {
        if self.is_broken { Err(io::Error::other("the archive is incomplete")) } else { Ok(self.out) }
    }
}

impl<W: Write> Write for Careful<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_broken {
            return Ok(bytes.len());
        }
        let outcome = self.out.write(bytes);
        self.is_broken = outcome.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        outcome
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_broken { Ok(()) } else { self.out.flush() }
    }
}

impl<W: Seek> Seek for Careful<W> {
    /// Only whoever gives up halfway seeks where that is impossible, so this needs no report.
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        let found = if self.is_broken { None } else { self.out.seek(place).ok() };
        self.is_broken = found.is_none();
        Ok(found.unwrap_or(0))
    }
}

/// Counts and hashes what passes.
#[derive(Debug)]
pub(super) struct Measured<W> {
    out: W,
    length: u64,
    hasher: Hasher,
}

impl<W: Write> Measured<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, length: 0, hasher: Hasher::new([Algorithm::Sha256]) }
    }

    /// How many bytes there were, and their digest.
    pub(super) fn finish(self) -> (u64, Hashes) {
        (self.length, self.hasher.finish())
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
