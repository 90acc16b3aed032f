//! `xmllint` with the grammar of `tests/schemas`, and where the documents lie that it is shown.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use tempfile::TempDir;
use walkdir::{DirEntry, WalkDir};

/// Names a folder in which the documents stay, so that other validators can be shown them.
pub const DOCUMENTS: &str = "RESYNC_TEST_DOCUMENTS";

/// A folder for documents: below the one that [`DOCUMENTS`] names, else a temporary one.
#[derive(Debug)]
pub struct Documents {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

impl Documents {
    /// The folder `name`, empty.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(name: &str) -> Self {
        let kept = env::var_os(DOCUMENTS).filter(|folder| !folder.is_empty());
        let temporary = kept.is_none().then(|| tempfile::tempdir().expect("a temporary folder can be made"));
        let root = temporary.as_ref().map(|folder| folder.path().to_owned());
        let path = root.or(kept.map(PathBuf::from)).expect("one of the two is there").join(name);
        if path.exists() {
            fs::remove_dir_all(&path).expect("what an earlier run left can be removed");
        }
        fs::create_dir_all(&path).expect("a folder can be made");
        Self { path, _temporary: temporary }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a document.
    ///
    /// # Panics
    /// When that fails.
    pub fn store(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, bytes).expect("a document can be written");
        path
    }
}

/// The files below a folder that readers are to see, by name: neither state nor locks.
///
/// # Panics
/// When the folder cannot be read.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let is_private = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        name.starts_with('.') && name != ".well-known" && entry.depth() > 0
    };
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter();
    let entries =
        entries.filter_entry(|entry| !is_private(entry)).map(|entry| entry.expect("it can be read"));
    entries.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path).collect()
}

/// The grammar of `tests/schemas`.
pub fn grammar() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/resourcesync.rng")
}

/// What `xmllint` has against these files; nothing when all are valid.
///
/// # Panics
/// When `xmllint` is not installed, or does not judge them all.
pub fn complaints(grammar: &Path, files: &[PathBuf]) -> String {
    let output = Command::new("xmllint")
        .args(["--nonet", "--noout", "--relaxng"])
        .arg(grammar)
        .args(files)
        .output()
        .expect("xmllint is installed: tests/run does it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let judged =
        said.lines().filter(|line| line.ends_with(" validates") || line.ends_with(" fails to validate"));
    assert_eq!(judged.count(), files.len(), "{said}");
    said.lines().filter(|line| !line.ends_with(" validates")).flat_map(|line| [line, "\n"]).collect()
}
