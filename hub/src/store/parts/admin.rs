//! The store as a whole.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::{
    BackupError, Copied, DatabaseState, Hubs, Keyring, Meters, Registry, Result, TopicId, Usage,
};

/// The state of the store, and what an operator does to it.
#[async_trait]
pub trait Admin: std::fmt::Debug + Send + Sync + 'static {
    /// Whether the store takes writes.
    ///
    /// # Errors
    /// [`StoreError::Write`](crate::store::StoreError::Write) when the last write failed and [`StoreError::Full`](crate::store::StoreError::Full) when the disk nearly is: nothing is
    /// acknowledged until that is over, which the store notices by itself. [`StoreError::Busy`](crate::store::StoreError::Busy) when a write takes too long.
    fn health(&self) -> Result<()>;

    /// How long the database of this store cannot be used; `None`: it can be, or this store has none.
    fn away_for(&self) -> Option<Duration>;

    /// The database of this store, as it is known without asking it; `None`: this store has none.
    fn database(&self) -> Option<DatabaseState>;

    /// The hubs that share this store; none where it is one hub's own.
    async fn hubs(&self) -> Result<Hubs>;

    /// Returns when the writer has come to what waits now, whether the disk takes it or not.
    ///
    /// # Errors
    /// [`StoreError::Closed`](crate::store::StoreError::Closed) when nothing will be written any more.
    async fn answers(&self) -> Result<()>;

    /// Waits until the writer has panicked: the store will accept nothing any more, whatever is done about the disk.
    async fn broken(&self);

    /// What the store holds. Asks nothing of the disk.
    fn usage(&self) -> Usage;

    /// What the store measures.
    fn meters(&self) -> Meters;

    /// The documents and the log of commands that all hubs of this store share. It does not keep the store open.
    fn registry(&self) -> Arc<dyn Registry>;

    /// Delivers nothing of this topic until it is resumed. Its log goes on, and so does retention. Returns whether the topic exists:
    /// one that was forgotten cannot be paused.
    async fn pause(&self, topic: TopicId) -> Result<bool>;

    /// Lets deliveries of this topic go on.
    async fn resume(&self, topic: TopicId) -> Result<()>;

    /// All topics that are paused.
    async fn paused(&self) -> Result<Vec<TopicId>>;

    /// From now on secrets are written with the first of these keys. All others are rewritten in bounded steps, between which everything
    /// else goes on; returns how many. After a crash the next call finishes this.
    ///
    /// # Errors
    /// [`StoreError::SecretsKey`](crate::store::StoreError::SecretsKey) when a key that is still needed is not among them, and
    /// [`StoreError::KeyElsewhere`](crate::store::StoreError::KeyElsewhere) when another hub that is up has not the first of them; then nothing has changed.
    async fn rotate_secrets(&self, keys: Keyring) -> Result<u64>;

    /// Writes a backup of everything as of one moment after this was called, while everything else goes on, and of the files
    /// `beside` the store that exist.
    async fn back_up(
        &self,
        beside: Vec<PathBuf>,
        out: Box<dyn Write + Send>,
    ) -> std::result::Result<Copied, BackupError>;
}
