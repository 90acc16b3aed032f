//! Libraries that are loaded under a program, built from their source where they are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds one in a folder.
///
/// # Panics
/// When the system has no C compiler.
pub(super) fn build(name: &str, text: &str, folder: &Path) -> PathBuf {
    let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    fs::write(&source, text).expect("a source can be written");
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&library, &source])
        .output()
        .expect("there is a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}
