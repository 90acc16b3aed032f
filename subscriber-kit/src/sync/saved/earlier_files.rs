//! The files that were in a folder before it became a copy. They belong to somebody: unless they are adopted, no run replaces or
//! removes one.
//!
//! The first run records all files of the folder. A file that turns out to be as the Source lists it is taken off the record. So a
//! copy that lost its state is as a folder that never was one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use resync_common::locks::lock;
use serde::{Deserialize, Serialize};

use super::cache::{self, path_of, text_of, write_line};
use super::{copy_state, if_there, state_file, unusable};
use crate::sync::files::delete::{Folder, local_files};
use crate::sync::files::folder::CopyFolder;
use crate::sync::{SyncError, SyncOptions};

const FILE_NAME: &str = "earlier-files.jsonl";
const FORMAT: u32 = 1;

/// How many files an error names.
const NAMED: usize = 5;

/// The earlier files of a copy, by their paths in it.
#[derive(Debug)]
pub(crate) struct EarlierFiles {
    paths: Mutex<BTreeSet<PathBuf>>,
    /// Whether the record on disk is another one.
    is_changed: Mutex<bool>,
    /// Whether this run may treat them as its own.
    are_free: bool,
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
}

impl EarlierFiles {
    /// What an earlier run recorded, as far as it is still there; in a folder without a state, every file.
    pub(crate) fn of(folder: &Folder<'_>, options: &SyncOptions) -> io::Result<Self> {
        let saved = saved(folder.directory)?;
        let (mut paths, mut is_changed) = (saved.clone().unwrap_or_default(), saved.is_none());
        if options.adopt {
            is_changed |= !paths.is_empty();
            paths.clear();
        } else if saved.is_none() && !has_other_state(folder.directory) {
            paths = all_files(folder);
        } else {
            let before = paths.len();
            paths.retain(|path| folder.directory.join(path).symlink_metadata().is_ok());
            is_changed |= paths.len() < before;
        }
        // A dry run with deletion shows what would become of them.
        let are_free = options.dry_run && options.delete;
        Ok(Self { paths: Mutex::new(paths), is_changed: Mutex::new(is_changed), are_free })
    }

    /// An error if a run with deletion would take them for surplus files.
    ///
    /// # Errors
    /// [`SyncError::EarlierFiles`].
    pub(crate) fn allow(&self, directory: &Path, options: &SyncOptions) -> Result<(), SyncError> {
        let paths = self.paths();
        if !options.delete || options.dry_run || paths.is_empty() {
            return Ok(());
        }
        let first = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
        Err(SyncError::EarlierFiles { directory: directory.to_owned(), count: paths.len() as u64, first })
    }

    pub(crate) fn count(&self) -> u64 {
        self.paths().len() as u64
    }

    /// Whether this is one of them, so that it stays as it is.
    pub(crate) fn protect(&self, relative: &Path) -> bool {
        !self.are_free && self.contain(relative)
    }

    pub(crate) fn contain(&self, relative: &Path) -> bool {
        self.paths().contains(relative)
    }

    /// A file that is as the Source lists it belongs to the copy, and so does one that takes the place of an earlier one.
    pub(crate) fn adopt(&self, relative: &Path) {
        if self.paths().remove(relative) {
            *lock(&self.is_changed) = true;
        }
    }

    /// Saves the record, if it has changed. Before the first change of the folder, so that a run that is killed leaves a record of
    /// what is not its own.
    pub(crate) fn save(&self, folder: &CopyFolder) -> io::Result<()> {
        let mut is_changed = lock(&self.is_changed);
        if !*is_changed {
            return Ok(());
        }
        let mut out = BufWriter::new(folder.unfinished()?);
        write_line(&mut out, &Head { format: FORMAT })?;
        for path in self.paths().iter() {
            write_line(&mut out, &text_of(path))?;
        }
        out.flush()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        folder.sync_file(file.as_file())?;
        let record = folder.file(FILE_NAME);
        file.persist(&record).map_err(|error| error.error)?;
        // Its name too, and that of the state folder: a copy without a record would be taken for somebody's own files.
        folder.sync_folders(&record.ancestors().skip(1).take(2).map(Path::to_owned).collect())?;
        *is_changed = false;
        Ok(())
    }

    fn paths(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        lock(&self.paths)
    }
}

/// Refuses a run that would delete files which are not of a copy, before anything is written.
///
/// # Errors
/// [`SyncError::EarlierFiles`], and what the file system says.
pub(crate) fn refuse_foreign_folder(folder: &Folder<'_>, options: &SyncOptions) -> Result<(), SyncError> {
    if !options.delete || options.dry_run {
        return Ok(());
    }
    EarlierFiles::of(folder, options)?.allow(folder.directory, options)
}

/// Whether a run has recorded what was in this folder before. What the record says is not judged here.
pub(crate) fn is_copy(directory: &Path) -> bool {
    has_other_state(directory) || !matches!(saved(directory), Ok(None))
}

/// A copy from before there was this record.
pub(super) fn has_other_state(directory: &Path) -> bool {
    [cache::FILE_NAME, copy_state::FILE_NAME].iter().any(|name| state_file(directory, name).exists())
}

/// What is recorded; `None` without a record.
fn saved(directory: &Path) -> io::Result<Option<BTreeSet<PathBuf>>> {
    let path = state_file(directory, FILE_NAME);
    let Some(file) = if_there(File::open(&path))? else { return Ok(None) };
    let mut lines = BufReader::new(file).lines();
    let head = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let head: Head = serde_json::from_str(&head).map_err(|error| unusable(&path, error))?;
    if head.format != FORMAT {
        return Err(unusable(&path, "it has another format"));
    }
    let read = |line: io::Result<String>| {
        let text: String = serde_json::from_str(&line?).map_err(|error| unusable(&path, error))?;
        path_of(&text)
    };
    lines.map(read).collect::<io::Result<_>>().map(Some)
}

/// Everything but folders. A folder that cannot be read stands for what is in it.
fn all_files(folder: &Folder<'_>) -> BTreeSet<PathBuf> {
    let path = |entry: walkdir::Result<walkdir::DirEntry>| match entry {
        Ok(entry) => Some(entry.into_path()),
        Err(error) => error.path().map(Path::to_owned),
    };
    let relative = |path: PathBuf| path.strip_prefix(folder.directory).ok().map(Path::to_owned);
    let inner = local_files(folder).filter_map(path).filter_map(relative);
    inner.filter(|path| !path.as_os_str().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Target;
    use url::Url;

    fn paths(earlier: &EarlierFiles) -> Vec<String> {
        earlier.paths().iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn what_was_there_first_is_remembered_until_it_is_adopted_or_gone() {
        let copy = tempfile::tempdir().unwrap();
        for name in ["a", "b\n%", "c"] {
            std::fs::write(copy.path().join(name), name).unwrap();
        }
        let target = Target::open(copy.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let options = SyncOptions::default();
        let first = EarlierFiles::of(&target.folder(), &options).unwrap();
        assert_eq!(paths(&first), ["a", "b\n%", "c"]);
        let folder = CopyFolder::open(&target).unwrap();
        first.save(&folder).unwrap();

        std::fs::write(copy.path().join("of the copy"), "").unwrap();
        let second = EarlierFiles::of(&target.folder(), &options).unwrap();
        assert_eq!(paths(&second), paths(&first), "what came later is the copy's own");
        second.adopt(Path::new("a"));
        std::fs::remove_file(copy.path().join("c")).unwrap();
        second.save(&folder).unwrap();
        let third = EarlierFiles::of(&target.folder(), &options).unwrap();
        assert_eq!(paths(&third), ["b\n%"]);
        let delete = SyncOptions { delete: true, ..SyncOptions::default() };
        assert!(matches!(
            third.allow(&target.directory, &delete),
            Err(SyncError::EarlierFiles { count: 1, .. })
        ));

        let adopted =
            EarlierFiles::of(&target.folder(), &SyncOptions { adopt: true, ..delete.clone() }).unwrap();
        adopted.save(&folder).unwrap();
        assert!(
            EarlierFiles::of(&target.folder(), &delete).unwrap().allow(&target.directory, &delete).is_ok()
        );
    }

    #[test]
    fn a_copy_from_before_there_was_a_record_is_one() {
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join("a"), "").unwrap();
        let target = Target::open(copy.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let _folder = CopyFolder::open(&target).unwrap();
        let count = || EarlierFiles::of(&target.folder(), &SyncOptions::default()).unwrap().count();
        assert_eq!(count(), 1, "a lock alone is no copy");
        std::fs::write(state_file(&target.directory, copy_state::FILE_NAME), "{}").unwrap();
        assert_eq!(count(), 0);
    }
}
