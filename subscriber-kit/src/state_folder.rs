//! The folder in which a Destination keeps its state, and the mark by which it is recognised.

use std::fs::{DirBuilder, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use resync_core::durable::{make_folder_by, sync_folder};
use resync_core::lock::FileLock;

/// More than the moment for which [`is_locked`] takes a lock.
const LOOK: Duration = Duration::from_millis(50);

/// The name of the state folder inside a copy's directory.
pub const STATE_FOLDER: &str = ".resync-destination";

/// The lock of the runs on a copy, in the state folder inside its directory.
pub(crate) const COPY_LOCK_NAME: &str = "copy.lock";

/// A file in every state folder, so that no copy treats the folder as a part of itself. Its name begins like [`STATE_FOLDER`], so
/// that no Source can name it.
const MARK_NAME: &str = ".resync-destination-state";

/// How the name of a file begins that is not complete. As with the mark, no Source can name it.
pub(crate) const UNFINISHED_FILE: &str = ".resync-destination-unfinished-";

/// Takes a lock of a state folder; `None` while another process has it.
pub(crate) fn lock(path: &Path) -> io::Result<Option<FileLock>> {
    lock_by(|| FileLock::try_acquire(path))
}

/// As [`lock`], where `attempt` takes it.
pub(crate) fn lock_by(attempt: impl Fn() -> io::Result<Option<FileLock>>) -> io::Result<Option<FileLock>> {
    match attempt()? {
        // It may only be looked at.
        None => {
            std::thread::sleep(LOOK);
            attempt()
        }
        lock => Ok(lock),
    }
}

/// Whether a process has this lock. It is taken for a moment to see that.
pub(crate) fn is_locked(path: &Path) -> io::Result<bool> {
    // Network file systems lock only what may be written.
    match File::options().write(true).open(path) {
        Ok(file) => Ok(FileLock::try_lock(file)?.is_none()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ReadOnlyFilesystem) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Makes the folder durably, for its owner only, if it is missing, and marks it.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    make_by(folder, sync_folder)
}

/// As [`make`], where `sync` makes durable which names a folder has.
fn make_by(folder: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    make_folder_by(folder, make_private_folder, |above| {
        sync(above).inspect_err(|error| {
            tracing::debug!(%error, folder = %above.display(), "a folder above the state is not synced");
        })
    })?;
    File::options().create(true).append(true).open(folder.join(MARK_NAME)).map(drop)
}

/// Whether a state is kept in this folder.
pub(crate) fn is_state_folder(folder: &Path) -> bool {
    folder.join(MARK_NAME).symlink_metadata().is_ok()
}

/// Whether no copy treats this folder as a part of itself: a state is kept in it, or it is another copy.
pub(crate) fn is_foreign(folder: &Path) -> bool {
    is_state_folder(folder) || is_state_folder(&folder.join(STATE_FOLDER))
}

pub(crate) fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Removes what killed processes left in a folder: unfinished files that nobody has written into for so long. What cannot be removed does
/// no harm.
pub(crate) fn sweep(folder: &Path, left_after: Duration, is_unfinished: impl Fn(&Path) -> bool) {
    let Ok(found) = std::fs::read_dir(folder) else { return };
    for file in found.flatten().filter(|file| is_unfinished(&file.path())) {
        let written = file.metadata().and_then(|data| data.modified()).ok();
        if written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > left_after) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_lock_that_is_only_looked_at_keeps_no_run_away() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let attempts = Cell::new(0);
        let lock = lock_by(|| {
            attempts.set(attempts.get() + 1);
            if attempts.get() == 1 { Ok(None) } else { FileLock::try_acquire(file.path()) }
        });
        assert!(lock.unwrap().is_some());
        assert!(lock_by(|| Ok(None)).unwrap().is_none(), "who keeps it keeps others away");
    }

    #[test]
    fn a_state_is_kept_below_a_folder_that_cannot_be_listed_and_not_where_the_disk_fails() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("a/state");
        let made = above.path().join("a");
        let fails_above = |kind: io::ErrorKind| {
            let made = made.clone();
            move |synced: &Path| if synced == made { Ok(()) } else { Err(kind.into()) }
        };
        let error = make_by(&folder, fails_above(io::ErrorKind::StorageFull)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        make_by(&folder, fails_above(io::ErrorKind::PermissionDenied)).unwrap();
        assert!(is_state_folder(&folder), "it is made");

        let fails = |kind: io::ErrorKind| move |_: &Path| Err(kind.into());
        let error = make_by(&folder, fails(io::ErrorKind::StorageFull)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        make_by(&folder, fails(io::ErrorKind::PermissionDenied)).unwrap();
        assert!(is_state_folder(&folder), "it is there");
    }

    /// Makes folders in another one; `sync` fails before the sync of this number, as if the process were killed there. What was synced is added.
    fn make_until(last: usize, above: &Path, synced: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let (synced, count) = (RefCell::new(synced), Cell::new(0));
        make_by(&above.join("a/b/state"), |folder| {
            count.set(count.get() + 1);
            if count.get() == last {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let names = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
            synced.borrow_mut().extend(names.collect::<io::Result<Vec<_>>>()?);
            Ok(())
        })
    }

    #[test]
    fn each_folder_has_a_durable_name_wherever_a_process_that_made_some_was_killed() {
        for last in 1..=5 {
            let above = tempfile::tempdir().unwrap();
            let mut synced = BTreeSet::new();
            assert_eq!(make_until(last, above.path(), &mut synced).is_err(), last <= 4);
            make_until(usize::MAX, above.path(), &mut synced).unwrap();
            for made in ["a", "a/b", "a/b/state"] {
                assert!(synced.contains(&above.path().join(made)), "{made}, killed before sync {last}");
            }
        }
    }

    #[test]
    fn each_folder_that_got_a_name_is_synced() {
        let above = tempfile::tempdir().unwrap();
        let at = |path: &str| above.path().join(path);
        let synced = || {
            let synced = RefCell::new(Vec::new());
            let sync = |folder: &Path| {
                synced.borrow_mut().push(folder.to_owned());
                Ok(())
            };
            make_by(&at("a/b/state"), sync).unwrap();
            synced.into_inner()
        };
        let there = above.path().parent().unwrap().to_owned();
        assert_eq!(synced(), [there, above.path().to_owned(), at("a"), at("a/b")]);
        assert_eq!(synced(), [at("a/b")], "a process that was killed may have made it just before");
    }
}
