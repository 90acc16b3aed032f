//! How much room a disk has.

use std::path::Path;

/// The room on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// What is free for the hub's user.
    pub(crate) free: u64,
    /// What it has in all.
    pub(crate) size: u64,
}

impl Disk {
    /// The disk that this folder is on; `None` where the system does not say.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(folder).ok()?;
        Some(Self { free: disk.f_bavail * disk.f_frsize, size: disk.f_blocks * disk.f_frsize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_no_more_free_than_it_has() {
        let disk = Disk::of(Path::new("/")).unwrap();
        assert!(disk.free <= disk.size && disk.size > 0);
        assert_eq!(Disk::of(Path::new("/there/is/no/such/folder")), None);
    }
}
