//! Putting finished files in place, many at a time: they are made durable together, and then each is renamed.
//!
//! A sync costs the disk much the same for one file as for a hundred, so what is finished while one batch is made durable is
//! the next batch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use resync_core::datetime::DateTime;
use resync_core::digest::{Agreement, Algorithm, Hashes};
use tempfile::NamedTempFile;

use super::ResourceError;
use super::download::Came;
use super::local::{Facts, hash_file};
use super::memory::{Known, Stamp};
use super::put::Placing;

/// How many files wait for one another: each is open until then, twice as many in all. Where one sync serves them all,
/// there is room for what comes meanwhile, so that no download waits for the disk.
pub(crate) const MOST: usize = if cfg!(target_os = "linux") { 200 } else { 64 };

/// A complete file that is not in its place yet.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) relative: PathBuf,
    file: NamedTempFile,
    modified: Option<SystemTime>,
    hashes: Hashes,
    /// Whether the list gives a hash, by which it is another file than the one in its place.
    is_proven: bool,
}

/// What became of the file.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// With what is now known of the file.
    Replaced(Option<Known>),
    /// The same bytes were there already, so the file was left alone.
    Identical,
}

impl Ready {
    /// What came is what the list tells of this file. It was modified when the list says, or else the server.
    pub(crate) fn new(came: Came, facts: &Facts, relative: &Path) -> Self {
        let Came { file, hashes, modified, .. } = came;
        let modified = facts.modified.map(DateTime::to_system_time).or(modified);
        Self { relative: relative.to_owned(), file, modified, hashes, is_proven: facts.algorithm().is_some() }
    }

    /// Whether it is to be put in place; dates it, or else what is there already and the same.
    fn prepare(&self, placing: &Placing) -> Result<bool, ResourceError> {
        let path = placing.directory.join(&self.relative);
        let is_new =
            self.is_proven || !placing.can_be_reached(&self.relative)? || !self.is_identical(&path)?;
        if let Some(modified) = self.modified {
            // The time is all that the next comparison may have to go by.
            let there = if is_new { None } else { Some(File::options().write(true).open(path)?) };
            there.as_ref().unwrap_or(self.file.as_file()).set_modified(modified)?;
        }
        Ok(is_new)
    }

    fn is_identical(&self, path: &Path) -> std::io::Result<bool> {
        let length = self.file.as_file().metadata()?.len();
        let same_length =
            std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file() && data.len() == length);
        Ok(same_length && hash_file(path, Algorithm::Sha256)?.compare(&self.hashes) == Agreement::Same)
    }

    /// Renames the durable file to its place; gives what is then known of it.
    fn put(self, placing: &Placing) -> Result<Written, ResourceError> {
        let Self { relative, file, hashes, .. } = self;
        placing.put(file, &relative)?;
        let found = std::fs::symlink_metadata(placing.directory.join(relative));
        // What cannot be looked at now is read again when it is next compared.
        let stamp = found.and_then(|data| Stamp::of(&data)).ok();
        Ok(Written::Replaced(stamp.map(|stamp| Known { stamp, hashes })))
    }
}

/// Puts files in place, each in one step and durable before that; gives what became of each, in their order.
pub(crate) fn put_all(placing: &Placing, batch: Vec<Ready>) -> Vec<Result<Written, ResourceError>> {
    let prepared: Vec<Result<bool, ResourceError>> = batch.iter().map(|one| one.prepare(placing)).collect();
    let are_durable = placing.folder.sync_files(batch.len());
    let put = |(ready, is_new): (Ready, Result<bool, ResourceError>)| {
        if !is_new? {
            return Ok(Written::Identical);
        }
        if !are_durable {
            placing.folder.sync_file(ready.file.as_file())?;
        }
        ready.put(placing)
    };
    batch.into_iter().zip(prepared).map(put).collect()
}
