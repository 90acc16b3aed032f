//! No bytes do harm: plain, compressed or in an older form they give a document, violations or a named error, and
//! never more than the limits allow.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufReader, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use resync_core::document::{Document, RawDocument};
use resync_core::xml::{self, Limits, Mode, Options, ReadError, Reader};

/// So small that the pieces below pass them now and then.
const LIMITS: Limits = Limits { bytes: 2_000, entries: 3 };

proptest! {
    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300)) {
        survive(&bytes)?;
        survive(&[&[0x1f, 0x8b, 8, 0], bytes.as_slice()].concat())?;
    }

    #[test]
    fn no_older_form_panics(root in root(), pieces in vec(piece(), 0..40), end in any::<bool>()) {
        let end = if end { "</urlset>" } else { "" };
        let bytes = format!("{root}{}{end}", pieces.concat()).into_bytes();
        survive(&bytes)?;
        survive(&gzip(&bytes))?;
    }

    #[test]
    fn no_damaged_gzip_panics(pieces in vec(piece(), 0..40), at in any::<Index>(), put in vec(any::<u8>(), 0..4)) {
        let mut bytes = gzip(format!("{}{}</urlset>", ROOTS[0], pieces.concat()).as_bytes());
        let start = at.index(bytes.len());
        bytes.splice(start..(start + 1).min(bytes.len()), put);
        survive(&bytes)?;
    }

    #[test]
    fn compression_and_the_size_of_pieces_change_nothing(pieces in vec(piece(), 0..30), capacity in 1_usize..40) {
        let bytes = format!("{}{}</urlset>", ROOTS[1], pieces.concat()).into_bytes();
        let whole = drain(Reader::new(bytes.as_slice()));
        prop_assert_eq!(&drain(Reader::new(BufReader::with_capacity(capacity, bytes.as_slice()))), &whole);
        prop_assert_eq!(&drain(Reader::new(gzip(&bytes).as_slice())), &whole);
    }
}

/// Reads in every mode; what conforms is read back equal when it is written again.
fn survive(bytes: &[u8]) -> Result<(), TestCaseError> {
    for mode in [Mode::Lenient, Mode::Strict] {
        let Ok(read) = xml::read_with(bytes, Options { mode, ..Options::default() }) else { continue };
        prop_assert!(mode == Mode::Lenient || read.violations.is_conforming(), "{}", read.violations);
        if let Ok(document) = read.into_document() {
            let again = xml::read(&xml::write(&document)).unwrap().into_document();
            prop_assert_eq!(again.unwrap(), document);
        }
    }
    let Ok(reader) = Reader::with_limits(bytes, LIMITS) else { return Ok(()) };
    let entries: Vec<_> = reader.map_while(Result::ok).collect();
    prop_assert!(entries.len() <= LIMITS.entries);
    let header = resync_core::document::Header::new(
        resync_core::document::Root::UrlSet,
        resync_core::document::Capability::Description,
    );
    // The rules bear whatever the reader gives.
    let _ = Document::try_from(RawDocument { header, entries });
    Ok(())
}

/// Everything that a reader tells, with errors as text.
fn drain(reader: Result<Reader<impl std::io::BufRead>, ReadError>) -> Vec<String> {
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return vec![error.to_string()],
    };
    let mut told: Vec<String> = reader.by_ref().map(|entry| format!("{entry:?}")).collect();
    let violations = reader.take_violations();
    told.push(format!("{:?} {:?} {violations}", reader.header(), reader.dialect()));
    told
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const ROOTS: [&str; 3] = [
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/' \
     xmlns:xhtml='http://www.w3.org/1999/xhtml' rs:type='changeset'>",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/' \
     xmlns:xhtml='http://www.w3.org/1999/xhtml'>\n",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/' \
     xmlns:xhtml='http://www.w3.org/1999/xhtml'>",
];

fn root() -> impl Strategy<Value = &'static str> {
    select(&ROOTS[..])
}

/// Pieces of markup of every form, good and bad.
fn piece() -> impl Strategy<Value = String> {
    let known = select(vec![
        "<url>",
        "</url>",
        "<url><loc>http://example.org/a</loc>",
        "<url><loc rs:protocol='urn:p'>http://example.org/b</loc><lastmod rs:type='updated'>2012-09-01</lastmod></url>",
        "<url><loc>http://example.org/c</loc><expires>2012-09-02T00:00:00Z</expires></url>\n",
        "<url><loc>http://example.org/d</loc><lastmod>2012-09-01</lastmod><rs:md change='deleted'/></url>",
        "<lastmod rs:type='lost'>2012</lastmod>",
        "<expires>never</expires>",
        "<priority>0.5</priority>",
        "<rs:fixity type='md5'>kAFQmDzST7DWlj99KOF/cg==</rs:fixity>",
        "<rs:fixity>x<rs:size>1</rs:size></rs:fixity>",
        "<rs:size>-1</rs:size>",
        "<rs:mimetype>text/plain</rs:mimetype><rs:contentencoding>br</rs:contentencoding>",
        "<rs:path>../a</rs:path>",
        "<xhtml:meta name='DCTERMS.modified' content='2012-09-03'/>",
        "<xhtml:meta name='DC.subject' content='&#x41;'/>",
        "<xhtml:link rel='prev http://www.openarchives.org/rs/changeset' href='http://example.org/p'/>",
        "<xhtml:link rel='alternate http://www.openarchives.org/rs/mirror' href='m' title='t'/>",
        "<xhtml:link href='xmpp:x' rs:protocol='urn:x' rs:pubsubnode='n'/>",
        "<rs:md capability='changelist' modified='2012-10-01T00:00:00Z'/>",
        "<rs:md capability='capabilitylist' modified='x' etag='e'/>",
        "<rs:ln rel='top' href='http://example.org/c.xml'/><rs:ln rel='up' href='http://example.org/i.xml'/>",
        "<rs:md",
        " a='1'",
        "/>",
        "<!-- c -->",
        "&amp;",
        "&x;",
        " é\n",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => "\\PC{0,12}"]
}
