//! The main job with the three real binaries on real files: a Source posts, the hub verifies and delivers, a Destination acts,
//! and `kill -9` of the hub between its 2xx and the delivery changes nothing of that.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use resync_harness::{HubProcess, Process, binary, eventually, free_address, tree};
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
    let port = free_address().port();
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

/// What `examples/main-job` needs of a system where the programs are built.
const TOOLS: [&str; 17] = [
    "awk", "bash", "cat", "cp", "diff", "dirname", "env", "find", "mkdir", "mktemp", "rm", "sed", "sleep",
    "sort", "tail", "wc", "xargs",
];

/// The folder of the programs that `cargo test` built.
fn built() -> PathBuf {
    let programs = binary("resync-hub").parent().unwrap().to_owned();
    for name in ["resync-source", "resync-destination"] {
        assert_eq!(binary(name).parent(), Some(programs.as_path()));
    }
    programs
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn main_job() -> Command {
    Command::new(root().join("examples/main-job"))
}

/// What a command says on standard output, which ends well.
async fn said(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// What a command that is not begun says on standard error.
async fn refused(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{}{said}", String::from_utf8_lossy(&output.stdout));
    said
}

/// A folder with nothing but the tools for `examples/main-job`: a `PATH` without compilers.
fn tools(folder: &Path) -> PathBuf {
    let tools = folder.join("tools");
    fs::create_dir(&tools).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in TOOLS {
        let found = std::env::split_paths(&path).map(|place| place.join(tool)).find(|file| file.is_file());
        symlink(found.unwrap_or_else(|| panic!("{tool} is missing")), tools.join(tool)).unwrap();
    }
    tools
}

#[tokio::test]
async fn the_readmes_first_command_ends_with_equal_folders_and_asks_for_no_compiler_where_all_is_built() {
    let folder = tempdir().unwrap();
    let path = tools(folder.path());
    let said = said(main_job().env("PATH", &path).arg("--built").arg(built())).await;
    assert!(said.contains("the same: ") && said.contains("first delivered notification"), "{said}");
    assert!(refused(main_job().env("PATH", &path)).await.contains("cargo is missing"));
}

#[tokio::test]
async fn the_first_command_takes_any_folder_and_compares_what_can_be_a_resource() {
    let folder = tempdir().unwrap();
    let sample = folder.path().join("sample");
    for name in ["a.txt", "names/\u{fc} b\n#?.txt", "names/back\\slash", ".hidden/c", "draft.tmp", "z/alone"]
    {
        write(&sample, name, name);
    }
    fs::create_dir_all(sample.join("empty/deep")).unwrap();
    symlink("/nowhere/at/all", sample.join("dangling")).unwrap();
    symlink(".", sample.join("names/loop")).unwrap();
    symlink("a.txt", sample.join("link")).unwrap();
    fs::set_permissions(sample.join("a.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    let said = said(main_job().arg("--built").arg(built()).arg(&sample)).await;
    assert!(said.contains("left out: 1 that cannot be read as files, such as dangling"), "{said}");
    // The last one, which was alone in its folder, is deleted; another is created.
    assert!(said.contains("deleted  z/alone") && said.contains("the same: 5 files"), "{said}");
    assert!(sample.join("z/alone").is_file(), "the sample stays as it is");
}

#[tokio::test]
async fn the_first_command_says_what_it_cannot_use() {
    let folder = tempdir().unwrap();
    let built = built();
    let empty = folder.path().to_str().unwrap();
    for (arguments, says) in [
        (vec!["--built"], "--built takes the folder"),
        (vec!["--built", empty], "resync-hub is missing in"),
        (vec!["--nonsense"], "--nonsense is not known"),
        (vec!["/nowhere"], "/nowhere is no folder"),
    ] {
        let said = refused(main_job().args(&arguments)).await;
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    let output = main_job().arg("--built").arg(&built).arg(empty).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("at least two files"), "{said}");
}

/// A cargo that takes down what it is asked for, and brings the programs of this build.
#[tokio::test]
async fn the_first_command_builds_the_three_programs_alone_quickly_and_says_beforehand_what_that_costs() {
    let folder = tempdir().unwrap();
    let (path, target) = (tools(folder.path()), folder.path().join("target"));
    let script = format!(
        "#!/bin/bash\necho \"$*\" >'{0}/asked'\nmkdir -p '{0}/target'\ncp -r '{1}' '{0}/target/quick'\n",
        folder.path().display(),
        folder.path().join("programs").display()
    );
    fs::create_dir(folder.path().join("programs")).unwrap();
    for name in ["resync-hub", "resync-source", "resync-destination"] {
        symlink(binary(name), folder.path().join("programs").join(name)).unwrap();
    }
    for (name, text) in [("cargo", script.as_str()), ("cc", "#!/bin/bash\n")] {
        fs::write(path.join(name), text).unwrap();
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = main_job();
    command.env("PATH", &path).env("CARGO_TARGET_DIR", &target);
    let first = said(&mut command).await;
    let (cost, build) = (first.find("The first time this takes"), first.find("$ cargo build"));
    assert!(cost.is_some() && cost < build, "{first}");
    assert!(!said(&mut command).await.contains("The first time"), "it is built already");

    // The real cargo knows the profile, the crates and the features; the second engine and the allocator are not among them.
    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    let (_, packages) = asked.trim().split_once(" -p ").unwrap();
    assert!(asked.contains("--locked --profile quick"), "{asked}");
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    assert_eq!(manifest["profile"]["quick"]["lto"].as_str(), Some("off"));
    let tree = said(
        Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "-p"])
            .args(packages.replace("--bins ", "").split(' '))
            .current_dir(root()),
    )
    .await;
    for (name, is_there) in [("clap", true), ("fjall", true), ("sled", false), ("tikv-jemallocator", false)] {
        assert_eq!(tree.lines().any(|line| line.starts_with(&format!("{name} v"))), is_there, "{name}");
    }
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
