//! Two folders compared file by file, outside of any tool under test.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// The files below a folder with their contents, by relative path. Folders and files whose name begins with a dot are the
/// tools' own and left out.
///
/// # Errors
/// When something cannot be read.
pub fn contents(folder: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let own = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.');
    WalkDir::new(folder)
        .min_depth(1)
        .into_iter()
        .filter_entry(|entry| !own(entry.file_name()))
        .filter(|entry| entry.as_ref().map_or(true, |entry| entry.file_type().is_file()))
        .map(|entry| {
            let path = entry?.into_path();
            let bytes = std::fs::read(&path)?;
            Ok((path.strip_prefix(folder).expect("a walk stays below its root").to_owned(), bytes))
        })
        .collect()
}

/// The paths at which two folders differ.
///
/// # Errors
/// When something cannot be read.
pub fn differences(one: &Path, other: &Path) -> io::Result<Vec<PathBuf>> {
    let (one, other) = (contents(one)?, contents(other)?);
    let mut different: Vec<_> = one
        .iter()
        .filter(|(path, bytes)| other.get(*path) != Some(*bytes))
        .map(|(path, _)| path.clone())
        .collect();
    different.extend(other.keys().filter(|path| !one.contains_key(*path)).cloned());
    different.sort();
    Ok(different)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_extra_and_altered_files_are_differences_and_hidden_ones_are_not() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |folder: &tempfile::TempDir, name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for folder in [&one, &other] {
            write(folder, "same/a", "a");
        }
        assert!(differences(one.path(), other.path()).unwrap().is_empty());
        write(&one, "altered", "a");
        write(&other, "altered", "b");
        write(&one, "missing", "");
        write(&other, "sub/extra", "");
        write(&other, ".state/own", "");
        let found = differences(one.path(), other.path()).unwrap();
        assert_eq!(found, ["altered", "missing", "sub/extra"].map(PathBuf::from));
    }
}
