//! What a command line does with a store, wherever it is: checks and repairs, backups and restores.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

#[cfg(feature = "postgres")]
use super::postgres;
use super::{
    BackupError, Copied, Credentials, Findings, Header, Keyring, Place, Repaired, Result, SaidRestored,
    StoreError, embedded,
};

impl Place {
    /// Checks the store: in a folder that no hub may be using, or in a database as of one moment. No record is changed.
    ///
    /// # Errors
    /// As [`check`](super::check), and what keeps the database from being used.
    pub fn check(&self, keys: &Keyring) -> Result<Findings> {
        match self {
            Self::Folder { engine, directory } => embedded::check(*engine, directory, keys),
            #[cfg(feature = "postgres")]
            Self::Database(config) => postgres::check(config, keys),
        }
    }

    /// Repairs the store in a folder, which no hub may be using. A database has its own means.
    ///
    /// # Errors
    /// As [`repair`](super::repair).
    pub fn repair(&self, keys: &Keyring) -> Result<Repaired> {
        match self {
            Self::Folder { engine, directory } => embedded::repair(*engine, directory, keys),
            #[cfg(feature = "postgres")]
            Self::Database(_) => {
                let reason = "a database is not repaired by the hub: restore a backup of the hub, or the database to a point in time";
                Err(StoreError::Write(reason.to_owned()))
            }
        }
    }

    /// Writes a backup of the store, and of the files `beside` it that exist. No hub may be using a folder; of a database it is that of the
    /// moment when this was called, and the secrets in it are written with the first of `keys`. A folder needs none.
    ///
    /// # Errors
    /// As [`back_up`](super::back_up), and what keeps the database from being used.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "a folder is copied as it is"))]
    pub fn back_up(
        &self,
        keys: &Keyring,
        beside: &[PathBuf],
        out: &mut dyn Write,
    ) -> std::result::Result<Copied, BackupError> {
        match self {
            Self::Folder { engine, directory } => embedded::back_up(*engine, directory, beside, out),
            #[cfg(feature = "postgres")]
            Self::Database(config) => postgres::back_up(config, keys, beside, out),
        }
    }

    /// Makes the store anew from a backup, wherever that comes from: in a folder in which nothing is, or in a database in which nothing is of
    /// a hub.
    ///
    /// # Errors
    /// As [`restore`](super::restore), [`BackupError::InDatabase`], and what keeps the database from being used.
    pub fn restore(
        &self,
        keys: &Keyring,
        credentials: Credentials,
        backup: &Path,
    ) -> std::result::Result<(Header, Findings), BackupError> {
        match self {
            Self::Folder { engine, directory } => {
                embedded::restore(*engine, directory, keys, credentials, backup)
            }
            #[cfg(feature = "postgres")]
            Self::Database(config) => postgres::restore(config, keys, credentials, backup),
        }
    }

    /// As [`Place::restore`], from what can be read once only. A part of a backup leaves nothing.
    ///
    /// # Errors
    /// As [`Place::restore`].
    pub fn restore_stream(
        &self,
        keys: &Keyring,
        credentials: Credentials,
        backup: impl Read,
    ) -> std::result::Result<(Header, Findings), BackupError> {
        match self {
            Self::Folder { engine, directory } => {
                embedded::restore_stream(*engine, directory, keys, credentials, backup)
            }
            #[cfg(feature = "postgres")]
            Self::Database(config) => postgres::restore_stream(config, keys, credentials, backup),
        }
    }

    /// Lets the logs of a database leap that was restored to an earlier point by its own means: what was given out since then is never given
    /// out again. That is not done while hubs are up.
    ///
    /// # Errors
    /// What keeps the database from being used, and [`StoreError::Write`] for a folder.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "a folder needs no keys"))]
    pub fn restored(&self, keys: &Keyring) -> Result<SaidRestored> {
        match self {
            Self::Folder { .. } => {
                let reason = "the store is in a folder, whose logs leap by `resync-hub restore`";
                Err(StoreError::Write(reason.to_owned()))
            }
            #[cfg(feature = "postgres")]
            Self::Database(config) => postgres::restored(config, keys),
        }
    }
}
