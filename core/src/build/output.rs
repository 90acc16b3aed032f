//! What an archive is written to.

use std::io::{self, Seek, SeekFrom, Write};

use crate::digest::{Algorithm, Hasher, Hashes};

/// Reports the first failure, and then swallows everything: a writer of archives that is dropped halfway tries to end its archive,
/// and prints where that fails, too.
#[derive(Debug)]
pub(super) struct Careful<W> {
    out: W,
    failure: Option<io::Error>,
}

impl<W> Careful<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, failure: None }
    }

    /// Where everything was written to; an error where not everything was.
    pub(super) fn into_inner(self) -> io::Result<W> {
        self.failure.map_or(Ok(self.out), Err)
    }
}

impl<W: Write> Write for Careful<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failure.is_some() {
            return Ok(bytes.len());
        }
        let outcome = self.out.write(bytes);
        let failure = outcome.as_ref().err().filter(|error| error.kind() != io::ErrorKind::Interrupted);
        self.failure = failure.map(|error| io::Error::new(error.kind(), error.to_string()));
        outcome
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failure.is_some() { Ok(()) } else { self.out.flush() }
    }
}

impl<W: Seek> Seek for Careful<W> {
    /// Only whoever gives up halfway seeks where that is impossible, so this is reported in the end alone.
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        if self.failure.is_some() {
            return Ok(0);
        }
        self.out.seek(place).or_else(|error| {
            self.failure = Some(error);
            Ok(0)
        })
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
