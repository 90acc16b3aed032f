//! Which errors of a file system are of the settings, and which of the disk, and what to do about one.

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

/// Whether the disk is full, or a quota of the user, which shows nowhere before.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// What to do about a file with this error.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        _ if is_full(error) => "free some space",
        ErrorKind::PermissionDenied => "give the user of this program access to it",
        ErrorKind::InvalidFilename => "use a directory with a shorter path",
        _ => "check the disk",
    }
}
