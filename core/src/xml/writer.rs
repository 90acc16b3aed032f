//! Documents to XML, entry by entry, plain or gzip: nothing that breaks a rule is written.

use std::io;

use flate2::write::GzEncoder;

use super::serializer::Serializer;
use super::{Compression, Format, MAX_BYTES, WriteError};
use crate::document::{Document, Entry, Header, Root};
use crate::rules::{Checker, Place, Rule, Violations};

/// How much is gathered before the output is asked to take it.
const GATHERED: usize = 64 * 1024;

/// A whole document as bytes: plain, one element a line.
///
/// A document of more than [`MAX_BYTES`] is written, too, although no reader has to take it (RS-042); a [`Writer`]
/// stops there.
pub fn write(document: &Document) -> Vec<u8> {
    write_with(document, Format::default())
}

/// The same in another layout or compressed.
///
/// ```
/// use resync_core::document::SourceDescription;
/// use resync_core::xml::{self, Format};
///
/// let document = SourceDescription::new().capability_list("https://example.org/capabilitylist.xml").build()?;
/// let bytes = xml::write_with(&document, Format::GZIP);
/// assert_eq!(xml::read(&bytes)?.into_document()?, document);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_with(document: &Document, format: Format) -> Vec<u8> {
    let mut serializer = Serializer::new(format.layout);
    serializer.header(document.header());
    let mut sink = Sink::new(Vec::new(), format.compression);
    for entry in document.entries() {
        serializer.entry(document.root(), entry);
        if serializer.text().len() >= GATHERED {
            sink.take(&mut serializer).expect("a Vec takes any bytes");
        }
    }
    serializer.end(document.root());
    sink.take(&mut serializer).expect("a Vec takes any bytes");
    sink.finish().expect("a Vec takes any bytes")
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
    out: Sink<W>,
    root: Root,
    checker: Checker,
    gathered: Serializer,
    /// Bytes of all that was written and gathered, before compression.
    bytes: u64,
}

impl<W: io::Write> Writer<W> {
    /// Writes what stands before the first entry; plain, one element a line.
    pub fn new(out: W, header: &Header) -> Result<Self, WriteError> {
        Self::with_format(out, header, Format::default())
    }

    /// The same in another layout or compressed.
    pub fn with_format(out: W, header: &Header, format: Format) -> Result<Self, WriteError> {
        let checker = Checker::new(header);
        if !checker.violations().is_conforming() {
            return Err(WriteError::Violations(checker.finish()));
        }
        let mut gathered = Serializer::new(format.layout);
        gathered.header(header);
        let bytes = length(gathered.text());
        let out = Sink::new(out, format.compression);
        Ok(Self { out, root: header.root, checker, gathered, bytes })
    }

    /// Writes the next entry. One that is refused leaves no trace, and others may follow.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        let accepted = self.checker.accept(entry).map_err(WriteError::Violations)?;
        let before = self.gathered.text().len();
        self.gathered.entry(self.root, entry);
        let added = length(&self.gathered.text()[before..]);
        if self.bytes + added + self.gathered.end_length(self.root) > MAX_BYTES {
            self.gathered.truncate(before);
            return Err(WriteError::Violations(self.too_large()));
        }
        self.bytes += added;
        self.checker.take(entry, accepted);
        if self.gathered.text().len() >= GATHERED {
            self.out.take(&mut self.gathered)?;
        }
        Ok(())
    }

    /// How many bytes the document has so far, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the document, flushes the output and gives it back.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.gathered.end(self.root);
        self.out.take(&mut self.gathered)?;
        let mut out = self.out.finish()?;
        out.flush()?;
        Ok(out)
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

/// Where the bytes go.
#[derive(Debug)]
enum Sink<W: io::Write> {
    Plain(W),
    Gzip(Box<GzEncoder<W>>),
}

impl<W: io::Write> Sink<W> {
    fn new(out: W, compression: Compression) -> Self {
        match compression {
            Compression::None => Self::Plain(out),
            Compression::Gzip => Self::Gzip(Box::new(GzEncoder::new(out, flate2::Compression::default()))),
        }
    }

    fn take(&mut self, serializer: &mut Serializer) -> io::Result<()> {
        let bytes = serializer.text().as_bytes();
        match self {
            Self::Plain(out) => out.write_all(bytes)?,
            Self::Gzip(encoder) => io::Write::write_all(encoder, bytes)?,
        }
        serializer.truncate(0);
        Ok(())
    }

    fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests;
