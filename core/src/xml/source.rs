//! The bytes of a document whether they are compressed or not: gzip is known by its first byte (RS-051).

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;

use super::error::Refused;
use super::{FREE_EXPANSION, Limit, MAX_EXPANSION};

/// The first byte of gzip, which no XML document begins with.
const GZIP: u8 = 0x1f;
/// How much is decompressed at once.
const CHUNK: usize = 32 * 1024;

pub(super) enum Source<R: BufRead> {
    Plain(R),
    Gzip(Box<Inflated<R>>),
}

impl<R: BufRead> Source<R> {
    /// `gzip` is whether it is decompressed.
    pub(super) fn new(mut inner: R, gzip: bool) -> io::Result<Self> {
        let compressed = uninterrupted(&mut inner)?.first() == Some(&GZIP) && gzip;
        Ok(if compressed { Self::Gzip(Box::new(Inflated::new(inner))) } else { Self::Plain(inner) })
    }

    /// Unread bytes; none at the end.
    pub(super) fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Plain(inner) => inner.fill_buf(),
            Self::Gzip(inflated) => inflated.fill_buf(),
        }
    }

    pub(super) fn consume(&mut self, amount: usize) {
        match self {
            Self::Plain(inner) => inner.consume(amount),
            Self::Gzip(inflated) => inflated.taken = (inflated.taken + amount).min(inflated.filled),
        }
    }
}

fn uninterrupted<R: BufRead>(inner: &mut R) -> io::Result<&[u8]> {
    while let Err(error) = inner.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    inner.fill_buf()
}

/// A document that is decompressed piece by piece.
pub(super) struct Inflated<R> {
    decoder: MultiGzDecoder<Counted<R>>,
    buffer: Box<[u8]>,
    filled: usize,
    taken: usize,
    produced: u64,
}

impl<R: BufRead> Inflated<R> {
    fn new(inner: R) -> Self {
        let counted = Counted { inner, consumed: 0, failed: false };
        Self {
            decoder: MultiGzDecoder::new(counted),
            buffer: vec![0; CHUNK].into(),
            filled: 0,
            taken: 0,
            produced: 0,
        }
    }

    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.filled {
            self.taken = 0;
            self.filled = 0;
            let more = self.decoder.read(&mut self.buffer).map_err(|error| self.cause(error))?;
            self.produced += u64::try_from(more).unwrap_or(u64::MAX);
            let allowed = self.decoder.get_ref().consumed.saturating_mul(MAX_EXPANSION);
            if self.produced > allowed.max(FREE_EXPANSION) {
                return Err(io::Error::other(Refused::Limit(Limit::Expansion)));
            }
            self.filled = more;
        }
        Ok(&self.buffer[self.taken..self.filled])
    }

    /// What the decoder says about its input is damage; what the input says about itself is passed on.
    fn cause(&self, error: io::Error) -> io::Error {
        let ours = self.decoder.get_ref().failed || error.kind() == io::ErrorKind::Interrupted;
        if ours { error } else { io::Error::other(Refused::Gzip(error.to_string())) }
    }
}

struct Counted<R> {
    inner: R,
    consumed: u64,
    failed: bool,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(target)?;
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf().inspect_err(|_| self.failed = true)
    }

    fn consume(&mut self, amount: usize) {
        self.inner.consume(amount);
        self.consumed += u64::try_from(amount).unwrap_or(u64::MAX);
    }
}
