//! Versions on a file system that shares the blocks of files: they take no room of their own while the file is as it was.

use std::{
    fs::{self, File},
    process::Command,
};

use resync_harness::left_out;

use crate::{
    support::{BASE, text},
    versions::ALWAYS,
};

const WHAT: &str = "that versions share the blocks of files";

/// The length of the file whose versions are kept; the script below has it, too.
const LENGTH: u64 = 16 << 20;

/// Builds a site on the file system in the image `$1`, at `$2`, by the program `$3` and the configuration `$4`, also after the file was written
/// into. Only its own processes see the mount, so nothing is left of it however they end.
const SCRIPT: &str = r#"
set -eu
mount -o loop "$1" "$2"
echo mounted
cd "$2"
tell_free() { sync -f .; stat -f -c 'free %f %S' .; }
mkdir collection
head -c 16777216 /dev/urandom >collection/a.bin
printf '%s' "$4" >source.toml
tell_free
"$3" build --config source.toml
printf 'written in place' | dd of=collection/a.bin conv=notrunc status=none
"$3" build --config source.toml
tell_free
sha256sum collection/a.bin site/.resync-source/versions/*/*
"#;

#[test]
fn mem010_where_the_file_system_can_versions_share_the_blocks_of_the_file_and_stay_when_it_is_written_into() {
    let Some(told) = on_a_disk_that_shares() else { return };
    assert!(!told.contains("copied for that"), "{told}");
    let free: Vec<u64> = told.lines().filter_map(|line| line.strip_prefix("free ")).map(bytes).collect();
    let [before, after] = free[..] else { panic!("{told}") };
    assert!(before.saturating_sub(after) < LENGTH / 4, "{told}");
    let digests: Vec<_> = told
        .lines()
        .filter_map(|line| line.split_once("  "))
        .filter(|(digest, _)| digest.len() == 64)
        .collect();
    let [(file, "collection/a.bin"), versions @ ..] = &digests[..] else { panic!("{told}") };
    assert!(versions.iter().all(|(digest, path)| path.ends_with(*digest)), "{told}");
    assert_eq!(versions.len(), 2, "{told}");
    assert!(versions.iter().any(|(digest, _)| digest == file), "{told}");
}

/// What the script says; `None` where this machine cannot run it.
fn on_a_disk_that_shares() -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let [image, disk] = ["image", "disk"].map(|name| folder.path().join(name));
    fs::create_dir(&disk).unwrap();
    File::create(&image).unwrap().set_len(16 * LENGTH).unwrap();
    let Ok(made) = Command::new("mkfs.btrfs").arg("-q").arg(&image).output() else {
        left_out(WHAT, "mkfs.btrfs is missing");
        return None;
    };
    assert!(made.status.success(), "{made:?}");
    let configuration =
        format!("out = \"site\"\nbase_url = \"{BASE}/\"\ndirectory = \"collection\"\n{ALWAYS}");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh", text(&image), text(&disk)]);
    command.args([env!("CARGO_BIN_EXE_resync-source"), configuration.as_str()]);
    let Ok(run) = command.output() else {
        left_out(WHAT, "unshare is missing");
        return None;
    };
    let [told, failed] = [run.stdout, run.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    if !told.starts_with("mounted") {
        left_out(WHAT, failed.lines().next().unwrap_or("it cannot be mounted"));
        return None;
    }
    assert!(run.status.success(), "{told}{failed}");
    Some(told)
}

/// From a number of blocks and the length of one to bytes.
fn bytes(blocks: &str) -> u64 {
    blocks.split(' ').map(|number| number.parse::<u64>().unwrap()).product()
}
