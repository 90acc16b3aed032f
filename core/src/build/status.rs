//! What the operating system says of a file: whether it is one, which, and the state that it is in.

use std::fs::{File, Metadata};
use std::io;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use std::path::Path;

use super::Stamp;

/// Which file or folder it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    #[cfg(test)]
    pub(super) const NOBODY: Self = Self { device: u64::MAX, number: u64::MAX };

    #[cfg(unix)]
    #[expect(clippy::unnecessary_wraps, reason = "other systems do not tell")]
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        Some(Self { device: metadata.dev(), number: metadata.ino() })
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Metadata) -> Option<Self> {
        None
    }
}

/// What is known of a file at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    /// Neither a folder nor a pipe, socket or device.
    pub(super) is_file: bool,
    pub(super) identity: Option<Identity>,
    pub(super) stamp: Stamp,
}

impl Status {
    /// Each file is looked at twice while it is read. Here the plain system call takes two thirds of the time of what the standard library
    /// asks for.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn of_open(file: &File) -> io::Result<Self> {
        Ok(Self::of_stat(&rustix::fs::fstat(file)?))
    }

    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    pub(super) fn of_open(file: &File) -> io::Result<Self> {
        Self::of(&file.metadata()?)
    }

    /// What has a name in a folder, or a path without one.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn of_name(
        folder: Option<&File>,
        name: &Path,
        flags: rustix::fs::AtFlags,
    ) -> io::Result<Self> {
        use std::os::fd::AsFd as _;
        let folder = folder.map_or(rustix::fs::CWD, |folder| folder.as_fd());
        Ok(Self::of_stat(&rustix::fs::statat(folder, name, flags)?))
    }

    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn of_stat(status: &rustix::fs::Stat) -> Self {
        let kind = rustix::fs::FileType::from_raw_mode(status.st_mode);
        Self {
            is_file: kind == rustix::fs::FileType::RegularFile,
            identity: Some(Identity { device: status.st_dev, number: status.st_ino }),
            stamp: Stamp::of_status(status),
        }
    }

    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    pub(super) fn of(metadata: &Metadata) -> io::Result<Self> {
        Ok(Self {
            is_file: metadata.is_file(),
            identity: Identity::of(metadata),
            stamp: Stamp::of(metadata)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_and_its_metadata_say_the_same() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one").unwrap();
        let folder = File::open(file.path().parent().unwrap()).unwrap();
        for file in [file.as_file(), &folder] {
            let (status, metadata) = (Status::of_open(file).unwrap(), file.metadata().unwrap());
            assert_eq!(status.is_file, metadata.is_file());
            assert_eq!(status.identity, Identity::of(&metadata));
            assert_eq!(status.stamp, Stamp::of(&metadata).unwrap());
        }
    }
}
