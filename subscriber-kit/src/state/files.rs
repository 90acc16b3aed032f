//! The files of the state: the lock, reading, and replacing a file in one step.
//!
//! A file survives a crash at any moment: it is written beside the old one, synced, renamed over it, and
//! the directory is synced.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use resync_core::durable::sync_folder;
use resync_core::lock::FileLock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::state_file::{FORMAT, StateFile};
use super::{LastSync, StateError, journal};
use crate::state_folder::{self, COPY_LOCK_NAME, is_locked};

pub(super) const FILE_NAME: &str = "state.json";
/// What a single synchronisation did, which does not hold the lock.
const SYNC_RECORD_NAME: &str = "last-sync.json";
const SYNC_RECORD_FORMAT: u32 = 1;
/// The beginning of the names of files that are being written.
const UNFINISHED: &str = ".state-";
/// Files of this age were left by a process that was killed.
const LEFT_AFTER: Duration = Duration::from_secs(3600);
const LOCK_NAME: &str = "lock";

/// Reads the state in `folder` without locking it; `None` where there is none.
pub(super) fn read(folder: &Path) -> Result<Option<StateFile>, StateError> {
    let path = folder.join(FILE_NAME);
    match parse::<StateFile>(&path)? {
        Some(StateFile { format, .. }) if format != FORMAT => {
            let reason = format!("it has format {format}, but this program reads format {FORMAT}");
            Err(StateError::Content { path, reason })
        }
        state_file => Ok(state_file),
    }
}

pub(super) fn write(folder: &Path, state_file: &StateFile) -> Result<(), StateError> {
    replace(folder, FILE_NAME, state_file)
}

/// What a single synchronisation saves.
#[derive(Serialize, Deserialize)]
pub(super) struct SyncRecord {
    format: u32,
    pub(super) last: LastSync,
}

/// What the last single synchronisation saved, if that can be read.
pub(super) fn read_sync_record(folder: &Path) -> Option<SyncRecord> {
    let path = folder.join(SYNC_RECORD_NAME);
    match parse::<SyncRecord>(&path) {
        Ok(Some(record)) if record.format == SYNC_RECORD_FORMAT => return Some(record),
        Ok(Some(SyncRecord { format, .. })) => {
            tracing::warn!(path = %path.display(), format, "unknown format of the record of the last `sync`");
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "cannot read the record of the last `sync`"),
    }
    None
}

pub(super) fn write_sync_record(folder: &Path, last: LastSync) -> Result<(), StateError> {
    replace(folder, SYNC_RECORD_NAME, &SyncRecord { format: SYNC_RECORD_FORMAT, last })
}

/// Removes unfinished files of processes that were killed.
pub(super) fn sweep(folder: &Path) {
    state_folder::sweep(folder, LEFT_AFTER, |path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        [UNFINISHED, journal::UNFINISHED].iter().any(|prefix| name.starts_with(prefix.as_bytes()))
    });
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StateError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(path, "read")(error)),
    };
    let content =
        |error: serde_json::Error| StateError::Content { path: path.to_owned(), reason: error.to_string() };
    serde_json::from_slice(&bytes).map(Some).map_err(content)
}

fn replace(folder: &Path, name: &str, content: &impl Serialize) -> Result<(), StateError> {
    let path = folder.join(name);
    let replace = || -> io::Result<()> {
        // A temporary file is readable by its owner only, as it must be for secrets.
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
        serde_json::to_writer_pretty(&mut file, content)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        sync_folder(folder)
    };
    replace().map_err(io_error(&path, "written"))
}

pub(super) fn lock(folder: &Path) -> Result<FileLock, StateError> {
    let path = folder.join(LOCK_NAME);
    let lock = state_folder::lock(&path).map_err(io_error(&path, "locked"))?;
    lock.ok_or(StateError::InUse { path })
}

/// Whether a process has locked the state.
pub(super) fn is_in_use(folder: &Path) -> Result<bool, StateError> {
    let path = folder.join(LOCK_NAME);
    is_locked(&path).map_err(io_error(&path, "read"))
}

/// Whether a run works on the copy of this state folder.
pub(super) fn is_being_synchronised(folder: &Path) -> Result<bool, StateError> {
    let path = folder.join(COPY_LOCK_NAME);
    is_locked(&path).map_err(io_error(&path, "read"))
}

pub(super) fn io_error(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io { path: path.clone(), doing, source }
}
