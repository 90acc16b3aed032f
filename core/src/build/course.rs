//! How a series of change documents goes on: when a document is closed, and how far the last run came.

use std::time::Duration;

use crate::digest::Digest;

/// When an open document is closed and a successor goes on; the limits of RS-042 close it in any case.
///
/// A run reads the open document and writes it anew, whether it adds one entry or thousands, and a Destination polls it whole. So
/// `entries` is what bounds the cost of a run: record in one run what has come together since the last one. The benchmark
/// `build` measures both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// At so many entries; `None` leaves it to the limits.
    pub entries: Option<usize>,
    /// So long after its `from`, once there is an entry in it.
    pub age: Option<Duration>,
}

impl Default for Rotation {
    /// 5,000 entries, whatever their age.
    fn default() -> Self {
        Self { entries: Some(5_000), age: None }
    }
}

/// How far a series of change documents had come: so many entries in the document of this number. The default is before the first.
///
/// Keep it beside the changes that are about to be recorded, and a run that was killed halfway can be taken up exactly
/// ([`ChangeLists::resume`](super::ChangeLists::resume)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The number of the document, counted from 1.
    pub document: u64,
    /// How many entries it had.
    pub entries: u64,
}

/// The open document as the run left it that came to this position.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownOpen {
    pub(super) position: Position,
    pub(super) content: Digest,
}

/// How a series goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    pub(super) rotation: Rotation,
    /// Where a run that failed began.
    pub(super) position: Option<Position>,
    /// What is known of the open document.
    pub(super) known_open: Option<KnownOpen>,
    /// The series is closed for good.
    pub(super) is_last: bool,
}
