//! Where the published schema says otherwise than the specification: what it lets pass is told, and what it refuses is in order.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
use std::collections::BTreeSet;
use std::fs;

use resync_core::datetime::DateTime;
use resync_core::document::{Link, Resource, ResourceList};
use resync_core::rules::Rule;
use resync_core::xml;
use resync_judge::PublishedSchemas;

const UP: &str = "http://example.org/capabilitylist.xml";

/// What the published schemas contradict the specification in, of this document; nothing where they are not there.
fn contradictions(text: &[u8]) -> Option<BTreeSet<&'static str>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("document.xml");
    fs::write(&file, text).unwrap();
    PublishedSchemas::found().map(|schemas| schemas.documented(&[file]))
}

#[test]
fn rs020_a_missing_capability_half_a_link_and_a_modified_that_is_no_link_s_are_told() {
    let up = format!("<rs:ln rel='up' href='{UP}'/>");
    let head = format!("<rs:md capability='resourcelist' at='2013-01-03T09:00:00Z'/>{up}");
    let cases = [
        (format!("<rs:md at='2013-01-03T09:00:00Z'/>{up}"), "", Rule::CapabilityMissing),
        (up, "", Rule::CapabilityMissing),
        (head.clone(), "<rs:ln href='http://example.org/b'/>", Rule::LinkIncomplete),
        (head.clone(), "<rs:ln rel='describedby'/>", Rule::LinkIncomplete),
        (head, "<rs:md modified='2013-01-02T13:00:00Z'/>", Rule::AttributeUnknown),
    ];
    for (head, entry, rule) in cases {
        let text = format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/'>
             {head}<url><loc>http://example.org/a</loc>{entry}</url></urlset>"
        );
        let passes = contradictions(text.as_bytes());
        assert!(passes.is_none_or(|contradictions| contradictions.is_empty()), "{text}");
        let told: Vec<_> =
            xml::read(text.as_bytes()).unwrap().violations.iter().map(|one| one.rule).collect();
        assert_eq!(told, [rule], "{text}");
    }
}

#[test]
fn rs038_a_media_type_with_a_dot_or_a_parameter_stands_in_entries_and_links_and_is_not_complained_of() {
    let cases = [
        ("application/vnd.oasis.opendocument.text", true),
        ("text/html; charset=utf-8", true),
        ("image/svg+xml", false),
    ];
    for (media_type, is_refused) in cases {
        let other = Link::alternate("http://example.org/b").media_type(media_type);
        let resource = Resource::new("http://example.org/a").media_type(media_type).link(other);
        let moment: DateTime = "2013-01-03T09:00:00Z".parse().unwrap();
        let text = xml::write(&ResourceList::new(moment, UP).resource(resource).build().unwrap());
        let read = xml::read(&text).unwrap();
        assert!(read.violations.is_empty(), "{}", read.violations);
        let entry = &read.document.entries[0];
        let types = [&entry.metadata.as_ref().unwrap().media_type, &entry.links[0].media_type];
        assert_eq!(types.map(Option::as_deref), [Some(media_type); 2]);
        let expected = BTreeSet::from_iter(is_refused.then_some("RS-038"));
        assert!(contradictions(&text).is_none_or(|found| found == expected), "{media_type}");
    }
}
