//! Puts finished files in place in batches: they are made durable together, and then each is renamed.
//!
//! A sync of a hundred files costs about as much as one of a single file. So the files that are finished during one sync are the
//! next batch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use resync_core::datetime::DateTime;
use resync_core::digest::{Agreement, Algorithm, Hashes};
use tempfile::NamedTempFile;

use super::content::{Content, MAX_IN_MEMORY, Space};
use super::download::Received;
use super::folder::Staging;
use super::local::{Facts, hash_file};
use super::place::Placer;
use crate::sync::ResourceError;
use crate::sync::reading::path::CheckedFolders;
use crate::sync::saved::cache::{CachedFile, SentVersion, Stamp};

/// How many files of one batch may be open, finished or downloading; three times as many in all. More where one sync serves them
/// all, so that no download waits for the disk.
pub(crate) const MAX_FILES: usize = if cfg!(target_os = "linux") { 160 } else { 48 };

/// How many bytes of memory the files of one batch may take, finished or downloading; three times as many in all.
pub(crate) const MAX_BYTES: usize = 8 << 20;

/// How many bytes of memory a file with these facts may take.
pub(crate) fn max_in_memory(facts: &Facts) -> usize {
    facts
        .length
        .and_then(|length| usize::try_from(length).ok())
        .map_or(MAX_IN_MEMORY, |length| length.min(MAX_IN_MEMORY))
}

/// A complete file that is not in place yet.
#[derive(Debug)]
pub(crate) struct FinishedFile {
    pub(crate) relative: PathBuf,
    content: Content,
    length: u64,
    modified: Option<SystemTime>,
    hashes: Hashes,
    /// If the list has neither a hash nor a time.
    sent: Option<Box<SentVersion>>,
    /// Whether the list has a hash, so that the file in place is known to differ.
    is_proven: bool,
}

/// The result for one file.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// With what is now known about the file.
    Replaced(Option<CachedFile>),
    /// The file in place has the same bytes, and was kept; with what is now known about it.
    Identical(Option<CachedFile>),
}

/// A file that must only be made durable and renamed.
struct Prepared {
    relative: PathBuf,
    /// `None` if the file in place has the same bytes.
    file: Option<NamedTempFile>,
    hashes: Hashes,
    sent: Option<Box<SentVersion>>,
}

impl FinishedFile {
    /// The modification time is that of the list, or else that of the server.
    pub(crate) fn new(received: Received, facts: &Facts, relative: &Path) -> Self {
        let Received { content, length, hashes, modified, sent } = received;
        let sent = sent.filter(|_| facts.name_no_version());
        let modified = facts.modified.map(DateTime::to_system_time).or(modified);
        let is_proven = facts.algorithm().is_some();
        Self { relative: relative.to_owned(), content, length, modified, hashes, sent, is_proven }
    }

    /// How many bytes of memory it takes.
    pub(crate) fn in_memory(&self) -> usize {
        self.content.in_memory()
    }

    /// Writes the file, unless the one in place is the same, and sets the modification time.
    fn prepare(self, placer: &Placer, space: &mut Space<'_>) -> Result<Prepared, ResourceError> {
        let is_new =
            self.is_proven || !placer.can_be_reached(&self.relative)? || !self.is_identical(placer)?;
        let Self { relative, content, modified, hashes, sent, .. } = self;
        let file = if is_new { Some(content.into_file(space)?) } else { None };
        if let Some(modified) = modified {
            // The next comparison may depend on the time.
            if let Some(file) = &file {
                file.as_file().set_modified(modified)?;
            } else {
                // On Unix, the owner may set the time of a file that nobody may write.
                let path = placer.directory.join(&relative);
                let there = File::options().read(true).write(cfg!(not(unix))).open(path)?;
                there.set_modified(modified)?;
            }
        }
        Ok(Prepared { relative, file, hashes, sent })
    }

    fn is_identical(&self, placer: &Placer) -> Result<bool, ResourceError> {
        let path = placer.directory.join(&self.relative);
        let same_length =
            std::fs::symlink_metadata(&path).is_ok_and(|data| data.is_file() && data.len() == self.length);
        if !same_length {
            return Ok(false);
        }
        let hashes = hash_file(&path, Algorithm::Sha256).map_err(ResourceError::Read)?;
        Ok(hashes.compare(&self.hashes) == Agreement::Same)
    }
}

impl Prepared {
    /// Renames the durable file to its place.
    fn place(
        self,
        placer: &Placer,
        checked: &mut CheckedFolders,
        is_durable: bool,
    ) -> Result<Written, ResourceError> {
        let Self { relative, file, hashes, sent } = self;
        // Without a stamp, the next comparison reads the file.
        let known = |data: std::io::Result<std::fs::Metadata>| {
            let stamp = data.and_then(|data| Stamp::of(&data)).ok();
            stamp.map(|stamp| CachedFile { stamp, hashes, sent })
        };
        let Some(file) = file else {
            let there = placer.directory.join(&relative);
            return Ok(Written::Identical(known(there.symlink_metadata())));
        };
        if !is_durable {
            placer.folder.sync_file(file.as_file())?;
        }
        let file = placer.place(file, &relative, checked)?;
        Ok(Written::Replaced(known(file.metadata())))
    }
}

/// Puts files in place, each in one step, after all are durable. Returns the results in the same order.
pub(crate) fn place_all(placer: &Placer, batch: Vec<FinishedFile>) -> Vec<Result<Written, ResourceError>> {
    let staging = Staging::Copy(Arc::clone(&placer.folder));
    let mut space = Space::of(&staging);
    let prepared: Vec<_> = batch.into_iter().map(|one| one.prepare(placer, &mut space)).collect();
    let are_durable = placer.folder.sync_files(prepared.len());
    let mut checked = CheckedFolders::default();
    let place = |one: Result<Prepared, ResourceError>| one?.place(placer, &mut checked, are_durable);
    prepared.into_iter().map(place).collect()
}
