//! Documents to XML, entry by entry: nothing that breaks a rule is written.

use std::io;

use super::serializer::Serializer;
use super::{MAX_BYTES, WriteError};
use crate::document::{Document, Entry, Header, Root};
use crate::rules::{Checker, Place, Rule, Violations};

/// How much is gathered before the output is asked to take it.
const GATHERED: usize = 64 * 1024;

/// A whole document as bytes, one element a line.
///
/// A document of more than [`MAX_BYTES`] is written, too, although no reader has to take it (RS-042); a [`Writer`]
/// stops there.
pub fn write(document: &Document) -> Vec<u8> {
    let mut serializer = Serializer::default();
    serializer.header(document.header());
    for entry in document.entries() {
        serializer.entry(document.root(), entry);
    }
    serializer.end(document.root());
    serializer.into_bytes()
}

/// Writes a document entry by entry, and refuses what would break a rule.
///
/// Bytes are gathered, so the output needs no buffer of its own.
///
/// ```
/// use resync_core::document::{Capability, Entry, Header, Root};
/// use resync_core::xml::{WriteError, Writer};
///
/// let header = Header::new(Root::UrlSet, Capability::Description);
/// let mut writer = Writer::new(Vec::new(), &header)?;
/// writer.entry(&Entry::new("https://example.org/capabilitylist.xml"))?;
/// assert!(matches!(writer.entry(&Entry::new("capabilitylist.xml")), Err(WriteError::Violations(_))));
/// let bytes = writer.finish()?;
/// assert!(bytes.starts_with(b"<?xml"));
/// # Ok::<(), WriteError>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: io::Write> {
    out: W,
    root: Root,
    checker: Checker,
    gathered: Serializer,
    /// Bytes of all that was written and gathered.
    bytes: u64,
}

impl<W: io::Write> Writer<W> {
    /// Writes what stands before the first entry.
    pub fn new(out: W, header: &Header) -> Result<Self, WriteError> {
        let checker = Checker::new(header);
        if !checker.violations().is_conforming() {
            return Err(WriteError::Violations(checker.finish()));
        }
        let mut gathered = Serializer::default();
        gathered.header(header);
        let bytes = length(gathered.text());
        Ok(Self { out, root: header.root, checker, gathered, bytes })
    }

    /// Writes the next entry. One that is refused leaves no trace, and others may follow.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        let accepted = self.checker.accept(entry).map_err(WriteError::Violations)?;
        let before = self.gathered.text().len();
        self.gathered.entry(self.root, entry);
        let added = length(&self.gathered.text()[before..]);
        if self.bytes + added + Serializer::end_length(self.root) > MAX_BYTES {
            self.gathered.truncate(before);
            return Err(WriteError::Violations(self.too_large()));
        }
        self.bytes += added;
        self.checker.take(entry, accepted);
        if self.gathered.text().len() >= GATHERED {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Takes over entries that another writer wrote into such a document, the last of which is `last`. Only for documents whose entries may
    /// repeat.
    pub(crate) fn take_over(&mut self, entries: &[u8], count: usize, last: &Entry) -> io::Result<()> {
        self.hand_over()?;
        self.out.write_all(entries)?;
        self.bytes += u64::try_from(entries.len()).unwrap_or(u64::MAX);
        self.checker.take_over(count, last);
        Ok(())
    }

    /// How many bytes the document has so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the document, flushes the output and gives it back.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.gathered.end(self.root);
        self.hand_over()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn hand_over(&mut self) -> io::Result<()> {
        self.out.write_all(self.gathered.text().as_bytes())?;
        self.gathered.truncate(0);
        Ok(())
    }

    fn too_large(&self) -> Violations {
        let mut violations = Violations::default();
        let place = Place { position: None, entry: Some(self.checker.count() + 1) };
        violations.push(
            Rule::TooLarge,
            place,
            format!("it would pass {MAX_BYTES} bytes; split the document"),
        );
        violations
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
