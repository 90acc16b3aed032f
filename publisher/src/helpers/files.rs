//! What the other modules need of the file system. Tests can interrupt each step that changes it.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use resync_core::{
    digest::{Algorithm, Digest, Hasher, Hashes},
    durable::{self, folder_of, sync_folder},
};
use serde::Serialize;

/// The SHA-256 digest of what is left to read of a file.
pub(crate) fn digest_of(file: File) -> io::Result<Digest> {
    let hashes = hashes_of(file, [Algorithm::Sha256])?;
    Ok(*hashes.get(Algorithm::Sha256).expect("it was asked for SHA-256"))
}

/// The same by several algorithms.
pub(crate) fn hashes_of(file: File, algorithms: impl IntoIterator<Item = Algorithm>) -> io::Result<Hashes> {
    let mut hasher = Hasher::new(algorithms);
    io::copy(&mut BufReader::with_capacity(128 * 1024, file), &mut hasher)?;
    Ok(hasher.finish())
}

/// A point at which tests can interrupt a run: everything before it has happened, and nothing after it.
#[cfg_attr(not(test), expect(clippy::unnecessary_wraps, reason = "only tests interrupt runs"))]
pub(crate) fn step() -> io::Result<()> {
    #[cfg(test)]
    if tests::is_interrupted() {
        return Err(io::Error::other("interrupted"));
    }
    Ok(())
}

/// The content of a file; none where it does not exist.
pub(crate) fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    if_there(fs::read(path))
}

/// `None` instead of the error that something does not exist.
pub(crate) fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// The folders in a folder, by name; none where it does not exist.
pub(crate) fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = if_there(fs::read_dir(folder))?.into_iter().flatten();
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    Ok(paths)
}

/// Removes a folder with all that is in it, if it exists.
pub(crate) fn remove_folder(folder: &Path) -> io::Result<()> {
    if_there(fs::remove_dir_all(folder)).map(drop)
}

/// Gives a file another name in the same folder, unless that was done before.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    if !from.try_exists()? {
        return Ok(());
    }
    fs::rename(from, to)?;
    sync_folder(folder_of(to))
}

/// Removes a file durably, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    if is_removed(path)? { sync_folder(folder_of(path)) } else { Ok(()) }
}

/// Removes a file, if it exists. A crash may bring it back until something else syncs its folder.
pub(crate) fn remove_unsynced(path: &Path) -> io::Result<()> {
    is_removed(path).map(drop)
}

/// Whether there was something to remove.
fn is_removed(path: &Path) -> io::Result<bool> {
    step()?;
    Ok(if_there(fs::remove_file(path))?.is_some())
}

/// Writes `bytes` to `path`, as [`durable::replace`] does.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    step()?;
    durable::replace(path, bytes)?;
    // A disk may also fail when the file is in its place and its folder is synced.
    step()
}

/// Writes a value as JSON, as [`replace`] does.
pub(crate) fn replace_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    replace(path, &bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{cell::Cell, time::SystemTime};

    use resync_core::build::Stamp;

    use super::*;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Lets so many steps of this thread succeed and every later one fail; `None` lets all succeed.
    pub(crate) fn interrupt_after(steps: Option<u32>) {
        LEFT.set(steps);
    }

    pub(super) fn is_interrupted() -> bool {
        let left = LEFT.get();
        LEFT.set(left.map(|left| left.saturating_sub(1)));
        left == Some(0)
    }

    #[test]
    fn a_replaced_file_is_another_version_even_with_length_and_time_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let version = || Stamp::of(&fs::metadata(&path).unwrap()).unwrap();
        let write = |text: &[u8]| {
            replace(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        write(b"one");
        let first = version();
        assert_eq!(first, version());
        write(b"two");
        assert_ne!(first, version());
    }
}
