//! The copy's own folder: the lock that allows one run at a time, and the work folder where files are prepared.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use resync_common::locks::lock;
use resync_core::durable::folder_of;
use resync_core::lock::FileLock;
use serde::Serialize;
use tempfile::{NamedTempFile, TempDir};
use walkdir::WalkDir;

use super::delete;
use super::disk::Disk;
use crate::space::free_space;
use crate::state_folder::{self, COPY_LOCK_NAME, STATE_FOLDER, UNFINISHED_FILE, make_private_folder};
use crate::sync::{SyncError, Target};

const WORK_NAME: &str = "work";

/// From how many files or folders it is cheaper to sync the whole file system.
const WORTH_ALL: usize = 4;

/// How many bytes of changed folders are held before they are synced. A Source may have a hundred folders made for each file.
const MAX_CHANGED: usize = 16 << 20;

/// What a path takes besides its text, about, in bytes.
const PER_PATH: usize = 64;

/// Folders where names changed since they were synced last, each with those above it.
#[derive(Debug, Default)]
pub(crate) struct ChangedFolders {
    folders: HashSet<PathBuf>,
    bytes: usize,
}

impl ChangedFolders {
    /// Adds the folders above a file, up to the directory: any of them may be new.
    pub(crate) fn add_above(&mut self, directory: &Path, relative: &Path) {
        for above in relative.ancestors().skip(1) {
            let folder = directory.join(above);
            let bytes = PER_PATH + folder.as_os_str().len();
            // With it came those above it.
            if !self.folders.insert(folder) {
                return;
            }
            self.bytes += bytes;
        }
    }

    /// All of them, if they are so many that they should be synced now.
    pub(crate) fn take_if_many(&mut self) -> Option<HashSet<PathBuf>> {
        (self.bytes > MAX_CHANGED).then(|| std::mem::take(self).folders)
    }

    pub(crate) fn into_folders(self) -> HashSet<PathBuf> {
        self.folders
    }
}

/// A locked copy. Other runs fail until this is dropped.
///
/// It is always in the directory, even if the state is elsewhere. So all runs use the same lock, and a prepared file can be renamed
/// to its place.
#[derive(Debug)]
pub(crate) struct CopyFolder {
    path: PathBuf,
    work: PathBuf,
    lock: FileLock,
    disk: Arc<dyn Disk>,
    /// Whether one call reliably makes all files durable. Locked during the call: a failed write is reported only once, and may
    /// concern a file of another thread.
    syncs_together: Mutex<bool>,
    /// Whether names in the copy may not be durable. Then the work folder stays, by which the next run knows it.
    has_unsynced_names: AtomicBool,
    /// The work folder of a read-only run.
    _elsewhere: Option<TempDir>,
}

impl CopyFolder {
    /// Locks the copy, and removes what a run that did not end left unfinished.
    pub(crate) fn open(target: &Target) -> Result<Self, SyncError> {
        let path = target.directory.join(STATE_FOLDER);
        state_folder::make(&path)?;
        let lock = state_folder::lock(&path.join(COPY_LOCK_NAME))?.ok_or_else(|| in_use(target))?;
        let work = path.join(WORK_NAME);
        let disk = Arc::clone(&target.disk);
        let syncs_together = Mutex::new(disk.sync_all_reports_errors(lock.file()));
        // A run that did not end has left it.
        let has_unsynced_names = AtomicBool::new(work.exists());
        let folder = Self { path, work, lock, disk, syncs_together, has_unsynced_names, _elsewhere: None };
        if folder.has_unsynced_names.load(Ordering::Relaxed) {
            // What such a run put in place may not be durable, and this one takes it as it is.
            folder.sync_names(&target.directory)?;
            delete::sweep(&target.folder());
            fs::remove_dir_all(&folder.work)?;
            folder.has_unsynced_names.store(false, Ordering::Relaxed);
        }
        make_private_folder(&folder.work)?;
        Ok(folder)
    }

    /// As [`CopyFolder::open`] for a read-only run: nothing is made in the copy, and the work folder is a temporary one.
    pub(crate) fn inspect(target: &Target) -> Result<Self, SyncError> {
        let path = target.directory.join(STATE_FOLDER);
        let file = || match File::open(path.join(COPY_LOCK_NAME)) {
            // There was no run yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => tempfile::tempfile(),
            opened => opened,
        };
        let lock = state_folder::lock_by(|| FileLock::try_lock(file()?))?.ok_or_else(|| in_use(target))?;
        let elsewhere = tempfile::tempdir()?;
        let work = elsewhere.path().join(WORK_NAME);
        make_private_folder(&work)?;
        let (disk, syncs_together) = (Arc::clone(&target.disk), Mutex::new(false));
        let has_unsynced_names = AtomicBool::new(false);
        Ok(Self { path, work, lock, disk, syncs_together, has_unsynced_names, _elsewhere: Some(elsewhere) })
    }

    /// A file about the copy, such as its cache.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A new file, to be renamed to its place once it is complete.
    pub(crate) fn unfinished(&self) -> io::Result<NamedTempFile> {
        unfinished_in(&self.work)
    }

    /// Replaces a file of the state by this value as JSON. It is durable when this returns.
    pub(crate) fn replace_json(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let mut file = self.unfinished()?;
        file.write_all(&serde_json::to_vec(value)?)?;
        self.sync_file(file.as_file())?;
        let replaced = self.file(name);
        file.persist(&replaced).map_err(|error| error.error)?;
        self.sync_folders(&HashSet::from([folder_of(&replaced).to_owned()]))
    }

    /// An unnamed file for this run.
    pub(crate) fn scratch(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.work)
    }

    /// Makes all files in the work folder durable at once; `false` if each must be synced separately, which also shows which one
    /// failed.
    pub(crate) fn sync_files(&self, count: usize) -> bool {
        if count < WORTH_ALL {
            return false;
        }
        let mut syncs_together = lock(&self.syncs_together);
        // The lock file is open during the whole run, so that it reports every failed write.
        *syncs_together = *syncs_together && self.disk.sync_all(self.lock.file()).is_ok();
        *syncs_together
    }

    /// Makes one file durable.
    pub(crate) fn sync_file(&self, file: &File) -> io::Result<()> {
        self.disk.sync_file(file)
    }

    /// Makes the names in these folders durable. A missing folder is ignored.
    pub(crate) fn sync_folders(&self, folders: &HashSet<PathBuf>) -> io::Result<()> {
        let are_synced = self.sync_files(folders.len());
        folders.iter().try_for_each(|folder| self.sync_if_there(folder, are_synced))
    }

    /// The run changes names from now on.
    pub(crate) fn begin_changes(&self) {
        self.has_unsynced_names.store(true, Ordering::Relaxed);
    }

    /// Makes all names durable that the run has changed: those in these folders are left.
    pub(crate) fn end_changes(&self, left: &HashSet<PathBuf>) -> io::Result<()> {
        self.sync_folders(left)?;
        self.has_unsynced_names.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the names in a folder and all below it durable.
    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        // Nobody counts them first: there may be more than memory can hold.
        let are_synced = self.sync_files(WORTH_ALL);
        let folders = WalkDir::new(folder).into_iter().filter_entry(|entry| entry.file_type().is_dir());
        // A run cannot have written into one that cannot be read.
        let mut found = folders.filter_map(Result::ok);
        found.try_for_each(|entry| self.sync_if_there(entry.path(), are_synced))
    }

    fn sync_if_there(&self, folder: &Path, is_synced: bool) -> io::Result<()> {
        match self.sync_folder(folder, is_synced) {
            // A file may have come where it was, or where a folder above it was.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(())
            }
            synced => synced,
        }
    }

    fn sync_folder(&self, folder: &Path, is_synced: bool) -> io::Result<()> {
        // A part of the copy may be on another file system.
        if is_synced && self.holds(folder)? { Ok(()) } else { self.disk.sync_folder(folder) }
    }

    /// Whether a folder is on the same file system as the work folder.
    #[cfg(unix)]
    fn holds(&self, folder: &Path) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(folder.metadata()?.dev() == self.lock.file().metadata()?.dev())
    }

    #[cfg(not(unix))]
    fn holds(&self, _: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// How many bytes may be written here, less a reserve; an error if unknown.
    pub(crate) fn free_space(&self) -> io::Result<u64> {
        free_space(&self.work)
    }

    /// A folder for a file or folder that is moved out of the way.
    pub(crate) fn aside(&self) -> io::Result<TempDir> {
        tempfile::tempdir_in(&self.work)
    }
}

fn in_use(target: &Target) -> SyncError {
    SyncError::InUse { directory: target.directory.clone() }
}

impl Drop for CopyFolder {
    fn drop(&mut self) {
        // If it is not empty, the next run removes it.
        if !*self.has_unsynced_names.get_mut() {
            let _ = fs::remove_dir(&self.work);
        }
    }
}

/// Where files are prepared: in the copy's own folder, in another one where they will stay, or in a temporary folder for audits.
#[derive(Clone, Debug)]
pub(crate) enum Staging {
    Copy(Arc<CopyFolder>),
    Folder(Arc<Path>),
    Temporary,
}

impl Staging {
    /// A new file, to be renamed to its place once it is complete.
    pub(crate) fn unfinished(&self) -> io::Result<NamedTempFile> {
        match self {
            Self::Copy(folder) => folder.unfinished(),
            Self::Folder(folder) => unfinished_in(folder),
            Self::Temporary => NamedTempFile::new(),
        }
    }

    /// The folder for other unnamed files.
    pub(crate) fn folder(&self) -> PathBuf {
        match self {
            Self::Copy(folder) => folder.work.clone(),
            Self::Folder(folder) => folder.to_path_buf(),
            Self::Temporary => std::env::temp_dir(),
        }
    }

    /// An unnamed file for this run.
    pub(crate) fn scratch(&self) -> io::Result<File> {
        match self {
            Self::Copy(folder) => folder.scratch(),
            Self::Folder(folder) => tempfile::tempfile_in(folder),
            Self::Temporary => tempfile::tempfile(),
        }
    }

    /// How many bytes may be written here; an error if unknown.
    pub(crate) fn free_space(&self) -> io::Result<u64> {
        match self {
            Self::Copy(folder) => folder.free_space(),
            Self::Folder(_) | Self::Temporary => free_space(&self.folder()),
        }
    }
}

pub(crate) fn unfinished_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED_FILE);
    // Other users may read the copy as the umask allows, unlike most temporary files.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    #[test]
    fn changed_folders_are_held_up_to_so_many_bytes_however_deep_each_file_lies() {
        let (copy, deep) = (Path::new("/copy"), format!("{}/", "x".repeat(20)).repeat(126));
        let (mut changed, mut synced) = (ChangedFolders::default(), HashSet::new());
        let bytes = |folders: &HashSet<PathBuf>| -> usize {
            folders.iter().map(|folder| folder.as_os_str().len()).sum()
        };
        let file = |number: i32| PathBuf::from(format!("{number}/{deep}file"));
        for number in 0..200 {
            changed.add_above(copy, &file(number));
            assert!(bytes(&changed.folders) < MAX_CHANGED + (1 << 20), "{number}");
            synced.extend(changed.take_if_many().unwrap_or_default());
        }
        assert!(bytes(&synced) > MAX_CHANGED, "they were synced on the way");
        synced.extend(changed.into_folders());
        assert_eq!(synced.len(), 200 * 127 + 1, "each above each file, and the copy");
        assert!((0..200).all(|number| synced.contains(copy.join(file(number)).parent().unwrap())));
    }

    #[test]
    fn a_folder_is_held_once_however_many_of_its_files_change() {
        let mut changed = ChangedFolders::default();
        for name in ["a/b/1", "a/b/2", "a/3", "4"] {
            changed.add_above(Path::new("/copy"), Path::new(name));
        }
        let expected = ["/copy", "/copy/a", "/copy/a/b"].map(PathBuf::from);
        assert!(changed.take_if_many().is_none(), "few are synced once, at the end");
        assert_eq!(changed.into_folders(), HashSet::from(expected));
    }

    #[test]
    fn a_folder_that_gave_way_to_a_file_needs_no_sync() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::open(folder.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let copy = CopyFolder::open(&target).unwrap();
        std::fs::write(folder.path().join("a"), "x").unwrap();
        copy.sync_folders(&HashSet::from([folder.path().join("a/b"), folder.path().join("gone")])).unwrap();
    }

    #[test]
    fn one_run_works_on_a_copy_at_a_time_wherever_its_state_is() {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = Url::parse("http://a.example/").unwrap();
        let target = Target::open(folder.path(), base).unwrap();
        let held = CopyFolder::open(&target).unwrap();
        let other = target.clone().with_state(state.path());
        assert!(matches!(CopyFolder::open(&other), Err(SyncError::InUse { .. })));
        drop(held);
        assert!(CopyFolder::open(&other).is_ok());
    }

    #[test]
    fn what_a_killed_run_left_behind_is_swept_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::open(folder.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let killed = CopyFolder::open(&target).unwrap();
        let inner = folder.path().join("inner");
        state_folder::make(&inner.join(STATE_FOLDER)).unwrap();
        // A part of the copy on another file system.
        let part = folder.path().join("part");
        fs::create_dir(&part).unwrap();
        let [left, beside, of_another] =
            [&killed.work, &part, &inner].map(|folder| unfinished_in(folder).unwrap().keep().unwrap().1);
        drop(killed);
        assert!(left.exists() && beside.exists());
        assert_eq!(delete::local_files(&target.folder()).count(), 0, "it is no file of the copy");
        let _next = CopyFolder::open(&target).unwrap();
        assert!(!left.exists() && !beside.exists());
        assert!(of_another.exists(), "another copy's run may still write it");
    }
}
