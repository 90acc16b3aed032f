//! Removing what the Source no longer lists, and nothing else.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use walkdir::{DirEntry, WalkDir};

use super::Target;
use super::path::UNFINISHED;
use crate::state::STATE_FOLDER;

/// An unfinished file this old was left by a crash.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// Removes every file under the directory that is not in `keep` (relative paths), and the folders this
/// empties.
pub(crate) fn unlisted(target: &Target, keep: &HashSet<Box<str>>) -> io::Result<u64> {
    let mut deleted = 0;
    for entry in local_files(target) {
        let entry = entry?;
        if is_unfinished(&entry) {
            if is_old(&entry) {
                std::fs::remove_file(entry.path())?;
            }
            continue;
        }
        if relative(target, &entry).is_some_and(|path| keep.contains(path.as_str())) {
            continue;
        }
        std::fs::remove_file(entry.path())?;
        deleted += 1;
        remove_empty_folders(&target.directory, entry.path());
    }
    Ok(deleted)
}

/// How many files under the directory are not in `keep`, and the first of them.
pub(crate) fn count_unlisted(
    target: &Target,
    keep: &HashSet<Box<str>>,
    show: usize,
) -> io::Result<(u64, Vec<String>)> {
    let (mut count, mut first) = (0, Vec::new());
    for entry in local_files(target) {
        let entry = entry?;
        let path = relative(target, &entry);
        if is_unfinished(&entry) || path.as_ref().is_some_and(|path| keep.contains(path.as_str())) {
            continue;
        }
        count += 1;
        if first.len() < show {
            first.push(path.unwrap_or_else(|| entry.path().display().to_string()));
        }
    }
    Ok((count, first))
}

/// All that is no folder, symbolic links as themselves; the state is not looked into.
fn local_files(target: &Target) -> impl Iterator<Item = io::Result<DirEntry>> {
    let state = target.state.clone();
    WalkDir::new(&target.directory)
        .min_depth(1)
        .into_iter()
        .filter_entry(move |entry| {
            let is_default = entry.depth() == 1 && entry.file_name() == STATE_FOLDER;
            !is_default && state.as_deref() != Some(entry.path())
        })
        .filter(|entry| entry.as_ref().map_or(true, |entry| !entry.file_type().is_dir()))
        .map(|entry| entry.map_err(io::Error::from))
}

fn is_unfinished(entry: &DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(UNFINISHED)
}

fn is_old(entry: &DirEntry) -> bool {
    let modified = entry.metadata().ok().and_then(|data| data.modified().ok());
    modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > LEFT_BEHIND)
}

fn relative(target: &Target, entry: &DirEntry) -> Option<String> {
    entry.path().strip_prefix(&target.directory).ok()?.to_str().map(str::to_owned)
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
    use super::*;
    use url::Url;

    #[test]
    fn rs201_only_what_is_not_listed_goes_and_never_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["keep", "gone", "deep/er/gone", STATE_FOLDER, "own-state"] {
            let path = at(name);
            if name == STATE_FOLDER || name == "own-state" {
                std::fs::create_dir(&path).unwrap();
                std::fs::write(path.join("state.json"), "{}").unwrap();
            } else {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "x").unwrap();
            }
        }
        std::fs::write(at(".resync-unfinished-a"), "in work").unwrap();
        let base = Url::parse("http://a.example/").unwrap();
        let target = Target::open(folder.path(), base).unwrap().with_state(&at("own-state"));
        let keep = HashSet::from(["keep".into()]);
        assert_eq!(count_unlisted(&target, &keep, 1).unwrap().0, 2);
        assert_eq!(unlisted(&target, &keep).unwrap(), 2);
        assert!(at("keep").exists() && at(STATE_FOLDER).join("state.json").exists());
        assert!(at("own-state/state.json").exists() && at(".resync-unfinished-a").exists());
        assert!(!at("deep").exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_is_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        let target = Target::open(folder.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        assert_eq!(unlisted(&target, &HashSet::new()).unwrap(), 1);
        assert!(elsewhere.path().join("precious").exists());
    }
}
