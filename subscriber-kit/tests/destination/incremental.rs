//! Changes since the last time, against a Source whose lists grow, rotate and vanish.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use crate::support::copy::counts;
use crate::support::site::ChangingSource;
use crate::support::{self, client, document, files, status};
use resync_core::datetime::DateTime;
use resync_subscriber_kit::sync::{
    Depth, Method, Report, SyncError, SyncOptions, Target, Verdict, audit, synchronise,
};
use tempfile::TempDir;
use url::Url;

struct Mirror {
    site: ChangingSource,
    directory: TempDir,
    options: SyncOptions,
}

impl Mirror {
    /// In step with these files at first.
    async fn of(entries: usize, files: &[(&str, Option<&str>)]) -> Self {
        let mut site = ChangingSource::start(entries).await;
        site.tell(files);
        site.list();
        let options = SyncOptions {
            delete: true,
            retries: 1,
            retry_pause: Duration::from_millis(5),
            ..SyncOptions::default()
        };
        let mirror = Self { site, directory: tempfile::tempdir().unwrap(), options };
        assert_eq!(mirror.run(Depth::Full).await.method, Method::Baseline);
        mirror.assert_same();
        mirror.site.source.asked();
        mirror
    }

    fn target(&self) -> Target {
        Target::open(self.directory.path(), Url::parse(&self.site.source.url("/")).unwrap()).unwrap()
    }

    async fn try_run(&self, how: Depth) -> Result<Report, SyncError> {
        synchronise(&client(), &self.site.offer(), &self.target(), &self.options, how).await
    }

    async fn run(&self, how: Depth) -> Report {
        self.try_run(how).await.unwrap()
    }

    /// As the Source is now, and by way of the changes alone.
    async fn follows(&self) -> Report {
        let report = self.run(Depth::Changes).await;
        assert_eq!((report.method, report.failed), (Method::Incremental, 0), "{report:?}");
        self.assert_same();
        report
    }

    /// Of what was before nothing is told any more.
    fn begins_now(&self) {
        let root = format!(r#"<rs:md capability="changelist" from="{}"/>"#, self.site.moment());
        self.site.source.put("/changelist.xml", document("urlset", &root, &[]).as_bytes());
    }

    fn assert_same(&self) {
        assert_eq!(files(self.directory.path()), self.site.files);
    }
}

#[tokio::test]
async fn rs191_rs193_only_what_changed_is_asked_for() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b/c", Some("1")), ("d", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("new", Some("1")), ("d", None)]);
    assert_eq!(counts(&mirror.follows().await), [1, 1, 1, 0, 0]);
    let mut asked = mirror.site.source.asked();
    asked.sort();
    assert_eq!(asked, ["/a", "/changelist-1.xml", "/new"], "RS-193: neither index nor Resource List");
    assert_eq!(counts(&mirror.follows().await), [0, 0, 0, 0, 0]);
    assert_eq!(
        mirror.site.source.asked(),
        ["/changelist-1.xml", "/changelist.xml"],
        "there may be another list"
    );
}

#[tokio::test]
async fn a_list_that_begins_while_the_one_before_stays_open_is_found_and_followed() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    let begin = mirror.site.now();
    let source = &mirror.site.source;
    let page = String::from_utf8(source.page("/changelist.xml")).unwrap();
    let root = format!(r#"<rs:md capability="changelist" from="{begin}"/>"#);
    let next =
        format!("<sitemap><loc>{}</loc>{root}</sitemap></sitemapindex>", source.url("/changelist-2.xml"));
    let index = page.split_once("\r\n\r\n").unwrap().1.replace("</sitemapindex>", &next);
    source.put("/changelist.xml", index.as_bytes());
    let mut entries = Vec::new();
    for (path, method) in [("/a", "by the index"), ("/b", "as the open one")] {
        let told = format!(r#"<rs:md change="updated" datetime="{begin}" "#);
        entries.push(source.resource(path, b"2").replace("<rs:md ", &told));
        source.put("/changelist-2.xml", document("urlset", &root, &entries).as_bytes());
        let report = mirror.run(Depth::Changes).await;
        assert_eq!((report.method, counts(&report)), (Method::Incremental, [0, 1, 0, 0, 0]), "{method}");
    }
    assert_eq!(files(mirror.directory.path()), support::expected(&[("a", "2"), ("b", "2")]));
}

#[tokio::test]
async fn a_report_of_changes_says_how_many_resources_there_are() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b/c", Some("1")), ("d", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("new", Some("1")), ("newer", Some("1")), ("d", None)]);
    for _ in ["with changes", "without"] {
        assert_eq!(mirror.follows().await.in_copy, Some(4));
    }
    // One that fails counts once.
    mirror.site.tell(&[("late", Some("1"))]);
    let page = mirror.site.source.page("/late");
    mirror.site.source.raw("/late", status("503 Service Unavailable", ""));
    for _ in ["it is new", "it is known"] {
        let report = mirror.run(Depth::Changes).await;
        assert_eq!((report.failed, report.in_copy), (1, Some(5)));
    }
    mirror.site.source.raw("/late", page);
    assert_eq!(mirror.follows().await.in_copy, Some(5));
    assert_eq!(mirror.run(Depth::Full).await.in_copy, Some(5));
    // One that no later run tries again does not count anew with each of its changes.
    mirror.options.max_resource_bytes = 3;
    for body in ["1234", "12345"] {
        mirror.site.tell(&[("large", Some(body))]);
        let report = mirror.run(Depth::Changes).await;
        assert_eq!((report.failed, report.in_copy), (1, Some(6)), "{report:?}");
    }
    assert_eq!(mirror.run(Depth::Full).await.in_copy, Some(6));
}

#[tokio::test]
async fn a_resource_that_changed_twice_between_two_runs_is_counted_by_its_first_change() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]).await;
    for (path, bodies, left) in [
        ("new", [Some("1"), Some("2")], 4),
        ("brief", [Some("1"), None], 4),
        ("a", [None, Some("2")], 4),
        ("b", [Some("2"), None], 3),
    ] {
        for body in bodies {
            mirror.site.tell(&[(path, body)]);
        }
        assert_eq!(mirror.follows().await.in_copy, Some(left), "{path}");
    }
    assert_eq!(mirror.run(Depth::Full).await.in_copy, Some(3));
    // Its file is kept, but its first change says that it counted.
    mirror.options.delete = false;
    mirror.run(Depth::Full).await;
    for body in [Some("3"), None] {
        mirror.site.tell(&[("a", body)]);
    }
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((report.kept, report.in_copy), (1, Some(2)));
}

#[tokio::test]
async fn a_report_of_changes_says_nothing_of_a_number_that_is_not_certain() {
    let begin = [("a", Some("1")), ("b", Some("1")), ("c", Some("1"))];
    for (change, left) in [(Some("2"), 4), (None, 3)] {
        let mut mirror = Mirror::of(100, &begin).await;
        std::fs::remove_file(mirror.directory.path().join("a")).unwrap();
        mirror.site.tell(&[("a", change)]);
        assert_eq!(mirror.follows().await.in_copy, None, "somebody has removed it");
        mirror.site.tell(&[("new", Some("1"))]);
        assert_eq!(mirror.follows().await.in_copy, None, "nothing is known to add it to");
        assert_eq!(mirror.run(Depth::Full).await.in_copy, Some(left));
    }

    // As long as it was away, nothing tells whether it counted.
    let mut mirror = Mirror::of(100, &begin).await;
    std::fs::remove_file(mirror.directory.path().join("a")).unwrap();
    for body in [None, Some("2")] {
        mirror.site.tell(&[("a", body)]);
    }
    assert_eq!(mirror.follows().await.in_copy, None, "somebody has removed it");
    assert_eq!(mirror.run(Depth::Full).await.in_copy, Some(3));

    let mut mirror = Mirror::of(100, &begin).await;
    mirror.options.delete = false;
    assert_eq!(mirror.run(Depth::Full).await.in_copy, Some(3));
    for (body, left) in [(None, 2), (Some("1"), 3), (None, 2), (Some("2"), 3)] {
        mirror.site.tell(&[("a", body)]);
        let report = mirror.run(Depth::Changes).await;
        assert_eq!((report.method, report.failed, report.in_copy), (Method::Incremental, 0, None));
        assert!(mirror.directory.path().join("a").exists(), "it is kept");
        assert_eq!(mirror.run(Depth::Full).await.in_copy, Some(left));
    }

    let before = mirror.site.now();
    mirror.site.tell(&[("b", Some("2"))]);
    assert_eq!(mirror.run(Depth::Changes).await.in_copy, Some(3));
    mirror.options.from = Some(before);
    assert_eq!(mirror.run(Depth::Changes).await.in_copy, None, "changes are read anew");

    // One without a path here has no file that would show it.
    let root = r#"<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>"#;
    for (change, failed) in [("created", 1), ("deleted", 0)] {
        let mirror = Mirror::of(100, &begin).await;
        let entry = format!(r#"<url><loc>http://other.example/x</loc><rs:md change="{change}"/></url>"#);
        mirror.site.source.put("/changelist-1.xml", document("urlset", root, &[entry]).as_bytes());
        let report = mirror.run(Depth::Changes).await;
        assert_eq!((report.failed, report.in_copy), (failed, None), "{change}");
        assert_eq!(mirror.run(Depth::Full).await.in_copy, None, "{change}: it reads the same changes");
    }
}

#[tokio::test]
async fn rs196_a_baseline_goes_on_from_its_list_to_what_the_source_is_now() {
    let mut mirror = Mirror::of(3, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]).await;
    for round in ["2", "3", "4"] {
        mirror.site.tell(&[("a", Some(round)), (round, Some("new")), ("b", None)]);
    }
    // The list is older than all of that: by it alone `a` would have a wrong hash, and `b` be missing.
    std::fs::remove_dir_all(mirror.directory.path()).unwrap();
    let report = mirror.run(Depth::Full).await;
    assert_eq!((report.method, report.resources, report.failed), (Method::Baseline, 5, 0));
    mirror.assert_same();
    let found = audit(&client(), &mirror.site.offer(), &mirror.target(), &mirror.options).await.unwrap();
    assert_eq!((found.verdict, found.same), (Verdict::InStep, 5), "RS-195: {found:?}");
    mirror.site.tell(&[("e", Some("1"))]);
    mirror.follows().await;
}

#[tokio::test]
async fn rs192_when_a_list_is_closed_its_index_leads_on() {
    let mut mirror = Mirror::of(2, &[("a", Some("0"))]).await;
    for round in 1..8 {
        let body = round.to_string();
        mirror.site.tell(&[("a", Some(&body)), ("b", Some(&body)), (&body, Some("x"))]);
        mirror.follows().await;
    }
    assert!(mirror.site.source.asked().iter().any(|path| path == "/changelist-9.xml"));
}

#[tokio::test]
async fn rs194_without_times_reading_goes_on_after_the_last_entry() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    let source = &mirror.site.source;
    let change = |path: &str, change: &str| {
        format!(r#"<url><loc>{}</loc><rs:md change="{change}"/></url>"#, source.url(path))
    };
    let list = |entries: &[String]| {
        let root = r#"<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>"#;
        source.put("/changelist-1.xml", document("urlset", root, entries).as_bytes());
    };
    let told = [change("/a", "updated"), change("/b", "deleted")];
    source.put("/a", b"2");
    list(&told);
    mirror.run(Depth::Changes).await;
    source.asked();
    source.put("/c", b"3");
    list(&[&told[..], &[change("/c", "created")]].concat());
    let report = mirror.run(Depth::Changes).await;
    assert_eq!(counts(&report), [1, 0, 0, 0, 0]);
    assert_eq!(source.asked(), ["/changelist-1.xml", "/c"]);
    let expected = support::expected(&[("a", "2"), ("c", "3")]);
    mirror.site.files.clear();
    assert_eq!(files(mirror.directory.path()), expected);
}

#[tokio::test]
async fn rs198_of_several_changes_of_a_resource_only_the_last_is_fetched() {
    let mut mirror = Mirror::of(100, &[("a", Some("0")), ("gone", Some("x"))]).await;
    for round in ["1", "2", "3", "4", "5"] {
        mirror.site.tell(&[("a", Some(round)), ("short-lived", Some(round))]);
    }
    mirror.site.tell(&[("short-lived", None), ("gone", None), ("gone", Some("again"))]);
    assert_eq!(counts(&mirror.follows().await), [0, 2, 0, 0, 0]);
    let mut asked = mirror.site.source.asked();
    asked.sort();
    assert_eq!(asked, ["/a", "/changelist-1.xml", "/gone"]);
}

#[tokio::test]
async fn rs197_lost_changes_lead_back_to_the_whole_list() {
    let mut mirror = Mirror::of(2, &[("a", Some("1")), ("b", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("b", None), ("c", Some("1")), ("d", Some("1")), ("e", Some("1"))]);
    mirror.site.list();
    mirror.begins_now();
    mirror.site.source.remove("/changelist-1.xml");
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((report.method, report.failed), (Method::Baseline, 0));
    mirror.assert_same();
}

#[tokio::test]
async fn rs197_what_changed_between_a_list_and_the_oldest_change_is_told_to_be_unknown() {
    let mut mirror = Mirror::of(10, &[("a", Some("1")), ("b", Some("1"))]).await;
    std::fs::write(mirror.directory.path().join("stranger"), "x").unwrap();
    let point = mirror.directory.path().join(".resync-destination/point.json");
    std::fs::remove_file(&point).unwrap();
    mirror.site.now();
    mirror.begins_now();
    for _ in 0..2 {
        let report = mirror.run(Depth::Full).await;
        assert_eq!((counts(&report), report.in_step()), ([0, 0, 0, 2, 0], false), "{report:?}");
        assert!(report.deletion_skipped.unwrap().contains("between"));
        assert!(report.unproven.unwrap().contains("between"));
    }
    mirror.site.source.asked();
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((report.method, report.resources, report.in_step()), (Method::Incremental, 0, false));
    assert!(report.unproven.unwrap().contains("between"), "that is remembered");
    let mut asked = mirror.site.source.asked();
    asked.sort();
    assert_eq!(asked, ["/changelist.xml", "/resourcelist.xml"], "the same list would tell no more");
    std::fs::remove_file(mirror.directory.path().join("stranger")).unwrap();
    let found = audit(&client(), &mirror.site.offer(), &mirror.target(), &mirror.options).await.unwrap();
    assert_eq!((found.verdict, found.same), (Verdict::Unproven, 2), "{found:?}");
    assert!(found.unproven.unwrap().contains("between"));

    mirror.site.list();
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((report.method, report.in_step(), report.unproven), (Method::Baseline, true, None));
    assert!(mirror.follows().await.in_step());
}

#[tokio::test]
async fn rs197_a_list_that_is_missing_in_the_index_leads_back_to_the_whole_list() {
    let mut mirror = Mirror::of(2, &[("a", Some("1")), ("b", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("b", None), ("c", Some("1")), ("d", Some("1")), ("e", Some("1"))]);
    mirror.site.list();
    mirror.site.tell(&[("f", Some("1"))]);
    let page = String::from_utf8(mirror.site.source.page("/changelist.xml")).unwrap();
    let body = page.split_once("\r\n\r\n").unwrap().1;
    let missing = mirror.site.source.url("/changelist-2.xml");
    let pieces: Vec<&str> =
        body.split_inclusive("</sitemap>").filter(|one| !one.contains(&missing)).collect();
    assert!(pieces.concat().len() < body.len(), "{body}");
    mirror.site.source.put("/changelist.xml", pieces.concat().as_bytes());
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((report.method, report.failed), (Method::Baseline, 0));
    mirror.assert_same();
}

#[tokio::test]
async fn a_change_that_is_told_of_the_future_hides_none_that_come_before() {
    let mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    let source = &mirror.site.source;
    source.remove("/changelist-1.xml");
    let soon = || DateTime::from_unix_millis(DateTime::now().unix_millis() + 2000).unwrap().to_string();
    for (path, at) in [("/a", (|| "2099-01-01T00:00:00Z".to_owned()) as fn() -> String), ("/b", soon)] {
        let at = at();
        let metadata = format!(r#"change="updated" datetime="{at}" "#);
        let entry = source.resource(path, b"2").replace("<rs:md ", &format!("<rs:md {metadata}"));
        let root = r#"<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>"#;
        source.put("/changelist.xml", document("urlset", root, &[entry]).as_bytes());
        assert_eq!(counts(&mirror.run(Depth::Changes).await), [0, 1, 0, 0, 0], "{path}");
    }
}

#[tokio::test]
async fn rs197_what_is_archived_is_taken_from_the_archive() {
    let mut mirror = Mirror::of(2, &[("a", Some("1")), ("b", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("b", None), ("c", Some("1")), ("d", Some("1"))]);
    let source = &mirror.site.source;
    let part = |path: &str, span: &str| format!("<url><loc>{}</loc><rs:md {span}/></url>", source.url(path));
    let archive = [
        part("/changelist-1.xml", r#"from="2020-01-01T00:00:00Z" until="2026-12-01T00:00:00Z""#),
        part("/changelist-2.xml", r#"from="2026-12-01T00:00:00Z" until="2027-01-01T00:00:00Z""#),
        part("/changelist-3.xml", r#"from="2027-01-01T00:00:00Z" until="2030-01-01T00:00:00Z""#),
    ];
    let root = r#"<rs:md capability="changelist-archive"/>"#;
    source.put("/archive.xml", document("urlset", root, &archive).as_bytes());
    let root = format!(
        r#"<rs:ln rel="archives" href="{}"/><rs:md capability="changelist" from="2030-01-01T00:00:00Z"/>"#,
        source.url("/archive.xml")
    );
    source.put("/changelist.xml", document("urlset", &root, &[]).as_bytes());
    // Nothing but the archive leads there.
    std::fs::remove_file(mirror.directory.path().join(".resync-destination/point.json")).unwrap();
    mirror.run(Depth::Full).await;
    mirror.follows().await;
}

#[tokio::test]
async fn rs195_what_was_followed_and_is_old_now_is_stale_and_what_was_changed_here_is_corrupt() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("c", Some("2"))]);
    mirror.follows().await;
    mirror.site.tell(&[("a", Some("3"))]);
    for changed in ["b", "c"] {
        std::fs::write(mirror.directory.path().join(changed), "x").unwrap();
    }
    let found = audit(&client(), &mirror.site.offer(), &mirror.target(), &mirror.options).await.unwrap();
    assert_eq!((found.same, found.stale, found.corrupt), (0, 1, 2), "{found:?}");
}

#[tokio::test]
async fn rs201_a_deletion_is_only_done_where_it_is_asked_for() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    mirror.options.delete = false;
    mirror.run(Depth::Full).await;
    mirror.site.tell(&[("a", None), ("never-seen", None), ("b", Some("2"))]);
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((counts(&report), report.kept), ([0, 1, 0, 0, 0], 1));
    assert!(mirror.directory.path().join("a").exists());
}

#[tokio::test]
async fn what_is_filtered_out_by_its_uri_is_not_deleted_with_the_source_s() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("own/b", Some("1")), ("c", Some("1"))]).await;
    mirror.options.filter.exclude = vec!["*/own/*".to_owned()];
    mirror.run(Depth::Full).await;
    mirror.site.tell(&[("own/b", None), ("c", None)]);
    mirror.site.list();
    for (how, deleted) in [(Depth::Changes, 1), (Depth::Full, 0)] {
        let report = mirror.run(how).await;
        assert_eq!((report.deleted, report.in_step()), (deleted, true), "{how:?}: {report:?}");
        assert_eq!(
            files(mirror.directory.path()),
            support::expected(&[("a", "1"), ("own/b", "1")]),
            "{how:?}"
        );
    }
    let found = audit(&client(), &mirror.site.offer(), &mirror.target(), &mirror.options).await.unwrap();
    assert_eq!((found.verdict, found.extra), (Verdict::InStep, 0), "{found:?}");
}

#[tokio::test]
async fn rs201_a_change_list_that_cannot_be_read_changes_nothing() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    let before = files(mirror.directory.path());
    mirror.site.tell(&[("a", None), ("b", Some("2"))]);
    let whole = {
        let source = &mirror.site.source;
        let root = r#"<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>"#;
        let gone = format!(r#"<url><loc>{}</loc><rs:md change="deleted"/></url>"#, source.url("/a"));
        document("urlset", root, &[gone])
    };
    for broken in [&whole.as_bytes()[..whole.len() - 5], b"<html>".as_slice(), b""] {
        mirror.site.source.put("/changelist-1.xml", broken);
        assert!(mirror.try_run(Depth::Changes).await.is_err());
    }
    assert_eq!(files(mirror.directory.path()), before);
}

#[tokio::test]
async fn rs200_an_open_change_list_that_moved_to_another_origin_changes_nothing() {
    let mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    let (source, other) = (&mirror.site.source, support::Source::start().await);
    let root = r#"<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>"#;
    let gone = format!(r#"<url><loc>{}</loc><rs:md change="deleted"/></url>"#, source.url("/a"));
    other.put("/changes.xml", document("urlset", root, &[gone]).as_bytes());
    let moved = format!("Location: {}\r\n", other.url("/changes.xml"));
    source.raw("/changelist-1.xml", status("302 Found", &moved));
    let result = mirror.try_run(Depth::Changes).await;
    assert!(matches!(result, Err(SyncError::ForeignComponent { .. })), "{result:?}");
    assert_eq!(other.asked(), ["/changes.xml"], "only this tells where it is");
    mirror.assert_same();
}

#[tokio::test]
async fn rs197_changes_that_cannot_be_read_keep_nobody_from_the_list_and_delete_nothing() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("b", None)]);
    let changes = mirror.site.source.page("/changelist-1.xml");
    let broken = support::ok("", &changes[changes.len() / 2..]);
    for (answer, how) in [
        (broken, Depth::IfListChanged),
        (status("404 Not Found", ""), Depth::IfOutOfStep),
        (support::ok("", b"<html>"), Depth::Full),
    ] {
        mirror.site.source.raw("/changelist-1.xml", answer);
        mirror.site.source.raw("/changelist.xml", support::ok("", b""));
        mirror.site.source.put("/a", b"1");
        mirror.site.source.put("/b", b"1");
        let report = mirror.run(how).await;
        assert_eq!((report.method, counts(&report)), (Method::Baseline, [0, 0, 0, 2, 0]), "{how:?}");
        assert!(report.unproven.is_some() && report.deletion_skipped.is_some(), "{how:?}: {report:?}");
    }
    // Who is away is asked again, and changes nothing.
    mirror.site.source.raw("/changelist.xml", status("503 Service Unavailable", ""));
    assert!(mirror.try_run(Depth::Full).await.is_err());
}

#[tokio::test]
async fn rs192_where_the_index_of_a_closed_list_is_broken_the_capability_list_s_leads_on() {
    let mut mirror = Mirror::of(2, &[("a", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("b", Some("1")), ("c", Some("1"))]);
    let page = String::from_utf8(mirror.site.source.page("/changelist-1.xml")).unwrap();
    let body = page.split_once("\r\n\r\n").unwrap().1;
    let index = mirror.site.source.url("/changelist.xml");
    mirror.site.source.put("/changelist-1.xml", body.replace(&index, &format!("{index}.old")).as_bytes());
    mirror.follows().await;
    let asked = mirror.site.source.asked();
    assert!(asked.contains(&"/changelist.xml.old".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn the_lists_of_changes_are_bounded_too() {
    let mut mirror = Mirror::of(2, &[("a", Some("1"))]).await;
    for body in ["2", "3", "4", "5", "6", "7"] {
        mirror.site.tell(&[("a", Some(body)), ("b", Some(body))]);
    }
    let whole = mirror.options.clone();
    for how in [Depth::Changes, Depth::Full] {
        mirror.options = SyncOptions { max_list_bytes: 2000, ..whole.clone() };
        let result = mirror.try_run(how).await;
        assert!(matches!(result, Err(SyncError::ListsTooLarge { .. })), "{how:?}: {result:?}");
        mirror.options = SyncOptions { max_parts: 3, ..whole.clone() };
        let result = mirror.try_run(how).await;
        assert!(matches!(result, Err(SyncError::TooManyParts { .. })), "{how:?}: {result:?}");
    }
    mirror.options = whole;
    mirror.follows().await;
}

#[tokio::test]
async fn rs199_what_fails_is_tried_again_by_the_next_run_until_it_is_right() {
    let mut mirror = Mirror::of(100, &[("a", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2")), ("b", Some("1"))]);
    mirror.site.source.put("/a", b"not what was told");
    let report = mirror.run(Depth::Changes).await;
    assert_eq!((counts(&report), report.retry_may_help), ([1, 0, 0, 0, 1], true));
    assert_eq!(std::fs::read(mirror.directory.path().join("a")).unwrap(), b"1");
    mirror.site.source.put("/a", b"2");
    assert_eq!(counts(&mirror.follows().await), [0, 1, 0, 0, 0]);
    assert_eq!(counts(&mirror.follows().await), [0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn rs199_what_changes_while_it_is_fetched_is_found_in_the_change_list_by_the_same_run() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    mirror.site.tell(&[("a", Some("2"))]);
    let source = mirror.site.source.clone();
    // By the time that it is asked for it has changed again, and the Change List will tell of that.
    let before = source.page("/changelist-1.xml");
    mirror.site.tell(&[("a", Some("3")), ("b", Some("2"))]);
    let after = source.page("/changelist-1.xml");
    source.raw("/changelist-1.xml", before);
    source.raw_after("/a", "/changelist-1.xml", after);
    let report = mirror.follows().await;
    assert_eq!(counts(&report), [0, 2, 0, 0, 0]);
    assert_eq!(report.resources, 2);
}

#[tokio::test]
async fn rs199_what_was_told_too_early_is_asked_for_again_until_it_is_there() {
    let mut mirror = Mirror::of(100, &[("a", Some("1"))]).await;
    for (told, answer) in [("b", "404 Not Found"), ("c", "403 Forbidden"), ("d", "410 Gone")] {
        mirror.site.tell(&[(told, Some("1"))]);
        mirror.site.source.raw(&format!("/{told}"), status(answer, ""));
    }
    for _ in 0..2 {
        let report = mirror.run(Depth::Changes).await;
        assert_eq!((counts(&report), report.in_step()), ([0, 0, 0, 0, 3], false), "{report:?}");
    }
    // The baseline does not forget them either.
    assert_eq!(mirror.run(Depth::Full).await.failed, 3);
    assert_eq!(mirror.run(Depth::Changes).await.failed, 3);
    for path in ["/b", "/c", "/d"] {
        mirror.site.source.put(path, b"1");
    }
    assert_eq!(counts(&mirror.follows().await), [3, 0, 0, 0, 0]);
    assert_eq!(counts(&mirror.follows().await), [0, 0, 0, 0, 0]);
}

/// So deep that a path in it may become longer than the system takes, and such a path of a resource.
#[cfg(target_os = "linux")]
fn too_deep(folder: &std::path::Path) -> (TempDir, String) {
    let deep = (0..15).fold(folder.to_owned(), |path, _| path.join("d".repeat(240)));
    std::fs::create_dir_all(&deep).unwrap();
    (tempfile::tempdir_in(deep).unwrap(), format!("{0}/{0}", "x".repeat(250)))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_cannot_be_read_is_not_said_to_be_unwritable() {
    let mut mirror = Mirror::of(100, &[("a", Some("1"))]).await;
    let (directory, too_deep) = too_deep(mirror.directory.path());
    let target = Target::open(directory.path(), Url::parse(&mirror.site.source.url("/")).unwrap()).unwrap();
    mirror.site.tell(&[(&too_deep, Some("1"))]);
    let (client, offer) = (client(), mirror.site.offer());
    let report = synchronise(&client, &offer, &target, &mirror.options, Depth::Full).await.unwrap();
    let found = audit(&client, &offer, &target, &mirror.options).await.unwrap();
    for failures in [&report.failures, &found.findings] {
        let [failure] = failures.as_slice() else { panic!("{failures:?}") };
        assert_eq!(failure.kind, resync_subscriber_kit::sync::FailureKind::CannotRead, "{failure:?}");
        assert!(failure.cause.ends_with("; use a directory with a shorter path"), "{failure:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_cannot_be_removed_is_named_and_remembered_and_keeps_nothing_else() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    let (directory, too_deep) = too_deep(mirror.directory.path());
    let target = Target::open(directory.path(), Url::parse(&mirror.site.source.url("/")).unwrap()).unwrap();
    let run = async |mirror: &Mirror, how| {
        synchronise(&client(), &mirror.site.offer(), &target, &mirror.options, how).await.unwrap()
    };
    assert!(run(&mirror, Depth::Full).await.in_step());
    mirror.site.tell(&[(&too_deep, None), ("a", None), ("b", Some("2"))]);
    for (round, expected) in [[0, 1, 1, 0, 0], [0, 0, 0, 0, 0]].into_iter().enumerate() {
        let report = run(&mirror, Depth::Changes).await;
        assert_eq!((counts(&report), report.not_deleted), (expected, 1), "{round}: {report:?}");
        assert!(!report.in_step() && report.failures[0].loc.ends_with(&too_deep));
    }
    assert_eq!(files(directory.path()), mirror.site.files);
}

#[tokio::test]
async fn rs202_a_dry_run_tells_what_would_be_done_and_does_nothing() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b", Some("1"))]).await;
    let before = files(mirror.directory.path());
    mirror.site.tell(&[("a", Some("2")), ("b", None), ("c", Some("1"))]);
    mirror.site.source.asked();
    mirror.options.dry_run = true;
    for how in [Depth::Changes, Depth::Full] {
        assert_eq!(counts(&mirror.run(how).await)[..3], [1, 1, 1], "{how:?}");
    }
    assert_eq!(files(mirror.directory.path()), before);
    assert!(mirror.site.source.asked().iter().all(|path| path.contains(".xml")), "nothing was fetched");
    mirror.options.dry_run = false;
    assert_eq!(counts(&mirror.follows().await), [1, 1, 1, 0, 0]);
}

#[tokio::test]
async fn rs191_a_run_that_was_killed_before_it_kept_its_point_hides_no_changes() {
    let mut mirror = Mirror::of(100, &[("a", Some("1"))]).await;
    std::fs::remove_file(mirror.directory.path().join(".resync-destination/point.json")).unwrap();
    mirror.site.tell(&[("a", Some("2")), ("b", Some("1"))]);
    assert_eq!(counts(&mirror.run(Depth::Changes).await), [1, 1, 0, 0, 0]);
    mirror.assert_same();
    assert_eq!(mirror.follows().await.resources, 0);
}

#[tokio::test]
async fn a_resource_becomes_a_folder_and_a_folder_a_resource() {
    let mut mirror = Mirror::of(100, &[("a", Some("1")), ("b/c", Some("1")), ("b/d", Some("1"))]).await;
    mirror.site.tell(&[("a", None), ("a/x", Some("1")), ("b/c", None), ("b/d", None), ("b", Some("1"))]);
    mirror.follows().await;
    mirror.site.tell(&[("a/x", None), ("a", Some("2")), ("b", None), ("b/c", Some("2"))]);
    std::fs::remove_file(mirror.directory.path().join(".resync-destination/point.json")).unwrap();
    mirror.run(Depth::Full).await;
    mirror.assert_same();
}

/// Whatever a Source does and in whatever steps it is followed, the copy is the same in the end.
#[tokio::test]
async fn rs191_a_copy_that_follows_is_the_same_as_one_made_anew() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut mirror = Mirror::of(random.usize(1..8), &[("f0", Some("begin"))]).await;
        for step in 0..12 {
            for _ in 0..random.usize(0..4) {
                let path = format!("f{}", random.u8(1..6));
                let body = random.u32(..).to_string();
                let is_there = mirror.site.files.contains_key(&path);
                let body = (!is_there || random.u8(0..3) > 0).then_some(body.as_str());
                mirror.site.tell(&[(path.as_str(), body)]);
            }
            if random.u8(0..4) == 0 {
                mirror.site.list();
            }
            let how = *random
                .choice(&[Depth::Changes, Depth::Changes, Depth::IfListChanged, Depth::IfOutOfStep])
                .unwrap();
            let result = mirror.try_run(how).await;
            let report = result.unwrap_or_else(|error| panic!("seed {seed}, step {step}, {how:?}: {error}"));
            assert_eq!(report.failed, 0, "seed {seed}, step {step}, {how:?}: {report:?}");
            assert_eq!(
                files(mirror.directory.path()),
                mirror.site.files,
                "seed {seed}, step {step}, {how:?}: {report:?}"
            );
        }
    }
}
