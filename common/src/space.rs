//! How much space a disk has.

use std::io;
use std::path::Path;

/// The space on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What is free for the user of this process.
    pub free: u64,
    /// What the disk has in all.
    pub size: u64,
}

impl Space {
    /// The disk that `folder` is on; an error where the system does not say.
    #[cfg(unix)]
    pub fn of(folder: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Self { free: bytes(disk.f_bavail), size: bytes(disk.f_blocks) })
    }

    /// The disk that the folder is on; an error where the system does not say.
    #[cfg(not(unix))]
    pub fn of(_: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_no_more_free_than_it_has() {
        let disk = Space::of(Path::new("/")).unwrap();
        assert!(disk.free <= disk.size && disk.size > 0);
        assert!(Space::of(Path::new("/there/is/no/such/folder")).is_err());
    }
}
