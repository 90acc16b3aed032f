//! A judge from outside for all that the generators of core write: every one of them, each document and the manifest in
//! each package. `RESYNC_TEST_DOCUMENTS=FOLDER` keeps the documents, to be shown to another validator.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use resync_core::build::{
    ArchiveKind, Archives, BuildError, ChangeDumps, ChangeLists, Completed, Event, FolderSink, Item,
    MemoryInventory, PackageLimits, Position, ResourceDumps, ResourceLists, Rotation, Site,
    publish_capability_list, publish_source_description,
};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Hasher, Hashes};
use resync_core::document::{Capability, CapabilityList, Change, Link, Root, SourceDescription};
use resync_core::package::Package;
use resync_core::xml::{self, Limits};
use resync_judge::{Documents, PublishedSchemas, complaints, files_below, grammar};

const SOURCE: &str = "https://herbarium.example/.well-known/resourcesync";
const ABOUT: &str = "https://herbarium.example/about.html?of=sheets&in=en";
const MEDIA_TYPES: [&str; 3] =
    ["text/html", "text/html; charset=utf-8", "application/vnd.oasis.opendocument.text"];
const CONTENT: &[u8] = b"<p>moss</p>";
/// Two entries, so that a few resources fill several documents.
const FEW: Limits = Limits { entries: 2, bytes: u64::MAX };
const PACKED: PackageLimits = PackageLimits { bitstreams: 2, bytes: 1_000 };

#[test]
fn all_that_the_generators_write_is_what_the_specifications_foresee() {
    let schemas = PublishedSchemas::found();
    let folder = Documents::new("generators");
    for (number, generate) in GENERATORS.iter().enumerate() {
        let mut sink = FolderSink::open(folder.path().join(number.to_string())).unwrap();
        generate(&mut sink).unwrap();
    }
    let files = documents_below(folder.path());
    assert_eq!(kinds(&files), foreseen());
    assert_eq!(complaints(&grammar(), &files), "");
    if let Some(schemas) = &schemas {
        // Media types with dots or parameters, and lists without entries; our datetimes are always whole.
        assert_eq!(schemas.documented(&files), BTreeSet::from(["RS-038", "RS-046"]));
    }
}

/// Every kind that a generator makes; an index is marked by `true`.
fn foreseen() -> BTreeSet<(String, bool)> {
    use Capability as C;
    let split = [
        C::ResourceList,
        C::ResourceDump,
        C::ChangeList,
        C::ChangeDump,
        C::ResourceListArchive,
        C::ResourceDumpArchive,
        C::ChangeListArchive,
        C::ChangeDumpArchive,
    ];
    let whole = [C::Description, C::CapabilityList, C::ResourceDumpManifest, C::ChangeDumpManifest];
    let both = split.iter().flat_map(|kind| [(kind.to_string(), false), (kind.to_string(), true)]);
    both.chain(whole.iter().map(|kind| (kind.to_string(), false))).collect()
}

fn kinds(files: &[PathBuf]) -> BTreeSet<(String, bool)> {
    let kind = |file: &PathBuf| {
        let document = xml::read(&fs::read(file).unwrap()).unwrap().into_document().unwrap();
        (document.capability().to_string(), document.root() == Root::SitemapIndex)
    };
    files.iter().map(kind).collect()
}

/// Every document; the manifests in packages are laid beside them first.
fn documents_below(folder: &Path) -> Vec<PathBuf> {
    let files = files_below(folder).into_iter();
    files
        .map(|path| {
            if path.extension().is_none_or(|extension| extension != "zip") {
                return path;
            }
            let mut package = Package::open(File::open(&path).unwrap()).unwrap();
            let manifest = path.with_extension("zip.manifest.xml");
            fs::write(&manifest, package.manifest().unwrap()).unwrap();
            manifest
        })
        .collect()
}

type Generator = fn(&mut FolderSink) -> Result<(), BuildError>;

const GENERATORS: &[Generator] = &[
    navigation,
    one_resource_list,
    several_resource_lists,
    an_open_change_list,
    rotated_change_lists,
    closed_change_lists,
    one_resource_dump,
    several_resource_dumps,
    change_dumps,
    archives,
];

fn navigation(sink: &mut FolderSink) -> Result<(), BuildError> {
    use Capability as C;
    let kinds = [C::ResourceList, C::ChangeList, C::ResourceDump, C::ChangeDump, C::ChangeListArchive];
    let list = CapabilityList::new(SOURCE).described_by(ABOUT);
    let list = kinds.into_iter().fold(list, |list, kind| {
        let loc = site().url(&format!("{kind}.xml"));
        list.capability(kind, loc)
    });
    let hubs = ["https://hub.example.net/websub/", "https://other.example/hub?a=1&b=2"];
    let list = list.channel(C::FrameworkNotification, site().url("framework/"), hubs);
    publish_capability_list(list.channel(C::ChangeNotification, site().url("changes/"), hubs), sink)?;
    let description = SourceDescription::new().described_by(ABOUT);
    publish_source_description(
        description.capability_list_described_by(site().capability_list(), ABOUT),
        sink,
    )
}

fn one_resource_list(sink: &mut FolderSink) -> Result<(), BuildError> {
    ResourceLists::new(&site(), hour(9)).write(inventory(3), sink)?;
    // Without resources there is an empty list, which is a list all the same (RS-046).
    let empty = ResourceLists::new(&site(), hour(9)).stem("empty");
    empty.write(inventory(0), sink).map(drop)
}

fn several_resource_lists(sink: &mut FolderSink) -> Result<(), BuildError> {
    let lists = ResourceLists::new(&site(), hour(9)).completed(Completed::At(hour(10)));
    let lists = lists.archives(site().url("resourcelist-archive.xml"));
    lists.limits(FEW).write(inventory(5), sink).map(drop)
}

fn an_open_change_list(sink: &mut FolderSink) -> Result<(), BuildError> {
    let lists = ChangeLists::new(&site());
    lists.record(sink, hour(0), [], hour(0))?;
    lists.stem("changes").record(sink, hour(0), events(1, 4), hour(4)).map(drop)
}

fn rotated_change_lists(sink: &mut FolderSink) -> Result<(), BuildError> {
    let lists = ChangeLists::new(&site()).rotation(Rotation { entries: Some(2), age: None });
    let lists = lists.archives(site().url("changelist-archive.xml"));
    for hour_of_run in 1..=5 {
        lists.record(sink, hour(0), events(hour_of_run, hour_of_run), hour(hour_of_run))?;
    }
    Ok(())
}

fn closed_change_lists(sink: &mut FolderSink) -> Result<(), BuildError> {
    let lists = ChangeLists::new(&site()).rotation(Rotation { entries: Some(2), age: None });
    lists.clone().resume(Position::default()).close().record(sink, hour(0), events(1, 5), hour(6)).map(drop)
}

fn one_resource_dump(sink: &mut FolderSink) -> Result<(), BuildError> {
    ResourceDumps::new(&site(), hour(9)).write(inventory(3), |_: &Item| content(), sink).map(drop)
}

fn several_resource_dumps(sink: &mut FolderSink) -> Result<(), BuildError> {
    let dumps = ResourceDumps::new(&site(), hour(9)).completed(Completed::At(hour(10)));
    dumps.limits(FEW).package_limits(PACKED).write(inventory(9), |_: &Item| content(), sink).map(drop)
}

fn change_dumps(sink: &mut FolderSink) -> Result<(), BuildError> {
    let dumps = ChangeDumps::new(&site()).rotation(Rotation { entries: Some(2), age: None });
    let dumps = dumps.package_limits(PACKED);
    for hour_of_run in [3, 6] {
        dumps.record(
            sink,
            hour(0),
            events(hour_of_run - 2, hour_of_run),
            |_: &Event| content(),
            hour(hour_of_run),
        )?;
    }
    Ok(())
}

fn archives(sink: &mut FolderSink) -> Result<(), BuildError> {
    use ArchiveKind as K;
    for kind in [K::ResourceLists, K::ResourceDumps, K::ChangeLists, K::ChangeDumps] {
        let archived = (1..=5).map(|n| (site().url(&format!("{n}.xml")), Some(hour(n)), Some(hour(n + 1))));
        Archives::new(&site(), kind, hour(9)).limits(FEW).write(archived, sink)?;
    }
    Ok(())
}

fn site() -> Site {
    Site::new("https://herbarium.example/sheets")
}

/// Resources of which much is told, and one of which nothing is known.
fn inventory(count: u8) -> impl Iterator<Item = Result<Item, BuildError>> {
    (0..count)
        .map(|number| if number == 1 { bare(number) } else { told(number) })
        .collect::<MemoryInventory>()
        .into_iter()
}

fn bare(number: u8) -> Item {
    Item::new(site().url(&format!("moss/{number:03}?a=1&b=%22")))
}

fn told(number: u8) -> Item {
    Item {
        lastmod: Some(hour(8)),
        length: Some(CONTENT.len() as u64),
        hashes: hashes(),
        media_type: Some(MEDIA_TYPES[usize::from(number) % MEDIA_TYPES.len()].to_owned()),
        links: vec![
            Link::described_by(site().url("moss.xml")).media_type("application/xml").into(),
            Link::mirror("https://mirror.example/moss").pri(1).modified(hour(7)).into(),
            Link::collection(site().url("mosses")),
        ],
        ..bare(number)
    }
}

fn hashes() -> Hashes {
    let mut hasher = Hasher::new(Algorithm::ALL.iter().copied());
    hasher.update(CONTENT);
    hasher.finish()
}

/// One change an hour, of each kind in turn.
fn events(from: u8, to: u8) -> impl Iterator<Item = Result<Event, BuildError>> {
    (from..=to).map(|number| {
        let change = Change::ALL[usize::from(number) % Change::ALL.len()];
        Ok(Event::new(change, hour(number), told(number)))
    })
}

#[expect(clippy::unnecessary_wraps, reason = "what the generators ask for")]
fn content() -> io::Result<Option<&'static [u8]>> {
    Ok(Some(CONTENT))
}

fn hour(hour: u8) -> DateTime {
    format!("2026-01-03T{hour:02}:00:00Z").parse().unwrap()
}
