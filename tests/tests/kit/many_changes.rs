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
use resync_harness::{Process, binary};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// What the process may have at once, in KiB.
const MOST: u64 = 128 * 1024;

/// How many of the changed resources are there before or after: a third is created, a third updated, a third deleted.
const THERE: u64 = 600;

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
        self.item(name, content)
    }

    fn item(&self, name: &str, content: &str) -> Item {
        let mut item = Item::new(format!("{}{name}", self.url));
        item.length = Some(content.len() as u64);
        item.hashes = [Digest::of(Algorithm::Sha256, content.as_bytes())].into_iter().collect();
        item
    }

    /// A Capability List, and a Resource List, so that the first copy has a point to go on from.
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
        resync_judge::fixture("changes", &capabilities);
        std::fs::write(self.path().join("capabilitylist.xml"), capabilities).unwrap();
        let mut sink = FolderSink::open(self.path()).unwrap();
        let there = (0..THERE).filter(|number| number % 3 != 0);
        let items = there.map(|number| self.put(&format!("there/{number}"), "old"));
        let inventory = MemoryInventory::new(items);
        ResourceLists::new(&self.site(), moment(0)).write(inventory.into_iter(), &mut sink).unwrap();
        ChangeLists::new(&self.site()).record(&mut sink, moment(0), [], moment(1)).unwrap();
    }

    /// Every resource is told of twice; most of them came and went.
    fn change(&self, count: u64) {
        let every = (count / 2 / THERE).max(1);
        let events = (0..count).map(|number| {
            let (resource, is_first) = (number / 2, number % 2 == 0);
            let (change, item) = if resource % every == 0 && resource / every < THERE {
                self.told(resource / every, is_first)
            } else {
                let name = format!("{}/{resource}", resource % 100);
                let change = if is_first { Change::Created } else { Change::Deleted };
                (change, self.item(&name, &name))
            };
            Ok(Event::new(change, moment(number + 1), item))
        });
        let mut sink = FolderSink::open(self.path()).unwrap();
        let rotation = Rotation { entries: Some(50_000), ..Rotation::default() };
        let lists = ChangeLists::new(&self.site()).rotation(rotation);
        lists.record(&mut sink, moment(1), events, moment(count + 1)).unwrap();
    }

    /// What is told first, and then, of a resource that is there before or after.
    fn told(&self, number: u64, is_first: bool) -> (Change, Item) {
        let name = format!("there/{number}");
        match (number % 3, is_first) {
            (0, true) => (Change::Created, self.item(&name, "in between")),
            (_, true) => (Change::Updated, self.item(&name, "in between")),
            (2, false) => (Change::Deleted, Item::new(format!("{}{name}", self.url))),
            (_, false) => (Change::Updated, self.put(&name, &format!("the content of {number}"))),
        }
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
    assert_eq!((&first["method"], &first["created"]), (&"baseline".into(), &(THERE / 3 * 2).into()));

    source.change(count);
    let (report, peak) = source.sync(copy.path()).await;
    assert_eq!((&report["method"], &report["failed"]), (&"incremental".into(), &0.into()), "{report}");
    for outcome in ["created", "updated", "deleted"] {
        assert_eq!(report[outcome], THERE / 3, "{outcome}: {report}");
    }
    assert!(peak < MOST, "{count} changes took {peak} KiB");
    println!("{count} changes took {peak} KiB at most");
}
