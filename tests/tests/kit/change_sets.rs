//! A chain of Change Sets of the alpha draft, as files behind Python's own server: whole, with a circle, and with a hole.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use resync_harness::{Process, binary, tree};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// How many sets there are, each with a resource of its own and one that all of them change.
const SETS: usize = 40;
/// How many of them the copy knows before.
const KNOWN: usize = 10;

const CHANGE_SET: &str = "http://www.openarchives.org/rs/changeset";

struct Chain {
    folder: TempDir,
    url: String,
    copy: TempDir,
    _server: Process,
}

impl Chain {
    /// In step with the first sets.
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]);
        let mut server = Process::run("the server", command.arg(folder.path()));
        let line = server.line("Serving HTTP on").await;
        let url = line.split(&['(', ')']).nth(1).unwrap().to_owned();
        let chain = Self { folder, url, copy: TempDir::new().unwrap(), _server: server };
        for number in 0..SETS {
            chain.put(&number.to_string(), &format!("of {number}"));
            chain.put(&set(number), &chain.text(number, number.checked_sub(1)));
        }
        chain.tell(KNOWN);
        chain.sitemap(KNOWN);
        let (code, report) = chain.sync(&[]).await;
        assert_eq!(code, Some(0), "{report}");
        assert_eq!(report["created"], KNOWN + 1, "{report}");
        chain.tell(SETS);
        chain
    }

    fn put(&self, name: &str, content: &str) {
        std::fs::write(self.folder.path().join(name), content).unwrap();
    }

    fn link(&self, rel: &str, name: &str) -> String {
        format!(r#"<xhtml:link rel="{rel} {CHANGE_SET}" href="{}{name}"/>"#, self.url)
    }

    /// A set, and the one that it leads to. The newer change is the first.
    fn text(&self, number: usize, prev: Option<usize>) -> String {
        let mut content = self.link("current", "current.xml");
        content += &prev.map(|prev| self.link("prev", &set(prev))).unwrap_or_default();
        for (name, change) in [("all", "updated"), (number.to_string().as_str(), "created")] {
            let (url, at) = (&self.url, moment(number));
            let lastmod = format!(r#"<lastmod rs:type="{change}">{at}</lastmod>"#);
            write!(content, "<url><loc>{url}{name}</loc>{lastmod}</url>").unwrap();
        }
        alpha(r#" rs:type="changeset""#, number, &content)
    }

    /// So many sets were written.
    fn tell(&self, sets: usize) {
        let last = sets - 1;
        self.put("all", &last.to_string());
        self.put("current.xml", &self.text(last, last.checked_sub(1)));
    }

    /// The Sitemap, after so many sets.
    fn sitemap(&self, sets: usize) {
        let mut content = self.link("current", "current.xml");
        for number in 0..sets {
            let (url, at) = (&self.url, moment(number));
            write!(content, "<url><loc>{url}{number}</loc><lastmod>{at}</lastmod></url>").unwrap();
        }
        let (url, at) = (&self.url, moment(sets - 1));
        write!(content, "<url><loc>{url}all</loc><lastmod>{at}</lastmod></url>").unwrap();
        self.put("sitemap.xml", &alpha("", sets - 1, &content));
    }

    async fn sync(&self, flags: &[&str]) -> (Option<i32>, Value) {
        let mut command = Command::new(binary("resync-destination"));
        command.args(["sync", &format!("{}sitemap.xml", self.url)]).arg(self.copy.path());
        let output = command.args(["--json", "--delete"]).args(flags).output().await.unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
        });
        (output.status.code(), report)
    }

    fn assert_as_now(&self) {
        assert_eq!(resources(self.copy.path()), resources(self.folder.path()));
    }
}

/// What is there besides documents and state.
fn resources(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = tree::contents(folder).unwrap();
    found.retain(|path, _| path.extension().is_none());
    found
}

fn set(number: usize) -> String {
    format!("set-{number}.xml")
}

fn moment(number: usize) -> String {
    format!("2012-09-01T10:{number:02}:00Z")
}

fn alpha(attributes: &str, number: usize, content: &str) -> String {
    let spaces = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:xhtml="http://www.w3.org/1999/xhtml""#;
    let modified = format!(r#"<xhtml:meta name="DCTERMS.modified" content="{}"/>"#, moment(number));
    format!("<urlset{attributes} {spaces}>{modified}{content}</urlset>")
}

#[tokio::test(flavor = "multi_thread")]
async fn mem004_a_chain_of_forty_sets_brings_a_copy_in_step_that_knows_ten() {
    let chain = Chain::start().await;
    let (code, report) = chain.sync(&["--incremental"]).await;
    assert_eq!((code, report["method"].as_str()), (Some(0), Some("incremental")), "{report}");
    assert_eq!(report["created"], SETS - KNOWN, "{report}");
    chain.assert_as_now();
}

#[tokio::test(flavor = "multi_thread")]
async fn mem005_a_circle_or_a_hole_in_a_chain_leaves_it_open_until_a_newer_sitemap() {
    for is_circle in [true, false] {
        let chain = Chain::start().await;
        if is_circle {
            chain.put(&set(20), &chain.text(20, Some(30)));
        } else {
            std::fs::remove_file(chain.folder.path().join(set(20))).unwrap();
        }
        // What this knows is behind the break.
        chain.sitemap(KNOWN + 5);
        let (code, report) = chain.sync(&["--incremental"]).await;
        assert_eq!((code, report["method"].as_str()), (Some(1), Some("baseline")), "{report}");
        let why = report["unproven"].as_str().unwrap();
        assert!(why.contains(if is_circle { "circle" } else { "cannot be read" }), "{why}");
        // A newer Sitemap has all.
        chain.sitemap(SETS);
        let (code, report) = chain.sync(&["--incremental"]).await;
        assert_eq!((code, &report["unproven"]), (Some(0), &Value::Null), "{report}");
        chain.assert_as_now();
    }
}
