//! The embedded store: one writer thread over an ordered key-value engine.
//!
//! | file | subject |
//! |---|---|
//! | `engine`, `fjall`, `sled` | what an engine must do, and the two that do it |
//! | `directory`, `journals` | lock and format of the data directory; what crashes leave of fjall's journals |
//! | `parts` | what each trait of `store/parts` asks for |
//! | `memory`, `accounts`, `shared` | what is held in memory |
//! | `summaries` | what an opening reads of every subscription |
//! | `log_reader`, `missed`, `standing` | reading logs; what a subscription has missed; how far a topic is |
//! | `orders` | orders to the owners of shards, in memory |
//! | `transaction`, `writer` | commands, and the thread that commits them in groups |
//! | `closed` | records of a store that no hub is using |
//! | `check`, `repair` | whether every record can be read, and agrees with the others; repairing that |
//! | `capture`, `copy`, `restore` | backups: of a store that changes meanwhile, of one that is closed, and back |
//! | `reserve` | how much the disk can still take |

mod accounts;
mod capture;
mod check;
mod closed;
mod copy;
pub(super) mod directory;
mod engine;
mod fjall;
mod journals;
mod log_reader;
mod memory;
mod missed;
mod orders;
mod parts;
mod repair;
mod reserve;
mod restore;
mod search;
mod shared;
#[cfg(feature = "sled")]
mod sled;
mod standing;
mod summaries;
mod transaction;
mod writer;

#[cfg(test)]
mod fairness;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use resync_core::lock::FileLock;
use tokio::sync::Semaphore;

#[cfg(feature = "postgres")]
pub(in crate::store) use self::check::Fault;
pub use self::check::check;
pub use self::copy::back_up;
use self::engine::{Batch, Engine, Space};
#[cfg(feature = "postgres")]
pub(in crate::store) use self::engine::{Engine as Records, Keys};
use self::memory::Ledger;
use self::orders::Orders;
pub use self::repair::repair;
use self::reserve::DiskReserve;
#[cfg(feature = "postgres")]
pub(in crate::store) use self::restore::{Made, make, make_of_stream};
pub use self::restore::{restore, restore_stream, verify};
use self::shared::Shared;
#[cfg(test)]
pub(crate) use self::testing::{
    InMemory, damage_log, damage_subscription, damage_subscription_index, in_memory,
};
use self::transaction::{Slice, Transaction};
use self::writer::{Kind, Writer};
use super::encoding::layout::{Encryption, Foundation};
use super::encoding::{codec, key};
use super::{Files, Keyring, Offset, Result, Store, StoreError, TopicId, Trimmed, WallClock};

/// Shards of a new store. Enough to divide the work among the cores of a large machine, few enough to scan them all.
const SHARDS: u16 = 16;
/// Records that retention or a replay removes in one command, so that publishers wait for milliseconds at most. In tests so few that
/// whatever is removed takes several.
const SLICE: usize = if cfg!(test) { 3 } else { 1024 };
/// Topics that are forgotten in one command, each with records in every shard.
const IDLE: usize = 32;
/// Records that are looked at in one command when secrets are rewritten.
const RESEALED: usize = 1024;
/// Bytes of what anybody's pings have fetched that wait for the writer at once, and so come into one commit. What is larger waits alone: a
/// post waits for the one that is being written and the one behind it, not for as many as there are.
const STRANGE_BYTES: u32 = 256 * 1024;
/// The folder of a store that is in no folder: it has no files beside it.
const NOWHERE: &str = "/dev/null";
/// About how many bytes a small command writes, beside URLs that strangers chose.
const SMALL: usize = 512;

/// Opens (or creates) the store in `directory`. Subscribers' secrets are written with the first of `keys`, and read with all of them;
/// those that are stored otherwise stay so until [`Admin::rotate_secrets`](super::Admin::rotate_secrets). While the disk has fewer than
/// `reserve` bytes free, nothing new is taken in.
///
/// # Errors
/// [`StoreError::Locked`] when another process has it open, [`StoreError::Format`] when another version of the hub wrote it,
/// [`StoreError::OtherEngine`] when it was made by the other engine, [`StoreError::SecretsKey`] when a key that its secrets need
/// is not given.
pub fn open(engine: super::Engine, directory: &Path, keys: Keyring, reserve: u64) -> Result<Arc<dyn Store>> {
    let lock = directory::take(engine, directory)?;
    let opened = open_engine(engine, directory)?;
    directory::settle(engine, directory)?;
    let store = Embedded::over(opened, keys, Some(lock), DiskReserve::on_disk(directory, reserve))?;
    let store = Embedded { files: Arc::new(Files::in_folder(directory)), ..store };
    tracing::info!(
        engine = engine.name(),
        directory = %directory.display(),
        topics = store.shared.topics().len(),
        bytes = store.shared.engine.disk_size()?,
        "store opened"
    );
    Ok(Arc::new(store))
}

/// Opens what is in `directory`, which no hub may be using, until the lock is dropped. What is no store is not made one.
fn open_stopped(engine: super::Engine, directory: &Path) -> Result<(FileLock, Box<dyn Engine>)> {
    if !directory.join(engine.name()).is_dir() {
        let (name, directory) = (engine.name(), directory.display());
        return Err(StoreError::Read(format!("there is no store of engine {name} in {directory}")));
    }
    let lock = directory::take(engine, directory)?;
    Ok((lock, open_engine(engine, directory)?))
}

fn open_engine(engine: super::Engine, directory: &Path) -> Result<Box<dyn Engine>> {
    let data = directory.join(engine.name());
    Ok(match engine {
        super::Engine::Fjall => Box::new(fjall::Fjall::open(&data)?),
        #[cfg(feature = "sled")]
        super::Engine::Sled => Box::new(sled::Sled::open(&data)?),
        #[cfg(feature = "postgres")]
        super::Engine::Postgres => return Err(StoreError::Read("a database is in no folder".to_owned())),
    })
}

#[derive(Debug)]
struct Embedded {
    /// First, so that it ends before the engine closes.
    writer: Writer,
    shared: Arc<Shared>,
    shards: u16,
    clock: WallClock,
    /// Held while keys change: one change at a time.
    changing_keys: tokio::sync::Mutex<()>,
    /// Bytes of what anybody's pings have fetched that may wait for the writer.
    strange_bytes: Semaphore,
    orders: Orders,
    /// What lies beside it.
    files: Arc<Files>,
    #[cfg(test)]
    other_hub: testing::OtherHub,
}

impl Embedded {
    fn over(
        engine: Box<dyn Engine>,
        keys: Keyring,
        lock: Option<FileLock>,
        reserve: DiskReserve,
    ) -> Result<Self> {
        let Foundation { shards } = match memory::foundation(engine.as_ref())? {
            Some(foundation) => foundation,
            None => found(engine.as_ref(), &keys)?,
        };
        prepare_encryption(engine.as_ref(), &keys)?;
        let ledger = Ledger::load(engine.as_ref(), &keys, shards)?;
        let shared = Arc::new(Shared::new(engine, keys, shards, lock)?);
        let writer = Writer::start(shared.clone(), ledger, shards, reserve)?;
        Ok(Self {
            writer,
            shared,
            shards,
            clock: WallClock::default(),
            changing_keys: tokio::sync::Mutex::default(),
            strange_bytes: Semaphore::new(STRANGE_BYTES as usize),
            orders: Orders::default(),
            files: Arc::new(Files::in_folder(Path::new(NOWHERE))),
            #[cfg(test)]
            other_hub: testing::OtherHub::default(),
        })
    }

    /// Runs a small command on what is in the store already.
    async fn change<T, F>(&self, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> T + Send + 'static,
    {
        self.try_change(move |transaction| Ok(command(transaction))).await
    }

    /// Runs a small command that may fail.
    async fn try_change<T, F>(&self, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        self.writer.run(Kind::Essential, SMALL, command).await
    }

    /// Repeats a command from where it says to go on, until there is no such place.
    async fn in_slices<F>(&self, command: F) -> Result<()>
    where
        F: Fn(&mut Transaction<'_>, Vec<u8>) -> Result<Option<Vec<u8>>> + Copy + Send + 'static,
    {
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            next = self.try_change(move |t| command(t, from)).await?;
        }
        Ok(())
    }

    /// Removes notifications from logs until there are no more to remove, and what was skipped of them. Each slice goes on with the aim
    /// of the one before.
    async fn remove_slices<F>(&self, remove: F) -> Result<Trimmed>
    where
        F: Fn(&mut Transaction<'_>, Option<u64>) -> Result<Slice> + Copy + Send + 'static,
    {
        let (mut trimmed, mut aim) = (Trimmed::default(), None);
        loop {
            let slice = self.try_change(move |t| remove(t, aim)).await?;
            aim = slice.aim;
            trimmed.notifications += slice.trimmed.notifications;
            trimmed.bytes += slice.trimmed.bytes;
            trimmed.early += slice.trimmed.early;
            self.forget_skips(slice.topics).await?;
            if !slice.more {
                return Ok(trimmed);
            }
        }
    }

    /// Forgets what was skipped of notifications that these logs no longer hold. It is looked for in every shard of each topic, which
    /// is too much for the writer; that removes what was found, of all topics together.
    async fn forget_skips(&self, firsts: BTreeMap<TopicId, Offset>) -> Result<()> {
        let (firsts, shards, mut next) = (Arc::new(firsts), self.shards, Some(Vec::new()));
        while let Some(from) = next {
            let firsts = Arc::clone(&firsts);
            let skips = self.read(move |shared| shared.skips_before(&firsts, shards, &from, SLICE)).await?;
            next = skips.last().filter(|_| skips.len() == SLICE).cloned();
            if !skips.is_empty() {
                self.change(move |t| t.forget_skips(skips)).await?;
            }
        }
        Ok(())
    }

    /// Reads that may take long run where they hold up nobody.
    async fn read<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> Result<T> + Send + 'static,
    {
        let shared = self.shared.clone();
        let task = tokio::task::spawn_blocking(move || read(&shared));
        task.await.map_err(|error| StoreError::Read(error.to_string()))?
    }
}

fn found(engine: &dyn Engine, keys: &Keyring) -> Result<Foundation> {
    let foundation = Foundation { shards: SHARDS };
    let encryption = Encryption::wholly(keys);
    let mut batch = Batch::default();
    batch.put(Space::Meta, key::FOUNDATION.to_vec(), codec::seal(keys, key::FOUNDATION, &foundation));
    batch.put(Space::Meta, key::ENCRYPTION.to_vec(), codec::seal(keys, key::ENCRYPTION, &encryption));
    engine.commit(&batch)?;
    Ok(foundation)
}

/// Makes sure that every secret can be read with these keys, and notes the one that will be written with.
fn prepare_encryption(engine: &dyn Engine, keys: &Keyring) -> Result<()> {
    let encryption = memory::encryption(engine)?;
    let widened = widen(&encryption, keys)?;
    if widened != encryption {
        let mut batch = Batch::default();
        batch.put(Space::Meta, key::ENCRYPTION.to_vec(), codec::seal(keys, key::ENCRYPTION, &widened));
        engine.commit(&batch)?;
    }
    Ok(())
}

/// A store that was encrypted once is not opened for writing secrets as they are.
fn widen(encryption: &Encryption, keys: &Keyring) -> Result<Encryption> {
    encryption.require(keys)?;
    Ok(encryption.widened(keys))
}
