//! Which errors of a file system are of the settings, and which of the disk.

use std::io::{self, ErrorKind};

/// Whether the path is to blame, so that trying again does not help until somebody names another or mends it.
pub(crate) fn is_of_the_path(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
    )
}
