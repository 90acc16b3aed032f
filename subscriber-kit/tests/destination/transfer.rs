//! How bytes come: resumed after a cut, from mirrors, politely, and never from where they must not.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::copy::{Copy, counts};
use crate::support::{
    self, Source, document, entry, expected, files, ok, on_this_machine, serve, serve_slowly, status,
};
use resync_core::digest::{Algorithm, Digest};
use resync_subscriber_kit::fetch::{Client, ClientOptions, FetchError};
use resync_subscriber_kit::sync::{Depth, Filter, Offer, SyncError, SyncOptions, Target, synchronise};
use url::Url;

const LIST: &str = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;

/// A Source with one resource of ten bytes whose answer is cut off after four the first time. What it is asked for, and
/// the copy that came of it.
async fn after_a_cut(
    rest: impl Fn(&support::Message) -> Vec<u8> + Send + Sync + 'static,
) -> (Vec<String>, Vec<u8>) {
    let hash = Digest::of(Algorithm::Sha256, b"0123456789");
    let list = move |host: &str| {
        let resource = entry(&format!("http://{host}/a"), &format!(r#"hash="{hash}" length="10""#));
        ok("", document("urlset", LIST, &[resource]).as_bytes())
    };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (noted, times) = (Arc::clone(&asked), AtomicUsize::new(0));
    let address = serve(move |request| {
        if request.target() != "/a" {
            return list(request.header("host").unwrap());
        }
        noted.lock().unwrap().push(request.header("range").unwrap_or("whole").to_owned());
        if times.fetch_add(1, Ordering::SeqCst) == 0 {
            return b"HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: 10\r\n\r\n0123".to_vec();
        }
        assert_eq!(request.header("if-range").is_some(), request.header("range").is_some());
        rest(request)
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let base = Url::parse(&format!("http://{address}/")).unwrap();
    let target = Target::open(directory.path(), base.clone()).unwrap();
    let options = SyncOptions { retry_pause: Duration::from_millis(1), ..SyncOptions::default() };
    let offer = Offer::list(base.join("list.xml").unwrap());
    let report = synchronise(&support::client(), &offer, &target, &options, Depth::Full).await.unwrap();
    assert_eq!(counts(&report), [1, 0, 0, 0, 0], "{report:?}");
    let asked = asked.lock().unwrap().clone();
    (asked, std::fs::read(directory.path().join("a")).unwrap())
}

#[tokio::test]
async fn rs202_what_was_cut_off_goes_on_where_it_ended() {
    let rest = |_: &support::Message| {
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 4-9/10\r\nContent-Length: 6\r\nConnection: close\r\n\r\n456789"
            .to_vec()
    };
    let (asked, file) = after_a_cut(rest).await;
    assert_eq!((asked, file), (vec!["whole".to_owned(), "bytes=4-".to_owned()], b"0123456789".to_vec()));
}

#[tokio::test]
async fn rs202_a_server_without_parts_sends_the_whole_again() {
    let (asked, file) = after_a_cut(|_| ok("", b"0123456789")).await;
    assert_eq!((asked.len(), file), (2, b"0123456789".to_vec()));
}

#[tokio::test]
async fn rs202_a_part_that_was_not_asked_for_is_not_put_together_with_what_came() {
    let times = AtomicUsize::new(0);
    let (asked, file) = after_a_cut(move |_| {
        if times.fetch_add(1, Ordering::SeqCst) == 0 {
            let part = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-9/10\r\nContent-Length: 8\r\n\r\n23456789";
            return part.as_bytes().to_vec();
        }
        ok("", b"0123456789")
    })
    .await;
    assert_eq!((asked.len(), file), (3, b"0123456789".to_vec()));
}

/// An entry with two mirrors, the second one preferred.
fn mirrored(copy: &Copy, mirrors: [&Source; 2], body: &[u8], metadata: &str) -> String {
    let [later, first] = mirrors.map(|mirror| mirror.url("/m"));
    copy.source.put("/a", body);
    format!(
        r#"<url><loc>{}</loc><rs:md {metadata}/><rs:ln rel="duplicate" pri="2" href="{later}"/><rs:ln rel="duplicate" pri="1" href="{first}"/></url>"#,
        copy.source.url("/a")
    )
}

#[tokio::test]
async fn rs171_mirrors_are_asked_by_their_pri_and_what_they_send_must_be_proven() {
    let mut copy = Copy::start().await;
    let (later, first) = (Source::start().await, Source::start().await);
    let hash = format!(r#"hash="{}" length="4""#, Digest::of(Algorithm::Sha256, b"true"));
    first.put("/m", b"true");
    let list = |copy: &Copy, metadata: &str| {
        let entry = mirrored(copy, [&later, &first], b"true", metadata);
        copy.source.resource_list("/resourcelist.xml", &[entry]);
        std::fs::remove_file(copy.path().join("a")).ok();
        copy.source.asked();
    };
    list(&copy, &hash);
    copy.sync().await;
    assert_eq!(
        (first.asked(), copy.source.asked().len()),
        (Vec::new(), 2),
        "another origin, and not asked for"
    );

    copy.options.foreign_mirrors = true;
    list(&copy, &hash);
    copy.sync().await;
    assert_eq!((first.asked(), later.asked()), (vec!["/m".to_owned()], Vec::new()));
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"]);

    first.put("/m", b"lies");
    later.put("/m", b"true");
    list(&copy, &hash);
    copy.sync().await;
    assert_eq!((first.asked().len(), later.asked().len()), (1, 1), "a mirror that lies is left for the next");

    later.remove("/m");
    list(&copy, &hash);
    copy.sync().await;
    assert_eq!(copy.source.asked(), ["/resourcelist.xml", "/a"], "and in the end the Source itself");
    assert_eq!(files(copy.path()), expected(&[("a", "true")]));
    first.asked();

    list(&copy, r#"length="4""#);
    copy.sync().await;
    assert_eq!(first.asked(), Vec::<String>::new(), "without a hash nothing is proven");
}

#[tokio::test]
async fn a_source_that_asks_to_be_left_alone_is_left_alone() {
    let copy = Copy::start().await;
    for path in ["/resourcelist.xml", "/a"] {
        copy.list_of(&[("/a", "1")]);
        let (busy, page) = (status("503 Service Unavailable", "Retry-After: 1\r\n"), copy.source.page(path));
        copy.source.raw(path, busy);
        copy.source.raw_after(path, path, page);
        let begun = std::time::Instant::now();
        assert_eq!(copy.sync().await.failed, 0, "{path}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{path}: {:?}", begun.elapsed());
        std::fs::remove_file(copy.path().join("a")).unwrap();
    }
}

/// A copy of these paths from a Source that answers what is not the list so.
async fn copied<F>(
    paths: &'static [&'static str],
    options: ClientOptions,
    answer: impl Fn(String) -> F + Send + Sync + 'static,
) -> resync_subscriber_kit::sync::Report
where
    F: Future<Output = Vec<u8>> + Send + 'static,
{
    let answer = Arc::new(answer);
    let address = serve_slowly(move |request| {
        let (answer, host) = (Arc::clone(&answer), request.header("host").unwrap().to_owned());
        async move {
            if request.target() != "/list.xml" {
                return answer(request.target().to_owned()).await;
            }
            let entries: Vec<String> =
                paths.iter().map(|path| entry(&format!("http://{host}{path}"), r#"length="1""#)).collect();
            ok("", document("urlset", LIST, &entries).as_bytes())
        }
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let base = Url::parse(&format!("http://{address}/")).unwrap();
    let target = Target::open(directory.path(), base.clone()).unwrap();
    let how = SyncOptions { retries: 1, retry_pause: Duration::from_millis(1), ..SyncOptions::default() };
    let offer = Offer::list(base.join("list.xml").unwrap());
    synchronise(&Client::new(options).unwrap(), &offer, &target, &how, Depth::Full).await.unwrap()
}

#[tokio::test]
async fn a_source_that_asks_to_be_left_alone_is_asked_for_nothing_else_meanwhile() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let options = ClientOptions { per_host: 1, ..on_this_machine() };
    let report = copied(&["/a", "/b", "/c", "/d"], options, move |_| {
        noted.lock().unwrap().push(std::time::Instant::now());
        let is_first = noted.lock().unwrap().len() == 1;
        let busy = status("429 Too Many Requests", "Retry-After: 1\r\n");
        std::future::ready(if is_first { busy } else { ok("", b"1") })
    })
    .await;
    assert_eq!(counts(&report), [4, 0, 0, 0, 0], "{report:?}");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 5);
    assert!(asked[1] - asked[0] >= Duration::from_secs(1), "{asked:?}");
}

#[tokio::test]
async fn waiting_for_a_place_at_a_host_does_not_count_as_its_slowness() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let time = Duration::from_secs(1);
    let options = ClientOptions { per_host: 1, resource_timeout: time, ..on_this_machine() };
    let report = copied(&["/a", "/b", "/c"], options, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(time * 6 / 10).await;
            ok("", b"1")
        }
    })
    .await;
    assert_eq!((counts(&report), tries.load(Ordering::SeqCst)), ([3, 0, 0, 0, 0], 3), "{report:?}");
}

#[tokio::test]
async fn what_is_filtered_out_is_neither_fetched_nor_deleted_nor_missed() {
    let mut copy = Copy::start().await;
    copy.list_of(&[("/a.txt", "1"), ("/b.bin", "1"), ("/c.txt", "1")]);
    copy.sync().await;
    copy.options.filter = Filter { exclude: vec!["*.bin".to_owned()], ..Filter::default() };
    copy.list_of(&[("/a.txt", "2"), ("/b.bin", "2"), ("/d.bin", "2")]);
    let report = copy.sync().await;
    assert_eq!((report.resources, counts(&report)), (1, [0, 1, 1, 0, 0]));
    assert_eq!(files(copy.path()), expected(&[("a.txt", "2"), ("b.bin", "1")]));
    let found = copy.audit_with(&copy.options).await;
    assert_eq!((found.resources, found.extra, found.in_step()), (1, 0, true));
}

#[tokio::test]
async fn b32_from_a_policy_of_public_addresses_nothing_leads_into_the_own_network() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "1")]);
    let client = Client::new(ClientOptions::default()).unwrap();
    let port = copy.source.address.port();
    for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"] {
        let list = Url::parse(&format!("http://{host}:{port}/resourcelist.xml")).unwrap();
        let result =
            synchronise(&client, &Offer::list(list), &copy.target(), &copy.options, Depth::Full).await;
        let error = match result {
            Err(SyncError::Fetch(error @ FetchError::NotPublic { .. })) => error,
            other => panic!("{host}: {other:?}"),
        };
        assert!(error.to_string().contains("not a public address"), "{host}: {error}");
    }
    assert_eq!(copy.source.asked(), Vec::<String>::new(), "nobody was asked");
}
