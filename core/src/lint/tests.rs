//! Sites in memory: one that is right, and then one thing wrong at a time.

mod hostile;
mod versions;

use std::collections::HashMap;
use std::io::{Cursor, Write as _};

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::datetime::DateTime;
use crate::digest::{Algorithm, Digest, Hashes};
use crate::document::{
    Bitstream, Capability, CapabilityList, ChangeList, ChangeListIndex, ChangeNotification, Document, Entry,
    Header, Link, Metadata, Package, RawDocument, Relation, Resource, ResourceChange, ResourceDump,
    ResourceDumpManifest, ResourceList, ResourceListIndex, Root, SourceDescription,
};
use crate::rules::Rule;
use crate::websub::LinkHeader;
use crate::xml;

const SOURCE: &str = "http://example.org/.well-known/resourcesync";
const UP: &str = "http://example.org/capabilitylist.xml";
const LIST: &str = "http://example.org/resourcelist.xml";
const DUMP: &str = "http://example.org/resourcedump.xml";
const PACKAGE: &str = "http://example.org/dump.zip";
const MANIFEST: &str = "http://example.org/dump-manifest.xml";
const CHANGES: &str = "http://example.org/changelist.xml";
const CHANGES_1: &str = "http://example.org/changelist-1.xml";
const CHANGES_2: &str = "http://example.org/changelist-2.xml";
const ARCHIVE: &str = "http://example.org/changelist-archive.xml";
const OLD: &str = "http://example.org/changelist-2012.xml";
const TOPIC: &str = "http://example.org/topic";
const HUB: &str = "http://hub.example.org/";
const CONTENT: &[u8] = b"<p>hello";

/// Documents and packages by URL, what the topic answers, and what was asked for.
struct Web {
    documents: HashMap<String, Vec<u8>>,
    packages: HashMap<String, Vec<u8>>,
    topic: Option<TopicAnswer>,
    moved: HashMap<String, String>,
    content_type: Option<&'static str>,
    asked: Vec<String>,
    ahead: Vec<usize>,
}

impl Fetch for Web {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        self.asked.push(url.to_owned());
        let last_url = self.moved.get(url).map_or(url, String::as_str).to_owned();
        let bytes = self.documents.get(&last_url).ok_or_else(|| FetchFailure::new("404 Not Found"))?.clone();
        Ok(Fetched { bytes, content_type: self.content_type.map(str::to_owned), last_url })
    }

    fn package(&mut self, url: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        let bytes = self.packages.get(url).ok_or_else(|| FetchFailure::new("404 Not Found"))?;
        Ok(Some(Box::new(Cursor::new(bytes.clone()))))
    }

    fn ahead(&mut self, documents: usize) {
        self.ahead.push(documents);
    }

    fn topic(&mut self, url: &str, method: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
        self.asked.push(format!("{method:?} {url}"));
        Ok(self.topic.clone())
    }
}

impl Web {
    fn put(&mut self, url: &str, document: &Document) {
        self.documents.insert(url.to_owned(), xml::write(document));
    }

    /// Replaces text in a document; at least once.
    fn edit(&mut self, url: &str, from: &str, to: &str) {
        let text = String::from_utf8(self.documents[url].clone()).unwrap();
        assert!(text.contains(from), "{from} in {text}");
        self.documents.insert(url.to_owned(), text.replace(from, to).into_bytes());
    }

    /// The rules broken, each with the document's URL.
    fn broken(&mut self) -> Vec<(String, Rule)> {
        self.broken_from(SOURCE)
    }

    fn broken_from(&mut self, start: &str) -> Vec<(String, Rule)> {
        let report = check(self, start);
        let broken = report.documents.iter().flat_map(|document| {
            document.violations.iter().map(|violation| (document.url.clone(), violation.rule))
        });
        broken.collect()
    }
}

fn only(url: &str, rule: Rule) -> Vec<(String, Rule)> {
    vec![(url.to_owned(), rule)]
}

fn day(day: u8) -> DateTime {
    format!("2013-01-{day:02}").parse().unwrap()
}

fn changed(on: u8) -> ResourceChange {
    ResourceChange::updated("http://example.org/a.html").datetime(day(on))
}

fn capability_list() -> CapabilityList {
    CapabilityList::new(SOURCE)
        .described_by("http://example.org/about")
        .capability(Capability::ResourceList, LIST)
        .capability(Capability::ResourceDump, DUMP)
        .capability(Capability::ChangeList, CHANGES)
        .capability(Capability::ChangeListArchive, ARCHIVE)
        .channel(Capability::ChangeNotification, TOPIC, [HUB])
}

fn manifest() -> ResourceDumpManifest {
    let bitstream = Bitstream::new("http://example.org/a.html", "/a.html").media_type("text/html");
    let hashes = Hashes::from(Digest::of(Algorithm::Sha256, CONTENT));
    ResourceDumpManifest::new(day(1), UP).bitstream(bitstream.length(CONTENT.len() as u64).hashes(hashes))
}

/// A package with these members.
fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ::zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        zip.start_file(*name, ::zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

impl Web {
    /// Puts a package, and a dump that says of it what is true.
    fn pack(&mut self, members: &[(&str, &[u8])], has_copy: bool) {
        let bytes = zip(members);
        let package = Package::zip(PACKAGE, bytes.len() as u64).at(day(1));
        let package = if has_copy { package.contents(MANIFEST) } else { package };
        let package = package.hashes(Hashes::from(Digest::of(Algorithm::Md5, &bytes)));
        self.put(DUMP, &ResourceDump::new(day(1), UP).package(package).build().unwrap());
        self.packages.insert(PACKAGE.to_owned(), bytes);
    }
}

fn changes_1() -> ChangeList {
    ChangeList::new(day(1), UP).until(day(3)).change(changed(2)).index(CHANGES)
}

fn changes_2() -> ChangeList {
    ChangeList::new(day(3), UP).change(changed(3)).change(changed(5)).index(CHANGES)
}

/// A Source with everything in order.
fn web() -> Web {
    let mut web = Web {
        documents: HashMap::new(),
        packages: HashMap::new(),
        topic: Some(TopicAnswer {
            content_type: Some("application/xml".to_owned()),
            links: LinkHeader::default().push(TOPIC, "self").push(HUB, "hub"),
        }),
        moved: HashMap::new(),
        content_type: Some("application/xml; charset=utf-8"),
        asked: Vec::new(),
        ahead: Vec::new(),
    };
    let description = SourceDescription::new().described_by("http://example.org/about");
    let description = description.capability_list_described_by(UP, "http://example.org/about");
    web.put(SOURCE, &description.build().unwrap());
    web.put(UP, &capability_list().build().unwrap());
    let list = ResourceList::new(day(1), UP).resource(Resource::new("http://example.org/a.html"));
    web.put(LIST, &list.build().unwrap());
    web.put(MANIFEST, &manifest().build().unwrap());
    web.pack(&[("manifest.xml", &xml::write(&manifest().build().unwrap())), ("a.html", CONTENT)], true);
    let index = ChangeListIndex::new(day(1), UP).closed(CHANGES_1, day(1), day(3)).open(CHANGES_2, day(3));
    web.put(CHANGES, &index.archives(ARCHIVE).build().unwrap());
    web.put(CHANGES_1, &changes_1().build().unwrap());
    web.put(CHANGES_2, &changes_2().build().unwrap());
    web.put(ARCHIVE, &archive());
    web.put(OLD, &ChangeList::new(day(1), UP).until(day(1)).build().unwrap());
    web
}

/// The archive of the Change List that is closed.
fn archive() -> Document {
    let mut header = Header::new(Root::UrlSet, Capability::ChangeListArchive);
    header.links.push(Link::new(Relation::Up, UP));
    let closed = Metadata { from: Some(day(1)), until: Some(day(1)), ..Metadata::default() };
    RawDocument { header, entries: vec![Entry::with_metadata(OLD, closed)] }.try_into().unwrap()
}

#[test]
fn a_source_with_everything_in_order_has_no_violation_wherever_the_check_starts() {
    for start in [SOURCE, UP, LIST, CHANGES_2, MANIFEST, OLD] {
        let mut web = web();
        let report = check(&mut web, start);
        assert_eq!((report.errors(), report.warnings()), (0, 0), "from {start}: {report}");
        assert_eq!(report.documents.len(), 11, "from {start}: {report}");
        assert_eq!(report.documents[0].linked_from, None);
        web.asked.sort_unstable();
        let count = web.asked.len();
        web.asked.dedup();
        assert_eq!(web.asked.len(), count, "each document is fetched once: {:?}", web.asked);
    }
}

#[test]
fn fn063_a_topic_is_asked_for_its_links_and_not_read_as_a_document() {
    let mut web = web();
    assert_eq!(web.broken(), []);
    assert!(!web.asked.iter().any(|url| url == TOPIC));
    let asked: Vec<_> = web.asked.iter().filter(|asked| asked.ends_with(TOPIC)).collect();
    assert_eq!(asked, [&format!("Get {TOPIC}"), &format!("Head {TOPIC}")]);
}

#[test]
fn fn031_a_topic_names_itself_and_its_hub_and_is_served_as_xml() {
    let mut web = web();
    let mut expect = |content_type: Option<&str>, links: LinkHeader, rules: &[Rule]| {
        web.topic = Some(TopicAnswer { content_type: content_type.map(str::to_owned), links });
        let told: Vec<_> = web.broken().into_iter().map(|(url, rule)| (url == UP).then_some(rule)).collect();
        let twice: Vec<_> = rules.iter().map(|&rule| Some(rule)).collect::<Vec<_>>().repeat(2);
        assert_eq!(told, twice, "by GET and by HEAD");
    };
    let xml = Some("application/xml;charset=utf-8");
    let link = || LinkHeader::default();
    expect(xml, link().push(TOPIC, "self").push("HTTP://hub.example.org", "hub"), &[]);
    expect(None, link().push(TOPIC, "self").push(HUB, "hub"), &[Rule::TopicContentType]);
    expect(Some("text/html"), link().push(TOPIC, "self").push(HUB, "hub"), &[Rule::TopicContentType]);
    expect(xml, link(), &[Rule::TopicLinks, Rule::TopicLinks]);
    expect(xml, link().push(TOPIC, "self"), &[Rule::TopicLinks]);
    expect(xml, link().push(UP, "self").push(HUB, "hub"), &[Rule::TopicLinks]);
    expect(xml, link().push(TOPIC, "self").push("http://other.example/", "hub"), &[Rule::TopicHubs]);
}

/// The documents with what they break, when these notifications are checked: interval in days, and where each points up.
fn broken_notifications(
    web: &mut Web,
    check: Check,
    starts: &[&str],
    notifications: &[(u8, u8, Option<&str>)],
) -> Vec<(String, Rule)> {
    let mut urls = Vec::new();
    for (number, &(from, until, up)) in notifications.iter().enumerate() {
        let url = format!("http://example.org/notification-{number}.xml");
        let document = ChangeNotification::new(day(from), day(until)).up("http://example.org/placeholder");
        web.put(&url, &document.build().unwrap());
        match up {
            Some(up) => web.edit(&url, "http://example.org/placeholder", up),
            None => web.edit(&url, "<rs:ln rel=\"up\" href=\"http://example.org/placeholder\"/>", ""),
        }
        urls.push(url);
    }
    let report = check.run_all(web, starts.iter().copied(), urls.iter().map(String::as_str));
    let broken = report.documents.into_iter().flat_map(|document| {
        let rules: Vec<_> = document.violations.iter().map(|violation| violation.rule).collect();
        rules.into_iter().map(move |rule| (document.url.clone(), rule))
    });
    broken.filter(|(_, rule)| *rule != Rule::LinkTarget).collect()
}

fn in_chain(number: usize) -> Vec<(String, Rule)> {
    only(&format!("http://example.org/notification-{number}.xml"), Rule::NotificationChain)
}

#[test]
fn cn008_notifications_that_point_up_to_one_capability_list_follow_each_other() {
    let mut web = web();
    let mut broken =
        |notifications: &[_]| broken_notifications(&mut web, Check::default(), &[SOURCE], notifications);
    assert_eq!(broken(&[(2, 4, Some(UP)), (1, 2, Some(UP))]), [], "they are put in order");
    assert_eq!(broken(&[(1, 2, Some(UP)), (2, 4, Some(UP)), (3, 5, Some(UP))]), in_chain(2));
    assert_eq!(broken(&[(1, 2, Some(UP)), (3, 5, Some(UP))]), in_chain(1));
    let relative = Some("capabilitylist.xml");
    assert_eq!(broken(&[(1, 2, Some(UP)), (3, 5, relative)]), in_chain(1), "two spellings of one list");
    assert_eq!(broken(&[(1, 2, Some(UP)), (2, 5, relative)]), []);
}

#[test]
fn cn008_cn010_notifications_that_name_no_set_may_be_of_several() {
    let mut web = web();
    for up in [None, Some(SOURCE), Some("http://example.org/unread.xml")] {
        let notifications = [(1, 3, up), (2, 4, up), (7, 9, up)];
        assert_eq!(broken_notifications(&mut web, Check::default(), &[SOURCE], &notifications), [], "{up:?}");
    }
}

#[test]
fn cn008_notifications_that_are_given_in_order_are_one_chain_for_each_set() {
    let mut web = web();
    let mut broken =
        |notifications: &[_]| broken_notifications(&mut web, Check::default().in_order(), &[], notifications);
    for up in [None, Some(SOURCE), Some(UP)] {
        assert_eq!(broken(&[(1, 2, up), (2, 4, up)]), []);
        assert_eq!(broken(&[(2, 4, up), (1, 2, up)]), in_chain(1));
    }
    assert_eq!(broken(&[(1, 2, Some(UP)), (8, 9, Some(SOURCE)), (2, 3, Some(UP))]), []);
}

#[test]
fn what_nothing_leads_to_is_checked_by_itself_and_said_to_be_unreached() {
    let mut web = web();
    let stray = "http://example.org/stray.xml";
    web.documents.insert(stray.to_owned(), xml::write(&ResourceList::new(day(1), LIST).build().unwrap()));
    let report = Check::default().run_all(&mut web, [SOURCE], [stray, LIST]);
    let unreached: Vec<_> = report.documents.iter().filter(|document| document.is_unreached).collect();
    assert_eq!((unreached.len(), report.documents.len()), (1, 12));
    assert_eq!(unreached[0].url, stray);
    assert!(unreached[0].violations.is_empty(), "its up link is not followed: {report}");
    assert!(report.to_string().contains("stray.xml (Resource List), which nothing leads to"));

    web.edit(stray, "resourcelist", "changelist");
    let report = Check::default().run_all(&mut web, [SOURCE], [stray]);
    assert!(!report.documents[11].violations.is_conforming(), "{report}");
}

#[test]
fn in002_what_is_linked_to_must_be_there_and_be_readable() {
    let mut web = web();
    web.documents.remove(LIST);
    assert_eq!(web.broken(), only(LIST, Rule::Unreachable));
    web.documents.insert(LIST.to_owned(), b"<html/>".to_vec());
    assert_eq!(web.broken(), only(LIST, Rule::Unreadable));
}

#[test]
fn rs052_documents_are_served_as_xml() {
    let mut web = web();
    web.documents.retain(|url, _| url == SOURCE);
    web.put(SOURCE, &SourceDescription::new().described_by("http://example.org/about").build().unwrap());
    web.content_type = None;
    assert_eq!(web.broken(), only(SOURCE, Rule::ContentTypeMissing));
    web.content_type = Some("text/html");
    assert_eq!(web.broken(), only(SOURCE, Rule::ContentTypeWrong));
    web.content_type = Some("application/x-gzip");
    assert_eq!(web.broken(), []);
}

#[test]
fn rs053_up_that_leads_to_the_index_or_elsewhere_is_told() {
    let mut web = web();
    web.edit(CHANGES_1, &format!("\"up\" href=\"{UP}"), &format!("\"up\" href=\"{CHANGES}?"));
    web.moved.insert(format!("{CHANGES}?"), CHANGES.to_owned());
    assert_eq!(web.broken(), only(CHANGES_1, Rule::UpIsIndex));

    let mut web = self::web();
    web.edit(LIST, UP, SOURCE);
    assert_eq!(web.broken(), only(LIST, Rule::UpTarget));
    let mut web = self::web();
    web.edit(MANIFEST, UP, DUMP);
    let broken = web.broken();
    assert!(broken.contains(&(MANIFEST.to_owned(), Rule::UpTarget)), "{broken:?}");
}

#[test]
fn rs054_a_list_and_its_index_name_each_other() {
    let mut web = web();
    web.edit(CHANGES_1, &format!("  <rs:ln rel=\"index\" href=\"{CHANGES}\"/>\n"), "");
    assert_eq!(web.broken(), only(CHANGES_1, Rule::IndexLinkMissing));

    let mut web = self::web();
    let index = ChangeListIndex::new(day(1), UP).open(CHANGES_2, day(3)).archives(ARCHIVE);
    web.put(CHANGES, &index.build().unwrap());
    assert_eq!(web.broken(), []);
    assert_eq!(web.broken_from(CHANGES_1), only(CHANGES_1, Rule::IndexLinkTarget));
}

#[test]
fn rs013_an_index_that_is_a_urlset_is_told_by_its_lists_and_by_a_look_at_an_entry() {
    let mut web = web();
    let part = "http://example.org/resourcelist-1.xml";
    let index = ResourceListIndex::new(day(1), UP).list(part, None, None).build().unwrap();
    web.put(LIST, &index);
    let resource = Resource::new("http://example.org/a.html");
    web.put(part, &ResourceList::new(day(1), UP).resource(resource).index(LIST).build().unwrap());
    assert_eq!(web.broken(), []);
    for (from, to) in [("sitemapindex", "urlset"), ("sitemap>", "url>")] {
        web.edit(LIST, from, to);
    }
    assert_eq!(web.broken(), only(LIST, Rule::IndexAsUrlset));
    assert!(web.broken_from(part).contains(&(LIST.to_owned(), Rule::IndexAsUrlset)));
}

#[test]
fn rs044_an_index_of_indexes_is_told() {
    let mut web = web();
    let index = |part| ResourceListIndex::new(day(1), UP).list(part, None, None).build().unwrap();
    web.put(LIST, &index("http://example.org/index.xml"));
    web.put("http://example.org/index.xml", &index("http://example.org/list.xml"));
    web.put("http://example.org/list.xml", &ResourceList::new(day(1), UP).index(LIST).build().unwrap());
    assert!(web.broken().contains(&(LIST.to_owned(), Rule::IndexNested)));
}

#[test]
fn rs055_an_entry_leads_to_what_it_says() {
    let mut web = web();
    web.put(LIST, &ChangeList::new(day(1), UP).build().unwrap());
    assert_eq!(web.broken(), only(UP, Rule::EntryTarget));
}

#[test]
fn rs055_rs070_what_points_up_is_listed_there() {
    let mut web = web();
    let stray = "http://example.org/stray.xml";
    web.put(stray, &ResourceList::new(day(1), UP).build().unwrap());
    assert_eq!(web.broken_from(stray), only(stray, Rule::DocumentUnlisted));
    web.put(stray, &CapabilityList::new(SOURCE).described_by("http://example.org/about").build().unwrap());
    assert_eq!(web.broken_from(stray), only(stray, Rule::CapabilityListUnlisted));
}

#[test]
fn rs091_a_resource_that_is_listed_twice_is_told() {
    let mut web = web();
    let resource = || Resource::new("http://example.org/a.html");
    let list = ResourceList::new(day(1), UP).resource(resource()).resource(resource());
    web.put(LIST, &list.build().unwrap());
    assert_eq!(web.broken(), only(LIST, Rule::ResourceRepeated));
}

#[test]
fn rs007_a_list_and_a_dump_of_one_moment_hold_the_same_resources_and_those_of_two_need_not() {
    let list = |on, resources: &[&str]| {
        let resources = resources.iter().map(|name| Resource::new(format!("http://example.org/{name}")));
        resources.fold(ResourceList::new(on, UP), ResourceList::resource).build().unwrap()
    };
    let broken = |list: &Document| {
        let mut web = web();
        web.put(LIST, list);
        web.broken()
    };
    assert_eq!(broken(&list(day(1), &["a.html"])), []);
    for resources in [&["b.html"][..], &["a.html", "b.html"], &[]] {
        assert_eq!(broken(&list(day(1), resources)), only(DUMP, Rule::SetsDiffer), "{resources:?}");
        assert_eq!(broken(&list(day(2), resources)), [], "{resources:?}");
    }
    // What was not looked into is not missed.
    let mut web = web();
    web.put(LIST, &list(day(1), &["b.html"]));
    web.pack(&[("manifest.xml", &xml::write(&manifest().build().unwrap())), ("a.html", CONTENT)], false);
    web.packages.clear();
    assert_eq!(web.broken(), only(DUMP, Rule::Unreachable));
}

#[test]
fn rs007_a_list_in_parts_is_compared_as_a_whole() {
    let mut web = web();
    let part = |resource| ResourceList::new(day(1), UP).resource(Resource::new(resource)).index(LIST);
    let index = ResourceListIndex::new(day(1), UP);
    let index = ["http://example.org/1.xml", "http://example.org/2.xml"]
        .into_iter()
        .fold(index, |index, part| index.list(part, Some(day(1)), None));
    web.put(LIST, &index.build().unwrap());
    web.put("http://example.org/1.xml", &part("http://example.org/a.html").build().unwrap());
    web.put("http://example.org/2.xml", &ResourceList::new(day(1), UP).index(LIST).build().unwrap());
    assert_eq!(web.broken(), []);
    web.put("http://example.org/2.xml", &part("http://example.org/b.html").build().unwrap());
    assert_eq!(web.broken(), only(DUMP, Rule::SetsDiffer));
}

#[test]
fn rs007_where_resources_may_have_other_names_or_were_not_understood_nothing_is_compared() {
    let list = ResourceList::new(day(1), UP)
        .resource(Resource::new("http://example.org/b.html"))
        .resource(Resource::new("http://example.org/c.html"));
    let list = String::from_utf8(xml::write(&list.build().unwrap())).unwrap();
    let told_of = |text: String| {
        let mut web = web();
        web.documents.insert(LIST.to_owned(), text.into_bytes());
        web.broken().into_iter().any(|(_, rule)| rule == Rule::SetsDiffer)
    };
    assert!(told_of(list.clone()));
    let named = r#"<loc>http://example.org/c.html</loc><rs:ln rel="alternate" href="http://example.org/c"/>"#;
    for other in [named, "<loc>http://example.org/b.html</loc>", "<loc>http://example.org/c.html</loc><loc/>"]
    {
        assert!(!told_of(list.replace("<loc>http://example.org/c.html</loc>", other)), "{other}");
    }
}

#[test]
fn rs103_a_copy_of_a_manifest_is_equal_to_the_one_in_the_package() {
    let mut web = web();
    web.edit(MANIFEST, "text/html", "text/plain");
    assert_eq!(web.broken(), only(DUMP, Rule::ContentsDiffer));
    web.packages.clear();
    assert_eq!(web.broken(), only(DUMP, Rule::Unreachable));
}

#[test]
fn rs101_rs104_rs110_a_package_is_refused_for_what_a_destination_would_refuse_it_for() {
    let told = String::from_utf8(xml::write(&manifest().build().unwrap())).unwrap();
    let inside = format!("{PACKAGE}!/manifest.xml");
    let mut web = web();
    let mut expect = |manifest: &str, more: &[(&str, &[u8])], expected: Vec<(String, Rule)>| {
        let mut members = vec![("manifest.xml", manifest.as_bytes())];
        members.extend(more);
        members.retain(|(_, content)| !content.is_empty());
        web.pack(&members, false);
        assert_eq!(web.broken(), expected, "{manifest}");
    };
    let good: (&str, &[u8]) = ("a.html", CONTENT);
    expect(&told, &[good], vec![]);
    expect(&told, &[good, ("not/named.txt", b"RS-111")], vec![]);
    expect("", &[good], only(DUMP, Rule::PackageManifest));
    expect(
        &told.replace("resourcedump-manifest", "resourcelist"),
        &[good],
        only(DUMP, Rule::PackageManifest),
    );
    expect(&told.replace("</urlset>", ""), &[good], only(DUMP, Rule::PackageManifest));
    expect(&told, &[], only(&inside, Rule::BitstreamMissing));
    expect(&told, &[("a.html", b"<p>hallo")], only(&inside, Rule::BitstreamDiffers));
    expect(&told, &[("a.html", b"<p>")], only(&inside, Rule::BitstreamDiffers));
    expect(&told.replace("/a.html\" ", "/../a.html\" "), &[good], only(&inside, Rule::PathUnsafe));
    let entry = &told[told.find("  <url>").unwrap()..told.find("</urlset>").unwrap()];
    expect(&told.replace("</urlset>", &format!("{entry}</urlset>")), &[good], only(DUMP, Rule::PathRepeated));

    web.packages.insert(PACKAGE.to_owned(), b"no archive".to_vec());
    let broken: Vec<_> = web.broken().into_iter().map(|(_, rule)| rule).collect();
    assert_eq!(broken, [Rule::PackageDiffers, Rule::PackageDiffers, Rule::PackageUnreadable]);
}

#[test]
fn rs125_an_entry_has_until_exactly_when_its_list_is_closed() {
    let mut web = web();
    web.put(CHANGES_2, &changes_2().until(day(6)).build().unwrap());
    assert_eq!(web.broken(), only(CHANGES, Rule::UntilMissing));

    let mut web = self::web();
    let open = ChangeList::new(day(1), UP).change(changed(2)).index(CHANGES);
    web.put(CHANGES_1, &open.build().unwrap());
    assert_eq!(web.broken(), only(CHANGES, Rule::UntilOnOpen));

    let mut web = self::web();
    let shorter = ChangeList::new(day(1), UP).until(day(2)).index(CHANGES);
    web.put(CHANGES_1, &shorter.build().unwrap());
    assert_eq!(web.broken(), only(CHANGES, Rule::EntryTimes));
}

#[test]
fn rs130_an_index_may_be_late_while_a_run_is_under_way_and_that_is_not_judged() {
    let mut web = web();
    web.put(CHANGES_2, &changes_2().until(day(6)).build().unwrap());
    let report = Check::default().under_way().run(&mut web, SOURCE);
    assert!(report.is_conforming(), "{report}");
    assert_eq!((report.indexes_late, report.unjudged()), (1, vec![Rule::UntilMissing]));
    let open = ChangeList::new(day(1), UP).change(changed(2)).index(CHANGES);
    web.put(CHANGES_1, &open.build().unwrap());
    let report = Check::default().under_way().run(&mut web, SOURCE);
    assert_eq!(report.errors(), 1, "an index is never early: {report}");
}

#[test]
fn who_fetches_hears_how_many_documents_are_ahead() {
    let mut web = web();
    check(&mut web, SOURCE);
    assert_eq!((web.ahead.first(), web.ahead.iter().min()), (Some(&1), Some(&1)), "{:?}", web.ahead);
    assert!(web.ahead.iter().max() > Some(&2), "{:?}", web.ahead);
}

#[test]
fn rs121_rs127_lists_go_on_where_the_one_before_ended_even_when_the_index_tells_no_times() {
    let mut web = web();
    let undated = |web: &mut Web| {
        web.edit(CHANGES, "    <rs:md from=\"2013-01-01T00:00:00Z\" until=\"2013-01-03T00:00:00Z\"/>\n", "");
        web.edit(CHANGES, "    <rs:md from=\"2013-01-03T00:00:00Z\"/>\n", "");
    };
    undated(&mut web);
    let advice = [(CHANGES.to_owned(), Rule::TimeAdvised), (CHANGES.to_owned(), Rule::TimeAdvised)];
    let mut expected = |list: ChangeList, rules: &[Rule]| {
        web.put(CHANGES_1, &list.index(CHANGES).build().unwrap());
        let mut broken = web.broken();
        broken.retain(|violation| !advice.contains(violation));
        assert_eq!(broken.into_iter().map(|(_, rule)| rule).collect::<Vec<_>>(), rules);
    };
    let to = |until| ChangeList::new(day(1), UP).until(day(until));
    expected(to(2), &[Rule::UntilMissing, Rule::BoundaryGap]);
    expected(to(3), &[Rule::UntilMissing]);
    expected(to(5).change(changed(4)), &[Rule::UntilMissing, Rule::IndexOrder, Rule::BoundaryGap]);
    expected(ChangeList::new(day(1), UP), &[Rule::OpenBeforeLast]);
}

#[test]
fn ar004_ar016_archives_are_archives_and_what_they_hold_is_closed() {
    let mut web = web();
    web.put(OLD, &ChangeList::new(day(1), UP).build().unwrap());
    assert_eq!(web.broken(), only(ARCHIVE, Rule::ArchivedOpen));

    let mut web = self::web();
    let list = ResourceList::new(day(1), UP).resource(Resource::new("http://example.org/a.html"));
    let list = list.archives(ARCHIVE);
    web.put(LIST, &list.build().unwrap());
    assert_eq!(web.broken(), only(LIST, Rule::ArchivesTarget));
}

#[test]
fn relative_links_and_redirects_lead_to_the_same_document() {
    let mut web = web();
    web.edit(SOURCE, UP, "/capabilitylist.xml#set");
    assert_eq!(web.broken(), only(SOURCE, Rule::Loc));

    let mut web = self::web();
    web.edit(UP, LIST, "http://example.org/latest");
    web.moved.insert("http://example.org/latest".to_owned(), LIST.to_owned());
    let report = check(&mut web, SOURCE);
    assert_eq!((report.errors(), report.warnings(), report.documents.len()), (0, 0, 11), "{report}");
}

#[test]
fn the_number_of_documents_is_limited_and_what_lies_beyond_is_counted() {
    let mut web = web();
    let report = Check::default().documents(3).run(&mut web, SOURCE);
    assert_eq!(report.documents.len(), 3);
    assert!(report.omitted > 0);
    assert_eq!(report.errors(), 0, "what was not read is not missed: {report}");
    assert!(!report.is_complete() && !report.is_conforming(), "and not taken for right: {report}");
    assert!(report.unjudged().contains(&Rule::DocumentUnlisted));
    let text = report.to_string();
    assert!(
        text.contains("links not followed") && text.contains("not judged: RS-007 SetsDiffer, RS-054"),
        "{text}"
    );
}

#[test]
fn what_is_looked_at_by_itself_is_not_said_to_be_judged_in_its_place() {
    let mut web = web();
    let alone = Check::default().run_all(&mut web, [], [DUMP]);
    assert!(alone.links_unfollowed > 0 && alone.is_conforming(), "{alone}");
    for rule in [Rule::UpTarget, Rule::BitstreamUnsafe, Rule::ContentsDiffer, Rule::SetsDiffer] {
        assert!(alone.unjudged().contains(&rule), "{rule}");
    }
    web.topic = None;
    assert!(check(&mut web, SOURCE).unjudged().contains(&Rule::TopicLinks));
}

#[test]
fn packages_that_are_not_looked_into_are_counted_with_the_rules_that_ask_for_it() {
    struct Documents(Web);
    impl Fetch for Documents {
        fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
            self.0.get(url)
        }
    }
    assert_eq!(
        (check(&mut web(), SOURCE).packages_skipped, check(&mut web(), SOURCE).unjudged()),
        (0, vec![])
    );
    let report = check(&mut Documents(web()), SOURCE);
    assert!(report.is_conforming(), "{report}");
    assert_eq!(report.packages_skipped, 1);
    assert!(
        report.unjudged().contains(&Rule::BitstreamDiffers)
            && report.to_string().contains("1 package not looked into")
    );
}

#[test]
fn documents_that_lead_to_each_other_or_to_themselves_come_to_an_end() {
    let mut web = web();
    web.put(LIST, &ResourceListIndex::new(day(1), LIST).list(LIST, None, None).build().unwrap());
    let broken = web.broken_from(LIST);
    assert!(broken.contains(&(LIST.to_owned(), Rule::IndexNested)), "{broken:?}");
}

proptest! {
    #[test]
    fn however_documents_are_linked_the_check_ends_and_sees_each_once(
        rewired in proptest::collection::vec((url(), url(), url()), 1..12),
        moved in proptest::collection::vec((url(), url()), 0..3),
        start in url(),
    ) {
        let mut web = web();
        for (document, from, to) in rewired {
            let text = String::from_utf8(web.documents[document].clone()).unwrap();
            web.documents.insert(document.to_owned(), text.replace(from, to).into_bytes());
        }
        web.moved.extend(moved.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())));
        let report = check(&mut web, start);
        let mut urls: Vec<_> = report.documents.iter().map(|document| &document.url).collect();
        urls.sort_unstable();
        urls.dedup();
        prop_assert_eq!(urls.len(), report.documents.len());
        // Each document once, and for each one look at an entry, or two at a topic.
        prop_assert!(web.asked.len() <= 3 * (web.documents.len() + 4), "{:?}", web.asked);
    }
}

fn url() -> impl Strategy<Value = &'static str> {
    select(vec![SOURCE, UP, LIST, DUMP, MANIFEST, CHANGES, CHANGES_1, CHANGES_2, ARCHIVE, OLD])
}
