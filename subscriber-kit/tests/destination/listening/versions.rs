//! Versions beside a copy that is kept in step: the copy waits for none (MEM-071).

use super::Following;
use super::change_notifications::source_naming;
use crate::support::{Hub, Source, document, expected, files, ok, serve_slowly};
use resync_core::digest::{Algorithm, Digest};
use resync_subscriber_kit::listen::{ListenEvent, ListenOptions};
use resync_subscriber_kit::sync::Authority;
use tokio::sync::watch;
use url::Url;

/// The Change List, of changes a minute each, with where their versions are.
fn tell(source: &Source, changes: &[(&str, &str, Option<&str>)]) {
    let told = (1..).zip(changes).map(|(minute, (path, body, memento))| {
        source.put(path, body.as_bytes());
        let hash = Digest::of(Algorithm::Sha256, body.as_bytes());
        let link = memento.map(|memento| format!(r#"<rs:ln rel="memento" href="{memento}"/>"#));
        let link = link.unwrap_or_default();
        format!(
            r#"<url><loc>{}</loc><rs:md change="updated" datetime="2026-11-20T10:{minute:02}:00Z" hash="{hash}" length="{}"/>{link}</url>"#,
            source.url(path),
            body.len()
        )
    });
    let root = r#"<rs:md capability="changelist" from="2026-11-20T09:00:00Z"/>"#;
    source.put("/changelist.xml", document("urlset", root, &told.collect::<Vec<_>>()).as_bytes());
}

async fn source_telling_nothing(hub: &Hub) -> Source {
    let named = [("/changelist.xml", "changelist"), ("/topic", "framework-notification")];
    let source = source_naming(hub, &named).await;
    tell(&source, &[]);
    source
}

#[tokio::test]
async fn mem071_a_version_that_does_not_come_delays_no_change_of_the_copy() {
    let (open, opened) = watch::channel(false);
    let archive = serve_slowly(move |_| {
        let mut opened = opened.clone();
        async move {
            drop(opened.wait_for(|is_open| *is_open).await);
            ok("", b"2")
        }
    })
    .await;
    let archived = format!("http://{archive}/v/2");
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("versions");
    let keep = |options: &mut ListenOptions| {
        options.sync.versions = Some(directory.clone());
        options.sync.authority = Authority::Origins(vec![Url::parse(&archived).unwrap()]);
    };
    let mut copy = Following::begin(async |hub| source_telling_nothing(hub).await, keep).await;
    let changed = |source: &Source| source.notification().replace("resourcelist", "changelist");

    let replaced = ("/a", "2", Some(archived.as_str()));
    tell(&copy.source, &[replaced, ("/a", "3", None)]);
    copy.deliver("a.1", &changed(&copy.source)).await;
    let report = copy.destination.synchronised().await;
    assert!(report.in_step() && report.updated == 1, "{report:?}");
    assert_eq!(report.versions.map(|found| (found.kept, found.waiting)), Some((1, 1)));

    tell(&copy.source, &[replaced, ("/a", "3", None), ("/b", "1", None)]);
    copy.deliver("a.2", &changed(&copy.source)).await;
    assert_eq!(copy.destination.synchronised().await.created, 1);
    assert_eq!(copy.files(), expected(&[("a", "3"), ("b", "1")]));

    open.send(true).unwrap();
    let fetched = loop {
        if let ListenEvent::VersionsFetched(report) = copy.destination.event().await {
            break report;
        }
    };
    assert_eq!((fetched.kept, fetched.waiting, fetched.is_complete()), (1, 0, true));
    let all = [("a/20261120100100", "2"), ("a/20261120100200", "3"), ("b/20261120100300", "1")];
    assert_eq!(files(&directory), expected(&all));
    copy.destination.stop().await;
}
