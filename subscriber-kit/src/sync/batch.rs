//! Putting finished files in place, many at a time: they are made durable together, and then each is renamed.
//!
//! A sync costs the disk much the same for one file as for a hundred, so what is finished while one batch is made durable is
//! the next batch.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use resync_core::datetime::DateTime;
use resync_core::digest::{Agreement, Algorithm, Hashes};
use tempfile::NamedTempFile;

use super::ResourceError;
use super::content::{Content, MOST_HELD, Space};
use super::download::Received;
use super::folder::Staging;
use super::local::{Facts, hash_file};
use super::memory::{KnownFile, Sent, Stamp};
use super::path::Ways;
use super::put::Placing;

/// How many files wait for one another, with those that come: each may be open until then, three times as many in all. Where one sync serves them
/// all, there is room for what comes meanwhile, so that no download waits for the disk.
pub(crate) const MOST: usize = if cfg!(target_os = "linux") { 160 } else { 48 };

/// How many bytes of memory the files may take that wait for one another, with those that come; three times as many in all.
pub(crate) const MOST_BYTES: usize = 8 << 20;

/// How many bytes of memory a file of which the list tells this may take.
pub(crate) fn most_held(facts: &Facts) -> usize {
    facts
        .length
        .and_then(|length| usize::try_from(length).ok())
        .map_or(MOST_HELD, |length| length.min(MOST_HELD))
}

/// A complete file that is not in its place yet.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) relative: PathBuf,
    content: Content,
    length: u64,
    modified: Option<SystemTime>,
    hashes: Hashes,
    /// Where the list proves nothing.
    sent: Option<Box<Sent>>,
    /// Whether the list gives a hash, by which it is another file than the one in its place.
    is_proven: bool,
}

/// What became of the file.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// With what is now known of the file.
    Replaced(Option<KnownFile>),
    /// The same bytes were there already, so the file was left alone; with what is now known of it.
    Identical(Option<KnownFile>),
}

/// A file that only has to be made durable and renamed.
struct Prepared {
    relative: PathBuf,
    /// `None` where the same bytes are there already.
    file: Option<NamedTempFile>,
    hashes: Hashes,
    sent: Option<Box<Sent>>,
}

impl Ready {
    /// What came is what the list tells of this file. It was modified when the list says, or else the server.
    pub(crate) fn new(received: Received, facts: &Facts, relative: &Path) -> Self {
        let Received { content, length, hashes, modified, sent } = received;
        let sent = sent.filter(|_| facts.prove_nothing());
        let modified = facts.modified.map(DateTime::to_system_time).or(modified);
        let is_proven = facts.algorithm().is_some();
        Self { relative: relative.to_owned(), content, length, modified, hashes, sent, is_proven }
    }

    /// How many bytes of memory it takes.
    pub(crate) fn held(&self) -> usize {
        self.content.held()
    }

    /// Writes and dates it, or else dates what is there already and the same.
    fn prepare(self, placing: &Placing, space: &mut Space<'_>) -> Result<Prepared, ResourceError> {
        let is_new =
            self.is_proven || !placing.can_be_reached(&self.relative)? || !self.is_identical(placing)?;
        let Self { relative, content, modified, hashes, sent, .. } = self;
        let file = if is_new { Some(content.into_file(space)?) } else { None };
        if let Some(modified) = modified {
            // The time is all that the next comparison may have to go by.
            if let Some(file) = &file {
                file.as_file().set_modified(modified)?;
            } else {
                let there = File::options().write(true).open(placing.directory.join(&relative))?;
                there.set_modified(modified)?;
            }
        }
        Ok(Prepared { relative, file, hashes, sent })
    }

    fn is_identical(&self, placing: &Placing) -> std::io::Result<bool> {
        let path = placing.directory.join(&self.relative);
        let same_length =
            std::fs::symlink_metadata(&path).is_ok_and(|data| data.is_file() && data.len() == self.length);
        Ok(same_length && hash_file(&path, Algorithm::Sha256)?.compare(&self.hashes) == Agreement::Same)
    }
}

impl Prepared {
    /// Renames the durable file to its place; gives what is then known of it.
    fn put(self, placing: &Placing, ways: &mut Ways, is_durable: bool) -> Result<Written, ResourceError> {
        let Self { relative, file, hashes, sent } = self;
        // What cannot be looked at now is read again when it is next compared.
        let known = |data: std::io::Result<std::fs::Metadata>| {
            let stamp = data.and_then(|data| Stamp::of(&data)).ok();
            stamp.map(|stamp| KnownFile { stamp, hashes, sent })
        };
        let Some(file) = file else {
            let there = placing.directory.join(&relative);
            return Ok(Written::Identical(known(there.symlink_metadata())));
        };
        if !is_durable {
            placing.folder.sync_file(file.as_file())?;
        }
        let file = placing.put(file, &relative, ways)?;
        Ok(Written::Replaced(known(file.metadata())))
    }
}

/// Puts files in place, each in one step and durable before that; gives what became of each, in their order.
pub(crate) fn put_all(placing: &Placing, batch: Vec<Ready>) -> Vec<Result<Written, ResourceError>> {
    let staging = Staging::Copy(Arc::clone(&placing.folder));
    let mut space = Space::of(&staging);
    let prepared: Vec<_> = batch.into_iter().map(|one| one.prepare(placing, &mut space)).collect();
    let are_durable = placing.folder.sync_files(prepared.len());
    let mut ways = Ways::default();
    let put = |one: Result<Prepared, ResourceError>| one?.put(placing, &mut ways, are_durable);
    prepared.into_iter().map(put).collect()
}
