//! Past states of resources: where they are asked for, and which answers are taken for them.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::{Arc, Mutex};

use super::{Past, date, memento, redirect};
use crate::support::{Message, client, ok, serve, status};
use resync_core::digest::{Algorithm, Digest};
use resync_subscriber_kit::fetch::{Client, ClientOptions};
use resync_subscriber_kit::sync::{Authority, Depth, FailureKind, synchronise};
use url::Url;

/// One resource whose hash no list tells: it was created at nine and updated at twelve. Its entry leads to `/gate`.
async fn without_a_hash() -> Past {
    let mut past = Past::start().await;
    let gate = past.link("timegate", "/gate");
    past.change("/a", "created", "09:00", None, &gate);
    past.change("/a", "updated", "12:00", None, &gate);
    past.list("09:00", &[]);
    past.source.put("/a", b"of today");
    past.options.delete = false;
    past
}

#[tokio::test]
async fn mem053_mem054_mem056_mem057_without_a_hash_an_answer_counts_only_if_its_headers_prove_it() {
    let past = without_a_hash().await;
    let (own, other) = (past.source.url("/a"), past.source.url("/x"));
    let bare = |headers: String| ok(&headers, b"framed");
    let dated = |at: &str| format!("Memento-Datetime: {}\r\n", date(at));
    let link = format!("Link: <{own}>; rel=\"original\"\r\n");
    let named = |line: &str, headers: String| status(line, &headers);
    for (answer, kind) in [
        (bare(String::new()), FailureKind::UnprovenVersion),
        (bare(link.clone()), FailureKind::UnprovenVersion),
        (bare(format!("{link}Memento-Datetime: 2024-02-01T10:00:00Z\r\n")), FailureKind::UnprovenVersion),
        (bare(format!("{link}{}{}", dated("10:00"), dated("10:30"))), FailureKind::UnprovenVersion),
        (bare(dated("10:00")), FailureKind::UnprovenVersion),
        (memento(&other, "10:00", "of another"), FailureKind::UnprovenVersion),
        (memento(&own, "08:59", "older"), FailureKind::UnprovenVersion),
        (memento(&own, "12:00", "newer"), FailureKind::UnprovenVersion),
        (memento(&own, "18:00", "the nearest, and later"), FailureKind::UnprovenVersion),
        (named("404 Not Found", String::new()), FailureKind::NoVersion),
        (named("410 Gone", String::new()), FailureKind::NoVersion),
        (named("410 Gone", dated("10:00")), FailureKind::NoVersion),
        (named("400 Bad Request", String::new()), FailureKind::Status),
        (named("503 Service Unavailable", String::new()), FailureKind::Status),
        (redirect("/gate"), FailureKind::Redirect),
        (named("302 Found", String::new()), FailureKind::Redirect),
        (redirect("http://b.example/"), FailureKind::OtherOrigin),
    ] {
        let told = String::from_utf8_lossy(&answer).into_owned();
        past.source.raw("/gate", answer);
        let report = past.at("11:00").await;
        let kinds: Vec<_> = report.failures.iter().map(|failure| failure.kind).collect();
        assert_eq!(kinds, [kind], "{told}: {report:?}");
        past.assert_copied(&[]);
    }
    for at in ["09:00", "10:00", "11:59"] {
        past.source.raw("/gate", memento(&own, at, at));
        assert!(past.at("11:00").await.in_step(), "{at}");
        past.assert_copied(&[("a", at)]);
    }
}

#[tokio::test]
async fn mem052_redirects_of_every_kind_are_followed_up_to_five() {
    let past = without_a_hash().await;
    past.source.raw("/v/5", memento(&past.source.url("/a"), "10:00", "then"));
    let line = ["302 Found", "301 Moved Permanently", "303 See Other", "307 Temporary Redirect"];
    for (number, line) in line.into_iter().enumerate() {
        let from = if number == 0 { "/gate".to_owned() } else { format!("/v/{number}") };
        past.source.raw(&from, status(line, &format!("Location: /v/{}\r\n", number + 1)));
    }
    past.source.raw("/v/4", status("308 Permanent Redirect", "Location: /v/5\r\n"));
    assert!(past.at("11:00").await.in_step());
    past.assert_copied(&[("a", "then")]);

    past.source.raw("/v/6", past.source.page("/v/5"));
    past.source.raw("/v/5", redirect("/v/6"));
    let report = past.at("11:00").await;
    assert_eq!(report.failures[0].kind, FailureKind::Redirect, "the sixth: {report:?}");
    past.assert_copied(&[("a", "then")]);
}

#[tokio::test]
async fn mem050_the_resource_itself_may_negotiate_or_name_who_does() {
    let mut past = Past::start().await;
    for path in ["/itself", "/named"] {
        past.change(path, "created", "09:00", None, "");
        past.change(path, "updated", "12:00", None, "");
    }
    past.list("09:00", &[]);
    past.source.raw("/itself", memento(&past.source.url("/itself"), "10:00", "negotiated"));
    let gate = format!("Link: <{}>; rel=\"timegate\"\r\n", past.source.url("/gate"));
    past.source.raw("/named", ok(&gate, b"of today"));
    past.source.raw("/gate", memento(&past.source.url("/named"), "10:00", "by its TimeGate"));
    // One permit for the host: no answer may hold it while the next is asked for.
    let client = Client::new(ClientOptions { per_host: 1, ..client().options().clone() }).unwrap();
    let options = past.options_at("11:00");
    let report = synchronise(&client, &past.offer(), &past.target(), &options, Depth::Full).await.unwrap();
    assert!(report.in_step(), "{report:?}");
    past.assert_copied(&[("itself", "negotiated"), ("named", "by its TimeGate")]);
}

/// An archive elsewhere that rewrites what it shows unless it is asked for the raw bytes, and the requests that it got.
async fn rewriting(original: String, raw: &'static str) -> (String, Arc<Mutex<Vec<Message>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&seen);
    let address = serve(move |request| {
        requests.lock().unwrap().push(request.clone());
        let is_raw = request.header("prefer") == Some("raw");
        memento(&original, "10:00", if is_raw { raw } else { "<!-- a frame --> rewritten" })
    })
    .await;
    (format!("http://{address}/web/"), seen)
}

#[tokio::test]
async fn mem051_mem055_where_the_list_tells_the_hash_the_raw_bytes_are_asked_for_once_more() {
    let mut past = Past::start().await;
    past.change("/a", "created", "10:00", Some("as it was"), "");
    past.change("/a", "updated", "12:00", Some("of today"), "");
    past.list("09:00", &[]);
    past.source.put("/a", b"of today");
    let (archive, seen) = rewriting(past.source.url("/a"), "as it was").await;
    past.options.timegate = Some(Url::parse(&archive).unwrap());
    assert!(past.at("11:00").await.in_step());
    past.assert_copied(&[("a", "as it was")]);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let raw: Vec<_> = seen.iter().map(|request| request.header("prefer")).collect();
    assert_eq!(raw, [None, Some("raw")]);
    for request in &seen {
        assert_eq!(request.target(), format!("/web/{}", past.source.url("/a")));
        assert_eq!(request.header("accept-datetime"), Some("Thu, 01 Feb 2024 11:00:00 GMT"));
    }
}

#[tokio::test]
async fn mem055_bytes_that_are_not_those_of_the_list_are_refused_raw_or_not() {
    let mut past = Past::start().await;
    past.change("/a", "created", "10:00", Some("as it was"), "");
    past.change("/a", "updated", "12:00", Some("of today"), "");
    past.list("09:00", &[]);
    let (archive, seen) = rewriting(past.source.url("/a"), "something else").await;
    past.options.timegate = Some(Url::parse(&archive).unwrap());
    let report = past.at("11:00").await;
    assert_eq!(report.failures[0].kind, FailureKind::Mismatch, "{report:?}");
    assert_eq!(seen.lock().unwrap().len(), 2);
    past.assert_copied(&[]);
}

#[tokio::test]
async fn mem055_where_nothing_would_show_that_bytes_were_rewritten_the_raw_ones_are_asked_for_at_once() {
    let mut past = without_a_hash().await;
    let (archive, seen) = rewriting(past.source.url("/a"), "as it was").await;
    past.options.timegate = Some(Url::parse(&archive).unwrap());
    assert!(past.at("11:00").await.in_step(), "the list's own TimeGate has nothing");
    past.assert_copied(&[("a", "as it was")]);
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn mem059_an_archive_of_another_origin_is_asked_only_if_it_was_named() {
    let mut past = Past::start().await;
    let (archive, seen) = rewriting(past.source.url("/a"), "as it was").await;
    let gate = format!(r#"<rs:ln rel="timegate" href="{archive}{}"/>"#, past.source.url("/a"));
    past.change("/a", "created", "10:00", Some("as it was"), &gate);
    past.change("/a", "updated", "12:00", Some("of today"), "");
    past.list("09:00", &[]);
    past.source.put("/a", b"of today");
    let report = past.at("11:00").await;
    assert_eq!(report.failures[0].kind, FailureKind::OtherOrigin, "{report:?}");
    assert!(seen.lock().unwrap().is_empty(), "it was not even asked");
    for authority in [Authority::Origins(vec![Url::parse(&archive).unwrap()]), Authority::Any] {
        past.options.authority = authority;
        past.directory = tempfile::tempdir().unwrap();
        assert!(past.at("11:00").await.in_step());
        past.assert_copied(&[("a", "as it was")]);
    }
}

#[tokio::test]
async fn mem054_the_list_s_own_memento_may_be_of_another_name_if_its_hash_fits() {
    let mut past = Past::start().await;
    let links = [past.link("memento", "/v/a"), past.link("memento", "/v/b")];
    for (path, link) in ["/a", "/b"].into_iter().zip(&links) {
        let body = (path == "/a").then_some("then");
        past.change(path, "created", "10:00", body, link);
        past.change(path, "updated", "12:00", None, "");
        past.source.put(path, b"of today");
        past.source.raw(&format!("/v{path}"), memento("http://moved.example/", "10:00", "then"));
    }
    past.list("09:00", &[]);
    let report = past.at("11:00").await;
    past.assert_copied(&[("a", "then")]);
    let failed: Vec<_> = report.failures.iter().map(|failure| (&*failure.loc, failure.kind)).collect();
    assert_eq!(failed, [(&*past.source.url("/b"), FailureKind::UnprovenVersion)], "it has no hash");
}

#[tokio::test]
async fn mem035_what_the_link_to_a_version_tells_counts_where_the_entry_tells_nothing() {
    let mut past = Past::start().await;
    let hash = Digest::of(Algorithm::Sha256, b"then");
    let href = past.source.url("/v/a");
    let link = format!(r#"<rs:ln rel="memento" href="{href}" hash="{hash}" length="4"/>"#);
    past.change("/a", "created", "10:00", None, &link);
    past.change("/a", "updated", "12:00", None, "");
    past.list("09:00", &[]);
    past.source.put("/a", b"of today");
    past.source.raw("/v/a", memento(&past.source.url("/a"), "10:00", "nope"));
    assert_eq!(past.at("11:00").await.failures[0].kind, FailureKind::Mismatch);
    past.source.raw("/v/a", memento(&past.source.url("/a"), "10:00", "then"));
    assert!(past.at("11:00").await.in_step());
    past.assert_copied(&[("a", "then")]);
}

#[tokio::test]
async fn mem062_a_resource_without_a_hash_that_was_modified_after_the_lists_is_no_longer_as_it_was() {
    let mut past = Past::start().await;
    let gate = past.link("timegate", "/gate");
    past.change("/a", "created", "10:00", None, &gate);
    past.list("09:00", &[]);
    past.source.raw("/a", ok(&format!("Last-Modified: {}\r\n", date("12:00")), b"newer"));
    past.source.raw("/gate", memento(&past.source.url("/a"), "10:00", "then"));
    assert!(past.at("11:00").await.in_step());
    past.assert_copied(&[("a", "then")]);
}

#[tokio::test]
async fn mem062_a_resource_that_nothing_dates_is_taken_and_named_unless_somebody_has_its_state_of_then() {
    let mut past = Past::start().await;
    past.change("/a", "created", "10:00", None, "");
    past.list("09:00", &[]);
    // Its entity tag must not make a second run sure.
    past.source.raw("/a", ok("ETag: \"1\"\r\n", b"perhaps newer"));
    for _ in ["first", "second"] {
        let report = past.at("11:00").await;
        assert_eq!((report.failed, report.in_step()), (0, false), "{report:?}");
        let why = report.unproven.unwrap();
        assert_eq!(why, "1 resource has neither a hash nor Last-Modified, so it may be newer");
        past.assert_copied(&[("a", "perhaps newer")]);
    }
    let gate = format!("Link: <{}>; rel=\"timegate\"\r\n", past.source.url("/gate"));
    past.source.raw("/a", ok(&gate, b"newer"));
    past.source.raw("/gate", memento(&past.source.url("/a"), "10:30", "then"));
    assert!(past.at("11:00").await.in_step());
    past.assert_copied(&[("a", "then")]);
}
