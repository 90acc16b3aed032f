//! No bytes do harm: plain, compressed or in an older form they give a document, violations or a named error, and
//! never more than the limits allow.

use std::io::{BufReader, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use resync_core::document::{Capability, Document, Header, RawDocument, Root};
use resync_core::lint::{self, Fetch, FetchFailure, Fetched};
use resync_core::rules::{Rule, Violations, check};
use resync_core::xml::{self, Dialect, Mode, Options, ReadError, Reader};

proptest! {
    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300)) {
        survive(&bytes);
        survive(&[&[0x1f, 0x8b, 8, 0], bytes.as_slice()].concat());
    }

    #[test]
    fn no_older_form_panics(root in root(), pieces in vec(piece(), 0..40), end in any::<bool>()) {
        let end = if end { "</urlset>" } else { "" };
        let bytes = format!("{root}{}{end}", pieces.concat()).into_bytes();
        survive(&bytes);
        survive(&gzip(&bytes));
    }

    #[test]
    fn no_damaged_gzip_panics(pieces in vec(piece(), 0..40), at in any::<Index>(), put in vec(any::<u8>(), 0..4)) {
        let mut bytes = gzip(format!("{}{}</urlset>", ROOTS[0], pieces.concat()).as_bytes());
        let start = at.index(bytes.len());
        bytes.splice(start..(start + 1).min(bytes.len()), put);
        survive(&bytes);
    }

    #[test]
    fn reading_strictly_reading_whole_and_lint_judge_alike(root in select(&JUDGED[..]), pieces in vec(judged_piece(), 0..12)) {
        agree(&format!("{root}{}</urlset>", pieces.concat()))?;
    }

    #[test]
    fn compression_and_the_size_of_pieces_change_nothing(pieces in vec(piece(), 0..30), capacity in 1_usize..40) {
        let bytes = format!("{}{}</urlset>", ROOTS[1], pieces.concat()).into_bytes();
        let whole = drain(Reader::new(bytes.as_slice()));
        prop_assert_eq!(&drain(Reader::new(BufReader::with_capacity(capacity, bytes.as_slice()))), &whole);
        prop_assert_eq!(&drain(Reader::new(gzip(&bytes).as_slice())), &whole);
    }
}

/// Two entries that name nothing are not one resource that is listed twice, whoever looks.
#[test]
fn entries_without_a_loc_repeat_each_other_for_no_reader() {
    const ROOT: &str = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
                        xmlns:rs='http://www.openarchives.org/rs/terms/' xmlns:xhtml='http://www.w3.org/1999/xhtml'>\
                        <xhtml:link rel='up' href='http://example.org/c.xml'/>";
    let entry = "<url><loc>http://example.org/a</loc><lastmod rs:type='created'>2012-09-01</lastmod></url>";
    let text = format!("{ROOT}<url/><url/>{entry}</urlset>");
    agree(&text).unwrap();
}

/// Reads in every mode and within every limit; the rules bear whatever the reader gives.
fn survive(bytes: &[u8]) {
    resync_fuzzed::document::run(bytes);
    let Ok(reader) = Reader::new(bytes) else { return };
    let entries: Vec<_> = reader.map_while(Result::ok).collect();
    let header = Header::new(Root::UrlSet, Capability::Description);
    let _ = Document::try_from(RawDocument { header, entries });
}

/// Whether what reads a whole document, what reads it strictly entry by entry, what checks a site and what checks the model
/// come to the same judgement.
fn agree(text: &str) -> Result<(), TestCaseError> {
    let Ok(read) = xml::read(text.as_bytes()) else { return Ok(()) };
    let told = rules(&read.violations);

    let strict = Options { mode: Mode::Strict, ..Options::default() };
    let strictly = Reader::with_options(text.as_bytes(), strict)
        .and_then(|reader| reader.collect::<Result<Vec<_>, _>>().map(drop));
    prop_assert_eq!(strictly.is_ok(), read.violations.is_conforming(), "{:?}: {}", strictly, read.violations);
    if let Err(error) = strictly {
        let ReadError::Rule(found) = &error else { return Err(TestCaseError::fail(error.to_string())) };
        // Only the end shows that what had no capability was the alpha draft's.
        let seen_too_late = found.rule == Rule::CapabilityMissing && read.dialect == Dialect::Alpha0_1;
        prop_assert!(told.contains(&found.rule) || seen_too_late, "{}: {}", error, read.violations);
    }

    let mut site = Alone(text.as_bytes());
    let report = lint::check(&mut site, ALONE);
    let linted = rules(&report.documents[0].violations);
    prop_assert_eq!(without(&linted, &told), Vec::new(), "{}", read.violations);
    let beyond = without(&told, &linted);
    prop_assert!(beyond.iter().all(|rule| SITE_RULES.contains(rule)), "{:?}", beyond);

    let mut untold = without(&told, &rules(&check(&read.document)));
    if read.dialect == Dialect::Alpha0_1 {
        // What broke a rule before the entry that showed the draft is not told again for each.
        untold.retain(|rule| !told.contains(rule));
    }
    prop_assert_eq!(untold, Vec::new(), "{}", read.violations);
    Ok(())
}

/// What a site may break and no single document.
const SITE_RULES: [Rule; 7] = [
    Rule::UpTarget,
    Rule::UpIsIndex,
    Rule::IndexLinkTarget,
    Rule::EntryTarget,
    Rule::ArchivesTarget,
    Rule::DocumentUnlisted,
    Rule::IndexAsUrlset,
];

fn rules(violations: &Violations) -> Vec<Rule> {
    violations.iter().map(|violation| violation.rule).collect()
}

/// Those of `some` that are not in `all`, counted.
fn without(all: &[Rule], some: &[Rule]) -> Vec<Rule> {
    let mut left = all.to_vec();
    some.iter()
        .copied()
        .filter(|rule| match left.iter().position(|other| other == rule) {
            Some(place) => {
                left.swap_remove(place);
                false
            }
            None => true,
        })
        .collect()
}

const ALONE: &str = "http://example.org/alone.xml";

/// A site of one document.
struct Alone<'b>(&'b [u8]);

impl Fetch for Alone<'_> {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        if url != ALONE {
            return Err(FetchFailure::new("404 Not Found"));
        }
        let content_type = Some("application/xml".to_owned());
        Ok(Fetched { bytes: self.0.to_vec(), content_type, last_url: url.to_owned() })
    }
}

#[test]
fn alpha019_dl006_changes_newest_first_conform_in_the_forms_that_had_no_order() {
    let up = "<rs:ln rel='top' href='http://example.org/c.xml'/>";
    let dlib = format!("{}<rs:md capability='changelist'/>{up}", ROOTS[2]);
    let alpha = format!("{}<xhtml:link rel='up' href='http://example.org/c.xml'/>", ROOTS[0]);
    let today = format!(
        "{}<rs:md capability='changelist' from='2012-01-01T00:00:00Z'/><rs:ln rel='up' href='http://example.org/c.xml'/>",
        ROOTS[1]
    );
    for (head, changed, conforms) in [
        (&dlib, |day| format!("<lastmod>2012-09-0{day}</lastmod><rs:md change='updated'/>"), true),
        (&alpha, |day| format!("<lastmod rs:type='updated'>2012-09-0{day}</lastmod>"), true),
        (&today, |day| format!("<rs:md change='updated' datetime='2012-09-0{day}T00:00:00Z'/>"), false),
    ] as [(_, fn(u8) -> String, _); 3]
    {
        let entry = |day| format!("<url><loc>http://example.org/{day}</loc>{}</url>", changed(day));
        let text = format!("{head}{}{}{}</urlset>", entry(3), entry(1), entry(2));
        agree(&text).unwrap();
        let read = xml::read(text.as_bytes()).unwrap();
        assert_eq!(read.violations.is_conforming(), conforms, "{}", read.violations);
        if conforms {
            let document = read.into_document().unwrap();
            let times = document.entries().iter().map(|entry| entry.metadata.as_ref().unwrap().datetime);
            assert!(times.is_sorted());
            assert_eq!(document.header().metadata.from.unwrap().to_string(), "2012-09-01T00:00:00Z");
            let mut reader = Reader::new(text.as_bytes()).unwrap();
            assert_eq!(reader.header().metadata.from, None);
            assert!(reader.by_ref().all(|entry| entry.is_ok()));
            assert_eq!(reader.header(), document.header(), "the last entry shows the interval");
        }
    }
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

/// The start of documents in every form whose entries have an order, and of some that have none.
const JUDGED: [&str; 7] = [
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/' \
     xmlns:xhtml='http://www.w3.org/1999/xhtml' rs:type='changeset'><xhtml:link rel='up' href='http://example.org/c.xml'/>",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/' \
     xmlns:xhtml='http://www.w3.org/1999/xhtml'><xhtml:link rel='up' href='http://example.org/c.xml'/>",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/'> \
     <rs:md capability='changelist'/><rs:ln rel='top' href='http://example.org/c.xml'/>",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/'> \
     <rs:md capability='changelist' modified='2012-09-04' until='2012-09-03T00:00:00Z'/><rs:ln rel='top' href='http://example.org/c.xml'/>",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/'> \
     <rs:md capability='resourcelist' modified='2012-09-04'/><rs:ln rel='top' href='http://example.org/c.xml'/>",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/'> \
     <rs:md capability='changelist' from='2012-09-01T00:00:00Z'/><rs:ln rel='up' href='http://example.org/c.xml'/>",
    "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/'> \
     <rs:md capability='capabilitylist'/><rs:ln rel='up' href='http://example.org/c.xml'/>",
];

/// Whole entries, and some of what should not stand between them.
fn judged_piece() -> impl Strategy<Value = String> {
    let entry = |content: String| format!("<url><loc>http://example.org/a</loc>{content}</url>");
    let alpha = (1..6_u8, select(vec!["created", "updated", "lost"]))
        .prop_map(|(day, kind)| format!("<lastmod rs:type='{kind}'>2012-09-0{day}</lastmod>"));
    let dlib = (1..6_u8, select(vec!["created", "deleted"]))
        .prop_map(|(day, kind)| format!("<lastmod>2012-09-0{day}</lastmod><rs:md change='{kind}'/>"));
    let today =
        (1..6_u8).prop_map(|day| format!("<rs:md change='updated' datetime='2012-09-0{day}T00:00:00Z'/>"));
    let rare = select(vec![
        "<rs:md change='updated' length='x'/>",
        "<lastmod>2012-09-02</lastmod>",
        "<rs:path>a</rs:path>",
        "<rs:size>12</rs:size>",
        "<expires>2012-09-02T00:00:00Z</expires>",
        "<rs:md capability='changelist'/>",
        "",
    ]);
    prop_oneof![
        4 => alpha.prop_map(entry),
        4 => dlib.prop_map(entry),
        4 => today.prop_map(entry),
        2 => rare.prop_map(move |content| entry(content.to_owned())),
        1 => select(vec!["<rs:md capability='changelist'/>", "<sitemap><loc>http://example.org/b</loc></sitemap>", "text", "<url/>"])
            .prop_map(str::to_owned),
    ]
}

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
