//! The calls that make files durable, in one place, so that a test can observe them.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use resync_core::durable;

/// Makes files and names durable.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Makes the content of a file durable.
    fn sync_file(&self, file: &File) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes everything on the file system of `file` durable.
    fn sync_all(&self, file: &File) -> io::Result<()>;

    /// Whether [`sync_all`](Self::sync_all) is reliable for this file, and reports errors.
    fn sync_all_reports_errors(&self, file: &File) -> bool;
}

/// The real disk.
#[derive(Debug)]
pub(crate) struct Real;

impl Disk for Real {
    fn sync_file(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        durable::sync_folder(folder)
    }

    #[cfg(target_os = "linux")]
    fn sync_all(&self, file: &File) -> io::Result<()> {
        Ok(rustix::fs::syncfs(file)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_all(&self, _: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// On a local file system, under a kernel that reports every failed write since the file was opened (Linux 5.8).
    #[cfg(target_os = "linux")]
    fn sync_all_reports_errors(&self, file: &File) -> bool {
        /// As `statfs` names ext2 to ext4, XFS, btrfs, F2FS and tmpfs.
        const OWN: [rustix::fs::FsWord; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];
        let is_own = rustix::fs::fstatfs(file).is_ok_and(|found| OWN.contains(&found.f_type));
        is_own
            && std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .is_ok_and(|release| is_since_5_8(&release))
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_all_reports_errors(&self, _: &File) -> bool {
        false
    }
}

#[cfg(target_os = "linux")]
fn is_since_5_8(release: &str) -> bool {
    let mut parts = release.split(['.', '-']).map(|part| part.trim().parse::<u32>().ok());
    let version = (parts.next().flatten(), parts.next().flatten());
    version >= (Some(5), Some(8))
}

#[cfg(unix)]
#[cfg(test)]
mod tests;
