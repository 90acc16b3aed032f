//! Removing what the Source no longer lists, and nothing else.

use std::io;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use super::Target;
use super::path::obstacle;
use super::places::Places;
use crate::state::{STATE_FOLDER, is_state_folder};

/// Removes every file under the directory that no place needs, and the folders this empties. Only counts them unless
/// it is to be done `really`.
pub(crate) fn unlisted(target: &Target, places: &Places, really: bool) -> io::Result<u64> {
    let mut deleted = 0;
    for entry in local_files(target) {
        let entry = entry?;
        if relative(target, &entry).is_some_and(|path| places.needs(&path)) {
            continue;
        }
        deleted += 1;
        if really {
            std::fs::remove_file(entry.path())?;
            remove_empty_folders(&target.directory, entry.path());
        }
    }
    Ok(deleted)
}

/// Removes the file of one resource, if there is one and nothing on the way to it is in the way; says whether there is
/// one. Only looks unless it is to be done `really`.
pub(crate) fn one(target: &Target, relative: &Path, really: bool) -> io::Result<bool> {
    if obstacle(&target.directory, relative)?.is_some() {
        return Ok(false);
    }
    let path = target.directory.join(relative);
    if !really {
        return Ok(path.symlink_metadata().is_ok());
    }
    match std::fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    remove_empty_folders(&target.directory, &path);
    Ok(true)
}

/// How many files under the directory are not listed, and the first of them.
pub(crate) fn count_unlisted(
    target: &Target,
    places: &Places,
    show: usize,
) -> io::Result<(u64, Vec<String>)> {
    let (mut count, mut first) = (0, Vec::new());
    for entry in local_files(target) {
        let entry = entry?;
        let path = relative(target, &entry);
        if path.as_ref().is_some_and(|path| places.lists(path)) {
            continue;
        }
        count += 1;
        if first.len() < show {
            first.push(path.as_deref().unwrap_or(entry.path()).display().to_string());
        }
    }
    Ok((count, first))
}

/// All that is no folder, symbolic links as themselves; no state is looked into, whoever's it is.
fn local_files(target: &Target) -> impl Iterator<Item = io::Result<DirEntry>> {
    let state = target.state.clone();
    WalkDir::new(&target.directory)
        .min_depth(1)
        .into_iter()
        .filter_entry(move |entry| {
            let is_own = entry.depth() == 1 && entry.file_name() == STATE_FOLDER;
            let is_state = entry.file_type().is_dir() && is_state_folder(entry.path());
            !is_own && !is_state && state.as_deref() != Some(entry.path())
        })
        .filter(|entry| entry.as_ref().map_or(true, |entry| !entry.file_type().is_dir()))
        .map(|entry| entry.map_err(io::Error::from))
}

fn relative(target: &Target, entry: &DirEntry) -> Option<PathBuf> {
    entry.path().strip_prefix(&target.directory).ok().map(Path::to_owned)
}

/// Upward as long as folders are empty: removing one that is not fails, which ends it.
fn remove_empty_folders(directory: &Path, file: &Path) {
    let mut folder = file.parent();
    while let Some(path) = folder.filter(|path| *path != directory) {
        if std::fs::remove_dir(path).is_err() {
            break;
        }
        folder = path.parent();
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::places_of;
    use super::*;
    use url::Url;

    fn target(folder: &tempfile::TempDir) -> Target {
        Target::open(folder.path(), Url::parse("http://a.example/").unwrap()).unwrap()
    }

    fn places(listed: &[&str]) -> Places {
        places_of("http://a.example/", listed)
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
        crate::state::mark(&at("another")).unwrap();
        let target = target(&folder).with_state(&at("given"));
        assert_eq!(count_unlisted(&target, &places(&["keep"]), 1).unwrap().0, 3, "strangers are counted");
        assert_eq!(unlisted(&target, &places(&["keep"]), true).unwrap(), 3);
        assert!(at("keep").exists() && at(&own).exists());
        assert!(at("given/state.json").exists());
        assert!(at("another/state.json").exists(), "of another program with another --state");
        assert!(!at("deep").exists());
    }

    #[test]
    fn rs201_what_stands_where_a_listed_file_belongs_stays_until_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, &["was-a-folder/old", "was-a-file", "gone"]);
        let places = places(&["was-a-folder", "was-a-file/new"]);
        assert_eq!(unlisted(&target(&folder), &places, true).unwrap(), 1);
        assert!(folder.path().join("was-a-folder/old").exists() && folder.path().join("was-a-file").exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_is_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        assert_eq!(unlisted(&target(&folder), &places(&["x"]), true).unwrap(), 1);
        assert!(elsewhere.path().join("precious").exists());
    }
}
