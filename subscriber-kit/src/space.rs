//! How much of the free disk space may be used.

use std::io;
use std::path::Path;

use resync_common::space::Space;

/// How many bytes of the disk stay free.
const RESERVE: u64 = 64 * 1024 * 1024;

/// How many bytes may be written in a folder, less a reserve; an error if unknown.
pub(crate) fn free_space(folder: &Path) -> io::Result<u64> {
    Ok(Space::of(folder)?.free.saturating_sub(RESERVE))
}
