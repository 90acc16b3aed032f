//! What the other rooms need of the file system: replacing a file so that every reader, and every crash, sees the old one or the new one
//! whole, and telling two versions of a file apart.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, Write},
    path::Path,
    time::SystemTime,
};

const TEMPORARY_PREFIX: &str = ".resync-";
const TEMPORARY_SUFFIX: &str = ".tmp";

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
        Ok(()) => sync_folder(to.parent().unwrap_or(Path::new("."))),
    }
}

/// Removes a file; where it is gone, that has been done.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    act()?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(path.parent().unwrap_or(Path::new("."))),
    }
}

/// Writes `bytes` to `path`: a temporary file beside it, fsync, rename, fsync of the folder. Missing folders are made.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    act()?;
    let folder = path.parent().unwrap_or(Path::new("."));
    make_folder(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY_PREFIX).suffix(TEMPORARY_SUFFIX);
    if let Some(permissions) = readable_as_the_umask_allows() {
        builder.permissions(permissions);
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// Removes the temporary files that a killed run left in `folder`. Only for who holds the lock of the site.
pub(crate) fn sweep(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(TEMPORARY_PREFIX) && name.ends_with(TEMPORARY_SUFFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes a folder and those above it, each name durable.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => Err(error),
        _ => sync_folder(folder.parent().unwrap_or(Path::new("."))),
    }
}

/// Temporary files are private by default, but a web server under another user must read what replaces a document.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "other systems have no such permissions")]
fn readable_as_the_umask_allows() -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Some(Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn readable_as_the_umask_allows() -> Option<Permissions> {
    None
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
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
    fn a_file_is_replaced_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c.xml");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_what_is_published() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ordinary, published) = (folder.path().join("ordinary"), folder.path().join("published"));
        fs::write(&ordinary, "x").unwrap();
        replace(&published, b"x").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&published), mode(&ordinary));
    }

    #[test]
    fn what_a_killed_run_left_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".resync-Ab12.tmp", ".resync-notes", "mine.tmp"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        sweep(folder.path()).unwrap();
        sweep(&folder.path().join("missing")).unwrap();
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".resync-notes", "mine.tmp"]);
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
