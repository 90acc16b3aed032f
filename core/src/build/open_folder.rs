//! A folder in which many files are looked for: it is held open, since the system then need not resolve the whole path of each.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::Stamp;
use super::file_path::{FilePath, is_gone, open_folder};
use super::status::Status;

/// A folder in which many files are looked for.
///
/// ```
/// use std::path::Path;
///
/// use resync_core::build::OpenFolder;
///
/// let folder = tempfile::tempdir()?;
/// std::fs::create_dir(folder.path().join("a"))?;
/// std::fs::write(folder.path().join("a/b"), "three")?;
/// let open = OpenFolder::open(folder.path());
/// assert_eq!(open.stamp(Path::new("a/b"))?.map(|stamp| stamp.length()), Some(5));
/// assert_eq!(open.stamp(Path::new("a"))?, None);
/// assert_eq!(open.stamp(Path::new("a/b/c"))?, None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct OpenFolder {
    path: PathBuf,
    /// Absent where there was none: then files are found by their paths, as soon as there is one.
    #[cfg_attr(
        not(all(target_os = "linux", target_pointer_width = "64")),
        expect(dead_code, reason = "elsewhere files are found by their paths")
    )]
    open: Option<File>,
}

impl OpenFolder {
    /// Opens a folder. None need be there.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let open = open_folder(&path).ok();
        Self { path, open }
    }

    /// What the file with this path below the folder is like now; `None` where there is no file. A symbolic link is followed.
    pub fn stamp(&self, name: &Path) -> io::Result<Option<Stamp>> {
        match self.status(name) {
            Ok(status) => Ok(status.is_file.then_some(status.stamp)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn status(&self, name: &Path) -> io::Result<Status> {
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        if let Some(open) = &self.open {
            return Status::of_name(Some(open), name, rustix::fs::AtFlags::empty());
        }
        FilePath::at(&self.path.join(name)).status(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_found_in_a_folder_that_was_there_and_in_one_that_was_made_later() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("folder");
        let early = OpenFolder::open(&path);
        assert_eq!(early.stamp(Path::new("a/b")).unwrap(), None);
        fs::create_dir_all(path.join("a")).unwrap();
        fs::write(path.join("a/b"), "three").unwrap();
        let expected = Stamp::of(&fs::metadata(path.join("a/b")).unwrap()).unwrap();
        for folder in [early, OpenFolder::open(&path)] {
            assert_eq!(folder.stamp(Path::new("a/b")).unwrap(), Some(expected));
            for nothing in ["a", "a/c", "a/b/c", "d/b"] {
                assert_eq!(folder.stamp(Path::new(nothing)).unwrap(), None, "{nothing}");
            }
        }
    }
}
