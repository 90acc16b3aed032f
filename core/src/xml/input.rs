//! The bytes under the XML reader: counted, limited, and with line ends remembered for positions.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead};

use super::{Limit, MAX_TEXT, Position};

/// How much is handed on at once, so that limits are noticed in time even when the whole input lies in memory.
const CHUNK: usize = 16 * 1024;

/// A limit that was reached while bytes were fetched, carried through the XML reader as an [`io::Error`].
#[derive(Debug)]
pub(super) struct Reached(pub(super) Limit);

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "too many {}", self.0)
    }
}

impl std::error::Error for Reached {}

#[derive(Debug)]
pub(super) struct Input<R> {
    inner: R,
    max_bytes: u64,
    consumed: u64,
    /// Where the token that is being read started.
    token_start: u64,
    /// Offsets of the line ends between the position last asked for and what was consumed.
    line_ends: VecDeque<u64>,
    line: u64,
    line_start: u64,
}

impl<R: BufRead> Input<R> {
    pub(super) fn new(inner: R, max_bytes: u64) -> Self {
        Self {
            inner,
            max_bytes,
            consumed: 0,
            token_start: 0,
            line_ends: VecDeque::new(),
            line: 1,
            line_start: 0,
        }
    }

    /// The first bytes, without taking them.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    /// Takes a byte order mark; offsets count from behind it.
    pub(super) fn skip_mark(&mut self, length: usize) {
        self.inner.consume(length);
    }

    /// Where the token that starts at this offset stands; the limit on its length counts from there.
    pub(super) fn token_at(&mut self, offset: u64) -> Position {
        self.token_start = offset;
        self.position(offset)
    }

    /// Line and column of an offset; offsets must not go back beyond a line.
    pub(super) fn position(&mut self, offset: u64) -> Position {
        while let Some(end) = self.line_ends.front().copied().filter(|end| *end < offset) {
            self.line_ends.pop_front();
            self.line += 1;
            self.line_start = end + 1;
        }
        Position { line: self.line, column: offset.saturating_sub(self.line_start) + 1 }
    }
}

impl<R: BufRead> io::Read for Input<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let length = available.len().min(target.len());
        target[..length].copy_from_slice(&available[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let max_text = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX);
        if self.consumed - self.token_start > max_text {
            return Err(io::Error::other(Reached(Limit::Text)));
        }
        let available = self.inner.fill_buf()?;
        let left = usize::try_from(self.max_bytes - self.consumed).unwrap_or(usize::MAX);
        if left == 0 && !available.is_empty() {
            return Err(io::Error::other(Reached(Limit::Bytes)));
        }
        Ok(&available[..available.len().min(CHUNK).min(left)])
    }

    fn consume(&mut self, amount: usize) {
        // What is consumed has just been filled, so this neither blocks nor fails.
        if let Ok(taken) = self.inner.fill_buf() {
            for (at, byte) in (self.consumed..).zip(&taken[..amount]) {
                if *byte == b'\n' {
                    self.line_ends.push_back(at);
                }
            }
        }
        self.inner.consume(amount);
        self.consumed += u64::try_from(amount).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_bytes_from_one() {
        let mut input = Input::new(&b"ab\n\ncd"[..], 100);
        input.consume(6);
        let at = |line, column| Position { line, column };
        assert_eq!(input.position(0), at(1, 1));
        assert_eq!(input.position(2), at(1, 3));
        assert_eq!(input.position(3), at(2, 1));
        assert_eq!(input.position(5), at(3, 2));
    }

    #[test]
    fn rs051_the_byte_limit_is_exact() {
        let mut input = Input::new(&b"abc"[..], 3);
        assert_eq!(io::read_to_string(&mut input).unwrap(), "abc");
        let mut input = Input::new(&b"abcd"[..], 3);
        assert!(io::read_to_string(&mut input).is_err());
    }
}
