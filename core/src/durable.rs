//! Files that every reader, and every crash, sees the old way or the new way whole: a temporary file beside the target, fsync, rename, fsync
//! of the folder.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::{Builder, NamedTempFile};

/// How the name of a file begins and ends that is not in its place yet.
const UNFINISHED: (&str, &str) = (".resync-", ".tmp");
/// Files that are synced one by one, all at once.
const TOGETHER: usize = 16;

/// Writes `bytes` to `path`. Missing folders are made.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("a/b.xml");
/// resync_core::durable::replace(&path, b"<urlset/>")?;
/// assert_eq!(std::fs::read(path)?, b"<urlset/>");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, temporary)
}

/// Writes `bytes` to `path`, for the eyes of its owner only. Missing folders are made.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, |folder| builder().tempfile_in(folder))
}

fn put(path: &Path, bytes: &[u8], new: impl Fn(&Path) -> io::Result<NamedTempFile>) -> io::Result<()> {
    let folder = folder_of(path);
    make_folder(folder)?;
    let mut file = new(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// Brings files to the disk, all at once: a journal takes what comes together in one step.
///
/// ```
/// let files = [tempfile::tempfile()?, tempfile::tempfile()?];
/// resync_core::durable::sync_together(&files)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sync_together(files: &[File]) -> io::Result<()> {
    let Some((first, others)) = files.split_first() else { return Ok(()) };
    thread::scope(|scope| {
        // Where no thread can be had, in line.
        let begin =
            |file| thread::Builder::new().spawn_scoped(scope, move || File::sync_all(file)).map_err(|_| file);
        let others: Vec<_> = others.iter().map(begin).collect();
        let end = |other: Result<thread::ScopedJoinHandle<'_, _>, &File>| match other {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(file) => file.sync_all(),
        };
        others.into_iter().map(end).fold(first.sync_all(), Result::and)
    })
}

/// Brings many files, and the names that folders have, to the disk. Above a few of them the whole file system that `within` lies on is
/// synced at once, where the system can: that takes much less than a sync for each.
pub fn sync_many(files: &[PathBuf], folders: &BTreeSet<PathBuf>, within: &Path) -> io::Result<()> {
    if files.len() + folders.len() > TOGETHER && sync_file_system(within)? {
        return Ok(());
    }
    for some in files.chunks(TOGETHER) {
        let open = |path| File::options().write(true).open(path);
        sync_together(&some.iter().map(open).collect::<io::Result<Vec<_>>>()?)?;
    }
    folders.iter().try_for_each(|folder| sync_folder(folder))
}

/// Whether a whole file system was synced.
#[cfg(target_os = "linux")]
fn sync_file_system(within: &Path) -> io::Result<bool> {
    rustix::fs::syncfs(File::open(within)?)?;
    Ok(true)
}

/// Elsewhere that is not to be had.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "on Linux it may fail")]
fn sync_file_system(_: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Gives an empty file the bytes of another, where the file system can share them (a reflink): nothing is copied, and a later change of
/// one is none of the other. Says whether it did.
#[cfg(all(target_os = "linux", not(any(target_arch = "sparc", target_arch = "sparc64"))))]
pub fn share_bytes(from: &File, to: &File) -> bool {
    rustix::fs::ioctl_ficlone(to, from).is_ok()
}

/// Elsewhere nothing is shared.
#[cfg(not(all(target_os = "linux", not(any(target_arch = "sparc", target_arch = "sparc64")))))]
pub fn share_bytes(_: &File, _: &File) -> bool {
    false
}

/// A temporary file beside its target; a web server under another user may read what it becomes. [`sweep`] removes it after a crash.
pub fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = builder();
    share(&mut builder);
    builder.tempfile_in(folder)
}

/// Makes a file that is private and not in its place yet.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(UNFINISHED.0).suffix(UNFINISHED.1);
    builder
}

/// Whether a name is that of a file that is not in its place yet.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with(UNFINISHED.0) && name.ends_with(UNFINISHED.1)
}

/// Removes what a killed run left in a folder that is not in its place; nothing where there is no folder. For who knows that nobody else
/// writes there.
pub fn sweep(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if is_unfinished(&entry.file_name().to_string_lossy()) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The folder in which a file lies.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a folder and those above it that are missing. Each that is made has a durable name before anything is in it. One that is there is
/// left alone, although a process that was killed may have just made it: [`make_folder_durable`] sees to that.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() { Ok(()) } else { make_folder_durable(folder) }
}

/// As [`make_folder`], and makes the name of a folder that is there durable. It costs a sync: for who does it once for each folder.
pub fn make_folder_durable(folder: &Path) -> io::Result<()> {
    make_folder_by(folder, make_one, sync_folder)
}

/// As [`make_folder_durable`], where `make` makes one folder and `sync` makes durable which names one has.
pub fn make_folder_by(
    folder: &Path,
    make: impl Fn(&Path) -> io::Result<()>,
    sync: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let missing: Vec<_> = missing_of(folder).collect();
    let sync_name = |of: &Path| sync(folder_of(of));
    // Folders that were there before may be such as this user can neither open nor change.
    let try_to_sync_name = |of: &Path| match sync_name(of) {
        Err(error) if is_up_to_others(error.kind()) => Ok(()),
        synced => synced,
    };
    // A process that was killed may have made the lowest one that is there just before. Those above it are durable: each is, before there is
    // anything in it.
    if let Some(lowest) = folder.ancestors().nth(missing.len()).filter(|there| there.parent().is_some()) {
        try_to_sync_name(lowest)?;
    }
    let mut missing = missing.into_iter().rev();
    if let Some(highest) = missing.next() {
        make(highest)?;
        try_to_sync_name(highest)?;
    }
    for folder in missing {
        make(folder)?;
        sync_name(folder)?;
    }
    Ok(())
}

fn is_up_to_others(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// A folder and those above it that are not there, the lowest first.
fn missing_of(folder: &Path) -> impl Iterator<Item = &Path> {
    folder.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.is_dir())
}

/// Makes a folder in one that is there; another process may make it at the same time.
fn make_one(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => Err(error),
        _ => Ok(()),
    }
}

/// Makes folders and those above them, and gives the folders that have to be [synced](sync_folder) so that they last. After a process that
/// was killed before it did so, nobody knows them.
pub fn make_folders<'a>(folders: impl IntoIterator<Item = &'a Path>) -> io::Result<BTreeSet<PathBuf>> {
    let mut unsynced = BTreeSet::new();
    for folder in folders {
        let missing: Vec<_> = missing_of(folder).collect();
        for folder in missing.into_iter().rev() {
            make_one(folder)?;
            unsynced.insert(folder_of(folder).to_owned());
        }
    }
    Ok(unsynced)
}

/// Folders that are brought to the disk with files.
#[cfg(unix)]
pub(crate) fn open_folders(folders: &BTreeSet<PathBuf>) -> io::Result<Vec<File>> {
    folders.iter().map(File::open).collect()
}

/// None where folders cannot be synced.
#[cfg(not(unix))]
pub(crate) fn open_folders(_: &BTreeSet<PathBuf>) -> io::Result<Vec<File>> {
    Ok(Vec::new())
}

/// Makes durable which names a folder has.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes durable which names a folder has; nothing where folders cannot be synced.
#[cfg(not(unix))]
pub fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Temporary files are private by default.
#[cfg(unix)]
fn share(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt as _;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn share(_: &mut Builder<'_, '_>) {}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

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
    fn others_may_read_what_is_published_and_nothing_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ordinary, published) = (folder.path().join("ordinary"), folder.path().join("published"));
        fs::write(&ordinary, "x").unwrap();
        replace(&published, b"x").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&published), mode(&ordinary));
        let private = folder.path().join("private");
        replace_private(&private, b"x").unwrap();
        assert_eq!(mode(&private) & 0o777, 0o600);
    }

    #[test]
    fn few_files_and_many_are_synced_with_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        for number in [0, 3, 2 * TOGETHER] {
            let files: Vec<_> = (0..number).map(|number| folder.path().join(number.to_string())).collect();
            for file in &files {
                fs::write(file, "x").unwrap();
            }
            sync_many(&files, &BTreeSet::from([folder.path().to_owned()]), folder.path()).unwrap();
        }
        let missing = [folder.path().join("missing")];
        assert!(sync_many(&missing, &BTreeSet::new(), folder.path()).is_err());
    }

    #[test]
    fn shared_bytes_are_those_of_the_other_file_and_nothing_is_there_where_they_are_not_shared() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&from, "bytes").unwrap();
        let shared = share_bytes(&File::open(&from).unwrap(), &File::create(&to).unwrap());
        assert_eq!(fs::read(&to).unwrap(), if shared { &b"bytes"[..] } else { b"" });
    }

    #[test]
    fn each_folder_has_a_durable_name_before_the_next_is_made_in_it_and_so_has_the_lowest_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let steps = RefCell::new(Vec::new());
        let make = |made: &Path| {
            steps.borrow_mut().push(("make", made.to_owned()));
            make_one(made)
        };
        let sync = |synced: &Path| {
            steps.borrow_mut().push(("sync", synced.to_owned()));
            sync_folder(synced)
        };
        make_folder_by(&at("a/b"), make, sync).unwrap();
        let above = folder.path().parent().unwrap().to_owned();
        let expected = [
            ("sync", above),
            ("make", at("a")),
            ("sync", folder.path().to_owned()),
            ("make", at("a/b")),
            ("sync", at("a")),
        ];
        assert_eq!(steps.into_inner(), expected);
    }

    #[test]
    fn a_folder_is_made_in_one_that_cannot_be_synced_and_not_on_a_disk_that_fails_nor_in_the_place_of_a_file()
    {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("a/b");
        let fails_with = |kind: io::ErrorKind, below: &Path| {
            let below = below.to_owned();
            move |synced: &Path| if synced.starts_with(&below) { Err(kind.into()) } else { Ok(()) }
        };
        let anywhere = Path::new("");
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::InvalidInput] {
            assert!(make_folder_by(&made, make_one, fails_with(kind, anywhere)).is_err());
        }
        // The folder that was there, and not the one that was made in it.
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
            let other = folder.path().join(kind.to_string());
            make_folder_by(&other, make_one, fails_with(kind, anywhere)).unwrap();
            make_folder_by(&other, make_one, fails_with(kind, anywhere)).unwrap();
            let below = other.join("a/b");
            assert!(make_folder_by(&below, make_one, fails_with(kind, &other.join("a"))).is_err());
        }
        make_folder(&made).unwrap();
        assert!(made.is_dir());
        make_folder(&made).unwrap();
        fs::write(made.join("file"), "x").unwrap();
        assert!(make_folder(&made.join("file/c")).is_err());
    }

    #[test]
    fn a_folder_that_a_killed_process_may_have_made_gets_a_durable_name_by_one_sync() {
        let folder = tempfile::tempdir().unwrap();
        let synced = RefCell::new(Vec::new());
        let sync = |above: &Path| {
            synced.borrow_mut().push(above.to_owned());
            Ok(())
        };
        let made = folder.path().join("a");
        fs::create_dir(&made).unwrap();
        make_folder_by(&made, |_| panic!("it is there"), sync).unwrap();
        assert_eq!(synced.into_inner(), [folder.path()]);
    }

    #[test]
    fn folders_that_were_made_are_told_of_by_where_their_names_stand() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let made = make_folders([at("a/b").as_path(), at("a/c").as_path()]).unwrap();
        assert_eq!(made, BTreeSet::from([folder.path().to_owned(), at("a")]));
        assert!(at("a/b").is_dir() && at("a/c").is_dir());
        assert_eq!(make_folders([at("a/b").as_path()]).unwrap(), BTreeSet::new());
    }

    #[test]
    fn what_a_killed_run_left_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".resync-Ab12.tmp", ".resync-notes", "mine.tmp"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        sweep(folder.path()).unwrap();
        sweep(&folder.path().join("missing")).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".resync-notes", "mine.tmp"]);
    }
}
