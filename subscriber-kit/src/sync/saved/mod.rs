//! What is saved about a copy between runs.

pub(crate) mod cache;
pub(crate) mod copied_source;
pub(crate) mod copy_state;
pub(crate) mod earlier_files;
pub(crate) mod origins;

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use crate::state_folder::STATE_FOLDER;

/// A file of the state in the directory of a copy.
fn state_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(STATE_FOLDER).join(name)
}

/// `None` where there is no such file.
fn if_there<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// A record that cannot be used, and that no run may take for none.
fn unusable(record: &Path, why: impl Display) -> io::Error {
    io::Error::other(format!("{}: {why}; move it away", record.display()))
}
