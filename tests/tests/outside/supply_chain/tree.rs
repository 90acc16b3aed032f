//! The crates of a lock file, as cargo sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::process::Command;

use semver::Version;
use serde::Deserialize;

/// A version of a crate.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: Version,
    /// The expression in its manifest.
    pub(super) license: String,
    /// `None` for what is in the repository.
    pub(super) source: Option<String>,
    /// The names of those that ask for it.
    pub(super) needed_by: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// All crates that the lock beside `manifest` may need, for any system, in the order of their names. Cargo fetches what it has not seen
/// yet, such as manifests of other systems' crates.
pub(super) fn crates(manifest: &str, options: &[&str]) -> Vec<Crate> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1", "--manifest-path", manifest])
        .args(options)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{manifest}: {}", String::from_utf8_lossy(&output.stderr));
    let Metadata { packages, resolve } = serde_json::from_slice(&output.stdout).unwrap();
    let names: BTreeMap<_, _> = packages.iter().map(|package| (&package.id, &package.name)).collect();
    let mut needed_by: BTreeMap<&String, BTreeSet<String>> = BTreeMap::new();
    for node in &resolve.nodes {
        for dependency in &node.dependencies {
            needed_by.entry(dependency).or_default().insert(names[&node.id].clone());
        }
    }
    let mut crates: Vec<_> = packages
        .iter()
        .map(|package| Crate {
            name: package.name.clone(),
            version: package.version.parse().unwrap(),
            license: package.license.clone().unwrap_or_default(),
            source: package.source.clone(),
            needed_by: needed_by.remove(&package.id).unwrap_or_default(),
        })
        .collect();
    crates.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    crates
}
