//! A copy that is published on by a Source of its own names the originals by itself (RS-180 to RS-183).
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;

use crate::support::copy::Copy;
use resync_core::digest::{Algorithm, Digest};
use resync_core::document::{Entry, Relation};
use resync_core::xml;
use resync_publisher::{BaseUrl, Settings, build};

/// Publishes the copy, and reads its Resource List.
fn republished(copy: &Path, site: &Path) -> (String, Vec<Entry>) {
    let settings = Settings::new(copy, BaseUrl::parse("https://aggregator.example/").unwrap());
    build(&settings, site).unwrap();
    let list = std::fs::read(site.join("resync/resourcelist.xml")).unwrap();
    let document = xml::read(&list).unwrap().into_document().unwrap().into_raw();
    (document.header.metadata.at.unwrap().to_string(), document.entries)
}

fn entry<'e>(entries: &'e [Entry], name: &str) -> &'e Entry {
    entries.iter().find(|entry| entry.loc == format!("https://aggregator.example/{name}")).unwrap()
}

#[tokio::test]
async fn rs180_to_rs183_a_copy_that_is_published_on_names_each_original_and_tells_its_own_times() {
    let copy = Copy::start().await;
    let hash = Digest::of(Algorithm::Sha256, b"2");
    copy.source.put("/b", b"2");
    // The Source has it from somewhere else.
    let of_others = format!(
        r#"<url><loc>{}</loc><lastmod>2020-01-01T00:00:00Z</lastmod><rs:md hash="{hash}" length="1" type="text/x-moss"/><rs:ln rel="via" href="http://first.example/b"/><rs:ln rel="collection" href="http://first.example/c"/><rs:ln rel="duplicate" href="http://mirror.example/b"/></url>"#,
        copy.source.url("/b"),
    );
    let entries = [copy.source.resource("/a", b"1"), of_others, copy.source.resource("/c", b"3")];
    copy.source.resource_list("/resourcelist.xml", &entries);
    assert_eq!(copy.sync().await.created, 3);
    std::fs::write(copy.path().join("c"), "edited here").unwrap();
    std::fs::write(copy.path().join("own"), "1").unwrap();

    let site = tempfile::tempdir().unwrap();
    let (at, entries) = republished(copy.path(), site.path());
    assert_ne!(at, "2026-11-20T09:00:00Z", "RS-182: the time is that of who publishes");
    let via = |name: &str| entry(&entries, name).link(&Relation::Via);
    assert_eq!(via("a").unwrap().href, copy.source.url("/a"));
    let original = via("b").unwrap();
    assert_eq!(original.href, "http://first.example/b", "RS-181: not each hop");
    assert_eq!((original.length, original.media_type.as_deref()), (Some(1), Some("text/x-moss")));
    assert_eq!(original.modified.unwrap().to_string(), "2020-01-01T00:00:00Z");
    assert_eq!(original.hash.get(Algorithm::Sha256), Some(&hash));
    let inherited = entry(&entries, "b");
    assert_eq!(inherited.link(&Relation::Collection).unwrap().href, "http://first.example/c");
    assert!(inherited.link(&Relation::Duplicate).is_none(), "RS-183: the mirror is the Source's");
    assert!(via("c").is_none() && via("own").is_none(), "nobody else has these bytes there");
    assert!(!entries.iter().any(|entry| entry.loc.contains(".resync-destination")));
}

#[tokio::test]
async fn rs180_what_changes_come_later_is_named_in_the_change_list_too() {
    use resync_subscriber_kit::sync::{Depth, Offer, synchronise};
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "1")]);
    let changes = |entries: &[String]| {
        let root = r#"<rs:md capability="changelist" from="2026-11-20T09:00:00Z"/>"#;
        copy.source.put("/changes.xml", crate::support::document("urlset", root, entries).as_bytes());
    };
    changes(&[]);
    let url = |path: &str| url::Url::parse(&copy.source.url(path)).unwrap();
    let offer = Offer { change_list: Some(url("/changes.xml")), ..Offer::list(url("/resourcelist.xml")) };
    let run = async |how| {
        synchronise(&crate::support::client(), &offer, &copy.target(), &copy.options, how).await.unwrap()
    };
    assert!(run(Depth::Full).await.in_step());
    let site = tempfile::tempdir().unwrap();
    republished(copy.path(), site.path());
    let told = r#"<rs:md change="updated" datetime="2026-11-20T10:00:00Z" "#;
    changes(&[copy.source.resource("/a", b"new").replace("<rs:md ", told)]);
    assert_eq!(run(Depth::Changes).await.updated, 1);
    republished(copy.path(), site.path());
    let list = std::fs::read_dir(site.path().join("resync")).unwrap().map(|entry| entry.unwrap().path());
    let is_list = |path: &std::path::PathBuf| path.display().to_string().contains("changelist");
    let lists = list.filter(is_list).map(|path| std::fs::read(path).unwrap());
    let entries = lists.flat_map(|list| xml::read(&list).unwrap().document.entries);
    let found: Vec<_> = entries.filter(|entry| entry.loc.ends_with("/a")).collect();
    let via = found[0].link(&Relation::Via).unwrap();
    assert_eq!((via.href.clone(), via.length), (copy.source.url("/a"), Some(3)));
}
