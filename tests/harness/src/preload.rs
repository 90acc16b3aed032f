//! Libraries that are loaded under a program, built from their source where they are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds one from these files in a folder.
///
/// # Panics
/// When the system has no C compiler.
pub(super) fn build(name: &str, sources: &[(&str, &str)], folder: &Path) -> PathBuf {
    let library = folder.join(format!("{name}.so"));
    let mut command = Command::new("cc");
    command.args(["-O1", "-shared", "-fPIC", "-pthread", "-o"]).arg(&library);
    for (name, text) in sources {
        let source = folder.join(name);
        fs::write(&source, text).expect("a source can be written");
        // What is included is found beside it.
        if source.extension().is_some_and(|extension| extension == "c") {
            command.arg(source);
        }
    }
    let built = command.output().expect("there is a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}
