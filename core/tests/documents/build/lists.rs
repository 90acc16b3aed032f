//! Resource Lists and archives.

use std::collections::BTreeMap;

use proptest::prelude::*;
use resync_core::build::{
    ArchiveKind, Archives, BuildError, Completed, FileInventory, FolderSink, Item, MemoryInventory,
    MemorySink, ResourceLists, Site, publish_capability_list, publish_source_description,
};
use resync_core::document::{Capability, CapabilityList, Link, Relation, Root, SourceDescription};
use resync_core::xml::Limits;

use super::broken::{Break, Breaking};
use super::site::{SOURCE, check_each, check_site, document, item, judge_each, moment, site};

fn limits(entries: usize, bytes: u64) -> Limits {
    Limits { entries, bytes }
}

fn inventory(count: u32) -> MemoryInventory {
    (0..count).map(|number| item(number, number % 7)).collect()
}

/// Every item that the documents list, by way of the index where there is one.
fn read_back(sink: &MemorySink, top: &str) -> Vec<Item> {
    let whole = document(sink, top);
    if whole.root() == Root::UrlSet {
        return whole.entries().iter().cloned().map(Item::from_entry).collect();
    }
    let names: Vec<_> = whole
        .entries()
        .iter()
        .map(|entry| entry.loc.strip_prefix(super::site::ROOT).unwrap().to_owned())
        .collect();
    names.iter().flat_map(|name| document(sink, name).entries().to_vec()).map(Item::from_entry).collect()
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let one = (0..60_u32, 0..4_u32, any::<bool>(), prop::option::of("[a-z]{1,9}/[a-z<&]{1,5}"), 0..3_usize);
    let one = one.prop_map(|(number, version, is_known, media_type, links)| {
        let known = item(number, version);
        let links = (0..links)
            .map(|n| Link::new(Relation::Alternate, format!("https://example.org/{n}?\"<&>'")))
            .collect();
        let bare = Item::new(known.loc.clone());
        Item { links, media_type, ..if is_known { known } else { bare } }
    });
    prop::collection::vec(one, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rs043_any_inventory_is_read_back_as_it_was(
        items in items(),
        entries in 1..8_usize,
        bytes in 1_500..6_000_u64,
    ) {
        let inventory = MemoryInventory::new(items);
        let mut sink = MemorySink::default();
        let published = ResourceLists::new(&site(), moment(100))
            .limits(limits(entries, bytes))
            .completed(Completed::At(moment(120)))
            .write(inventory.clone().into_iter(), &mut sink)
            .unwrap();
        prop_assert_eq!(published.entries, inventory.items().len() as u64);
        for name in sink.names() {
            let list = document(&sink, name);
            prop_assert!(list.root() == Root::SitemapIndex || list.entries().len() <= entries);
            prop_assert!(list.root() == Root::SitemapIndex || sink.get(name).unwrap().len() as u64 <= bytes);
            prop_assert_eq!(list.header().metadata.at, Some(moment(100)));
            prop_assert_eq!(list.header().metadata.completed, Some(moment(120)));
        }
        let top = published.top().unwrap();
        let back = read_back(&sink, top);
        prop_assert_eq!(back.as_slice(), inventory.items());
        let report = check_site(&sink, Capability::ResourceList, top);
        prop_assert!(report.is_conforming(), "{}", report);
    }
}

#[test]
fn rs042_a_list_is_full_at_its_limit_and_not_before() {
    for (count, documents) in [(0, 1), (1, 1), (4, 1), (5, 3), (8, 3), (9, 4)] {
        let mut sink = MemorySink::default();
        let lists = ResourceLists::new(&site(), moment(0)).limits(limits(4, u64::MAX));
        let published = lists.write(inventory(count).into_iter(), &mut sink).unwrap();
        assert_eq!(published.documents.len(), documents, "{count}");
        let top = document(&sink, "resourcelist.xml");
        assert_eq!(top.root() == Root::SitemapIndex, documents > 1);
        assert_eq!(top.link(&Relation::Index), None);
    }
}

#[test]
fn rs054_components_point_at_their_index_and_are_published_before_it() {
    let mut sink = MemorySink::default();
    let lists = ResourceLists::new(&site(), moment(0))
        .limits(limits(2, u64::MAX))
        .archives("https://example.org/old.xml");
    let published = lists.write(inventory(3).into_iter(), &mut sink).unwrap();
    let stamped = |number| format!("resourcelist-20260101T000000Z-{number}.xml");
    assert_eq!(published.documents, [stamped(1), stamped(2), "resourcelist.xml".to_owned()]);
    for name in &published.documents[..2] {
        let list = document(&sink, name);
        assert_eq!(list.link(&Relation::Index).unwrap().href, site().url("resourcelist.xml"));
        assert_eq!(list.link(&Relation::Archives).unwrap().href, "https://example.org/old.xml");
    }
}

#[test]
fn an_inventory_that_fails_or_is_out_of_order_changes_nothing() {
    let mut sink = MemorySink::default();
    let lists = ResourceLists::new(&site(), moment(0)).limits(limits(2, u64::MAX));
    lists.write(inventory(5).into_iter(), &mut sink).unwrap();
    let before: BTreeMap<_, _> =
        sink.names().map(|name| (name.to_owned(), sink.get(name).unwrap().to_vec())).collect();
    let failing = (0..9)
        .map(|number| if number < 8 { Ok(item(number, 9)) } else { Err(std::io::Error::other("no").into()) });
    assert!(matches!(lists.write(failing, &mut sink), Err(BuildError::Io(_))));
    let twice = [1, 2, 3, 4, 4].into_iter().map(|number| Ok(item(number, 9)));
    assert!(matches!(lists.write(twice, &mut sink), Err(BuildError::ResourceOrder { .. })));
    let relative = [Ok(Item::new("relative"))];
    assert!(matches!(lists.write(relative.into_iter(), &mut sink), Err(BuildError::Violations(_))));
    let long = [Ok(Item::new(format!("https://example.org/{}", "x".repeat(2000))))];
    let narrow = lists.clone().limits(limits(2, 2_000));
    assert!(matches!(narrow.write(long.into_iter(), &mut sink), Err(BuildError::EntryTooLong { .. })));
    let after: BTreeMap<_, _> =
        sink.names().map(|name| (name.to_owned(), sink.get(name).unwrap().to_vec())).collect();
    assert_eq!(before, after);
}

#[test]
fn a_folder_becomes_lists_in_a_folder() {
    let (data, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..25 {
        std::fs::write(data.path().join(format!("{number:02}.txt")), number.to_string()).unwrap();
    }
    let mut sink = FolderSink::open(out.path()).unwrap();
    let files = FileInventory::of(data.path(), "https://example.org/items").unwrap().start().unwrap();
    let lists =
        ResourceLists::new(&site(), files.started()).completed(Completed::Now).limits(limits(10, u64::MAX));
    let published = lists.write(files, &mut sink).unwrap();
    assert_eq!(published.entries, 25);
    let names: Vec<_> =
        std::fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // Three lists, their index, and what is locked.
    assert_eq!(names.len(), 5, "{names:?}");
}

#[test]
fn ar011_archives_are_split_and_grouped_under_an_archive_index() {
    let kinds = [
        (ArchiveKind::ResourceLists, Capability::ResourceListArchive),
        (ArchiveKind::ResourceDumps, Capability::ResourceDumpArchive),
        (ArchiveKind::ChangeLists, Capability::ChangeListArchive),
        (ArchiveKind::ChangeDumps, Capability::ChangeDumpArchive),
    ];
    for (kind, capability) in kinds {
        let mut sink = MemorySink::default();
        let archived = (0..5)
            .map(|n| (format!("https://example.org/old-{n}.xml"), Some(moment(n)), Some(moment(n + 1))));
        let published = Archives::new(&site(), kind, moment(9))
            .limits(limits(2, u64::MAX))
            .write(archived, &mut sink)
            .unwrap();
        assert_eq!(published.documents.len(), 4);
        check_each(&sink);
        judge_each(&sink);
        let top = document(&sink, published.top().unwrap());
        assert_eq!((top.root(), top.capability(), top.entries().len()), (Root::SitemapIndex, &capability, 3));
    }
}

#[test]
fn rs070_rs073_rs080_a_source_with_several_sets_lists_a_capability_list_for_each() {
    let mut root = MemorySink::default();
    let sets = ["theses", "maps"].map(|set| Site::new(&format!("https://example.org/{set}")));
    let mut description = SourceDescription::new();
    for set in &sets {
        let mut sink = MemorySink::default();
        let list =
            CapabilityList::new(SOURCE).capability(Capability::ResourceList, set.url("resourcelist.xml"));
        publish_capability_list(list, &mut sink).unwrap();
        // RS-053, RS-081: it points up at the Source Description.
        let list = document(&sink, "capabilitylist.xml");
        assert_eq!((list.root(), list.capability()), (Root::UrlSet, &Capability::CapabilityList));
        assert_eq!(list.link(&Relation::Up).unwrap().href, SOURCE);
        description = description.capability_list(set.capability_list());
    }
    publish_source_description(description, &mut root).unwrap();
    let description = document(&root, ".well-known/resourcesync");
    assert_eq!((description.root(), description.capability()), (Root::UrlSet, &Capability::Description));
    let told = description.entries().iter().map(|entry| {
        (entry.loc.as_str(), entry.metadata.as_ref().and_then(|metadata| metadata.capability.as_ref()))
    });
    // RS-073: the capability of each entry is told, although it is called optional.
    assert!(
        told.eq([
            "https://example.org/theses/capabilitylist.xml",
            "https://example.org/maps/capabilitylist.xml"
        ]
        .map(|loc| (loc, Some(&Capability::CapabilityList))))
    );
}

#[test]
fn rs082_a_capability_that_is_listed_twice_is_refused_and_nothing_is_published() {
    let mut sink = MemorySink::default();
    let twice = ["a", "b"].iter().fold(CapabilityList::new(SOURCE), |list, name| {
        list.capability(Capability::ChangeList, format!("https://example.org/{name}.xml"))
    });
    assert!(matches!(publish_capability_list(twice, &mut sink), Err(BuildError::Violations(_))));
    assert_eq!(sink.names().count(), 0);
}

#[test]
fn a_short_document_that_cannot_be_written_is_told_by_its_name_and_leaves_what_was_there() {
    for how in [Break::Once, Break::ForGood] {
        for steps in 0..4 {
            let mut sink = MemorySink::default();
            let list = || {
                CapabilityList::new(SOURCE).capability(Capability::ResourceList, "https://example.org/a.xml")
            };
            publish_capability_list(list(), &mut sink).unwrap();
            let before = sink.get("capabilitylist.xml").unwrap().to_vec();
            let later = list().capability(Capability::ChangeList, "https://example.org/b.xml");
            let mut ignored = |_: &MemorySink| {};
            let outcome =
                publish_capability_list(later, &mut Breaking::new(&mut sink, steps, how, &mut ignored));
            let error = outcome.unwrap_err().to_string();
            assert!(
                error.contains("cannot write `capabilitylist.xml`: no space left on device; "),
                "{error}"
            );
            assert_eq!(sink.get("capabilitylist.xml"), Some(before.as_slice()));
        }
    }
}
