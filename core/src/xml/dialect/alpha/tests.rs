//! Documents of the alpha draft, well and badly formed, and what becomes of them.

use crate::digest::Algorithm;
use crate::document::{Capability, Change, Entry, Metadata, Relation};
use crate::rules::Rule;
use crate::xml::{Dialect, Limit, Mode, Options, Read, ReadError, Reader, read, read_with};

/// A document with a root of this name and attributes; the content starts on line 2.
fn alpha(root: &str, content: &str) -> Vec<u8> {
    let name = root.split(' ').next().unwrap();
    format!(
        "<{root} xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/' \
         xmlns:xhtml='http://www.w3.org/1999/xhtml'>\n{content}\n</{name}>"
    )
    .into_bytes()
}

/// A Change Set with these entries.
fn change_set(entries: &str) -> Vec<u8> {
    let modified = "<xhtml:meta name='DCTERMS.modified' content='2012-09-02T12:00:00Z'/>";
    alpha("urlset rs:type='changeset'", &format!("{modified}{entries}"))
}

fn metadata(entry: &Entry) -> &Metadata {
    entry.metadata.as_ref().unwrap()
}

fn own_warnings(read: &Read) -> Vec<Rule> {
    let missing = [Rule::UpMissing, Rule::ShapeAdvised];
    read.violations.iter().map(|violation| violation.rule).filter(|rule| !missing.contains(rule)).collect()
}

const MODIFIED: &str = "<xhtml:meta name='DCTERMS.modified' content='2012-09-01T12:00:00Z'/>";

#[test]
fn alpha004_a_sitemap_becomes_a_resource_list_with_one_warning_that_names_the_dialect() {
    let content =
        format!("{MODIFIED}<url><loc>http://example.org/moss</loc><lastmod>2012-08-30</lastmod></url>");
    let read = read(&alpha("urlset", &content)).unwrap();
    assert_eq!(read.dialect, Dialect::Alpha0_1);
    assert_eq!(own_warnings(&read), [Rule::Dialect]);
    assert!(read.violations.iter().any(|told| told.detail.contains("alpha draft 0.1")));
    let header = &read.document.header;
    assert_eq!(header.capability(), Some(&Capability::ResourceList));
    assert_eq!(header.metadata.at.unwrap().to_string(), "2012-09-01T12:00:00Z");
}

#[test]
fn alpha027_all_that_keeps_it_from_being_a_document_of_today_is_the_missing_up_link() {
    let read = read(&change_set(
        "<url><loc>http://example.org/moss</loc><lastmod rs:type='created'>2012-09-01T10:00:00Z</lastmod></url>",
    ))
    .unwrap();
    let errors: Vec<_> = read.violations.errors().map(|violation| violation.rule).collect();
    assert_eq!(errors, [Rule::UpMissing]);
    let mut raw = read.document;
    raw.header.links.push(crate::document::Link::new(Relation::Up, "http://example.org/capabilities.xml"));
    assert!(crate::document::Document::try_from(raw).is_ok());
}

#[test]
fn alpha005_alpha006_alpha031_changes_get_their_kind_and_moment_and_come_in_order() {
    let bytes = change_set(
        "<url><loc>http://example.org/fern</loc><expires>2012-09-01T14:00:00Z</expires></url>
         <url><loc>http://example.org/moss</loc><lastmod rs:type='updated'>2012-09-01T10:00:00Z</lastmod></url>
         <url><loc>http://example.org/reed</loc><lastmod rs:type='created'>2012-09-01T12:00:00Z</lastmod></url>",
    );
    let read = read(&bytes).unwrap();
    let changes: Vec<_> = read
        .document
        .entries
        .iter()
        .map(|entry| (entry.change().unwrap(), metadata(entry).datetime.unwrap().to_string()))
        .collect();
    let wanted = [
        (Change::Updated, "2012-09-01T10:00:00Z"),
        (Change::Created, "2012-09-01T12:00:00Z"),
        (Change::Deleted, "2012-09-01T14:00:00Z"),
    ];
    assert_eq!(changes, wanted.map(|(change, moment)| (change, moment.to_owned())));
    assert_eq!(read.document.entries[2].lastmod, None);
    let header = &read.document.header;
    assert_eq!(header.capability(), Some(&Capability::ChangeList));
    assert_eq!(header.metadata.from.unwrap().to_string(), "2012-09-01T10:00:00Z");
    assert_eq!(header.metadata.until, None);
}

#[test]
fn alpha006_what_expired_is_not_in_a_resource_list() {
    let content = format!(
        "{MODIFIED}<url><loc>http://example.org/fern</loc><expires>2012-08-01</expires></url>
         <url><loc>http://example.org/moss</loc><lastmod rs:type='created'>2012-08-30</lastmod></url>"
    );
    let read = read(&alpha("urlset", &content)).unwrap();
    let [entry] = read.document.entries.as_slice() else { panic!("{:?}", read.document.entries) };
    assert_eq!((entry.loc.as_str(), entry.change()), ("http://example.org/moss", None));
    assert!(entry.lastmod.is_some());
}

#[test]
fn alpha007_an_entry_with_two_change_markers_is_left_out() {
    let read = read(&change_set(
        "<url><loc>http://example.org/fern</loc><lastmod rs:type='updated'>2012-09-01</lastmod>\
         <expires>2012-09-02</expires></url>",
    ))
    .unwrap();
    assert!(read.violations.errors().any(|violation| violation.rule == Rule::Repeated));
    assert_eq!(read.document.entries, []);
}

#[test]
fn alpha008_to_alpha010_a_manifest_tells_representation_and_path() {
    let content = format!(
        "{MODIFIED}<url><loc>http://example.org/moss</loc>\
         <rs:fixity type='md5'>kAFQmDzST7DWlj99KOF/cg==</rs:fixity>\
         <rs:fixity type='sha-256'>ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=</rs:fixity>\
         <rs:size> 3 </rs:size><rs:mimetype>text/plain; charset=utf-8</rs:mimetype>\
         <rs:contentencoding>gzip</rs:contentencoding><rs:path>green/moss.txt</rs:path></url>"
    );
    let read = read(&alpha("urlset", &content)).unwrap();
    assert_eq!(own_warnings(&read), [Rule::Dialect]);
    assert_eq!(read.document.header.capability(), Some(&Capability::ResourceDumpManifest));
    let metadata = metadata(&read.document.entries[0]);
    assert_eq!(
        metadata.hash.get(Algorithm::Md5).unwrap().to_string(),
        "md5:900150983cd24fb0d6963f7d28e17f72"
    );
    assert!(metadata.hash.get(Algorithm::Sha256).is_some());
    assert_eq!((metadata.length, metadata.path.as_deref()), (Some(3), Some("/green/moss.txt")));
    assert_eq!(metadata.media_type.as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(metadata.encoding.as_deref(), Some("gzip"));
}

#[test]
fn alpha029_a_digest_of_impossible_length_is_unknown_and_told() {
    let read = read(&change_set(
        "<url><loc>http://example.org/moss</loc><lastmod rs:type='updated'>2012-09-01</lastmod>\
         <rs:fixity type='md5'>kAFQmDzST7D==</rs:fixity></url>",
    ))
    .unwrap();
    assert!(read.violations.iter().any(|violation| violation.rule == Rule::HashUnknown));
    assert_eq!(metadata(&read.document.entries[0]).hash.unknown(), ["md5:kAFQmDzST7D=="]);
}

#[test]
fn alpha011_subjects_are_kept_as_links_and_attributes() {
    let content = format!(
        "{MODIFIED}<url><loc>http://example.org/moss</loc>\
         <xhtml:link rel='DCTERMS.subject' href='http://example.org/topics/moss' title='Mosses'/>\
         <xhtml:meta name='DC.subject' content='green'/><xhtml:meta name='DC.subject' content='wet'/></url>"
    );
    let read = read(&alpha("urlset", &content)).unwrap();
    let entry = &read.document.entries[0];
    assert_eq!(entry.links[0].rel.as_str(), "http://purl.org/dc/terms/subject");
    assert_eq!(entry.links[0].foreign[0].value, "Mosses");
    assert_eq!(metadata(entry).foreign[0].value, "green; wet");
}

#[test]
fn alpha016_alpha017_alpha018_alpha025_links_get_the_relations_of_today() {
    let read = read(&change_set(
        "<url><loc rs:protocol='http://example.org/protocols/p'>http://example.org/moss</loc>\
         <lastmod rs:type='updated'>2012-09-01</lastmod>\
         <xhtml:link rel='alternate http://www.openarchives.org/rs/mirror' href='http://mirror.example.org/moss'/>\
         <xhtml:link rel='http://www.openarchives.org/rs/partial' rs:protocol='http://example.org/protocols/diff' \
           href='http://example.org/moss.diff'/>\
         <xhtml:link rel='self memento' href='http://example.org/1/moss'/>\
         <xhtml:link rel='timegate' href='http://example.org/tg/moss'/></url>",
    ))
    .unwrap();
    let entry = &read.document.entries[0];
    let relations: Vec<_> = entry.links.iter().map(|link| link.rel.clone()).collect();
    let wanted =
        [Relation::Profile, Relation::Duplicate, Relation::Patch, Relation::Memento, Relation::TimeGate];
    assert_eq!(relations, wanted);
    assert_eq!(entry.loc, "http://example.org/moss");
    assert_eq!(entry.links[2].profile.as_deref(), Some("http://example.org/protocols/diff"));
}

#[test]
fn alpha014_alpha020_to_alpha024_root_links_are_split_and_services_named_by_their_protocol() {
    let content = format!(
        "{MODIFIED}<xhtml:link rel='current http://www.openarchives.org/rs/changeset' href='http://example.org/now.xml'/>
         <xhtml:link rel='http://www.openarchives.org/rs/dump' href='http://example.org/dump.zip'/>
         <xhtml:link href='xmpp:pubsub.example.org' rs:protocol='http://xmpp.org/extensions/xep-0060.html' rs:pubsubnode='n'/>
         <xhtml:link href='http://example.org/subscribe' rs:protocol='http://example.org/protocols/callback'/>"
    );
    let read = read(&alpha("urlset", &content)).unwrap();
    let links: Vec<_> =
        read.document.header.links.iter().map(|link| (link.rel.as_str(), link.href.as_str())).collect();
    assert_eq!(
        links,
        [
            ("current", "http://example.org/now.xml"),
            ("http://www.openarchives.org/rs/changeset", "http://example.org/now.xml"),
            ("http://www.openarchives.org/rs/dump", "http://example.org/dump.zip"),
            ("http://xmpp.org/extensions/xep-0060.html", "xmpp:pubsub.example.org?;node=n"),
            ("http://example.org/protocols/callback", "http://example.org/subscribe"),
        ]
    );
}

#[test]
fn mem001_to_mem003_a_pair_of_links_with_one_target_leads_along_a_chain_and_no_other_link_does() {
    let link = |rel: &str, href: &str| format!("<xhtml:link rel='{rel}' href='http://example.org/{href}'/>");
    let set = "http://www.openarchives.org/rs/changeset";
    let leads = |links: &[(&str, &str)]| {
        let links: String = links.iter().map(|(rel, href)| link(rel, href)).collect();
        let read = read(&change_set(&links)).unwrap();
        ["current", "prev", "next"].map(|relation| {
            read.document.header.change_set(relation).map(|link| link.href.replace("http://example.org/", ""))
        })
    };
    let some = |href: &str| Some(href.to_owned());
    let (current, prev, next) = (format!("current {set}"), format!("{set} prev"), format!("next {set}"));
    let both = [(current.as_str(), "now.xml"), (prev.as_str(), "39.xml")];
    assert_eq!(leads(&both), [some("now.xml"), some("39.xml"), None]);
    assert_eq!(leads(&[(next.as_str(), "41.xml")]), [None, None, some("41.xml")], "MEM-002");
    assert_eq!(leads(&[("prev", "page-1.html"), (set, "now.xml")]), [None, None, None]);
}

#[test]
fn alpha031_the_relations_of_a_link_do_not_multiply_its_uri() {
    let reached = |content: &str| match read(&alpha("urlset", content)) {
        Err(ReadError::Limit { limit, .. }) => Some(limit),
        _ => None,
    };
    let link = |relations: usize, uri: usize| {
        format!(
            "<xhtml:link rel='{}' href='http://example.org/{}'/>",
            "a ".repeat(relations),
            "b".repeat(uri)
        )
    };
    let entry = |links: &str| format!("<url><loc>http://example.org/moss</loc>{links}</url>");
    let (few, many) = (link(3, 1_000), link(100_000, 200_000));
    for content in [few.clone(), entry(&few), entry(&few).repeat(100)] {
        assert_eq!(reached(&content), None);
    }
    for content in
        [many.clone(), entry(&many), entry(&link(20, 1_000).repeat(20)), entry(&link(60, 1_000)).repeat(20)]
    {
        assert_eq!(reached(&content), Some(Limit::Foreign), "{} bytes", content.len());
    }
}

#[test]
fn alpha013_a_sitemap_index_becomes_an_index_of_resource_lists() {
    let content = format!("{MODIFIED}<sitemap><loc>http://example.org/sitemap1.xml</loc></sitemap>");
    let read = read(&alpha("sitemapindex", &content)).unwrap();
    assert_eq!(read.document.header.root, crate::document::Root::SitemapIndex);
    assert_eq!(read.document.header.capability(), Some(&Capability::ResourceList));
}

#[test]
fn alpha029_samples_that_are_not_well_formed_are_refused_by_name() {
    let reopened = String::from_utf8(change_set("<url><loc>http://example.org/moss</loc></url>")).unwrap();
    let reopened = reopened.replace("</urlset>", "<urlset>");
    let error = read(reopened.as_bytes()).unwrap_err();
    assert!(matches!(error, ReadError::Unclosed { open: 2, .. }), "{error}");

    let error = read(&change_set("<url><loc>http://example.org/moss</sm:loc></url>")).unwrap_err();
    let ReadError::EndTag { position, expected, found } = error else { panic!("{error}") };
    assert_eq!((position.line, expected.as_str(), found.as_str()), (2, "loc", "sm:loc"));

    let bare = alpha(
        "sitemapindex",
        &format!("{MODIFIED}<sitemap><loc>http://example.org/s1.xml</loc>xhtml:meta name='a'/></sitemap>"),
    );
    assert!(read(&bare).unwrap().violations.iter().any(|told| told.rule == Rule::ElementUnknown));
}

#[test]
fn a_plain_sitemap_with_links_to_its_languages_is_not_the_drafts() {
    let content = "<url><loc>http://example.org/moss</loc><changefreq>weekly</changefreq><priority>0.3</priority>\
         <xhtml:link rel='alternate' hreflang='de' href='http://example.org/de/moss'/></url>";
    let read = read(&alpha("urlset", content)).unwrap();
    assert_eq!(read.dialect, Dialect::Sitemap);
    assert_eq!(own_warnings(&read), [Rule::Dialect, Rule::CapabilityMissing]);
    let entry = &read.document.entries[0];
    assert_eq!((entry.links.len(), entry.priority.unwrap().to_string().as_str()), (0, "0.3"));
    assert_eq!(entry.changefreq, Some(crate::document::ChangeFrequency::Weekly));
}

#[test]
fn what_looked_like_a_sitemap_is_the_drafts_from_the_first_entry_that_shows_it() {
    let content = "<url><loc>http://example.org/moss</loc></url>\
         <url><loc>http://example.org/fern</loc><rs:size>4</rs:size></url>";
    let bytes = alpha("urlset", content);
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    assert_eq!(reader.dialect(), Dialect::Sitemap);
    let entries: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(reader.dialect(), Dialect::Alpha0_1);
    assert_eq!(metadata(&entries[1]).length, Some(4));
    assert_eq!(reader.take_violations().iter().filter(|told| told.rule == Rule::Dialect).count(), 1);
}

#[test]
fn the_words_of_the_draft_mean_nothing_beside_those_of_today() {
    let content =
        "<rs:md capability='description'/><url><loc>http://example.org/c.xml</loc><rs:size>4</rs:size></url>";
    let read = read(&alpha("urlset", content)).unwrap();
    assert_eq!(read.dialect, Dialect::V1_1);
    assert!(read.violations.iter().any(|told| told.rule == Rule::ElementUnknown));
    assert_eq!(read.document.entries[0].metadata, None);
}

#[test]
fn the_strict_mode_refuses_what_an_older_form_lacks() {
    let strict = Options { mode: Mode::Strict, ..Options::default() };
    let content = format!("{MODIFIED}<url><loc>http://example.org/moss</loc></url>");
    let error = read_with(&alpha("urlset", &content), strict).unwrap_err();
    assert!(matches!(&error, ReadError::Rule(violation) if violation.rule == Rule::UpMissing), "{error}");
}
