//! Storage: what the hub needs to remember, as a few traits by subject ([`Store`] is their sum). No engine's type leaves this folder.
//!
//! The traits speak of notifications, subscriptions, watermarks and laggards, so that an embedded key-value engine and a
//! replicated database can both stand behind it. Every method that changes something returns only when the change is
//! durable: what was acknowledged survives `kill -9` and, as far as the engine keeps its promise, a power cut.
//!
//! The unit of ownership is the *shard* (a hash of the callback's origin): whoever claims a shard gets an epoch, and a
//! checkpoint that carries an older epoch is refused, so a paused owner cannot write over its successor.

mod backup;
mod embedded;
mod error;
mod findings;
mod keyring;
mod meters;
mod parts;
mod records;
mod verified;

#[cfg(test)]
mod conformance;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use backup::{BESIDE, BackupError, Copied, Credentials, Header};
#[cfg(test)]
pub(crate) use conformance::{posted, subscribe};
#[cfg(test)]
pub(crate) use embedded::{damage_log, damage_subscription, damage_subscription_index};
pub use error::StoreError;
pub use findings::{Fault, Findings, Mended, Repaired};
pub use keyring::{KeyId, Keyring, KeyringError};
pub use meters::Meters;
pub use parts::{Admin, Fetches, Log, Progress, Requests, Subscriptions};
pub use records::{
    Account, Accounted, Activation, Ahead, Appended, Chain, ChainBreak, Checkpoint, ClockJump, Denial,
    DenialId, Ended, Epoch, FailureClass, Founded, Gap, Intent, Interval, Keep, Laggard, Missed, NewDenial,
    NewNotification, NewRequest, Notification, NotificationLinks, Offset, Pair, Payer, PendingRequest, Ping,
    PingId, Recipient, Refusal, Replayed, RequestId, Rule, Shard, ShardState, Shares, Skip, Slot, Standing,
    StoreEvent, Subscription, SubscriptionId, Sweep, Topic, TopicId, Trimmed, Uptime, Usage, Validators,
    Watermark,
};
pub use verified::{Confirmation, NotConfirmed, VerifiedSubscription, VerifiedUnsubscription};

pub use crate::config::Engine;

/// The file in the data folder that says what made the store; it belongs to the hub's user, as the folder itself need not.
pub const MARK: &str = "engine";

/// The result of every storage operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Opens (or creates) the embedded store in `directory`. Subscribers' secrets are written with the first of `keys`, and read
/// with all of them; those that are kept otherwise stay so until [`Admin::rotate_secrets`]. While the disk has fewer than
/// `reserve` bytes free, nothing new is taken in.
///
/// # Errors
/// [`StoreError::Locked`] when another process has it open, [`StoreError::Format`] when a newer version wrote it,
/// [`StoreError::OtherEngine`] when it was made by the other engine, [`StoreError::SecretsKey`] when a key that its secrets need
/// is not given.
pub fn open(engine: Engine, directory: &Path, keys: Keyring, reserve: u64) -> Result<Arc<dyn Store>> {
    embedded::open(engine, directory, keys, reserve)
}

/// Looks at every record of the store in `directory`, which no hub may be using. No record is changed; opening an engine finishes
/// what a crash has left of its files.
///
/// # Errors
/// As [`open`], and [`StoreError::Read`] where there is no store.
pub fn check(engine: Engine, directory: &Path, keys: &Keyring) -> Result<Findings> {
    embedded::check(engine, directory, keys)
}

/// Mends the store in `directory`, which no hub may be using: records that cannot be read are removed, what follows from others is made
/// anew, and what is lost by that is said. A store that is whole is not changed.
///
/// # Errors
/// As [`check`]; what the engine itself cannot read is not mended.
pub fn repair(engine: Engine, directory: &Path, keys: &Keyring) -> Result<Repaired> {
    embedded::repair(engine, directory, keys)
}

/// Writes a backup of the store in `directory`, which no hub may be using, and of the files `beside` it that exist. It needs no
/// keys: secrets stay as they are kept.
///
/// # Errors
/// [`BackupError`]; [`StoreError::Locked`] where a hub is using it, which can be asked itself ([`Admin::back_up`]).
pub fn back_up(
    engine: Engine,
    directory: &Path,
    beside: &[PathBuf],
    out: &mut dyn Write,
) -> std::result::Result<Copied, BackupError> {
    embedded::back_up(engine, directory, beside, out)
}

/// Reads a whole backup and restores nothing.
///
/// # Errors
/// [`BackupError`] when it could not be restored.
pub fn verify(backup: impl Read) -> std::result::Result<(Header, Copied), BackupError> {
    embedded::verify(backup)
}

/// Makes the store in `directory` anew from a backup, whatever engine that comes from. The whole backup is read before anything is
/// written, and again while it is written. A restore that was not finished leaves a folder that no hub opens. Beside the store it makes
/// files of [`BESIDE`] only.
///
/// # Errors
/// [`BackupError`]; [`BackupError::NotEmpty`] where there is something already, [`StoreError::SecretsKey`] where a key that the
/// secrets need is not given.
pub fn restore(
    engine: Engine,
    directory: &Path,
    keys: &Keyring,
    credentials: Credentials,
    backup: &Path,
) -> std::result::Result<(Header, Findings), BackupError> {
    embedded::restore(engine, directory, (keys, credentials), backup)
}

/// The same from what can be read once only. A part of a backup leaves nothing.
///
/// # Errors
/// As [`restore`].
pub fn restore_stream(
    engine: Engine,
    directory: &Path,
    keys: &Keyring,
    credentials: Credentials,
    backup: impl Read,
) -> std::result::Result<(Header, Findings), BackupError> {
    embedded::restore_stream(engine, directory, (keys, credentials), backup)
}

/// Everything that the hub needs of its storage.
pub trait Store: Log + Fetches + Requests + Subscriptions + Progress + Admin {}

impl<S: Log + Fetches + Requests + Subscriptions + Progress + Admin> Store for S {}
