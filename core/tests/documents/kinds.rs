//! What each kind of document must have: the smallest one conforms, and nothing can be taken from it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use resync_core::datetime::DateTime;
use resync_core::digest::Hashes;
use resync_core::document::{
    Bitstream, Capability, CapabilityList, Change, ChangeDump, ChangeDumpIndex, ChangeDumpManifest,
    ChangeList, ChangePackage, Document, Entry, Header, Link, Metadata, Package, PackedChange, RawDocument,
    Relation, Resource, ResourceChange, ResourceDump, ResourceDumpIndex, ResourceDumpManifest, ResourceList,
    ResourceListIndex, Root, SourceDescription, SourceDescriptionIndex,
};
use resync_core::rules::{Rule, Violations, check};
use resync_core::xml;

const UP: &str = "http://example.org/capabilitylist.xml";
const LOC: &str = "http://example.org/one.xml";

fn time(text: &str) -> DateTime {
    text.parse().unwrap()
}

fn noon() -> DateTime {
    time("2013-01-03T12:00:00Z")
}

/// The document, which is written with this root and this capability.
fn written(document: Result<Document, Violations>, root: &str, capability: &str) -> RawDocument {
    let document = document.unwrap();
    let text = String::from_utf8(xml::write(&document)).unwrap();
    resync_judge::written("kinds", [(capability, &text)]);
    assert!(text.contains(&format!("<{root} ")) && text.contains(&format!("</{root}>")), "{text}");
    assert!(text.contains(&format!("<rs:md capability=\"{capability}\"")), "{text}");
    document.into_raw()
}

/// The errors of the document after this was done to it.
fn after(document: &RawDocument, change: impl Fn(&mut RawDocument)) -> Vec<Rule> {
    let mut document = document.clone();
    change(&mut document);
    check(&document).errors().map(|violation| violation.rule).collect()
}

fn without_loc(document: &mut RawDocument) {
    document.entries[0].loc.clear();
}

fn without_up(document: &mut RawDocument) {
    document.header.links.clear();
}

#[test]
fn rs072_a_source_description_names_its_capability_lists() {
    let document = written(SourceDescription::new().capability_list(UP).build(), "urlset", "description");
    assert_eq!(document.entries[0].loc, UP);
    assert_eq!(after(&document, without_loc), [Rule::Loc]);
}

#[test]
fn rs074_several_source_descriptions_are_grouped_by_an_index() {
    let index = SourceDescriptionIndex::new()
        .description("http://example.org/description-1.xml")
        .description("http://example.org/description-2.xml");
    let document = written(index.build(), "sitemapindex", "description");
    assert_eq!(document.entries.len(), 2);
    assert_eq!(after(&document, without_loc), [Rule::Loc]);
}

#[test]
fn rs090_a_resource_list_has_its_moment_and_points_up() {
    let list = ResourceList::new(noon(), UP).resource(Resource::new(LOC));
    let document = written(list.clone().build(), "urlset", "resourcelist");
    assert_eq!(after(&document, |list| list.header.metadata.at = None), [Rule::TimeMissing]);
    assert_eq!(after(&document, without_up), [Rule::UpMissing]);
    assert!(list.completed(time("2013-01-03T12:30:00Z")).build().is_ok());
}

#[test]
fn rs094_an_index_of_resource_lists_has_the_same_and_a_place_for_each_part() {
    let index = ResourceListIndex::new(noon(), UP).list(LOC, Some(noon()), None);
    let document = written(index.build(), "sitemapindex", "resourcelist");
    assert_eq!(after(&document, |index| index.header.metadata.at = None), [Rule::TimeMissing]);
    assert_eq!(after(&document, without_up), [Rule::UpMissing]);
    assert_eq!(after(&document, without_loc), [Rule::Loc]);
    assert_eq!(after(&document, |index| index.entries[0].metadata = None), [], "its times are not needed");
}

#[test]
fn rs014_only_the_root_tells_an_index_from_a_list() {
    let list = ResourceList::new(noon(), UP).build().unwrap();
    let index = ResourceListIndex::new(noon(), UP).build().unwrap();
    assert_eq!(list.header().metadata, index.header().metadata);
    assert_eq!(list.header().links, index.header().links);
    for (document, root) in [(list, Root::UrlSet), (index, Root::SitemapIndex)] {
        assert_eq!(xml::read(xml::write(&document).as_slice()).unwrap().document.header.root, root);
    }
}

#[test]
fn rs106_a_bitstream_has_the_uri_of_its_resource_and_a_path_in_the_package() {
    let manifest = ResourceDumpManifest::new(noon(), UP).bitstream(Bitstream::new(LOC, "/resources/one"));
    let document = written(manifest.build(), "urlset", "resourcedump-manifest");
    assert_eq!(after(&document, without_loc), [Rule::Loc]);
    let without_path = |manifest: &mut RawDocument| manifest.entries[0].metadata = None;
    assert_eq!(after(&document, without_path), [Rule::ShapeMissing]);
}

#[test]
fn rs108_rs147_several_dumps_are_grouped_by_an_index_of_their_own_kind() {
    let dump = ResourceDump::new(noon(), UP).package(Package::zip(LOC, 7)).build();
    let index = ResourceDumpIndex::new(noon(), UP).dump(LOC, Some(noon()), None).build();
    written(dump, "urlset", "resourcedump");
    written(index, "sitemapindex", "resourcedump");
    let (from, until) = (time("2013-01-02"), noon());
    let package = ChangePackage::zip(LOC, 7).interval(from, until);
    let dump = ChangeDump::new(from, UP).until(until).package(package).build();
    let index = ChangeDumpIndex::new(from, UP).until(until).closed(LOC, from, until).build();
    written(dump, "urlset", "changedump");
    let document = written(index, "sitemapindex", "changedump");
    assert_eq!(after(&document, without_loc), [Rule::Loc]);
    assert_eq!(after(&document, |index| index.header.metadata.from = None), [Rule::TimeMissing]);
}

#[test]
fn rs122_each_change_names_its_resource_and_what_happened_to_it() {
    let list = ChangeList::new(time("2013-01-01"), UP).change(ResourceChange::created(LOC).datetime(noon()));
    let document = written(list.build(), "urlset", "changelist");
    assert_eq!(after(&document, without_loc), [Rule::Loc]);
    let unsaid = |list: &mut RawDocument| list.entries[0].metadata.as_mut().unwrap().change = None;
    assert_eq!(after(&document, unsaid), [Rule::ShapeMissing]);
    let all = ResourceChange::updated(LOC)
        .lastmod(noon())
        .datetime(noon())
        .length(7)
        .media_type("text/plain")
        .hashes(Hashes::parse("md5:1584abdf8ebdc9802ac0c6a7402c03b6"));
    assert!(ChangeList::new(time("2013-01-01"), UP).change(all).build().is_ok());
}

#[test]
fn rs123_a_change_without_its_moment_is_warned_of() {
    let list = ChangeList::new(time("2013-01-01"), UP).change(ResourceChange::created(LOC));
    let violations = check(&list.build().unwrap().into_raw());
    let rules: Vec<_> = violations.iter().map(|violation| violation.rule).collect();
    assert!(violations.is_conforming());
    assert_eq!(rules, [Rule::ShapeAdvised]);
}

#[test]
fn rs126_where_no_moment_is_told_the_place_in_the_list_is_the_order() {
    let list = ChangeList::new(time("2013-01-01"), UP)
        .change(ResourceChange::created(LOC).datetime(noon()))
        .change(ResourceChange::updated(LOC))
        .change(ResourceChange::deleted(LOC));
    let text = xml::write(&list.build().unwrap());
    let read = xml::read(text.as_slice()).unwrap().document;
    let changes: Vec<_> = read.entries.iter().filter_map(Entry::change).collect();
    assert_eq!(changes, [Change::Created, Change::Updated, Change::Deleted]);
}

/// An archive of each kind with one entry, which has the times of what it archives, and its capability.
fn archives() -> [(Result<Document, Violations>, &'static str); 4] {
    let completed = Some(time("2013-01-03T12:30:00Z"));
    let snapshot = Metadata { at: Some(noon()), completed, ..Metadata::default() };
    let interval = Metadata { from: Some(time("2013-01-02")), until: Some(noon()), ..Metadata::default() };
    [
        (archive(Capability::ResourceListArchive, snapshot.clone()), "resourcelist-archive"),
        (archive(Capability::ResourceDumpArchive, snapshot), "resourcedump-archive"),
        (archive(Capability::ChangeListArchive, interval.clone()), "changelist-archive"),
        (archive(Capability::ChangeDumpArchive, interval), "changedump-archive"),
    ]
}

fn archive(capability: Capability, times: Metadata) -> Result<Document, Violations> {
    let mut header = Header::new(Root::UrlSet, capability);
    header.links.push(Link::new(Relation::Up, UP));
    RawDocument { header, entries: vec![Entry::with_metadata(LOC, times)] }.try_into()
}

#[test]
fn ar002_lists_and_dumps_each_have_an_archive_with_a_capability_of_its_own() {
    let mut list = CapabilityList::new("http://example.org/.well-known/resourcesync");
    let mut capabilities = Vec::new();
    for (archive, token) in archives() {
        let document = written(archive, "urlset", token);
        let capability = document.header.capability().unwrap();
        assert!(!matches!(capability, Capability::Other(_)), "{token}");
        list = list.capability(capability.clone(), format!("http://example.org/{token}.xml"));
        capabilities.push(capability.clone());
    }
    let read = xml::read(&xml::write(&list.build().unwrap())).unwrap();
    assert!(read.violations.is_conforming(), "{}", read.violations);
    let listed: Vec<_> = read.document.entries.iter().filter_map(Entry::capability).cloned().collect();
    assert_eq!(listed, capabilities);
}

#[test]
fn ar003_an_archive_is_a_capability_like_any_other_and_listed_once() {
    let list = CapabilityList::new("http://example.org/.well-known/resourcesync")
        .capability(Capability::ResourceListArchive, LOC);
    let document = written(list.build(), "urlset", "capabilitylist");
    let twice = |list: &mut RawDocument| list.entries.extend(list.entries.clone());
    assert!(after(&document, twice).contains(&Rule::CapabilityRepeated));
}

#[test]
fn ar005_ar007_an_archive_points_up_names_what_it_holds_and_has_no_time_of_its_own() {
    for (archive, capability) in archives() {
        let document = written(archive, "urlset", capability);
        assert_eq!(after(&document, without_up), [Rule::UpMissing]);
        assert_eq!(after(&document, without_loc), [Rule::Loc]);
        for timed in [
            Metadata { at: Some(noon()), ..document.header.metadata.clone() },
            Metadata { from: Some(noon()), ..document.header.metadata.clone() },
        ] {
            let dated = |archive: &mut RawDocument| archive.header.metadata = timed.clone();
            let mut document = document.clone();
            dated(&mut document);
            let rules: Vec<_> = check(&document).iter().map(|violation| violation.rule).collect();
            assert!(
                rules.iter().any(|rule| matches!(rule, Rule::TimeForbidden | Rule::TimeUnforeseen)),
                "{capability}: {rules:?}"
            );
        }
    }
}

#[test]
fn ar008_an_archived_document_may_be_listed_with_its_own_times_and_with_no_others() {
    let snapshot = Metadata { at: Some(noon()), completed: Some(noon()), ..Metadata::default() };
    let interval = Metadata { from: Some(noon()), until: Some(noon()), ..Metadata::default() };
    for (archive, capability) in archives() {
        let text = xml::write(archive.as_ref().unwrap());
        let document = written(archive, "urlset", capability);
        assert_eq!(xml::read(&text).unwrap().document, document);
        let Metadata { at, completed, from, until, .. } = document.entries[0].metadata.clone().unwrap();
        let is_of_snapshots = capability.starts_with("resource");
        let told = [at, completed, from, until].map(|time| time.is_some());
        assert_eq!(told, [is_of_snapshots, is_of_snapshots, !is_of_snapshots, !is_of_snapshots]);
        assert_eq!(after(&document, |archive| archive.entries[0].metadata = None), [], "{capability}");
        assert_eq!(after(&document, |archive| archive.entries[0].lastmod = Some(noon())), [], "{capability}");
        let others = if is_of_snapshots { &interval } else { &snapshot };
        let with_others = |archive: &mut RawDocument| archive.entries[0].metadata = Some(others.clone());
        assert!(after(&document, with_others).contains(&Rule::TimeForbidden), "{capability}");
    }
}

#[test]
fn rs144_a_deleted_resource_has_no_bitstream_in_a_manifest() {
    let (from, until) = (time("2013-01-02"), noon());
    let manifest = ChangeDumpManifest::new(from, UP)
        .until(until)
        .change(PackedChange::created(LOC, "/one").datetime(until))
        .change(PackedChange::deleted(LOC).datetime(until));
    let document = written(manifest.build(), "urlset", "changedump-manifest");
    let pathless = |manifest: &mut RawDocument| manifest.entries[0].metadata.as_mut().unwrap().path = None;
    assert!(after(&document, pathless).contains(&Rule::ShapeMissing));
}
