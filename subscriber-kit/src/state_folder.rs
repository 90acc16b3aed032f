//! The folder in which a Destination keeps its state, and the mark by which it is recognised.

use std::fs::{DirBuilder, File};
use std::io;
use std::path::Path;

/// The name of the state folder inside a copy's directory.
pub const STATE_FOLDER: &str = ".resync-destination";

/// A file in every state folder, so that no copy treats the folder as a part of itself. Its name begins like [`STATE_FOLDER`], so
/// that no Source can name it.
const MARK_NAME: &str = ".resync-destination-state";

/// Makes the folder for its owner only, if it is missing, and marks it.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    make_private_folder(folder)?;
    File::options().create(true).append(true).open(folder.join(MARK_NAME)).map(drop)
}

/// Whether a state is kept in this folder.
pub(crate) fn is_state_folder(folder: &Path) -> bool {
    folder.join(MARK_NAME).symlink_metadata().is_ok()
}

pub(crate) fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}
