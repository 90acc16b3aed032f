//! Making a store in a database from a backup, whatever engine that comes from.
//!
//! A backup lists changes, of which a later one replaces an earlier one. So a store of the embedded engine is made of it first, in the data
//! folder of the hub: there each record is once, checked, and the logs have leaped. Its records, and the files beside it, are then copied into
//! the database, in one transaction, and removed from the folder. What breaks off before leaves a folder that no hub opens and a database in which
//! nothing is.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::apart::{any_session, apart, refused};
use super::fill::fill;
use crate::config::DatabaseConfig;
use crate::store::embedded::{Made, make, make_of_stream};
use crate::store::{BESIDE, BackupError, Credentials, Engine, Findings, Header, Keyring, Result, StoreError};

/// The engine of the store in between.
const BETWEEN: Engine = Engine::Fjall;
const IS_TAKEN: &str = "SELECT to_regnamespace('hub') IS NOT NULL AS is_taken";

type Restored = std::result::Result<(Header, Findings), BackupError>;

/// Makes the store in an empty database from a backup.
///
/// # Errors
/// [`BackupError`]; [`BackupError::InDatabase`] where there is a store already.
pub(in crate::store) fn restore(
    config: &DatabaseConfig,
    keys: &Keyring,
    credentials: Credentials,
    backup: &Path,
) -> Restored {
    refuse_what_is_there(config)?;
    let made = make(BETWEEN, &config.data_dir, (keys, credentials), backup)?;
    finish(config, keys, made)
}

/// As [`restore`], from what can be read once only.
///
/// # Errors
/// As [`restore`].
pub(in crate::store) fn restore_stream(
    config: &DatabaseConfig,
    keys: &Keyring,
    credentials: Credentials,
    backup: impl Read,
) -> Restored {
    refuse_what_is_there(config)?;
    let made = make_of_stream(BETWEEN, &config.data_dir, (keys, credentials), backup)?;
    finish(config, keys, made)
}

fn finish(config: &DatabaseConfig, keys: &Keyring, made: Made) -> Restored {
    let records = &*made.records;
    apart(|| fill(config, keys, records))?;
    // They are in the database, too.
    for name in BESIDE {
        remove(&config.data_dir.join(name))?;
    }
    made.finish_elsewhere(Engine::Postgres)
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::Write(format!("{}: {error}", file.display())))
        }
        _ => Ok(()),
    }
}

fn refuse_what_is_there(config: &DatabaseConfig) -> std::result::Result<(), BackupError> {
    let is_taken: Result<bool> = apart(|| async move {
        let session = any_session(config).await?;
        let row = session.client().query_one(IS_TAKEN, &[]).await.map_err(|error| refused(&error))?;
        row.try_get("is_taken").map_err(|error| refused(&error))
    });
    if is_taken? { Err(BackupError::InDatabase) } else { Ok(()) }
}
