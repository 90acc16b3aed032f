//! What the state knows of the versions of resources: where their journal is, and how much is kept. It changes in one step with the
//! Change Lists, so a crash leaves both or neither (MEM-011).

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

use crate::helpers::serde_text::{text, text_option};

/// The versions that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptVersions {
    /// The files of the journal, oldest first. Of one resource, what a later file has is later.
    pub segments: Vec<Segment>,
    /// Number of versions whose bytes are kept.
    pub count: u64,
    /// The length of these bytes, each content counted once.
    pub bytes: u64,
    /// How much of that present versions have, as of the last time that it was counted.
    pub present: u64,
    /// What resources were can be told from this moment on.
    #[serde(with = "text")]
    pub since: DateTime,
    /// The moment of the last version.
    #[serde(with = "text")]
    pub until: DateTime,
    /// When the first version of those whose bytes may go was replaced by another; absent if there is none.
    #[serde(with = "text_option")]
    pub replaced: Option<DateTime>,
    /// Whether each resource has a version. Otherwise a full build makes up for it.
    pub is_whole: bool,
}

/// A file of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its name in the folder of the state.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}
