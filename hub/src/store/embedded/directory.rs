//! The data directory: one owner at a time, and a mark that says what made it.
//!
//! `lock` is locked as long as the store is open. `engine` holds the engine's name and the version of the data format.
//! The data itself is in a folder with the engine's name.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use resync_core::durable::sync_folder;
use resync_core::lock::FileLock;

use crate::store::encoding::FORMAT;
use crate::store::{Engine, MARK, Result, StoreError};

/// What the mark says instead of an engine until a restore is finished.
const UNFINISHED: &str = "restoring";
const LOCK: &str = "lock";
/// How the next mark is called until it is one.
const DRAFT: &str = "engine.tmp";
/// What the folders of engines are called, also of one that this program is built without.
const FOLDERS: [&str; 2] = ["fjall", "sled"];
/// What may be in a directory before there is anything of a store: a fresh disk has a folder of its own, and a restore that was killed
/// at once leaves no more than this.
const BEFORE_ALL: [&str; 3] = ["lost+found", LOCK, DRAFT];

/// Takes the directory over, making it if need be. The store is unlocked when the lock is dropped.
pub(in crate::store) fn take(engine: Engine, directory: &Path) -> Result<FileLock> {
    let lock = lock(directory)?;
    check_mark(engine, directory)?;
    Ok(lock)
}

/// Something in the directory that no restore has left that was not finished, if there is any. `is_beside` tells which files a restore
/// puts beside the store.
pub(super) fn foreign(directory: &Path, is_beside: impl Fn(&OsStr) -> bool) -> io::Result<Option<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let is_unfinished = is_unfinished(directory);
    for entry in entries {
        let name = entry?.file_name();
        let is_left = is_unfinished && (name == MARK || is_engine(&name) || is_beside(&name));
        if !is_left && !is_before_all(&name) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// From now on no hub opens the locked directory, in which there is nothing foreign, until [`finish`]. What a restore has left is removed.
pub(super) fn begin_to_restore(directory: &Path, is_beside: impl Fn(&OsStr) -> bool) -> Result<()> {
    if !is_unfinished(directory) {
        return put_mark(UNFINISHED, directory);
    }
    // Nothing is written before: it may be what fills the disk.
    clear(directory, is_beside).map_err(|e| cannot("clear", directory, &e))
}

/// Removes what a restore makes, and nothing that has another name.
fn clear(directory: &Path, is_beside: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_engine(&entry.file_name()) {
            fs::remove_dir_all(entry.path())?;
        } else if is_beside(&entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    sync_folder(directory)
}

fn is_before_all(name: &OsStr) -> bool {
    BEFORE_ALL.iter().any(|before| name == *before)
}

fn is_engine(name: &OsStr) -> bool {
    FOLDERS.iter().any(|folder| name == *folder)
}

fn is_unfinished(directory: &Path) -> bool {
    let mark = fs::read_to_string(directory.join(MARK)).unwrap_or_default();
    mark.split_once(' ').is_some_and(|(name, _)| name == UNFINISHED)
}

/// What was restored is whole.
pub(super) fn finish(engine: Engine, directory: &Path) -> Result<()> {
    put_mark(engine.name(), directory)
}

/// Makes the directory if need be, and lets nobody else have it until the lock is dropped.
pub(super) fn lock(directory: &Path) -> Result<FileLock> {
    make(directory).map_err(|e| cannot("make", directory, &e))?;
    let path = directory.join(LOCK);
    let lock = FileLock::try_acquire(&path).map_err(|e| cannot("lock", &path, &e))?;
    lock.ok_or_else(|| StoreError::Locked { path: directory.display().to_string() })
}

/// Makes the names of everything in the directory durable, and its own. Engines sync what is in their folders, but not always
/// the folders that these folders are in.
pub(super) fn settle(engine: Engine, directory: &Path) -> Result<()> {
    sync_folders(&directory.join(engine.name()))
        .and_then(|()| sync_folder(directory))
        .map_err(|e| cannot("sync", directory, &e))?;
    // Whether the folder above may be opened is up to others.
    if let Some(Err(error)) = directory.parent().map(sync_folder) {
        tracing::debug!(%error, "the folder of the data folder is not synced");
    }
    Ok(())
}

/// Makes the names in the folder of an engine durable, and those in its folders, which come first. Another folder beside it is none of ours:
/// the root of a disk has one that only root may open.
pub(super) fn sync_folders(engine: &Path) -> io::Result<()> {
    folders(engine)?.iter().try_for_each(|folder| sync_folder(folder))
}

fn folders(engine: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = vec![engine.to_owned()];
    let mut looked = 0;
    while let Some(folder) = folders.get(looked).cloned() {
        looked += 1;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    folders.reverse();
    Ok(folders)
}

/// Secrets and callbacks are in there: nobody but the hub's user may look.
#[cfg(unix)]
pub(super) fn make(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    if fs::metadata(directory)?.permissions().mode() & 0o077 != 0 {
        tracing::warn!(directory = %directory.display(), "others can read the data folder, secrets included: chmod 700 it");
    }
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn make(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)
}

/// Whether the store in the directory is one of this engine and format; one that is not there yet will be.
fn check_mark(engine: Engine, directory: &Path) -> Result<()> {
    let path = directory.join(MARK);
    let mark = match fs::read_to_string(&path) {
        Ok(mark) => mark,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return put_mark(engine.name(), directory);
        }
        Err(error) => return Err(cannot("read", &path, &error)),
    };
    let damaged = || StoreError::Damaged { space: MARK, reason: format!("{} says {mark:?}", path.display()) };
    let (name, format) = mark.trim().split_once(' ').ok_or_else(damaged)?;
    let format = format.parse::<u16>().map_err(|_| damaged())?;
    if format != FORMAT {
        let path = directory.display().to_string();
        return Err(StoreError::Format { path, found: format, supported: FORMAT });
    }
    if name == UNFINISHED {
        return Err(StoreError::Unfinished { path: directory.display().to_string() });
    }
    if name != engine.name() {
        return Err(StoreError::OtherEngine {
            path: directory.display().to_string(),
            found: name.to_owned(),
        });
    }
    Ok(())
}

fn put_mark(name: &str, directory: &Path) -> Result<()> {
    write_mark(name, directory).map_err(|e| cannot("write", &directory.join(MARK), &e))
}

/// In one step: after a crash the mark is whole, or as it was.
fn write_mark(name: &str, directory: &Path) -> io::Result<()> {
    let draft = directory.join(DRAFT);
    let mut file = File::create(&draft)?;
    writeln!(file, "{name} {FORMAT}")?;
    file.sync_all()?;
    fs::rename(&draft, directory.join(MARK))?;
    sync_folder(directory)
}

fn cannot(act: &str, path: &Path, error: &io::Error) -> StoreError {
    let message = format!("cannot {act} {}: {error}", path.display());
    if act == "read" { StoreError::Read(message) } else { StoreError::Write(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_engines_is_synced_and_not_the_lost_and_found_of_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for name in ["lost+found/1", "sled", "fjall/keyspaces/1/tables", "fjall/keyspaces/2"] {
            fs::create_dir_all(place(name)).unwrap();
        }
        let found = folders(&place("fjall")).unwrap();
        let inner = [
            "fjall/keyspaces/1/tables",
            "fjall/keyspaces/1",
            "fjall/keyspaces/2",
            "fjall/keyspaces",
            "fjall",
        ];
        let expected: Vec<_> = inner.iter().map(|name| place(name)).collect();
        assert!(found.iter().is_sorted_by_key(|folder| std::cmp::Reverse(folder.components().count())));
        let sorted = |mut folders: Vec<PathBuf>| {
            folders.sort();
            folders
        };
        assert_eq!(sorted(found), sorted(expected));
    }
}
