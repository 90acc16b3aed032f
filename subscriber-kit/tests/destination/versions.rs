//! Versions beside a copy: each that changes tell of is kept, and the copy waits for none (MEM-070 to MEM-072).
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::command::{code, run, stdout};
use crate::support::site::ChangingSource;
use crate::support::{Source, client, document, expected, files, ok, status};
use resync_core::digest::{Algorithm, Digest};
use resync_subscriber_kit::sync::{
    ChangesFrom, Depth, FailureKind, Method, Offer, Report, SyncError, SyncOptions, Target, VersionsReport,
    synchronise,
};
use tempfile::TempDir;
use url::Url;

/// A copy with its versions, of a Source that tells of changes.
struct Keeping {
    source: Source,
    folder: TempDir,
    options: SyncOptions,
    told: Vec<String>,
}

impl Keeping {
    /// In step with one resource, `a`.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SyncOptions {
            delete: true,
            retries: 0,
            retry_pause: Duration::from_millis(1),
            versions: Some(folder.path().join("versions")),
            ..SyncOptions::default()
        };
        let keeping = Self { source: Source::start().await, folder, options, told: Vec::new() };
        keeping.list("2026-11-20T09:00:00Z", &[("/a", "1")]);
        keeping.publish();
        let report = keeping.run(Depth::Full).await;
        assert_eq!((report.method, report.in_step()), (Method::Baseline, true));
        keeping.source.asked();
        keeping
    }

    fn list(&self, at: &str, resources: &[(&str, &str)]) {
        let entries = resources.iter().map(|(path, body)| self.source.resource(path, body.as_bytes()));
        self.source.resource_list_of(at, "/resourcelist.xml", &entries.collect::<Vec<_>>());
    }

    fn publish(&self) {
        let root = r#"<rs:md capability="changelist" from="2026-11-20T08:00:00Z"/>"#;
        self.source.put("/changes.xml", document("urlset", root, &self.told).as_bytes());
    }

    /// Tells of a change in this second after ten o'clock. The resource is so, and its version is where `memento` says.
    fn tell(&mut self, second: u32, path: &str, body: &str, memento: Option<&str>) {
        self.source.put(path, body.as_bytes());
        let hash = Digest::of(Algorithm::Sha256, body.as_bytes());
        let facts = format!(r#"hash="{hash}" length="{}""#, body.len());
        let link = memento.map(|memento| {
            self.source.put(memento, body.as_bytes());
            format!(r#"<rs:ln rel="memento" href="{}"/>"#, self.source.url(memento))
        });
        self.told.push(format!(
            r#"<url><loc>{}</loc><rs:md change="updated" datetime="2026-11-20T10:00:{second:02}Z" {facts}/>{}</url>"#,
            self.source.url(path),
            link.unwrap_or_default()
        ));
        self.publish();
    }

    fn tell_deleted(&mut self, second: u32, path: &str) {
        self.source.remove(path);
        let moment = format!(r#"change="deleted" datetime="2026-11-20T10:00:{second:02}Z""#);
        self.told.push(crate::support::entry(&self.source.url(path), &moment));
        self.publish();
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    /// What is kept, by its path.
    fn kept(&self) -> BTreeMap<String, Vec<u8>> {
        files(self.options.versions.as_ref().unwrap())
    }

    async fn try_run(&self, how: Depth) -> Result<Report, SyncError> {
        let url = |path: &str| Url::parse(&self.source.url(path)).unwrap();
        let offer = Offer { change_list: Some(url("/changes.xml")), ..Offer::list(url("/resourcelist.xml")) };
        let target = Target::open(&self.copy(), url("/")).unwrap();
        synchronise(&client(), &offer, &target, &self.options, how).await
    }

    async fn run(&self, how: Depth) -> Report {
        self.try_run(how).await.unwrap()
    }

    /// A run after which the copy is in step, whatever became of the versions.
    async fn follow(&self) -> VersionsReport {
        let report = self.run(Depth::Changes).await;
        assert!(report.in_step() && report.method == Method::Incremental, "{report:?}");
        report.versions.map(|found| *found).unwrap_or_default()
    }

    /// The requests for versions, in order of their paths.
    fn asked(&self) -> Vec<String> {
        let mut asked = self.source.asked();
        asked.retain(|path| path.starts_with("/v/"));
        asked.sort();
        asked
    }
}

/// Kept, waiting, failed, lost.
fn counts(report: &VersionsReport) -> [u64; 4] {
    [report.kept, report.waiting, report.failed, report.lost]
}

#[tokio::test]
async fn mem070_each_version_told_between_two_runs_is_kept_once_and_a_deletion_too() {
    let mut keeping = Keeping::start().await;
    assert!(keeping.kept().is_empty(), "nothing was told before the first run");
    keeping.tell(0, "/a", "2", Some("/v/2"));
    keeping.tell(1, "/a", "3", Some("/v/3"));
    keeping.tell(2, "/b/c", "new", None);
    keeping.tell_deleted(3, "/a");
    assert_eq!(counts(&keeping.follow().await), [4, 0, 0, 0]);
    assert_eq!(files(&keeping.copy()), expected(&[("b/c", "new")]));
    let all = expected(&[
        ("a/20261120100000", "2"),
        ("a/20261120100001", "3"),
        ("a/20261120100003.deleted", ""),
        ("b/c/20261120100002", "new"),
    ]);
    assert_eq!(keeping.kept(), all);
    assert_eq!(keeping.asked(), ["/v/2", "/v/3"], "what the copy has is not asked for");

    // What is there is never changed or removed, whatever becomes of it elsewhere.
    keeping.source.put("/v/2", b"other");
    std::fs::remove_file(keeping.copy().join(".resync-destination/point.json")).unwrap();
    keeping.options.from = Some("2026-11-20T09:59:00Z".parse().unwrap());
    assert_eq!(counts(&keeping.follow().await), [0, 0, 0, 0]);
    assert_eq!((keeping.kept(), keeping.asked()), (all, vec![]));
}

#[tokio::test]
async fn mem070_a_run_that_compares_everything_keeps_the_versions_since_the_last_one_too() {
    let mut keeping = Keeping::start().await;
    keeping.tell(0, "/a", "2", Some("/v/2"));
    keeping.tell(1, "/a", "3", Some("/v/3"));
    keeping.list("2026-11-20T11:00:00Z", &[("/a", "3")]);
    let report = keeping.run(Depth::Full).await;
    assert_eq!((report.method, report.in_step()), (Method::Baseline, true));
    assert_eq!(counts(&report.versions.unwrap()), [2, 0, 0, 0]);
    assert_eq!(keeping.kept(), expected(&[("a/20261120100000", "2"), ("a/20261120100001", "3")]));
}

#[tokio::test]
async fn mem070_mem071_a_version_is_checked_like_any_file_and_the_copy_waits_for_none() {
    let mut keeping = Keeping::start().await;
    keeping.tell(0, "/a", "2", Some("/v/2"));
    keeping.tell(1, "/a", "3", Some("/v/3"));
    keeping.tell(2, "/a", "4", None);
    keeping.source.raw("/v/2", status("503 Service Unavailable", ""));
    keeping.source.put("/v/3", b"x");
    let report = keeping.follow().await;
    assert_eq!(counts(&report), [1, 2, 2, 0]);
    let kinds: Vec<FailureKind> = report.failures.iter().map(|failure| failure.kind).collect();
    assert!(kinds.contains(&FailureKind::Status), "{report:?}");
    assert_eq!(files(&keeping.copy()), expected(&[("a", "4")]));
    assert_eq!(keeping.kept(), expected(&[("a/20261120100002", "4")]));

    // One mends, and the other one is given up after a while.
    keeping.source.put("/v/2", b"2");
    assert_eq!(counts(&keeping.follow().await), [1, 1, 1, 0]);
    assert_eq!(counts(&keeping.follow().await), [0, 0, 0, 1]);
    assert_eq!(counts(&keeping.follow().await), [0, 0, 0, 0]);
    assert_eq!(keeping.kept(), expected(&[("a/20261120100000", "2"), ("a/20261120100002", "4")]));
}

#[tokio::test]
async fn mem071_one_run_fetches_so_many_and_the_next_ones_the_rest() {
    let mut keeping = Keeping::start().await;
    for second in 0..5 {
        let memento = format!("/v/{second}");
        keeping.tell(second, "/a", &format!("version {second}"), Some(memento.as_str()));
    }
    keeping.tell_deleted(9, "/a");
    keeping.options.max_versions = 2;
    for (kept, waiting) in [(3, 3), (2, 1), (1, 0), (0, 0)] {
        assert_eq!(counts(&keeping.follow().await), [kept, waiting, 0, 0]);
        assert!(keeping.asked().len() <= 2);
    }
    assert_eq!(keeping.kept().len(), 6);
}

#[tokio::test]
async fn mem071_versions_wait_while_their_directory_cannot_be_used() {
    let mut keeping = Keeping::start().await;
    let directory = keeping.options.versions.clone().unwrap();
    std::fs::remove_dir_all(&directory).unwrap_or_default();
    std::fs::write(&directory, "in the way").unwrap();
    keeping.tell(0, "/a", "2", Some("/v/2"));
    let report = keeping.follow().await;
    assert_eq!((report.kept, report.lost, report.is_complete()), (0, 0, false));
    std::fs::remove_file(&directory).unwrap();
    assert_eq!(counts(&keeping.follow().await), [1, 0, 0, 0]);
    assert_eq!(keeping.kept(), expected(&[("a/20261120100000", "2")]));
}

#[tokio::test]
async fn mem071_while_nothing_can_be_written_down_to_wait_the_next_run_reads_the_same_changes_again() {
    let mut keeping = Keeping::start().await;
    let queue = keeping.copy().join(".resync-destination/versions");
    let (mut told, mut second) = (Vec::new(), 0);
    for depth in [Depth::Changes, Depth::Full] {
        for body in ["older", "newer"] {
            let (body, memento) = (format!("{body} {second}"), format!("/v/{second}"));
            keeping.tell(second, "/a", &body, Some(memento.as_str()));
            told.push((format!("a/2026112010000{second}"), body));
            second += 1;
        }
        keeping.list("2026-11-20T11:00:00Z", &[("/a", told[told.len() - 1].1.as_str())]);
        std::fs::remove_dir_all(&queue).unwrap_or_default();
        std::fs::write(&queue, "in the way").unwrap();
        let report = keeping.run(depth).await;
        assert!(report.in_step(), "{report:?}");
        let versions = report.versions.unwrap();
        assert!(versions.unproven.is_some() && !versions.is_complete(), "{versions:?}");

        std::fs::remove_file(&queue).unwrap();
        assert_eq!(counts(&keeping.follow().await), [2, 0, 0, 0]);
        let all: Vec<_> = told.iter().map(|(path, body)| (path.as_str(), body.as_str())).collect();
        assert_eq!(keeping.kept(), expected(&all));
        assert_eq!(counts(&keeping.follow().await), [0, 0, 0, 0]);
    }
}

#[tokio::test]
async fn mem070_a_version_that_nobody_says_where_to_find_is_lost_and_the_copy_is_in_step_all_the_same() {
    let mut keeping = Keeping::start().await;
    keeping.tell(0, "/a", "2", None);
    keeping.tell(1, "/a", "3", None);
    let report = keeping.follow().await;
    assert_eq!((counts(&report), report.is_complete()), ([1, 0, 0, 1], false));
    assert_eq!(report.failures[0].kind, FailureKind::NoVersion);
    assert_eq!(keeping.kept(), expected(&[("a/20261120100001", "3")]));
}

#[tokio::test]
async fn mem053_mem056_without_a_hash_only_a_memento_of_that_very_moment_is_kept() {
    let mut keeping = Keeping::start().await;
    let original = keeping.source.url("/a");
    for (second, path) in [(10, "/v/right"), (20, "/v/none"), (30, "/v/nearest")] {
        let moment = format!(r#"change="updated" datetime="2026-11-20T10:00:{second:02}Z""#);
        let link = format!(r#"<rs:ln rel="memento" href="{}"/>"#, keeping.source.url(path));
        keeping.told.push(format!("<url><loc>{original}</loc><rs:md {moment}/>{link}</url>"));
    }
    keeping.publish();
    let of = |second: u32| {
        format!(
            "Memento-Datetime: Fri, 20 Nov 2026 10:00:{second:02} GMT\r\nLink: <{original}>; rel=\"original\"\r\n"
        )
    };
    keeping.source.raw("/v/right", ok(&of(10), b"of ten"));
    keeping.source.raw("/v/none", ok("", b"a page about it"));
    keeping.source.raw("/v/nearest", ok(&of(31), b"of another moment"));
    assert_eq!(keeping.follow().await.kept, 1);
    assert_eq!(keeping.kept(), expected(&[("a/20261120100010", "of ten")]));
}

#[tokio::test]
async fn mem059_versions_at_other_origins_are_asked_for_only_if_these_are_named() {
    let archive = Source::start().await;
    archive.put("/v/2", b"2");
    let mut keeping = Keeping::start().await;
    let link = |keeping: &mut Keeping| {
        let told = keeping.told.pop().unwrap();
        keeping.told.push(told.replace(&keeping.source.url("/v/2"), &archive.url("/v/2")));
        keeping.publish();
    };
    keeping.tell(0, "/a", "2", Some("/v/2"));
    link(&mut keeping);
    keeping.tell(1, "/a", "3", None);
    let report = keeping.follow().await;
    assert_eq!((report.kept, archive.asked().len()), (1, 0), "the newest is in the copy");
    assert!(report.failures.iter().any(|failure| failure.kind == FailureKind::OtherOrigin), "{report:?}");

    let mut keeping = Keeping::start().await;
    keeping.options.authority =
        resync_subscriber_kit::sync::Authority::Origins(vec![Url::parse(&archive.url("/")).unwrap()]);
    keeping.run(Depth::Full).await;
    keeping.tell(0, "/a", "2", Some("/v/2"));
    link(&mut keeping);
    keeping.tell(1, "/a", "3", None);
    assert_eq!(counts(&keeping.follow().await), [2, 0, 0, 0]);
    assert_eq!(archive.asked(), ["/v/2"]);
}

#[tokio::test]
async fn mem072_the_versions_in_a_change_dump_come_from_its_packages() {
    let mut site = ChangingSource::packing(1000).await;
    site.tell(&[("a", Some("1"))]);
    site.list();
    let folder = tempfile::tempdir().unwrap();
    let (copy, versions) = (folder.path().join("copy"), folder.path().join("versions"));
    let options = SyncOptions {
        delete: true,
        retries: 0,
        changes: ChangesFrom::Dump,
        versions: Some(versions.clone()),
        ..SyncOptions::default()
    };
    let target = Target::open(&copy, Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let offer = site.offer();
    let run = async |how| synchronise(&client(), &offer, &target, &options, how).await.unwrap();
    assert!(run(Depth::Full).await.in_step());
    for changes in [[("a", Some("2")), ("b", Some("1"))], [("a", Some("3")), ("b", None)]] {
        site.tell(&changes);
    }
    site.source.asked();
    let report = run(Depth::Changes).await;
    assert!(report.in_step() && report.method == Method::Incremental, "{report:?}");
    assert_eq!(counts(&report.versions.unwrap()), [4, 0, 0, 0]);
    let mut contents = BTreeMap::<String, Vec<String>>::new();
    for (path, bytes) in files(&versions) {
        let (resource, name) = path.split_once('/').unwrap();
        let content = String::from_utf8(bytes).unwrap();
        let told = if name.ends_with(".deleted") { "deleted".to_owned() } else { content };
        contents.entry(resource.to_owned()).or_default().push(told);
    }
    assert_eq!(
        (contents["a"].join(" "), contents["b"].join(" ")),
        ("2 3".to_owned(), "1 deleted".to_owned())
    );
    assert!(site.source.asked().iter().all(|path| path.contains(".xml") || path.contains(".zip")));
}

#[tokio::test]
async fn versions_within_the_copy_are_refused_before_anything_is_done() {
    let mut keeping = Keeping::start().await;
    keeping.options.versions = Some(keeping.copy().join("versions"));
    let error = keeping.try_run(Depth::Full).await.unwrap_err();
    assert!(error.is_configuration() && matches!(error, SyncError::MixedFolders { .. }), "{error}");
}

#[tokio::test]
async fn a_run_without_versions_keeps_none_and_a_dry_run_neither() {
    let mut keeping = Keeping::start().await;
    keeping.tell(0, "/a", "2", Some("/v/2"));
    keeping.options.dry_run = true;
    assert!(keeping.run(Depth::Changes).await.versions.is_none());
    let directory = std::mem::take(&mut keeping.options.versions).unwrap();
    keeping.options.dry_run = false;
    assert!(keeping.run(Depth::Changes).await.versions.is_none());
    assert!(files(&directory).is_empty() && keeping.asked().is_empty());
}

#[tokio::test]
async fn mem070_the_command_says_what_became_of_versions_and_a_lost_one_is_a_failure() {
    let mut keeping = Keeping::start().await;
    keeping.source.announce(None);
    let offered = [("/resourcelist.xml", "resourcelist"), ("/changes.xml", "changelist")];
    let offered = offered.map(|(path, capability)| {
        crate::support::entry(&keeping.source.url(path), &format!(r#"capability="{capability}""#))
    });
    let list = document("urlset", r#"<rs:md capability="capabilitylist"/>"#, &offered);
    keeping.source.put("/capabilitylist.xml", list.as_bytes());
    let (url, place) = (keeping.source.url("/"), tempfile::tempdir().unwrap());
    let [copy, history, within] =
        ["copy", "history", "copy/history"].map(|name| place.path().join(name).display().to_string());
    let sync = async |versions: &str, more: &str| {
        let flags: [&str; 7] = ["sync", &url, &copy, "--incremental", "--versions", versions, more];
        run(&flags[..flags.len() - usize::from(more.is_empty())]).await
    };
    assert_eq!(code(&sync(&within, "").await), 64);
    assert_eq!(code(&sync(&history, "").await), 0);
    keeping.tell(0, "/a", "2", Some("/v/2"));
    keeping.tell(1, "/a", "3", None);
    let said = sync(&history, "").await;
    assert!(code(&said) == 0 && stdout(&said).ends_with("\n  versions: 2 kept\n"), "{}", stdout(&said));
    keeping.tell(2, "/a", "4", None);
    keeping.tell(3, "/a", "5", None);
    let said = sync(&history, "").await;
    assert!(stdout(&said).contains("\n  versions: 1 kept, 1 lost\n"), "{}", stdout(&said));
    assert_eq!(code(&said), 1);
    let said = sync(&history, "--json").await;
    let report: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((code(&said), &report["versions"]["kept"]), (0, &0.into()));
}
