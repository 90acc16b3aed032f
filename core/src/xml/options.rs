//! How a document is read.

use super::{Limits, MAX_BYTES, MAX_ENTRIES};

/// How a [`Reader`](super::Reader) reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What a broken rule does.
    pub mode: Mode,
    /// How much is read.
    pub limits: Limits,
    /// Whether gzip is decompressed; otherwise it is refused with [`ReadError::Encoding`](super::ReadError::Encoding).
    pub gzip: bool,
}

impl Options {
    /// The default, but for plain XML only.
    pub const PLAIN: Self =
        Self { mode: Mode::Lenient, limits: Limits { bytes: MAX_BYTES, entries: MAX_ENTRIES }, gzip: false };
}

impl Default for Options {
    /// Leniently, within the limits of the crate, plain or gzip.
    fn default() -> Self {
        Self { gzip: true, ..Self::PLAIN }
    }
}

/// What a broken rule does while a document is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is reported as a violation and reading goes on (RS-050). Of the rules, only those are looked at that cannot be seen in the
    /// entries any more.
    #[default]
    Lenient,
    /// The same, and every rule is checked, as [`read`](super::read) does.
    Checking,
    /// One of severity [`Error`](crate::rules::Severity::Error) ends reading with
    /// [`ReadError::Rule`](super::ReadError::Rule). Every rule is checked.
    Strict,
}
