//! A directory that is a copy of one Source becomes a copy of another only if that is asked for.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::command::{code, run, stdout};
use crate::support::{Hub, PATIENCE, Source, expected, files, on_this_machine, reports};
use resync_subscriber_kit::listen::{ListenError, ListenOptions, listen};
use resync_subscriber_kit::sync::SyncError;

/// A Source of one resource.
async fn source(path: &str, body: &str, hub: Option<&Hub>) -> Source {
    let source = Source::start().await;
    source.announce(hub.map(Hub::url).as_deref());
    source.resource_list("/resourcelist.xml", &[source.resource(path, body.as_bytes())]);
    source
}

#[tokio::test]
async fn a_copy_of_another_source_is_left_as_it_is_and_both_are_named_until_it_is_switched() {
    let (right, wrong) = (source("/a", "1", None).await, source("/b", "2", None).await);
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    assert_eq!(code(&run(&["sync", &right.url("/"), into]).await), 0);
    let (url, listening) = (wrong.url("/"), ["--listen", "127.0.0.1:0"]);
    let sync = |flags: &[&'static str]| {
        let line = [&["sync", &url, into][..], flags].concat();
        line.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let listen = [&["listen", &url, "--into", into, "--delete"][..], &listening].concat();
    for line in [
        sync(&[]),
        sync(&["--delete"]),
        sync(&["--delete", "--dry-run"]),
        sync(&["--delete", "--since", "2026-11-20"]),
        listen.into_iter().map(str::to_owned).collect(),
        ["audit", &url, into].map(str::to_owned).to_vec(),
    ] {
        let refused = run(&line.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(code(&refused), 64, "{line:?}: {said}");
        for part in [right.url("/capabilitylist.xml"), wrong.url("/capabilitylist.xml")] {
            assert!(said.contains(&part) && said.contains("--switch-source"), "{line:?}: {said}");
        }
        assert_eq!(files(directory.path()), expected(&[("a", "1")]), "{line:?}");
    }
    let asked = wrong.asked();
    assert!(!asked.iter().any(|path| path == "/resourcelist.xml" || path == "/b"), "{asked:?}");
    let status = run(&["status", "--into", into]).await;
    assert!(stdout(&status).contains(": in step: 1 resource "), "{}", stdout(&status));

    assert_eq!(code(&run(&["audit", &url, into, "--switch-source"]).await), 2, "it goes on with nothing");
    let dry = run(&["sync", &url, into, "--switch-source", "--delete", "--dry-run"]).await;
    assert!(code(&dry) == 0 && stdout(&dry).contains(&format!("deleted {url}a\n")), "{}", stdout(&dry));
    assert_eq!(files(directory.path()), expected(&[("a", "1")]));
    assert_eq!(code(&run(&["sync", &url, into, "--switch-source"]).await), 0);
    assert_eq!(files(directory.path()), expected(&[("a", "1"), ("b", "2")]));
    assert_eq!(code(&run(&["sync", &right.url("/"), into]).await), 64, "it is no copy of that any more");
    assert_eq!(code(&run(&["sync", &url, into, "--delete"]).await), 0);
    assert_eq!(files(directory.path()), expected(&[("b", "2")]));
}

#[tokio::test]
async fn each_url_of_a_source_leads_to_the_same_copy() {
    let source = source("/a", "1", None).await;
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    for path in ["/", "", "/.well-known/resourcesync", "/capabilitylist.xml", "/resourcelist.xml"] {
        let sync = run(&["sync", &source.url(path), into, "--delete"]).await;
        assert_eq!(code(&sync), 0, "{path}: {}", String::from_utf8_lossy(&sync.stderr));
    }
    source.remove("/capabilitylist.xml");
    assert_eq!(code(&run(&["sync", &source.url("/resourcelist.xml"), into, "--delete"]).await), 0);
    assert_eq!(files(directory.path()), expected(&[("a", "1")]));
}

#[tokio::test]
async fn listening_goes_on_with_the_copy_of_a_source_that_has_moved_if_that_is_asked_for() {
    let mut hub = Hub::start().await;
    let (before, after) = (source("/a", "1", None).await, source("/b", "2", Some(&hub)).await);
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    assert_eq!(code(&run(&["sync", &before.url("/"), into]).await), 0);
    let mut options = ListenOptions::new(after.url("/"), directory.path());
    options.service.client = on_this_machine();
    options.sync.delete = true;
    let refused = listen(options.clone(), |_| {}, std::future::pending());
    let refused = tokio::time::timeout(PATIENCE, refused).await.unwrap().unwrap_err();
    assert!(matches!(refused, ListenError::Copy(SyncError::OtherSource { .. })), "{refused}");
    assert!(refused.is_configuration());

    options.sync.switch_source = true;
    let (tell, mut reports) = reports();
    let listening = tokio::spawn(listen(options, tell, std::future::pending()));
    hub.accept(600).await;
    let report = tokio::time::timeout(PATIENCE, reports.recv()).await.unwrap().unwrap();
    assert_eq!((report.created, report.deleted), (1, 1));
    assert_eq!(files(directory.path()), expected(&[("b", "2")]));
    listening.abort();
    assert!(listening.await.unwrap_err().is_cancelled());
}
