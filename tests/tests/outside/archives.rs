//! Archives that no one here wrote, as servers of `resync-destination sync --at`: the test server of Memento's authors, which
//! behaves in some thirty ways, most of them wrong, and the web archive `pywb` with captures that `warcio` wrote. Without a way to the
//! registry the tests fail.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use resync_harness::{
    MEMENTO_SERVER, PATIENCE, PYWB, Process, Receiver, Reply, binary, eventually, free_address, request, tree,
};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

fn peer(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(script)
}

/// A time of the day on which everything happens.
fn time(hours_and_minutes: &str) -> String {
    format!("2024-02-01T{hours_and_minutes}:00Z")
}

/// A Source with one page that changed at these times, of which its lists tell no hash. Its Change List begins at nine.
async fn source(times: &[&str]) -> Receiver {
    let source = Receiver::start().await;
    let document = |head: String, entries: String| {
        let document = format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
             {head}{entries}</urlset>"
        );
        resync_judge::fixture("archives", &document);
        document
    };
    let entry =
        |path: &str, facts: String| format!("<url><loc>{}</loc><rs:md {facts}/></url>", source.url(path));
    let named = |name: &str| entry(&format!("/{name}.xml"), format!("capability=\"{name}\""));
    let changes = times.iter().enumerate().map(|(number, at)| {
        let change = if number == 0 { "created" } else { "updated" };
        entry("/page.html", format!("change=\"{change}\" datetime=\"{}\"", time(at)))
    });
    let nine = time("09:00");
    let pages = BTreeMap::from([
        (
            "/capabilitylist.xml",
            document(
                "<rs:md capability=\"capabilitylist\"/>".to_owned(),
                named("resourcelist") + &named("changelist"),
            ),
        ),
        (
            "/resourcelist.xml",
            document(format!("<rs:md capability=\"resourcelist\" at=\"{nine}\"/>"), String::new()),
        ),
        (
            "/changelist.xml",
            document(format!("<rs:md capability=\"changelist\" from=\"{nine}\"/>"), changes.collect()),
        ),
        ("/page.html", "<p>as it is today</p>".to_owned()),
    ]);
    source.behave(move |seen| match pages.get(seen.path()) {
        Some(page) => Reply::Page(200, Vec::new(), page.clone()),
        None => Reply::Status(404, String::new()),
    });
    source
}

/// The only file of a copy, if there is one.
fn copied(into: &Path) -> Option<Vec<u8>> {
    tree::contents(into).unwrap().into_values().next()
}

/// A copy of the past by this archive: the kinds of its failures.
async fn failures(source: &Receiver, into: &Path, at: &str, timegate: &str) -> Vec<String> {
    let mut command = tokio::process::Command::new(binary("resync-destination"));
    command.args(["sync", &source.url("/capabilitylist.xml")]).arg(into).args(["--json", "--retries", "0"]);
    command.args(["--at", &time(at), "--timegate", timegate]).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends").unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let failures = report["failures"].as_array().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!failures.is_empty())), "{report} {said}");
    failures.iter().map(|failure| failure["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn mem052_mem053_mem054_of_thirty_ways_to_answer_only_the_right_ones_give_a_file() {
    let source = source(&["10:00", "12:00"]).await;
    let address = free_address();
    let mut command = tokio::process::Command::new(MEMENTO_SERVER.installed().join("bin/python"));
    let mut server =
        Process::run("memento_test", command.arg(peer("memento_server.py")).arg(address.port().to_string()));
    server.line("ready").await;
    let of_timegate = [
        ("all_headers", None),
        ("required_headers", None),
        ("no_headers", None),
        ("no_link_header", None),
        ("no_vary_header", None),
        ("no_original_link_header", None),
        ("invalid_vary_header", None),
        ("invalid_link_header", None),
        ("invalid_datetime_in_link_header", None),
        ("no_accept_dt_error", None),
        ("tg_302", None),
        ("tg_303", None),
        ("tg_200", None),
        ("tg_302_memento_dt_header", None),
        ("tg_no_accept_dt_no_redirect_to_last_memento", None),
        ("tg_no_accept_dt_redirect_to_last_memento", None),
        ("tg_no_redirect", Some("unproven-version")),
        ("tg_200_no_memento_dt_header", Some("unproven-version")),
        ("tg_302_no_location_header", Some("redirect")),
        ("tg_303_no_location_header", Some("redirect")),
    ];
    let of_memento = [
        ("all_headers", None),
        ("required_headers", None),
        ("no_headers", Some("unproven-version")),
        ("no_link_header", Some("unproven-version")),
        ("no_original_link_header", Some("unproven-version")),
        ("no_memento_dt_header", Some("unproven-version")),
        ("invalid_memento_dt_header", Some("unproven-version")),
        ("invalid_link_header", Some("unproven-version")),
        ("invalid_datetime_in_link_header", Some("unproven-version")),
        // Where these redirect to, they redirect again, to the same place.
        ("valid_archived_redirect", Some("redirect")),
        ("valid_internal_redirect", Some("redirect")),
        ("invalid_archived_redirect", Some("redirect")),
        ("invalid_internal_redirect", Some("redirect")),
    ];
    let of_timegate = of_timegate.map(|(way, refused)| (format!("{way},all_headers"), refused));
    let of_memento = of_memento.map(|(way, refused)| (format!("all_headers,{way}"), refused));
    for (way, refused) in of_timegate.into_iter().chain(of_memento) {
        let copy = tempdir().unwrap();
        let timegate = format!("http://{address}/{way}/tg/");
        let failures = failures(&source, copy.path(), "11:00", &timegate).await;
        assert_eq!(failures, Vec::from_iter(refused), "{way}");
        let expected = refused.is_none().then(Vec::new);
        assert_eq!(copied(copy.path()), expected, "{way}: its mementos are empty");
    }
}

/// A web archive with captures of one URI.
struct WebArchive {
    address: SocketAddr,
    _folder: TempDir,
    _server: Process,
}

impl WebArchive {
    /// With these captures, and these settings.
    async fn start(uri: &str, captures: &[(&str, &str)], settings: &str) -> Self {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("config.yaml"), settings).unwrap();
        let captures: Vec<_> = captures.iter().map(|(at, content)| json!([time(at), content])).collect();
        let script = peer("captures.py");
        Self::run(
            folder.path(),
            "python",
            &[script.to_str().unwrap(), "of-it.warc.gz", uri],
            &json!(captures),
        );
        Self::run(folder.path(), "wb-manager", &["init", "web"], &Value::Null);
        Self::run(folder.path(), "wb-manager", &["add", "web", "of-it.warc.gz"], &Value::Null);
        let address = free_address();
        let mut command = tokio::process::Command::new(PYWB.installed().join("bin/wayback"));
        let port = address.port().to_string();
        command.args(["--bind", "127.0.0.1", "--port", &port]).current_dir(folder.path());
        // It asks itself.
        let command = command.env("no_proxy", "*").env("NO_PROXY", "*");
        let server = Process::run("pywb", command);
        let ask = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        eventually("the archive answers", async || {
            request(address, ask.as_bytes()).await.is_ok_and(|answer| answer.status == 200)
        })
        .await;
        Self { address, _folder: folder, _server: server }
    }

    fn run(folder: &Path, program: &str, arguments: &[&str], input: &Value) {
        let mut command = Command::new(PYWB.installed().join("bin").join(program));
        command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Most of them read nothing.
        let _ = child.stdin.take().unwrap().write_all(input.to_string().as_bytes());
        assert!(child.wait().unwrap().success(), "{program} {arguments:?}");
    }

    fn timegate(&self) -> String {
        format!("http://{}/web/", self.address)
    }
}

const CAPTURES: [(&str, &str); 3] = [
    ("10:00", "<html><body><a href=\"/other\">as of ten</a></body></html>"),
    ("12:00", "<html><body>as of twelve</body></html>"),
    ("14:00", "<html><body>as of two</body></html>"),
];

#[tokio::test]
async fn mem052_mem055_mem056_a_web_archive_gives_the_captures_that_are_proven_and_no_other_is_passed_off() {
    // The first state was never captured. An archive gives the nearest capture, be it later.
    let source = source(&["09:30", "09:58", "11:58", "13:58"]).await;
    let settings = "framed_replay: false\nredirect_to_exact: true\nenable_prefer: true\n";
    let archive = WebArchive::start(&source.url("/page.html"), &CAPTURES, settings).await;
    for (at, capture) in [
        ("09:45", None),
        ("09:59", Some(0)),
        ("10:59", Some(0)),
        ("11:30", None),
        ("12:30", Some(1)),
        ("13:30", None),
    ] {
        let copy = tempdir().unwrap();
        let failures = failures(&source, copy.path(), at, &archive.timegate()).await;
        let refused = capture.is_none().then(|| "unproven-version".to_owned());
        assert_eq!(failures, Vec::from_iter(refused), "{at}");
        // As they were captured, and not as the archive shows them.
        let expected = capture.map(|number: usize| CAPTURES[number].1.as_bytes().to_vec());
        assert_eq!(copied(copy.path()), expected, "{at}");
    }
}

#[tokio::test]
async fn mem053_the_frames_of_a_web_archive_are_no_past_state() {
    let source = source(&["09:58", "11:58"]).await;
    let archive = WebArchive::start(&source.url("/page.html"), &CAPTURES, "framed_replay: true\n").await;
    let copy = tempdir().unwrap();
    let failures = failures(&source, copy.path(), "11:00", &archive.timegate()).await;
    assert_eq!(failures, ["unproven-version"]);
    assert_eq!(copied(copy.path()), None);
}
