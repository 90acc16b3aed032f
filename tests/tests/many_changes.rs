//! A Source that tells of a great many changes at once: memory that is bounded all the same.
//!
//! `RESYNC_CHANGES=1000000` makes it a million, in 20 Change Lists.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use resync_core::build::{
    ChangeLists, Event, FolderSink, Item, MemoryInventory, ResourceLists, Rotation, Site,
};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest};
use resync_core::document::Change;
use resync_tests::harness::{Process, binary};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// What the process may have at once, in KiB.
const MOST: u64 = 128 * 1024;

/// How many of the changed resources are there.
const THERE: u64 = 500;

const BEGIN: i64 = 1_795_000_000_000;

fn moment(number: u64) -> DateTime {
    DateTime::from_unix_millis(BEGIN + i64::try_from(number).unwrap()).unwrap()
}

/// A folder behind Python's own server.
struct Served {
    folder: TempDir,
    url: String,
    _server: Process,
}

impl Served {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]);
        let mut server = Process::run("the server", command.arg(folder.path()));
        let line = server.line("Serving HTTP on").await;
        let url = line.split(&['(', ')']).nth(1).unwrap().to_owned();
        Self { folder, url, _server: server }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn site(&self) -> Site {
        Site::new(&self.url)
    }

    fn put(&self, name: &str, content: &str) -> Item {
        std::fs::create_dir_all(self.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(self.path().join(name), content).unwrap();
        let mut item = Item::new(format!("{}{name}", self.url));
        item.length = Some(content.len() as u64);
        item.hashes = [Digest::of(Algorithm::Sha256, content.as_bytes())].into_iter().collect();
        item
    }

    /// A Capability List, and a Resource List of one resource, so that the first copy has a point to go on from.
    fn begin(&self) {
        let entry = |name: &str| {
            format!("<url><loc>{}{name}.xml</loc><rs:md capability=\"{name}\"/></url>", self.url)
        };
        let capabilities = format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
             <rs:md capability=\"capabilitylist\"/>{}{}</urlset>",
            entry("resourcelist"),
            entry("changelist")
        );
        std::fs::write(self.path().join("capabilitylist.xml"), capabilities).unwrap();
        let mut sink = FolderSink::open(self.path()).unwrap();
        let inventory = MemoryInventory::new(vec![self.put("first", "first")]);
        ResourceLists::new(&self.site(), moment(0)).write(inventory.into_iter(), &mut sink).unwrap();
        ChangeLists::new(&self.site()).record(&mut sink, moment(0), [], moment(1)).unwrap();
    }

    /// Every resource is told of once; most of them are gone by then.
    fn change(&self, count: u64) {
        let every = count / THERE;
        let events = (1..=count).map(|number| {
            let name = format!("{}/{number}", number % 100);
            let (change, item) = if number % every == 0 {
                (Change::Created, self.put(&name, &format!("the content of {number}")))
            } else {
                (Change::Deleted, Item::new(format!("{}{name}", self.url)))
            };
            Ok(Event::new(change, moment(number), item))
        });
        let mut sink = FolderSink::open(self.path()).unwrap();
        let rotation = Rotation { entries: Some(50_000), ..Rotation::default() };
        let lists = ChangeLists::new(&self.site()).rotation(rotation);
        lists.record(&mut sink, moment(1), events, moment(count + 1)).unwrap();
    }

    /// What a run says, and the most memory that it had, in KiB.
    async fn sync(&self, copy: &Path) -> (Value, u64) {
        let mut command = Command::new("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/peak.py"));
        command.arg(binary("resync-destination")).args(["sync", &format!("{}capabilitylist.xml", self.url)]);
        command.arg(copy).args(["--incremental", "--delete", "--json"]);
        let output = command.output().await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let (report, peak) = said.rsplit_once("peak:").unwrap();
        (serde_json::from_str(report).unwrap(), peak.trim().parse().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rs191_a_great_many_changes_are_dealt_with_in_bounded_memory() {
    let count = std::env::var("RESYNC_CHANGES").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000);
    let copy = TempDir::new().unwrap();
    let source = Served::start().await;
    source.begin();
    let (first, _) = source.sync(copy.path()).await;
    assert_eq!((&first["method"], &first["created"]), (&"baseline".into(), &1.into()));

    source.change(count);
    let (report, peak) = source.sync(copy.path()).await;
    assert_eq!((&report["method"], &report["created"]), (&"incremental".into(), &THERE.into()), "{report}");
    assert_eq!((&report["failed"], &report["deleted"]), (&0.into(), &0.into()));
    assert!(peak < MOST, "{count} changes took {peak} KiB");
    println!("{count} changes took {peak} KiB at most");
}
