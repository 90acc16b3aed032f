//! The main job with the three real binaries on real files: a Source posts, the hub verifies and delivers, a Destination acts,
//! and `kill -9` of the hub between its 2xx and the delivery changes nothing of that.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use resync_harness::{HubProcess, Process, binary, eventually, tree};
use resync_tests::demo;
use tempfile::tempdir;
use tokio::process::Command;

/// Runs `resync-source` to its end.
async fn source(arguments: &[&str]) -> Output {
    Command::new(binary("resync-source"))
        .args(arguments)
        .output()
        .await
        .expect("a built binary can be started")
}

async fn expect_done(arguments: &[&str]) -> String {
    let output = source(arguments).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn same(one: &Path, other: &Path) -> bool {
    // While the Destination writes, a file may vanish under the reader: then the folders are not the same yet.
    tree::differences(one, other).is_ok_and(|different| different.is_empty())
}

struct Site {
    collection: String,
    out: String,
    base: String,
    serving: Process,
}

/// Builds the site for a port that `serve` chose itself: the base URL must be known before it can be served.
async fn serve(folder: &Path, hub: &str) -> Site {
    let (collection, out) =
        (folder.join("collection").display().to_string(), folder.join("site").display().to_string());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listen, base) = (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{port}/"));
    expect_done(&["build", &collection, "--base-url", &base, "--out", &out, "--hub", hub]).await;
    let mut serving =
        Process::start("resync-source", &["serve", "--out", &out, "--listen", &listen], &HashMap::new());
    serving.line("listening on").await;
    Site { collection, out, base, serving }
}

fn destination(base: &str, copy: &Path) -> Process {
    let copy = copy.display().to_string();
    let arguments = ["listen", base, "--into", &copy, "--delete", "--listen", "127.0.0.1:0", "--poll", "0s"];
    Process::start("resync-destination", &arguments, &HashMap::new())
}

#[tokio::test]
async fn a_destination_ends_up_identical_although_the_hub_dies_before_it_delivers() {
    let folder = tempdir().unwrap();
    let (collection, copy) = (folder.path().join("collection"), folder.path().join("copy"));
    write(&collection, "a.txt", "first");
    write(&collection, "sub folder/\u{fc}ber.txt", "second");
    write(&collection, "gone.txt", "third");
    let mut hub = HubProcess::start(&folder.path().join("hub")).await;
    let site = serve(folder.path(), &hub.url()).await;

    let mut destination = destination(&site.base, &copy);
    destination.line("subscribed to").await;
    destination.line("in step:").await;
    assert!(same(&collection, &copy), "the baseline");
    let told = expect_done(&["notify", "--out", &site.out]).await;
    assert!(told.contains("202"), "{told}");
    destination.line_number("in step:", 2).await;

    write(&collection, "a.txt", "first, changed");
    write(&collection, "new/b.txt", "fourth");
    fs::remove_file(collection.join("gone.txt")).unwrap();
    destination.pause();
    let told = expect_done(&["publish", "--out", &site.out]).await;
    assert!(told.contains("202"), "the hub has acknowledged: {told}");
    hub.kill().await;
    assert!(!same(&collection, &copy), "nothing has been delivered yet");
    hub.restart().await;
    destination.resume();

    eventually("the copy is the same as the collection", || async { same(&collection, &copy) }).await;
    assert!(
        expect_done(&["notify", "--out", &site.out]).await.contains("othing"),
        "everything has been told"
    );
    drop((site.collection, site.serving));
}

#[tokio::test]
async fn a_source_whose_hub_is_away_loses_nothing() {
    let folder = tempdir().unwrap();
    let (collection, copy) = (folder.path().join("collection"), folder.path().join("copy"));
    write(&collection, "a.txt", "first");
    let mut hub = HubProcess::start(&folder.path().join("hub")).await;
    let site = serve(folder.path(), &hub.url()).await;
    let mut destination = destination(&site.base, &copy);
    destination.line("subscribed to").await;
    destination.line("in step:").await;

    hub.kill().await;
    write(&collection, "a.txt", "second");
    let output = source(&["publish", "--out", &site.out]).await;
    assert_eq!(output.status.code(), Some(1), "the hub was not told");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("nothing is lost"), "{complaint}");

    hub.restart().await;
    expect_done(&["notify", "--out", &site.out]).await;
    eventually("the copy is the same as the collection", || async { same(&collection, &copy) }).await;
}

#[tokio::test]
async fn the_readmes_first_command_ends_with_equal_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let programs = binary("resync-hub").parent().unwrap().to_owned();
    for name in ["resync-source", "resync-destination"] {
        assert_eq!(binary(name).parent(), Some(programs.as_path()));
    }
    let output =
        Command::new(root.join("examples/main-job")).arg("--built").arg(programs).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the same: ") && said.contains("first delivered notification"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_shows_the_way_of_a_notification_and_ends_with_equal_folders() {
    let folder = tempdir().unwrap();
    let mut story = Vec::new();
    demo::run(folder.path(), &mut story).await.unwrap();
    let story = String::from_utf8(story).unwrap();
    for part in [
        "Hub ",
        "Source ",
        "Destination ",
        "answered 202",
        "in step again, 1 created, 1 updated, 1 deleted",
        "same 8 files",
    ] {
        assert!(story.contains(part), "{part:?} is missing in:\n{story}");
    }
}
