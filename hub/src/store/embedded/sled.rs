//! The second engine: sled 0.34. All spaces share one tree, because sled's batches are atomic within a tree only.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::engine::{Batch, Change, Engine, Keys, Scan, Space};
use crate::store::{Result, StoreError};

/// How long a predecessor in this process may take to let go of the file.
///
/// sled releases its lock on a thread of its own after the last handle was dropped.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Sled {
    tree: sled::Db,
    /// sled's own file: its flush asks the system to write, but does not wait for the disk.
    file: File,
    /// A flush failed: memory holds changes that the disk does not, so nothing may be read or written any more.
    broken: AtomicBool,
}

impl Sled {
    /// The caller holds the lock of the data directory, so whoever has sled's own lock is about to release it.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let config = sled::Config::new().path(directory).flush_every_ms(None);
        let give_up = Instant::now() + LOCK_PATIENCE;
        loop {
            match config.open() {
                Ok(tree) => {
                    let file =
                        File::open(directory.join("db")).map_err(|e| StoreError::Read(e.to_string()))?;
                    return Ok(Self { tree, file, broken: AtomicBool::new(false) });
                }
                Err(sled::Error::Io(error)) if is_locked(&error) && Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(sled::Error::Io(error)) if is_locked(&error) => {
                    return Err(StoreError::Locked { path: directory.display().to_string() });
                }
                Err(error) => return Err(read_error(&error)),
            }
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.broken.load(Ordering::Acquire) {
            return Err("an earlier write failed: free disk space, then restart the hub".to_owned());
        }
        Ok(())
    }
}

impl Engine for Sled {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.check().map_err(StoreError::Read)?;
        let value = self.tree.get(tagged(space, key)).map_err(|e| read_error(&e))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, space: Space, keys: &Keys) -> Scan<'_> {
        if let Err(reason) = self.check() {
            return Box::new(std::iter::once(Err(StoreError::Read(reason))));
        }
        let from = tagged(space, &keys.from);
        let to = keys.to.as_ref().map_or_else(|| vec![space.tag() + 1], |to| tagged(space, to));
        if to <= from {
            return Box::new(std::iter::empty());
        }
        Box::new(self.tree.range(from..to).map(|record| {
            let (key, value) = record.map_err(|e| read_error(&e))?;
            Ok((Bytes::copy_from_slice(&key[1..]), Bytes::copy_from_slice(&value)))
        }))
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        self.check().map_err(StoreError::Write)?;
        let mut changes = sled::Batch::default();
        for (space, key, change) in batch.iter() {
            match change {
                Change::Put(value) => changes.insert(tagged(space, key), value.as_slice()),
                Change::Remove => changes.remove(tagged(space, key)),
            }
        }
        // Readers may see the batch between the two steps: they trust the log's bounds in memory, not the engine.
        let flushed = self.tree.apply_batch(changes).and_then(|()| self.tree.flush());
        flushed.and_then(|_| Ok(self.file.sync_data()?)).map_err(|error| {
            self.broken.store(true, Ordering::Release);
            StoreError::Write(error.to_string())
        })
    }

    fn disk_size(&self) -> Result<u64> {
        self.tree.size_on_disk().map_err(|e| read_error(&e))
    }
}

impl fmt::Debug for Sled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sled").finish_non_exhaustive()
    }
}

fn tagged(space: Space, key: &[u8]) -> Vec<u8> {
    let mut tagged = Vec::with_capacity(key.len() + 1);
    tagged.push(space.tag());
    tagged.extend_from_slice(key);
    tagged
}

/// sled reports a lock as an error of its own making, which only its text tells from other failures.
fn is_locked(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
}

fn read_error(error: &sled::Error) -> StoreError {
    StoreError::Read(error.to_string())
}
