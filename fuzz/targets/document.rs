//! Any bytes as a document: no panic, no limit passed, strict where lenient finds no error, and whatever conforms is
//! read again as it was written, plain or compressed.
#![no_main]

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use libfuzzer_sys::fuzz_target;
use resync_core::xml::{self, Format, MAX_ENTRIES, MAX_LINKS, Mode, Options};

fuzz_target!(|bytes: &[u8]| {
    let strict = Options { mode: Mode::Strict, ..Options::default() };
    let strictly = xml::read_with(bytes, strict);
    let Ok(read) = xml::read(bytes) else {
        assert!(strictly.is_err(), "what cannot be read leniently is read strictly");
        return;
    };
    assert_eq!(strictly.is_ok(), read.violations.is_conforming(), "{}", read.violations);
    let raw = &read.document;
    assert!(raw.entries.len() <= MAX_ENTRIES && raw.header.links.len() <= MAX_LINKS);
    assert!(raw.entries.iter().all(|entry| entry.links.len() <= MAX_LINKS));

    let is_plain = !bytes.starts_with(&[0x1f, 0x8b]);
    if is_plain {
        let again = xml::read(&gzip(bytes)).expect("what is read plain is read compressed");
        assert_eq!(again, read);
    }

    let Ok(document) = read.into_document() else { return };
    for written in [xml::write(&document), xml::write_with(&document, Format::GZIP)] {
        let again = xml::read(&written).expect("what was written can be read");
        assert!(again.violations.is_conforming(), "{}", again.violations);
        assert_eq!(again.into_document().expect("it conforms"), document);
    }
});

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a Vec takes everything")
}
