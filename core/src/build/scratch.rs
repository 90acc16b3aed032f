//! Temporary files, on the file system that the documents go to: who has room for the documents has room for them.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use tempfile::SpooledTempFile;

use super::{BuildError, Sink};
use crate::digest::read_pieces;
use crate::xml::WriteError;

/// Most bytes of a resource in memory.
const IN_MEMORY: usize = 1024 * 1024;

/// Where temporary files go.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Where those for documents of a sink go.
    pub(super) fn of<S: Sink>(sink: &S) -> Self {
        Self { folder: sink.scratch_folder().map_or_else(std::env::temp_dir, ToOwned::to_owned) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file without a name, which ends with the process.
    pub(super) fn file(&self) -> Result<File, BuildError> {
        tempfile::tempfile_in(&self.folder).map_err(|error| self.error(error))
    }

    /// One that stays in memory up to a length.
    pub(super) fn spooled(&self, in_memory: usize) -> SpooledTempFile {
        tempfile::spooled_tempfile_in(in_memory, &self.folder)
    }

    /// A copy of the bytes of a resource, ready to be read, and its length; `seen` sees every byte.
    pub(super) fn copy(
        &self,
        loc: &str,
        content: impl Read,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<(SpooledTempFile, u64), BuildError> {
        let mut copy = self.spooled(IN_MEMORY);
        let unreadable = |source| BuildError::Content { loc: loc.to_owned(), source };
        let length = read_pieces(content, unreadable, |piece| {
            seen(piece);
            copy.write_all(piece).map_err(|error| self.error(error))
        })?;
        copy.rewind().map_err(|error| self.error(error))?;
        Ok((copy, length))
    }

    /// What a document that is written to a temporary file fails of.
    pub(super) fn refused(&self, error: WriteError) -> BuildError {
        match error {
            WriteError::Io(source) => self.error(source),
            WriteError::Violations(violations) => BuildError::Violations(violations),
        }
    }

    pub(super) fn error(&self, source: io::Error) -> BuildError {
        BuildError::Scratch { folder: self.folder.clone(), source }
    }
}
