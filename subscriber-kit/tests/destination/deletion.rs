//! RS-201: what `--delete` removes, and all that it must leave alone.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::support::copy::{Copy, counts};
use crate::support::{expected, files, status};
use resync_subscriber_kit::sync::Report;

const NINE: &str = "2026-11-20T09:00:00Z";
const TEN: &str = "2026-11-20T10:00:00Z";

fn skipped(report: &Report) -> &str {
    report.deletion_skipped.as_deref().expect("deletion is skipped, and the report says so")
}

#[tokio::test]
async fn rs201_nothing_is_deleted_while_a_listed_resource_has_no_place_here() {
    let copy = Copy::start().await;
    copy.list_of(&[("/x/y", "kept"), ("/z", "z")]);
    copy.sync().await;
    // The same file, written so that it is refused.
    let refused = copy.source.entry("/x%2Fy", b"kept");
    copy.source.resource_list("/resourcelist.xml", &[refused, copy.source.resource("/z", b"z")]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [0, 0, 0, 1, 1]);
    assert!(skipped(&report).contains("no path"), "{report:?}");
    assert!(!report.in_step());
    assert_eq!(files(copy.path()), expected(&[("x/y", "kept"), ("z", "z")]));
}

#[tokio::test]
async fn rs050_nothing_is_deleted_while_an_entry_cannot_be_understood() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "a"), ("/b", "b"), ("/gone", "gone")]);
    copy.sync().await;
    let twice = copy.source.resource("/b", b"b").replace("</loc>", "</loc><loc>https://other.example/</loc>");
    copy.source.resource_list("/resourcelist.xml", &[copy.source.resource("/a", b"a"), twice]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [0, 0, 0, 1, 1]);
    assert!(skipped(&report).contains("no path"), "{report:?}");
    assert!(report.failures[0].cause.contains("RS-050"), "{report:?}");
    assert_eq!(files(copy.path()), expected(&[("a", "a"), ("b", "b"), ("gone", "gone")]));
}

#[tokio::test]
async fn rs201_a_resource_that_fails_keeps_its_file_and_others_go() {
    let copy = Copy::start().await;
    copy.list_of(&[("/a", "good"), ("/gone", "gone")]);
    copy.sync().await;
    let listed = copy.source.entry("/a", b"better");
    copy.source.raw("/a", status("404 Not Found", ""));
    copy.source.resource_list("/resourcelist.xml", &[listed]);
    assert_eq!(counts(&copy.sync().await), [0, 0, 1, 0, 1]);
    assert_eq!(files(copy.path()), expected(&[("a", "good")]));
}

#[tokio::test]
async fn rs095_nothing_is_deleted_while_the_lists_of_an_index_are_of_several_snapshots() {
    let copy = Copy::start().await;
    copy.part("/part1.xml", NINE, &[("/a", "a"), ("/b", "b")]);
    copy.part("/part2.xml", NINE, &[("/c", "c")]);
    copy.index_of(NINE, &["/part1.xml", "/part2.xml"]);
    copy.sync().await;
    copy.source.asked();
    // The Source moves b to its second list, and has not come further than the first.
    copy.part("/part1.xml", TEN, &[("/a", "a")]);
    let report = copy.sync().await;
    assert!(skipped(&report).contains("part1.xml"), "{report:?}");
    assert!(report.retry_may_help);
    assert_eq!(files(copy.path()), expected(&[("a", "a"), ("b", "b"), ("c", "c")]));
    let looks = copy.source.asked().iter().filter(|path| *path == "/resourcelist.xml").count();
    assert_eq!(looks, 3, "a bounded number of times");
}

#[tokio::test]
async fn rs095_a_source_that_completes_its_snapshot_meanwhile_is_read_again_and_followed() {
    let copy = Copy::start().await;
    copy.part("/part1.xml", NINE, &[("/a", "a"), ("/b", "b")]);
    copy.part("/part2.xml", NINE, &[("/c", "c")]);
    copy.index_of(NINE, &["/part1.xml", "/part2.xml"]);
    copy.sync().await;
    copy.part("/part1.xml", TEN, &[("/a", "a")]);
    copy.source.asked();
    let completing = async {
        while !copy.source.asked().iter().any(|path| path == "/part1.xml") {
            tokio::task::yield_now().await;
        }
        copy.part("/part2.xml", TEN, &[("/b", "b")]);
        copy.index_of(TEN, &["/part1.xml", "/part2.xml"]);
    };
    let (report, ()) = tokio::join!(copy.sync(), completing);
    assert_eq!((report.deleted, report.in_step()), (1, true), "{report:?}");
    assert_eq!(files(copy.path()), expected(&[("a", "a"), ("b", "b")]));
}

#[tokio::test]
async fn an_index_that_does_not_say_when_it_is_true_deletes_nothing() {
    let mut copy = Copy::start().await;
    copy.options.adopt = true;
    std::fs::write(copy.path().join("extra"), "extra").unwrap();
    copy.part("/part1.xml", "", &[("/a", "a")]);
    copy.index_of("", &["/part1.xml"]);
    let report = copy.sync().await;
    assert!(skipped(&report).contains("has no `at`") && !report.retry_may_help, "{report:?}");
    assert!(copy.path().join("extra").exists());
    assert!(copy.audit().await.unproven.is_some());
}

#[tokio::test]
async fn a_file_that_became_a_folder_and_a_folder_that_became_a_file_are_in_step_in_one_run() {
    let copy = Copy::start().await;
    copy.list_of(&[("/file", "1"), ("/folder/a", "2"), ("/folder/b/c", "3"), ("/same", "4")]);
    copy.sync().await;
    copy.list_of(&[("/file/x", "5"), ("/file/y/z", "6"), ("/folder", "7"), ("/same", "4")]);
    let report = copy.sync().await;
    assert_eq!(counts(&report), [3, 0, 3, 1, 0], "{report:?}");
    assert_eq!(
        files(copy.path()),
        expected(&[("file/x", "5"), ("file/y/z", "6"), ("folder", "7"), ("same", "4")])
    );
}

#[tokio::test]
async fn what_must_make_way_stays_until_what_replaces_it_is_there() {
    let copy = Copy::start().await;
    copy.list_of(&[("/file", "1"), ("/folder/a", "2")]);
    copy.sync().await;
    let entries = [copy.source.entry("/file/x", b"3"), copy.source.entry("/folder", b"4")];
    copy.source.remove("/folder");
    copy.source.resource_list("/resourcelist.xml", &entries);
    assert_eq!(counts(&copy.sync().await), [0, 0, 0, 0, 2]);
    assert_eq!(files(copy.path()), expected(&[("file", "1"), ("folder/a", "2")]));
}

#[tokio::test]
async fn without_delete_what_is_in_the_way_is_named_and_stays() {
    let copy = Copy::start().await;
    copy.list_of(&[("/file", "1"), ("/folder/a", "2")]);
    copy.sync().await;
    copy.list_of(&[("/file/x", "3"), ("/folder", "4")]);
    let report = copy.try_sync(false).await.unwrap();
    assert_eq!(counts(&report), [0, 0, 0, 0, 2]);
    assert!(report.failures.iter().all(|failure| failure.cause.contains("in the way")), "{report:?}");
    assert_eq!(files(copy.path()), expected(&[("file", "1"), ("folder/a", "2")]));
}

#[tokio::test]
async fn a_list_that_needs_one_path_as_file_and_folder_loses_neither_of_the_old_ones() {
    let copy = Copy::start().await;
    copy.list_of(&[("/x/y", "1")]);
    copy.sync().await;
    copy.list_of(&[("/x/y", "2"), ("/x", "3")]);
    let report = copy.sync().await;
    assert_eq!((report.failed, report.deleted), (2, 0), "{report:?}");
    assert_eq!(files(copy.path()), expected(&[("x/y", "1")]));
}

#[tokio::test]
async fn a_state_inside_the_copy_is_neither_deleted_nor_written_over() {
    use resync_subscriber_kit::state::Subscriptions;
    let copy = Copy::start().await;
    // As `listen --state DIR/mine` has it, beside a `sync --delete` that knows nothing of it.
    let _listening = Subscriptions::open(&copy.path().join("mine")).unwrap();
    std::fs::write(copy.path().join("mine/state.json"), "precious").unwrap();
    for hostile in ["/mine/state.json", "/mine"] {
        copy.list_of(&[("/a", "a"), (hostile, "evil")]);
        let report = copy.sync().await;
        assert_eq!(report.failed, 1, "{hostile}");
        assert_eq!(std::fs::read(copy.path().join("mine/state.json")).unwrap(), b"precious", "{hostile}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_symbolic_link_in_the_way_makes_way_and_is_not_followed() {
    let mut copy = Copy::start().await;
    copy.options.adopt = true;
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("precious"), "x").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), copy.path().join("link")).unwrap();
    copy.list_of(&[("/link/a", "a")]);
    assert!(copy.sync().await.in_step());
    assert_eq!(files(copy.path()), expected(&[("link/a", "a")]));
    assert_eq!(files(elsewhere.path()), expected(&[("precious", "x")]));
}
