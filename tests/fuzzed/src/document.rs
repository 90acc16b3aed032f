//! Any bytes as a document: no panic, no limit passed, strict where lenient finds no error, and whatever conforms is
//! read again as it was written.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use resync_core::xml::{self, Limit, Limits, MAX_BYTES, MAX_LINKS, Mode, Options, ReadError, Reader};

/// Runs the target over one input.
pub fn run(bytes: &[u8]) {
    let strict = Options { mode: Mode::Strict, ..Options::default() };
    let strictly = xml::read_with(bytes, strict);
    let Ok(read) = xml::read(bytes) else {
        assert!(strictly.is_err(), "what cannot be read leniently is read strictly");
        return;
    };
    assert_eq!(strictly.is_ok(), read.violations.is_conforming(), "{}", read.violations);
    let raw = &read.document;
    assert!(raw.header.links.len() <= MAX_LINKS);
    assert!(raw.entries.iter().all(|entry| entry.links.len() <= MAX_LINKS));
    keep_limits(bytes);

    let is_plain = !bytes.starts_with(&[0x1f, 0x8b]);
    if is_plain {
        let again = xml::read(&gzip(bytes)).expect("what is read plain is read compressed");
        assert_eq!(again, read);
    }

    let Ok(document) = read.into_document() else { return };
    let again = xml::read(&xml::write(&document)).expect("what was written can be read");
    assert!(again.violations.is_conforming(), "{}", again.violations);
    assert_eq!(again.into_document().expect("it conforms"), document);
}

/// A document is read within limits that it fills, and not within any that are smaller by one.
fn keep_limits(bytes: &[u8]) {
    let drain = |limits: Limits| {
        let mut reader = Reader::with_options(bytes, Options { limits, ..Options::default() })?;
        reader.by_ref().find_map(Result::err).map_or(Ok(reader.number()), Err)
    };
    let entries = drain(Limits::default()).expect("it was read before");
    let is_plain = !bytes.starts_with(&[0x1f, 0x8b]);
    let full = if is_plain { bytes.len() as u64 } else { MAX_BYTES };
    let reached = |limits| match drain(limits) {
        Err(ReadError::Limit { limit, .. }) => Some(limit),
        other => {
            assert_eq!(other.expect("only a limit keeps it from being read"), entries);
            None
        }
    };
    assert_eq!(reached(Limits { bytes: full, entries }), None);
    if let Some(fewer) = entries.checked_sub(1) {
        assert_eq!(reached(Limits { entries: fewer, ..Limits::default() }), Some(Limit::Entries));
    }
    if is_plain {
        assert_eq!(reached(Limits { bytes: full - 1, ..Limits::default() }), Some(Limit::Bytes));
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a Vec takes everything")
}
