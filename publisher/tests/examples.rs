//! The example, run as a process.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{path::Path, process::Command};

use resync_core::{
    document::Change::{Created as C, Deleted as D, Updated as U},
    xml,
};

/// Beside the tests, where it is built with them.
fn example(folder: &Path) -> String {
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples/sqlite");
    let output = Command::new(example).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_database_is_a_source_whose_changes_are_told_and_whose_site_conforms() {
    let place = tempfile::tempdir().unwrap();
    let run = || example(place.path());
    assert_eq!(run(), "0 records, 0 unreported changes\n2 changes published, 1 records\n");
    assert_eq!(run(), "1 records, 0 unreported changes\n2 changes published, 2 records\n");
    assert_eq!(run(), "2 records, 0 unreported changes\n3 changes published, 2 records\n");
    let list = std::fs::read(place.path().join("site/records/resync/changelist-1.xml")).unwrap();
    let list = xml::read(&list).unwrap().into_document().unwrap();
    let told = list.entries().iter().map(|entry| {
        let number = entry.loc.rsplit('/').next().unwrap().trim_start_matches('0').to_owned();
        (entry.change().unwrap(), number)
    });
    let expected = [(C, "1"), (U, "1"), (C, "2"), (U, "1"), (C, "3"), (U, "1"), (D, "2")];
    assert!(told.eq(expected.map(|(change, number)| (change, number.to_owned()))), "{list:?}");

    // A change that the program did not report, as after a crash.
    let database = rusqlite::Connection::open(place.path().join("records.db")).unwrap();
    database.execute("UPDATE records SET content = 'silent' WHERE uri LIKE '%3'", []).unwrap();
    assert!(run().starts_with("2 records, 1 unreported changes\n"));

    let checked = Command::new(env!("CARGO_BIN_EXE_resync-source"))
        .arg("check")
        .arg(place.path().join("site"))
        .output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
