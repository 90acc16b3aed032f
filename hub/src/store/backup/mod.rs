//! A backup: everything a hub remembers as of one moment, in one file that depends on no engine.
//!
//! ```text
//! "resync-hub backup\n" | frame …
//! frame: kind u8 | length u32 | content | CRC-32 of (kind, length, content) u32      (big-endian)
//! ```
//!
//! | kind | content |
//! |---|---|
//! | 1 | what it is, first and once, as JSON: [`Header`] |
//! | 2 | changes of records, to be made in their order |
//! | 3 | a file beside the store: length of its name u16, name, bytes |
//! | 4 | the end: SHA-256 of everything before |
//!
//! A file without its end is no backup, so that one that was cut off is never taken for a whole one.

mod reader;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use resync_common::words::Size;
use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

pub(super) use self::reader::{Content, Reader};
pub(super) use self::writer::{Changes, Writer};
use super::StoreError;
use super::encoding::FORMAT;

/// The version of the file's format that this code writes and reads.
pub(super) const VERSION: u16 = 1;
const MAGIC: &[u8] = b"resync-hub backup\n";
/// No frame that this code writes is nearly as large.
const LARGEST_FRAME: u32 = 64 * 1024 * 1024;

const HEADER: u8 = 1;
const CHANGES: u8 = 2;
const FILE: u8 = 3;
const END: u8 = 4;

/// The files beside the store that a backup may hold: what no other hub could make anew. The operator's token is not among them, so that whoever
/// has a backup does not have the hub. A restore takes no others: whoever could plant that token would own the restored hub.
pub const BESIDE: [&str; 6] = [
    "publisher-tokens.json",
    "publisher-tokens.used.json",
    TICKET_KEY,
    "status-pages.json",
    "ended-sessions.json",
    "audit.jsonl",
];
/// Where they are with this data folder.
pub fn beside(data_dir: &Path) -> Vec<PathBuf> {
    BESIDE.iter().map(|name| data_dir.join(name)).collect()
}

/// The key of the URLs by which publishers follow their notifications.
const TICKET_KEY: &str = "ticket-key";
/// Those of them by which somebody may do something at the restored hub.
const CREDENTIALS: [&str; 2] = ["publisher-tokens.json", TICKET_KEY];

/// What becomes of the credentials in a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// They are restored: who made the backup is trusted.
    Restored,
    /// They are left out: others have had the backup in their hands.
    LeftOut,
}

impl Credentials {
    /// Whether this file of a backup is restored.
    ///
    /// # Errors
    /// [`BackupError::Planted`]
    pub(super) fn admit(self, name: &str) -> Result<bool, BackupError> {
        if !BESIDE.contains(&name) {
            return Err(BackupError::Planted { name: name.to_owned() });
        }
        Ok(self == Self::Restored || !CREDENTIALS.contains(&name))
    }
}

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the file's format.
    pub version: u16,
    /// The version of the data format of the records in it.
    pub store: u16,
    /// When it was begun. What was acknowledged before is in it.
    pub begun: String,
    /// The version of the hub that made it.
    pub hub: String,
}

impl Header {
    /// That of a backup that begins now.
    pub(super) fn now() -> Self {
        Self {
            version: VERSION,
            store: FORMAT,
            begun: DateTime::now().to_string(),
            hub: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// What came of a backup or a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Changes of records; a record that changed meanwhile counts more than once.
    pub records: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Why there is no backup, or nothing was restored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackupError {
    /// The store does not take part.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file, or whoever takes it, fails.
    #[error("the backup cannot be written: {0}")]
    Output(String),
    /// The file cannot be read.
    #[error("the backup cannot be read: {0}")]
    Input(String),
    /// Whoever takes the backup is so slow that too much changes meanwhile.
    #[error(
        "the backup is stopped: it is written so slowly that {} of changes wait; write it to a faster disk",
        Size(*.0 as u64)
    )]
    TooSlow(usize),
    /// Another file.
    #[error("this is no backup of resync-hub: a backup begins differently")]
    NoBackup,
    /// Another version of the hub wrote it, usually a newer one.
    #[error(
        "the backup has format {found}, and this hub reads format {supported}: restore it with the version of resync-hub that wrote it"
    )]
    Format {
        /// What was found.
        found: u16,
        /// What this version can read.
        supported: u16,
    },
    /// The end is missing.
    #[error("the backup is cut off after {0} bytes: it was not finished, or its end is missing")]
    CutOff(u64),
    /// Something in it is not what was written.
    #[error("the backup is damaged ({reason}) at byte {at}")]
    Damaged {
        /// Where, in bytes from the beginning of the file.
        at: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// It holds a file that no hub has put there.
    #[error(
        "the backup contains the file {name:?}, which resync-hub never puts into one: somebody changed it, so nothing is restored"
    )]
    Planted {
        /// The name that the file is given.
        name: String,
    },
    /// Nothing is written over.
    #[error("{path} is not empty ({found} is in it): restore into an empty data folder")]
    NotEmpty {
        /// The folder.
        path: String,
        /// Something in it.
        found: String,
    },
    /// The database has a store.
    #[error("there is a store in the database already: restore into an empty one")]
    InDatabase,
}
