//! Files that were in a folder before it became a copy: no run replaces or removes them unless they are adopted.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;

use crate::support::copy::{Copy, counts};
use crate::support::{Hub, PATIENCE, Source, client, expected, files, on_this_machine, reports};
use resync_subscriber_kit::listen::{ListenError, ListenOptions, listen};
use resync_subscriber_kit::sync::{Depth, Offer, Report, SyncError, SyncOptions, Target, synchronise};
use url::Url;

/// The folder of a person, and a Source of two files.
async fn own_folder() -> Copy {
    let copy = Copy::start().await;
    copy.list_of(&[("/letter", "of the Source"), ("/same", "the same"), ("/new", "new")]);
    for (name, content) in OWN {
        std::fs::create_dir_all(copy.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(copy.path().join(name), content).unwrap();
    }
    copy
}

const OWN: [(&str, &str); 3] = [("deep/diary", "mine"), ("letter", "mine"), ("same", "the same")];

fn refused(result: Result<Report, SyncError>) -> (u64, Vec<String>) {
    match result {
        Err(SyncError::EarlierFiles { count, first, .. }) => (count, first),
        other => panic!("{other:?}"),
    }
}

fn has_state(folder: &Path) -> bool {
    folder.join(".resync-destination").exists()
}

#[tokio::test]
async fn a_run_with_deletion_is_refused_in_somebodys_own_folder_before_anything_is_changed() {
    let mut copy = own_folder().await;
    let result = copy.try_sync(true).await;
    let said = result.as_ref().unwrap_err().to_string();
    for part in ["3 files", "deep/diary, letter, same", "--dry-run", "--adopt", "nothing was done"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(refused(result).0, 3);
    assert!(copy.source.asked().is_empty() && !has_state(copy.path()));
    assert_eq!(files(copy.path()), expected(&OWN));

    copy.options.dry_run = true;
    let would = copy.try_sync(true).await.unwrap();
    assert_eq!((counts(&would), would.earlier_files), ([1, 1, 1, 1, 0], 2));
    assert_eq!(files(copy.path()), expected(&OWN));

    copy.options.dry_run = false;
    copy.options.adopt = true;
    assert_eq!(counts(&copy.sync().await), [1, 1, 1, 1, 0]);
    let in_step = expected(&[("letter", "of the Source"), ("new", "new"), ("same", "the same")]);
    assert_eq!(files(copy.path()), in_step);
    copy.options.adopt = false;
    assert_eq!(counts(&copy.sync().await), [0, 0, 0, 3, 0], "it is a copy from now on");
}

#[tokio::test]
async fn without_deletion_a_file_of_another_content_stays_in_every_run_and_one_of_the_same_is_adopted() {
    let mut copy = own_folder().await;
    for created in [1, 0] {
        let report = copy.try_sync(false).await.unwrap();
        assert_eq!(counts(&report), [created, 0, 0, 2 - created, 1]);
        assert!(report.failures[0].cause.contains("--adopt"), "{report:?}");
        assert!(!report.in_step() && !report.retry_may_help);
        assert_eq!(report.earlier_files, 2, "the diary and the letter");
    }
    let audit = copy.audit().await;
    assert_eq!((audit.different, audit.extra, audit.earlier_files), (1, 1, 2));
    assert_eq!(refused(copy.try_sync(true).await), (2, vec!["deep/diary".to_owned(), "letter".to_owned()]));

    // What the Source adds later is no better.
    copy.list_of(&[("/deep/diary", "theirs"), ("/same", "changed"), ("/new", "new")]);
    assert_eq!(counts(&copy.try_sync(false).await.unwrap()), [0, 1, 0, 1, 1]);
    assert_eq!(std::fs::read_to_string(copy.path().join("deep/diary")).unwrap(), "mine");

    std::fs::remove_file(copy.path().join("letter")).unwrap();
    copy.options.adopt = true;
    assert_eq!(counts(&copy.try_sync(false).await.unwrap()), [0, 1, 0, 2, 0]);
    assert_eq!(std::fs::read_to_string(copy.path().join("deep/diary")).unwrap(), "theirs");
}

#[tokio::test]
async fn a_file_that_its_owner_moves_away_is_fetched_by_the_next_run() {
    let copy = own_folder().await;
    copy.try_sync(false).await.unwrap();
    std::fs::remove_file(copy.path().join("letter")).unwrap();
    assert_eq!(counts(&copy.try_sync(false).await.unwrap()), [1, 0, 0, 2, 0]);
    std::fs::remove_file(copy.path().join("deep/diary")).unwrap();
    assert!(copy.try_sync(true).await.unwrap().in_step(), "nothing is left of what was there before");
}

#[tokio::test]
async fn a_copy_that_lost_its_state_is_adopted_once_more() {
    let mut copy = Copy::start().await;
    copy.list_of(&[("/a", "1"), ("/gone", "2")]);
    copy.sync().await;
    std::fs::remove_dir_all(copy.path().join(".resync-destination")).unwrap();
    copy.list_of(&[("/a", "1")]);
    assert_eq!(refused(copy.try_sync(true).await).0, 2);
    copy.options.adopt = true;
    assert_eq!(counts(&copy.sync().await), [0, 0, 1, 1, 0]);
}

#[tokio::test]
async fn a_run_that_fails_claims_nothing() {
    let copy = Copy::start().await;
    assert!(copy.try_sync(true).await.is_err(), "there is no list");
    std::fs::write(copy.path().join("mine"), "mine").unwrap();
    copy.list_of(&[("/a", "1")]);
    assert_eq!(refused(copy.try_sync(true).await), (1, vec!["mine".to_owned()]));
}

#[tokio::test]
async fn listening_with_deletion_does_not_even_begin_in_somebodys_own_folder() {
    let (hub, source) = (Hub::start().await, Source::start().await);
    source.announce(Some(&hub.url()));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "mine").unwrap();
    let mut options = ListenOptions::new(source.url("/"), folder.path());
    options.service.client = on_this_machine();
    options.sync.delete = true;
    let error = listen(options, |_| {}, std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ListenError::Copy(SyncError::EarlierFiles { .. })), "{error}");
    assert!(error.is_configuration() && source.asked().is_empty() && !has_state(folder.path()));
}

#[tokio::test]
async fn who_listens_with_adopt_at_every_start_adopts_only_what_is_no_copy_yet() {
    let (mut hub, source) = (Hub::start().await, Source::start().await);
    source.announce(Some(&hub.url()));
    source.resource_list("/resourcelist.xml", &[source.resource("/letter", b"of the Source")]);
    let folder = tempfile::tempdir().unwrap();
    let letter = folder.path().join("letter");
    std::fs::write(&letter, "mine").unwrap();
    let start = async |hub: &mut Hub| {
        let mut options = ListenOptions::new(source.url("/"), folder.path());
        options.service.client = on_this_machine();
        options.sync.adopt = true;
        let (tell, mut reports) = reports();
        let listening = tokio::spawn(listen(options, tell, std::future::pending()));
        hub.accept(600).await;
        let report = tokio::time::timeout(PATIENCE, reports.recv()).await.unwrap().unwrap();
        listening.abort();
        assert!(listening.await.unwrap_err().is_cancelled());
        report
    };

    // A run without the flag has left it alone, and so do all that listen.
    let copy = Target::open(folder.path(), Url::parse(&source.url("/")).unwrap()).unwrap();
    let list = Offer::list(Url::parse(&source.url("/resourcelist.xml")).unwrap());
    synchronise(&client(), &list, &copy, &SyncOptions::default(), Depth::Full).await.unwrap();
    for _ in 0..2 {
        let report = start(&mut hub).await;
        assert_eq!((report.failed, report.earlier_files), (1, 1));
        assert_eq!(std::fs::read_to_string(&letter).unwrap(), "mine");
    }

    std::fs::remove_dir_all(folder.path().join(".resync-destination")).unwrap();
    assert_eq!(start(&mut hub).await.updated, 1);
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "of the Source");
}
