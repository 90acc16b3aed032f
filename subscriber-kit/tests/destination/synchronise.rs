//! Baseline and audit against Sources that are honest, mistaken or hostile.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::support::copy::{Copy, counts};
use crate::support::{Source, document, entry, expected, files, ok, status};
use resync_core::datetime::DateTime;
use resync_subscriber_kit::sync::{Authority, SyncError};
use url::Url;

#[tokio::test]
async fn rs190_a_baseline_makes_the_copy_and_a_second_one_fetches_nothing() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a.txt", "one"), ("/deep/er/b.txt", "two"), ("/empty", "")]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [3, 0, 0, 0, 0]);
    assert_eq!(report.bytes_fetched, 6);
    assert_eq!(files(copy.path()), expected(&[("a.txt", "one"), ("deep/er/b.txt", "two"), ("empty", "")]));
    copy.source.asked();
    assert_eq!(counts(&copy.sync().await), [0, 0, 0, 3, 0]);
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"]);
}

#[tokio::test]
async fn rs191_only_what_changed_is_fetched_and_what_is_gone_is_deleted() {
    let copy = Copy::start().await;
    copy.list_of(&[("/same", "same"), ("/old", "old 1"), ("/gone", "gone")]);
    copy.sync().await;
    copy.source.asked();
    copy.list_of(&[("/same", "same"), ("/old", "old 2"), ("/new", "new")]);
    assert_eq!(counts(&copy.sync().await), [1, 1, 1, 1, 0]);
    let mut asked = copy.source.asked();
    asked.sort();
    assert_eq!(asked, ["/new", "/old", "/resourcelist.xml"]);
    assert_eq!(files(copy.path()), expected(&[("new", "new"), ("old", "old 2"), ("same", "same")]));
}

#[tokio::test]
async fn rs201_without_delete_nothing_is_deleted() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "a"), ("/b", "b")]);
    copy.sync().await;
    copy.list_of(&[("/a", "a")]);
    assert_eq!(counts(&copy.try_sync(false).await.unwrap()), [0, 0, 0, 1, 0]);
    assert!(copy.path().join("b").exists());
}

#[tokio::test]
async fn rs201_an_empty_a_broken_or_a_missing_list_deletes_nothing() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "a"), ("/b", "b")]);
    copy.sync().await;
    let before = files(copy.path());

    copy.source.resource_list("/resourcelist.xml", &[]);
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::Empty { .. })));

    let whole = document(
        "urlset",
        r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#,
        &[copy.source.resource("/a", b"a")],
    );
    copy.source.put("/resourcelist.xml", &whole.as_bytes()[..whole.len() - 12]);
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::List { .. })));

    let mut cut = ok("", whole.as_bytes());
    cut.truncate(cut.len() - 12);
    copy.source.raw("/resourcelist.xml", cut);
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::Fetch(_))));

    copy.source.remove("/resourcelist.xml");
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::Fetch(_))));

    copy.source.put(
        "/resourcelist.xml",
        document("urlset", r#"<rs:md capability="changelist" from="2026-11-20T09:00:00Z"/>"#, &[]).as_bytes(),
    );
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::WrongKind { .. })));
    assert_eq!(files(copy.path()), before);
}

#[tokio::test]
async fn rs199_a_lying_hash_is_tried_once_more_and_the_old_file_stays() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "good")]);
    copy.sync().await;
    copy.source.asked();
    let lie = copy.source.entry("/a", b"evil");
    copy.source.put("/a", b"EVIL");
    copy.source.resource_list("/resourcelist.xml", &[lie]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [0, 0, 0, 0, 1]);
    assert!(report.failures[0].cause.contains("sha-256"), "{:?}", report.failures);
    assert_eq!(copy.source.asked().iter().filter(|path| *path == "/a").count(), 2);
    assert_eq!(files(copy.path()), expected(&[("a", "good")]));
}

#[tokio::test]
async fn rs199_another_length_than_listed_fails_before_it_is_read() {
    let copy = Copy::start().await;
    let short = copy.source.entry("/a", b"abc");
    copy.source.raw("/a", b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n".to_vec());
    // Without a Content-Length the bytes themselves are counted.
    let endless = copy.source.entry("/b", b"abc");
    copy.source
        .raw("/b", [&b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..], &vec![b'x'; 100_000]].concat());
    copy.source.resource_list("/resourcelist.xml", &[short, endless]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [0, 0, 0, 0, 2]);
    assert!(report.failures.iter().all(|failure| failure.cause.contains("3 bytes")), "{:?}", report.failures);
    assert!(files(copy.path()).is_empty(), "no unfinished file is left");
}

#[tokio::test]
async fn a_truncated_resource_is_not_put_in_place() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "good")]);
    copy.sync().await;
    let listed = copy.source.entry("/a", b"better");
    copy.source.raw("/a", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbet".to_vec());
    copy.source.resource_list("/resourcelist.xml", &[listed]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [0, 0, 0, 0, 1]);
    assert!(report.failures[0].cause.contains("cut off"), "{:?}", report.failures);
    assert_eq!(files(copy.path()), expected(&[("a", "good")]));
}

#[tokio::test]
async fn rs202_hostile_paths_are_refused_and_the_rest_is_copied() {
    let copy = Copy::start().await;
    let mut entries = vec![copy.source.resource("/fine", b"fine")];
    for path in
        ["/../escape", "/%2e%2e/escape", "/x%2f..%2f..%2fescape", "/a%00b", "/.resync-destination/state.json"]
    {
        entries.push(copy.source.entry(path, b"evil"));
    }
    copy.source.resource_list("/resourcelist.xml", &entries);
    copy.source.asked();
    let report = copy.sync().await;
    assert_eq!(counts(&report), [1, 0, 0, 0, 5]);
    assert_eq!(copy.source.asked().len(), 2, "what has no place is not fetched");
    assert_eq!(files(copy.path()), expected(&[("fine", "fine")]));
    assert!(!copy.path().join(".resync-destination/state.json").exists());
}

#[tokio::test]
async fn two_resources_never_share_a_file() {
    let copy = Copy::start().await;
    let first = copy.source.resource("/a", b"first");
    let second = copy.source.resource("/%61", b"second");
    copy.source.resource_list("/resourcelist.xml", &[first.clone(), first, second]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [1, 0, 0, 0, 1]);
    assert_eq!(files(copy.path()), expected(&[("a", "first")]));
}

#[tokio::test]
async fn rs200_resources_of_another_origin_are_refused_also_through_a_redirect() {
    let copy = Copy::start().await;
    let other = Source::start().await;
    let direct = other.resource("/direct", b"x");
    let redirected = copy.source.entry("/redirected", b"x");
    copy.source.raw("/redirected", status("302 Found", &format!("Location: {}\r\n", other.url("/direct"))));
    let looping = copy.source.entry("/loop", b"x");
    copy.source.raw("/loop", status("302 Found", "Location: /loop\r\n"));
    let at_home = copy.source.entry("/at-home", b"x");
    copy.source.raw("/at-home", status("302 Found", "Location: /real\r\n"));
    copy.source.put("/real", b"x");
    copy.source.resource_list("/resourcelist.xml", &[direct, redirected, looping, at_home]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [1, 0, 0, 0, 3]);
    assert!(other.asked().is_empty());
    assert_eq!(files(copy.path()), expected(&[("at-home", "x")]));
}

#[tokio::test]
async fn rs200_without_a_hash_neither_a_mirror_nor_the_original_leads_to_another_origin() {
    let copy = Copy::start().await;
    let other = Source::start().await;
    other.put("/foreign", b"bad");
    copy.source.put("/a", b"own");
    let away = format!("Location: {}\r\n", other.url("/foreign"));
    copy.source.raw("/away", status("302 Found", &away));
    let linked = |path: &str, relation: &str| {
        let [loc, href] = [path, "/away"].map(|path| copy.source.url(path));
        format!(r#"<url><loc>{loc}</loc><rs:md length="3"/><rs:ln rel="{relation}" href="{href}"/></url>"#)
    };
    let entries = [linked("/a", "duplicate"), linked("/gone", "via")];
    copy.source.resource_list("/resourcelist.xml", &entries);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [1, 0, 0, 0, 1], "{report:?}");
    assert!(other.asked().is_empty());
    assert_eq!(files(copy.path()), expected(&[("a", "own")]));
}

#[tokio::test]
async fn rs200_resources_of_an_origin_that_was_named_are_fetched_and_those_of_others_are_not() {
    let mut copy = Copy::start().await;
    let (named, other) = (Source::start().await, Source::start().await);
    copy.options.authority = Authority::Origins(vec![Url::parse(&named.url("/")).unwrap()]);
    named.put("/stored", b"r");
    let redirected = copy.source.entry("/redirected", b"r");
    copy.source.raw("/redirected", status("302 Found", &format!("Location: {}\r\n", named.url("/stored"))));
    let (at_home, at_named) = (copy.source.resource("/home", b"h"), named.resource("/named", b"n"));
    let back = named.entry("/back", b"h");
    named.raw("/back", status("302 Found", &format!("Location: {}\r\n", copy.source.url("/home"))));
    let elsewhere = other.resource("/other", b"o");
    copy.source.resource_list("/resourcelist.xml", &[at_home, at_named, redirected, back, elsewhere]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [4, 0, 0, 0, 1], "{report:?}");
    assert!(other.asked().is_empty());
    let copied = [("back", "h"), ("home", "h"), ("named", "n"), ("redirected", "r")];
    assert_eq!(files(copy.path()), expected(&copied));
}

#[tokio::test]
async fn rs190_an_index_is_followed_and_rs044_an_index_in_an_index_is_refused() {
    let copy = Copy::start().await;
    let (one, two) = (copy.source.resource("/1", b"1"), copy.source.resource("/2", b"2"));
    copy.source.resource_list("/part1.xml", &[one]);
    copy.source.resource_list("/part2.xml", &[two]);
    let part = |path: &str| format!("<sitemap><loc>{}</loc></sitemap>", copy.source.url(path));
    let root = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
    let index = |parts: &[String]| document("sitemapindex", root, parts);
    copy.source.put("/resourcelist.xml", index(&[part("/part1.xml"), part("/part2.xml")]).as_bytes());
    assert_eq!(counts(&copy.sync().await), [2, 0, 0, 0, 0]);

    copy.source.put("/part2.xml", index(&[part("/part1.xml")]).as_bytes());
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::NestedIndex { .. })));
    copy.source.remove("/part2.xml");
    assert!(copy.try_sync(true).await.is_err());
    assert_eq!(files(copy.path()), expected(&[("1", "1"), ("2", "2")]), "RS-201");
}

#[tokio::test]
async fn rs200_an_index_does_not_lead_to_another_origin() {
    let copy = Copy::start().await;
    let other = Source::start().await;
    let inner = other.resource("/inner", b"x");
    other.resource_list("/part.xml", &[inner]);
    let root = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
    let part = format!("<sitemap><loc>{}</loc></sitemap>", other.url("/part.xml"));
    copy.source.put("/resourcelist.xml", document("sitemapindex", root, &[part]).as_bytes());
    assert!(matches!(copy.try_sync(true).await, Err(SyncError::ForeignComponent { .. })));
    assert!(files(copy.path()).is_empty());
}

#[tokio::test]
async fn the_time_of_a_file_is_lastmod_or_else_last_modified() {
    let copy = Copy::start().await;
    copy.source.put("/a", b"a");
    copy.source.raw("/b", ok("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", b"b"));
    let a = format!("<url><loc>{}</loc><lastmod>2020-02-03T04:05:06Z</lastmod></url>", copy.source.url("/a"));
    let b = format!("<url><loc>{}</loc></url>", copy.source.url("/b"));
    copy.source.resource_list("/resourcelist.xml", &[a, b]);
    assert_eq!(counts(&copy.sync().await), [2, 0, 0, 0, 0]);
    let time = |name: &str| {
        let modified = std::fs::metadata(copy.path().join(name)).unwrap().modified().unwrap();
        modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    };
    assert_eq!((time("a"), time("b")), (1_580_702_706, 784_111_777));
    copy.source.asked();
    assert_eq!(counts(&copy.sync().await), [0, 0, 0, 2, 0]);
    let mut asked = copy.source.asked();
    asked.sort();
    assert_eq!(
        asked,
        ["/b", "/resourcelist.xml"],
        "what nothing is known about is fetched, and found the same"
    );
}

/// Root may write it all the same.
#[tokio::test]
async fn a_file_that_nobody_may_write_gets_its_new_time_if_it_has_the_right_bytes() {
    let copy = Copy::start().await;
    copy.source.put("/a", b"a");
    let path = copy.path().join("a");
    for year in ["2020", "2021"] {
        let modified = format!("{year}-02-03T04:05:06Z");
        let a = format!("<url><loc>{}</loc><lastmod>{modified}</lastmod></url>", copy.source.url("/a"));
        copy.source.resource_list("/resourcelist.xml", &[a]);
        let report = copy.sync().await;
        assert_eq!((report.resources, report.failed), (1, 0), "{report:?}");
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(Ok(DateTime::from_system_time(found.modified().unwrap())), modified.parse());
        let mut may_be_read = found.permissions();
        may_be_read.set_readonly(true);
        std::fs::set_permissions(&path, may_be_read).unwrap();
    }
}

#[tokio::test]
async fn a_source_that_stumbles_is_asked_again() {
    let copy = Copy::start().await;
    let entry = copy.source.entry("/a", b"a");
    copy.source.raw("/a", status("503 Service Unavailable", ""));
    copy.source.resource_list("/resourcelist.xml", &[entry]);
    let source = copy.source.clone();
    let mended = tokio::spawn(async move {
        while !source.asked().iter().any(|path| path == "/a") {
            tokio::task::yield_now().await;
        }
        source.put("/a", b"a");
    });
    assert_eq!(counts(&copy.sync().await), [1, 0, 0, 0, 0]);
    mended.await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_written_through_a_symbolic_link() {
    let copy = Copy::start().await;
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), copy.path().join("link")).unwrap();
    copy.list_of(&[("/link/a", "a"), ("/b", "b")]);
    let report = copy.try_sync(false).await.unwrap();
    assert_eq!(counts(&report), [1, 0, 0, 0, 1]);
    assert!(files(elsewhere.path()).is_empty());
}

#[tokio::test]
async fn rs195_an_audit_tells_coverage_and_accuracy_and_downloads_nothing() {
    let copy = Copy::start().await;
    copy.list_of(&[("/same", "same"), ("/corrupt", "right"), ("/missing", "missing")]);
    copy.sync().await;
    assert!(copy.audit().await.in_step());
    std::fs::write(copy.path().join("corrupt"), "wrong").unwrap();
    std::fs::remove_file(copy.path().join("missing")).unwrap();
    std::fs::write(copy.path().join("extra"), "extra").unwrap();
    copy.source.asked();
    let report = copy.audit().await;
    assert_eq!((report.same, report.different, report.missing, report.extra), (1, 1, 1, 1));
    assert_eq!(report.extra_files, ["extra"]);
    assert!(!report.in_step());
    assert_eq!(copy.source.asked(), ["/resourcelist.xml"]);
}

#[tokio::test]
async fn a_relative_loc_is_taken_from_its_list() {
    let copy = Copy::start().await;
    copy.source.put("/x/y", b"y");
    copy.source.resource_list("/resourcelist.xml", &[entry("x/y", r#"length="1""#)]);
    assert_eq!(counts(&copy.sync().await), [1, 0, 0, 0, 0]);
    assert_eq!(files(copy.path()), expected(&[("x/y", "y")]));
}

#[cfg(unix)]
#[tokio::test]
async fn names_that_unix_allows_are_copied_byte_for_byte() {
    use std::os::unix::ffi::OsStrExt as _;
    let copy = Copy::start().await;
    let names: [(&str, &[u8]); 4] = [
        ("/back%5Cslash", b"back\\slash"),
        ("/line%0Abreak", b"line\nbreak"),
        ("/%ff%fe", b"\xff\xfe"),
        ("/%C3%A9", b"\xc3\xa9"),
    ];
    let entries = names.map(|(path, _)| copy.source.resource(path, path.as_bytes()));
    copy.source.resource_list("/resourcelist.xml", &entries);
    assert_eq!(counts(&copy.sync().await), [4, 0, 0, 0, 0]);
    for (path, name) in names {
        let file = copy.path().join(std::ffi::OsStr::from_bytes(name));
        assert_eq!(std::fs::read(file).unwrap(), path.as_bytes());
    }
    assert!(copy.audit().await.in_step());
    assert_eq!(counts(&copy.sync().await), [0, 0, 0, 4, 0], "and found again");
}
