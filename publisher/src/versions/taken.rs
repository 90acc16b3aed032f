//! What a run has taken, and what it had to leave out.

use std::{io, sync::Arc};

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

use crate::{
    helpers::serde_text::{text, text_option},
    state::Segment,
};

/// One file of the journal in the place of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Merged {
    /// How many files stay before it.
    pub(super) from: usize,
    pub(super) segment: Segment,
}

/// What a run has taken, as its plan has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// The file with what the journal is to have; absent where that is nothing.
    pub(crate) segment: Option<Segment>,
    /// The file that takes the place of others of the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) merged: Option<Merged>,
    /// Number of versions in it whose bytes are kept.
    pub(crate) count: u64,
    /// The length of the bytes that were not there before.
    pub(crate) bytes: u64,
    /// How many bytes were copied for them: for who builds, not for later runs.
    #[serde(skip)]
    pub(crate) copied: u64,
    /// When the run began: nothing in it is older.
    #[serde(with = "text")]
    pub(crate) first: DateTime,
    /// The moment of the last version.
    #[serde(with = "text")]
    pub(crate) last: DateTime,
    /// When the first version was replaced by one of these.
    #[serde(with = "text_option")]
    pub(crate) replaced: Option<DateTime>,
    /// Whether each resource has a version now.
    pub(crate) is_whole: bool,
}

/// Versions that a run could not keep (MEM-014). Their changes are published all the same.
#[derive(Clone, Debug, Default)]
pub struct Unkept {
    /// Number of those whose bytes had changed again before they were copied.
    pub changed: u64,
    /// Number of those that could not be read or written, mostly for lack of room; a journal that cannot be read counts as one.
    pub failed: u64,
    /// The first of these resources, and why.
    pub cause: Option<(String, Arc<io::Error>)>,
}

impl Unkept {
    pub(super) fn failed(&mut self, loc: &str, error: io::Error) {
        self.failed += 1;
        self.cause.get_or_insert_with(|| (loc.to_owned(), Arc::new(error)));
    }
}
