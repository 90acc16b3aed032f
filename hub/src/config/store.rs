//! `[store]`: what keeps the data, and where.

use std::path::PathBuf;
#[cfg(feature = "postgres")]
use std::time::Duration;

use serde::Deserialize;

#[cfg(feature = "postgres")]
use super::Config;
use super::Hidden;
use super::values::{self, Engine};

/// `[store]`
#[derive(Clone, Debug, Deserialize)]
pub struct StoreConfig {
    /// What keeps the data.
    #[serde(deserialize_with = "values::engine")]
    pub engine: Engine,
    /// Bytes that must be free on the disk; with less the hub accepts nothing new.
    #[serde(deserialize_with = "values::size")]
    pub reserve: u64,
    /// Where the database is, with the password if it takes one.
    pub url: Hidden,
    /// The file with the certificates that vouch for the servers of the database; empty: those of the web do.
    pub ca: PathBuf,
    /// How it is known that the database keeps what it acknowledges.
    pub durability: Durability,
}

/// How it is known that the database keeps what it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The hub sees it: a standby has what was acknowledged.
    Proven,
    /// The operator says so: the storage is shared by all servers, so that a failover loses nothing.
    Declared,
}

/// Where a database is, and what is expected of it.
#[cfg(feature = "postgres")]
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// Its URL, with several hosts perhaps.
    pub url: Hidden,
    /// The file with the certificates that vouch for its servers; `None`: those of the web do.
    pub ca: Option<PathBuf>,
    /// How it is known that it keeps what it acknowledges.
    pub durability: Durability,
    /// The hub's own folder, for what is not in the database.
    pub data_dir: PathBuf,
    /// What no operator sets.
    pub limits: DatabaseLimits,
}

/// How much is done in the database at once, and how often: what tests set, and no operator.
#[cfg(feature = "postgres")]
#[derive(Clone, Copy, Debug)]
pub struct DatabaseLimits {
    /// Records that one command of retention or of a replay removes.
    pub slice: i32,
    /// For so long what was found of the hubs is shown again: each open page asks with each sample, and there may be many laggards to count.
    pub hubs_fresh: Duration,
}

#[cfg(feature = "postgres")]
impl Default for DatabaseLimits {
    fn default() -> Self {
        Self { slice: 1_024, hubs_fresh: Duration::from_secs(2) }
    }
}

#[cfg(feature = "postgres")]
impl DatabaseConfig {
    /// What a hub's configuration says of its database.
    pub fn of(config: &Config) -> Self {
        Self {
            url: config.store.url.clone(),
            ca: Some(config.store.ca.clone()).filter(|path| !path.as_os_str().is_empty()),
            durability: config.store.durability,
            data_dir: config.data_dir.clone(),
            limits: DatabaseLimits::default(),
        }
    }
}

/// The largest body that a database takes in time.
const LARGEST_BODY: u64 = 64 << 20;

impl StoreConfig {
    /// `max_body` is that of `[publish]`.
    pub(super) fn mistakes(&self, max_body: u64) -> Vec<String> {
        let mut found = Vec::new();
        if self.engine.name() != "postgres" {
            return found;
        }
        if self.url.reveal().is_empty() {
            found.push("store.url must say where the database is: write for example \"postgres://hub@db1.example,db2.example/hub\"".to_owned());
        }
        if max_body > LARGEST_BODY {
            found.push(format!("publish.max_body must be at most 64 MiB where store.engine is \"postgres\", it is {max_body} bytes"));
        }
        found
    }
}

/// Whether the URL of a database has a password in it.
pub(super) fn has_password(url: &str) -> bool {
    let named = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    named.is_some_and(|(user, _)| user.contains(':')) || url.contains("password=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_database_is_noticed_before_its_hosts_and_behind_them() {
        for url in ["postgres://me:secret@one,two:5433/hub", "postgres://one/hub?password=secret"] {
            assert!(has_password(url), "{url}");
        }
        for url in ["postgres://me@one:5432,two:5433/hub", "postgres://one:5432/hub?sslmode=require", ""] {
            assert!(!has_password(url), "{url}");
        }
    }
}
