//! A Source that changes without rest, a hub and a Destination that are killed at any moment: in the end the copy is the
//! same, byte for byte, and its own audit says so too.
//!
//! It burns for some seconds at up to 14 changes a second; `RESYNC_FIRE_SECONDS=600` makes it long. The seed is in the message of a
//! failure, and `RESYNC_FIRE_SEED` repeats it, as far as processes can be repeated.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use resync_publisher::serve::serve;
use resync_publisher::settings::Rules;
use resync_publisher::{BaseUrl, HubUrl, Settings, build, notify};
use resync_tests::harness::{HubProcess, PATIENCE, Process, happens_within};
use resync_tests::tree;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// How many files are created, updated or deleted in a second, where the machine is fast enough.
const RATE: u32 = 14;

/// Change Lists are short, and the Resource List is seldom new, so that changes are followed across rotations.
fn rules() -> Rules {
    Rules {
        change_list_entries: 10,
        resource_list_small: 0,
        resource_list_percent: 100,
        archive_seconds: Some(20),
        ..Rules::default()
    }
}

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
        let mut settings = Settings::new(&collection, base).hub(HubUrl::parse(hub).unwrap());
        settings.rules = rules();
        let source = Self { collection, site, settings, url };
        source.publish().await;
        tokio::spawn(serve(listener, source.site.clone(), std::future::pending()));
        source
    }

    /// Some files are created, updated, deleted; gives how many.
    fn change(&self, random: &mut Rng) -> u32 {
        let count = random.u32(1..5);
        for _ in 0..count {
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
        count
    }

    /// How many Change Lists were closed.
    fn rotations(&self) -> usize {
        let names = std::fs::read_dir(self.site.join("resync")).unwrap();
        let names = names.map(|one| one.unwrap().file_name());
        let number = |name: std::ffi::OsString| {
            name.to_str()?.strip_prefix("changelist-")?.strip_suffix(".xml")?.parse().ok()
        };
        names.filter_map(number).max().unwrap_or(1) - 1
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

    let begin = Instant::now();
    let (mut changes, mut kills) = (0, 0);
    while begin.elapsed() < burning || source.rotations() == 0 {
        changes += source.change(&mut random);
        source.publish().await;
        match random.u8(0..12) {
            0 => {
                hub.kill().await;
                changes += source.change(&mut random);
                source.publish().await;
                hub.restart().await;
                kills += 1;
            }
            1 | 2 => {
                destination.kill().await;
                changes += source.change(&mut random);
                source.publish().await;
                destination.restart().await;
                kills += 1;
            }
            _ => tokio::time::sleep_until(begin + Duration::from_secs(1) * changes / RATE).await,
        }
    }
    source.publish().await;
    let (seconds, rotations) = (begin.elapsed().as_secs(), source.rotations());
    let what = format!(
        "seed {seed}: the copy is the same after {changes} changes in {seconds} s, {rotations} rotations and {kills} kills"
    );
    let differences = || tree::differences(&source.collection, &copy);
    let is_same =
        happens_within(PATIENCE, async || differences().is_ok_and(|different| different.is_empty())).await;
    let said = destination.process.as_ref().map(Process::said);
    assert!(is_same, "it never happened: {what}: {:?}\n{}", differences(), said.unwrap_or_default());
    // By its own account too, once it has stopped.
    destination.kill().await;
    let (is_clean, said) = audit(&source.url, &copy).await;
    assert!(is_clean, "seed {seed}: {said}");
    println!("{what}");
}
