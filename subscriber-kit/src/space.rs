//! How much room there is for what is copied.

use std::io;
use std::path::Path;

use resync_common::space::Space;

/// How many bytes of the disk are left to others.
const RESERVE: u64 = 64 * 1024 * 1024;

/// How many bytes may be written in a folder, less a reserve; an error where that cannot be told.
pub(crate) fn free_space(folder: &Path) -> io::Result<u64> {
    Ok(Space::of(folder)?.free.saturating_sub(RESERVE))
}
