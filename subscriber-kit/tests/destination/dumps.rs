//! A copy that is made from a Resource Dump and follows a Change Dump, and dumps that are not worth it, old, or hostile.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::support::copy::counts;
use crate::support::site::ChangingSource;
use crate::support::{Source, client, document, files, status};
use resync_core::build::PackageLimits;
use resync_subscriber_kit::sync::{
    BaselineFrom, ChangesFrom, Depth, Method, Offer, Report, SyncError, SyncOptions, Target, Verdict, audit,
    synchronise,
};
use tempfile::TempDir;
use url::Url;

async fn site(files: usize) -> ChangingSource {
    let mut site = ChangingSource::start(1000).await;
    for number in 0..files {
        site.tell(&[(format!("d{}/{number}", number % 3).as_str(), Some("the same few bytes"))]);
    }
    site.list();
    site.dump();
    site.source.asked();
    site
}

async fn run(site: &ChangingSource, directory: &TempDir, how: BaselineFrom) -> Report {
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let options = SyncOptions { baseline: how, delete: true, retries: 0, ..SyncOptions::default() };
    synchronise(&client(), &site.offer(), &target, &options, Depth::Full).await.unwrap()
}

/// The packages and resources that were asked for.
fn asked(site: &ChangingSource) -> Vec<String> {
    site.source.asked().into_iter().filter(|path| !path.contains(".xml")).collect()
}

#[tokio::test]
async fn rs190_a_dump_is_taken_where_it_is_cheaper_and_the_copy_is_the_same() {
    let site = site(50).await;
    let directory = tempfile::tempdir().unwrap();
    let report = run(&site, &directory, BaselineFrom::Cheaper).await;
    assert_eq!((counts(&report), report.bytes_hashed), ([50, 0, 0, 0, 0], 0));
    assert_eq!(files(directory.path()), site.files);
    let asked_for = asked(&site);
    assert!(asked_for.len() == 1 && asked_for[0].contains(".zip"), "{asked_for:?}");

    // A copy that has files has no use for it.
    assert_eq!(counts(&run(&site, &directory, BaselineFrom::Dump).await), [0, 0, 0, 50, 0]);
    assert!(asked(&site).is_empty());
}

#[tokio::test]
async fn a_dump_that_costs_more_than_it_saves_is_left_alone_unless_it_is_asked_for() {
    let site = site(1).await;
    let [by_cost, by_wish, never] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    run(&site, &by_cost, BaselineFrom::Cheaper).await;
    assert_eq!(asked(&site), ["/d0/0"]);
    run(&site, &by_wish, BaselineFrom::Dump).await;
    assert!(asked(&site)[0].contains(".zip"));
    run(&site, &never, BaselineFrom::List).await;
    assert_eq!(asked(&site), ["/d0/0"]);
    for copy in [&by_cost, &by_wish, &never] {
        assert_eq!(files(copy.path()), site.files);
    }
}

#[tokio::test]
async fn rs111_what_an_old_dump_does_not_have_or_has_otherwise_is_fetched_by_itself() {
    let mut site = site(50).await;
    site.tell(&[("d0/0", Some("newer than the dump")), ("new", Some("new")), ("d1/1", None)]);
    let directory = tempfile::tempdir().unwrap();
    site.source.asked();
    let report = run(&site, &directory, BaselineFrom::Cheaper).await;
    assert_eq!(counts(&report), [50, 0, 0, 0, 0]);
    assert_eq!(files(directory.path()), site.files);
    let mut one_by_one = asked(&site);
    one_by_one.retain(|path| !path.contains(".zip"));
    one_by_one.sort();
    assert_eq!(one_by_one, ["/d0/0", "/new"]);
}

#[tokio::test]
async fn rs110_a_package_that_is_broken_or_a_lie_costs_downloads_and_nothing_else() {
    let site = site(50).await;
    let package = {
        let directory = tempfile::tempdir().unwrap();
        run(&site, &directory, BaselineFrom::Dump).await;
        asked(&site).into_iter().find(|path| path.contains(".zip")).unwrap()
    };
    for lie in [b"no zip at all".to_vec(), Vec::new(), b"PK\x05\x06".repeat(30)] {
        site.source.put(&package, &lie);
        let directory = tempfile::tempdir().unwrap();
        let report = run(&site, &directory, BaselineFrom::Dump).await;
        assert_eq!(counts(&report), [50, 0, 0, 0, 0]);
        assert_eq!(files(directory.path()), site.files);
        site.source.asked();
    }
    site.source.remove("/resourcedump.xml");
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(counts(&run(&site, &directory, BaselineFrom::Cheaper).await), [50, 0, 0, 0, 0]);
}

#[tokio::test]
async fn rs200_a_dump_that_moved_to_another_origin_is_left_alone() {
    let (site, other) = (site(50).await, Source::start().await);
    other.raw("/resourcedump.xml", site.source.page("/resourcedump.xml"));
    let moved = format!("Location: {}\r\n", other.url("/resourcedump.xml"));
    site.source.raw("/resourcedump.xml", status("302 Found", &moved));
    let directory = tempfile::tempdir().unwrap();
    let report = run(&site, &directory, BaselineFrom::Dump).await;
    assert_eq!(counts(&report), [50, 0, 0, 0, 0]);
    let asked_for = asked(&site);
    assert!(!asked_for.iter().any(|path| path.contains(".zip")), "{asked_for:?}");
    assert_eq!(files(directory.path()), site.files);
}

/// A look at a Source that has nothing but packages.
async fn follow(site: &ChangingSource, directory: &TempDir, how: Depth) -> Result<Report, SyncError> {
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let options = SyncOptions { delete: true, adopt: true, retries: 0, ..SyncOptions::default() };
    synchronise(&client(), &site.dumps_only(), &target, &options, how).await
}

/// A Source that packs so many changes at a time, and the copy of what it told first.
async fn copied(packing: usize, told: &[(&str, Option<&str>)]) -> (ChangingSource, TempDir) {
    let mut site = ChangingSource::packing(packing).await;
    site.tell(told);
    site.dump();
    let directory = tempfile::tempdir().unwrap();
    follow(&site, &directory, Depth::Full).await.unwrap();
    (site, directory)
}

#[tokio::test]
async fn rs190_a_source_with_nothing_but_a_dump_is_copied_and_audited_from_its_packages() {
    let mut site = site(20).await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("stranger"), "x").unwrap();
    let report = follow(&site, &directory, Depth::Full).await.unwrap();
    assert_eq!(counts(&report), [20, 0, 1, 0, 0]);
    assert_eq!(files(directory.path()), site.files);
    let asked_for = asked(&site);
    assert!(asked_for.len() == 1 && asked_for[0].contains(".zip"), "{asked_for:?}");

    // RS-096: the same dump is no news, and needs no package.
    assert_eq!(counts(&follow(&site, &directory, Depth::IfListChanged).await.unwrap()), [0, 0, 0, 20, 0]);
    assert!(asked(&site).is_empty());

    std::fs::write(directory.path().join("d0/0"), "the same few bits!").unwrap();
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let found = audit(&client(), &site.dumps_only(), &target, &SyncOptions::default()).await.unwrap();
    assert_eq!((found.verdict, found.same, found.different), (Verdict::NotInStep, 19, 1));

    // A newer dump, which has one file less and another one.
    site.tell(&[("d1/1", None), ("d0/0", Some("newer"))]);
    site.dump();
    let report = follow(&site, &directory, Depth::IfListChanged).await.unwrap();
    assert_eq!(counts(&report), [0, 1, 1, 18, 0]);
    assert_eq!(files(directory.path()), site.files);
}

#[tokio::test]
async fn rs111_what_a_package_does_not_hold_is_fetched_from_its_uri_and_a_broken_one_deletes_nothing() {
    let site = site(4).await;
    let directory = tempfile::tempdir().unwrap();
    follow(&site, &directory, Depth::Full).await.unwrap();
    let package = asked(&site).into_iter().find(|path| path.contains(".zip")).unwrap();
    site.source.put(&package, b"no zip at all");
    std::fs::remove_file(directory.path().join("d0/0")).unwrap();
    assert_eq!(counts(&follow(&site, &directory, Depth::Full).await.unwrap()), [1, 0, 0, 3, 0]);
    assert_eq!(files(directory.path()), site.files);

    // Without a manifest beside the package nobody knows what there is.
    let listed = format!("<url><loc>{}</loc></url>", site.source.url(&package));
    let root = r#"<rs:md capability="resourcedump" at="2026-11-18T14:13:20Z"/>"#;
    site.source.put("/resourcedump.xml", document("urlset", root, &[listed]).as_bytes());
    let error = follow(&site, &directory, Depth::Full).await.unwrap_err();
    assert!(matches!(error, SyncError::Package { .. }), "{error}");
    assert_eq!(files(directory.path()), site.files);
}

#[tokio::test]
async fn a_bitstream_that_is_too_large_or_has_no_room_fails_and_is_not_asked_for_at_its_uri() {
    let mut site = ChangingSource::start(1000).await;
    // Shorter in a package, but not so much that it would be taken for a bomb.
    let large: String =
        (0_u32..).flat_map(|number| number.to_string().into_bytes()).map(char::from).take(200_000).collect();
    site.tell(&[("large", Some(&large)), ("small", Some("1"))]);
    site.dump();
    site.source.asked();
    let run = async |site: &ChangingSource, max_resource_bytes| {
        let directory = tempfile::tempdir().unwrap();
        let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
        let options = SyncOptions { max_resource_bytes, retries: 0, ..SyncOptions::default() };
        let report =
            synchronise(&client(), &site.dumps_only(), &target, &options, Depth::Full).await.unwrap();
        (counts(&report), report.failures.iter().map(|failure| failure.cause.clone()).collect::<String>())
    };
    let (found, cause) = run(&site, 150_000).await;
    assert_eq!(found, [1, 0, 0, 0, 1], "{cause}");
    assert!(cause.contains("larger than 146.5 KiB"), "{cause}");
    let [package] = asked(&site).try_into().unwrap();

    let at = "2026-11-18T14:13:20Z";
    let [large, small] = ["large", "small"].map(|path| site.source.packed(path, &site.files[path]));
    let large = large.replace("200000", "1000000000000000");
    let root = format!(r#"<rs:md capability="resourcedump-manifest" at="{at}"/>"#);
    site.source.put("/contents.xml", document("urlset", &root, &[large, small]).as_bytes());
    let listed = format!(
        r#"<url><loc>{}</loc><rs:md type="application/zip" at="{at}"/><rs:ln rel="contents" href="{}"/></url>"#,
        site.source.url(&package),
        site.source.url("/contents.xml")
    );
    let root = format!(r#"<rs:md capability="resourcedump" at="{at}"/>"#);
    site.source.put("/resourcedump.xml", document("urlset", &root, &[listed]).as_bytes());
    let (found, cause) = run(&site, u64::MAX).await;
    assert_eq!(found, [1, 0, 0, 0, 1], "{cause}");
    assert!(cause.contains("has only"), "{cause}");
    assert!(!asked(&site).contains(&"/large".to_owned()));
}

#[tokio::test]
async fn rs103_a_manifest_beside_its_package_spares_the_package_where_nothing_in_it_is_new() {
    let site = site(4).await;
    let directory = tempfile::tempdir().unwrap();
    follow(&site, &directory, Depth::Full).await.unwrap();
    let package = asked(&site).into_iter().find(|path| path.contains(".zip")).unwrap();
    let at = "2026-11-18T14:13:20Z";
    let entries: Vec<String> =
        (site.files.iter()).map(|(path, body)| site.source.packed(path, body)).collect();
    let root = format!(r#"<rs:md capability="resourcedump-manifest" at="{at}"/>"#);
    site.source.put("/contents.xml", document("urlset", &root, &entries).as_bytes());
    let listed = format!(
        r#"<url><loc>{}</loc><rs:md type="application/zip" at="{at}"/><rs:ln rel="contents" href="{}"/></url>"#,
        site.source.url(&package),
        site.source.url("/contents.xml")
    );
    let root = format!(r#"<rs:md capability="resourcedump" at="{at}"/>"#);
    site.source.put("/resourcedump.xml", document("urlset", &root, &[listed]).as_bytes());
    assert_eq!(counts(&follow(&site, &directory, Depth::Full).await.unwrap()), [0, 0, 0, 4, 0]);
    assert!(asked(&site).is_empty(), "the manifest was enough");
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let options = SyncOptions { max_list_bytes: 800, ..SyncOptions::default() };
    let result = synchronise(&client(), &site.dumps_only(), &target, &options, Depth::Full).await;
    assert!(matches!(result, Err(SyncError::ListsTooLarge { .. })), "its bytes count");
    assert!(asked(&site).is_empty());
    std::fs::remove_file(directory.path().join("d1/1")).unwrap();
    assert_eq!(counts(&follow(&site, &directory, Depth::Full).await.unwrap()), [1, 0, 0, 3, 0]);
    // The names in the package are the Source's own, so that it is asked for the resource where they differ.
    assert_eq!(files(directory.path()), site.files);
}

#[tokio::test]
async fn rs191_a_copy_follows_a_change_dump_across_rotations_without_asking_for_a_resource() {
    let (mut site, directory) = copied(2, &[("a", Some("1")), ("b", Some("1")), ("c/d", Some("1"))]).await;
    assert_eq!(files(directory.path()), site.files);
    site.source.asked();
    for round in 0..7 {
        let body = format!("round-{round}");
        site.tell(&[("a", Some(&body)), (&body, Some("new")), ("b", (round % 2 == 0).then_some("again"))]);
        let report = follow(&site, &directory, Depth::Changes).await.unwrap();
        assert_eq!((report.method, report.failed), (Method::Incremental, 0), "round {round}: {report:?}");
        assert_eq!(files(directory.path()), site.files, "round {round}");
        let asked_for = asked(&site);
        assert!(asked_for.iter().all(|path| path.contains(".zip")), "round {round}: {asked_for:?}");
        assert_eq!(asked_for.len(), 1, "round {round}: only the new package: {asked_for:?}");
    }
    assert_eq!(counts(&follow(&site, &directory, Depth::Changes).await.unwrap()), [0, 0, 0, 0, 0]);
    assert!(asked(&site).is_empty());
}

#[tokio::test]
async fn rs194_a_package_that_is_another_one_at_its_old_place_is_read_for_what_is_new() {
    let (mut site, directory) = copied(10, &[("a", Some("1"))]).await;
    site.tell(&[("a", Some("2")), ("b", Some("1"))]);
    let body = |path: &str| {
        let answer = site.source.page(path);
        let at = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        answer[at + 4..].to_vec()
    };
    let dump = String::from_utf8(body("/changedump-1.xml")).unwrap();
    let [head, first, second] = dump.split("<url>").collect::<Vec<_>>().try_into().unwrap();
    let loc = |entry: &str| entry.split("<loc>").nth(1).unwrap().split("</loc>").next().unwrap().to_owned();
    let [old, new] = [first, second].map(loc);
    let path = |loc: &str| loc.strip_prefix(&site.source.url("")).unwrap().to_owned();
    site.source.put(&path(&old), &body(&path(&new)));
    site.source.put("/changedump-1.xml", format!("{head}<url>{}", second.replace(&new, &old)).as_bytes());
    for updated in [1, 0] {
        let report = follow(&site, &directory, Depth::Changes).await.unwrap();
        assert_eq!((report.method, report.updated, report.failed), (Method::Incremental, updated, 0));
        assert_eq!(files(directory.path()), site.files);
    }
}

#[tokio::test]
async fn rs191_where_there_are_both_the_change_dump_is_taken_if_that_is_asked_for() {
    let mut site = ChangingSource::packing(10).await;
    site.tell(&[("a", Some("1")), ("b", Some("1"))]);
    site.list();
    let directory = tempfile::tempdir().unwrap();
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    for (changes, expected) in [(ChangesFrom::Dump, ".zip"), (ChangesFrom::List, "/a")] {
        let options = SyncOptions { delete: true, retries: 0, changes, ..SyncOptions::default() };
        let run = async |site: &ChangingSource| {
            synchronise(&client(), &site.offer(), &target, &options, Depth::Changes).await.unwrap()
        };
        run(&site).await;
        site.tell(&[("a", Some(expected)), ("b", Some(expected)), ("b", Some("2"))]);
        site.source.asked();
        let report = run(&site).await;
        assert_eq!((report.method, report.failed), (Method::Incremental, 0));
        let asked_for = asked(&site);
        assert!(asked_for.iter().any(|path| path.contains(expected)), "{asked_for:?}");
        assert_eq!(files(directory.path()), site.files);
    }
}

#[tokio::test]
async fn rs197_a_change_dump_that_begins_later_leads_back_to_the_whole_dump() {
    let (mut site, directory) = copied(10, &[("a", Some("1")), ("b", Some("1"))]).await;
    site.tell(&[("a", Some("2")), ("b", None)]);
    site.dump();
    let root = format!(r#"<rs:md capability="changedump" from="{}"/>"#, site.moment());
    site.source.put("/changedump.xml", document("urlset", &root, &[]).as_bytes());
    site.source.remove("/changedump-1.xml");
    let report = follow(&site, &directory, Depth::Changes).await.unwrap();
    assert_eq!((report.method, report.failed), (Method::Baseline, 0));
    assert_eq!(files(directory.path()), site.files);
}

/// The last package of a kind of dump is of another type, and its manifest nowhere but in it.
fn retype(site: &ChangingSource, dump: &str, before: &str, media_type: &str) {
    for path in site.source.paths().iter().filter(|path| path.starts_with(dump) && path.contains(".xml")) {
        let page = String::from_utf8(site.source.page(path)).unwrap();
        let (_, body) = page.split_once("\r\n\r\n").unwrap();
        let Some((head, last)) = body.rsplit_once("<url>") else { continue };
        let last = last.replace(before, media_type).replace(r#""contents""#, r#""describedby""#);
        site.source.put(path, format!("{head}<url>{last}").as_bytes());
    }
}

#[tokio::test]
async fn rs101_a_package_of_another_format_deletes_nothing_and_loses_no_change() {
    let (mut site, directory) = copied(10, &[("a", Some("1")), ("b", Some("1"))]).await;
    site.dump_in(PackageLimits { bitstreams: 1, ..PackageLimits::default() });
    let [zip, also_zip, tar] = ["application/zip", "application/x-zip-compressed", "application/x-tar"];
    retype(&site, "/resourcedump", zip, also_zip);
    assert_eq!(counts(&follow(&site, &directory, Depth::Full).await.unwrap()), [0, 0, 0, 2, 0]);
    retype(&site, "/resourcedump", also_zip, tar);
    let report = follow(&site, &directory, Depth::Full).await.unwrap();
    assert_eq!(counts(&report), [0, 0, 0, 1, 1], "{report:?}");
    assert!(report.deletion_skipped.is_some() && report.failures[0].cause.contains(tar));
    assert_eq!(files(directory.path()), site.files);

    site.dump();
    follow(&site, &directory, Depth::Full).await.unwrap();
    site.tell(&[("a", Some("2")), ("b", None)]);
    retype(&site, "/changedump", zip, tar);
    site.dump();
    let report = follow(&site, &directory, Depth::Changes).await.unwrap();
    assert_eq!((report.method, report.failed), (Method::Baseline, 0), "{report:?}");
    assert_eq!(files(directory.path()), site.files);
}

#[tokio::test]
async fn a_dump_of_a_thousand_packages_is_unpacked_whole() {
    let mut site = ChangingSource::start(5000).await;
    let names: Vec<String> = (0..2000).map(|number| format!("{}/{number}", number % 30)).collect();
    let told: Vec<_> = names.iter().map(|name| (name.as_str(), Some(name.as_str()))).collect();
    site.tell(&told);
    site.dump_in(PackageLimits { bitstreams: 2, ..PackageLimits::default() });
    site.list();
    for offer in [site.offer(), site.dumps_only()] {
        site.source.asked();
        let directory = tempfile::tempdir().unwrap();
        let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
        let options = SyncOptions { baseline: BaselineFrom::Dump, retries: 0, ..SyncOptions::default() };
        let report = synchronise(&client(), &offer, &target, &options, Depth::Full).await.unwrap();
        assert_eq!(counts(&report), [2000, 0, 0, 0, 0]);
        assert_eq!(files(directory.path()), site.files);
        let asked = asked(&site);
        let (packages, others): (Vec<_>, Vec<_>) = asked.iter().partition(|path| path.contains(".zip"));
        assert_eq!((packages.len(), others.len()), (1000, 0), "{others:?}");
    }
}

#[tokio::test]
async fn rs174_patches_that_are_packed_without_the_resources_make_the_new_versions() {
    let mut site = ChangingSource::packing(10).await;
    let document = |name: &str, version: u32| {
        format!(r#"{{"name":"{name}","text":"{}","version":{version}}}"#, "x".repeat(500))
    };
    let names = ["a.json", "b.json", "c.json"];
    let [one, two, three] = [1, 2, 3].map(|version| names.map(|name| document(name, version)));
    let told = |bodies: &[String; 3]| -> Vec<(&'static str, Option<String>)> {
        names.into_iter().zip(bodies.iter().cloned().map(Some)).collect()
    };
    let tell = |site: &mut ChangingSource, bodies: &[String; 3]| {
        let told = told(bodies);
        site.tell(&told.iter().map(|(name, body)| (*name, body.as_deref())).collect::<Vec<_>>());
    };
    tell(&mut site, &one);
    site.dump();
    let directory = tempfile::tempdir().unwrap();
    follow(&site, &directory, Depth::Full).await.unwrap();
    for (version, bodies) in [(2, &two), (3, &three)] {
        let patch = format!(r#"[{{"op":"replace","path":"/version","value":{version}}}]"#);
        site.patches = names.into_iter().map(|name| (name.to_owned(), patch.clone())).collect();
        tell(&mut site, bodies);
    }
    // The manifests beside the packages name the patches alone.
    let pages = site.source.paths();
    for path in pages.iter().filter(|path| path.contains("change") && path.contains("manifest")) {
        let page = String::from_utf8(site.source.page(path)).unwrap();
        let body = page.split_once("\r\n\r\n").unwrap().1;
        let mut pieces = body.split("<rs:md ");
        let head = pieces.next().unwrap().to_owned();
        let without = pieces.fold(head, |text, piece| {
            let (tag, rest) = piece.split_once("/>").unwrap();
            let kept = tag.split_inclusive("\" ").filter(|one| !one.starts_with("path="));
            text + "<rs:md " + &kept.collect::<String>() + "/>" + rest
        });
        site.source.put(path, without.as_bytes());
    }
    site.source.asked();
    let report = follow(&site, &directory, Depth::Changes).await.unwrap();
    assert_eq!((report.method, report.updated, report.patched), (Method::Incremental, 3, 3), "{report:?}");
    assert_eq!(files(directory.path()), site.files);
    let asked = asked(&site);
    assert_eq!(asked.len(), 2, "each package once, and no resource: {asked:?}");
    assert!(asked.iter().all(|path| path.contains(".zip")));
}

#[tokio::test]
async fn a_source_with_nothing_that_may_be_used_is_named() {
    let site = site(1).await;
    let directory = tempfile::tempdir().unwrap();
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let options = SyncOptions { baseline: BaselineFrom::List, ..SyncOptions::default() };
    for offer in [site.dumps_only(), Offer::default()] {
        let result = synchronise(&client(), &offer, &target, &options, Depth::Full).await;
        assert!(matches!(result, Err(SyncError::NothingOffered)));
    }
}
