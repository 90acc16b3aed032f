//! A document whose header is known last: entries are written to a temporary file, and moved under their header when it is full.
//!
//! Whether a list is alone or has siblings, and when its snapshot or interval ended, shows only after its last entry.

use std::io::{self, BufReader, Read, Seek as _, SeekFrom};

use tempfile::SpooledTempFile;

use super::BuildError;
use super::course::KnownOpen;
use super::scratch::Scratch;
use super::taken_over::TakenOver;
use crate::digest::Hashes;
use crate::document::{Entry, ForeignAttribute, Header, Link, Metadata};
use crate::xml::{Limits, WriteError, Writer};

/// Most bytes of a spool in memory.
const IN_MEMORY: usize = 256 * 1024;
/// What the final header can have more than the first one (a time), and the end tag.
const RESERVE: u64 = 128;

/// Entries that wait for their header.
#[derive(Debug)]
pub(super) struct Spool {
    writer: Writer<SpooledTempFile>,
    header: Header,
    limits: Limits,
    entries: usize,
    scratch: Scratch,
}

impl Spool {
    /// An empty document; `header` has everything of the final one apart from times.
    pub(super) fn new(header: Header, limits: Limits, scratch: Scratch) -> Result<Self, BuildError> {
        let writer = Writer::new(scratch.spooled(IN_MEMORY), &header)?;
        Ok(Self { writer, header, limits, entries: 0, scratch })
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// Whether one more entry stays within the limits; an empty document takes any entry that fits at all.
    pub(super) fn takes(&self, entry: &Entry) -> Result<bool, BuildError> {
        if self.entries >= self.limits.entries {
            return Ok(false);
        }
        let left = self.limits.bytes.saturating_sub(self.writer.bytes() + RESERVE);
        if at_most(entry) <= left || self.length(entry)? <= left {
            return Ok(true);
        }
        if self.entries == 0 {
            return Err(BuildError::EntryTooLong { loc: entry.loc.clone(), limit: self.limits.bytes });
        }
        Ok(false)
    }

    pub(super) fn add(&mut self, entry: &Entry) -> Result<(), BuildError> {
        self.writer.entry(entry).map_err(|error| self.scratch.refused(error))?;
        self.entries += 1;
        Ok(())
    }

    /// Takes over the entries of a published document with the same header, and returns the last of them. `None`, and nothing is taken,
    /// where that document is not the one that is known.
    pub(super) fn take_over(
        &mut self,
        published: impl Read,
        known: KnownOpen,
    ) -> Result<Option<Entry>, BuildError> {
        let written = TakenOver::of(published, &head(&self.header)?, known.content);
        let is_whole = |written: &TakenOver| u64::try_from(written.count) == Ok(known.position.entries);
        let Some(TakenOver { bytes, count, last }) = written.filter(is_whole) else { return Ok(None) };
        self.writer.take_over(&bytes, count, &last).map_err(|error| self.scratch.error(error))?;
        self.entries += count;
        Ok(Some(last))
    }

    /// Moves the entries below `header`.
    pub(super) fn write_to(self, out: &mut impl io::Write, header: &Header) -> Result<(), BuildError> {
        let Self { writer, header: first, scratch, .. } = self;
        let skipped = u64::try_from(head(&first)?.len()).unwrap_or(u64::MAX);
        let head = head(header)?;
        let mut body = writer.finish().map_err(|error| scratch.refused(error))?;
        body.seek(SeekFrom::Start(skipped)).map_err(|error| scratch.error(error))?;
        out.write_all(&head)?;
        // In large pieces, since all else waits for it.
        io::copy(&mut BufReader::with_capacity(IN_MEMORY, body), out)?;
        Ok(())
    }

    fn length(&self, entry: &Entry) -> Result<u64, BuildError> {
        let mut writer = Writer::new(io::sink(), &self.header)?;
        let before = writer.bytes();
        writer.entry(entry)?;
        Ok(writer.bytes() - before)
    }
}

/// The bytes before the first entry.
fn head(header: &Header) -> Result<Vec<u8>, WriteError> {
    let writer = Writer::new(Vec::new(), header)?;
    let length = usize::try_from(writer.bytes()).unwrap_or(usize::MAX);
    let mut bytes = writer.finish()?;
    bytes.truncate(length);
    Ok(bytes)
}

/// A bound on the length of an entry that is quickly had: every character escaped, every attribute there.
fn at_most(entry: &Entry) -> u64 {
    const ELEMENTS: usize = 512;
    const ESCAPED: usize = 6;
    let metadata = entry.metadata.as_ref().map_or(0, of_metadata);
    let links: usize = entry.links.iter().map(|link| ELEMENTS + of_link(link)).sum();
    u64::try_from(ELEMENTS + ESCAPED * entry.loc.len() + metadata + links).unwrap_or(u64::MAX)
}

fn of_metadata(metadata: &Metadata) -> usize {
    let Metadata { hash, encoding, path, media_type, foreign, .. } = metadata;
    of_attributes(hash, [encoding, path, media_type].map(Option::as_deref), foreign)
}

fn of_link(link: &Link) -> usize {
    let Link { rel, href, hash, encoding, path, media_type, profile, foreign, .. } = link;
    let profile = profile.as_ref().map_or(0, String::len);
    6 * (href.len() + rel.as_str().len() + profile)
        + of_attributes(hash, [encoding, path, media_type].map(Option::as_deref), foreign)
}

fn of_attributes(hash: &Hashes, texts: [Option<&str>; 3], foreign: &[ForeignAttribute]) -> usize {
    let texts: usize = texts.into_iter().flatten().map(str::len).sum();
    let foreign: usize = foreign
        .iter()
        .map(|own| 64 + 2 * own.namespace.len() + 2 * own.prefix.len() + own.name.len() + own.value.len())
        .sum();
    6 * (texts + foreign)
        + 80 * hash.iter().count()
        + hash.unknown().iter().map(|token| 8 + 6 * token.len()).sum::<usize>()
}
