//! A Source whose lists of changes never touch: what changed between two of them is told nowhere but in the next Resource
//! List (RS-197). Nothing of that may be lost silently, and none of it may cost a whole synchronisation per rotation.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::copy::counts;
use crate::support::{Source, client, document, files};
use resync_core::datetime::DateTime;
use resync_subscriber_kit::sync::{Depth, Method, Offer, Report, SyncOptions, Target, synchronise};
use tempfile::TempDir;
use url::Url;

/// The moment at which everything begins; then whatever happens takes a minute.
const BEGIN: i64 = 1_795_000_000_000;

/// A list of changes: from when, until when if it is closed, and what it tells.
struct Part {
    from: DateTime,
    until: Option<DateTime>,
    entries: Vec<String>,
}

impl Part {
    fn path(&self) -> String {
        format!("/changes-{}.xml", self.from.unix_millis())
    }
}

struct Seamed {
    source: Source,
    files: BTreeMap<String, Vec<u8>>,
    parts: Vec<Part>,
    minutes: i64,
    directory: TempDir,
    options: SyncOptions,
    /// Whether the Resource List says which versions it is of.
    names_versions: bool,
    /// The link to the archive, once there is one.
    archives: String,
}

impl Seamed {
    /// With a copy that is in step, from which is removed what goes, or not.
    async fn start(delete: bool) -> Self {
        let options = SyncOptions {
            delete,
            retries: 1,
            retry_pause: Duration::from_millis(5),
            ..SyncOptions::default()
        };
        let source = Source::start().await;
        let (files, directory) = (BTreeMap::new(), tempfile::tempdir().unwrap());
        let mut one = Self {
            source,
            files,
            parts: Vec::new(),
            minutes: 0,
            directory,
            options,
            names_versions: true,
            archives: String::new(),
        };
        one.open();
        for path in ["a", "b", "c"] {
            one.change(path, "0");
        }
        one.list();
        assert!(one.run(Depth::Full).await.in_step());
        one.assert_same();
        one.source.asked();
        one
    }

    fn now(&mut self) -> DateTime {
        self.minutes += 1;
        DateTime::from_unix_millis(BEGIN + self.minutes * 60_000).unwrap()
    }

    /// Without telling anybody.
    fn change(&mut self, path: &str, body: &str) -> String {
        self.files.insert(path.to_owned(), body.into());
        self.source.resource(&format!("/{path}"), body.as_bytes())
    }

    fn tell(&mut self, path: &str, body: &str) {
        let at = self.now();
        let told = format!(r#"<rs:md change="updated" datetime="{at}" "#);
        let entry = self.change(path, body).replace("<rs:md ", &told);
        self.parts.last_mut().unwrap().entries.push(entry);
        self.show();
    }

    /// A new Resource List.
    fn list(&mut self) {
        let at = self.now();
        let entry = |(path, body): (&String, &Vec<u8>)| {
            let path = format!("/{path}");
            let bare = || format!("<url><loc>{}</loc></url>", self.source.url(&path));
            if self.names_versions { self.source.entry(&path, body) } else { bare() }
        };
        let entries: Vec<String> = self.files.iter().map(entry).collect();
        let root = format!(r#"<rs:md capability="resourcelist" at="{at}"/>"#);
        self.source.put("/resourcelist.xml", document("urlset", &root, &entries).as_bytes());
    }

    fn open(&mut self) {
        let from = self.now();
        self.parts.push(Part { from, until: None, entries: Vec::new() });
        self.show();
    }

    /// The open list is closed, and the next one begins a minute later.
    fn rotate(&mut self) {
        let until = self.now();
        self.parts.last_mut().unwrap().until = Some(until);
        self.open();
    }

    /// Withdraws the lists that are closed.
    fn forget(&mut self) {
        for part in self.parts.drain(..self.parts.len() - 1) {
            self.source.remove(&part.path());
        }
        self.show();
    }

    /// Moves the lists that are closed to an archive.
    fn archive(&mut self) {
        let archived: Vec<Part> = self.parts.drain(..self.parts.len() - 1).collect();
        let entry = |part: &Part| {
            let Part { from, until, .. } = part;
            let until = until.unwrap();
            let url = self.source.url(&part.path());
            format!(r#"<url><loc>{url}</loc><rs:md from="{from}" until="{until}"/></url>"#)
        };
        let entries: Vec<String> = archived.iter().map(entry).collect();
        let root = r#"<rs:md capability="changelist-archive"/>"#;
        self.source.put("/archive.xml", document("urlset", root, &entries).as_bytes());
        self.archives = format!(r#"<rs:ln rel="archives" href="{}"/>"#, self.source.url("/archive.xml"));
        self.show();
    }

    fn show(&self) {
        let mut parts = Vec::new();
        for part in &self.parts {
            let (Part { from, until, entries }, path) = (part, part.path());
            let until = until.map(|until| format!(r#" until="{until}""#)).unwrap_or_default();
            let md = format!(r#"<rs:md capability="changelist" from="{from}"{until}/>"#);
            let index = format!(r#"<rs:ln rel="index" href="{}"/>"#, self.source.url("/changelist.xml"));
            self.source.put(&path, document("urlset", &format!("{index}{md}"), entries).as_bytes());
            parts.push(format!("<sitemap><loc>{}</loc>{md}</sitemap>", self.source.url(&path)));
        }
        let (archives, from) = (&self.archives, self.parts[0].from);
        let root = format!(r#"{archives}<rs:md capability="changelist" from="{from}"/>"#);
        self.source.put("/changelist.xml", document("sitemapindex", &root, &parts).as_bytes());
    }

    async fn run(&self, how: Depth) -> Report {
        let url = |path: &str| Url::parse(&self.source.url(path)).unwrap();
        let offer =
            Offer { change_list: Some(url("/changelist.xml")), ..Offer::list(url("/resourcelist.xml")) };
        let target = Target::open(self.directory.path(), url("/")).unwrap();
        synchronise(&client(), &offer, &target, &self.options, how).await.unwrap()
    }

    /// What is told is in the copy, and it is told too whether something may be missing.
    async fn follows(&self, is_certain: bool) -> Report {
        let report = self.run(Depth::Changes).await;
        assert_eq!((report.method, report.failed), (Method::Incremental, 0), "{report:?}");
        let is_told = report.unproven.as_ref().is_some_and(|why| why.contains("between are unknown"));
        assert_eq!((report.in_step(), is_told), (is_certain, !is_certain), "{report:?}");
        report
    }

    /// Whether the Resource List was asked for since the last time.
    fn list_was_asked_for(&self) -> bool {
        self.source.asked().iter().any(|path| path == "/resourcelist.xml")
    }

    fn assert_same(&self) {
        assert_eq!(files(self.directory.path()), self.files);
    }

    /// The Source's habit is known.
    async fn with_a_habit(delete: bool) -> Self {
        let mut one = Self::start(delete).await;
        for _ in 0..3 {
            one.rotate();
            one.follows(false).await;
        }
        one.source.asked();
        one
    }
}

#[tokio::test]
async fn rs197_lists_that_never_touch_cost_no_whole_look_per_rotation_and_are_told_of() {
    for delete in [true, false] {
        let mut source = Seamed::start(delete).await;
        source.tell("a", "1");
        source.follows(true).await;
        assert!(!source.list_was_asked_for());
        for round in 1..8_u64 {
            source.rotate();
            source.tell("b", &round.to_string());
            let report = source.follows(false).await;
            source.assert_same();
            assert_eq!((counts(&report), report.gaps.count), ([0, 1, 0, 0, 0], round));
            assert_eq!(source.list_was_asked_for(), round < 3, "{round}: it rests once this is a habit");
            source.tell("c", &round.to_string());
            assert_eq!(counts(&source.follows(false).await), [0, 1, 0, 0, 0]);
            source.assert_same();
            source.source.asked();
        }
        assert!(source.run(Depth::IfListChanged).await.unproven.is_some());
        assert!(source.list_was_asked_for(), "a closer look is free to ask");
    }
}

#[tokio::test]
async fn rs197_what_changed_between_two_lists_comes_with_the_next_resource_list() {
    for delete in [true, false] {
        let mut source = Seamed::with_a_habit(delete).await;
        source.rotate();
        source.change("c", "untold");
        source.list();
        source.rotate();
        source.tell("a", "told");
        source.follows(false).await;
        assert!(!source.list_was_asked_for());

        source.list();
        let report = source.run(Depth::IfListChanged).await;
        assert_eq!(
            (report.method, counts(&report), report.in_step()),
            (Method::Baseline, [0, 1, 0, 2, 0], true)
        );
        assert_eq!((report.unproven, report.gaps.count), (None, 5));
        source.assert_same();
        source.tell("a", "again");
        assert_eq!(source.follows(true).await.gaps.count, 5);
        source.rotate();
        assert_eq!(source.follows(false).await.gaps.count, 6);
    }
}

#[tokio::test]
async fn rs197_the_resource_list_of_such_a_source_is_asked_for_when_an_hour_has_passed() {
    for delete in [true, false] {
        let mut source = Seamed::with_a_habit(delete).await;
        source.change("c", "untold");
        source.list();
        source.rotate();
        let asked = source.follows(false).await.gaps.list_read_unix_millis.unwrap();
        assert!(!source.list_was_asked_for());
        let point = source.directory.path().join(".resync-destination/point.json");
        let kept = std::fs::read_to_string(&point).unwrap();
        let earlier = kept.replace(&asked.to_string(), &(asked - 3_600_000).to_string());
        assert_ne!(kept, earlier);
        std::fs::write(&point, earlier).unwrap();
        let report = source.run(Depth::Changes).await;
        assert_eq!((report.method, counts(&report)), (Method::Baseline, [0, 1, 0, 2, 0]), "{report:?}");
        source.assert_same();
        assert!(report.unproven.is_some(), "the list is older than the last rotation");
        source.source.asked();
        source.follows(false).await;
        assert!(!source.list_was_asked_for());
    }
}

#[tokio::test]
async fn rs197_an_old_list_undoes_nothing_where_changes_are_withdrawn() {
    for delete in [true, false] {
        let mut source = Seamed::start(delete).await;
        source.tell("a", "1");
        source.follows(true).await;
        source.rotate();
        source.tell("b", "1");
        source.forget();
        // By the list alone `a` would be what it was before.
        source.follows(false).await;
        source.assert_same();
        assert!(source.list_was_asked_for(), "a newer one would have had the first word");
    }
}

#[tokio::test]
async fn rs197_a_list_that_says_nothing_of_versions_tells_what_is_missing_however_often_it_is_read() {
    for delete in [true, false] {
        let mut source = Seamed::start(delete).await;
        source.names_versions = false;
        source.list();
        source.run(Depth::Full).await;
        for round in 1..5 {
            source.rotate();
            source.change("c", &format!("untold {round}"));
            let report = source.run(Depth::Changes).await;
            assert_eq!(
                (report.method, report.updated, report.in_step()),
                (Method::Baseline, 1, false),
                "{report:?}"
            );
            source.assert_same();
        }
    }
}

#[tokio::test]
async fn rs197_what_the_archive_has_is_taken_and_only_the_rest_is_missing() {
    for delete in [true, false] {
        let mut source = Seamed::with_a_habit(delete).await;
        source.follows(false).await;
        source.rotate();
        source.tell("a", "archived");
        source.rotate();
        source.tell("b", "archived");
        source.rotate();
        source.tell("c", "living");
        source.archive();
        let report = source.follows(false).await;
        assert_eq!((counts(&report), report.gaps.count), ([0, 3, 0, 0, 0], 6));
        source.assert_same();
    }
}
