//! Commands of the operator ask the hub that runs in their data folder, wherever it listens; its token is shown to nobody else.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use resync_harness::{Process, binary};
use tempfile::tempdir;
use tokio::process::Command;

/// A hub whose admin listener takes any free port, and where that is.
async fn hub(data: &Path) -> (Process, SocketAddr) {
    let arguments = ["--dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let environment = [("RESYNC_HUB_ADMIN_LISTEN".to_owned(), "127.0.0.1:0".to_owned())].into();
    let mut hub = Process::start("resync-hub", &arguments, &environment);
    let line = hub.line("  admin    http://").await;
    let address = line.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    (hub, address.parse().unwrap())
}

/// What a command says that is given this folder.
async fn says(data: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary("resync-hub"));
    let output = command.args(arguments).arg("--data-dir").arg(data).output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Answers every request with a page, and remembers it.
fn stranger(address: &str) -> (SocketAddr, Arc<Mutex<String>>) {
    let listener = TcpListener::bind(address).unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(String::new())));
    let heard = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 4_096]);
            let length = stream.read(&mut asked).unwrap_or_default();
            *heard.lock().unwrap() += &String::from_utf8_lossy(&asked[..length]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"items\": []}");
        }
    });
    (address, seen)
}

#[tokio::test]
async fn two_hubs_on_one_machine_are_never_taken_for_each_other() {
    let folder = tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let ((first, address), (_second, elsewhere)) = (hub(&one).await, hub(&other).await);
    for (data, name) in [(&one, "library"), (&other, "archive")] {
        let add = ["token", "add", name, "--topic-prefix", "https://source.example/"];
        let (well, said) = says(data, &add).await;
        assert!(well && said.contains(&format!("{name} is added in {}", data.display())), "{said}");
        for command in [&["topics"][..], &["deliveries", "hosts"], &["log-level"], &["healthcheck"]] {
            let (well, said) = says(data, command).await;
            assert!(well, "{command:?}: {said}");
        }
    }
    let (_, listed) = says(&one, &["token", "list"]).await;
    assert!(listed.contains("library") && !listed.contains("archive"), "{listed}");

    for at in [elsewhere.to_string(), format!("http://{elsewhere}/")] {
        let (well, said) = says(&one, &["topics", "--admin", &at]).await;
        assert!(
            !well && said.contains("is not the hub of the token") && said.contains("--data-dir"),
            "{said}"
        );
        let (well, said) = says(&other, &["topics", "--admin", &at]).await;
        assert!(well, "{said}");
    }
    let (well, said) = says(&one, &["token", "list", "--admin", &elsewhere.to_string()]).await;
    assert!(!well && !said.contains("library"), "no other files are read instead: {said}");

    first.kill().await;
    let (_, seen) = stranger(&address.to_string());
    for command in [&["topics"][..], &["subscriptions", "list"], &["drain"], &["healthcheck"]] {
        let (well, said) = says(&one, command).await;
        assert!(!well && said.contains("no hub runs in") && said.contains("--admin"), "{command:?}: {said}");
    }
    let (well, said) = says(&one, &["token", "list"]).await;
    assert!(well && said.contains("library"), "its files say it: {said}");
    let (well, said) = says(&one, &["token", "revoke", "library"]).await;
    let place = format!("library is revoked in the files of {}", one.display());
    assert!(well && said.contains(&place), "{said}");
    assert_eq!(*seen.lock().unwrap(), "", "nobody is asked where it was");

    let (_again, _) = hub(&one).await;
    let (well, said) = says(&one, &["topics"]).await;
    assert!(well, "{said}");
}

#[tokio::test]
async fn a_token_is_shown_to_the_hub_that_has_it_and_to_nobody_else() {
    let folder = tempdir().unwrap();
    let (_hub, _) = hub(folder.path()).await;
    let (address, seen) = stranger("127.0.0.1:0");
    for command in [&["topics"][..], &["deliveries", "laggards"], &["backup", "-"], &["token", "list"]] {
        let at = address.to_string();
        let (well, said) = says(folder.path(), &[command, &["--admin", &at]].concat()).await;
        assert!(!well && said.contains("which was not sent"), "{command:?}: {said}");
    }
    let token = fs::read_to_string(folder.path().join("admin-token")).unwrap();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.matches("GET /identity?challenge=").count(), 4, "{seen}");
    assert!(!seen.contains(token.trim()) && !seen.contains("Authorization"), "{seen}");

    let (well, said) = says(folder.path(), &["topics", "--admin", "8081"]).await;
    assert!(!well && said.contains("127.0.0.1:8081"), "it says what to write: {said}");
}
