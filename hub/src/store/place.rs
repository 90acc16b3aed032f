//! Where a store is.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Engine, Files, Keyring, Registry, Result, Store};
use crate::config::Config;
#[cfg(feature = "postgres")]
use crate::config::DatabaseConfig;

/// Where a store is.
#[derive(Clone, Debug)]
pub enum Place {
    /// A folder, in which an embedded engine keeps it.
    Folder {
        /// Which engine.
        engine: Engine,
        /// Which folder.
        directory: PathBuf,
    },
    /// A database. What is not in it is in the hub's folder.
    #[cfg(feature = "postgres")]
    Database(DatabaseConfig),
}

impl Place {
    /// Where a hub with this configuration has its store.
    pub fn of(config: &Config) -> Self {
        #[cfg(feature = "postgres")]
        if config.store.engine == Engine::Postgres {
            return Self::Database(DatabaseConfig::of(config));
        }
        Self::Folder { engine: config.store.engine, directory: config.data_dir.clone() }
    }

    /// What keeps the data there.
    pub fn engine(&self) -> Engine {
        match self {
            Self::Folder { engine, .. } => *engine,
            #[cfg(feature = "postgres")]
            Self::Database(_) => Engine::Postgres,
        }
    }

    /// Whether it is a folder of this computer.
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }

    /// Opens (or creates) the store there. Subscribers' secrets are written with the first of `keys`, and read with all of them; those that
    /// are stored otherwise stay so until [`Admin::rotate_secrets`](super::Admin::rotate_secrets). While the disk has fewer than `reserve`
    /// bytes free, nothing new is taken in; that of a database is its own affair.
    ///
    /// # Errors
    /// As [`open`](super::open); of a database also [`StoreError::Away`](super::StoreError::Away),
    /// [`StoreError::NotDurable`](super::StoreError::NotDurable) and [`StoreError::EarlierPoint`](super::StoreError::EarlierPoint).
    #[cfg_attr(not(feature = "postgres"), allow(clippy::unused_async, reason = "a folder is opened at once"))]
    pub async fn open(&self, keys: Keyring, reserve: u64) -> Result<Arc<dyn Store>> {
        match self {
            Self::Folder { engine, directory } => super::open(*engine, directory, keys, reserve),
            #[cfg(feature = "postgres")]
            Self::Database(config) => super::postgres::open(config, keys).await,
        }
    }

    /// The documents and the log of commands there, for who has no store open. Of a database it needs the keys, and makes the store if need be.
    ///
    /// # Errors
    /// Those of [`Place::open`] that a database has, but other hubs may be using it.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "files need no keys"))]
    pub fn registry(&self, keys: &Keyring) -> Result<Arc<dyn Registry>> {
        match self {
            Self::Folder { directory, .. } => Ok(Arc::new(Files::in_folder(directory))),
            #[cfg(feature = "postgres")]
            Self::Database(config) => super::postgres::registry(config, keys.clone()),
        }
    }
}

/// For people: a database is not named, since its password may be part of that.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { directory, .. } => directory.display().fmt(f),
            #[cfg(feature = "postgres")]
            Self::Database(_) => f.write_str("the database"),
        }
    }
}
