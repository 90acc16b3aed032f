//! The versions that a TimeMap lists, found by what a resource, a list or a TimeGate says (MEM-058).
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::command::{code, run, stdout};
use crate::support::{Source, client, document, ok, status};
use resync_subscriber_kit::discover::{DiscoverError, TimeMap, discover, versions_of};
use url::Url;

/// A Source with one resource, whose TimeMap lists two versions.
async fn source() -> Source {
    let source = Source::start().await;
    source.announce(None);
    source.put("/a", b"now");
    source.resource_list("/resourcelist.xml", &[source.entry("/a", b"now")]);
    source.put("/map", time_map(&source, &["/v/2 10", "/v/1 09"], "").as_bytes());
    source
}

/// Versions by their paths and hours, and more links.
fn time_map(source: &Source, versions: &[&str], more: &str) -> String {
    let version = |version: &&str| {
        let (path, hour) = version.split_once(' ').unwrap();
        let date = format!("Fri, 20 Nov 2026 {hour}:00:00 GMT");
        format!(",\n<{}>; rel=\"memento\"; datetime=\"{date}\"", source.url(path))
    };
    let versions: String = versions.iter().map(version).collect();
    format!("<{}>; rel=\"original\",\n<gate>; rel=\"timegate\"{versions}{more}\n", source.url("/a"))
}

async fn found(source: &Source) -> Result<TimeMap, DiscoverError> {
    found_at(source, Some(&[])).await
}

/// As it is found where these other origins may be asked.
async fn found_at(source: &Source, others: Option<&[Url]>) -> Result<TimeMap, DiscoverError> {
    let url = |path: &str| Url::parse(&source.url(path)).unwrap();
    let set = discover(&client(), &source.url("/")).await.unwrap();
    versions_of(&client(), &set, &url("/a"), others).await
}

/// The paths of the versions, oldest first.
fn paths(source: &Source, found: &TimeMap) -> Vec<String> {
    found.versions.iter().map(|version| version.url.replace(&source.url(""), "")).collect()
}

#[tokio::test]
async fn mem058_a_time_map_is_found_by_the_resource_by_the_list_and_by_a_time_gate() {
    let source = source().await;
    assert!(matches!(found(&source).await, Err(DiscoverError::NoTimeMap { .. })));
    let link = |rel: &str, path: &str| format!("Link: <{}>; rel=\"{rel}\"\r\n", source.url(path));
    let listed = |rel: &str, path: &str| {
        let ln = format!(r#"<rs:ln rel="{rel}" href="{}"/></url>"#, source.url(path));
        source.resource_list("/resourcelist.xml", &[source.entry("/a", b"now").replace("</url>", &ln)]);
    };
    source.raw("/gate", ok(&link("timemap", "/map"), b"a page"));
    let is_found = async || {
        let found = found(&source).await.unwrap();
        assert_eq!(paths(&source, &found), ["/v/1", "/v/2"], "oldest first");
        assert_eq!(found.time_gate, Some(source.url("/gate")));
        assert_eq!((found.skipped, found.unreadable.len()), (0, 0));
    };
    source.raw("/a", ok(&link("timemap", "/map"), b"now"));
    is_found().await;
    source.raw("/a", ok(&link("timegate", "/gate"), b"now"));
    is_found().await;
    source.raw("/a", status("410 Gone", &link("timemap", "/map")));
    is_found().await;
    source.raw("/a", status("404 Not Found", ""));
    listed("timemap", "/map");
    is_found().await;
    listed("timegate", "/gate");
    is_found().await;
}

#[tokio::test]
async fn mem058_pages_are_followed_without_circles_and_what_cannot_be_read_is_left_out() {
    let source = source().await;
    source.raw("/a", ok(&format!("Link: <{}>; rel=\"timemap\"\r\n", source.url("/map")), b"now"));
    let page =
        |path: &str| format!(",\n<{}>; rel=\"timemap\"; type=\"application/link-format\"", source.url(path));
    let more = format!("{}{}{},\n<unfinished; rel=memento", page("/map/1"), page("/map/2"), page("/away"));
    source.put("/map", time_map(&source, &[], &more).as_bytes());
    source.put("/map/1", time_map(&source, &["/v/3 11"], &page("/map")).as_bytes());
    let undated = format!(",\n<{}>; rel=\"memento\"", source.url("/v/9"));
    source.put("/map/2", time_map(&source, &["/v/1 09", "/v/3 11"], &undated).as_bytes());
    source.asked();
    let found = found(&source).await.unwrap();
    assert_eq!(paths(&source, &found), ["/v/1", "/v/3"]);
    assert_eq!(found.skipped, 1);
    assert_eq!(found.unreadable[0].url.as_str(), source.url("/away"));
    let asked = source.asked();
    for page in ["/map", "/map/1", "/map/2"] {
        assert_eq!(asked.iter().filter(|path| *path == page).count(), 1, "{page}: {asked:?}");
    }
}

#[tokio::test]
async fn mem059_pages_of_a_time_map_at_other_origins_are_read_only_if_these_are_named() {
    let (source, archive) = (source().await, Source::start().await);
    source.raw("/a", ok(&format!("Link: <{}>; rel=\"timemap\"\r\n", source.url("/map")), b"now"));
    let more = format!(",\n<{}>; rel=\"timemap\"", archive.url("/page"));
    source.put("/map", time_map(&source, &["/v/1 09"], &more).as_bytes());
    archive.put("/page", time_map(&source, &["/v/2 10"], "").as_bytes());
    let first = found(&source).await.unwrap();
    assert_eq!(paths(&source, &first), ["/v/1"]);
    assert!(first.unreadable[0].reason.contains("allow it with --origin"), "{first:?}");
    assert!(archive.asked().is_empty(), "it was not even asked");
    let named = [Url::parse(&archive.url("/")).unwrap()];
    for others in [Some(named.as_slice()), None] {
        let all = found_at(&source, others).await.unwrap();
        assert_eq!((paths(&source, &all).join(" "), all.unreadable.len()), ("/v/1 /v/2".to_owned(), 0));
    }
    let (url, original, other) = (source.url("/"), source.url("/a"), archive.url("/"));
    assert_eq!(code(&run(&["discover", &url, "--versions-of", &original]).await), 1);
    assert_eq!(code(&run(&["discover", &url, "--versions-of", &original, "--origin", &other]).await), 0);
}

#[tokio::test]
async fn mem058_what_is_no_time_map_of_the_resource_is_refused() {
    let source = source().await;
    source.raw("/a", ok(&format!("Link: <{}>; rel=\"timemap\"\r\n", source.url("/map")), b"now"));
    let other = time_map(&source, &["/v/1 09"], "").replace(&source.url("/a"), &source.url("/b"));
    for (page, said) in [("<html><p>Not here</p></html>", "no TimeMap"), (other.as_str(), "it is of")] {
        source.put("/map", page.as_bytes());
        let error = found(&source).await.unwrap_err();
        assert!(
            matches!(error, DiscoverError::TimeMap { .. }) && error.to_string().contains(said),
            "{error}"
        );
    }
    let endless = time_map(&source, &["/v/1 09"], &"x".repeat(50_000_001));
    source.put("/map", endless.as_bytes());
    let error = found(&source).await.unwrap_err().to_string();
    assert!(error.contains("50000000 bytes"), "{error}");
}

#[tokio::test]
async fn mem058_the_command_shows_versions_as_lines_or_as_json() {
    let source = source().await;
    source.raw("/a", ok(&format!("Link: <{}>; rel=\"timemap\"\r\n", source.url("/map")), b"now"));
    let (url, original) = (source.url("/"), source.url("/a"));
    let shown = run(&["discover", &url, "--versions-of", &original]).await;
    assert_eq!(code(&shown), 0);
    let line = |hour: &str, path: &str| format!("2026-11-20T{hour}:00:00Z\t{}\n", source.url(path));
    assert_eq!(stdout(&shown), line("09", "/v/1") + &line("10", "/v/2"));
    let shown = run(&["discover", &url, "--versions-of", &original, "--json"]).await;
    let found: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(found["versions"][1]["datetime"], "2026-11-20T10:00:00Z");
    assert_eq!(found["time_map"], source.url("/map"));

    let root = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
    source.put("/resourcelist.xml", document("urlset", root, &[]).as_bytes());
    source.put("/a", b"now");
    let shown = run(&["discover", &url, "--versions-of", &original]).await;
    assert_eq!((code(&shown), stdout(&shown)), (1, ""));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("names a TimeMap or TimeGate"));
}
