//! The path of a file that is looked for: within its folder, if that is held open, since the system then need not resolve the
//! whole path for each file.

use std::fs::File;
use std::io;
use std::path::Path;

use super::status::{Identity, Status};

/// The path of a file that is looked for; nothing need be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePath<'a> {
    path: &'a Path,
    /// The folder in which it lies, where that is held open.
    #[cfg_attr(not(unix), expect(dead_code, reason = "elsewhere files are found by their paths"))]
    folder: Option<&'a File>,
}

impl<'a> FilePath<'a> {
    /// A path by itself.
    pub(super) fn at(path: &'a Path) -> Self {
        Self { path, folder: None }
    }

    /// A path in its folder, where that is held open.
    pub(super) fn within(path: &'a Path, folder: Option<&'a File>) -> Self {
        Self { path, folder }
    }

    /// The whole path.
    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// What is there, which is not opened: with `follows` what a symbolic link leads to, and the link itself without.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn status(&self, follows: bool) -> io::Result<Status> {
        use rustix::fs::AtFlags;
        let links = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Status::of_name(self.folder, self.name(), links)
    }

    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    pub(super) fn status(&self, follows: bool) -> io::Result<Status> {
        let metadata = if follows { self.path.metadata() } else { self.path.symlink_metadata() };
        Status::of(&metadata?)
    }

    /// Opens it. A pipe does not wait for its writer, and a symbolic link is followed only with `follows`.
    #[cfg(unix)]
    fn open(&self, follows: bool) -> io::Result<File> {
        use rustix::fs::{CWD, Mode, OFlags, openat};
        use std::os::fd::AsFd as _;
        let links = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | links;
        let folder = self.folder.map_or(CWD, |folder| folder.as_fd());
        let opened = rustix::io::retry_on_intr(|| openat(folder, self.name(), flags, Mode::empty()));
        Ok(opened?.into())
    }

    #[cfg(not(unix))]
    fn open(&self, _: bool) -> io::Result<File> {
        File::open(self.path)
    }

    /// The path from the folder, if that is held open.
    #[cfg(unix)]
    fn name(&self) -> &'a Path {
        self.folder.and_then(|_| self.path.file_name()).map_or(self.path, Path::new)
    }
}

/// Opens a file as it was judged: itself and not what a symbolic link has put in its place since, or with `target` what the link led to.
/// `None` when it is gone, or another, which has to be judged again.
pub(super) fn open_judged(
    path: FilePath<'_>,
    target: Option<Identity>,
) -> io::Result<Option<(File, Status)>> {
    let file = match path.open(target.is_some()) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let status = Status::of_open(&file)?;
    let is_another = target.is_some() && target != status.identity;
    Ok((status.is_file && !is_another).then_some((file, status)))
}

/// Opens a folder, and nothing that has taken its place.
#[cfg(unix)]
pub(super) fn open_folder(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::io::retry_on_intr(|| open(path, flags, Mode::empty()))?.into())
}

#[cfg(not(unix))]
pub(super) fn open_folder(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Whether an open folder is still what its path leads to.
pub(super) fn is_there(path: &Path, open: &File) -> bool {
    let found = FilePath::at(path).status(true);
    found.is_ok_and(|found| Status::of_open(open).is_ok_and(|open| open.identity == found.identity))
}

/// Whether it is certain that nothing is there, or, where no link is followed, a link. Of no other error can that be said: a disk that
/// fails for a moment must not look like a deletion.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) || is_loop(error)
}

/// Whether a symbolic link is there that is not followed, or one that leads to itself.
#[cfg(unix)]
pub(super) fn is_loop(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // Some systems say MLINK where a link is not followed.
    Errno::from_io_error(error).is_some_and(|errno| errno == Errno::LOOP || errno == Errno::MLINK)
}

#[cfg(not(unix))]
pub(super) fn is_loop(_: &io::Error) -> bool {
    false
}
