//! What a run does not do twice, and how much it does at most.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::copy::{Copy, counts};
use crate::support::site::ChangingSource;
use crate::support::{self, Message, client, document, files, ok, on_this_machine, serve, status};
use resync_core::datetime::DateTime;
use resync_subscriber_kit::fetch::{Client, ClientOptions};
use resync_subscriber_kit::sync::{Depth, Method, Offer, SyncError, SyncOptions, Target, synchronise};
use tokio::io::AsyncWriteExt as _;
use url::Url;

#[tokio::test]
async fn a_file_that_did_not_change_is_not_read_again_and_one_that_did_is() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "one"), ("/b", "two")]);
    let report = copy.sync().await;
    assert_eq!((report.created, report.bytes_hashed), (2, 0));
    let report = copy.sync().await;
    assert_eq!((report.unchanged, report.bytes_hashed), (2, 0), "what was downloaded is known");

    // As long and with the same time as before, as a bad tool leaves it.
    let file = copy.path().join("a");
    let time = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::write(&file, "eno").unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    assert_eq!(copy.sync().await.updated, 1);
    assert_eq!(std::fs::read(&file).unwrap(), b"one");
    assert!(copy.audit().await.in_step());
}

#[tokio::test]
async fn rs096_a_list_that_is_still_the_same_costs_one_question() {
    let copy = Copy::start().await;
    copy.part("/part1.xml", "2026-11-20T09:00:00Z", &[("/a", "a")]);
    copy.index_of("2026-11-20T09:00:00Z", &["/part1.xml"]);
    copy.synchronise(Depth::IfOutOfStep).await;
    copy.source.asked();
    let report = copy.synchronise(Depth::IfOutOfStep).await;
    assert_eq!((report.resources, counts(&report)), (1, [0, 0, 0, 1, 0]));
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"], "no list under the index");

    std::fs::remove_file(copy.path().join("a")).unwrap();
    assert_eq!(copy.synchronise(Depth::Full).await.created, 1, "a closer look mends what happened here");

    copy.part("/part1.xml", "2026-11-20T10:00:00Z", &[("/a", "b")]);
    copy.index_of("2026-11-20T10:00:00Z", &["/part1.xml"]);
    assert_eq!(copy.synchronise(Depth::IfOutOfStep).await.updated, 1);
}

#[tokio::test]
async fn an_index_that_does_not_say_when_it_is_true_is_always_looked_into() {
    let copy = Copy::start().await;
    copy.part("/part1.xml", "", &[("/a", "1")]);
    copy.index_of("", &["/part1.xml"]);
    copy.synchronise(Depth::IfListChanged).await;
    copy.part("/part1.xml", "", &[("/a", "2")]);
    assert_eq!(copy.synchronise(Depth::IfListChanged).await.updated, 1);
}

#[tokio::test]
async fn rs096_a_source_with_validators_is_asked_with_a_condition() {
    let unchanged = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&unchanged);
    let source = serve(move |request| {
        if request.target() != "/rl.xml" {
            return ok("", b"a");
        }
        if request.header("if-none-match") == Some("\"v1\"") {
            counted.fetch_add(1, Ordering::Relaxed);
            return b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n".to_vec();
        }
        let root = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
        let list = document("urlset", root, &[support::entry("/a", r#"length="1""#)]);
        ok("ETag: \"v1\"\r\n", list.as_bytes())
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let url = |path: &str| Url::parse(&format!("http://{source}{path}")).unwrap();
    let target = Target::open(directory.path(), url("/")).unwrap();
    let copy = Copy::start().await;
    for _ in 0..3 {
        let report =
            synchronise(&client(), &Offer::list(url("/rl.xml")), &target, &copy.options, Depth::IfOutOfStep)
                .await;
        assert!(report.unwrap().in_step());
    }
    assert_eq!(unchanged.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_a_list_says_nothing_of_is_asked_for_with_a_condition() {
    let (sent, version) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
    let (counted, now) = (Arc::clone(&sent), Arc::clone(&version));
    let plain = Plain::start(move |request| {
        let version = format!("\"{}\"", now.load(Ordering::SeqCst));
        if request.header("if-none-match") == Some(&version) {
            return NOT_MODIFIED.to_vec();
        }
        counted.fetch_add(1, Ordering::SeqCst);
        ok(&format!("ETag: {version}\r\n"), version.as_bytes())
    })
    .await;
    let sync = async || (plain.sync().await, sent.load(Ordering::SeqCst));
    assert_eq!(sync().await, ([1, 0, 0, 0, 0], 1));
    for _ in 0..2 {
        assert_eq!(sync().await, ([0, 0, 0, 1, 0], 1), "it is still the same");
    }
    version.store(2, Ordering::SeqCst);
    assert_eq!(sync().await, ([0, 1, 0, 0, 0], 2));
    std::fs::write(plain.directory.path().join("a"), "changed here").unwrap();
    assert_eq!(sync().await, ([0, 1, 0, 0, 0], 3), "the file is not the one that was sent");
}

#[tokio::test]
async fn a_resource_that_changes_twice_in_one_second_is_fetched_twice() {
    let seconds = Arc::new(AtomicUsize::new(37));
    let clock = Arc::clone(&seconds);
    let plain = Plain::start(move |request| {
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
        if request.header("if-modified-since") == Some(modified) {
            return NOT_MODIFIED.to_vec();
        }
        let second = clock.load(Ordering::SeqCst);
        let headers = format!("Last-Modified: {modified}\r\nDate: Sun, 06 Nov 1994 08:49:{second} GMT\r\n");
        ok(&headers, if second == 37 { &b"first"[..] } else { b"second" })
    })
    .await;
    assert_eq!(plain.sync().await, [1, 0, 0, 0, 0]);
    seconds.store(47, Ordering::SeqCst);
    assert_eq!(
        plain.sync().await,
        [0, 1, 0, 0, 0],
        "what was sent in the second of its modification proves nothing"
    );
    assert_eq!(std::fs::read(plain.directory.path().join("a")).unwrap(), b"second");
    assert_eq!(plain.sync().await, [0, 0, 0, 1, 0]);
}

const NOT_MODIFIED: &[u8] = b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n";

/// A copy of one resource, `/a`, of which its list says nothing but that it is there.
struct Plain {
    directory: tempfile::TempDir,
    target: Target,
    offer: Offer,
}

impl Plain {
    /// With a server that answers so when it is asked for the resource.
    async fn start(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let source = serve(move |request| match request.target() {
            "/sitemap.xml" => {
                ok("", document("urlset", "", &["<url><loc>/a</loc></url>".to_owned()]).as_bytes())
            }
            _ => answer(request),
        })
        .await;
        let url = |path: &str| Url::parse(&format!("http://{source}{path}")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let target = Target::open(directory.path(), url("/")).unwrap();
        Self { directory, target, offer: Offer::list(url("/sitemap.xml")) }
    }

    async fn sync(&self) -> [u64; 5] {
        let report =
            synchronise(&client(), &self.offer, &self.target, &SyncOptions::default(), Depth::Full).await;
        counts(&report.unwrap())
    }
}

#[tokio::test]
async fn what_cannot_mend_by_itself_is_not_tried_again_before_there_is_a_new_list() {
    let copy = Copy::start().await;
    let missing = copy.source.entry("/missing", b"x");
    let refused = copy.source.entry("/x%2fy", b"x");
    copy.source.resource_list("/resourcelist.xml", &[missing, refused, copy.source.resource("/a", b"a")]);
    let first = copy.synchronise(Depth::Full).await;
    assert_eq!((first.failed, first.retry_may_help), (2, false));
    copy.source.asked();
    let again = copy.synchronise(Depth::IfListChanged).await;
    assert_eq!((again.failed, again.failures.len(), again.in_step()), (2, 2, false), "and still told");
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"]);
    copy.synchronise(Depth::IfOutOfStep).await;
    assert!(copy.source.asked().contains(&"/missing".to_owned()), "a notification asks for another try");

    copy.source.raw("/missing", status("503 Service Unavailable", ""));
    assert!(copy.synchronise(Depth::Full).await.retry_may_help);
    copy.source.asked();
    copy.synchronise(Depth::IfListChanged).await;
    assert!(copy.source.asked().contains(&"/missing".to_owned()), "what may mend is tried again");
}

#[tokio::test]
async fn one_run_has_bounds_and_names_the_one_it_met() {
    let mut copy = Copy::start().await;
    copy.list_of(&[("/a", "12345"), ("/b", "12345"), ("/c", "12345")]);
    let whole = copy.options.clone();

    copy.options.max_resources = 2;
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::TooManyResources { max: 2 })));
    assert!(files(copy.path()).is_empty());

    copy.options = whole.clone();
    copy.options.parallel = 1;
    copy.options.max_run_bytes = 12;
    let report = copy.try_sync(true).await.unwrap();
    assert_eq!((report.created, report.failed, report.retry_may_help), (2, 1, true), "the next run goes on");
    assert_eq!(copy.try_sync(true).await.unwrap().created, 1);

    copy.part("/part1.xml", "2026-11-20T09:00:00Z", &[("/a", "12345")]);
    copy.index_of("2026-11-20T09:00:00Z", &["/part1.xml"]);
    copy.options = whole.clone();
    copy.options.max_list_bytes = 600;
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::ListsTooLarge { .. })));

    copy.part("/part2.xml", "2026-11-20T09:00:00Z", &[("/b", "12345")]);
    copy.index_of("2026-11-20T09:00:00Z", &["/part1.xml", "/part2.xml"]);
    copy.options = whole.clone();
    copy.options.max_parts = 1;
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::TooManyParts { max: 1, .. })));

    copy.options = whole;
    copy.options.max_run_time = Duration::ZERO;
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::TooLong { .. })));
}

#[tokio::test]
async fn each_folder_that_resources_need_counts_as_a_resource() {
    let mut copy = Copy::start().await;
    copy.list_of(&[("/d/e/f/a", "12345"), ("/d/e/f/b", "12345")]);
    copy.options.max_resources = 4;
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::TooManyResources { max: 4 })));
    copy.options.max_resources = 5;
    assert_eq!(copy.sync().await.created, 2, "folders that they share count once");
}

#[tokio::test]
async fn a_compressed_list_counts_as_long_as_it_is() {
    let mut copy = Copy::start().await;
    let entries: Vec<String> =
        (0..400).map(|number| copy.source.entry(&format!("/{number}"), b"x")).collect();
    copy.source.resource_list("/resourcelist.xml", &entries);
    let plain = copy.source.page("/resourcelist.xml");
    let body = plain.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut gzip, &plain[body..]).unwrap();
    let gzip = gzip.finish().unwrap();
    let max = 2 * gzip.len() as u64;
    copy.source.put("/resourcelist.xml", &gzip);
    copy.options.max_list_bytes = max;
    let result = copy.try_sync(false).await;
    assert!(matches!(result, Err(SyncError::ListsTooLarge { max: told, .. }) if told == max), "{result:?}");
}

#[tokio::test]
async fn a_server_that_drips_is_given_up() {
    let drip = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = drip.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = drip.accept().await {
            tokio::spawn(async move {
                tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await.unwrap();
                let mut next = &b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"[..];
                while stream.write_all(next).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    next = b"x";
                }
            });
        }
    });
    let options =
        ClientOptions { idle_timeout: Duration::from_millis(300), min_rate: 10_000, ..on_this_machine() };
    let directory = tempfile::tempdir().unwrap();
    let list = Url::parse(&format!("http://{address}/rl.xml")).unwrap();
    let target = Target::open(directory.path(), list.clone()).unwrap();
    let mut copy = Copy::start().await;
    copy.options.retries = 0;
    let result =
        synchronise(&Client::new(options).unwrap(), &Offer::list(list), &target, &copy.options, Depth::Full)
            .await;
    let error = result.unwrap_err().to_string();
    assert!(error.contains("less than 9.8 KiB per second"), "{error}");
}

#[tokio::test]
async fn a_dead_link_is_asked_for_ever_more_seldom_and_named_by_every_run() {
    let mut site = ChangingSource::start(100).await;
    site.tell(&[("a", Some("1"))]);
    site.list();
    let directory = tempfile::tempdir().unwrap();
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let run = async |site: &ChangingSource, how| {
        synchronise(&client(), &site.offer(), &target, &SyncOptions::default(), how).await.unwrap()
    };
    run(&site, Depth::Full).await;
    site.tell(&[("dead", Some("1"))]);
    site.source.raw("/dead", status("404 Not Found", ""));
    site.source.asked();
    let mut asked = Vec::new();
    for number in 1..=8 {
        let report = run(&site, Depth::Changes).await;
        assert_eq!((report.method, report.resources, report.failed), (Method::Incremental, 1, 1), "{number}");
        assert!(report.failures[0].loc.ends_with("/dead"), "{number}: {report:?}");
        if site.source.asked().contains(&"/dead".to_owned()) {
            asked.push(number);
        }
    }
    assert_eq!(asked, [1, 2, 3, 4], "then it rests for a minute");
    let point = directory.path().join(".resync-destination/point.json");
    let mut left: serde_json::Value = serde_json::from_slice(&std::fs::read(&point).unwrap()).unwrap();
    left["retries"][0]["paused_until_unix_millis"] =
        (left["retries"][0]["paused_until_unix_millis"].as_i64().unwrap() - 60_000).into();
    std::fs::write(&point, left.to_string()).unwrap();
    assert_eq!(run(&site, Depth::Changes).await.failed, 1);
    assert!(site.source.asked().contains(&"/dead".to_owned()), "the minute is over");
    run(&site, Depth::Changes).await;
    assert!(!site.source.asked().contains(&"/dead".to_owned()), "now it rests for two");

    site.tell(&[("dead", Some("2"))]);
    site.source.raw("/dead", status("404 Not Found", ""));
    assert_eq!(counts(&run(&site, Depth::Changes).await), [0, 0, 0, 0, 1], "told of a little too early");
    site.source.put("/dead", b"2");
    assert_eq!(counts(&run(&site, Depth::Changes).await), [1, 0, 0, 0, 0], "news of it ends the rest");
    assert_eq!(files(directory.path()), site.files);
}

#[tokio::test]
async fn rs191_a_copy_from_elsewhere_goes_on_from_the_time_that_is_told() {
    let mut site = ChangingSource::start(100).await;
    site.tell(&[("a", Some("1")), ("b", Some("1"))]);
    site.list();
    let directory = tempfile::tempdir().unwrap();
    for (path, body) in &site.files {
        std::fs::write(directory.path().join(path), body).unwrap();
    }
    let options = SyncOptions { from: Some(site.now()), delete: true, adopt: true, ..SyncOptions::default() };
    site.tell(&[("a", Some("2")), ("b", None)]);
    site.source.asked();
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let report = synchronise(&client(), &site.offer(), &target, &options, Depth::Changes).await.unwrap();
    assert_eq!((report.method, counts(&report)), (Method::Incremental, [0, 1, 1, 0, 0]));
    assert!(!site.source.asked().contains(&"/resourcelist.xml".to_owned()));
    assert_eq!(files(directory.path()), site.files);
    let options = SyncOptions { delete: true, ..SyncOptions::default() };
    let report = synchronise(&client(), &site.offer(), &target, &options, Depth::Changes).await.unwrap();
    assert_eq!((report.method, report.resources), (Method::Incremental, 0), "that is remembered");

    site.tell(&[("c", Some("1"))]);
    site.source.raw("/c", status("503 Service Unavailable", ""));
    assert_eq!(
        synchronise(&client(), &site.offer(), &target, &options, Depth::Changes).await.unwrap().failed,
        1
    );
    site.source.put("/c", b"1");
    let from = |from| SyncOptions { from: Some(from), ..options.clone() };
    let to_come = from(DateTime::from_unix_millis(DateTime::now().unix_millis() + 60_000).unwrap());
    let refused = synchronise(&client(), &site.offer(), &target, &to_come, Depth::Changes).await;
    assert!(matches!(refused, Err(SyncError::InFuture { .. })), "{refused:?}");
    let since_then = from(site.now());
    let report = synchronise(&client(), &site.offer(), &target, &since_then, Depth::Changes).await.unwrap();
    assert_eq!(counts(&report), [1, 0, 0, 0, 0], "what an earlier run owes is not forgotten");
    assert_eq!(files(directory.path()), site.files);
}
