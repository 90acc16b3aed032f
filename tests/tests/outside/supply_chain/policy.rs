//! `deny.toml`, in so far as the tests judge by it: which licences are allowed, what is banned, and the exceptions with their reasons.

use std::collections::BTreeSet;
use std::fs;
use std::iter::Peekable;

use semver::{Version, VersionReq};
use serde::Deserialize;

use super::tree::Crate;

#[derive(Deserialize)]
pub(super) struct Policy {
    pub(super) licenses: Licenses,
    pub(super) bans: Bans,
    pub(super) advisories: Exceptions,
}

#[derive(Deserialize)]
pub(super) struct Licenses {
    pub(super) allow: BTreeSet<String>,
}

#[derive(Deserialize)]
pub(super) struct Bans {
    /// Versions that may be there beside another one.
    pub(super) skip: Vec<Rule>,
    /// What must not be there at all, or only for the sake of some.
    pub(super) deny: Vec<Rule>,
}

/// What is said of a crate, or of some versions of it.
#[derive(Deserialize)]
pub(super) struct Rule {
    /// `name`, or `name@versions`.
    #[serde(rename = "crate")]
    spec: String,
    /// Those that may ask for it.
    #[serde(default)]
    pub(super) wrappers: BTreeSet<String>,
    pub(super) reason: String,
}

#[derive(Deserialize)]
pub(super) struct Exceptions {
    pub(super) ignore: Vec<Exception>,
}

/// An advisory that concerns us and is borne.
#[derive(Deserialize)]
pub(super) struct Exception {
    pub(super) id: String,
    pub(super) reason: String,
}

impl Policy {
    pub(super) fn read() -> Self {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deny.toml")).unwrap();
        toml::from_str(&text).unwrap()
    }
}

impl Rule {
    pub(super) fn is_about(&self, it: &Crate) -> bool {
        match self.spec.split_once('@') {
            Some((name, versions)) => name == it.name && requirement(versions).matches(&it.version),
            None => self.spec == it.name,
        }
    }

    /// For messages.
    pub(super) fn spec(&self) -> &str {
        &self.spec
    }
}

fn requirement(versions: &str) -> VersionReq {
    versions.parse().unwrap_or_else(|error| panic!("{versions} in deny.toml: {error}"))
}

/// Whether the expression can be met with licences that are allowed. An exception to a licence (`WITH`) counts for nothing.
pub(super) fn is_licensed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let holds = any(&mut words, allowed);
    assert_eq!(words.next(), None, "{expression} is no licence expression");
    holds
}

fn any<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &BTreeSet<String>) -> bool {
    let mut holds = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        holds |= all(words, allowed);
    }
    holds
}

fn all<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &BTreeSet<String>) -> bool {
    let mut holds = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        holds &= one(words, allowed);
    }
    holds
}

fn one<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => {
            let holds = any(words, allowed);
            holds && words.next() == Some(")")
        }
        Some(license) if words.next_if_eq(&"WITH").is_some() => {
            words.next();
            allowed.contains(license)
        }
        Some(license) => allowed.contains(license),
        None => false,
    }
}

/// One crate of the registry, for tests of the tests.
pub(super) fn made_up(name: &str, version: &str) -> Crate {
    let version = Version::parse(version).unwrap();
    Crate {
        name: name.to_owned(),
        version,
        license: "MIT".to_owned(),
        source: None,
        needed_by: BTreeSet::new(),
    }
}
