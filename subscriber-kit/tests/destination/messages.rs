//! What the program says, where, and how often.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::Stdio;

use crate::command::{code, command, run, stdout};
use crate::support::{PATIENCE, Source, entry};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// A Source of so many resources.
async fn source(count: usize) -> Source {
    let source = Source::start().await;
    source.announce(None);
    let entries: Vec<_> = (0..count).map(|number| source.resource(&format!("/{number}"), b"1")).collect();
    source.resource_list("/resourcelist.xml", &entries);
    source
}

#[tokio::test]
async fn a_quiet_run_says_only_what_is_not_in_step() {
    let source = source(2).await;
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    let quiet = async |command: &str| {
        let output = run(&[command, &url, into, "-q"]).await;
        (code(&output), stdout(&output).to_owned(), String::from_utf8(output.stderr).unwrap())
    };
    for command in ["sync", "audit"] {
        assert_eq!(quiet(command).await, (0, String::new(), String::new()), "{command}");
    }
    source.remove("/1");
    std::fs::remove_file(directory.path().join("1")).unwrap();
    let missing = source.url("/1");
    for (command, verdict, cause) in [
        ("sync", "not in step: 1 of 2 resources failed", "answers 404"),
        ("audit", "not in step: 2 resources (1 same, 1 missing,", "missing"),
    ] {
        let (code, printed, said) = quiet(command).await;
        assert_eq!((code, printed.as_str()), (1, ""), "{command}: {said}");
        assert!(said.starts_with(&format!("resync-destination: {verdict}")), "{command}: {said}");
        assert!(said.contains(&format!("  {missing}: {cause}")), "{command}: {said}");
    }
}

#[tokio::test]
async fn a_quiet_dry_run_says_in_one_message_what_it_needs() {
    let source = source(1).await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), "").unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    let dry = run(&["sync", &url, into, "--delete", "--dry-run", "-q"]).await;
    let said = String::from_utf8(dry.stderr.clone()).unwrap();
    assert_eq!((code(&dry), said.matches("resync-destination: ").count()), (1, 1), "{said}");
    assert!(said.contains("\n  1 file was here before the copy, "), "{said}");
}

#[tokio::test]
async fn why_listening_ends_is_said_once() {
    let (one, other) = (source(1).await, source(1).await);
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name).display().to_string());
    let alone = run(&["listen", &one.url("/"), "--into", &first, "--listen", "127.0.0.1:0"]).await;
    let reason = |source: &Source| {
        format!("the set {} has no notification channel with a hub", source.url("/capabilitylist.xml"))
    };
    let said = String::from_utf8([alone.stdout.clone(), alone.stderr.clone()].concat()).unwrap();
    assert_eq!((code(&alone), said.matches(&reason(&one)).count()), (1, 1), "{said}");
    assert!(said.contains(&format!("resync-destination: {}", reason(&one))), "{said}");

    let urls = [one.url("/"), other.url("/")];
    let line = ["listen", &urls[0], &urls[1], "--into", &first, "--into", &second, "--listen", "127.0.0.1:0"];
    let both = run(&line).await;
    let said = String::from_utf8([both.stdout.clone(), both.stderr.clone()].concat()).unwrap();
    for (source, directory) in [(&one, &first), (&other, &second)] {
        assert_eq!(said.matches(&reason(source)).count(), 1, "{said}");
        assert!(said.contains(&format!("{directory}: stopped: {}", reason(source))), "{said}");
    }
    assert!(code(&both) == 1 && said.contains("resync-destination: all copies have stopped"), "{said}");
}

#[tokio::test]
async fn a_source_that_is_away_is_told_of_once() {
    let url = format!("http://{}/", resync_harness::free_address());
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().to_str().unwrap();
    let mut listening = command(&["listen", &url, "--into", into, "--listen", "127.0.0.1:0"]);
    let mut listening = listening.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines();
    let told = async {
        while !lines.next_line().await.unwrap().expect("it runs").starts_with("not in step: cannot reach ") {}
    };
    tokio::time::timeout(PATIENCE, told).await.expect("it is told in time");
    let status = run(&["status", "--into", into]).await;
    assert_eq!(stdout(&status), "running: a process uses this state\nnot synchronised yet\n", "{status:?}");
    listening.kill().await.unwrap();
    let logged = String::from_utf8(listening.wait_with_output().await.unwrap().stderr).unwrap();
    assert!(!logged.contains(&url), "{logged}");
}

#[tokio::test]
async fn the_status_of_a_forwarder_whose_source_is_away_says_so_in_one_sentence() {
    let topic = format!("http://{}/feed", resync_harness::free_address());
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let mut forwarding = command(&["subscribe", &topic, "--state", state, "--listen", "127.0.0.1:0"]);
    let mut forwarding = forwarding.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(forwarding.stdout.take().unwrap()).lines();
    let why = format!("not subscribed to {topic}: cannot reach it (");
    let told = async { while !lines.next_line().await.unwrap().expect("it runs").starts_with(&why) {} };
    tokio::time::timeout(PATIENCE, told).await.expect("it is told in time");
    let status = async |first: &str, end: &str| {
        let status = run(&["status", "--state", state]).await;
        assert_eq!(code(&status), 0, "{status:?}");
        let said: Vec<_> = stdout(&status).lines().collect();
        let [running, sentence, copy] = said.as_slice() else { panic!("{said:?}") };
        assert!(running.starts_with(first), "{running}");
        assert!(sentence.starts_with(&why) && sentence.ends_with(end), "{sentence}");
        assert_eq!(*copy, "no copy is kept: notifications are only forwarded");
    };
    status("running: ", "; check the URL and the server; it is tried again").await;
    forwarding.kill().await.unwrap();
    status("not running: no notification is received; ", "; check the URL and the server").await;
    let not_subscribed = async || {
        let json = run(&["status", "--state", state, "--json"]).await;
        let mut json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        json["not_subscribed"].take()
    };
    assert_eq!(not_subscribed().await[0]["topic"], topic);
    let ended = run(&["unsubscribe", "--state", state, "--listen", "127.0.0.1:0"]).await;
    assert_eq!(code(&ended), 0, "{ended:?}");
    assert_eq!(not_subscribed().await, serde_json::json!([]), "no topic is wanted any more");
}

#[tokio::test]
async fn many_resources_that_fail_for_one_cause_are_one_line_with_an_example() {
    let outcome = async |count: usize, flags: &[&str]| {
        let source = source(count).await;
        for number in (0..count).filter(|_| flags.is_empty()) {
            source.remove(&format!("/{number}"));
        }
        let directory = tempfile::tempdir().unwrap();
        let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
        let sync = run(&[&["sync", &url, into][..], flags].concat()).await;
        assert_eq!(code(&sync), 1);
        let lines = stdout(&sync).lines().map(|line| line.replace(&source.url(""), "SOURCE"));
        lines.collect::<Vec<_>>()
    };
    for count in [4, 150] {
        let lines = outcome(count, &[]).await;
        let [_, line] = lines.as_slice() else { panic!("{lines:?}") };
        let such_as = format!("  {count} resources, such as SOURCE/");
        assert!(line.starts_with(&such_as) && line.ends_with(": answers 404"), "{line}");
    }
    assert_eq!(outcome(3, &[]).await.len(), 1 + 3, "each of a few has its line");
    let lines = outcome(16, &["--base-url", "http://source.example/elsewhere/"]).await;
    let [_, line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.starts_with("  16 resources, such as SOURCE/0: it is not below "), "{line}");
}

#[tokio::test]
async fn resources_that_are_not_as_listed_are_one_cause_although_each_has_a_hash_of_its_own() {
    let source = source(5).await;
    for (number, body) in "abcde".bytes().enumerate() {
        source.put(&format!("/{number}"), &[body]);
    }
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    let sync = run(&["sync", &url, into]).await;
    let told: Vec<_> = stdout(&sync).lines().collect();
    let [_, line] = told.as_slice() else { panic!("{told:?}") };
    assert!(line.starts_with(&format!("  5 resources, such as {url}")), "{line}");
    assert!(line.contains(": the list says sha-256:"), "{line}");

    let sync = run(&["sync", &url, into, "--json"]).await;
    let report: serde_json::Value = serde_json::from_slice(&sync.stdout).unwrap();
    let [cause] = report["causes"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((cause["kind"].as_str(), cause["count"].as_u64()), (Some("mismatch"), Some(5)));
    assert!(cause["status"].is_null(), "{report}");
}

#[tokio::test]
async fn a_resource_that_cannot_be_reached_is_named_once() {
    let source = Source::start().await;
    source.announce(None);
    let away = format!("http://{}/a", resync_harness::free_address());
    source.resource_list("/resourcelist.xml", &[entry(&away, r#"length="1""#)]);
    let directory = tempfile::tempdir().unwrap();
    let (url, into) = (source.url("/"), directory.path().to_str().unwrap());
    let sync = run(&["sync", &url, into, "--any-origin", "--retries", "0"]).await;
    let told = stdout(&sync);
    assert!(told.contains(&format!("  {away}: cannot reach it (")), "{told}");
    assert_eq!((code(&sync), told.matches(&away).count()), (1, 1), "{told}");
}
