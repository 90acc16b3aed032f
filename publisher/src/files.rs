//! What the other rooms need of the file system: steps of a run that tests can cut short, and telling two versions of a file apart.

use std::{
    fs::{self, File, Metadata},
    io::{self, BufReader},
    path::Path,
    time::SystemTime,
};

use resync_core::{
    digest::{Algorithm, Digest, Hasher},
    durable::{self, folder_of, sync_folder},
};

/// What differs between two versions of a file, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) length: u64,
    pub(crate) modified: SystemTime,
    number: u64,
}

impl Version {
    pub(crate) fn of(metadata: &Metadata) -> io::Result<Self> {
        Ok(Self { length: metadata.len(), modified: metadata.modified()?, number: file_number(metadata) })
    }
}

/// The SHA-256 digest of what is left to read of a file.
pub(crate) fn digest_of(file: File) -> io::Result<Digest> {
    let mut hasher = Hasher::new([Algorithm::Sha256]);
    io::copy(&mut BufReader::with_capacity(128 * 1024, file), &mut hasher)?;
    Ok(*hasher.finish().get(Algorithm::Sha256).expect("it was asked for SHA-256"))
}

/// A point at which a run can be cut short. Tests say which one; there, everything before it has happened, and nothing after.
#[cfg_attr(not(test), expect(clippy::unnecessary_wraps, reason = "only tests cut runs short"))]
pub(crate) fn act() -> io::Result<()> {
    #[cfg(test)]
    if tests::is_cut_short() {
        return Err(io::Error::other("cut short"));
    }
    Ok(())
}

/// Gives a file another name, in the same folder; where it is gone, that has been done.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    act()?;
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(folder_of(to)),
    }
}

/// Removes a file; where it is gone, that has been done.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    if is_removed(path)? { sync_folder(folder_of(path)) } else { Ok(()) }
}

/// The same, but a crash may bring it back, until its folder is synced for something else.
pub(crate) fn remove_for_now(path: &Path) -> io::Result<()> {
    is_removed(path).map(drop)
}

/// Whether there was something to remove.
fn is_removed(path: &Path) -> io::Result<bool> {
    act()?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Writes `bytes` to `path`, as [`durable::replace`] does.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    act()?;
    durable::replace(path, bytes)?;
    // A disk may also fail when the file is in its place and its folder is synced.
    act()
}

#[cfg(unix)]
fn file_number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn file_number(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Lets so many acts of this thread succeed and every later one fail; `None` lets all succeed.
    pub(crate) fn cut_short_after(acts: Option<u32>) {
        LEFT.set(acts);
    }

    pub(super) fn is_cut_short() -> bool {
        let left = LEFT.get();
        LEFT.set(left.map(|left| left.saturating_sub(1)));
        left == Some(0)
    }

    #[test]
    fn a_replaced_file_is_another_version_even_with_length_and_time_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let version = || Version::of(&fs::metadata(&path).unwrap()).unwrap();
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
