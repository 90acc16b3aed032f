//! Any document of any kind, with whatever its kind may have.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod entries;
mod values;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use resync_core::datetime::DateTime;
use resync_core::document::{
    Capability, CapabilityList, Change, ChangeDump, ChangeDumpIndex, ChangeDumpManifest, ChangeList,
    ChangeListIndex, ChangeNotification, Document, Entry, FrameworkChange, FrameworkNotification, Header,
    Link, Metadata, RawDocument, Relation, ResourceDump, ResourceDumpIndex, ResourceDumpManifest,
    ResourceList, ResourceListIndex, Root, SourceDescription, SourceDescriptionIndex,
};

use entries::{bitstream, change, change_package, package, packed_change, resource};
pub(crate) use values::datetime;
use values::{ends, interval, text, times, uri};

/// Every kind of document.
pub(crate) fn document() -> impl Strategy<Value = Document> {
    prop_oneof![
        source_description(),
        source_description_index(),
        capability_list(),
        resource_list(),
        resource_dump(),
        resource_dump_manifest(),
        snapshot_index(),
        change_list(),
        change_dump(),
        change_dump_manifest(),
        change_index(),
        snapshot_archive(),
        change_archive(),
        archive_index(),
        change_notification(),
        framework_notification(),
    ]
}

/// Says something if there is something to say.
pub(crate) fn maybe<B, T>(builder: B, value: Option<T>, say: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => say(builder, value),
        None => builder,
    }
}

fn source_description() -> impl Strategy<Value = Document> {
    (option::of(uri()), vec((uri(), option::of(uri())), 0..5)).prop_map(|(about, lists)| {
        let mut description = SourceDescription::new();
        if let Some(about) = about {
            description = description.described_by(about);
        }
        for (loc, about) in lists {
            description = match about {
                Some(about) => description.capability_list_described_by(loc, about),
                None => description.capability_list(loc),
            };
        }
        description.build().unwrap()
    })
}

fn capability_list() -> impl Strategy<Value = Document> {
    (
        uri(),
        option::of(uri()),
        btree_set(document_capability(), 0..6),
        option::of((uri(), vec(uri(), 1..3))),
        uri(),
    )
        .prop_map(|(up, about, capabilities, channel, loc)| {
            let mut list = CapabilityList::new(up);
            if let Some(about) = about {
                list = list.described_by(about);
            }
            for capability in capabilities {
                list = list.capability(capability, loc.clone());
            }
            if let Some((topic, hubs)) = channel {
                list = list.channel(Capability::FrameworkNotification, topic.clone(), hubs.clone());
                list = list.channel(Capability::ChangeNotification, topic, hubs);
            }
            list.build().unwrap()
        })
}

fn source_description_index() -> impl Strategy<Value = Document> {
    (option::of(uri()), vec(uri(), 0..5)).prop_map(|(about, descriptions)| {
        let index = maybe(SourceDescriptionIndex::new(), about, SourceDescriptionIndex::described_by);
        descriptions.into_iter().fold(index, SourceDescriptionIndex::description).build().unwrap()
    })
}

/// What the header of a snapshot or of an interval says: the times, whether it has an end, and the links.
fn head() -> impl Strategy<Value = ((DateTime, Option<DateTime>), String, Option<String>, Option<String>)> {
    (interval(), any::<bool>(), uri(), option::of(uri()), option::of(uri())).prop_map(
        |((start, end), ended, up, index, archives)| {
            let index = index.filter(|index| *index != up);
            ((start, ended.then_some(end)), up, index, archives)
        },
    )
}

fn resource_list() -> impl Strategy<Value = Document> {
    (head(), vec(resource(), 0..5)).prop_map(|(((at, completed), up, index, archives), resources)| {
        let mut list = maybe(ResourceList::new(at, up), completed, ResourceList::completed);
        list = maybe(list, index, ResourceList::index);
        list = maybe(list, archives, ResourceList::archives);
        resources.into_iter().fold(list, ResourceList::resource).build().unwrap()
    })
}

fn resource_dump() -> impl Strategy<Value = Document> {
    (head(), vec(package(), 0..5)).prop_map(|(((at, completed), up, index, archives), packages)| {
        let mut dump = maybe(ResourceDump::new(at, up), completed, ResourceDump::completed);
        dump = maybe(dump, index, ResourceDump::index);
        dump = maybe(dump, archives, ResourceDump::archives);
        packages.into_iter().fold(dump, ResourceDump::package).build().unwrap()
    })
}

fn resource_dump_manifest() -> impl Strategy<Value = Document> {
    let bitstreams = (0..4_usize).prop_flat_map(|count| (0..count).map(bitstream).collect::<Vec<_>>());
    (head(), bitstreams).prop_map(|(((at, completed), up, _, _), bitstreams)| {
        let manifest = maybe(ResourceDumpManifest::new(at, up), completed, ResourceDumpManifest::completed);
        bitstreams.into_iter().fold(manifest, ResourceDumpManifest::bitstream).build().unwrap()
    })
}

/// A Resource List Index or a Resource Dump Index.
fn snapshot_index() -> impl Strategy<Value = Document> {
    let part = (uri(), interval(), any::<bool>(), any::<bool>());
    (head(), vec(part, 0..5), any::<bool>()).prop_map(|(((at, completed), up, _, archives), parts, dumps)| {
        let mut lists =
            maybe(ResourceListIndex::new(at, up.clone()), completed, ResourceListIndex::completed);
        lists = maybe(lists, archives.clone(), ResourceListIndex::archives);
        let mut all = maybe(ResourceDumpIndex::new(at, up), completed, ResourceDumpIndex::completed);
        all = maybe(all, archives, ResourceDumpIndex::archives);
        for (loc, (at, completed), started, ended) in parts {
            let (at, completed) = (started.then_some(at), ended.then_some(completed));
            lists = lists.list(loc.clone(), at, completed);
            all = all.dump(loc, at, completed);
        }
        if dumps { all.build().unwrap() } else { lists.build().unwrap() }
    })
}

fn change_list() -> impl Strategy<Value = Document> {
    (head(), times(), vec(change(), 8)).prop_map(|(((_, until), up, index, archives), times, changes)| {
        let (from, last) = ends(&times);
        let mut list =
            maybe(ChangeList::new(from, up), until.map(|until| until.max(last)), ChangeList::until);
        list = maybe(list, index, ChangeList::index);
        list = maybe(list, archives, ChangeList::archives);
        // Times are in order, and every second change has none.
        for (number, (change, time)) in changes.into_iter().zip(times).enumerate() {
            list = list.change(if number % 2 == 0 { change.datetime(time) } else { change });
        }
        list.build().unwrap()
    })
}

fn change_dump() -> impl Strategy<Value = Document> {
    (head(), times(), vec(change_package(), 8)).prop_map(
        |(((_, until), up, index, archives), times, packages)| {
            let (from, last) = ends(&times);
            let mut dump =
                maybe(ChangeDump::new(from, up), until.map(|until| until.max(last)), ChangeDump::until);
            dump = maybe(dump, index, ChangeDump::index);
            dump = maybe(dump, archives, ChangeDump::archives);
            for (package, (from, until)) in packages.into_iter().zip(pairs(&times)) {
                dump = dump.package(package.interval(from, until));
            }
            dump.build().unwrap()
        },
    )
}

fn change_dump_manifest() -> impl Strategy<Value = Document> {
    let changes = (0..4_usize).prop_flat_map(|count| (0..count).map(packed_change).collect::<Vec<_>>());
    (head(), times(), changes).prop_map(|(((_, until), up, _, _), times, changes)| {
        let (from, last) = ends(&times);
        let manifest = ChangeDumpManifest::new(from, up);
        let mut manifest = maybe(manifest, until.map(|until| until.max(last)), ChangeDumpManifest::until);
        for (change, time) in changes.into_iter().zip(times) {
            manifest = manifest.change(change.datetime(time));
        }
        manifest.build().unwrap()
    })
}

/// A Change List Index or a Change Dump Index.
fn change_index() -> impl Strategy<Value = Document> {
    let closed = any::<bool>();
    (head(), times(), uri(), closed, any::<bool>()).prop_map(
        |((_, up, _, archives), times, loc, closed, dumps)| {
            let (from, until) = ends(&times);
            let mut lists =
                maybe(ChangeListIndex::new(from, up.clone()), archives.clone(), ChangeListIndex::archives);
            let mut all = maybe(ChangeDumpIndex::new(from, up), archives, ChangeDumpIndex::archives);
            for (number, (from, until)) in pairs(&times).enumerate() {
                lists = lists.closed(format!("{loc}{number}"), from, until);
                all = all.closed(format!("{loc}{number}"), from, until);
            }
            if closed {
                (lists, all) = (lists.until(until), all.until(until));
            } else {
                (lists, all) = (lists.open(loc.clone(), until), all.open(loc, until));
            }
            if dumps { all.build().unwrap() } else { lists.build().unwrap() }
        },
    )
}

/// A Resource List Archive or a Resource Dump Archive.
fn snapshot_archive() -> impl Strategy<Value = Document> {
    let part = (uri(), interval(), any::<bool>(), any::<bool>());
    let kind = select(vec![Capability::ResourceListArchive, Capability::ResourceDumpArchive]);
    (head(), vec(part, 0..5), kind).prop_map(|((_, up, index, _), parts, kind)| {
        let entries = parts.into_iter().map(|(loc, (at, completed), started, ended)| {
            let (at, completed) = (started.then_some(at), ended.then_some(completed));
            let metadata = at.or(completed).map(|_| Metadata { at, completed, ..Metadata::default() });
            Entry { metadata, ..Entry::new(loc) }
        });
        archive(Root::UrlSet, kind, up, index, entries.collect())
    })
}

/// A Change List Archive or a Change Dump Archive.
fn change_archive() -> impl Strategy<Value = Document> {
    let kind = select(vec![Capability::ChangeListArchive, Capability::ChangeDumpArchive]);
    (head(), times(), uri(), kind).prop_map(|((_, up, index, _), times, loc, kind)| {
        let closed = pairs(&times).enumerate().map(|(number, (from, until))| {
            let metadata = Metadata { from: Some(from), until: Some(until), ..Metadata::default() };
            Entry::with_metadata(format!("{loc}{number}"), metadata)
        });
        let entries = closed.chain([Entry::new(&loc)]).collect();
        archive(Root::UrlSet, kind, up, index, entries)
    })
}

/// The index of any archive.
fn archive_index() -> impl Strategy<Value = Document> {
    let kinds = [
        Capability::ResourceListArchive,
        Capability::ResourceDumpArchive,
        Capability::ChangeListArchive,
        Capability::ChangeDumpArchive,
    ];
    (uri(), vec(uri(), 0..5), select(kinds.to_vec())).prop_map(|(up, archives, kind)| {
        archive(Root::SitemapIndex, kind, up, None, archives.into_iter().map(Entry::new).collect())
    })
}

fn archive(
    root: Root,
    capability: Capability,
    up: String,
    index: Option<String>,
    entries: Vec<Entry>,
) -> Document {
    let mut header = Header::new(root, capability);
    header.links.push(Link::new(Relation::Up, up));
    header.links.extend(index.map(|index| Link::new(Relation::Index, index)));
    RawDocument { header, entries }.try_into().unwrap()
}

/// Consecutive intervals.
fn pairs(times: &std::collections::BTreeSet<DateTime>) -> impl Iterator<Item = (DateTime, DateTime)> {
    times.iter().copied().zip(times.iter().copied().skip(1))
}

fn change_notification() -> impl Strategy<Value = Document> {
    (btree_set(datetime(), 2..8), option::of(uri()), vec(change(), 8)).prop_map(|(times, up, changes)| {
        let (from, until) = ends(&times);
        let mut notification = ChangeNotification::new(from, until);
        if let Some(up) = up {
            notification = notification.up(up);
        }
        // Times are in order, and every second change has none.
        for (number, (change, time)) in changes.into_iter().zip(times).enumerate() {
            notification = notification.change(if number % 2 == 0 { change.datetime(time) } else { change });
        }
        notification.build().unwrap()
    })
}

fn framework_notification() -> impl Strategy<Value = Document> {
    let change =
        (select(Change::ALL.to_vec()), document_capability(), uri(), option::of(uri()), any::<bool>());
    (btree_set(datetime(), 2..6), any::<bool>(), option::of(uri()), vec(change, 0..5)).prop_map(
        |(times, bounded, up, changes)| {
            let (from, until) = ends(&times);
            let mut notification = FrameworkNotification::new();
            if bounded {
                notification = notification.interval(from, until);
            }
            if let Some(up) = up {
                notification = notification.up(up);
            }
            for (number, (change, capability, loc, index, dated)) in changes.into_iter().enumerate() {
                let index = index.filter(|index| capability != Capability::CapabilityList && *index != loc);
                let datetime = if dated { times.iter().nth(number).copied() } else { None };
                let change =
                    FrameworkChange { datetime, index, ..FrameworkChange::new(change, capability, loc) };
                notification = notification.change(change);
            }
            notification.build().unwrap()
        },
    )
}

/// What a Capability List may list once and a Framework Notification may tell of.
fn document_capability() -> impl Strategy<Value = Capability> {
    let defined = Capability::DEFINED.into_iter().filter(|capability| !capability.is_notification());
    prop_oneof![
        3 => select(defined.collect::<Vec<_>>()),
        1 => text().prop_map(|token| Capability::from(format!("x{token}").as_str())),
    ]
}
