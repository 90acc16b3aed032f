//! Copies by the real program: of a Source behind nginx, beside the Python client, and on a disk that fills up meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use resync_harness::tree::differences;
use resync_harness::{Disk, Faults, Process, Receiver, Reply};
use resync_load::{Copy, copy};
use resync_publisher::{BaseUrl, Settings, build};
use rustix::io::Errno;
use tempfile::TempDir;

/// No write succeeds.
const FULL: Faults = Faults { writes: u16::MAX, error: Errno::NOSPC, syncs: 0 };

/// Each copy is compared byte for byte by what measures it.
#[test]
fn a_source_behind_nginx_is_copied_by_us_and_by_the_client_of_others() {
    let folder = TempDir::new().unwrap();
    let plan = Copy { files: 200, bytes: 8192, rounds: 1, nginx: "nginx".into() };
    let report = copy(&plan, folder.path()).unwrap();
    assert_eq!((report.files, report.ours.len(), report.python.len()), (200, 1, 1));
}

/// What the files of a Source are in this version.
fn write(collection: &Path, version: &str) {
    fs::create_dir_all(collection).unwrap();
    for number in 0..20 {
        fs::write(collection.join(number.to_string()), format!("{version} {number}").repeat(20_000)).unwrap();
    }
}

fn assert_same(one: &Path, other: &Path) {
    let found = differences(one, other).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_disk_that_fills_up_among_the_files_is_named_and_leaves_the_copy_as_it_was_until_there_is_room() {
    let folder = TempDir::new().unwrap();
    let [collection, site, into] = ["collection", "site", "copy"].map(|name| folder.path().join(name));
    fs::create_dir(&into).unwrap();
    let disk = Arc::new(Disk::under(&into, 7));
    let fills_up = Arc::new(AtomicBool::new(false));
    let source = Receiver::start().await;
    let url = source.url("/");
    let publish = |version: &str| {
        write(&collection, version);
        build(&Settings::new(&collection, BaseUrl::parse(&url).unwrap()), &site).unwrap();
    };
    let (folders, full, to_fill) =
        ([site.clone(), collection.clone()], Arc::clone(&fills_up), Arc::clone(&disk));
    source.behave(move |seen| {
        let path = seen.path().trim_start_matches('/');
        // The lists were read before the first file is asked for.
        if full.load(Ordering::Relaxed) && folders[1].join(path).is_file() {
            to_fill.fail(FULL);
        }
        let found = folders.iter().find_map(|folder| fs::read_to_string(folder.join(path)).ok());
        found.map_or(Reply::Status(404, String::new()), |text| Reply::Page(200, Vec::new(), text))
    });
    let environment = HashMap::from(disk.environment());
    let sync = async || {
        let arguments = ["sync", url.as_str(), into.to_str().unwrap()];
        let mut process = Process::start("resync-destination", &arguments, &environment);
        (process.wait().await.code(), process.said())
    };
    publish("old");
    let (code, said) = sync().await;
    assert_eq!(code, Some(0), "{said}");
    assert_same(&collection, &into);

    publish("new");
    let old = folder.path().join("old");
    write(&old, "old");
    fills_up.store(true, Ordering::Relaxed);
    let (code, said) = sync().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not in step: 20 of 20 resources failed"), "{said}");
    assert!(said.contains("it cannot be written (No space left on device"), "{said}");
    assert_same(&old, &into);

    // Full from the beginning, not even the list can be kept.
    let (code, said) = sync().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert_same(&old, &into);

    fills_up.store(false, Ordering::Relaxed);
    disk.fail(Faults::NONE);
    let (code, said) = sync().await;
    assert_eq!(code, Some(0), "{said}");
    assert_same(&collection, &into);
}
