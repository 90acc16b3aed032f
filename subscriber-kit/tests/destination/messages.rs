//! What the program says, where, and how often.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::command::{code, run, stdout};
use crate::support::Source;

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
