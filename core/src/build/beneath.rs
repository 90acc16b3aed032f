//! Opens a file below a folder without leaving the folder, whatever takes the place of a part of its path meanwhile.

use std::fs::File;
use std::io;
use std::path::{Component, Path};

/// Opens the file with the path `relative` below `folder`, to be read.
///
/// On Unix no symbolic link below the folder is followed: one is an error, and no absence. The path of the folder itself may have links.
/// Elsewhere the file is opened by its path.
///
/// A pipe does not wait for its writer. Judge what was opened by the metadata of the open file.
///
/// # Errors
/// Those of the operating system, and [`io::ErrorKind::InvalidInput`] for a path that is absolute or has `..`.
///
/// [`io::ErrorKind::WouldBlock`] while another program has a lease on the file (Samba, for its oplocks). It has been asked to give the
/// lease back, so a later call succeeds. To wait for that would be to wait for the writer of a pipe that takes the file's place.
///
/// ```
/// use std::path::Path;
///
/// use resync_core::build::open_beneath;
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("a"), "three")?;
/// assert_eq!(open_beneath(folder.path(), Path::new("a"))?.metadata()?.len(), 5);
/// assert!(open_beneath(folder.path(), Path::new("../a")).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open_beneath(folder: &Path, relative: &Path) -> io::Result<File> {
    if relative.components().all(|part| matches!(part, Component::Normal(_))) {
        system::open(folder, relative)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

#[cfg(unix)]
mod system {
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::{CWD, Mode, OFlags, openat};
    use rustix::io::{Errno, retry_on_intr};

    const FILE: OFlags =
        OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW);

    /// A folder that is only passed through need not be readable.
    #[cfg(target_os = "linux")]
    const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    #[cfg(not(target_os = "linux"))]
    const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    pub(super) fn open(folder: &Path, relative: &Path) -> io::Result<File> {
        let folder = retry_on_intr(|| openat(CWD, folder, FOLDER, Mode::empty()))?;
        let opened = match in_one_step(&folder, relative) {
            // An old kernel, or a container whose filter of system calls is older than this one.
            Err(Errno::NOSYS | Errno::PERM) => step_by_step(folder, relative),
            opened => opened,
        };
        Ok(opened?.into())
    }

    #[cfg(target_os = "linux")]
    fn in_one_step(folder: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
        use rustix::fs::{ResolveFlags, openat2};
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        retry_on_intr(|| openat2(folder, relative, FILE, Mode::empty(), resolve))
    }

    #[cfg(not(target_os = "linux"))]
    fn in_one_step(_: &OwnedFd, _: &Path) -> Result<OwnedFd, Errno> {
        Err(Errno::NOSYS)
    }

    /// Each folder is held open while the next name is looked up in it.
    fn step_by_step(mut folder: OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
        let name = relative.file_name().ok_or(Errno::NOENT)?;
        for part in relative.parent().into_iter().flat_map(Path::components) {
            let opened =
                retry_on_intr(|| openat(&folder, part.as_os_str(), FOLDER | OFlags::NOFOLLOW, Mode::empty()));
            // A link is not told from a file here, and must not look like an absence.
            folder = opened.map_err(|errno| if errno == Errno::NOTDIR { Errno::LOOP } else { errno })?;
        }
        retry_on_intr(|| openat(&folder, name, FILE, Mode::empty()))
    }

    #[cfg(test)]
    pub(super) fn open_step_by_step(folder: &Path, relative: &Path) -> io::Result<File> {
        let folder = openat(CWD, folder, FOLDER, Mode::empty())?;
        Ok(step_by_step(folder, relative)?.into())
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn open(folder: &Path, relative: &Path) -> io::Result<File> {
        File::open(folder.join(relative))
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::file_path::is_loop;
    use super::*;

    type Open = fn(&Path, &Path) -> io::Result<File>;

    /// With one system call, if the kernel has it, and without.
    const WAYS: [Open; 2] = [open_beneath, system::open_step_by_step];

    #[test]
    fn a_file_is_opened_and_its_folder_may_be_reached_by_a_link() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("real/a")).unwrap();
        fs::write(place.path().join("real/a/b"), "three").unwrap();
        symlink("real", place.path().join("link")).unwrap();
        for open in WAYS {
            for folder in ["real", "link"] {
                let file = open(&place.path().join(folder), Path::new("a/b")).unwrap();
                assert_eq!(io::read_to_string(file).unwrap(), "three");
            }
            let missing = open(&place.path().join("real"), Path::new("a/c")).unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn no_link_below_the_folder_is_followed_and_none_looks_like_an_absence() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("folder/a")).unwrap();
        for name in ["secret", "folder/a/b"] {
            fs::write(place.path().join(name), "x").unwrap();
        }
        symlink("../secret", place.path().join("folder/file")).unwrap();
        symlink("..", place.path().join("folder/up")).unwrap();
        symlink("a", place.path().join("folder/inside")).unwrap();
        for open in WAYS {
            for name in ["file", "up/secret", "inside/b"] {
                let error = open(&place.path().join("folder"), Path::new(name)).unwrap_err();
                assert!(is_loop(&error), "{name}: {error}");
            }
        }
    }

    #[test]
    fn a_path_that_leads_up_or_is_absolute_is_refused() {
        let place = tempfile::tempdir().unwrap();
        for path in ["../secret", "a/../../secret", "/etc/hostname"] {
            let error = open_beneath(place.path(), Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }

    #[test]
    fn a_pipe_does_not_wait_for_its_writer() {
        let place = tempfile::tempdir().unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, place.path().join("pipe"), mode).unwrap();
        for open in WAYS {
            assert!(!open(place.path(), Path::new("pipe")).unwrap().metadata().unwrap().is_file());
        }
    }
}
