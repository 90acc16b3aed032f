//! Judges that no one here wrote: Python's `resync` as a Destination, and its `jsonpatch`, installed from their registry. Without a way there
//! the tests fail.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use resync_core::document::Relation;
use resync_harness::{JUDGES, RESYNC, free_address};

use crate::{
    configured::{configured, one_set},
    support::{BASE, Place, Server, run, text},
};

/// The client, and the folder in which it works.
struct Client {
    python: PathBuf,
    folder: tempfile::TempDir,
    url: String,
}

impl Client {
    fn install(url: String) -> Self {
        Self { python: RESYNC.installed(), folder: tempfile::tempdir().unwrap(), url }
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    /// Runs the client on the copy; what it says, which must hold no error.
    fn sync(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(self.python.join("bin/resync-sync"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.to_lowercase().contains("proxy")) {
            command.env_remove(name);
        }
        command.args(arguments).args([&self.url, text(&self.copy())]).current_dir(self.folder.path());
        let output = command.output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let complains = ["error", "fail", "traceback", "exception", "abort"]
            .iter()
            .any(|word| said.to_lowercase().contains(word));
        assert!(output.status.success() && !complains, "{arguments:?}: {said}");
        said
    }
}

/// Every file with its bytes; where `names` are those of URLs they stand as those of files.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in walkdir::WalkDir::new(folder).into_iter().map(Result::unwrap) {
        if entry.file_type().is_file() {
            let below = entry.path().strip_prefix(folder).unwrap();
            let url = below.to_str().unwrap();
            let path = resync_core::build::path_of(url).unwrap_or_else(|| below.to_owned());
            all.insert(path, fs::read(entry.path()).unwrap());
        }
    }
    all
}

#[test]
fn rs190_rs191_rs195_a_client_of_strangers_copies_follows_and_audits_without_an_error() {
    let place = Place::new();
    for number in 0..40 {
        place.put(&format!("many/{number:02}.bin"), vec![number; 1 + usize::from(number) * 1000]);
    }
    // An address that is free now: the site says which one it has.
    let address = free_address();
    let url = format!("http://{address}");
    let hashes = ["--hash", "md5", "--hash", "sha-1", "--hash", "sha-256"];
    place.build_at(&url, &hashes).succeeded();
    let _server = Server::start_at(&place, address);
    let client = Client::install(url.clone());
    let sync = |mode: &[&str]| client.sync(&[mode, &hashes].concat());
    // It cannot follow with digests: "'ChangeList' object has no attribute 'hashes'".
    // Its look at digests takes altered bytes of the same length for the same, so bytes are compared here.
    let in_sync = |when: &str| {
        let said = sync(&["--audit"]);
        let expected = format!("IN SYNC (same={}, to create=0,", files(&place.collection()).len());
        assert!(said.contains(&expected), "{when}: {said}");
        assert_eq!(files(&client.copy()), files(&place.collection()), "{when}");
    };

    fs::create_dir(client.copy()).unwrap();
    let said = sync(&["--baseline"]);
    assert!(said.contains("SYNCED (same=0, created=42, updated=0, deleted=0)"), "{said}");
    in_sync("after the baseline");

    let changes = format!("{url}/resync/changelist-1.xml");
    let follow = || client.sync(&["--incremental", "--delete", "--changelist-uri", &changes]);
    let said = follow();
    assert!(said.contains("NO CHANGES"), "{said}");
    for round in 0..3 {
        let build = || run(&["build", "--out", text(&place.out())]).succeeded();
        place.remove(&format!("many/{round:02}.bin"));
        build();
        place.put("a.txt", format!("alpha, round {round}"));
        place.put(&format!("new/{round}.txt"), "new");
        build();
        let said = follow();
        // It takes the changes of the last moment once more (RS-128), and complains of what it has deleted already.
        let created = if round == 0 { 1 } else { 2 };
        let expected = format!("CHANGES APPLIED (created={created}, updated=1, deleted=1)");
        assert!(said.contains(&expected), "{said}");
        in_sync(&format!("after round {round}"));
    }
    run(&["check", text(&place.out())]).succeeded();

    place.put("sub/b c.xml", "<c/>");
    place.remove("a.txt");
    run(&["build", "--out", text(&place.out())]).succeeded();
    let said = sync(&["--audit"]);
    assert!(said.contains("NOT IN SYNC (same=40, to create=0, to update=1, to delete=1)"), "{said}");
    let said = sync(&["--baseline", "--delete"]);
    assert!(said.contains("SYNCED (same=40, created=0, updated=1, deleted=1)"), "{said}");
    in_sync("after another baseline");
}

#[test]
fn rs174_rs176_a_library_of_strangers_comes_by_our_patches_from_each_version_to_the_next() {
    let place = Place::new();
    let config = configured(&place, &one_set(&format!("{BASE}/"), "json_patch = true\n"));
    let long = "long ".repeat(200);
    let versions = [
        format!(r#"{{"text": "{long}", "list": [1, 2, 3], "old": null}}"#),
        format!(r#"{{"text": "{long}", "list": [0, 1, 3, {{"deep": "é~/"}}], "a/b": true}}"#),
        format!(r#"{{"list": [], "a/b": {{"c~d": [[]]}}, "text": "{long}"}}"#),
        format!(r#"["{long}", 1.5, -7e300]"#),
    ];
    for version in &versions {
        place.put("data.json", version);
        run(&["build", "--config", text(&config)]).succeeded();
    }
    let library = JUDGES.installed();
    let list = place.document("resync/changelist-1.xml");
    let patches = list.entries().iter().filter_map(|entry| entry.link(&Relation::Patch));
    let patches: Vec<_> = patches.map(|link| link.href.replace(&format!("{BASE}/"), "")).collect();
    assert_eq!(patches.len(), 2, "to something else altogether there is no shorter way");
    for (pair, patch) in versions.windows(2).zip(patches) {
        let script = "import json, jsonpatch, sys; before, after, patch = map(json.loads, sys.argv[1:]); \
                      assert jsonpatch.apply_patch(before, patch) == after";
        let patch = fs::read_to_string(place.out().join(patch)).unwrap();
        let mut python = Command::new(library.join("bin/python"));
        let output = python.args(["-c", script, &pair[0], &pair[1], &patch]).output().unwrap();
        assert!(output.status.success(), "{patch}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
