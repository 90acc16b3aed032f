//! Removes files that the Source no longer lists, and nothing else.

use std::io;
use std::path::{Path, PathBuf};

use url::Url;
use walkdir::{DirEntry, WalkDir};

use crate::state_folder::{STATE_FOLDER, UNFINISHED_FILE, is_foreign};
use crate::sync::Target;
use crate::sync::progress::{Outcome, Progress};
use crate::sync::reading::file_map::FileMap;
use crate::sync::reading::filter::Filter;
use crate::sync::reading::path::{CheckedFolders, obstacle, uri_or_path, url_of};
use crate::sync::saved::copy_state::MAX_RETRIES;
use crate::sync::saved::earlier_files::EarlierFiles;

/// The result of removing unlisted files.
#[derive(Debug, Default)]
pub(crate) struct Unlisted {
    pub(crate) deleted: u64,
    /// How many could not be removed or read.
    pub(crate) failed: u64,
    /// The first of these, and why.
    pub(crate) failures: Vec<(PathBuf, io::Error)>,
}

impl Unlisted {
    fn failed(&mut self, path: Option<PathBuf>, error: io::Error) {
        // It is gone already.
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        self.failed += 1;
        if self.failures.len() < MAX_RETRIES {
            self.failures.push((path.unwrap_or_default(), error));
        }
    }
}

/// Removes every file in the directory that no resource needs and the filter does not exclude, and folders that become empty. Only
/// reports them unless it `removes`. One that cannot be removed does not stop the others.
pub(crate) fn unlisted(
    target: &Target,
    file_map: &FileMap,
    filter: &Filter,
    removes: bool,
    to: &Progress,
) -> Unlisted {
    unlisted_by(target, file_map, filter, |path| {
        if removes {
            remove(target, path)?;
        }
        let relative = path.strip_prefix(&target.directory).unwrap_or(path);
        to.report(&uri_or_path(relative, &target.base), Ok(Outcome::Deleted));
        Ok(())
    })
}

/// Whether the filter excludes the resource of this file.
pub(crate) fn is_left_out(base: &Url, filter: &Filter, relative: &Path) -> bool {
    !filter.wants_every_uri()
        && url_of(relative, base).is_some_and(|url| !filter.has_a_wanted_uri(url.as_str()))
}

fn unlisted_by(
    target: &Target,
    file_map: &FileMap,
    filter: &Filter,
    mut remove: impl FnMut(&Path) -> io::Result<()>,
) -> Unlisted {
    let mut found = Unlisted::default();
    let relative = |path: &Path| path.strip_prefix(&target.directory).ok().map(Path::to_owned);
    for entry in local_files(&target.folder()) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.failed(error.path().and_then(relative), error.into());
                continue;
            }
        };
        let path = relative(entry.path());
        if path.as_ref().is_some_and(|path| file_map.needs(path) || is_left_out(&target.base, filter, path)) {
            continue;
        }
        match remove(entry.path()) {
            Ok(()) => found.deleted += 1,
            Err(error) => found.failed(path, error),
        }
    }
    found
}

fn remove(target: &Target, path: &Path) -> io::Result<()> {
    std::fs::remove_file(path)?;
    remove_empty_folders(&target.directory, path)
}

/// Removes the file of one resource, unless there is an obstacle on its path; whether there is a file. Only checks unless
/// it `removes`.
pub(crate) fn one(target: &Target, relative: &Path, removes: bool) -> io::Result<bool> {
    if obstacle(&target.directory, relative, &mut CheckedFolders::default())?.is_some() {
        return Ok(false);
    }
    let path = target.directory.join(relative);
    if !removes {
        return Ok(path.symlink_metadata().is_ok());
    }
    match remove(target, &path) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            // A run that died may have removed the file, and not the folders that are in the way of another one.
            remove_empty_folders(&target.directory, &path)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Files that are not listed.
#[derive(Debug, Default)]
pub(crate) struct Surplus {
    pub(crate) count: u64,
    /// Those that were here before the copy.
    pub(crate) earlier: u64,
    /// The first of all.
    pub(crate) first: Vec<String>,
}

/// The files under the directory that are not listed; `show` of them are named.
pub(crate) fn count_unlisted(
    target: &Target,
    file_map: &FileMap,
    filter: &Filter,
    earlier: &EarlierFiles,
    show: usize,
) -> io::Result<Surplus> {
    let mut surplus = Surplus::default();
    for entry in local_files(&target.folder()) {
        let entry = entry?;
        let path = entry.path().strip_prefix(&target.directory).ok().map(Path::to_owned);
        if path.as_ref().is_some_and(|path| file_map.lists(path) || is_left_out(&target.base, filter, path)) {
            continue;
        }
        surplus.count += 1;
        surplus.earlier += u64::from(path.as_deref().is_some_and(|path| earlier.contain(path)));
        if surplus.first.len() < show {
            surplus.first.push(path.as_deref().unwrap_or(entry.path()).display().to_string());
        }
    }
    Ok(surplus)
}

/// A directory, and the state folder in it that is not at the usual place.
pub(crate) struct Folder<'f> {
    pub(crate) directory: &'f Path,
    pub(crate) state: Option<&'f Path>,
}

/// Everything but folders, without following symbolic links. State folders of any program, other copies and unfinished files are
/// left out.
pub(crate) fn local_files(folder: &Folder<'_>) -> impl Iterator<Item = walkdir::Result<DirEntry>> {
    all_files(folder).filter(|entry| !entry.as_ref().is_ok_and(is_unfinished))
}

/// Removes what killed runs left unfinished beside its places. What cannot be removed does no harm.
pub(super) fn sweep(folder: &Folder<'_>) {
    for left in all_files(folder).filter_map(Result::ok).filter(is_unfinished) {
        let _ = std::fs::remove_file(left.path());
    }
}

fn is_unfinished(entry: &DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(UNFINISHED_FILE.as_bytes())
}

/// As [`local_files`], with the unfinished ones.
fn all_files(folder: &Folder<'_>) -> impl Iterator<Item = walkdir::Result<DirEntry>> {
    let state = folder.state.map(Path::to_owned);
    WalkDir::new(folder.directory)
        .min_depth(1)
        .into_iter()
        .filter_entry(move |entry| {
            let is_own = entry.depth() == 1 && entry.file_name() == STATE_FOLDER;
            let is_foreign = entry.file_type().is_dir() && is_foreign(entry.path());
            !is_own && !is_foreign && state.as_deref() != Some(entry.path())
        })
        .filter(|entry| entry.as_ref().map_or(true, |entry| !entry.file_type().is_dir()))
}

/// Ends at the first folder that is not empty or may stay. A disk that fails is told: else a file that is to come in the place of the
/// folder would seem to be the cause.
fn remove_empty_folders(directory: &Path, file: &Path) -> io::Result<()> {
    use io::ErrorKind::{
        DirectoryNotEmpty, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem, ResourceBusy,
    };
    let mut folder = file.parent();
    while let Some(path) = folder.filter(|path| *path != directory) {
        match std::fs::remove_dir(path) {
            Ok(()) => folder = path.parent(),
            Err(error) => match error.kind() {
                DirectoryNotEmpty | NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem
                | ResourceBusy => break,
                kind => return Err(io::Error::new(kind, format!("{}: {error}", path.display()))),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::SyncOptions;
    use crate::sync::reading::file_map::file_map_of;

    fn target(folder: &tempfile::TempDir) -> Target {
        Target::open(folder.path(), Url::parse("http://a.example/").unwrap()).unwrap()
    }

    fn file_map(listed: &[&str]) -> FileMap {
        file_map_of("http://a.example/", listed)
    }

    fn deleted(target: &Target, file_map: &FileMap) -> u64 {
        unlisted(target, file_map, &Filter::default(), true, &Progress::default()).deleted
    }

    fn write(folder: &tempfile::TempDir, names: &[&str]) {
        for name in names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
    }

    #[test]
    fn rs201_only_what_is_not_listed_goes_and_never_a_state() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let own = format!("{STATE_FOLDER}/state.json");
        write(&folder, &["keep", "gone", "deep/er/gone", &own, "given/state.json", "another/state.json"]);
        write(&folder, &[".resync-unfinished-a"]);
        crate::state_folder::make(&at("another")).unwrap();
        let target = target(&folder).with_state(&at("given"));
        let earlier =
            EarlierFiles::of(&target.folder(), &SyncOptions { adopt: true, ..Default::default() }).unwrap();
        assert_eq!(
            count_unlisted(&target, &file_map(&["keep"]), &Filter::default(), &earlier, 1).unwrap().count,
            3,
            "strangers are counted"
        );
        assert_eq!(deleted(&target, &file_map(&["keep"])), 3);
        assert!(at("keep").exists() && at(&own).exists());
        assert!(at("given/state.json").exists());
        assert!(at("another/state.json").exists(), "of another program with another --state");
        assert!(!at("deep").exists());
    }

    #[test]
    fn another_copy_below_keeps_all_its_files_whatever_the_outer_one_removes() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, &["keep", "gone", "inner/file", "inner/deep/file"]);
        crate::state_folder::make(&folder.path().join("inner").join(STATE_FOLDER)).unwrap();
        let target = target(&folder);
        assert_eq!(deleted(&target, &file_map(&["keep"])), 1);
        for kept in ["inner/file", "inner/deep/file"] {
            assert!(!one(&target, Path::new(kept), true).unwrap(), "{kept}");
            assert!(folder.path().join(kept).exists(), "{kept}");
        }
    }

    #[test]
    fn rs201_what_stands_where_a_listed_file_belongs_stays_until_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, &["was-a-folder/old", "was-a-file", "gone"]);
        let file_map = file_map(&["was-a-folder", "was-a-file/new"]);
        assert_eq!(deleted(&target(&folder), &file_map), 1);
        assert!(folder.path().join("was-a-folder/old").exists() && folder.path().join("was-a-file").exists());
    }

    #[test]
    fn one_that_cannot_be_removed_is_named_and_the_others_go_and_one_that_vanished_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, &["a", "deep/stuck", "vanished", "z"]);
        let target = target(&folder);
        let found = unlisted_by(&target, &file_map(&["keep"]), &Filter::default(), |path| {
            match path.file_name().unwrap().to_str() {
                Some("stuck") => Err(io::ErrorKind::PermissionDenied.into()),
                Some("vanished") => Err(io::ErrorKind::NotFound.into()),
                _ => remove(&target, path),
            }
        });
        assert_eq!((found.deleted, found.failed), (2, 1));
        assert_eq!(found.failures[0].0, Path::new("deep/stuck"));
        assert!(!folder.path().join("a").exists() && !folder.path().join("z").exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_is_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        assert_eq!(deleted(&target(&folder), &file_map(&["x"])), 1);
        assert!(elsewhere.path().join("precious").exists());
    }
}
