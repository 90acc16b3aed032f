//! A Source that changes without rest, a hub and a Destination that are killed at any moment: in the end the copy is the
//! same, byte for byte, and its own audit says so too.
//!
//! It burns for some seconds; `RESYNC_FIRE_SECONDS=600` makes it long. The seed is in the message of a failure, and
//! `RESYNC_FIRE_SEED` repeats it, as far as processes can be repeated.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use resync_publisher::serve::serve;
use resync_publisher::{BaseUrl, HubUrl, Settings, build, notify};
use resync_tests::harness::{HubProcess, Process, eventually};
use resync_tests::tree;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::Instant;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A folder that is published, and its server.
struct Source {
    collection: PathBuf,
    site: PathBuf,
    settings: Settings,
    url: String,
}

impl Source {
    async fn start(folder: &Path, hub: &str) -> Self {
        let (collection, site) = (folder.join("collection"), folder.join("site"));
        std::fs::create_dir_all(&collection).unwrap();
        std::fs::write(collection.join("first"), "first").unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let base = BaseUrl::parse(&url).unwrap();
        let settings = Settings::new(&collection, base).hub(HubUrl::parse(hub).unwrap());
        let source = Self { collection, site, settings, url };
        source.publish().await;
        tokio::spawn(serve(listener, source.site.clone(), std::future::pending()));
        source
    }

    /// Some files are created, updated, deleted.
    fn change(&self, random: &mut Rng) {
        for _ in 0..random.usize(1..5) {
            let path = self.collection.join(format!("{}/{}", random.u8(0..3), random.u8(0..12)));
            if path.exists() && random.u8(0..3) == 0 {
                std::fs::remove_file(path).unwrap();
            } else {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let length = random.usize(0..20_000);
                let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
                std::fs::write(path, content).unwrap();
            }
        }
    }

    /// New documents, and the hub told, if it is there.
    async fn publish(&self) {
        let (settings, site) = (self.settings.clone(), self.site.clone());
        tokio::task::spawn_blocking(move || build(&settings, &site)).await.unwrap().unwrap();
        // A hub that was killed is told the next time.
        let _ = notify(&self.site, &[]).await;
    }
}

/// A Destination that listens at the same address again and again.
struct Destination {
    arguments: Vec<String>,
    process: Option<Process>,
}

impl Destination {
    async fn start(source: &str, copy: &Path) -> Self {
        let arguments =
            ["listen", source, "--into", copy.to_str().unwrap(), "--delete", "--listen", "127.0.0.1:0"];
        let mut one =
            Self { arguments: arguments.iter().map(|&text| text.to_owned()).collect(), process: None };
        one.restart().await;
        let line = one.process.as_mut().unwrap().line("listening on http://").await;
        let address = line.split("http://").nth(1).unwrap().trim().to_owned();
        *one.arguments.last_mut().unwrap() = address;
        one
    }

    async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    async fn restart(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut process = Process::start("resync-destination", &arguments, &HashMap::new());
        process.line("listening on http://").await;
        self.process = Some(process);
    }
}

async fn audit(source: &str, copy: &Path) -> (bool, String) {
    let mut process =
        Process::start("resync-destination", &["audit", source, copy.to_str().unwrap()], &HashMap::new());
    let ended = process.wait().await;
    (ended.success(), process.said())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_the_copy_is_the_same_in_the_end() {
    let seed = variable("RESYNC_FIRE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let burning = Duration::from_secs(variable("RESYNC_FIRE_SECONDS").unwrap_or(8));
    let mut random = Rng::with_seed(seed);
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("copy");
    let quick = [("DELIVERY_SCHEDULE", "[\"200ms\", \"500ms\", \"1s\", \"1s\", \"1s\", \"1s\"]")];
    let mut hub = HubProcess::start_with(&folder.path().join("hub"), &quick).await;
    let source = Source::start(folder.path(), &hub.url()).await;
    let mut destination = Destination::start(&source.url, &copy).await;

    let end = Instant::now() + burning;
    let (mut changes, mut kills) = (0, 0);
    while Instant::now() < end {
        source.change(&mut random);
        source.publish().await;
        changes += 1;
        match random.u8(0..12) {
            0 => {
                hub.kill().await;
                source.change(&mut random);
                source.publish().await;
                hub.restart().await;
                kills += 1;
            }
            1 | 2 => {
                destination.kill().await;
                source.change(&mut random);
                source.publish().await;
                destination.restart().await;
                kills += 1;
            }
            _ => tokio::time::sleep(Duration::from_millis(random.u64(0..150))).await,
        }
    }
    source.publish().await;
    let what =
        format!("seed {seed}: the copy is the same after {changes} rounds of changes and {kills} kills");
    eventually(&what, async || tree::differences(&source.collection, &copy).is_ok_and(|all| all.is_empty()))
        .await;
    // By its own account too, once it has stopped.
    destination.kill().await;
    let (is_clean, said) = audit(&source.url, &copy).await;
    assert!(is_clean, "seed {seed}: {said}");
}
