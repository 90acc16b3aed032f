//! How much room a disk has.

use std::io;
use std::path::Path;

/// How many bytes of the disk are left to others.
#[cfg(unix)]
const RESERVE: u64 = 64 * 1024 * 1024;

/// How many bytes may be written in a folder, less a reserve; an error where that cannot be told.
#[cfg(unix)]
pub(crate) fn free_space(folder: &Path) -> io::Result<u64> {
    let told = rustix::fs::statvfs(folder)?;
    Ok(told.f_bavail.saturating_mul(told.f_frsize).saturating_sub(RESERVE))
}

/// How many bytes may be written in a folder; an error where that cannot be told.
#[cfg(not(unix))]
pub(crate) fn free_space(_: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}
