//! Each rule that one document can break, broken.

use super::*;
use crate::datetime::DateTime;
use crate::digest::{Algorithm, Digest, Hashes};
use crate::document::{
    Bitstream, Capability, CapabilityList, Change, ChangeDumpManifest, ChangeList, ChangeNotification,
    Document, Entry, ForeignAttribute, FrameworkChange, FrameworkNotification, Header, Link, Metadata,
    Package, PackedChange, RawDocument, Relation, Resource, ResourceChange, ResourceDump,
    ResourceDumpManifest, ResourceList, ResourceListIndex, Root, SourceDescription,
};
use crate::xml::{self, MAX_ENTRIES};

const UP: &str = "http://example.org/capabilitylist.xml";

fn time(text: &str) -> DateTime {
    text.parse().unwrap()
}

fn rules(violations: &Violations) -> Vec<Rule> {
    violations.iter().map(|violation| violation.rule).collect()
}

fn errors(document: Result<Document, Violations>) -> Vec<Rule> {
    match document {
        Ok(_) => vec![],
        Err(violations) => violations.errors().map(|violation| violation.rule).collect(),
    }
}

fn raw(root: Root, capability: Capability) -> RawDocument {
    RawDocument { header: Header::new(root, capability), entries: vec![] }
}

fn entry(metadata: Metadata) -> Entry {
    Entry::with_metadata("http://example.org/a.html", metadata)
}

/// A Change List open since 2013-01-01 with these entries.
fn change_list(entries: Vec<Entry>) -> RawDocument {
    let mut document = raw(Root::UrlSet, Capability::ChangeList);
    document.header.metadata.from = Some(time("2013-01-01"));
    document.header.links.push(Link::new(Relation::Up, UP));
    document.entries = entries;
    document
}

/// A Change List Index with a list for each from and until.
fn index_of<const N: usize>(parts: [(&str, Option<&str>); N]) -> RawDocument {
    let entry = |(number, (from, until)): (usize, (&str, Option<&str>))| {
        let metadata = Metadata { from: Some(time(from)), until: until.map(time), ..Metadata::default() };
        Entry::with_metadata(format!("http://example.org/changelist-{number}.xml"), metadata)
    };
    let mut index = change_list(parts.into_iter().enumerate().map(entry).collect());
    index.header.root = Root::SitemapIndex;
    index
}

/// The rules that a link breaks in an updated entry of a Change List.
fn linked(links: impl IntoIterator<Item = Link>) -> Vec<Rule> {
    let mut document = change_list(vec![entry(change("2013-01-02"))]);
    document.entries[0].links.extend(links);
    rules(&check(&document))
}

fn change(datetime: &str) -> Metadata {
    Metadata { change: Some(Change::Updated), datetime: Some(time(datetime)), ..Metadata::default() }
}

#[test]
fn rs010_a_document_without_capability_does_not_conform() {
    let mut document = raw(Root::UrlSet, Capability::ResourceList);
    document.header.metadata.capability = None;
    assert_eq!(rules(&check(&document)), [Rule::CapabilityMissing]);
    document.header.metadata.capability = Some(Capability::from(""));
    assert!(rules(&check(&document)).contains(&Rule::CapabilityMissing));
}

#[test]
fn rs011_a_capability_of_others_is_only_warned_of() {
    let violations = check(&raw(Root::SitemapIndex, Capability::from("audio-list")));
    assert_eq!(rules(&violations), [Rule::CapabilityUnknown]);
    assert!(violations.is_conforming());
}

#[test]
fn rs017_the_root_does_not_speak_of_a_representation() {
    let mut document = change_list(vec![]);
    document.header.metadata.length = Some(3);
    assert_eq!(rules(&check(&document)), [Rule::RootAttribute]);
}

#[test]
fn rs021_rs022_nothing_ends_before_it_starts() {
    let at = time("2013-01-03T09:00:00Z");
    let list = ResourceList::new(at, UP).completed(time("2013-01-02"));
    assert_eq!(errors(list.build()), [Rule::SnapshotReversed]);
    let notification = ChangeNotification::new(at, time("2013-01-02"));
    assert_eq!(errors(notification.build()), [Rule::IntervalReversed]);
}

#[test]
fn rs030_a_change_lies_within_the_interval_with_both_ends_included() {
    let (from, until) = (time("2013-01-01"), time("2013-01-02"));
    let notify = |datetime: &str| {
        let change = ResourceChange::created("http://example.org/a").datetime(time(datetime));
        errors(ChangeNotification::new(from, until).change(change).build())
    };
    assert_eq!(notify("2013-01-01T00:00:00Z"), []);
    assert_eq!(notify("2013-01-02T00:00:00Z"), []);
    assert_eq!(notify("2013-01-02T00:00:00.001Z"), [Rule::DatetimeOutside]);
    assert_eq!(notify("2012-12-31T23:59:59Z"), [Rule::DatetimeOutside]);
}

#[test]
fn rs035_rs037_what_a_destination_can_ignore_is_a_warning() {
    let resource =
        Resource::new("http://example.org/a").hashes(Hashes::parse("crc32:00")).media_type("hypertext");
    let mut document = ResourceList::new(time("2013"), UP).build().unwrap().into_raw();
    document.entries.push(resource.into());
    let violations = check(&document);
    assert_eq!(rules(&violations), [Rule::HashUnknown, Rule::MediaType]);
    assert!(violations.is_conforming());
}

#[test]
fn rs040_a_path_stands_only_in_manifests() {
    let metadata = Metadata { path: Some("/a".to_owned()), ..change("2013-01-02") };
    assert_eq!(rules(&check(&change_list(vec![entry(metadata.clone())]))), [Rule::PathPlace]);

    let mut manifest = change_list(vec![entry(metadata)]);
    manifest.header.metadata.capability = Some(Capability::ChangeDumpManifest);
    assert_eq!(rules(&check(&manifest)), [Rule::ShapeAdvised], "the type is advised");
    for (path, rule) in [("a", Rule::PathShape), ("/a/", Rule::PathShape), ("/../a", Rule::PathUnsafe)] {
        manifest.entries[0].metadata.as_mut().unwrap().path = Some(path.to_owned());
        assert!(rules(&check(&manifest)).contains(&rule), "{path}");
    }
}

#[test]
fn rs041_pri_goes_from_1_to_999999() {
    for (pri, fits) in [(0, false), (1, true), (999_999, true), (1_000_000, false)] {
        let link = Link { pri: Some(pri), ..Link::new(Relation::Duplicate, "http://mirror.example.org/a") };
        let list =
            ResourceList::new(time("2013"), UP).resource(Resource::new("http://example.org/a").link(link));
        assert_eq!(errors(list.build()), if fits { vec![] } else { vec![Rule::Priority] }, "{pri}");
    }
}

#[test]
fn rs042_the_entry_after_the_fifty_thousandth_is_too_many() {
    let mut checker = Checker::new(&Header::new(Root::UrlSet, Capability::from("any")));
    let entry = Entry::new("http://example.org/a");
    for _ in 0..MAX_ENTRIES {
        checker.entry(&entry);
    }
    assert!(checker.violations().is_conforming());
    checker.entry(&entry);
    assert_eq!(
        checker.finish().errors().map(|violation| violation.rule).collect::<Vec<_>>(),
        [Rule::TooLarge]
    );
}

#[test]
fn rs046_a_document_without_entries_conforms() {
    assert!(check(&change_list(vec![])).is_empty());
}

#[test]
fn rs047_loc_is_an_absolute_uri_of_12_to_2048_characters() {
    for loc in
        ["", "/a.html", "http://a.b/", "http://example.org/a b", &format!("http://a.b/{}", "a".repeat(2048))]
    {
        let description = SourceDescription::new().capability_list(loc);
        assert_eq!(errors(description.build()), [Rule::Loc], "{loc:?}");
    }
}

#[test]
fn rs053_what_lies_below_a_capability_list_points_up() {
    let mut document = change_list(vec![]);
    document.header.links.clear();
    assert_eq!(rules(&check(&document)), [Rule::UpMissing]);
    assert!(errors(FrameworkNotification::new().build()).is_empty(), "a notification need not");
}

#[test]
fn rs057_a_relation_has_the_shape_of_a_name_or_uri() {
    let mut document = change_list(vec![entry(change("2013-01-02"))]);
    document.entries[0].links.push(Link::new(Relation::from("alternate mirror"), "http://example.org/b"));
    assert_eq!(rules(&check(&document)), [Rule::RelationShape]);
    document.entries[0].links[0] = Link::new(Relation::from("mirror"), "http://example.org/b");
    assert_eq!(rules(&check(&document)), [Rule::RelationUnregistered]);
    document.entries[0].links[0] =
        Link::new(Relation::from("http://example.org/mirror"), "http://example.org/b");
    assert!(check(&document).is_empty());
    document.entries[0].links[0] = Link::new(Relation::from("license"), "http://example.org/b");
    assert!(check(&document).is_empty());
}

#[test]
fn rs060_times_that_a_kind_must_not_have_are_refused_and_advised_ones_asked_for() {
    let mut document = change_list(vec![]);
    document.header.metadata.at = Some(time("2013"));
    assert_eq!(rules(&check(&document)), [Rule::TimeForbidden]);
    document.header.metadata.at = None;
    document.header.metadata.from = None;
    assert_eq!(rules(&check(&document)), [Rule::TimeMissing]);

    let mut index = change_list(vec![Entry::new("http://example.org/changelist-1.xml")]);
    index.header.root = Root::SitemapIndex;
    let violations = check(&index);
    assert_eq!(rules(&violations), [Rule::TimeAdvised]);
    assert!(violations.is_conforming());
}

#[test]
fn rs061_a_change_list_tells_how_each_resource_changed() {
    let unchanged = Metadata { datetime: Some(time("2013-01-02")), ..Metadata::default() };
    assert_eq!(rules(&check(&change_list(vec![entry(unchanged)]))), [Rule::ShapeMissing]);
    let mut list = ResourceList::new(time("2013"), UP).build().unwrap().into_raw();
    list.entries.push(entry(Metadata { change: Some(Change::Updated), ..Metadata::default() }));
    assert_eq!(rules(&check(&list)), [Rule::ShapeForbidden]);
}

#[test]
fn rs061_a_manifest_cannot_be_an_index() {
    let document = raw(Root::SitemapIndex, Capability::ResourceDumpManifest);
    assert_eq!(rules(&check(&document)), [Rule::ShapeRoot]);
}

#[test]
fn rs082_a_capability_is_listed_once() {
    let list = CapabilityList::new("http://example.org/description.xml")
        .capability(Capability::ResourceList, "http://example.org/resourcelist-1.xml")
        .capability(Capability::ResourceList, "http://example.org/resourcelist-2.xml");
    let violations = list.build().unwrap_err();
    let repeated: Vec<_> =
        violations.errors().map(|violation| (violation.rule, violation.place.entry)).collect();
    assert_eq!(repeated, [(Rule::CapabilityRepeated, Some(2))]);
}

#[test]
fn rs083_capability_lists_have_no_index() {
    let document = raw(Root::SitemapIndex, Capability::CapabilityList);
    assert_eq!(rules(&check(&document)), [Rule::CapabilityListIndex]);
}

#[test]
fn rs121_changes_come_oldest_first_and_one_without_datetime_breaks_no_order() {
    let undated = Metadata { datetime: None, ..change("2013-01-02") };
    let dates = |dates: [&str; 2]| {
        let mut entries: Vec<_> = dates.into_iter().map(|date| entry(change(date))).collect();
        entries.insert(1, entry(undated.clone()));
        rules(&check(&change_list(entries)))
    };
    assert_eq!(dates(["2013-01-02", "2013-01-02"]), [Rule::ShapeAdvised]);
    assert_eq!(dates(["2013-01-03", "2013-01-02"]), [Rule::ShapeAdvised, Rule::ChangeOrder]);
}

#[test]
fn rs127_only_the_last_list_of_an_index_is_open() {
    let mut index = index_of([("2013-01-01", None), ("2013-01-02", None)]);
    assert_eq!(rules(&check(&index)), [Rule::OpenBeforeLast]);
    index.entries[0].metadata.as_mut().unwrap().until = Some(time("2013-01-02"));
    assert!(check(&index).is_empty());
}

#[test]
fn rs129_a_deletion_has_no_representation_and_rs144_needs_no_path() {
    let deleted = Metadata { change: Some(Change::Deleted), ..change("2013-01-02") };
    let mut manifest = change_list(vec![entry(deleted.clone())]);
    manifest.header.metadata.capability = Some(Capability::ChangeDumpManifest);
    assert!(check(&manifest).is_empty());
    let described = Metadata { length: Some(4), ..deleted };
    assert_eq!(rules(&check(&change_list(vec![entry(described)]))), [Rule::DeletedRepresentation]);
}

#[test]
fn rs146_rs174_a_patch_has_a_type_a_place_and_in_a_manifest_a_path() {
    let mut document = change_list(vec![entry(change("2013-01-02"))]);
    document.entries[0].links.push(Link::new(Relation::Patch, "http://example.org/patch"));
    assert_eq!(rules(&check(&document)), [Rule::PatchType]);
    document.entries[0].links[0].media_type = Some("application/json-patch+json".to_owned());
    assert!(check(&document).is_empty());
    document.header.metadata.capability = Some(Capability::ChangeDumpManifest);
    assert!(rules(&check(&document)).contains(&Rule::PatchPath));
}

#[test]
fn rs178_a_timegate_link_is_bare() {
    assert_eq!(linked([Link::timegate("http://example.org/timegate")]), []);
    let gate = Link { length: Some(1), ..Link::new(Relation::TimeGate, "http://example.org/timegate") };
    let mut document = change_list(vec![entry(change("2013-01-02"))]);
    document.entries[0].links.push(gate);
    assert_eq!(rules(&check(&document)), [Rule::TimeGateAttributes]);
}

#[test]
fn rs016_foreign_attributes_that_cannot_be_written_are_refused() {
    let attribute = |prefix: &str, namespace: &str, name: &str| ForeignAttribute {
        namespace: namespace.to_owned(),
        prefix: prefix.to_owned(),
        name: name.to_owned(),
        value: String::new(),
    };
    let good = [
        attribute("a", "urn:a", "x"),
        attribute("a", "urn:a", "y"),
        attribute("xml", crate::model::XML_NAMESPACE, "lang"),
    ];
    let checked = |foreign: &[ForeignAttribute]| {
        rules(&check(&change_list(vec![entry(Metadata {
            foreign: foreign.to_vec(),
            ..change("2013-01-02")
        })])))
    };
    assert_eq!(checked(&good), []);
    for bad in [
        vec![attribute("rs", "urn:a", "x")],
        vec![attribute("a", xml::RS_NAMESPACE, "x")],
        vec![attribute("a", "", "x")],
        vec![attribute("xml", "urn:a", "x")],
        vec![attribute("a", crate::model::XML_NAMESPACE, "x")],
        vec![attribute("", "urn:a", "x")],
        vec![attribute("a", "urn:a", "x y")],
        vec![attribute("a", "urn:a", "x"), attribute("b", "urn:a", "x")],
        vec![attribute("a", "urn:a", "x"), attribute("a", "urn:b", "y")],
    ] {
        assert_eq!(checked(&bad), [Rule::AttributeForeign], "{bad:?}");
    }
}

#[test]
fn text_that_xml_cannot_carry_is_refused() {
    let list =
        ResourceList::new(time("2013"), UP).resource(Resource::new("http://example.org/a").encoding("\0"));
    assert_eq!(errors(list.build()), [Rule::Characters]);
}

#[test]
fn cn006_fn020_notifications_are_never_an_index() {
    let document = raw(Root::SitemapIndex, Capability::ChangeNotification);
    assert_eq!(rules(&check(&document)), [Rule::NotificationRoot]);
    let document = raw(Root::SitemapIndex, Capability::FrameworkNotification);
    assert_eq!(rules(&check(&document)), [Rule::FrameworkRoot]);
}

#[test]
fn cn007_cn011_cn012_a_change_notification_has_an_interval_changes_and_their_order() {
    let mut document = change_list(vec![entry(change("2013-01-03")), entry(change("2013-01-02"))]);
    document.header.metadata.capability = Some(Capability::ChangeNotification);
    document.entries.push(Entry::new("http://example.org/b.html"));
    let wanted = [Rule::NotificationInterval, Rule::NotificationOrder, Rule::NotificationEntry];
    assert_eq!(rules(&check(&document)), wanted);
}

#[test]
fn cn017_the_old_token_is_never_written() {
    let list = CapabilityList::new("http://example.org/description.xml")
        .capability(Capability::from("changelist-notification"), "http://example.org/topic");
    assert_eq!(errors(list.build()), [Rule::NotificationTokenWritten]);
}

#[test]
fn fn021_a_framework_notification_may_have_an_interval_but_no_at() {
    let (from, until) = (time("2013-01-01"), time("2013-01-02"));
    let notification = FrameworkNotification::new().interval(from, until).build().unwrap();
    let mut document = notification.into_raw();
    assert!(check(&document).is_empty());
    document.header.metadata.at = Some(from);
    assert_eq!(rules(&check(&document)), [Rule::TimeForbidden]);
}

#[test]
fn fn023_each_entry_needs_both_change_and_capability() {
    let change = FrameworkChange::new(Change::Created, Capability::ChangeList, "http://example.org/1.xml");
    let mut document = FrameworkNotification::new().change(change).build().unwrap().into_raw();
    document.entries[0].metadata.as_mut().unwrap().capability = None;
    document.entries.push(Entry::new("http://example.org/2.xml"));
    let wanted = [Rule::FrameworkEntry; 3];
    assert_eq!(rules(&check(&document)), wanted);
}

#[test]
fn fn060_cn019_a_channel_names_a_hub_and_other_entries_do_not() {
    let list = |capability: Capability, hubs: &[&str]| {
        let up = "http://example.org/description.xml";
        errors(
            CapabilityList::new(up)
                .channel(capability, "http://example.org/topic", hubs.iter().copied())
                .build(),
        )
    };
    let hub = ["http://hub.example.org/websub/"];
    assert_eq!(list(Capability::FrameworkNotification, &hub), []);
    assert_eq!(list(Capability::FrameworkNotification, &[]), [Rule::FrameworkHub]);
    assert_eq!(list(Capability::ChangeNotification, &[]), [Rule::NotificationHub]);
    assert_eq!(list(Capability::ResourceList, &hub), [Rule::HubPlace]);
}

#[test]
fn fn060_a_hub_link_elsewhere_is_warned_of() {
    let mut document = change_list(vec![entry(change("2013-01-02"))]);
    document.header.links.push(Link::new(Relation::Hub, "http://hub.example.org/"));
    document.entries[0].links.push(Link::new(Relation::Hub, "http://hub.example.org/"));
    let violations = check(&document);
    assert_eq!(rules(&violations), [Rule::RelationPlace, Rule::RelationPlace]);
    assert!(violations.iter().all(|violation| violation.rule.severity() == Severity::Warning));
}

#[test]
fn rs031_lastmod_does_not_tell_when_something_changed() {
    let undated = Metadata { datetime: None, ..change("2013-01-02") };
    let mut document = change_list(vec![Entry { lastmod: Some(time("2013-01-02")), ..entry(undated) }]);
    assert_eq!(rules(&check(&document)), [Rule::LastmodForDatetime]);
    document.entries[0].metadata = Some(change("2013-01-02"));
    assert!(check(&document).is_empty());
}

#[test]
fn rs043_what_points_at_documents_lists_each_once() {
    let list = "http://example.org/capabilitylist.xml";
    let description = SourceDescription::new().described_by(UP).capability_list_described_by(list, UP);
    let violations = check(&description.capability_list_described_by(list, UP).build().unwrap().into_raw());
    assert_eq!(rules(&violations), [Rule::EntryRepeated]);
}

#[test]
fn rs049_the_entries_of_a_capability_list_have_no_lastmod() {
    let list = CapabilityList::new(UP).described_by(UP).capability(Capability::ResourceList, UP);
    let mut document = list.build().unwrap().into_raw();
    assert!(check(&document).is_empty());
    document.entries[0].lastmod = Some(time("2013"));
    assert_eq!(rules(&check(&document)), [Rule::LastmodOnPointer]);
}

#[test]
fn rs053_there_is_one_way_up_and_it_is_not_the_index() {
    let mut document = change_list(vec![]);
    document.header.links.push(Link::new(Relation::Index, UP));
    assert_eq!(rules(&check(&document)), [Rule::UpIsIndex]);
    document.header.links[1] = Link::new(Relation::Up, "http://example.org/other.xml");
    assert_eq!(rules(&check(&document)), [Rule::HeadLinkRepeated]);
}

#[test]
fn rs095_the_snapshots_of_the_parts_lie_within_that_of_the_whole() {
    let (first, second) = (time("2013-01-01"), time("2013-01-02"));
    let index = |at, completed| {
        let part = "http://example.org/resourcelist-1.xml";
        let index = ResourceListIndex::new(at, UP).completed(completed).list(part, Some(first), Some(second));
        rules(&check(&index.build().unwrap().into_raw()))
    };
    assert_eq!(index(first, second), []);
    assert_eq!(index(second, second), [Rule::SnapshotOutside]);
    assert_eq!(index(first, first), [Rule::SnapshotOutside]);
}

#[test]
fn rs101_packages_are_zip_and_all_of_one_format() {
    let package =
        |number: u8, media_type| Package::new(format!("http://example.org/{number}"), media_type, 1);
    let dump = |second| {
        let dump = ResourceDump::new(time("2013"), UP).package(Package::zip("http://example.org/1", 1));
        rules(&check(&dump.package(package(2, second)).build().unwrap().into_raw()))
    };
    assert_eq!(dump("application/zip"), []);
    assert_eq!(dump("application/warc"), [Rule::PackageFormat, Rule::PackageMixed]);
}

#[test]
fn rs103_a_package_has_one_contents_link_to_xml() {
    let manifest = "http://example.org/manifest.xml";
    let dump = |package: Package| {
        rules(&check(&ResourceDump::new(time("2013"), UP).package(package).build().unwrap().into_raw()))
    };
    let package = Package::zip("http://example.org/1", 1).contents(manifest);
    assert_eq!(dump(package.clone()), []);
    assert_eq!(dump(package.contents(manifest)), [Rule::ContentsRepeated]);
}

#[test]
fn rs058_only_lists_and_dumps_have_archives_and_lie_as_archives_do_under_an_index() {
    use Capability::{
        CapabilityList, ChangeDump, ChangeListArchive, ChangeNotification, FrameworkNotification,
    };
    use Root::{SitemapIndex, UrlSet};
    for (root, capability, may_have_index, may_have_archives) in [
        (UrlSet, Capability::ChangeList, true, true),
        (SitemapIndex, Capability::ChangeList, false, true),
        (UrlSet, ChangeDump, true, true),
        (UrlSet, Capability::ResourceDumpManifest, false, false),
        (UrlSet, ChangeListArchive, true, false),
        (SitemapIndex, ChangeListArchive, false, false),
        (UrlSet, CapabilityList, false, false),
        (UrlSet, ChangeNotification, false, false),
        (UrlSet, FrameworkNotification, false, false),
    ] {
        for (relation, may) in [(Relation::Index, may_have_index), (Relation::Archives, may_have_archives)] {
            let mut document = raw(root, capability.clone());
            document.header.links.push(Link::new(relation.clone(), "http://example.org/beside.xml"));
            let is_warned_of = rules(&check(&document)).contains(&Rule::RelationPlace);
            assert_eq!(is_warned_of, !may, "{relation} of a {capability}, {root:?}");
        }
    }
}

#[test]
fn rs091_a_resource_that_is_listed_twice_is_warned_of() {
    let list = |locs: &[&str]| {
        let resources = locs.iter().map(|loc| Resource::new(*loc));
        let list = ResourceList::new(time("2013-01-01"), UP);
        let list = resources.fold(list, ResourceList::resource).build().unwrap();
        rules(&xml::read(&xml::write(&list)).unwrap().violations)
    };
    assert_eq!(list(&["http://example.org/a", "http://example.org/b"]), []);
    assert_eq!(
        list(&["http://example.org/a", "http://example.org/b", "http://example.org/a"]),
        [Rule::ResourceRepeated]
    );
}

#[test]
fn rs110_a_path_that_a_package_reader_refuses_is_an_error_for_the_same_reason() {
    for (path, told) in [
        ("/a/../b", "points above the package"),
        ("//a", "is absolute"),
        ("/a/c:b", "names a drive"),
        ("/a\\b", "contains a backslash"),
        ("/a\tb", "contains a control character"),
        ("/a//b", "has an empty part"),
    ] {
        let manifest = ResourceDumpManifest::new(time("2013-01-01"), UP);
        let bitstream = Bitstream::new("http://example.org/a.html", path).media_type("text/html");
        let refused = manifest.bitstream(bitstream).build().unwrap_err();
        let told_of: Vec<_> = refused.errors().map(|violation| (violation.rule, &violation.detail)).collect();
        assert!(matches!(&told_of[..], [(Rule::PathUnsafe, detail)] if detail.ends_with(told)), "{refused}");
    }
}

#[test]
fn rs110_rs145_no_two_entries_of_a_manifest_have_the_same_path() {
    let bitstream = |loc| Bitstream::new(loc, "/a.html").media_type("text/html");
    let manifest = ResourceDumpManifest::new(time("2013"), UP).bitstream(bitstream("http://example.org/a"));
    assert!(manifest.clone().build().is_ok());
    assert_eq!(errors(manifest.bitstream(bitstream("http://example.org/b")).build()), [Rule::PathRepeated]);

    let changed = |path| PackedChange::updated("http://example.org/a", path);
    let manifest = ChangeDumpManifest::new(time("2013"), UP).change(changed("/a"));
    assert_eq!(errors(manifest.clone().change(changed("/a-v2")).build()), []);
    assert_eq!(errors(manifest.change(changed("/a")).build()), [Rule::PathRepeated]);
}

#[test]
fn rs042_every_entry_offered_beyond_the_fifty_thousandth_is_refused() {
    let mut checker = Checker::new(&Header::new(Root::UrlSet, Capability::from("any")));
    let entry = Entry::new("http://example.org/a");
    assert!((0..MAX_ENTRIES).all(|_| checker.offer(&entry).is_ok()));
    for _ in 0..3 {
        assert_eq!(rules(&checker.offer(&entry).unwrap_err()), [Rule::TooLarge]);
    }
}

#[test]
fn an_entry_that_was_refused_may_come_again_in_order() {
    let header = ResourceDumpManifest::new(time("2013"), UP).header();
    let mut checker = Checker::new(&header);
    assert!(checker.offer(&Bitstream::new("nowhere", "/a").into()).is_err());
    assert!(checker.offer(&Bitstream::new("http://example.org/a", "/a").into()).is_ok());
    assert!(checker.offer(&Bitstream::new("http://example.org/b", "/a").into()).is_err());
}

#[test]
fn rs023_rs125_the_lists_of_an_index_lie_within_its_interval() {
    let mut index = index_of([("2012-12-31", Some("2013-01-02"))]);
    assert_eq!(rules(&check(&index)), [Rule::IntervalOutside]);
    index = index_of([("2013-01-01", Some("2013-01-03")), ("2013-01-03", None)]);
    assert!(check(&index).is_empty());
    index.header.metadata.until = Some(time("2013-01-02"));
    assert_eq!(rules(&check(&index)), [Rule::IntervalOutside, Rule::OpenUnderClosed]);
}

#[test]
fn rs127_consecutive_lists_share_their_boundary() {
    assert!(check(&index_of([("2013-01-01", Some("2013-01-02")), ("2013-01-02", None)])).is_empty());
    for start in ["2013-01-01T23:00:00Z", "2013-01-02T00:00:01Z"] {
        let index = index_of([("2013-01-01", Some("2013-01-02")), (start, None)]);
        assert_eq!(rules(&check(&index)), [Rule::BoundaryGap], "{start}");
    }
}

#[test]
fn rs171_a_mirror_says_only_what_differs() {
    let mirror = |length| Link { length, ..Link::mirror("http://mirror.example.org/a").pri(1).into() };
    let with = |length| {
        let resource = Resource::new("http://example.org/a").length(4).link(mirror(length));
        rules(&check(&ResourceList::new(time("2013"), UP).resource(resource).build().unwrap().into_raw()))
    };
    assert_eq!(with(None), []);
    assert_eq!(with(Some(4)), [Rule::MirrorRepeats]);
}

#[test]
fn rs171_hash_type_and_encoding_of_a_mirror_are_said_only_where_they_differ() {
    let with = |[content, media_type, encoding]: [&str; 3]| {
        let hash = |text: &str| Hashes::from(Digest::of(Algorithm::Md5, text.as_bytes()));
        let mirror = Link {
            hash: hash(content),
            media_type: Some(media_type.to_owned()),
            encoding: Some(encoding.to_owned()),
            ..Link::mirror("http://mirror.example.org/a").pri(1).into()
        };
        let resource = Resource::new("http://example.org/a").hashes(hash("a")).media_type("text/plain");
        let resource = resource.encoding("gzip").link(mirror);
        rules(&check(&ResourceList::new(time("2013"), UP).resource(resource).build().unwrap().into_raw()))
    };
    assert_eq!(with(["b", "text/html", "br"]), []);
    for same in [["a", "text/html", "br"], ["b", "text/plain", "br"], ["b", "text/html", "gzip"]] {
        assert_eq!(with(same), [Rule::MirrorRepeats], "{same:?}");
    }
}

#[test]
fn rs172_an_alternate_has_a_type() {
    let alternate = Link::alternate("http://example.org/a.pdf");
    assert_eq!(linked([alternate.clone().into()]), [Rule::AlternateType]);
    assert_eq!(linked([alternate.media_type("application/pdf").into()]), []);
}

#[test]
fn rs174_a_patch_makes_a_new_version_of_something() {
    let patch = || Link::patch("http://example.org/a.patch", "application/json-patch+json");
    let list = |change: ResourceChange| {
        let change = change.datetime(time("2013-01-02")).patch(patch());
        rules(&check(&ChangeList::new(time("2013"), UP).change(change).build().unwrap().into_raw()))
    };
    assert_eq!(list(ResourceChange::updated("http://example.org/a")), []);
    assert_eq!(list(ResourceChange::created("http://example.org/a")), [Rule::PatchChange]);
}

#[test]
fn rs178_rs181_there_is_one_memento_and_one_original() {
    let memento = |number: u8| Link::memento(format!("http://example.org/a/{number}")).into();
    let via = |number: u8| Link::via(format!("http://origin.example.org/a/{number}")).into();
    assert_eq!(linked([memento(1), via(1)]), []);
    assert_eq!(linked([memento(1), memento(2)]), [Rule::MementoRepeated]);
    assert_eq!(linked([via(1), via(2)]), [Rule::ViaRepeated]);
}

#[test]
fn ar009_ar016_a_change_archive_lists_closed_documents_oldest_first() {
    let (first, second) = (time("2013-01-01"), time("2013-01-02"));
    let closed = |number: u8, from, until| {
        let metadata = Metadata { from: Some(from), until: Some(until), ..Metadata::default() };
        Entry::with_metadata(format!("http://example.org/changelist-{number}.xml"), metadata)
    };
    let mut document = raw(Root::UrlSet, Capability::ChangeListArchive);
    document.header.links.push(Link::new(Relation::Up, UP));
    document.entries = vec![closed(2, second, second), closed(1, first, second)];
    assert_eq!(errors(document.clone().try_into()), [Rule::ArchiveOrder]);
    document.entries.truncate(1);
    assert_eq!(errors(document.clone().try_into()), []);
    document.entries[0].metadata.as_mut().unwrap().until = None;
    assert_eq!(rules(&check(&document)), [Rule::ArchivedOpen]);
}

#[test]
fn fn007_of_several_new_lists_under_an_index_one_is_told() {
    let told = |change, number: u8| {
        let loc = format!("http://example.org/{number}.xml");
        FrameworkChange::new(change, Capability::ChangeList, loc).index("http://example.org/index.xml")
    };
    let notification = FrameworkNotification::new().change(told(Change::Created, 1));
    let with = |second| rules(&check(&notification.clone().change(second).build().unwrap().into_raw()));
    assert_eq!(with(told(Change::Updated, 2)), []);
    assert_eq!(with(told(Change::Created, 2)), [Rule::FrameworkIndexRepeated]);
}

#[test]
fn fn022_fn026_what_is_told_with_an_up_link_lies_below_it() {
    let told = |capabilities: &[Capability]| {
        let mut notification = FrameworkNotification::new().up(UP);
        for capability in capabilities {
            let change = FrameworkChange::new(Change::Updated, capability.clone(), "http://example.org/x");
            notification = notification.change(change);
        }
        rules(&check(&notification.build().unwrap().into_raw()))
    };
    assert_eq!(told(&[Capability::ChangeList, Capability::ResourceList]), []);
    assert_eq!(told(&[Capability::CapabilityList, Capability::ResourceList]), [Rule::FrameworkUp]);
    assert_eq!(told(&[Capability::Description]), [Rule::FrameworkUp]);
}
