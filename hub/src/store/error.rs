//! What can go wrong with storage, by what one can do about it.

use resync_common::words::Size;

use super::keyring::KeyId;

/// Why an operation on the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open.
    #[error("the store in {path} is in use by another process: stop it, or choose another --data-dir")]
    Locked {
        /// Where the store is.
        path: String,
    },
    /// Another version of the hub wrote the store, usually a newer one.
    #[error(
        "the store in {path} has format {found}, and this hub reads format {supported}: start the version of resync-hub that wrote it, \
         or choose another --data-dir"
    )]
    Format {
        /// Where the store is.
        path: String,
        /// What was found.
        found: u16,
        /// What this version can read.
        supported: u16,
    },
    /// The store was made by the other embedded engine.
    #[error(
        "the store in {path} was made by engine {found}: set [store] engine = \"{found}\", or choose another --data-dir"
    )]
    OtherEngine {
        /// Where the store is.
        path: String,
        /// What made it.
        found: String,
    },
    /// A backup was being restored into it.
    #[error("a restore into {path} was not finished: restore into it again, or choose another --data-dir")]
    Unfinished {
        /// Where the store is.
        path: String,
    },
    /// A record does not match its checksum or its format.
    #[error(
        "a record of {space} is damaged ({reason}): stop the hub, and restore a backup or type `resync-hub fsck --repair`"
    )]
    Damaged {
        /// Which kind of record.
        space: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Secrets are encrypted with keys that were not given.
    #[error(
        "the secrets of the subscribers are encrypted with key {}, which is not given: name its file in [secrets] key_file, or set RESYNC_HUB_SECRETS_KEY (a key that was replaced stays listed behind the new one until `resync-hub secrets rotate` has finished)",
        .missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and key ")
    )]
    SecretsKey {
        /// Their names.
        missing: Vec<KeyId>,
    },
    /// Another hub of this store could not read secrets that were written with this hub's key.
    #[error(
        "the hub on {hub} is up, or was until seconds ago, and has no key {key}, so it could not read the secrets that this one writes: give every hub this key behind the one with which it writes, and run `resync-hub secrets rotate` there, before any puts it first; or stop the others"
    )]
    KeyElsewhere {
        /// What people call its computer.
        hub: String,
        /// The name of the key.
        key: KeyId,
    },
    /// Somebody else owns the shard by now.
    #[error("the shard has a newer owner")]
    Fenced,
    /// Another hub owns the shard, and is up: it has to release the shard first.
    #[error("another hub owns the shard")]
    Owned,
    /// The disk did not take the write; nothing of it is acknowledged.
    #[error("the store could not write: {0}")]
    Write(String),
    /// The database cannot be reached, or is none that a hub can use; nothing was tried.
    #[error("the database cannot be used: {0}")]
    Away(String),
    /// The connection to the database was lost while it had a command: whether that was carried out is not known.
    #[error("whether the database has carried it out is not known: {0}")]
    Unknown(String),
    /// The database would acknowledge what it can lose; nothing was tried.
    #[error("the database does not keep what it acknowledges: {0}")]
    NotDurable(String),
    /// The database was restored to an earlier point than this hub has seen; nothing was tried.
    #[error(
        "the database is at an earlier point than this hub has seen, so it would give numbers of notifications out twice: stop all hubs, and type `resync-hub restored`"
    )]
    EarlierPoint,
    /// The disk is nearly full: what would make the store grow is refused while there is still room for what delivery must
    /// remember.
    #[error(
        "the disk is nearly full: {} are free, and [store] reserve keeps {}: free some space, and the hub resumes by itself",
        Size(*free),
        Size(*reserve)
    )]
    Full {
        /// Bytes that are free.
        free: u64,
        /// Bytes that have to be.
        reserve: u64,
    },
    /// More waits to be written than the disk takes in time; nothing was tried.
    #[error("more waits to be written than the disk takes: try again later")]
    Busy,
    /// The disk did not give the data.
    #[error("the store could not read: {0}")]
    Read(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}
