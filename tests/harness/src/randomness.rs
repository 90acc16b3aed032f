//! What a process has of the system's random bytes: a library under it notes them (`randomness.c`).

use std::fs;
use std::path::{Path, PathBuf};

use super::preload;

/// The random bytes of a process.
#[derive(Debug)]
pub struct Randomness {
    library: PathBuf,
    log: PathBuf,
}

impl Randomness {
    /// With its files in this folder.
    ///
    /// # Panics
    /// When the library cannot be built: the system has no C compiler.
    pub fn new(folder: &Path) -> Self {
        let library = preload::build("randomness", &[("randomness.c", include_str!("randomness.c"))], folder);
        Self { library, log: folder.join("randomness.log") }
    }

    /// The environment of a process whose random bytes are noted.
    pub fn environment(&self) -> [(String, String); 2] {
        [
            ("LD_PRELOAD".to_owned(), self.library.display().to_string()),
            ("RESYNC_RANDOMNESS_LOG".to_owned(), self.log.display().to_string()),
        ]
    }

    /// All that the system gave so far, in its order.
    pub fn given(&self) -> Vec<u8> {
        fs::read(&self.log).unwrap_or_default()
    }
}
