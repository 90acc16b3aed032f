//! What is written, and what is refused.

use super::*;
use crate::digest::Hashes;
use crate::document::Link;
use crate::document::{Capability, Change, FrameworkChange, FrameworkNotification, Resource, ResourceList};
use crate::xml::{MAX_ENTRIES, read};

#[test]
fn rs045_rs027_children_come_in_the_order_of_the_schema_and_times_in_utc() {
    let at = "2013-01-03T10:00:00+01:00".parse().unwrap();
    let list = ResourceList::new(at, "http://example.org/capabilitylist.xml")
        .resource(
            Resource::new("http://example.org/a?b&c")
                .lastmod(at)
                .length(4)
                .media_type("text/html")
                .hashes(Hashes::parse("md5:1584ABDF8EBDC9802AC0C6A7402C03B6"))
                .link(Link {
                    pri: Some(1),
                    ..Link::new(crate::document::Relation::Duplicate, "http://m.example.org/\"a\"")
                }),
        )
        .resource(Resource::new("http://example.org/b"));
    let wanted = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:md capability="resourcelist" at="2013-01-03T09:00:00Z"/>
  <rs:ln rel="up" href="http://example.org/capabilitylist.xml"/>
  <url>
    <loc>http://example.org/a?b&amp;c</loc>
    <lastmod>2013-01-03T09:00:00Z</lastmod>
    <rs:md hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="4" type="text/html"/>
    <rs:ln rel="duplicate" href="http://m.example.org/&quot;a&quot;" pri="1"/>
  </url>
  <url>
    <loc>http://example.org/b</loc>
  </url>
</urlset>
"#;
    assert_eq!(String::from_utf8(write(&list.build().unwrap())).unwrap(), wanted);
}

#[test]
fn a_streamed_document_has_the_same_bytes_as_a_whole_one() {
    let change =
        FrameworkChange::new(Change::Updated, Capability::ChangeList, "http://example.org/changelist.xml");
    let document = FrameworkNotification::new().change(change).build().unwrap();
    let mut writer = Writer::new(Vec::new(), document.header()).unwrap();
    for entry in document.entries() {
        writer.entry(entry).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), write(&document));
}

#[test]
fn a_header_that_breaks_a_rule_is_not_written() {
    let header = Header::new(Root::UrlSet, Capability::ResourceList);
    let Err(WriteError::Violations(violations)) = Writer::new(Vec::new(), &header) else {
        panic!("the header was accepted")
    };
    let rules: Vec<_> = violations.errors().map(|violation| violation.rule).collect();
    assert_eq!(rules, [Rule::TimeMissing, Rule::UpMissing]);
}

#[test]
fn a_refused_entry_leaves_no_trace_and_others_may_follow() {
    let header = Header::new(Root::UrlSet, Capability::Description);
    let entry = |loc: &str| Entry::new(loc);
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    assert!(matches!(writer.entry(&entry("nowhere")), Err(WriteError::Violations(_))));
    writer.entry(&entry("http://example.org/c.xml")).unwrap();
    let text = String::from_utf8(writer.finish().unwrap()).unwrap();
    assert!(!text.contains("nowhere") && text.contains("<loc>http://example.org/c.xml</loc>"));
}

#[test]
fn rs042_a_document_does_not_grow_past_its_entry_limit() {
    let entry = Entry::new("http://example.org/a");
    let mut writer = Writer::new(io::sink(), &Header::new(Root::UrlSet, Capability::from("any"))).unwrap();
    assert!((0..MAX_ENTRIES).all(|_| writer.entry(&entry).is_ok()));
    let bytes = writer.bytes();
    for _ in 0..3 {
        let refused = writer.entry(&entry).unwrap_err();
        assert!(refused.to_string().contains("RS-042"), "{refused}");
        assert_eq!(writer.bytes(), bytes);
    }
}

#[test]
fn rs042_a_document_does_not_grow_past_its_byte_limit() {
    let mut entry = Entry::new("http://example.org/a");
    entry.links.push(Link::new(
        crate::document::Relation::Via,
        format!("http://example.org/{}", "a".repeat(1 << 20)),
    ));
    let mut writer = Writer::new(io::sink(), &Header::new(Root::UrlSet, Capability::from("any"))).unwrap();
    let refused = (0..60).find_map(|_| writer.entry(&entry).err()).unwrap();
    assert!(
        matches!(&refused, WriteError::Violations(found) if found.iter().any(|violation| violation.rule == Rule::TooLarge))
    );
    let bytes = writer.bytes();
    assert!(bytes <= MAX_BYTES && bytes > MAX_BYTES - (2 << 20));
    assert!(writer.entry(&entry).is_err());
    assert_eq!(writer.bytes(), bytes);
    writer.entry(&Entry::new("http://example.org/b")).unwrap();
}

#[test]
fn sm_priority_stands_behind_changefreq() {
    let mut raw = three_resources().into_raw();
    raw.entries[0].changefreq = Some(crate::document::ChangeFrequency::Daily);
    raw.entries[0].priority = Some("0.8".parse().unwrap());
    let document = Document::try_from(raw).unwrap();
    let text = String::from_utf8(write(&document)).unwrap();
    assert!(text.contains("<changefreq>daily</changefreq>\n    <priority>0.8</priority>\n"), "{text}");
    assert_eq!(read(text.as_bytes()).unwrap().into_document().unwrap(), document);
}

fn three_resources() -> Document {
    let at = "2013-01-03T09:00:00Z".parse().unwrap();
    let list = ResourceList::new(at, "http://example.org/capabilitylist.xml");
    ["a&b", "c<d>", "e"]
        .into_iter()
        .fold(list, |list, name| {
            list.resource(Resource::new(format!("http://example.org/{}", name.replace(['<', '>'], "%3C"))))
        })
        .build()
        .unwrap()
}
