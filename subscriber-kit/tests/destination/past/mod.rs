//! Copies of the past: which state of each resource is planned, and what becomes of a directory.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod negotiation;

use std::path::Path;
use std::time::Duration;

use crate::command::{code, run, stdout};
use crate::support::{Source, client, document, entry, expected, files, ok, status};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest};
use resync_core::origins::Origins;
use resync_subscriber_kit::sync::{
    AuditReport, Depth, FailureKind, Offer, Report, SyncError, SyncOptions, Target, Verdict, audit,
    synchronise,
};
use tempfile::TempDir;
use url::Url;

/// A time of the day on which everything happens.
fn time(hours_and_minutes: &str) -> String {
    format!("2024-02-01T{hours_and_minutes}:00Z")
}

/// As HTTP has it.
fn date(hours_and_minutes: &str) -> String {
    format!("Thu, 01 Feb 2024 {hours_and_minutes}:00 GMT")
}

/// A memento of a resource, of this time.
fn memento(original: &str, at: &str, body: &str) -> Vec<u8> {
    let (date, link) = (date(at), format!("<{original}>; rel=\"original\""));
    ok(&format!("Memento-Datetime: {date}\r\nLink: {link}\r\n"), body.as_bytes())
}

fn redirect(target: &str) -> Vec<u8> {
    status("302 Found", &format!("Location: {target}\r\nVary: accept-datetime\r\n"))
}

struct Past {
    source: Source,
    directory: TempDir,
    options: SyncOptions,
    changes: Vec<String>,
}

impl Past {
    /// Of a Source whose Change List begins at nine.
    async fn start() -> Self {
        let options = SyncOptions {
            delete: true,
            retries: 1,
            retry_pause: Duration::from_millis(5),
            ..SyncOptions::default()
        };
        let source = Source::start().await;
        let (directory, changes) = (tempfile::tempdir().unwrap(), Vec::new());
        Self { source, directory, options, changes }
    }

    /// An entry of a list about this content, with these links.
    fn told(&self, path: &str, what: &str, body: Option<&str>, links: &str) -> String {
        let facts = body.map_or_else(String::new, |body| {
            let hash = Digest::of(Algorithm::Sha256, body.as_bytes());
            format!(r#" hash="{hash}" length="{}""#, body.len())
        });
        let loc = self.source.url(path);
        format!("<url><loc>{loc}</loc><rs:md{what}{facts}/>{links}</url>")
    }

    /// A change at this time. Without content the list tells no hash.
    fn change(&mut self, path: &str, change: &str, at: &str, body: Option<&str>, links: &str) {
        let what = format!(r#" change="{change}" datetime="{}""#, time(at));
        self.changes.push(self.told(path, &what, body, links));
        let root = format!(r#"<rs:md capability="changelist" from="{}"/>"#, time("09:00"));
        self.source.put("/changelist.xml", document("urlset", &root, &self.changes).as_bytes());
    }

    /// The Resource List of this time.
    fn list(&self, at: &str, entries: &[String]) {
        self.source.resource_list_of(&time(at), "/resourcelist.xml", entries);
    }

    fn link(&self, rel: &str, path: &str) -> String {
        format!(r#"<rs:ln rel="{rel}" href="{}"/>"#, self.source.url(path))
    }

    fn offer(&self) -> Offer {
        let url = |path: &str| Some(Url::parse(&self.source.url(path)).unwrap());
        let (resource_list, change_list) = (url("/resourcelist.xml"), url("/changelist.xml"));
        Offer { resource_list, change_list, ..Offer::default() }
    }

    fn target(&self) -> Target {
        Target::open(self.directory.path(), Url::parse(&self.source.url("/")).unwrap()).unwrap()
    }

    fn options_at(&self, at: &str) -> SyncOptions {
        SyncOptions { at: Some(moment(at)), ..self.options.clone() }
    }

    async fn try_at(&self, at: &str) -> Result<Report, SyncError> {
        let options = self.options_at(at);
        synchronise(&client(), &self.offer(), &self.target(), &options, Depth::Full).await
    }

    async fn at(&self, at: &str) -> Report {
        let report = self.try_at(at).await.unwrap();
        assert_eq!(report.at, Some(moment(at)));
        report
    }

    async fn audit_at(&self, at: &str) -> AuditReport {
        audit(&client(), &self.offer(), &self.target(), &self.options_at(at)).await.unwrap()
    }

    fn assert_copied(&self, wanted: &[(&str, &str)]) {
        assert_eq!(files(self.directory.path()), expected(wanted));
    }
}

fn moment(at: &str) -> DateTime {
    time(at).parse().unwrap()
}

/// Three resources, and how they changed after nine: one was updated twice, one was created, one was deleted. A fourth came last.
async fn changed() -> Past {
    let mut past = Past::start().await;
    let version = |past: &Past, path: &str| past.link("memento", path);
    let (ten, eleven) = (version(&past, "/v/10/a"), version(&past, "/v/11/c"));
    past.change("/a", "updated", "10:00", Some("a of ten"), &ten);
    past.change("/c", "created", "11:00", Some("c"), &eleven);
    past.change("/b", "deleted", "12:00", None, "");
    past.change("/a", "updated", "13:00", Some("a of today"), "");
    past.change("/d", "created", "13:30", Some("d"), "");
    past.source.put("/a", b"a of today");
    past.source.put("/c", b"c");
    past.source.put("/d", b"d");
    past.source.raw("/v/10/a", memento(&past.source.url("/a"), "10:00", "a of ten"));
    past
}

/// What leads to the state of the deleted resource.
fn serve_the_deleted(past: &Past) {
    past.source.raw("/gate/b", redirect("/v/9/b"));
    past.source.raw("/v/9/b", memento(&past.source.url("/b"), "09:00", "b"));
}

/// The list of nine, and whatever is needed for a copy.
async fn changed_since_a_list() -> Past {
    let past = changed().await;
    serve_the_deleted(&past);
    let gate = past.link("timegate", "/gate/b");
    let entries = [past.told("/a", "", Some("a of nine"), ""), past.told("/b", "", Some("b"), &gate)];
    past.list("09:00", &entries);
    past
}

#[tokio::test]
async fn mem060_a_list_that_is_not_later_and_the_changes_up_to_the_moment_make_the_plan() {
    let past = changed_since_a_list().await;
    let report = past.at("11:30").await;
    past.assert_copied(&[("a", "a of ten"), ("b", "b"), ("c", "c")]);
    assert!(report.in_step(), "{report:?}");
    assert_eq!((report.resources, report.in_copy, report.created), (3, Some(3), 3));
    let asked = past.source.asked();
    assert!(!asked.contains(&"/a".to_owned()), "it has changed since: {asked:?}");
    assert!(asked.contains(&"/c".to_owned()), "it is as it was: {asked:?}");
    assert_eq!(past.audit_at("11:30").await.verdict, Verdict::InStep);
    let origins = Origins::open(past.directory.path()).unwrap().unwrap();
    let original = |name: &str| origins.find(Path::new(name)).unwrap().unwrap().uri;
    assert_eq!(["a", "b", "c"].map(original), ["/a", "/b", "/c"].map(|path| past.source.url(path)));

    let again = past.at("11:30").await;
    assert_eq!((again.unchanged, again.bytes_fetched), (3, 0), "nothing is asked for twice");
}

#[tokio::test]
async fn mem060_where_no_list_is_that_old_today_s_is_walked_backwards() {
    let past = changed().await;
    serve_the_deleted(&past);
    past.list(
        "14:00",
        &["/a", "/c", "/d"].map(|path| {
            let body = if path == "/a" { "a of today" } else { &path[1..] };
            past.told(path, "", Some(body), "")
        }),
    );
    // Nothing but its own answer leads to the state of what is gone.
    let gate = format!("Link: <{}>; rel=\"timegate\"\r\n", past.source.url("/gate/b"));
    past.source.raw("/b", status("404 Not Found", &gate));

    let report = past.at("11:30").await;
    past.assert_copied(&[("a", "a of ten"), ("b", "b"), ("c", "c")]);
    assert!(report.in_step(), "{report:?}");
    let audit = past.audit_at("11:30").await;
    assert_eq!((audit.verdict, audit.same, audit.unverifiable), (Verdict::Unproven, 2, 1), "b has no hash");
}

#[tokio::test]
async fn mem060_today_s_list_tells_the_state_that_ended_only_after_it() {
    let mut past = Past::start().await;
    let version = past.link("memento", "/v/a");
    past.change("/a", "updated", "15:00", Some("newer"), "");
    past.list("14:00", &[past.told("/a", "", Some("then"), &version)]);
    past.source.put("/a", b"newer");
    past.source.raw("/v/a", memento(&past.source.url("/a"), "10:00", "then"));
    assert!(past.at("11:30").await.in_step());
    past.assert_copied(&[("a", "then")]);
    assert_eq!(past.audit_at("11:30").await.verdict, Verdict::InStep, "the list has its hash");
}

#[tokio::test]
async fn mem060_an_archived_list_that_is_nearer_comes_before_today_s() {
    let past = changed().await;
    serve_the_deleted(&past);
    let gate = past.link("timegate", "/gate/b");
    let entries = [past.told("/a", "", Some("a of ten"), ""), past.told("/b", "", Some("b"), &gate)];
    past.source.resource_list_of(&time("10:30"), "/old.xml", &entries);
    let old = entry(&past.source.url("/old.xml"), &format!(r#"at="{}""#, time("10:30")));
    let archive = document("urlset", r#"<rs:md capability="resourcelist-archive"/>"#, &[old]);
    past.source.put("/archive.xml", archive.as_bytes());
    let archives = format!(r#"<rs:ln rel="archives" href="{}"/>"#, past.source.url("/archive.xml"));
    let root = format!(r#"{archives}<rs:md capability="resourcelist" at="{}"/>"#, time("14:00"));
    let entries = [past.told("/c", "", Some("c"), "")];
    past.source.put("/resourcelist.xml", document("urlset", &root, &entries).as_bytes());
    // `a` has no link to its version there, and its hash shows that this is it.
    past.source.raw("/a", memento(&past.source.url("/elsewhere"), "08:00", "a of ten"));

    let report = past.at("11:30").await;
    assert_eq!((report.resources, report.failed), (3, 1), "{report:?}");
    assert_eq!(report.failures[0].kind, FailureKind::UnprovenVersion, "it is of another original");
    past.source.raw("/a", memento(&past.source.url("/a"), "08:00", "a of ten"));
    assert!(past.at("11:30").await.in_step());
    past.assert_copied(&[("a", "a of ten"), ("b", "b"), ("c", "c")]);
}

#[tokio::test]
async fn mem060_where_an_archived_list_cannot_be_read_today_s_is_walked_backwards_all_the_same() {
    let past = changed().await;
    serve_the_deleted(&past);
    let gate = format!("Link: <{}>; rel=\"timegate\"\r\n", past.source.url("/gate/b"));
    past.source.raw("/b", status("404 Not Found", &gate));
    let old = ["/gone.xml", "/broken.xml"].map(|path| {
        let at = if path == "/gone.xml" { "10:30" } else { "10:00" };
        entry(&past.source.url(path), &format!(r#"at="{}""#, time(at)))
    });
    past.source.put("/broken.xml", b"<urlset>");
    let archive = document("urlset", r#"<rs:md capability="resourcelist-archive"/>"#, &old);
    past.source.put("/archive.xml", archive.as_bytes());
    let archives = format!(r#"<rs:ln rel="archives" href="{}"/>"#, past.source.url("/archive.xml"));
    let root = format!(r#"{archives}<rs:md capability="resourcelist" at="{}"/>"#, time("14:00"));
    let entries = [("/a", "a of today"), ("/c", "c"), ("/d", "d")];
    let entries = entries.map(|(path, body)| past.told(path, "", Some(body), ""));
    past.source.put("/resourcelist.xml", document("urlset", &root, &entries).as_bytes());
    assert!(past.at("11:30").await.in_step());
    past.assert_copied(&[("a", "a of ten"), ("b", "b"), ("c", "c")]);
}

#[tokio::test]
async fn mem060_what_was_after_the_end_of_the_last_closed_list_is_not_proven() {
    let mut past = changed_since_a_list().await;
    let (from, until) = (time("09:00"), time("14:00"));
    let root = format!(r#"<rs:md capability="changelist" from="{from}" until="{until}"/>"#);
    past.source.put("/changelist.xml", document("urlset", &root, &past.changes).as_bytes());
    for (at, unproven) in [("14:00", None), ("14:30", Some(format!("the lists end at {until}")))] {
        past.directory = tempfile::tempdir().unwrap();
        assert_eq!(past.at(at).await.unproven, unproven, "{at}");
        assert_eq!(past.audit_at(at).await.unproven, unproven, "{at}");
        past.assert_copied(&[("a", "a of today"), ("c", "c"), ("d", "d")]);
    }
}

#[tokio::test]
async fn mem061_where_the_lists_do_not_reach_back_nothing_is_written_and_the_oldest_moment_is_told() {
    let past = changed().await;
    past.source.announce(None);
    past.list("14:00", &[past.told("/a", "", Some("a of today"), "")]);
    let error = past.try_at("08:59").await.unwrap_err();
    assert!(
        matches!(
            &error,
            SyncError::OutOfReach { before: None, after: Some(after), .. } if *after == time("09:00")
        ),
        "{error}"
    );
    past.assert_copied(&[]);
    let (url, new) = (past.source.url("/resourcelist.xml"), tempfile::tempdir().unwrap());
    let (into, at) = (new.path().to_str().unwrap(), time("08:59"));
    let output = run(&["sync", &url, into, "--at", &at]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), 1, "{said}");
    assert!(said.contains("the oldest moment that can be copied is 2024-02-01T14:00:00Z"), "{said}");
    assert_eq!(code(&run(&["audit", &url, into, "--at", &at]).await), 3, "no audit can be made");
    for (command, failed) in [("sync", 1), ("audit", 3)] {
        let output = run(&[command, &url, into, "--at", &at, "--json"]).await;
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((code(&output), &told["after"]), (failed, &time("14:00").into()), "{told}");
        assert!(told["before"].is_null() && told["at"] == at, "{told}");
    }
    assert_eq!(files(new.path()), expected(&[]));
}

#[tokio::test]
async fn mem062_what_cannot_be_had_as_it_was_is_named_and_the_rest_is_copied() {
    let past = changed().await;
    let entries = [past.told("/a", "", Some("a of nine"), ""), past.told("/b", "", Some("b"), "")];
    past.list("09:00", &entries);
    let report = past.at("11:30").await;
    past.assert_copied(&[("a", "a of ten"), ("c", "c")]);
    assert!(!report.in_step() && report.unproven.is_some(), "{report:?}");
    let failures: Vec<_> = report.failures.iter().map(|failure| (&*failure.loc, failure.kind)).collect();
    assert_eq!(failures, [(&*past.source.url("/b"), FailureKind::NoVersion)]);

    let (url, new) = (past.source.url("/"), tempfile::tempdir().unwrap());
    let capabilities = ["resourcelist", "changelist"]
        .map(|name| entry(&past.source.url(&format!("/{name}.xml")), &format!(r#"capability="{name}""#)));
    let root = r#"<rs:md capability="capabilitylist"/>"#;
    past.source.announce(None);
    past.source.put("/capabilitylist.xml", document("urlset", root, &capabilities).as_bytes());
    let (into, at) = (new.path().to_str().unwrap(), time("11:30"));
    let output = run(&["sync", &url, into, "--at", &at]).await;
    assert_eq!(code(&output), 1);
    let said = stdout(&output);
    assert!(said.starts_with("unproven: 1 of 3 resources as of 2024-02-01T11:30:00Z failed "), "{said}");
    assert!(said.contains(&format!("\n  {}: ", past.source.url("/b"))), "{said}");
    let output = run(&["audit", &url, into, "--at", &at, "--json"]).await;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &report["missing"], &report["at"]), (1, &1.into(), &at.into()));
}

#[tokio::test]
async fn mem063_the_directory_belongs_to_its_moment() {
    let past = changed_since_a_list().await;
    assert!(past.at("10:30").await.in_step());
    past.assert_copied(&[("a", "a of ten"), ("b", "b")]);
    let refused = |result: Result<Report, SyncError>| matches!(result, Err(SyncError::OtherMoment { .. }));
    assert!(refused(past.try_at("11:30").await));
    for depth in [Depth::Full, Depth::Changes] {
        let now = synchronise(&client(), &past.offer(), &past.target(), &past.options, depth).await;
        assert!(refused(now), "a run for the present");
    }
    let now = audit(&client(), &past.offer(), &past.target(), &past.options).await;
    assert!(matches!(now, Err(SyncError::OtherMoment { .. })), "{now:?}");
    let into = past.directory.path().to_str().unwrap();
    let shown = run(&["status", "--into", into]).await;
    let said = stdout(&shown);
    assert!(said.contains("\na copy of the Source as it was at 2024-02-01T10:30:00Z\n"), "{said}");
    let shown = run(&["status", "--into", into, "--json"]).await;
    let status: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(status["at"], time("10:30"));
    assert_eq!(past.audit_at("10:30").await.verdict, Verdict::InStep);
    past.assert_copied(&[("a", "a of ten"), ("b", "b")]);
}

#[tokio::test]
async fn mem064_there_is_no_copy_of_the_future() {
    let past = changed_since_a_list().await;
    let at = Some("9999-01-01".parse().unwrap());
    let options = SyncOptions { at, ..past.options.clone() };
    let error = synchronise(&client(), &past.offer(), &past.target(), &options, Depth::Full).await;
    assert!(matches!(error, Err(SyncError::MomentInFuture { .. })), "{error:?}");
    let (url, into) = (past.source.url("/resourcelist.xml"), past.directory.path().to_str().unwrap());
    for wrong in ["9999-01-01", "2024-02-01T10:00:00", "noon"] {
        assert_eq!(code(&run(&["sync", &url, into, "--at", wrong]).await), 2, "{wrong}");
    }
    for flag in ["--incremental", "--since=2024-01-01", "--versions=history", "--prefer=text/html"] {
        let output = run(&["sync", &url, into, "--at", "2024-02-01", flag]).await;
        assert_eq!(code(&output), 2, "{flag}: {output:?}");
    }
    past.assert_copied(&[]);
}

#[tokio::test]
async fn mem064_what_the_configuration_says_for_other_runs_does_not_forbid_a_copy_of_the_past() {
    let past = Past::start().await;
    past.source.announce(None);
    past.list("09:00", &[past.told("/a", "", Some("a"), "")]);
    past.source.put("/a", b"a");
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = "incremental = true\nversions = \"history\"\nprefer = [\"text/html\"]\n";
    std::fs::write(file.path(), settings).unwrap();
    let (url, into) = (past.source.url("/resourcelist.xml"), past.directory.path().to_str().unwrap());
    let config = file.path().to_str().unwrap();
    let at = time("09:00");
    let flags: [&str; 7] = ["sync", &url, into, "--at", &at, "--config", config];
    let output = run(&flags).await;
    assert_eq!(code(&output), 0, "{output:?}");
    past.assert_copied(&[("a", "a")]);
    let output = run(&[&flags[..], &["--incremental"]].concat()).await;
    assert_eq!(code(&output), 2, "{output:?}");
}
