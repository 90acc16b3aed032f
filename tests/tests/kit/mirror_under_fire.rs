//! A Source that changes without rest, a hub and a Destination that are killed at any moment: in the end the copy is the
//! same, byte for byte, and its own audit says so too.
//!
//! Files change 14 times a second by the clock, whatever becomes of those who publish, are killed and start again meanwhile. It burns for some
//! seconds; `RESYNC_FIRE_SECONDS=600` makes it long. The seed is in the message of a failure, and `RESYNC_TEST_SEED` repeats it, as far as
//! processes can be repeated.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use resync_harness::tree;
use resync_harness::{HubProcess, PATIENCE, Process, happens_within, seed};
use resync_publisher::serve::serve;
use resync_publisher::settings::Rules;
use resync_publisher::{BaseUrl, HubUrl, Settings, build, notify};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, sleep_until};

/// How many files are created, updated or deleted in a second.
const RATE: u32 = 14;
/// What a long run must come to, of that.
const KEPT: f64 = 13.9;
/// A run is long enough to be judged so where the change that is due next is far less than the difference.
const LONG: Duration = Duration::from_secs(60);
/// Between two builds of the site: some changes are published together, and others by themselves.
const PUBLISHED_EVERY: Duration = Duration::from_millis(100);

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
    /// What is written here and then renamed is never seen half.
    draft: PathBuf,
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
        let draft = folder.join("draft");
        let source = Self { collection, draft, site, settings, url };
        source.publish().await;
        tokio::spawn(serve(listener, source.site.clone(), std::future::pending()));
        source
    }

    /// A file is created, updated or deleted.
    fn change(&self, random: &mut Rng) {
        let path = self.collection.join(format!("{}/{}", random.u8(0..3), random.u8(0..12)));
        if path.exists() && random.u8(0..3) == 0 {
            std::fs::remove_file(path).unwrap();
        } else {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let length = random.usize(0..20_000);
            let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            std::fs::write(&self.draft, content).unwrap();
            std::fs::rename(&self.draft, path).unwrap();
        }
    }

    /// One change after the other, each when it is due, as long as it burns; gives how many. What came too late is made up for at once.
    async fn keep_changing(self: Arc<Self>, mut random: Rng, burns: Arc<AtomicBool>) -> u32 {
        let (begin, mut changes) = (Instant::now(), 0);
        loop {
            sleep_until(begin + Duration::from_secs(1) * changes / RATE).await;
            if !burns.load(Ordering::SeqCst) {
                return changes;
            }
            self.change(&mut random);
            changes += 1;
        }
    }

    /// Publishes again and again as long as it burns.
    async fn keep_publishing(self: Arc<Self>, burns: Arc<AtomicBool>) {
        while burns.load(Ordering::SeqCst) {
            self.publish().await;
            sleep(PUBLISHED_EVERY).await;
        }
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
    let seed = seed();
    let burning = Duration::from_secs(variable("RESYNC_FIRE_SECONDS").unwrap_or(8));
    let mut random = Rng::with_seed(seed);
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("copy");
    let quick = [("DELIVERY_SCHEDULE", "[\"200ms\", \"500ms\", \"1s\", \"1s\", \"1s\", \"1s\"]")];
    let mut hub = HubProcess::start_with(&folder.path().join("hub"), &quick).await;
    let source = Arc::new(Source::start(folder.path(), &hub.url()).await);
    let mut destination = Destination::start(&source.url, &copy).await;

    let burns = Arc::new(AtomicBool::new(true));
    let begin = Instant::now();
    let changing = tokio::spawn(Arc::clone(&source).keep_changing(random.fork(), Arc::clone(&burns)));
    let publishing = tokio::spawn(Arc::clone(&source).keep_publishing(Arc::clone(&burns)));
    let mut kills = 0;
    // A build that has failed tells why in the end.
    while (begin.elapsed() < burning || source.rotations() == 0) && !publishing.is_finished() {
        sleep(Duration::from_millis(random.u64(100..1_500))).await;
        let down = Duration::from_millis(random.u64(0..500));
        if random.u8(0..3) == 0 {
            hub.kill().await;
            sleep(down).await;
            hub.restart().await;
        } else {
            destination.kill().await;
            sleep(down).await;
            destination.restart().await;
        }
        kills += 1;
    }
    burns.store(false, Ordering::SeqCst);
    let seconds = begin.elapsed().as_secs_f64();
    let changes = changing.await.unwrap();
    publishing.await.unwrap();
    source.publish().await;
    let (rate, rotations) = (f64::from(changes) / seconds, source.rotations());
    let what = format!(
        "seed {seed}: the copy is the same after {changes} changes in {seconds:.1} s, that is {rate:.2} changes a second, \
         {rotations} rotations and {kills} kills"
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
    assert!(burning < LONG || rate >= KEPT, "too few changes to be what was promised: {what}");
}
