//! What operators copy from `deploy/`, in the hands of the programs that will read it: Prometheus, nginx, Caddy, Compose, Kubernetes'
//! own tools, dpkg and pip. (What needs none of them is in `deploy.rs`.)

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[cfg(feature = "postgres")]
mod cluster;
mod images;
mod monitoring;
mod orchestrators;
mod package;
mod proxies;
mod release;
mod roots;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Replaces what must be there.
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "there is no {old:?} in:\n{text}");
    text.replace(old, new)
}

fn run(command: &mut Command) -> Output {
    let program = command.get_program().display().to_string();
    command.output().unwrap_or_else(|error| {
        panic!("{program} cannot be run ({error}): tests/run installs what is missing")
    })
}

/// What a command says that must succeed.
fn said(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream)).concat()
}

/// YAML of one or more documents.
fn yaml(text: &str) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.yaml");
    fs::write(&path, text).unwrap();
    // The system's Python has the YAML module that tests/run asks for.
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    serde_json::from_str(&said(Command::new("/usr/bin/python3").args(["-c", script]).arg(&path))).unwrap()
}
