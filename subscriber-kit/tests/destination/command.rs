//! The command line as a process: its lines, its exit codes, its signals.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::support::{Hub, PATIENCE, Source, document, entry, expected, files, ok, serve, status};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resync-destination"));
    command.args(arguments).kill_on_drop(true);
    command
}

pub(crate) async fn run(arguments: &[&str]) -> Output {
    tokio::time::timeout(PATIENCE, command(arguments).output()).await.expect("it ends in time").unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

async fn source(hub: Option<&Hub>) -> Source {
    let source = Source::start().await;
    source.announce(hub.map(Hub::url).as_deref());
    let entries = [source.resource("/a", b"1"), source.resource("/b/c", b"2")];
    source.resource_list("/resourcelist.xml", &entries);
    source
}

#[tokio::test]
async fn sync_and_audit_tell_by_line_and_exit_code_whether_all_is_in_step() {
    let source = source(None).await;
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());

    let audit = run(&["audit", &url, into]).await;
    assert_eq!(code(&audit), 1);
    assert!(stdout(&audit).starts_with("not in step: 2 resources (0 same, 2 missing"), "{}", stdout(&audit));

    let missing = directory.path().join("missing");
    for place in [into, missing.to_str().unwrap()] {
        let dry = run(&["sync", &url, place, "--dry-run", "--delete"]).await;
        let last = stdout(&dry).lines().next_back();
        assert_eq!(last, Some("would be in step: 2 resources (2 created, 0 updated, 0 deleted)"));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is made, no state either");

    let sync = run(&["sync", &url, into]).await;
    assert_eq!(code(&sync), 0);
    assert_eq!(stdout(&sync), "in step: 2 resources (2 created, 0 updated, 0 deleted)\n");
    assert_eq!(files(directory.path()), expected(&[("a", "1"), ("b/c", "2")]));

    let audit = run(&["audit", &url, into, "--json"]).await;
    assert_eq!(code(&audit), 0);
    let report: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    assert_eq!((&report["same"], &report["extra"]), (&2.into(), &0.into()));
    let status = run(&["status", "--into", into]).await;
    assert!(code(&status) == 0 && stdout(&status).contains("in step: 2 resources"), "{}", stdout(&status));

    source.put("/a", b"lie");
    std::fs::remove_file(directory.path().join("a")).unwrap();
    let sync = run(&["sync", &url, into, "--json"]).await;
    assert_eq!(code(&sync), 1);
    let report: serde_json::Value = serde_json::from_slice(&sync.stdout).unwrap();
    assert_eq!((&report["failed"], &report["unchanged"]), (&1.into(), &1.into()));

    source.remove("/resourcelist.xml");
    assert_eq!(code(&run(&["sync", &url, into]).await), 1);
    let status = run(&["status", "--into", into]).await;
    assert!(
        stdout(&status).contains(": failed: ") && !stdout(&status).contains("in step"),
        "{}",
        stdout(&status)
    );
}

#[tokio::test]
async fn somebodys_own_folder_is_refused_with_what_to_do_until_the_command_line_adopts_it() {
    let source = source(None).await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), "mine").unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    let refused = run(&["sync", &url, into, "--delete"]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(code(&refused) == 64 && said.contains("1 file ") && said.contains("(mine)"), "{said}");
    let refused = run(&["listen", &url, "--into", into, "--delete", "--listen", "127.0.0.1:0"]).await;
    assert_eq!((code(&refused), String::from_utf8_lossy(&refused.stderr)), (64, said));
    let dry = run(&["sync", &url, into, "--delete", "--dry-run"]).await;
    let shown = stdout(&dry);
    assert!(shown.contains(&format!("deleted {}", source.url("/mine"))), "{shown}");
    assert!(code(&dry) == 1 && shown.trim_end().ends_with("nothing is done"), "{shown}");
    let audit = run(&["audit", &url, into]).await;
    assert!(
        stdout(&audit).contains("here before the copy, and kept until `sync --adopt`: 1"),
        "{}",
        stdout(&audit)
    );
    assert_eq!(files(directory.path()), expected(&[("mine", "mine")]));

    let configuration = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(configuration.path(), "delete = true\nadopt = true\n").unwrap();
    let path = configuration.path().to_str().unwrap();
    let refused = run(&["sync", &url, into, "--config", path]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(code(&refused) == 64 && said.contains("--adopt"), "{said}");
    assert_eq!(files(directory.path()), expected(&[("mine", "mine")]));

    std::fs::write(configuration.path(), "delete = true\n").unwrap();
    assert_eq!(code(&run(&["sync", &url, into, "--config", path, "--adopt"]).await), 0);
    assert_eq!(files(directory.path()), expected(&[("a", "1"), ("b/c", "2")]));
}

#[tokio::test]
async fn one_variable_names_the_directory_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let named = missing.to_str().unwrap();
    let with_variable = async |arguments: &[&str]| {
        command(arguments).env("RESYNC_DESTINATION_INTO", named).output().await.unwrap()
    };
    let printed = with_variable(&["config", "print"]).await;
    let line = format!("into = \"{named}\"");
    assert!(stdout(&printed).lines().any(|one| one == line), "{}", stdout(&printed));
    let empty = command(&["config", "print"]).env("RESYNC_DESTINATION_DELETE", " ").output().await.unwrap();
    assert!(stdout(&empty).contains("\n# delete = false\n"), "it counts as absent: {empty:?}");
    for arguments in [&["audit", "http://127.0.0.1:1/"][..], &["status"]] {
        let refused = with_variable(arguments).await;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(code(&refused) != 2 && said.contains(named), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn a_lease_that_ended_while_nothing_ran_is_told_as_ended() {
    let mut hub = Hub::start().await;
    let source = source(Some(&hub)).await;
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    let mut listening = Listening::start(&source, into, "127.0.0.1:0");
    hub.accept(2).await;
    listening.line("subscribed to ").await;
    listening.child.kill().await.unwrap();
    let status = async || stdout(&run(&["status", "--into", into]).await).to_owned();
    let ended = async {
        while !status().await.contains("  lease ended at 20") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends in time");
    assert!(status().await.starts_with("not running: "), "{}", status().await);
    let json = run(&["status", "--into", into, "--json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["subscriptions"][0]["phase"], "expired");
    assert!(json["subscriptions"][0]["expires"].as_str().is_some_and(|at| at.starts_with("20")), "{json}");
}

/// All lines but the last, in order of the alphabet, and the last one.
fn named(output: &Output) -> (Vec<&str>, &str) {
    let mut lines: Vec<&str> = stdout(output).lines().collect();
    let last = lines.pop().unwrap();
    lines.sort_unstable();
    (lines, last)
}

#[tokio::test]
async fn rs202_a_dry_run_names_exactly_what_the_run_then_does_and_deletes() {
    let source = source(None).await;
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    assert_eq!(code(&run(&["sync", &url, into]).await), 0);
    for surplus in ["extra", "in-the-way/1", "in-the-way/2"] {
        let path = directory.path().join(surplus);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "mine").unwrap();
    }
    let listed = [("/a", "new"), ("/in-the-way", "a file now"), ("/new", "3"), ("/same", "4")];
    let entries = listed.map(|(path, body)| source.resource(path, body.as_bytes()));
    std::fs::write(directory.path().join("same"), "4").unwrap();
    source.resource_list("/resourcelist.xml", &entries);
    let before = files(directory.path());

    let dry = run(&["sync", &url, into, "--delete", "--dry-run"]).await;
    assert_eq!(files(directory.path()), before);
    let (would, verdict) = named(&dry);
    let expected_lines = [
        ("created", "/in-the-way"),
        ("created", "/new"),
        ("deleted", "/b/c"),
        ("deleted", "/extra"),
        ("deleted", "/in-the-way/1"),
        ("deleted", "/in-the-way/2"),
        ("updated", "/a"),
    ];
    assert_eq!(would, expected_lines.map(|(done, path)| format!("{done} {}", source.url(path))));
    assert_eq!(verdict, "would be in step: 4 resources (2 created, 1 updated, 4 deleted)");

    let did = run(&["sync", &url, into, "--delete", "--list"]).await;
    assert_eq!(named(&did), (would, "in step: 4 resources (2 created, 1 updated, 4 deleted)"));
    assert_eq!(files(directory.path()), expected(&listed.map(|(path, body)| (&path[1..], body))));
}

#[tokio::test]
async fn rs202_each_outcome_is_an_object_a_line_and_the_report_is_the_last() {
    let source = source(None).await;
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    source.remove("/a");
    let output = run(&["sync", &url, into, "--list", "--json"]).await;
    let (lines, report) = named(&output);
    let [created, failed] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(*created, format!(r#"{{"outcome":"created","uri":"{}"}}"#, source.url("/b/c")));
    let failed: serde_json::Value = serde_json::from_str(failed).unwrap();
    assert_eq!((&failed["outcome"], &failed["uri"]), (&"failed".into(), &source.url("/a").into()));
    assert_eq!((&failed["kind"], &failed["status"]), (&"status".into(), &404.into()));
    assert_eq!(failed["cause"], "answers 404");
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert_eq!((&report["created"], &report["failed"]), (&1.into(), &1.into()));
    assert_eq!(code(&output), 1);

    let audit = run(&["audit", &url, into, "--json"]).await;
    let audit: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    let book =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/destination.md"))
            .unwrap();
    let objects = [&failed, &report, &report["failures"][0], &report["gaps"], &audit, &audit["findings"][0]];
    for key in objects.into_iter().flat_map(|object| object.as_object().unwrap().keys()) {
        assert!(book.contains(&format!("`{key}`")), "{key} is not documented");
    }
}

#[tokio::test]
async fn a_file_that_is_missing_is_named_once() {
    let source = source(None).await;
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    let missing = format!("{}:", source.url("/a"));
    source.remove("/a");
    for arguments in [
        ["sync", &url, into, "--delete"].as_slice(),
        &["sync", &url, into, "--list"],
        &["sync", &url, into, "--incremental"],
        &["audit", &url, into],
    ] {
        let output = run(arguments).await;
        assert_eq!(code(&output), 1);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.matches(&missing).count(), 1, "{arguments:?}: {said}");
        assert_eq!(said.matches(&missing[..missing.len() - 1]).count(), 1, "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn rs195_an_audit_that_proves_nothing_is_no_success_and_one_that_cannot_be_made_is_another_failure() {
    let source = Source::start().await;
    source.announce(None);
    source.put("/a", b"1");
    let bare = format!("<url><loc>{}</loc></url>", source.url("/a"));
    source.resource_list("/resourcelist.xml", &[bare]);
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    assert_eq!(code(&run(&["sync", &url, into]).await), 0);

    let audit = run(&["audit", &url, into]).await;
    assert!(stdout(&audit).starts_with("unproven: 1 resource (0 same,"), "{}", stdout(&audit));
    assert!(stdout(&audit).contains(" 1 unverifiable"), "{}", stdout(&audit));
    assert_eq!(code(&audit), 1);
    let audit = run(&["audit", &url, into, "--json"]).await;
    let report: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["unverifiable"]), (&"unproven".into(), &1.into()));
    assert_eq!(code(&audit), 1);

    source.remove("/resourcelist.xml");
    let audit = run(&["audit", &url, into]).await;
    assert_eq!((code(&audit), stdout(&audit)), (3, ""), "{audit:?}");
}

#[tokio::test]
async fn a_set_that_became_a_page_is_not_replaced_by_another_set_of_its_host() {
    let source = source(None).await;
    let list = |path| entry(&source.url(path), r#"capability="resourcelist""#);
    let other = document("urlset", r#"<rs:md capability="capabilitylist"/>"#, &[list("/other.xml")]);
    source.put("/sets/other", other.as_bytes());
    source.resource_list("/other.xml", &[source.resource("/sets/x", b"1")]);
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/sets/other"), directory.path().to_str().unwrap());
    assert_eq!(code(&run(&["sync", &url, into, "--delete"]).await), 0);
    let copied = files(directory.path());
    assert_eq!(copied, expected(&[("x", "1")]));

    for page in ["<p>Not found", r#"<link rel="resourcesync" href="/capabilitylist.xml"><p>Not found"#] {
        source.raw(
            "/sets/other",
            ok("Content-Type: text/html\r\n", format!("<!doctype html>{page}").as_bytes()),
        );
        // What failed does not make the next run forget it.
        for _ in 0..2 {
            let sync = run(&["sync", &url, into, "--delete"]).await;
            let said = String::from_utf8_lossy(&sync.stderr);
            assert_eq!(code(&sync), 64, "{said}");
            assert!(said.contains(&format!("is a copy of {url}, not of ")), "{said}");
            assert!(said.contains("/capabilitylist.xml"), "{said}");
            assert_eq!(files(directory.path()), copied);
        }
    }
    // Nor does robots.txt lead to another one.
    let [description, page] = ["/.well-known/resourcesync", "/sets/other"].map(|path| source.page(path));
    source.remove("/.well-known/resourcesync");
    source.put("/robots.txt", format!("Sitemap: {}\n", source.url("/resourcelist.xml")).as_bytes());
    source.raw("/sets/other", ok("Content-Type: text/html\r\n", b"<!doctype html><p>Not found"));
    let sync = run(&["sync", &url, into, "--delete"]).await;
    let said = String::from_utf8_lossy(&sync.stderr);
    assert!(code(&sync) == 64 && said.contains(&format!("is a copy of {url}, not of ")), "{said}");
    assert_eq!(files(directory.path()), copied);
    source.raw("/.well-known/resourcesync", description);
    source.raw("/sets/other", page);
    let named = ["sync", &url, into, "--delete", "--set", "capabilitylist.xml"];
    assert_eq!(code(&run(&named).await), 64);
    assert_eq!(files(directory.path()), copied);
    let switched = run(&[&named[..], &["--switch-source"]].concat()).await;
    let said = String::from_utf8_lossy(&switched.stderr);
    assert_ne!(files(directory.path()), copied, "it was asked for: {said}");
}

#[tokio::test]
async fn discover_shows_the_tree_as_text_and_json() {
    let hub = Hub::start().await;
    let source = source(Some(&hub)).await;
    let text = run(&["discover", &source.url("/")]).await;
    assert_eq!(code(&text), 0);
    for part in
        ["/.well-known/resourcesync", "/capabilitylist.xml", "/resourcelist.xml", "/topic", &hub.url()]
    {
        assert!(stdout(&text).contains(part), "{part} in {}", stdout(&text));
    }
    let size = "(2 resources of 2 B at 2026-11-20T09:00:00Z)";
    assert!(stdout(&text).contains(size), "{}", stdout(&text));
    let json = run(&["discover", &source.url("/"), "--json"]).await;
    let tree: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let set = &tree["sets"][0];
    assert_eq!(set["framework_channel"]["hubs"][0], hub.url());
    let list = &set["capabilities"][0];
    assert_eq!(
        (&list["capability"], &list["size"]["entries"]),
        (&"resourcelist".into(), &2.into()),
        "{tree}"
    );
    let (bytes, at) = (&list["size"]["listed_bytes"], &list["size"]["at"]);
    assert_eq!((bytes, at), (&2.into(), &"2026-11-20T09:00:00Z".into()), "{tree}");
}

#[tokio::test]
async fn the_exit_code_tells_failure_usage_and_bad_configuration_apart() {
    let nothing = Source::start().await;
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    let a_file = tempfile::NamedTempFile::new().unwrap();
    let in_a_file = a_file.path().join("x");
    let (copy, port) = (tempfile::tempdir().unwrap(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let (copy, taken) = (copy.path().to_str().unwrap(), port.local_addr().unwrap().to_string());
    for (expected, arguments) in [
        (1, vec!["discover", &nothing.url("/")]),
        (2, vec!["discover"]),
        (2, vec!["mirror", &nothing.url("/")]),
        (2, vec!["listen", &nothing.url("/"), "--into", into, "--lease", "soon"]),
        (2, vec!["subscribe", &nothing.url("/"), "http://127.0.0.2/", "--state", into, "--token", "t0ken"]),
        (64, vec!["discover", "example.org"]),
        (64, vec!["discover", "ftp://example.org/"]),
        (64, vec!["audit", &nothing.url("/"), in_a_file.to_str().unwrap()]),
        (64, vec!["discover", &nothing.url("/"), "--log", "a=b=c"]),
        (1, vec!["status", "--into", into]),
        (1, vec!["status", "--state", into]),
        (2, vec!["status"]),
        (2, vec!["unsubscribe"]),
        (1, vec!["unsubscribe", "--into", into]),
        (2, vec!["config", "check"]),
        (64, vec!["config", "check", "--config", "/nowhere.toml"]),
        (1, vec!["listen", &nothing.url("/"), "--into", copy, "--listen", &taken]),
        (1, vec!["subscribe", &nothing.url("/"), "--state", copy, "--listen", &taken]),
    ] {
        let output = run(&arguments).await;
        assert_eq!(code(&output), expected, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_source_behind_authentication_gets_its_token_and_nobody_else_does() {
    let others = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&others);
    let elsewhere = serve(move |request| {
        noting
            .lock()
            .unwrap()
            .push((request.header("authorization").is_some(), request.header("x-key").is_some()));
        ok("", b"2")
    })
    .await;
    let own = Arc::new(OnceLock::new());
    let of = Arc::clone(&own);
    let address = serve(move |request| {
        if request.header("authorization") != Some("Bearer t0ken") || request.header("x-key") != Some("k") {
            return status("401 Unauthorized", "");
        }
        let address = of.get().unwrap();
        let listed = ["a", "b"].map(|path| entry(&format!("http://{address}/{path}"), r#"length="1""#));
        match request.target() {
            "/list.xml" => {
                let root = r#"<rs:md capability="resourcelist" at="2026-11-20T09:00:00Z"/>"#;
                ok("", document("urlset", root, &listed).as_bytes())
            }
            "/a" => ok("", b"1"),
            _ => status("302 Found", &format!("Location: http://{elsewhere}/b\r\n")),
        }
    })
    .await;
    own.set(address).unwrap();
    let url = format!("http://{address}/list.xml");
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    let refused = run(&["sync", &url, into]).await;
    assert_eq!(code(&refused), 1, "{refused:?}");
    let headers = ["--token", "t0ken", "--header", "X-Key: k"];
    let copied = run(&[&["sync", &url, into, "--any-origin"][..], &headers].concat()).await;
    assert_eq!(code(&copied), 0, "{copied:?}");
    assert_eq!(files(directory.path()), expected(&[("a", "1"), ("b", "2")]));
    assert_eq!(*others.lock().unwrap(), [(false, false)]);
}

#[tokio::test]
async fn two_runs_on_one_copy_do_not_meet() {
    let source = source(None).await;
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    assert_eq!(code(&run(&["sync", &url, into]).await), 0);
    let lock = std::fs::File::open(directory.path().join(".resync-destination/copy.lock")).unwrap();
    lock.lock().unwrap();
    let state = tempfile::tempdir().unwrap();
    let other = run(&["sync", &url, into, "--delete", "--state", state.path().to_str().unwrap()]).await;
    assert_eq!(code(&other), 1);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(said.contains("another resync-destination is using"), "{said}");
    lock.unlock().unwrap();
    assert_eq!(code(&run(&["sync", &url, into, "--delete"]).await), 0);
}

#[tokio::test]
async fn rs202_a_run_that_is_killed_among_its_files_leaves_each_whole_and_the_next_goes_on() {
    const FILES: usize = 300;
    let source = Source::start().await;
    source.announce(None);
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    let body = |round: usize, number: usize| format!("{number} of round {round}\n").repeat(500).into_bytes();
    let name = |number: usize| format!("{}/{number}", number % 7);
    let publish = |round| {
        let resource = |number| source.resource(&format!("/{}", name(number)), &body(round, number));
        source.resource_list("/resourcelist.xml", &(0..FILES).map(resource).collect::<Vec<_>>());
        source.asked();
    };
    for (round, asked) in [210, 240, 270].into_iter().enumerate() {
        publish(round);
        let mut child = command(&["sync", &url, into]).stdout(Stdio::null()).spawn().unwrap();
        source.until_asked(asked).await;
        // Where the disk is slow, all files may be asked for before the first batch of them is in place.
        let is_in_place = |number| {
            std::fs::read(directory.path().join(name(number))).is_ok_and(|found| found == body(round, number))
        };
        until(|| (0..FILES).any(is_in_place)).await;
        child.kill().await.unwrap();
        let found = files(directory.path());
        let is_of = |round: usize| {
            (0..FILES).filter(|number| found.get(&name(*number)) == Some(&body(round, *number))).count()
        };
        assert!(is_of(round) > 0, "round {round}: some are in place");
        assert_eq!((0..=round).map(is_of).sum::<usize>(), found.len(), "round {round}: each is whole");
    }
    let last = files(directory.path());
    source.asked();
    let sync = run(&["sync", &url, into]).await;
    assert_eq!(code(&sync), 0, "{}", stdout(&sync));
    let found = files(directory.path());
    assert!((0..FILES).all(|number| found[&name(number)] == body(2, number)));
    let right = (0..FILES).filter(|number| last.get(&name(*number)) == Some(&body(2, *number))).count();
    let of_files = |path: &String| path[1..].starts_with(|first: char| first.is_ascii_digit());
    assert_eq!(source.asked().iter().filter(|path| of_files(path)).count(), FILES - right);
    assert!(!directory.path().join(".resync-destination/work").exists(), "what was unfinished is swept");
}

/// Waits until this is so.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it becomes so in time");
}

struct Listening {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listening {
    fn start(source: &Source, into: &str, address: &str) -> Self {
        Self::start_with(&["listen", &source.url("/"), "--into", into, "--delete"], address)
    }

    fn start_with(arguments: &[&str], address: &str) -> Self {
        let mut command = command(arguments);
        // Also shows that the environment is heard.
        command.env("RESYNC_DESTINATION_LISTEN", address).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn line(&mut self, beginning: &str) -> String {
        let wanted = async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("it still runs");
                if line.starts_with(beginning) {
                    return line;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wanted)
            .await
            .unwrap_or_else(|_| panic!("a line {beginning:?} in time"))
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

#[tokio::test]
async fn listen_says_what_scripts_wait_for_and_survives_kill_9() {
    let mut hub = Hub::start().await;
    let source = source(Some(&hub)).await;
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    let mut first = Listening::start(&source, into, "127.0.0.1:0");
    let line = first.line("listening on http://").await;
    let address = line.strip_prefix("listening on http://").unwrap().to_owned();
    let before = hub.accept(600).await;
    let line = first.line("subscribed to ").await;
    assert!(line.starts_with(&format!("subscribed to {} until 20", source.url("/topic"))), "{line}");
    assert_eq!(first.line("in step").await, "in step: 2 resources (2 created, 0 updated, 0 deleted)");
    let status = stdout(&run(&["status", "--into", into]).await).to_owned();
    assert!(status.starts_with("running: ") && status.contains("  active until 20"), "{status}");
    first.signal("-KILL");
    first.child.wait().await.unwrap();
    let status = stdout(&run(&["status", "--into", into]).await).to_owned();
    assert!(
        status.starts_with("not running: ") && status.contains("not received: the lease ends at 20"),
        "{status}"
    );
    assert!(!status.contains("active"), "{status}");
    let status = run(&["status", "--into", into, "--json"]).await;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(
        (&status["running"], &status["subscriptions"][0]["receiving"]),
        (&false.into(), &false.into())
    );

    let entries = [source.resource("/a", b"3")];
    source.resource_list("/resourcelist.xml", &entries);
    let mut second = Listening::start(&source, into, &address);
    let after = hub.accept(600).await;
    assert_eq!(before, after, "the same callback and secret");
    assert_eq!(second.line("in step").await, "in step: 1 resource (0 created, 1 updated, 1 deleted)");
    assert_eq!(files(directory.path()), expected(&[("a", "3")]));

    assert_eq!(after.deliver("a.7", &source.notification()).await.status(), 204);
    second.line("notified").await;
    second.line("in step").await;

    let status = run(&["status", "--into", into, "--json"]).await;
    assert_eq!(code(&status), 0);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["running"], &status["synchronising"]), (&true.into(), &false.into()));
    assert_eq!(status["subscriptions"][0]["phase"], "active");
    assert_eq!(status["subscriptions"][0]["receiving"], true);
    assert_eq!(status["subscriptions"][0]["last_notification"], "000000000000000a.7");
    assert_eq!(status["last_sync"]["in_step"], true);
    let secret = after.secret.as_str();
    assert!(
        !status.to_string().contains(secret) && !status.to_string().contains(&after.path),
        "secrets stay secret"
    );

    let other = run(&["listen", &source.url("/"), "--into", into, "--listen", "127.0.0.1:0"]).await;
    assert_eq!(code(&other), 64, "the state is in use");

    second.signal("-TERM");
    let ended = tokio::time::timeout(PATIENCE, second.child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn w009_what_a_killed_process_left_behind_is_unsubscribed_on_request() {
    let mut hub = Hub::start().await;
    let source = source(Some(&hub)).await;
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    let mut listening = Listening::start(&source, into, "127.0.0.1:0");
    let before = hub.accept(600).await;
    listening.line("subscribed to ").await;
    listening.signal("-KILL");
    listening.child.wait().await.unwrap();

    let address = before.address.to_string();
    let arguments = ["unsubscribe", "--into", into, "--listen", &address];
    let (ended, left) = tokio::join!(run(&arguments), hub.accept(600));
    assert_eq!((code(&ended), stdout(&ended)), (0, "unsubscribed\n"), "{ended:?}");
    let logged = String::from_utf8_lossy(&ended.stderr);
    assert!(logged.contains(&format!("unsubscribed topic={:?}", before.topic)), "{logged}");
    assert_eq!((&left.topic, &left.path), (&before.topic, &before.path));
    assert_eq!(first_subscription(into).await["phase"], "ended");
}

#[tokio::test]
async fn listen_tells_programs_what_happens_in_json_and_hears_its_configuration() {
    let mut hub = Hub::start().await;
    let source = source(Some(&hub)).await;
    let directory = tempfile::tempdir().unwrap();
    let (into, settings) = (directory.path().join("copy"), directory.path().join("mirror.toml"));
    let text = format!("url = {:?}\ninto = {into:?}\ndelete = true\njson = true\n", source.url("/"));
    std::fs::write(&settings, text).unwrap();
    let settings = settings.to_str().unwrap();
    let checked = run(&["config", "check", "--config", settings]).await;
    assert_eq!(stdout(&checked), format!("{settings} can be used\n"), "{checked:?}");
    let mut listening = Listening::start_with(&["listen", "--config", settings], "127.0.0.1:0");
    let at = hub.accept(600).await;
    let mut told = async |event: &str| -> serde_json::Value {
        let line = listening.line(&format!(r#"{{"event":"{event}""#)).await;
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(told("subscribed").await["topic"], source.url("/topic"));
    let first = told("synchronised").await;
    assert_eq!((&first["in_step"], &first["report"]["created"]), (&true.into(), &2.into()));
    assert_eq!(first["directory"], into.to_str().unwrap());
    assert_eq!(at.deliver("a.1", &source.notification()).await.status(), 204);
    told("notified").await;
    assert_eq!(told("synchronised").await["report"]["created"], 0);
    assert_eq!(files(&into), expected(&[("a", "1"), ("b/c", "2")]));
}

#[tokio::test]
async fn a_notification_of_more_than_a_mebibyte_is_taken_where_that_is_allowed() {
    let mut hub = Hub::start().await;
    let source = source(Some(&hub)).await;
    let (url, state) = (source.url("/"), tempfile::tempdir().unwrap());
    let state = state.path().to_str().unwrap();
    let arguments =
        ["subscribe", &url, "--state", state, "--exec", "true", "--max-notification-size", "2 MiB"];
    let _forwarding = Listening::start_with(&arguments, "127.0.0.1:0");
    let at = hub.accept(600).await;
    assert_eq!(at.deliver("a.1", &"x".repeat(3 << 19)).await.status(), 204);
    let status = run(&["status", "--state", state]).await;
    let last = stdout(&status).lines().next_back();
    assert_eq!(last, Some("no copy is kept: notifications are only forwarded"), "{status:?}");
}

/// As `status` tells of it.
async fn first_subscription(into: &str) -> serde_json::Value {
    let status = run(&["status", "--into", into, "--json"]).await;
    let mut status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    status["subscriptions"][0].take()
}

#[tokio::test]
async fn a_kill_between_the_2xx_and_the_handling_loses_no_notification() {
    let mut hub = Hub::start().await;
    let source = source(Some(&hub)).await;
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    let mut first = Listening::start(&source, into, "127.0.0.1:0");
    let at = hub.accept(600).await;
    first.line("in step").await;

    // Handling needs the list, which is away.
    source.remove("/resourcelist.xml");
    for id in ["a.1", "a.2", "a.3"] {
        assert_eq!(at.deliver(id, &source.notification()).await.status(), 204);
    }
    first.signal("-KILL");
    first.child.wait().await.unwrap();
    assert_eq!(
        first_subscription(into).await["last_notification"],
        serde_json::Value::Null,
        "none of them was handled"
    );

    source.resource_list("/resourcelist.xml", &[source.resource("/a", b"3")]);
    let mut second = Listening::start(&source, into, &at.address.to_string());
    hub.accept(600).await;
    // The state is written before the line, and one of the next synchronisations handles what came during this one.
    while first_subscription(into).await["last_notification"] != "000000000000000a.3" {
        second.line("in step").await;
    }
    assert_eq!(at.deliver("a.3", &source.notification()).await.status(), 204);
    second.signal("-KILL");
    second.child.wait().await.unwrap();
    assert_eq!(first_subscription(into).await["last_notification"], "000000000000000a.3");
}
