//! Which files of the repository are ours: not what programs leave in its folders.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below a folder of the repository that have this extension, by their paths in the repository. What `.gitignore` names by
/// its whole path is left out, as are hidden folders, and those of `target` and `node_modules` wherever they are.
pub(super) fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let root = root();
    let ignored = ignored(&root);
    let is_ours = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        let is_left = name.starts_with('.') || name == "target" || name == "node_modules";
        entry.depth() == 0 || !(is_left || ignored.iter().any(|ignored| entry.path() == ignored))
    };
    let entries = WalkDir::new(root.join(folder)).into_iter().filter_entry(is_ours).map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path);
    let wanted = files.filter(|path| path.extension().is_some_and(|found| found == extension));
    wanted.map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect()
}

/// The paths in `.gitignore` that are not of any folder.
fn ignored(root: &Path) -> Vec<PathBuf> {
    let lines = fs::read_to_string(root.join(".gitignore")).unwrap();
    lines.lines().filter_map(|line| line.strip_prefix('/')).map(|path| root.join(path)).collect()
}

#[test]
fn what_measuring_leaves_beside_the_figures_is_none_of_our_files() {
    let root = root();
    assert!(ignored(&root).contains(&root.join("docs/figures/runs")));
    let pages = files("docs", "md");
    assert!(pages.contains(&PathBuf::from("docs/README.md")));
    assert!(pages.iter().all(|page| !page.starts_with("docs/figures/runs")), "{pages:?}");
}
