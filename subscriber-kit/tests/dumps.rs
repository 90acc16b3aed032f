//! A copy that is made from a Resource Dump, and dumps that are not worth it, old, or hostile.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use resync_subscriber_kit::sync::{Baseline, Report, SyncOptions, Target, baseline};
use support::copy::counts;
use support::site::ChangingSource;
use support::{client, files};
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

async fn run(site: &ChangingSource, directory: &TempDir, how: Baseline) -> Report {
    let target = Target::open(directory.path(), Url::parse(&site.source.url("/")).unwrap()).unwrap();
    let options = SyncOptions { baseline: how, delete: true, retries: 0, ..SyncOptions::default() };
    baseline(&client(), &site.offer(), &target, &options).await.unwrap()
}

/// The packages and resources that were asked for.
fn asked(site: &ChangingSource) -> Vec<String> {
    site.source.asked().into_iter().filter(|path| !path.contains(".xml")).collect()
}

#[tokio::test]
async fn rs190_a_dump_is_taken_where_it_is_cheaper_and_the_copy_is_the_same() {
    let site = site(50).await;
    let directory = tempfile::tempdir().unwrap();
    let report = run(&site, &directory, Baseline::Cheaper).await;
    assert_eq!((counts(&report), report.bytes_hashed), ([50, 0, 0, 0, 0], 0));
    assert_eq!(files(directory.path()), site.files);
    let asked_for = asked(&site);
    assert!(asked_for.len() == 1 && asked_for[0].contains(".zip"), "{asked_for:?}");

    // A copy that has files has no use for it.
    assert_eq!(counts(&run(&site, &directory, Baseline::Dump).await), [0, 0, 0, 50, 0]);
    assert!(asked(&site).is_empty());
}

#[tokio::test]
async fn a_dump_that_costs_more_than_it_saves_is_left_alone_unless_it_is_asked_for() {
    let site = site(1).await;
    let [by_cost, by_wish, never] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    run(&site, &by_cost, Baseline::Cheaper).await;
    assert_eq!(asked(&site), ["/d0/0"]);
    run(&site, &by_wish, Baseline::Dump).await;
    assert!(asked(&site)[0].contains(".zip"));
    run(&site, &never, Baseline::List).await;
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
    let report = run(&site, &directory, Baseline::Cheaper).await;
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
        run(&site, &directory, Baseline::Dump).await;
        asked(&site).into_iter().find(|path| path.contains(".zip")).unwrap()
    };
    for lie in [b"no zip at all".to_vec(), Vec::new(), b"PK\x05\x06".repeat(30)] {
        site.source.put(&package, &lie);
        let directory = tempfile::tempdir().unwrap();
        let report = run(&site, &directory, Baseline::Dump).await;
        assert_eq!(counts(&report), [50, 0, 0, 0, 0]);
        assert_eq!(files(directory.path()), site.files);
        site.source.asked();
    }
    site.source.remove("/resourcedump.xml");
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(counts(&run(&site, &directory, Baseline::Cheaper).await), [50, 0, 0, 0, 0]);
}
