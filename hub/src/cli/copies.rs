//! `resync-hub backup` and `restore`: everything that a hub remembers, in one file.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use resync_core::durable::{folder_of, sync_folder};
use resync_hub::config::Config;
use resync_hub::operator::{Audit, By, Size};
use resync_hub::store::{self, BackupError, StoreError};

use super::ask::Admin;
use super::tools::{WhichHub, admin_token};
use super::{Failure, say};

/// How long a running hub may be silent in the middle of a backup.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Args, Debug)]
pub(super) struct Backup {
    /// Where to write it; a file that is there is replaced once the backup is whole
    file: PathBuf,
    #[command(flatten)]
    hub: WhichHub,
    /// Ask the running hub whose admin API listens here; without it, a stopped hub's store is read, and a running hub is asked
    /// where the configuration says
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

#[derive(Args, Debug)]
pub(super) struct Restore {
    /// The backup
    file: PathBuf,
    #[command(flatten)]
    hub: WhichHub,
}

pub(super) fn back_up(command: Backup) -> Result<(), Failure> {
    let Backup { file, hub, admin } = command;
    let config = hub.load()?;
    let draft = beside(&file, ".part");
    let taken = take(&config, admin, &draft).and_then(|()| {
        let (header, copied) = store::verify(&draft).map_err(|error| match error {
            BackupError::CutOff(_) => Failure::new(format_args!("{error}; the hub's log says why")),
            error => Failure::new(error),
        })?;
        fs::rename(&draft, &file).and_then(|()| sync_folder(folder_of(&file))).map_err(Failure::new)?;
        say(format_args!(
            "{}: {} records, {}, with everything that was acknowledged before {}",
            file.display(),
            copied.records,
            Size(copied.bytes),
            header.begun
        ));
        Ok(())
    });
    if taken.is_err() {
        // It may not be there.
        let _ = fs::remove_file(&draft);
    }
    taken
}

fn take(config: &Config, admin: Option<SocketAddr>, draft: &Path) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft);
    let file =
        file.map_err(|error| Failure::new(format_args!("{} cannot be written: {error}", draft.display())))?;
    let mut out = BufWriter::new(file);
    if admin.is_some() {
        ask(config, admin, &mut out)?;
    } else {
        let stopped =
            store::back_up(config.store.engine, &config.data_dir, &config.beside_the_store(), &mut out);
        match stopped {
            // Nothing was written yet.
            Err(BackupError::Store(StoreError::Locked { .. })) => ask(config, admin, &mut out)?,
            taken => drop(taken.map_err(Failure::new)?),
        }
    }
    out.into_inner().map_err(Failure::new).and_then(|file| file.sync_all().map_err(Failure::new))
}

fn ask(config: &Config, admin: Option<SocketAddr>, out: &mut impl Write) -> Result<(), Failure> {
    let token = admin_token(config)?;
    let address = admin.unwrap_or(config.admin.listen);
    let admin = Admin { address, tls: &config.admin.tls, token: Some(token.trim()), patience: PATIENCE };
    admin.download("POST", "/api/v1/backup", out)
}

pub(super) fn restore(command: Restore) -> Result<(), Failure> {
    let Restore { file, hub } = command;
    let config = hub.load()?;
    let keys = config.secrets.keyring().map_err(Failure::new)?;
    let (header, found) =
        store::restore(config.store.engine, &config.data_dir, &keys, &file).map_err(Failure::new)?;
    let audit = Audit::open(&config.audit_file()).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, "restore", &format!("the backup of {}", header.begun));
    audit.end(begun.map_err(Failure::new)?, &format!("{} records", found.records));
    say(format_args!(
        "{}: {} records of a backup begun at {}, in {:?}",
        config.data_dir.display(),
        found.records,
        header.begun,
        config.store.engine
    ));
    if found.faults.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format_args!(
        "it is restored as it was, with {} faults that the store had when it was backed up: `resync-hub fsck` names them, \
         `resync-hub fsck --repair` mends them",
        found.faults.len()
    )))
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    name.into()
}
