//! `resync-hub backup` and `restore`: everything that a hub remembers, in one file. And `restored`, where a database was restored without it.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use resync_core::durable::{folder_of, sync_folder};
use resync_hub::admin::{Audit, By, Size, counted};
use resync_hub::config::Config;
use resync_hub::store::{
    self, BackupError, Copied, Credentials, Header, Keyring, Place, Registry, StoreError,
};
use resync_hub::topics::Tokens;
use tempfile::Builder;

use super::ask::Admin;
use super::owner::{is_ours_or_is_passed_on, is_ours_or_is_piped};
use super::reach::{AdminAddress, RunningHub, operator};
use super::which::WhichHub;
use super::{Failure, complain, say};

/// How long a running hub may be silent in the middle of a backup.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Args, Debug)]
pub(super) struct Backup {
    /// Where to write it; an existing file is replaced once the backup is complete. With - it goes to standard output,
    /// where only exit code 0 says that it is whole
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    hub: RunningHub,
}

#[derive(Args, Debug)]
pub(super) struct Restore {
    /// The backup; - for standard input, where a part of one restores nothing
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Leave out the publishers' tokens and the key of the status URLs: for a backup that others have had in their hands. Publishers
    /// then need new tokens, and the URLs that were given out stop working
    #[arg(long)]
    without_credentials: bool,
    #[command(flatten)]
    hub: WhichHub,
}

#[derive(Args, Debug)]
pub(super) struct Restored {
    #[command(flatten)]
    hub: WhichHub,
}

pub(super) fn back_up(command: Backup) -> Result<(), Failure> {
    let Backup { file, hub: RunningHub { hub, admin } } = command;
    let admin = admin.as_ref();
    let config = hub.load()?;
    if file == Path::new("-") {
        return pass_on(&config, &file, admin);
    }
    // A file of its own, for the hub's user only, which goes unless it is whole.
    let name = file.file_name().unwrap_or_default();
    let draft = Builder::new().prefix(name).suffix(".part").tempfile_in(folder_of(&file));
    let mut draft =
        draft.map_err(|error| Failure::new(format_args!("{} cannot be written: {error}", file.display())))?;
    take(&config, &file, admin, draft.as_file_mut())?;
    draft.as_file().sync_all().map_err(Failure::new)?;
    let written = whole(store::verify(draft.reopen().map_err(Failure::new)?))?;
    draft.persist(&file).map_err(|error| Failure::new(error.error))?;
    sync_folder(folder_of(&file)).map_err(Failure::new)?;
    say(format_args!("{}: {}", file.display(), summary(&written)));
    Ok(())
}

/// Writes it to standard output. Only its end proves that it is complete, so it is read on the way, and the exit code says so.
fn pass_on(config: &Config, file: &Path, admin: Option<&AdminAddress>) -> Result<(), Failure> {
    let (mut passing, through) = io::pipe().map_err(Failure::new)?;
    let reading = thread::spawn(move || {
        let read = store::verify(&mut passing);
        // What cannot be understood is passed on all the same, and does not hold up the rest.
        io::copy(&mut passing, &mut io::sink()).map_err(|error| BackupError::Input(error.to_string()))?;
        read
    });
    let taken = take(config, file, admin, Both(io::stdout(), through));
    let read = reading.join().map_err(|_| Failure::new("the backup that was written could not be read"))?;
    taken?;
    complain(summary(&whole(read)?));
    Ok(())
}

/// Writes to both.
struct Both<A, B>(A, B);

impl<A: Write, B: Write> Write for Both<A, B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.1.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.1.flush()
    }
}

fn whole(read: Result<(Header, Copied), BackupError>) -> Result<(Header, Copied), Failure> {
    read.map_err(|error| match error {
        BackupError::CutOff(_) => Failure::new(format_args!("{error}; the hub's log says why")),
        error => Failure::new(error),
    })
}

fn summary((header, copied): &(Header, Copied)) -> String {
    format!(
        "{}, {}, with everything that was acknowledged before {}",
        counted(copied.records, "record", "records"),
        Size(copied.bytes),
        header.begun
    )
}

fn take(config: &Config, file: &Path, admin: Option<&AdminAddress>, out: impl Write) -> Result<(), Failure> {
    let mut out = BufWriter::new(out);
    if admin.is_some() {
        ask(config, admin, &mut out)?;
    } else if let Err(not_ours) = is_ours_or_is_passed_on(config, file) {
        ask(config, admin, &mut out).map_err(|running| running.and(&not_ours))?;
    } else {
        let place = Place::of(config);
        let keys = if place.is_folder() {
            // It is copied as it is.
            Keyring::none()
        } else {
            Keyring::of(&config.secrets).map_err(Failure::new)?
        };
        match place.back_up(&keys, &store::beside(&config.data_dir), &mut out) {
            // Nothing was written yet.
            Err(BackupError::Store(StoreError::Locked { .. })) => ask(config, admin, &mut out)?,
            taken => drop(taken.map_err(Failure::new)?),
        }
    }
    out.flush().map_err(Failure::new)
}

fn ask(config: &Config, admin: Option<&AdminAddress>, out: &mut impl Write) -> Result<(), Failure> {
    let admin = Admin { patience: PATIENCE, ..operator(config, admin)? };
    admin.download("POST", "/api/v1/backup", out)
}

pub(super) fn restore(command: Restore) -> Result<(), Failure> {
    let Restore { file, without_credentials, hub } = command;
    let config = hub.load()?;
    if config.data_dir.exists() {
        is_ours_or_is_piped(&config, &file)?;
    }
    let keys = Keyring::of(&config.secrets).map_err(Failure::new)?;
    let place = Place::of(&config);
    let credentials = if without_credentials { Credentials::LeftOut } else { Credentials::Restored };
    let restored = if file == Path::new("-") {
        place.restore_stream(&keys, credentials, io::stdin().lock())
    } else {
        place.restore(&keys, credentials, &file)
    };
    let (header, found) = restored.map_err(Failure::new)?;
    let registry = place.registry(&keys).map_err(Failure::new)?;
    let audit = Audit::open(Arc::clone(&registry)).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, "restore", &format!("the backup of {}", header.begun));
    let records = counted(found.records, "record", "records");
    audit.end(begun.map_err(Failure::new)?, &records);
    say(format_args!("{place}: {records} of a backup begun at {}, in {}", header.begun, config.store.engine));
    name_tokens(&*registry)?;
    if found.faults.is_empty() {
        return Ok(());
    }
    let faults = counted(found.faults.len(), "fault", "faults");
    let advice = if place.is_folder() {
        "see `resync-hub fsck`, then type `resync-hub fsck --repair`"
    } else {
        "what cannot be read was left out"
    };
    Err(Failure::new(format_args!(
        "restored with {faults} that the store had when it was backed up: {advice}"
    )))
}

pub(super) fn restored(command: &Restored) -> Result<(), Failure> {
    let config = command.hub.load()?;
    let keys = Keyring::of(&config.secrets).map_err(Failure::new)?;
    let place = Place::of(&config);
    if !place.restored(&keys).map_err(Failure::new)? {
        return Err(Failure::new(
            "hubs use the database: stop all of them, and type this again once the last has been gone for five seconds",
        ));
    }
    let registry = place.registry(&keys).map_err(Failure::new)?;
    let audit = Audit::open(registry).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, "restored", "").map_err(Failure::new)?;
    audit.end(begun, "logs leap");
    say(format_args!("{place}: no number of a notification is given out twice; start the hubs"));
    Ok(())
}

/// The maker of the backup may have added a token: the operator sees who may publish from now on.
fn name_tokens(registry: &dyn Registry) -> Result<(), Failure> {
    let tokens = Tokens::open(registry).map_err(Failure::new)?;
    for (name, info) in tokens.list() {
        complain(format_args!(
            "with it comes the publishers' token {name:?} for topics that begin with {}: `resync-hub token revoke` ends one that you \
             do not know",
            info.topic_prefixes.join(" or ")
        ));
    }
    Ok(())
}
