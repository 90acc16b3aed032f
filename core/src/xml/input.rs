//! The bytes under the XML reader: limited, and with lines counted for positions.

use std::io::{self, BufRead};

use super::error::Refused;
use super::source::Source;
use super::{Limit, MAX_TEXT, Position};

/// How much is taken at once, so that limits are noticed in time even when the whole input lies in memory.
const CHUNK: usize = 32 * 1024;

/// Bytes as quick-xml reads them: limited, and with lines counted where the last token starts.
pub(super) struct Input<R: BufRead> {
    source: Source<R>,
    /// The bytes that are given out before lines are counted and more is asked for.
    chunk: Vec<u8>,
    /// How many bytes of the chunk are consumed.
    at: usize,
    /// How many bytes may still be read.
    left: u64,
    /// Where the last token begins, and how long it is so far.
    start: Location,
    length: usize,
    /// Whether white space that comes next is still before the token.
    skips_whitespace: bool,
    /// Up to where in the chunk lines are counted.
    counted: usize,
    line: u64,
    /// How many bytes of the line come before `counted`.
    column: u64,
    remembered: Location,
}

/// A position that may be asked for later: an index into the chunk, or counted out before the next chunk.
#[derive(Clone, Copy)]
enum Location {
    Index(usize),
    Position(Position),
}

impl<R: BufRead> Input<R> {
    /// `gzip` is whether it is decompressed.
    pub(super) fn new(inner: R, max_bytes: u64, gzip: bool) -> io::Result<Self> {
        Ok(Self {
            source: Source::new(inner, gzip)?,
            chunk: Vec::with_capacity(CHUNK),
            at: 0,
            left: max_bytes,
            start: Location::Index(0),
            length: 0,
            skips_whitespace: false,
            counted: 0,
            line: 1,
            column: 1,
            remembered: Location::Index(0),
        })
    }

    /// The first bytes, without taking them.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    /// Takes a byte order mark; it counts for the limit, not for positions.
    pub(super) fn skip_mark(&mut self, mark: usize) {
        self.source.consume(mark);
        self.left = self.left.saturating_sub(length(mark));
    }

    /// A token is about to be read. White space before it may be skipped; however long, it is no text that is too long.
    #[inline]
    pub(super) fn begin(&mut self, skips_whitespace: bool) {
        self.start = Location::Index(self.at);
        self.length = 0;
        self.skips_whitespace = skips_whitespace;
    }

    /// Whether the last token is longer than a token may be.
    #[inline]
    pub(super) fn is_too_long(&self) -> bool {
        self.length > MAX_TEXT
    }

    /// Where the last token starts.
    pub(super) fn position(&mut self) -> Position {
        self.position_of(self.start)
    }

    /// Remembers where the last token starts, since counting it out costs more than most places are worth.
    #[inline]
    pub(super) fn remember(&mut self) {
        self.remembered = self.start;
    }

    /// The place last remembered, or the last one asked for if that is later.
    pub(super) fn remembered(&mut self) -> Position {
        self.position_of(self.remembered)
    }

    /// Line and column of a place that is not before one asked for earlier.
    fn position_of(&mut self, place: Location) -> Position {
        match place {
            Location::Position(position) => return position,
            Location::Index(index) => self.count_to(index),
        }
        Position { line: self.line, column: self.column }
    }

    fn count_to(&mut self, index: usize) {
        if index <= self.counted {
            return;
        }
        let passed = &self.chunk[self.counted..index];
        match memchr::memrchr(b'\n', passed) {
            Some(last) => self.column = length(passed.len() - last),
            None => self.column += length(passed.len()),
        }
        self.line += length(memchr::memchr_iter(b'\n', passed).count());
        self.counted = index;
    }

    /// Counts the lines of the chunk that is consumed, and takes the next one; it is empty at the end.
    #[cold]
    fn next_chunk(&mut self) -> io::Result<()> {
        if self.is_too_long() {
            return Err(io::Error::other(Refused::Limit(Limit::Text)));
        }
        let unread = self.source.fill_buf()?;
        let wanted = unread.len().min(CHUNK);
        let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(wanted);
        if taken == 0 && wanted > 0 {
            return Err(io::Error::other(Refused::Limit(Limit::Bytes)));
        }
        self.remembered = Location::Position(self.remembered());
        self.start = Location::Position(self.position());
        self.count_to(self.chunk.len());
        (self.at, self.counted) = (0, 0);
        self.chunk.clear();
        self.chunk.extend_from_slice(&self.source.fill_buf()?[..taken]);
        self.source.consume(taken);
        self.left -= length(taken);
        Ok(())
    }
}

impl<R: BufRead> io::Read for Input<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(target)?;
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Input<R> {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.chunk.len() {
            self.next_chunk()?;
        }
        Ok(&self.chunk[self.at..])
    }

    #[inline]
    fn consume(&mut self, amount: usize) {
        let is_skipped =
            self.skips_whitespace && self.chunk.get(self.at).is_some_and(|&next| is_whitespace(next));
        self.at += amount;
        if is_skipped {
            self.start = Location::Index(self.at);
        } else {
            self.skips_whitespace = false;
            self.length += amount;
        }
    }
}

pub(super) fn is_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}

fn length(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_bytes_from_one() {
        let mut input = Input::new(&b"ab\n\ncd"[..], 100, false).unwrap();
        let at = |line, column| Position { line, column };
        for (amount, position) in [(0, at(1, 1)), (2, at(1, 3)), (1, at(2, 1)), (2, at(3, 2)), (1, at(3, 3))]
        {
            input.fill_buf().unwrap();
            input.consume(amount);
            input.begin(false);
            assert_eq!(input.position(), position);
            assert_eq!(input.position(), position);
        }
        assert!(input.fill_buf().unwrap().is_empty());
        assert_eq!(input.position(), at(3, 3));
    }

    #[test]
    fn places_hold_from_chunk_to_chunk_and_a_token_starts_behind_white_space() {
        let mut input = Input::new(io::BufReader::with_capacity(2, &b"a\nbc\n  d"[..]), 100, false).unwrap();
        let take = |input: &mut Input<_>, amount: usize| {
            for _ in 0..amount {
                input.fill_buf().unwrap();
                input.consume(1);
            }
        };
        let at = |line, column| Position { line, column };
        input.begin(true);
        take(&mut input, 3);
        assert_eq!(input.position(), at(1, 1));
        input.begin(true);
        input.remember();
        take(&mut input, 1);
        assert_eq!(input.position(), at(2, 2));
        input.begin(true);
        take(&mut input, 4);
        assert_eq!(input.position(), at(3, 3));
        assert_eq!(input.remembered(), at(2, 2));
        input.begin(true);
        assert!(input.fill_buf().unwrap().is_empty());
        assert_eq!(input.position(), at(3, 4));
    }

    #[test]
    fn rs051_the_byte_limit_is_exact() {
        let drain = |bytes: &[u8]| io::read_to_string(Input::new(bytes, 3, false).unwrap());
        assert_eq!(drain(b"abc").unwrap(), "abc");
        assert!(drain(b"abcd").is_err());
    }
}
