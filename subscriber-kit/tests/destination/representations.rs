//! Where the bytes of a resource may come from besides its URI: patches, alternates, and where the Source has it from.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use crate::support::copy::{Copy, counts};
use crate::support::{Source, client, document, expected, files, ok, serve, status};
use resync_core::digest::{Algorithm, Digest};
use resync_subscriber_kit::sync::{Depth, Offer, Report, SyncOptions, Target, synchronise};
use tempfile::TempDir;
use url::Url;

const PATCH: &str = "http://www.openarchives.org/rs/terms/patch";
const OLD: &str = r#"{"zebra":1,"name":"old","list":["x"]}"#;
const NEW: &str = r#"{"zebra":1,"name":"new","list":["x"]}"#;
const NEWER: &str = r#"{"zebra":1,"name":"new","list":["x","y"]}"#;
const FIRST: &str = r#"[{"op":"replace","path":"/name","value":"new"}]"#;
const SECOND: &str = r#"[{"op":"add","path":"/list/-","value":"y"}]"#;

/// A copy of one JSON file of a Source that tells of its changes.
struct Mirror {
    source: Source,
    directory: TempDir,
    told: Vec<String>,
}

impl Mirror {
    async fn start() -> Self {
        let mirror =
            Self { source: Source::start().await, directory: tempfile::tempdir().unwrap(), told: vec![] };
        let entry = mirror.source.resource("/doc.json", OLD.as_bytes());
        mirror.source.resource_list("/resourcelist.xml", &[entry]);
        mirror.publish();
        mirror.run(Depth::Full).await;
        mirror.source.asked();
        mirror
    }

    async fn run(&self, how: Depth) -> Report {
        let url = |path: &str| Url::parse(&self.source.url(path)).unwrap();
        let offer = Offer { change_list: Some(url("/changes.xml")), ..Offer::list(url("/resourcelist.xml")) };
        let target = Target::open(self.directory.path(), url("/")).unwrap();
        let options = SyncOptions { retries: 0, ..SyncOptions::default() };
        synchronise(&client(), &offer, &target, &options, how).await.unwrap()
    }

    /// The document became this, by the patch at this place.
    fn change(&mut self, body: &str, patch: &str, media_type: &str) {
        let hash = Digest::of(Algorithm::Sha256, body.as_bytes());
        let second = self.told.len();
        self.told.push(format!(
            r#"<url><loc>{}</loc><rs:md change="updated" datetime="2026-11-20T10:00:{second:02}Z" hash="{hash}" length="{}"/><rs:ln rel="{PATCH}" href="{}" type="{media_type}"/></url>"#,
            self.source.url("/doc.json"),
            body.len(),
            self.source.url(patch),
        ));
        self.publish();
    }

    fn publish(&self) {
        let root = r#"<rs:md capability="changelist" from="2026-11-20T08:00:00Z"/>"#;
        self.source.put("/changes.xml", document("urlset", root, &self.told).as_bytes());
    }

    fn local(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("doc.json")).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.source.asked().into_iter().filter(|path| !path.contains(".xml")).collect()
    }
}

const JSON_PATCH: &str = "application/json-patch+json";

#[tokio::test]
async fn rs174_rs198_patches_are_applied_one_after_another_and_the_resource_is_not_asked_for() {
    let mut mirror = Mirror::start().await;
    mirror.source.put("/1.patch", FIRST.as_bytes());
    mirror.source.put("/2.patch", SECOND.as_bytes());
    mirror.change(NEW, "/1.patch", JSON_PATCH);
    mirror.change(NEWER, "/2.patch", JSON_PATCH);
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((counts(&report), report.patched), ([0, 1, 0, 0, 0], 1));
    assert_eq!(mirror.local(), NEWER);
    assert_eq!(mirror.asked(), ["/1.patch", "/2.patch"]);
}

#[tokio::test]
async fn rs175_a_patch_that_is_unknown_or_makes_something_else_is_left_and_the_resource_fetched() {
    let wrong = r#"[{"op":"replace","path":"/name","value":"a lie"}]"#;
    for (patch, media_type) in
        [(wrong, JSON_PATCH), ("<x/>", "application/patch-ops-error+xml"), ("", JSON_PATCH)]
    {
        let mut mirror = Mirror::start().await;
        mirror.source.put("/1.patch", patch.as_bytes());
        mirror.source.put("/doc.json", NEW.as_bytes());
        mirror.change(NEW, "/1.patch", media_type);
        let report = mirror.run(Depth::Changes).await;
        assert_eq!((counts(&report), report.patched), ([0, 1, 0, 0, 0], 0), "{patch}");
        assert_eq!(mirror.local(), NEW);
        assert!(mirror.asked().contains(&"/doc.json".to_owned()));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn rs175_what_a_symbolic_link_leads_to_is_not_patched() {
    let mut mirror = Mirror::start().await;
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(elsewhere.path(), OLD).unwrap();
    let local = mirror.directory.path().join("doc.json");
    std::fs::remove_file(&local).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &local).unwrap();
    mirror.source.put("/1.patch", FIRST.as_bytes());
    mirror.source.put("/doc.json", NEW.as_bytes());
    mirror.change(NEW, "/1.patch", JSON_PATCH);
    assert_eq!(mirror.run(Depth::Changes).await.patched, 0);
    assert_eq!((mirror.local().as_str(), local.is_symlink()), (NEW, false));
    assert_eq!(std::fs::read_to_string(elsewhere.path()).unwrap(), OLD);
}

#[tokio::test]
async fn rs175_a_patch_of_another_origin_is_not_asked_for() {
    let mut mirror = Mirror::start().await;
    let stranger = Source::start().await;
    stranger.put("/1.patch", FIRST.as_bytes());
    mirror.source.put("/doc.json", NEW.as_bytes());
    let hash = Digest::of(Algorithm::Sha256, NEW.as_bytes());
    mirror.told.push(format!(
        r#"<url><loc>{}</loc><rs:md change="updated" hash="{hash}"/><rs:ln rel="{PATCH}" href="{}" type="{JSON_PATCH}"/></url>"#,
        mirror.source.url("/doc.json"),
        stranger.url("/1.patch"),
    ));
    mirror.publish();
    assert_eq!(mirror.run(Depth::Changes).await.patched, 0);
    assert_eq!(mirror.local(), NEW);
    assert!(stranger.asked().is_empty());
}

#[tokio::test]
async fn rs172_an_alternate_of_the_preferred_type_is_copied_in_the_resources_place() {
    let copy = Copy::start().await;
    let link = |path: &str, media_type: &str, body: &str| {
        copy.source.put(path, body.as_bytes());
        let hash = Digest::of(Algorithm::Sha256, body.as_bytes());
        let href = copy.source.url(path);
        format!(
            r#"<rs:ln rel="alternate" href="{href}" type="{media_type}" hash="{hash}" length="{}"/>"#,
            body.len()
        )
    };
    let alternates =
        [link("/page.html", "text/html; charset=utf-8", "html"), link("/page.pdf", "application/pdf", "pdf")];
    copy.source.put("/page", b"generic");
    copy.source.put("/other", b"other");
    let entries = [
        format!("<url><loc>{}</loc>{}</url>", copy.source.url("/page"), alternates.concat()),
        copy.source.entry("/other", b"other"),
    ];
    copy.source.resource_list("/resourcelist.xml", &entries);
    for (prefer, body) in
        [(vec![], "generic"), (vec!["image/*", "application/pdf"], "pdf"), (vec!["text/*"], "html")]
    {
        let prefer = prefer.into_iter().map(str::to_owned).collect();
        let options = SyncOptions { prefer, delete: true, ..copy.options.clone() };
        let url = Url::parse(&copy.source.url("/resourcelist.xml")).unwrap();
        synchronise(&client(), &Offer::list(url), &copy.target(), &options, Depth::Full).await.unwrap();
        assert_eq!(files(copy.path()), expected(&[("page", body), ("other", "other")]));
    }
}

#[tokio::test]
async fn rs172_a_generic_uri_is_asked_for_the_listed_representation_or_else_for_the_preferred_one() {
    let hash = Digest::of(Algorithm::Sha256, b"pdf");
    let described = format!(r#"<rs:md hash="{hash}" length="3" type="application/pdf"/>"#);
    for (metadata, prefer, body) in [
        (described.as_str(), "", "pdf"),
        (described.as_str(), "text/html", "pdf"),
        ("", "application/pdf", "pdf"),
        ("", "text/html", "html"),
        ("", "", "any"),
    ] {
        let entry = format!(
            r#"<url><loc>http://HOST/page</loc>{metadata}<rs:ln rel="alternate" href="http://HOST/page.pdf"/></url>"#
        );
        let root = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
        let list = document("urlset", root, &[entry]);
        let address = serve(move |request| {
            let text = |name: &str| request.header(name).unwrap_or_default().to_owned();
            match request.target() {
                "/resourcelist.xml" => ok("", list.replace("HOST", &text("host")).as_bytes()),
                "/page" => match text("accept").split(['/', ',']).nth(1) {
                    Some("pdf") => ok("Content-Type: application/pdf\r\n", b"pdf"),
                    Some("html") => ok("Content-Type: text/html\r\n", b"html"),
                    _ => ok("", b"any"),
                },
                _ => status("404 Not Found", ""),
            }
        })
        .await;
        let url = |path: &str| Url::parse(&format!("http://{address}{path}")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let target = Target::open(directory.path(), url("/")).unwrap();
        let prefer = Some(prefer.to_owned()).filter(|prefer| !prefer.is_empty()).into_iter().collect();
        let options = SyncOptions { prefer, retries: 0, ..SyncOptions::default() };
        let offer = Offer::list(url("/resourcelist.xml"));
        let report = synchronise(&client(), &offer, &target, &options, Depth::Full).await.unwrap();
        assert!(report.in_step(), "{report:?}");
        assert_eq!(
            files(directory.path()),
            expected(&[("page", body)]),
            "{metadata} {}",
            options.prefer.join(",")
        );
    }
}

#[tokio::test]
async fn rs180_what_the_source_no_longer_has_comes_from_where_it_had_it_if_a_hash_proves_it() {
    let original = Source::start().await;
    for (body, mirrors, comes) in [("right", true, true), ("wrong", true, false), ("right", false, false)] {
        let mut copy = Copy::start().await;
        copy.options.foreign_mirrors = mirrors;
        copy.options.retry_pause = Duration::from_millis(1);
        original.put("/x", body.as_bytes());
        let hash = Digest::of(Algorithm::Sha256, b"right");
        let via = format!(r#"<rs:ln rel="via" href="{}"/>"#, original.url("/x"));
        let entry = format!(r#"<url><loc>{}</loc><rs:md hash="{hash}"/>{via}</url>"#, copy.source.url("/x"));
        copy.source.resource_list("/resourcelist.xml", &[entry]);
        let report = copy.sync().await;
        assert_eq!(counts(&report), [u64::from(comes), 0, 0, 0, u64::from(!comes)], "{body} {mirrors}");
        assert_eq!(files(copy.path()).len(), usize::from(comes));
        assert_eq!(original.asked().is_empty(), !mirrors);
    }
}

/// Links that nobody here knows, or that lead to no copy of the resource. Each tempts with an address of the same Source, a rank
/// and a type.
fn links_to_elsewhere(source: &Source) -> String {
    let relations = [
        "http://other.example/terms/better-copy",
        "preview",
        "next",
        "license",
        "memento",
        "timemap",
        "profile",
        "collection",
        "describes",
        "urn:example:relation",
    ];
    let link = |(number, relation): (usize, &&str)| {
        let path = format!("/elsewhere-{number}");
        source.put(&path, b"elsewhere");
        let href = source.url(&path);
        format!(r#"<rs:ln rel="{relation}" href="{href}" pri="1" type="text/plain" length="9"/>"#)
    };
    let strange = r#"<rs:ln rel="urn:example:more" href="xmpp:nobody@other.example"/>"#;
    relations.iter().enumerate().map(link).chain([strange.to_owned()]).collect()
}

#[tokio::test]
async fn rs170_a_link_that_is_not_understood_is_ignored_and_the_resource_comes_from_its_loc() {
    let copy = Copy::start().await;
    let links = links_to_elsewhere(&copy.source);
    let with_links = |entry: String| entry.replace("</url>", &format!("{links}</url>"));
    let list = |entries: &[String]| {
        let root = format!(r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>{links}"#);
        copy.source.put("/resourcelist.xml", document("urlset", &root, entries).as_bytes());
    };
    let changes = |entries: &[String]| {
        let root = r#"<rs:md capability="changelist" from="2026-11-20T09:00:00Z"/>"#;
        copy.source.put("/changes.xml", document("urlset", root, entries).as_bytes());
    };
    list(&["/a", "/b"].map(|path| with_links(copy.source.resource(path, b"1"))));
    changes(&[]);
    let url = |path: &str| Url::parse(&copy.source.url(path)).unwrap();
    let offer = Offer { change_list: Some(url("/changes.xml")), ..Offer::list(url("/resourcelist.xml")) };
    let run = async |mirrors| {
        let options = SyncOptions { foreign_mirrors: mirrors, ..copy.options.clone() };
        let report = synchronise(&client(), &offer, &copy.target(), &options, Depth::Changes).await.unwrap();
        assert!(report.in_step(), "{report:?}");
        let asked = copy.source.asked();
        assert!(!asked.iter().any(|path| path.starts_with("/elsewhere")), "{asked:?}");
        report
    };
    assert_eq!(counts(&run(false).await), [2, 0, 0, 0, 0]);
    let told = r#"<rs:md change="updated" datetime="2026-11-20T10:00:00Z" "#;
    changes(&[with_links(copy.source.resource("/a", b"2").replace("<rs:md ", told))]);
    assert_eq!(counts(&run(true).await), [0, 1, 0, 0, 0]);
    assert_eq!(files(copy.path()), expected(&[("a", "2"), ("b", "1")]));
}
