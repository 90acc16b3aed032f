//! The example, run as a process, and what the guide shows of a database.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{path::Path, process::Command};

use resync_core::{
    document::Change::{Created as C, Deleted as D, Updated as U},
    xml,
};
use resync_publisher::prelude::*;

/// Beside the tests, where it is built with them.
fn example(folder: &Path) -> String {
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples/sqlite");
    let output = Command::new(example).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn what_the_guide_shows_of_a_database_publishes_it() {
    publish_as_in_the_guide().await.unwrap();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/source.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let shown = between(&guide, "```rust\n", "```\n");
    let here = include_str!("examples.rs");
    let run = between(here, "    // The guide:\n", "    // Its end.").lines();
    assert_eq!(run.map(str::trim).collect::<Vec<_>>(), shown.lines().collect::<Vec<_>>());
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).unwrap().0
}

async fn publish_as_in_the_guide() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    // Nobody listens there.
    let (folder, hub, token) = (place.path(), "http://127.0.0.1:1/".parse()?, "s3cret".parse()?);
    let database = rusqlite::Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE records (uri TEXT, content TEXT); INSERT INTO records VALUES ('https://example.org/1', 'Fern')",
    )?;
    let of_row = |row: &rusqlite::Row<'_>| Ok(Item::new(row.get::<_, String>(0)?));
    let uri = "https://example.org/2";
    // The guide:
    let source = Source::new(folder.join("site"), "https://example.org/".parse()?).hub(hub);
    let set = source.set("records")?;

    // At the start: all records, in the order of their URIs. This finds what a crash left unreported.
    let mut rows = database.prepare("SELECT uri, content FROM records ORDER BY uri")?;
    set.list(|| rows.query_map([], of_row))?;

    // After each commit: created(item), updated(item) or deleted(uri).
    set.created(Item::new(uri).content(b"Moss").media_type("text/plain"))?;

    // About every second. If it fails, the changes stay collected, and the next call publishes each of them once.
    set.publish()?;
    set.notify(&[token]).await?;
    // Its end.
    let list = std::fs::read(folder.join("site/records/resync/resourcelist.xml"))?;
    assert_eq!(xml::read(&list)?.into_document()?.entries().len(), 2);
    Ok(())
}

#[test]
fn a_database_is_a_source_whose_changes_are_told_and_whose_site_conforms() {
    let place = tempfile::tempdir().unwrap();
    let run = || example(place.path());
    assert_eq!(run(), "records: 0, unreported changes: 0\nchanges published: 2, records: 1\n");
    assert_eq!(run(), "records: 1, unreported changes: 0\nchanges published: 2, records: 2\n");
    assert_eq!(run(), "records: 2, unreported changes: 0\nchanges published: 3, records: 2\n");
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
    assert!(run().starts_with("records: 2, unreported changes: 1\n"));

    let checked = Command::new(env!("CARGO_BIN_EXE_resync-source"))
        .arg("check")
        .arg(place.path().join("site"))
        .output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
