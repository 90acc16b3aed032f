//! Puts a finished file in place, and moves unlisted files out of its way.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use resync_common::locks::lock;
use tempfile::{NamedTempFile, PersistError, TempDir};
use url::Url;
use walkdir::WalkDir;

use super::delete::is_left_out;
use super::folder::{CopyFolder, unfinished_in};
use crate::state_folder::is_state_folder;
use crate::sync::ResourceError;
use crate::sync::progress::{Outcome, Progress};
use crate::sync::reading::file_map::FileMap;
use crate::sync::reading::filter::Filter;
use crate::sync::reading::path::{
    CheckedFolders, Obstacle, ObstacleKind, obstacle, relative_path, uri_or_path,
};
use crate::sync::reading::plan::Planned;

/// Puts finished files in place. Each task has it, and with it the lock of the copy.
#[derive(Debug)]
pub(crate) struct Placer {
    pub(crate) directory: PathBuf,
    /// The URL that corresponds to the directory.
    pub(crate) base: Url,
    pub(crate) progress: Progress,
    pub(crate) folder: Arc<CopyFolder>,
    pub(crate) file_map: Arc<FileMap>,
    /// What it leaves out makes no way.
    pub(crate) filter: Filter,
    /// Whether unlisted files may be removed to make way.
    pub(crate) may_remove: bool,
    /// How many files were removed to make way.
    pub(crate) removed: AtomicU64,
    /// One file at a time, since a folder may make way for a file, or the reverse.
    pub(crate) one_at_a_time: Mutex<()>,
    /// What would make way, in a dry run.
    pub(crate) pretended: Mutex<HashSet<PathBuf>>,
}

/// A file or folder that was moved out of the way, until the new file is in place.
struct Aside {
    from: PathBuf,
    folder: TempDir,
}

impl Aside {
    fn path(&self) -> PathBuf {
        self.folder.path().join("old")
    }
}

impl Placer {
    /// Whether the path is free now; `false` if it can be freed.
    pub(crate) fn can_be_reached(&self, relative: &Path) -> Result<bool, ResourceError> {
        if let Some(listed) = self.file_map.listed_above(relative) {
            return Err(crate::sync::PathError::Collision(listed).into());
        }
        let found = obstacle(&self.directory, relative, &mut CheckedFolders::default());
        match found.map_err(ResourceError::Read)? {
            None => Ok(true),
            Some(obstacle) if self.may_make_way(&obstacle)? => Ok(false),
            Some(obstacle) => Err(crate::sync::PathError::from(obstacle).into()),
        }
    }

    /// Whether a resource has no file and no obstacle; `false` also if unknown. Lists are mostly in order, so a `missing` folder is
    /// kept for the files that follow.
    pub(crate) fn lacks(&self, planned: &Planned, base: &Url, missing: &mut Option<PathBuf>) -> bool {
        let Ok(relative) = relative_path(&planned.line.loc, &planned.url, base) else { return false };
        if missing.is_some() && missing.as_deref() == relative.parent() {
            return self.file_map.listed_above(&relative).is_none();
        }
        let is_missing = |path: &Path| {
            let found = self.directory.join(path).symlink_metadata();
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if !is_missing(&relative) || !self.can_be_reached(&relative).unwrap_or(false) {
            return false;
        }
        *missing = relative.parent().filter(|folder| is_missing(folder)).map(Path::to_owned);
        true
    }

    /// Puts the file in place in one step. What made way is removed only afterwards.
    pub(crate) fn place(
        &self,
        file: NamedTempFile,
        relative: &Path,
        checked: &mut CheckedFolders,
    ) -> Result<File, ResourceError> {
        let _one = lock(&self.one_at_a_time);
        let mut aside = Vec::new();
        let result = self.make_way(relative, checked, &mut aside).and_then(|()| self.rename(file, relative));
        match &result {
            Ok(_) => aside.iter().for_each(|one| self.report_removed(&one.path(), &one.from)),
            Err(_) => aside.iter().rev().for_each(restore),
        }
        result
    }

    /// Reports what would make way for this file.
    pub(crate) fn pretend(&self, relative: &Path) -> Result<(), ResourceError> {
        let found = obstacle(&self.directory, relative, &mut CheckedFolders::default());
        let Some(Obstacle { path, .. }) = found.map_err(ResourceError::Read)? else { return Ok(()) };
        if lock(&self.pretended).insert(path.clone()) {
            self.report_removed(&path, &path);
        }
        Ok(())
    }

    /// Reports the files that are at `now` and were at `before`.
    fn report_removed(&self, now: &Path, before: &Path) {
        let before = before.strip_prefix(&self.directory).unwrap_or(before);
        // The targets of symbolic links stay.
        let files = WalkDir::new(now).follow_root_links(false).into_iter().filter_map(Result::ok);
        for entry in files.filter(|entry| !entry.file_type().is_dir()) {
            let inner = entry.path().strip_prefix(now).unwrap_or(Path::new(""));
            let relative: PathBuf = before.iter().chain(inner).collect();
            self.removed.fetch_add(1, Ordering::Relaxed);
            self.progress.report(&uri_or_path(&relative, &self.base), Ok(Outcome::Deleted));
        }
    }

    fn make_way(
        &self,
        relative: &Path,
        checked: &mut CheckedFolders,
        aside: &mut Vec<Aside>,
    ) -> Result<(), ResourceError> {
        while let Some(obstacle) =
            obstacle(&self.directory, relative, checked).map_err(ResourceError::Read)?
        {
            if !self.may_make_way(&obstacle)? {
                return Err(crate::sync::PathError::from(obstacle).into());
            }
            let one = Aside { from: obstacle.path, folder: self.folder.aside()? };
            std::fs::rename(&one.from, one.path())?;
            checked.forget();
            aside.push(one);
        }
        Ok(())
    }

    fn rename(&self, file: NamedTempFile, relative: &Path) -> Result<File, ResourceError> {
        let path = self.directory.join(relative);
        let renamed = file.persist(&path).or_else(|failed| {
            if failed.error.kind() != io::ErrorKind::NotFound {
                return Err(failed);
            }
            // The folder is missing.
            match std::fs::create_dir_all(path.parent().unwrap_or(&self.directory)) {
                Ok(()) => failed.file.persist(&path),
                Err(error) => Err(PersistError { error, file: failed.file }),
            }
        });
        let failed = match renamed {
            Ok(file) => return Ok(file),
            Err(failed) if failed.error.kind() != io::ErrorKind::CrossesDevices => {
                return Err(failed.error.into());
            }
            Err(failed) => failed,
        };
        // A part of the copy is on another file system.
        let beside = unfinished_in(path.parent().unwrap_or(&self.directory))?;
        std::fs::copy(failed.file.path(), beside.path())?;
        beside.as_file().set_modified(failed.file.as_file().metadata()?.modified()?)?;
        self.folder.sync_file(beside.as_file())?;
        Ok(beside.persist(&path).map_err(|error| error.error)?)
    }

    fn may_make_way(&self, obstacle: &Obstacle) -> Result<bool, ResourceError> {
        let relative = obstacle.path.strip_prefix(&self.directory).unwrap_or(&obstacle.path);
        let needed = match obstacle.kind {
            ObstacleKind::Foreign => return Ok(false),
            // A folder is needed here, so a file must not be listed here.
            ObstacleKind::Symlink | ObstacleKind::File => self.file_map.lists(relative),
            ObstacleKind::Folder => {
                self.file_map.has_below(relative)
                    || holds_a_state(&obstacle.path).map_err(ResourceError::Read)?
            }
        };
        Ok(self.may_remove && !needed && !self.is_left_out(&obstacle.path).map_err(ResourceError::Read)?)
    }

    /// Whether the filter leaves out what is here, or something below it.
    fn is_left_out(&self, path: &Path) -> io::Result<bool> {
        if self.filter.wants_every_uri() {
            return Ok(false);
        }
        for entry in WalkDir::new(path).follow_root_links(false) {
            let entry = entry?;
            let relative = entry.path().strip_prefix(&self.directory).unwrap_or(entry.path());
            if !entry.file_type().is_dir() && is_left_out(&self.base, &self.filter, relative) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn restore(aside: &Aside) {
    if let Err(error) = std::fs::rename(aside.path(), &aside.from) {
        tracing::error!(%error, path = %aside.from.display(), "cannot move a file or folder back to its place");
    }
}

fn holds_a_state(folder: &Path) -> io::Result<bool> {
    for entry in WalkDir::new(folder) {
        let entry = entry?;
        if entry.file_type().is_dir() && is_state_folder(entry.path()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::reading::file_map::file_map_of;
    use crate::sync::{PathError, Target};

    /// Of a copy of these listed resources, which removes what is in their way.
    fn placer(copy: &Path, listed: &[&str], filter: Filter) -> Placer {
        let base = Url::parse("http://a.example/").unwrap();
        Placer {
            directory: copy.to_owned(),
            base: base.clone(),
            progress: Progress::default(),
            folder: Arc::new(CopyFolder::open(&Target::open(copy, base.clone()).unwrap()).unwrap()),
            file_map: Arc::new(file_map_of(base.as_str(), listed)),
            filter,
            may_remove: true,
            removed: AtomicU64::new(0),
            one_at_a_time: Mutex::new(()),
            pretended: Mutex::default(),
        }
    }

    #[test]
    fn what_the_filter_leaves_out_stays_where_a_listed_resource_belongs() {
        let copy = tempfile::tempdir().unwrap();
        for name in ["private/deep/old", "other/old", "file"] {
            let path = copy.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "old").unwrap();
        }
        let exclude = ["http://a.example/private/*", "http://a.example/file"].map(str::to_owned).to_vec();
        let filter = Filter { exclude, ..Filter::default() };
        let placer = placer(copy.path(), &["private", "other", "file/new"], filter);
        let place = |relative: &str| {
            let file = placer.folder.unfinished().unwrap();
            placer.place(file, Path::new(relative), &mut CheckedFolders::default())
        };
        for refused in ["private", "file/new"] {
            let in_the_way =
                |error: ResourceError| matches!(error, ResourceError::Path(PathError::InTheWay(..)));
            assert!(place(refused).is_err_and(in_the_way), "{refused}");
        }
        assert_eq!(std::fs::read(copy.path().join("private/deep/old")).unwrap(), b"old");
        assert_eq!(std::fs::read(copy.path().join("file")).unwrap(), b"old");
        place("other").unwrap();
        assert!(copy.path().join("other").is_file(), "no pattern fits what was there");
    }

    #[test]
    fn what_made_way_comes_back_when_the_new_file_cannot_be_put() {
        let copy = tempfile::tempdir().unwrap();
        let old = copy.path().join("x/deep/old");
        std::fs::create_dir_all(old.parent().unwrap()).unwrap();
        std::fs::write(&old, "old").unwrap();
        let placer = placer(copy.path(), &["x"], Filter::default());
        let lost = placer.folder.unfinished().unwrap();
        std::fs::remove_file(lost.path()).unwrap();
        let place = |file| placer.place(file, Path::new("x"), &mut CheckedFolders::default());
        assert!(place(lost).is_err());
        assert_eq!(std::fs::read(&old).unwrap(), b"old");
        place(placer.folder.unfinished().unwrap()).unwrap();
        assert!(copy.path().join("x").is_file());
        assert_eq!(placer.removed.load(Ordering::Relaxed), 1);
    }
}
