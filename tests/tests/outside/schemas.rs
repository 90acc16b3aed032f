//! A judge from outside: `xmllint` and a grammar that was written from the specifications' tables see every kind of document that
//! core writes, and all that `resync-source build` leaves in a site.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod mutants;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mutants::Mutant;
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Hasher, Hashes};
use resync_core::document::{
    Bitstream, Capability, CapabilityList, Change, ChangeDump, ChangeDumpIndex, ChangeDumpManifest,
    ChangeFrequency, ChangeList, ChangeListIndex, ChangeNotification, ChangePackage, Document, Entry,
    ForeignAttribute, FrameworkChange, FrameworkNotification, Header, Link, Metadata, Package, PackedChange,
    RawDocument, Relation, Resource, ResourceChange, ResourceDump, ResourceDumpIndex, ResourceDumpManifest,
    ResourceList, ResourceListIndex, Root, SourceDescription, SourceDescriptionIndex,
};
use resync_core::rules::Violations;
use resync_core::xml;
use resync_harness::binary;
use resync_judge::{Documents, PublishedSchemas, complaints, files_below, grammar, judge, written};
use tempfile::tempdir;

const SOURCE: &str = "https://herbarium.example/.well-known/resourcesync";
const CAPABILITIES: &str = "https://herbarium.example/sheets/capabilitylist.xml";
const ABOUT: &str = "https://herbarium.example/about.xml?of=sheets&in=en";
const HUB: &str = "https://hub.example.net/websub/";

#[test]
fn rs003_rs012_rs015_rs025_rs048_rs060_rs061_one_document_of_each_kind_is_what_the_specifications_foresee() {
    let documents = documents().unwrap();
    let kinds: HashSet<_> =
        documents.iter().map(|document| (document.capability().clone(), document.root())).collect();
    assert_eq!((kinds.len(), documents.len()), (23, 23));
    let folder = Documents::new("kinds");
    let files: Vec<_> = documents
        .iter()
        .enumerate()
        .map(|(number, document)| {
            folder.store(&format!("{number}-{}.xml", document.capability()), &xml::write(document))
        })
        .collect();
    judge(&files);
}

#[test]
fn rs046_a_change_list_may_still_be_empty() {
    let empty = ChangeList::new(hour(9), CAPABILITIES).build().unwrap();
    written("empty", [("empty", xml::write(&empty))]);
}

#[test]
fn rs071_all_that_a_build_writes_is_what_the_specifications_foresee() {
    let folder = tempdir().unwrap();
    let site = Documents::new("site");
    let (collection, out) = (folder.path().join("collection"), site.path().to_owned());
    fs::create_dir_all(collection.join("sub folder")).unwrap();
    for (name, content) in [("moss.txt", "green"), ("sub folder/f\u{e4}rn & reed.html", "<p>"), ("empty", "")]
    {
        fs::write(collection.join(name), content).unwrap();
    }
    let build = Command::new(binary("resync-source"))
        .args(["build", "--base-url", "https://herbarium.example/sheets/", "--hub", HUB])
        .args(["--hash", "md5", "--hash", "sha-1", "--hash", "sha-256", "--out"])
        .args([&out, &collection])
        .output()
        .unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let documents = files_below(&out);
    let has = |name: &str| documents.iter().any(|path| path.ends_with(name));
    assert!(
        has(".well-known/resourcesync") && has("resync/capabilitylist.xml") && has("resync/resourcelist.xml")
    );
    judge(&documents);
}

#[test]
fn the_grammar_refuses_what_the_specifications_do_and_for_that_reason() {
    let folder = Documents::new("mutants");
    let documents = documents().unwrap();
    let original: HashSet<_> = documents.iter().map(xml::write).collect();
    let grammar_text = fs::read_to_string(grammar()).unwrap();
    for Mutant { name, text, rule, lifted } in
        mutants::of_roots(&documents).into_iter().chain(mutants::of_entries(&documents))
    {
        assert!(!original.contains(text.as_bytes()), "{name} changed nothing");
        let file = [folder.store(&format!("{name}.xml"), text.as_bytes())];
        assert!(complaints(&grammar(), &file).contains("fails to validate"), "{name} passes:\n{text}");

        assert_eq!(grammar_text.matches(rule).count(), 1, "{name} names one rule: {rule}");
        let weaker = folder.store(&format!("{name}.rng"), grammar_text.replace(rule, lifted).as_bytes());
        assert_eq!(complaints(&weaker, &file), "", "{name} is refused for something else, too:\n{text}");
    }
}

#[test]
fn rs028_what_the_published_schemas_ask_of_values_and_order_the_grammar_asks_for() {
    let folder = Documents::new("values");
    let text = |attributes: &str, children: &str| {
        format!(
            r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
<rs:md capability="resourcelist" at="2026-01-03T09:00:00Z"/><rs:ln rel="up" href="{CAPABILITIES}"/>
<url><loc>https://herbarium.example/moss</loc>{children}<rs:md{attributes}/></url></urlset>"#
        )
    };
    let link = |attributes: &str| {
        format!(r#"/><rs:ln rel="duplicate" href="https://herbarium.example/m"{attributes}"#)
    };
    let whole = text(
        r#" length="1" type="text/html""#,
        "<lastmod>2026-01-02T09:00:00Z</lastmod><priority>0.5</priority>",
    );
    let fine = [folder.store("fine.xml", whole.as_bytes())];
    assert_eq!(complaints(&grammar(), &fine), "");
    let refused = [
        ("time", whole.replace("at=\"2026-01-03T09:00:00Z", "at=\"2026-01-03T09:00Z")),
        ("date", whole.replace("at=\"2026-01-03T09:00:00Z", "at=\"2026-01-03")),
        ("month", whole.replace("at=\"2026-01", "at=\"2026-13")),
        ("length", text(r#" length="1.5""#, "")),
        ("type", text(r#" type="html""#, "")),
        ("change", text(r#" change="renamed""#, "")),
        ("path", text(r#" path="a""#, "")),
        ("unknown-attribute", text(r#" size="1""#, "")),
        ("unknown-element", text("/><rs:size>1</rs:size><rs:md", "")),
        ("pri-0", text(&link(r#" pri="0""#), "")),
        ("pri-many", text(&link(r#" pri="1000000""#), "")),
        ("link-length", text(&link(r#" length="-1""#), "")),
        ("modified", text(&link(r#" modified="2026""#), "")),
        ("lastmod", text("", "<lastmod>yesterday</lastmod>")),
        ("changefreq", text("", "<changefreq>often</changefreq>")),
        ("priority", text("", "<priority>1.1</priority>")),
        ("order", text("", "<priority>0.5</priority><lastmod>2026-01-02T09:00:00Z</lastmod>")),
        ("twice", text("", "<loc>https://herbarium.example/fern</loc>")),
        ("short", whole.replace("https://herbarium.example/moss", "http://a/")),
    ];
    let schemas = PublishedSchemas::found();
    assert!(schemas.iter().all(|schemas| schemas.complaints(&fine).is_empty()));
    for (name, text) in refused {
        let file = [folder.store(&format!("{name}.xml"), text.as_bytes())];
        assert!(complaints(&grammar(), &file).contains("fails to validate"), "{name}: {text}");
        if let Some(schemas) = &schemas {
            assert!(
                schemas.complaints(&file).contains("fails to validate"),
                "the published ones let {name} pass: {text}"
            );
        }
    }
    if let Some(schemas) = schemas {
        let date = [folder.path().join("date.xml")];
        assert_eq!(schemas.documented(&date).into_iter().collect::<Vec<_>>(), ["RS-028"]);
        assert!(xml::read(&fs::read(&date[0]).unwrap()).unwrap().violations.is_conforming());
    }
}

/// Seeds of the fuzz targets that the published schemas refuse, and why.
const REFUSED_SEEDS: &[(&str, &str)] = &[
    ("alpha-change-set.xml", "the form of 2012: rs:type at the root, links and dates in elements of XHTML"),
    ("d-lib.xml", "the form of 2013: another namespace"),
    ("sitemap.xml", "a lastmod without a day: a form of W3C datetimes that the sitemap schema does not have"),
    ("bom-utf-16.xml", "no namespace"),
    ("bom-utf-8.xml", "damaged"),
    ("doctype.xml", "no namespace, behind a document type"),
];
/// Seeds that are no XML.
const BROKEN_SEEDS: [&str; 2] = ["entities.xml", "unclosed.xml"];

#[test]
fn the_published_schemas_take_every_seed_of_the_fuzz_targets_but_those_that_are_named() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let seeds = ["document", "lint"].iter().flat_map(|target| files_below(&seeds.join(target)));
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let is_document = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "xml") && !BROKEN_SEEDS.contains(&name(path).as_str())
    };
    let seeds: Vec<_> = seeds.filter(is_document).collect();
    let named: BTreeSet<_> = REFUSED_SEEDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert!(named.is_subset(&seeds.iter().map(|path| name(path)).collect()), "each is a seed");
    if let Some(schemas) = PublishedSchemas::found() {
        let refused = seeds.iter().filter(|path| !schemas.complaints(&[(*path).clone()]).is_empty());
        assert_eq!(refused.map(|path| name(path)).collect::<BTreeSet<_>>(), named);
    }
}

// --- one rich document of each kind ---

fn documents() -> Result<Vec<Document>, Violations> {
    let mut documents = navigation()?;
    documents.extend(snapshots()?);
    documents.extend(changes()?);
    documents.extend(archives()?);
    documents.extend(notifications()?);
    Ok(documents)
}

fn navigation() -> Result<Vec<Document>, Violations> {
    let kinds = [
        Capability::ResourceList,
        Capability::ResourceDump,
        Capability::ChangeList,
        Capability::ChangeDump,
        Capability::ResourceListArchive,
        Capability::ResourceDumpArchive,
        Capability::ChangeListArchive,
        Capability::ChangeDumpArchive,
    ];
    let list = CapabilityList::new(SOURCE).described_by(ABOUT);
    let list = kinds.into_iter().fold(list, |list, kind| {
        let loc = url(&format!("{kind}.xml"));
        list.capability(kind, loc)
    });
    Ok(vec![
        SourceDescription::new()
            .described_by(ABOUT)
            .capability_list(url("seeds.xml"))
            .capability_list_described_by(CAPABILITIES, ABOUT)
            .build()?,
        SourceDescriptionIndex::new().described_by(ABOUT).description(SOURCE).build()?,
        list.channel(
            Capability::FrameworkNotification,
            url("framework/"),
            [HUB, "https://other.example/hub"],
        )
        .channel(Capability::ChangeNotification, url("changes/"), [HUB])
        .build()?,
    ])
}

fn snapshots() -> Result<Vec<Document>, Violations> {
    let (start, end) = (hour(9), hour(10));
    let package =
        || Package::zip(url("1.zip"), 4096).at(start).completed(end).hashes(hashes()).contents(url("1.xml"));
    Ok(vec![
        ResourceList::new(start, CAPABILITIES)
            .completed(end)
            .index(url("index.xml"))
            .archives(url("archive.xml"))
            .resource(resource("moss?a=1&b=%22"))
            .resource(Resource::new(url("bare")))
            .build()?,
        ResourceListIndex::new(start, CAPABILITIES)
            .completed(end)
            .archives(url("archive.xml"))
            .list(url("1.xml"), Some(start), Some(end))
            .list(url("2.xml"), None, None)
            .build()?,
        ResourceDump::new(start, CAPABILITIES)
            .completed(end)
            .index(url("i.xml"))
            .package(package())
            .build()?,
        ResourceDumpIndex::new(start, CAPABILITIES).dump(url("1.xml"), Some(start), None).build()?,
        ResourceDumpManifest::new(start, CAPABILITIES)
            .completed(end)
            .bitstream(
                Bitstream::new(url("moss"), "/a b/moss")
                    .lastmod(start)
                    .hashes(hashes())
                    .length(7)
                    .media_type("image/png")
                    .link(Link::canonical(url("moss")))
                    .packed_link(
                        Link::described_by(url("moss.xml")).media_type("application/xml"),
                        "/moss.xml",
                    ),
            )
            .build()?,
    ])
}

fn changes() -> Result<Vec<Document>, Violations> {
    let (start, end) = (hour(9), hour(10));
    let patch = || Link::patch(url("moss.diff"), "text/x-diff").hashes(hashes()).length(7).pri(2);
    let package = ChangePackage::zip(url("1.zip"), 4096).interval(start, end).contents(url("1.xml"));
    Ok(vec![
        ChangeList::new(start, CAPABILITIES)
            .index(url("index.xml"))
            .change(made(ResourceChange::created(url("moss")).datetime(start)))
            .change(made(ResourceChange::updated(url("moss"))).datetime(end).patch(patch()))
            .change(ResourceChange::deleted(url("moss")).datetime(end))
            .build()?,
        ChangeListIndex::new(start, CAPABILITIES)
            .archives(url("archive.xml"))
            .closed(url("1.xml"), start, end)
            .open(url("2.xml"), end)
            .build()?,
        ChangeDump::new(start, CAPABILITIES)
            .until(end)
            .archives(url("archive.xml"))
            .package(package)
            .build()?,
        ChangeDumpIndex::new(start, CAPABILITIES).until(end).closed(url("1.xml"), start, end).build()?,
        ChangeDumpManifest::new(start, CAPABILITIES)
            .until(end)
            .change(PackedChange::created(url("moss"), "/moss").datetime(start).media_type("text/plain"))
            .change(
                PackedChange::updated(url("moss"), "/2/moss")
                    .datetime(end)
                    .media_type("text/plain")
                    .patch(patch(), "/2/moss.diff"),
            )
            .change(PackedChange::deleted(url("fern")).datetime(end))
            .build()?,
    ])
}

fn archives() -> Result<Vec<Document>, Violations> {
    let (start, end) = (Some(hour(9)), Some(hour(10)));
    let snapshot = Metadata { at: start, completed: end, ..Metadata::default() };
    let begun = Metadata { at: start, ..Metadata::default() };
    let interval = Metadata { from: start, until: end, ..Metadata::default() };
    let kinds = [
        (Capability::ResourceListArchive, snapshot),
        (Capability::ResourceDumpArchive, begun),
        (Capability::ChangeListArchive, interval.clone()),
        (Capability::ChangeDumpArchive, interval),
    ];
    let up = || Link::new(Relation::Up, CAPABILITIES);
    let mut archives = Vec::new();
    for (kind, times) in kinds {
        let mut archive = RawDocument {
            header: Header::new(Root::UrlSet, kind.clone()),
            entries: vec![Entry::with_metadata(url("1.xml"), times)],
        };
        archive.header.links = vec![up(), Link::new(Relation::Index, url("a.xml"))];
        let mut index = RawDocument {
            header: Header::new(Root::SitemapIndex, kind),
            entries: vec![Entry::new(url("1.xml"))],
        };
        index.header.links = vec![up()];
        archives.extend([Document::try_from(archive)?, Document::try_from(index)?]);
    }
    Ok(archives)
}

fn notifications() -> Result<Vec<Document>, Violations> {
    let (start, end) = (hour(9), hour(10));
    Ok(vec![
        ChangeNotification::new(start, end)
            .up(CAPABILITIES)
            .change(made(ResourceChange::updated(url("moss"))).datetime(start))
            .change(ResourceChange::deleted(url("fern")))
            .build()?,
        FrameworkNotification::new()
            .interval(start, end)
            .up(CAPABILITIES)
            .change(
                FrameworkChange::new(Change::Updated, Capability::ResourceList, url("list.xml"))
                    .datetime(start)
                    .index(url("index.xml")),
            )
            .change(FrameworkChange::new(Change::Created, Capability::ChangeDump, url("dump.xml")))
            .build()?,
    ])
}

/// A resource of which everything is told, with every link that it may have.
fn resource(name: &str) -> Resource {
    let foreign = ForeignAttribute {
        namespace: "https://herbarium.example/terms/".to_owned(),
        prefix: "h".to_owned(),
        name: "shelf".to_owned(),
        value: "4 & \"5\"".to_owned(),
    };
    Resource::new(url(name))
        .lastmod(hour(8))
        .changefreq(ChangeFrequency::Daily)
        .priority("0.25".parse().unwrap())
        .hashes(hashes())
        .length(7)
        .media_type("text/html")
        .encoding("gzip")
        .foreign(foreign)
        .link(Link::mirror("ftp://mirror.example/moss").pri(1).modified(hour(7)))
        .link(
            Link::alternate(url("moss.pdf"))
                .media_type("application/pdf")
                .length(9)
                .hashes(hashes())
                .pri(999_999),
        )
        .link(Link::canonical(url("moss")).encoding("br"))
        .link(Link::described_by(url("moss.xml")).with_profile("https://herbarium.example/terms/v2"))
        .link(Link::describes(url("picture")))
        .link(Link::profile("https://herbarium.example/terms/v2"))
        .link(Link::memento(url("2026/moss")).modified(hour(6)))
        .link(Link::timegate(url("timegate/moss")))
        .link(Link::timemap(url("timemap/moss")).media_type("application/link-format"))
        .link(Link::collection(url("mosses")))
        .link(Link::via("https://origin.example/moss").modified(hour(5)).length(7).media_type("text/html"))
}

fn made(change: ResourceChange) -> ResourceChange {
    change.lastmod(hour(8)).hashes(hashes()).length(7).media_type("text/html; charset=utf-8")
}

fn hashes() -> Hashes {
    let mut hasher = Hasher::new([Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256]);
    hasher.update(b"7 bytes");
    hasher.finish()
}

fn hour(hour: u8) -> DateTime {
    format!("2026-01-03T{hour:02}:00:00Z").parse().unwrap()
}

fn url(name: &str) -> String {
    format!("https://herbarium.example/sheets/{name}")
}
