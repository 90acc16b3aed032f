//! A hostile Source: every attack ends with a named error, soon, in little memory, and leaves the copy as it was.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::Write as _;
use std::time::Duration;

use crate::support::copy::{Copy, counts};
use crate::support::{self, PATIENCE, document, entry, expected, files, on_this_machine, status};
use resync_subscriber_kit::fetch::{Client, ClientOptions, FetchError};
use resync_subscriber_kit::sync::{Depth, Offer, Report, SyncError, SyncOptions, Target, synchronise};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use url::Url;

/// A copy with one file, and its Source about to turn.
async fn copy() -> Copy {
    let mut copy = Copy::start().await;
    copy.options.retries = 0;
    copy.list_of(&[("/a", "good")]);
    copy.sync().await;
    copy
}

fn assert_untouched(copy: &Copy) {
    assert_eq!(files(copy.path()), expected(&[("a", "good")]));
    let work = copy.path().join(".resync-destination/work");
    assert!(!work.exists(), "nothing unfinished is left");
}

async fn refused(copy: &Copy) -> SyncError {
    let result = tokio::time::timeout(PATIENCE, copy.try_sync(true)).await.expect("it ends soon");
    let error = result.expect_err("it is refused");
    assert_untouched(copy);
    error
}

/// All resources fail, and the file of old is still there.
async fn fails(copy: &Copy, cause: &str) -> Report {
    let report = tokio::time::timeout(PATIENCE, copy.try_sync(false)).await.expect("it ends soon").unwrap();
    assert_eq!(report.failed, report.resources, "{report:?}");
    assert!(report.failures.iter().all(|failure| failure.cause.contains(cause)), "{report:?}");
    assert_untouched(copy);
    report
}

/// A server that sends `head` and then `piece` for ever, one every `pause`; gives its URL.
async fn endless(head: String, piece: Vec<u8>, pause: Duration) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (head, piece) = (head.clone(), piece.clone());
            tokio::spawn(async move {
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_err()
                    || stream.write_all(head.as_bytes()).await.is_err()
                {
                    return;
                }
                while stream.write_all(&piece).await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
            });
        }
    });
    Url::parse(&format!("http://{address}/list.xml")).unwrap()
}

const LIST: &str = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_list_without_end_is_cut_off_at_its_limit() {
    let mut copy = copy().await;
    // The list is at another server.
    copy.options.switch_source = true;
    let whole = document("urlset", LIST, &[]);
    let begin = whole.strip_suffix("</urlset>").unwrap();
    let one = entry("http://a.example/x", r#"length="1""#).repeat(1000).into_bytes();
    let list = endless(format!("{HEAD}{begin}"), one, Duration::ZERO).await;
    let target = copy.target();
    let listing = Offer::list(list);
    let client = support::client();
    let run = synchronise(&client, &listing, &target, &copy.options, Depth::Full);
    let error = tokio::time::timeout(PATIENCE, run).await.expect("it ends").unwrap_err();
    assert!(matches!(error, SyncError::Fetch(FetchError::TooLarge { .. })), "{error}");
    assert_untouched(&copy);
}

#[tokio::test]
async fn a_list_that_drips_is_given_up() {
    let mut copy = copy().await;
    // The list is at another server.
    copy.options.switch_source = true;
    let options = ClientOptions { idle_timeout: Duration::from_millis(300), ..on_this_machine() };
    let list = endless(HEAD.to_owned(), b" ".to_vec(), Duration::from_millis(20)).await;
    let client = Client::new(options).unwrap();
    let listing = Offer::list(list);
    let target = copy.target();
    let run = synchronise(&client, &listing, &target, &copy.options, Depth::Full);
    let error = tokio::time::timeout(PATIENCE, run).await.expect("it ends soon").unwrap_err();
    assert!(matches!(error, SyncError::Fetch(FetchError::TooSlow { .. })), "{error}");
    assert_untouched(&copy);
}

#[tokio::test]
async fn a_list_that_is_a_bomb_is_refused() {
    let copy = copy().await;
    // 40 MB of blanks in 40 kB.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let whole = document("urlset", LIST, &[]);
    let (begin, end) = whole.split_at(whole.len() - "</urlset>".len());
    gzip.write_all(begin.as_bytes()).unwrap();
    for _ in 0..40 {
        gzip.write_all(&vec![b' '; 1_000_000]).unwrap();
    }
    gzip.write_all(end.as_bytes()).unwrap();
    copy.source.put("/resourcelist.xml", &gzip.finish().unwrap());
    let error = refused(&copy).await;
    assert!(matches!(error, SyncError::List { .. }), "{error}");
}

#[tokio::test]
async fn entities_that_grow_and_files_that_they_name_are_refused() {
    let copy = copy().await;
    let laughs = r#"<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>"#;
    let file = r#"<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>"#;
    for dtd in [laughs, file] {
        let whole = document("urlset", LIST, &[entry("&a;", "")]);
        let with_dtd = whole.replacen("\n<urlset", &format!("\n{dtd}<urlset"), 1);
        assert_ne!(with_dtd, whole);
        copy.source.put("/resourcelist.xml", with_dtd.as_bytes());
        let error = refused(&copy).await;
        assert!(matches!(error, SyncError::List { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_list_of_ten_gigabytes_is_refused_by_its_length() {
    let copy = copy().await;
    copy.source
        .raw("/resourcelist.xml", b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n<urlset".to_vec());
    let error = refused(&copy).await;
    assert!(matches!(error, SyncError::Fetch(FetchError::TooLarge { .. })), "{error}");
}

#[tokio::test]
async fn redirects_in_a_circle_and_to_elsewhere_end() {
    let copy = copy().await;
    copy.source.raw("/resourcelist.xml", status("302 Found", "Location: /resourcelist.xml\r\n"));
    let error = refused(&copy).await;
    assert!(matches!(error, SyncError::Fetch(FetchError::TooManyRedirects { .. })), "{error}");

    for elsewhere in ["http://127.0.0.1:1/secret", "http://[::1]/", "file:///etc/passwd", "ftp://a.example/"]
    {
        copy.source.raw("/a", status("302 Found", &format!("Location: {elsewhere}\r\n")));
        copy.source.resource_list("/resourcelist.xml", &[copy.source.entry("/a", b"evil")]);
        fails(&copy, "another origin").await;
    }
}

#[tokio::test]
async fn rs200_rs202_resources_of_others_and_paths_that_lead_away_are_refused() {
    let copy = copy().await;
    let own = copy.source.url("");
    let locs = [
        format!("{own}/../../etc/passwd"),
        format!("{own}/%2e%2e/%2e%2e/etc/passwd"),
        format!("{own}/..%2f..%2fetc%2fpasswd"),
        format!("{own}//etc/passwd"),
        format!("{own}/.resync-destination/state.json"),
        "http://127.0.0.1:1/admin".to_owned(),
        "file:///etc/passwd".to_owned(),
    ];
    copy.source.asked();
    copy.source.resource_list("/resourcelist.xml", &locs.map(|loc| entry(&loc, r#"length="1""#)));
    let report = fails(&copy, "").await;
    assert_eq!(report.resources, 7);
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"], "and nothing of it was asked for");
}

#[tokio::test]
async fn rs199_a_resource_that_lies_about_length_or_hash_leaves_the_old_file() {
    let copy = copy().await;
    copy.source.resource_list("/resourcelist.xml", &[copy.source.entry("/a", b"better")]);
    copy.source.raw("/a", b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n".to_vec());
    fails(&copy, "10737418240").await;
    copy.source.put("/a", b"worse!");
    fails(&copy, "sha-256").await;
    // Without a length, the bytes themselves are counted.
    let without_end =
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec(), vec![b'x'; 1 << 20]].concat();
    copy.source.raw("/a", without_end);
    fails(&copy, "sent more").await;
}

#[tokio::test]
async fn a_disk_without_room_is_named_before_anything_is_written() {
    let copy = copy().await;
    let huge = u64::MAX / 4;
    let entry = entry(&copy.source.url("/a"), &format!(r#"length="{huge}""#));
    copy.source.resource_list("/resourcelist.xml", &[entry]);
    copy.source.raw("/a", format!("HTTP/1.1 200 OK\r\nContent-Length: {huge}\r\n\r\n").into_bytes());
    let options = SyncOptions { max_resource_bytes: u64::MAX, ..copy.options.clone() };
    let target = Target::open(copy.path(), Url::parse(&copy.source.url("/")).unwrap()).unwrap();
    let list = Offer::list(Url::parse(&copy.source.url("/resourcelist.xml")).unwrap());
    let report = synchronise(&support::client(), &list, &target, &options, Depth::Full).await.unwrap();
    assert_eq!(counts(&report), [0, 0, 0, 0, 1]);
    assert!(report.failures[0].cause.contains("free some space"), "{report:?}");
    assert_untouched(&copy);
}

#[tokio::test]
async fn a_change_list_that_lies_about_what_is_gone_deletes_nothing_of_others() {
    let copy = copy().await;
    let own = copy.source.url("");
    let root = r#"<rs:md capability="changelist" from="2026-11-01T00:00:00Z"/>"#;
    let gone = |loc: &str| {
        format!(r#"<url><loc>{loc}</loc><rs:md change="deleted" datetime="2026-11-21T00:00:00Z"/></url>"#)
    };
    let locs = [
        "http://b.example/a".to_owned(),
        format!("{own}/../a"),
        format!("{own}/.resync-destination/copy.lock"),
    ];
    copy.source.put("/changelist.xml", document("urlset", root, &locs.map(|loc| gone(&loc))).as_bytes());
    let url = |path: &str| Some(Url::parse(&copy.source.url(path)).unwrap());
    let offer = Offer {
        resource_list: url("/resourcelist.xml"),
        change_list: url("/changelist.xml"),
        ..Offer::default()
    };
    let options = SyncOptions { delete: true, ..copy.options.clone() };
    let report =
        synchronise(&support::client(), &offer, &copy.target(), &options, Depth::Full).await.unwrap();
    assert_eq!(counts(&report), [0, 0, 0, 1, 0], "{report:?}");
    assert!(copy.path().join(".resync-destination/copy.lock").exists());
    assert_untouched(&copy);
}
