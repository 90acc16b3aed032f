//! A gap that is repaired from the hub while the Source is away, by a client that no one here wrote: Python's `resync`, installed from its
//! registry. Without a way there the test fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::fs;
use std::path::Path;

use resync_harness::tree::differences;
use resync_harness::{HubProcess, Process, RESYNC, Receiver, Reply, binary, free_address, refusing, request};
use tempfile::tempdir;
use tokio::process::Command;

const SECRET: &str = "known to both";

/// Runs a program in a folder to its good end; what it says.
async fn run(program: &Path, arguments: &[&str], folder: &Path) -> String {
    let mut command = Command::new(program);
    for (name, _) in env::vars().filter(|(name, _)| name.to_lowercase().contains("proxy")) {
        command.env_remove(name);
    }
    let output = command.args(arguments).current_dir(folder).output().await.unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{} {arguments:?}: {}", program.display(), said.concat());
    said.concat()
}

/// The URL of the hub's Change List, signed by the lines that the description of the protocol has for that.
async fn signed_url(hub: &str, topic: &str, callback: &str, after: u64) -> String {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let protocol = fs::read_to_string(protocol).unwrap();
    let lines = protocol.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let script = format!(
        "import sys\nhub, after = sys.argv[1:3]\ntopic, callback, secret = (word.encode() for word in sys.argv[3:])\n\
         {lines}\nprint(url)"
    );
    let arguments = ["-c", &script, hub, &after.to_string(), topic, callback, SECRET];
    run(Path::new("python3"), &arguments, Path::new("/")).await.trim().to_owned()
}

fn assert_same(one: &Path, other: &Path) {
    let found = differences(one, other).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn cn016_a_client_of_strangers_repairs_its_copy_from_the_hub_while_the_source_is_away() {
    let folder = tempdir().unwrap();
    let [collection, copy] = ["collection", "copy"].map(|name| folder.path().join(name));
    let site = folder.path().join("site").display().to_string();
    for folder in [&collection, &copy] {
        fs::create_dir(folder).unwrap();
    }
    let python = RESYNC.installed();
    let put = |name: &str, content: &str| fs::write(collection.join(name), content).unwrap();
    let source = async |arguments: &[&str]| {
        run(&binary("resync-source"), arguments, folder.path()).await;
    };
    let address = free_address();
    let (listen, base) = (address.to_string(), format!("http://{address}"));
    let client = async |arguments: &[&str]| {
        let where_to = [base.as_str(), copy.to_str().unwrap()];
        run(&python.join("bin/resync-sync"), &[arguments, &where_to].concat(), folder.path()).await
    };

    // Only a signature opens the log of this hub.
    let hub = HubProcess::start_public(&folder.path().join("hub"), &[]).await;
    let destination = Receiver::start().await;
    let (topic, callback) = (format!("{base}/resync/changes/"), destination.url("/callback"));
    hub.subscribe(&topic, &callback, &[("hub.secret", SECRET)], 1).await;
    put("kept.txt", "kept");
    put("old.txt", "old");
    put("gone.txt", "gone");
    let files = collection.display().to_string();
    source(&["build", &files, "--base-url", &base, "--out", &site, "--hub", &hub.url()]).await;
    let mut serving =
        Process::start("resync-source", &["serve", "--out", &site, "--listen", &listen], &HashMap::new());
    serving.line("listening on").await;
    client(&["--baseline"]).await;
    put("first.txt", "told and heard");
    source(&["publish", "--out", &site]).await;
    let is_first = |text: String| text.contains("/first.txt");
    let heard = destination.until("it hears", |seen| seen.iter().any(|seen| is_first(seen.text()))).await;
    let after = heard.iter().find(|seen| is_first(seen.text())).unwrap().offset();
    client(&["--incremental", "--changelist-uri", &format!("{base}/resync/changelist-1.xml")]).await;
    assert_same(&collection, &copy);

    destination.behave(refusing(503));
    put("old.txt", "old no more");
    source(&["publish", "--out", &site]).await;
    put("new.txt", "new");
    fs::remove_file(collection.join("gone.txt")).unwrap();
    source(&["publish", "--out", &site]).await;
    serving.kill().await;
    // The resources are still somewhere; of the Source's documents none is.
    let resources = Receiver::try_start_at(address).await.unwrap();
    resources.behave(move |seen| {
        let found = fs::read_to_string(Path::new(&files).join(seen.path().trim_start_matches('/')));
        found.map_or(Reply::Status(404, String::new()), |text| Reply::Page(200, Vec::new(), text))
    });

    let url = signed_url(&hub.url(), &topic, &callback, after).await;
    let (_, target) = url.split_once(&hub.address.to_string()).unwrap();
    let bytes = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", hub.address);
    let list = request(hub.address, bytes.as_bytes()).await.unwrap();
    assert_eq!(list.status, 200, "{}", list.text());
    resync_judge::written("catch-up", [("changelist.xml", &list.body)]);

    let said = client(&["--incremental", "--delete", "--changelist-uri", &url]).await;
    assert!(said.contains("CHANGES APPLIED (created=1, updated=1, deleted=1)"), "{said}");
    assert_same(&collection, &copy);
    let asked: BTreeSet<_> = resources.seen().iter().map(|seen| seen.target.clone()).collect();
    assert_eq!(asked, BTreeSet::from(["/new.txt", "/old.txt"].map(str::to_owned)));
}
