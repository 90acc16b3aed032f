//! A hub that others wrote, installed from its registry.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::Failure;
use resync_harness::{FLASK_HUB, free_address};

const SCRIPT: &str = include_str!("../../../peers/flask_hub.py");

/// It ends with this value.
pub(super) struct Peer {
    pub(super) url: String,
    child: Child,
}

impl Peer {
    /// Installs it in `folder`, unless it is there, and starts it with a new database.
    pub(super) async fn start(folder: &Path) -> Result<Self, Failure> {
        let environment = folder.canonicalize()?.join("peer");
        if !environment.join("bin/celery").exists() {
            FLASK_HUB.install(&environment)?;
        }
        let script = environment.join("hub.py");
        std::fs::write(&script, SCRIPT)?;
        let database = environment.join("hub.sqlite");
        let _ = std::fs::remove_file(&database);
        let port = free_address().port();
        let mut command = Command::new(environment.join("bin/python"));
        command.arg(&script).arg(port.to_string()).arg(&database).arg("sha256");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("its output cannot be read")?;
        let mut lines = BufReader::new(output).lines();
        loop {
            match lines.next_line().await? {
                Some(line) if line.contains("ready") => break,
                Some(_) => {}
                None => return Err("the peer ended before it was ready".into()),
            }
        }
        // Whatever else it says is read, so that it never waits for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { url: format!("http://127.0.0.1:{port}/hub"), child })
    }

    pub(super) fn pid(&self) -> u32 {
        // It was not waited for yet, so it has one.
        self.child.id().unwrap_or_default()
    }
}
