//! Reader and writer prove each other: what a typed constructor builds comes back equal, and no bytes do harm.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::strategies::{datetime, document};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use resync_core::datetime::DateTime;
use resync_core::digest::Hashes;
use resync_core::rules::{self, MAX_VIOLATIONS};
use resync_core::xml::{self, Reader, Writer};

proptest! {
    #[test]
    fn any_document_that_can_be_built_comes_back_equal(document in document()) {
        let bytes = xml::write(&document);
        let read = xml::read(&bytes).unwrap();
        prop_assert!(read.violations.is_conforming(), "{}", read.violations);
        prop_assert_eq!(read.into_document().unwrap(), document);
    }

    #[test]
    fn the_rules_say_the_same_of_a_document_in_memory_and_on_paper(document in document()) {
        let raw = document.into_raw();
        let in_memory = rules::check(&raw);
        prop_assert!(in_memory.is_conforming() && in_memory.len() < MAX_VIOLATIONS);
        let on_paper = xml::read(&xml::write(&raw.try_into().unwrap())).unwrap().violations;
        let said = |violations: &rules::Violations| {
            violations.iter().map(|violation| (violation.rule, violation.place.entry)).collect::<Vec<_>>()
        };
        prop_assert_eq!(said(&in_memory), said(&on_paper));
    }

    #[test]
    fn streaming_gives_the_same_bytes_and_entries(document in document()) {
        let bytes = xml::write(&document);
        let mut writer = Writer::new(Vec::new(), document.header()).unwrap();
        for entry in document.entries() {
            writer.entry(entry).unwrap();
        }
        prop_assert_eq!(&writer.finish().unwrap(), &bytes);
        let reader = Reader::new(bytes.as_slice()).unwrap();
        prop_assert_eq!(reader.header(), document.header());
        let entries: Vec<_> = reader.map(Result::unwrap).collect();
        prop_assert_eq!(entries.as_slice(), document.entries());
    }

    #[test]
    fn what_a_writer_refuses_is_as_if_it_had_never_been_offered(document in document(), other in document(), picks in vec(any::<(Index, bool)>(), 12)) {
        let mut offers = document.entries().to_vec();
        for (pick, broken) in picks {
            let strangers = [document.entries(), other.entries()].concat();
            if strangers.is_empty() { continue }
            let mut stranger = pick.get(&strangers).clone();
            if broken { stranger.loc = "nowhere".to_owned() }
            offers.insert(pick.index(offers.len() + 1), stranger);
        }
        let mut writer = Writer::new(Vec::new(), document.header()).unwrap();
        let (taken, refused): (Vec<_>, Vec<_>) = offers.iter().partition(|entry| writer.entry(entry).is_ok());

        let mut untroubled = Writer::new(Vec::new(), document.header()).unwrap();
        for entry in taken {
            prop_assert!(untroubled.entry(entry).is_ok());
        }
        for entry in refused {
            let verdict = |writer: &mut Writer<_>| writer.entry(entry).map_err(|error| error.to_string());
            prop_assert_eq!(verdict(&mut writer), verdict(&mut untroubled));
        }
        prop_assert_eq!(writer.finish().unwrap(), untroubled.finish().unwrap());
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..400)) {
        survive(&bytes)?;
    }

    #[test]
    fn no_markup_panics(pieces in vec(piece(), 0..60), closed in any::<bool>()) {
        let end = if closed { "</urlset>" } else { "" };
        survive(format!("{OPEN}{}{end}", pieces.concat()).as_bytes())?;
    }

    #[test]
    fn no_damaged_document_panics(document in document(), at in any::<Index>(), cut in 0..40_usize, put in vec(any::<u8>(), 0..6)) {
        let mut bytes = xml::write(&document);
        let start = at.index(bytes.len());
        let end = (start + cut).min(bytes.len());
        bytes.splice(start..end, put);
        survive(&bytes)?;
    }

    #[test]
    fn a_datetime_comes_back_equal_and_keeps_its_order(one in datetime(), other in datetime()) {
        prop_assert_eq!(one.to_string().parse(), Ok(one));
        prop_assert_eq!(DateTime::from_system_time(one.to_system_time()), one);
        if one < other {
            prop_assert!(one.unix_millis() <= other.unix_millis());
        }
    }

    #[test]
    fn no_text_panics_a_value(text in "\\PC{0,60}|[0-9TZ:.+-]{0,40}|(md5|sha-1|sha-256):[0-9a-fA-F]{0,70}") {
        if let Ok(datetime) = text.parse::<DateTime>() {
            prop_assert_eq!(datetime.to_string().parse(), Ok(datetime));
        }
        let hashes = Hashes::parse(&text);
        prop_assert_eq!(Hashes::parse(&hashes.to_string()), hashes);
    }
}

/// Reads hostile bytes; what they hold of a conforming document must come back when it is written again.
fn survive(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(document) = xml::read(bytes).map_err(drop).and_then(|read| read.into_document().map_err(drop)) {
        let again = xml::read(&xml::write(&document)).unwrap().into_document();
        prop_assert_eq!(again.unwrap(), document);
    }
    Ok(())
}

const OPEN: &str = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
                    xmlns:rs='http://www.openarchives.org/rs/terms/' xmlns:x='urn:x'>";

/// Pieces of markup that come together to documents, good and bad.
fn piece() -> impl Strategy<Value = String> {
    let known = select(vec![
        "<rs:md capability='description'/>",
        "<rs:md capability='changelist' from='2013-01-01T00:00:00Z' x:y='&#10;' rs:z=''/>",
        "<rs:ln rel='up' href='http://example.org/'/>",
        "<rs:ln rel='up' pri='x' length='-1' modified='2013'/>",
        "<rs:ln>",
        "<url>",
        "</url>",
        "<url><loc>http://example.org/a</loc>",
        "<loc>",
        "</loc>",
        "<lastmod>2013-01-01</lastmod>",
        "<changefreq>daily</changefreq>",
        "<x:y>",
        "</x:y>",
        "<rs:md change='updated' datetime='2013-01-01T00:00:00Z' path='/a' hash='md5:x' length='1'/>",
        "<rs:md",
        " a='1'",
        "/>",
        "<!-- c -->",
        "<![CDATA[ ]]>",
        "<?p i?>",
        "&amp;",
        "&#x41;",
        "&x;",
        "</urlset>",
        "\n",
    ]);
    prop_oneof![9 => known.prop_map(str::to_owned), 1 => "\\PC{0,8}"]
}
