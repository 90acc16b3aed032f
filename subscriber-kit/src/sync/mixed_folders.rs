//! Copies and their versions lie apart: each would be taken for a part of another.

use std::io;
use std::path::{Path, PathBuf};

use super::SyncError;

/// Refuses a directory of versions within the copy, or around it.
///
/// # Errors
/// [`SyncError::MixedFolders`], and what the file system says.
pub(crate) fn refuse_mixed_folders(copy: &Path, versions: Option<&Path>) -> Result<(), SyncError> {
    let Some(versions) = versions else { return Ok(()) };
    if overlap(copy, versions)? {
        return Err(SyncError::MixedFolders { directory: copy.to_owned(), versions: versions.to_owned() });
    }
    Ok(())
}

/// Two of these directories that are the same one, or of which one is within the other. They need not exist; one that cannot be looked at
/// overlaps with no other.
pub fn overlapping(directories: &[PathBuf]) -> Option<(&Path, &Path)> {
    let mut pairs = directories.iter().enumerate().flat_map(|(number, one)| {
        directories[..number].iter().map(move |earlier| (earlier.as_path(), one.as_path()))
    });
    pairs.find(|(one, other)| overlap(one, other).unwrap_or(false))
}

fn overlap(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (settled(one)?, settled(other)?);
    Ok(one.starts_with(&other) || other.starts_with(&one))
}

/// Absolute, and without symbolic links as far as it is there.
fn settled(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    for above in path.ancestors() {
        if let Ok(found) = above.canonicalize() {
            return Ok(found.join(path.strip_prefix(above).unwrap_or(Path::new(""))));
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_and_its_versions_are_not_within_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir(at("copy")).unwrap();
        let refuses = |copy: &str, versions: &str| {
            let refused = refuse_mixed_folders(&at(copy), Some(&at(versions)));
            matches!(refused, Err(SyncError::MixedFolders { .. }))
        };
        assert!(refuses("copy", "copy/versions") && refuses("copy", "copy") && refuses("copy", ""));
        assert!(!refuses("copy", "versions") && !refuses("copy", "copy-versions"));
        assert!(refuse_mixed_folders(&at("copy"), None).is_ok());
    }
}
