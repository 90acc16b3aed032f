//! The bytes under the XML reader: a window that moves on, limited, and with lines counted for positions.

use std::fmt;
use std::io::{self, BufRead};

use super::source::Source;
use super::{Limit, MAX_TEXT, Position};

/// How much is taken at once, so that limits are noticed in time even when the whole input lies in memory.
const CHUNK: usize = 32 * 1024;

/// Why no more bytes are given, carried through the XML reader in an [`io::Error`].
#[derive(Debug)]
pub(super) enum Refused {
    Limit(Limit),
    /// Damaged gzip, and in what way.
    Gzip(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => write!(f, "too many {limit}"),
            Self::Gzip(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Refused {}

pub(super) struct Input<R: BufRead> {
    source: Source<R>,
    /// What was read, from the last token on.
    window: Vec<u8>,
    /// How far the window is consumed.
    at: usize,
    /// Where the last token begins.
    start: usize,
    /// How many bytes may still be read.
    left: u64,
    /// Up to where in the window lines are counted.
    counted: usize,
    line: u64,
    /// How many bytes of the line come before `counted`.
    column: u64,
    remembered: Place,
}

/// A place that may be asked for later: as it is found in the window, or counted out before the window moves on.
#[derive(Clone, Copy)]
enum Place {
    Index(usize),
    Position(Position),
}

impl<R: BufRead> Input<R> {
    /// `gzip` is whether it is decompressed.
    pub(super) fn new(inner: R, max_bytes: u64, gzip: bool) -> io::Result<Self> {
        Ok(Self {
            source: Source::new(inner, gzip)?,
            window: Vec::with_capacity(2 * CHUNK),
            at: 0,
            start: 0,
            left: max_bytes,
            counted: 0,
            line: 1,
            column: 1,
            remembered: Place::Index(0),
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

    /// A token is about to be read.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.start = self.at;
    }

    /// A token is about to be read, and white space before it is passed over. However much that is, it is no text that
    /// is too long.
    #[inline]
    pub(super) fn begin_behind_space(&mut self) -> io::Result<()> {
        loop {
            self.begin();
            match self.fill_buf()?.iter().take_while(|byte| is_space(**byte)).count() {
                0 => return Ok(()),
                spaces => self.consume(spaces),
            }
        }
    }

    /// Takes what comes next up to where `end` finds the end in the bytes that it is given, piece by piece; gives `false`
    /// when all was taken and there was none.
    #[inline]
    pub(super) fn take_to(&mut self, mut end: impl FnMut(&[u8]) -> Option<usize>) -> io::Result<bool> {
        loop {
            let available = self.fill_buf()?;
            if available.is_empty() {
                return Ok(false);
            }
            let found = end(available);
            let amount = found.unwrap_or(available.len());
            self.consume(amount);
            if found.is_some() {
                return Ok(true);
            }
        }
    }

    /// The next two bytes, or those that there are.
    #[inline]
    pub(super) fn next_two(&mut self) -> io::Result<&[u8]> {
        if self.window.len() - self.at < 2 {
            self.more()?;
            if self.window.len() - self.at == 1 {
                self.more()?;
            }
        }
        let next = &self.window[self.at..];
        Ok(&next[..next.len().min(2)])
    }

    /// The last token as far as it is taken.
    #[inline]
    pub(super) fn token(&self) -> &[u8] {
        &self.window[self.start..self.at]
    }

    /// Where the last token starts.
    pub(super) fn position(&mut self) -> Position {
        self.position_of(self.start)
    }

    /// Remembers where the last token starts, since counting it out costs more than most places are worth.
    #[inline]
    pub(super) fn remember(&mut self) {
        self.remembered = Place::Index(self.start);
    }

    /// The place last remembered, or the last one asked for if that is later.
    pub(super) fn remembered(&mut self) -> Position {
        match self.remembered {
            Place::Index(index) => self.position_of(index),
            Place::Position(position) => position,
        }
    }

    /// Line and column of an index into the window that is not before one asked for earlier.
    fn position_of(&mut self, index: usize) -> Position {
        if index > self.counted {
            let passed = &self.window[self.counted..index];
            match memchr::memrchr(b'\n', passed) {
                Some(last) => self.column = length(passed.len() - last),
                None => self.column += length(passed.len()),
            }
            self.line += length(memchr::memchr_iter(b'\n', passed).count());
            self.counted = index;
        }
        Position { line: self.line, column: self.column }
    }

    /// Forgets what comes before the last token and reads on, if there is more.
    #[cold]
    fn more(&mut self) -> io::Result<()> {
        if self.token().len() > MAX_TEXT {
            return Err(io::Error::other(Refused::Limit(Limit::Text)));
        }
        while let Err(error) = self.source.fill_buf() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let wanted = self.source.fill_buf()?.len().min(CHUNK);
        let more = usize::try_from(self.left).unwrap_or(usize::MAX).min(wanted);
        if more == 0 {
            let over = wanted > 0;
            return if over { Err(io::Error::other(Refused::Limit(Limit::Bytes))) } else { Ok(()) };
        }
        self.forget();
        self.window.extend_from_slice(&self.source.fill_buf()?[..more]);
        self.source.consume(more);
        self.left -= length(more);
        Ok(())
    }

    fn forget(&mut self) {
        self.remembered = Place::Position(self.remembered());
        self.position_of(self.start);
        // What is counted may lie behind the start, but not before it.
        self.window.drain(..self.start);
        self.counted -= self.start;
        self.at -= self.start;
        self.start = 0;
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
        if self.at == self.window.len() {
            self.more()?;
        }
        Ok(&self.window[self.at..])
    }

    #[inline]
    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

pub(super) fn is_space(byte: u8) -> bool {
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
            input.begin();
            assert_eq!(input.position(), position);
            assert_eq!(input.position(), position);
        }
        assert!(input.fill_buf().unwrap().is_empty());
        assert_eq!(input.position(), at(3, 3));
    }

    #[test]
    fn places_hold_while_the_window_moves_on() {
        let mut input = Input::new(io::BufReader::with_capacity(2, &b"a\nbc\n  d"[..]), 100, false).unwrap();
        let at = |line, column| Position { line, column };
        input.begin();
        assert!(input.take_to(|bytes| memchr::memchr(b'b', bytes)).unwrap());
        assert_eq!(input.token(), b"a\n");
        assert_eq!(input.position(), at(1, 1));
        input.begin();
        assert!(input.take_to(|bytes| memchr::memchr(b'\n', bytes)).unwrap());
        assert_eq!(input.token(), b"bc");
        assert_eq!(input.position(), at(2, 1));
        input.begin_behind_space().unwrap();
        assert_eq!(input.next_two().unwrap(), b"d");
        assert!(!input.take_to(|bytes| memchr::memchr(b'\n', bytes)).unwrap());
        assert_eq!(input.token(), b"d");
        assert_eq!(input.position(), at(3, 3));
        input.begin_behind_space().unwrap();
        assert!(input.next_two().unwrap().is_empty());
    }

    #[test]
    fn rs051_the_byte_limit_is_exact() {
        let drain = |bytes: &[u8]| io::read_to_string(Input::new(bytes, 3, false).unwrap());
        assert_eq!(drain(b"abc").unwrap(), "abc");
        assert!(drain(b"abcd").is_err());
    }
}
