//! What a registry would get: every published crate can be packaged, brings its licences, and says what it is.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::tempdir;

/// In the order in which a registry could take them.
const PUBLISHED: [&str; 5] =
    ["resync-core", "resync-common", "resync-hub", "resync-publisher", "resync-subscriber-kit"];

/// Cargo in this workspace, without network.
fn cargo(arguments: &[&str]) -> Output {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--offline", "--locked"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn every_published_crate_can_be_packaged_with_its_readme_and_its_licences() {
    let folder = tempdir().unwrap();
    let mut arguments =
        vec!["package", "--no-verify", "--allow-dirty", "--target-dir", folder.path().to_str().unwrap()];
    arguments.extend(PUBLISHED.iter().flat_map(|name| ["-p", name]));
    cargo(&arguments);
    for name in PUBLISHED {
        let whole = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let package = folder.path().join("package").join(format!("{whole}.crate"));
        let unpacked =
            Command::new("tar").arg("-xzf").arg(&package).current_dir(folder.path()).status().unwrap();
        assert!(unpacked.success(), "{}", package.display());
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            let text = fs::read_to_string(folder.path().join(&whole).join(file)).unwrap_or_default();
            assert!(text.lines().count() > 3, "{whole} has no {file}");
        }
    }
}

#[test]
fn whoever_takes_a_library_compiles_nothing_of_its_program() {
    for name in ["resync-publisher", "resync-subscriber-kit"] {
        let output = cargo(&["tree", "--edges", "normal", "--prefix", "none", "-p", name]);
        let tree = String::from_utf8(output.stdout).unwrap();
        let is_there = |needed: &str| tree.lines().any(|line| line.starts_with(&format!("{needed} v")));
        assert!(is_there("reqwest"), "{tree}");
        for of_program in ["clap", "indicatif", "tracing-subscriber"] {
            assert!(!is_there(of_program), "{name} takes {of_program}");
        }
    }
}

#[test]
fn every_published_crate_says_what_it_is_as_the_registry_wants_it_and_nothing_else_is_published() {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut published = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        // An empty list of registries is what `publish = false` means.
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        published.push(name);
        for key in ["description", "license", "readme", "rust_version"] {
            assert!(package[key].as_str().is_some_and(|value| !value.is_empty()), "{name} has no {key}");
        }
        for key in ["keywords", "categories"] {
            let words = package[key].as_array().unwrap();
            assert!((1..=5).contains(&words.len()), "{name}: {key}");
        }
        for word in package["keywords"].as_array().unwrap() {
            assert!(word.as_str().unwrap().len() <= 20, "{name}: {word}");
        }
    }
    published.sort_unstable();
    let mut expected = PUBLISHED;
    expected.sort_unstable();
    assert_eq!(published, expected);
}
