//! The second engine: sled 0.34. All spaces share one tree, because sled's batches are atomic within a tree only.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use resync_common::locks;

use super::engine::{Batch, Change, Engine, Keys, Scan, Space};
use crate::store::{Result, StoreError};

/// How long a predecessor in this process may take to let go of the file.
///
/// sled releases its lock on a thread of its own after the last handle was dropped.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Sled {
    directory: PathBuf,
    /// `None` after a flush failed: memory held changes that the disk does not, so nothing may be read any more until the
    /// tree is opened anew.
    opened: RwLock<Option<Arc<Opened>>>,
}

struct Opened {
    /// Until it is dropped.
    tree: Option<sled::Db>,
    /// sled's own file: its flush asks the system to write, but does not wait for the disk.
    file: File,
}

impl Opened {
    fn tree(&self) -> &sled::Db {
        self.tree.as_ref().expect("it is there until it is dropped")
    }

    /// The caller holds the lock of the data directory, so whoever has sled's own lock is about to release it.
    fn open(directory: &Path) -> Result<Self> {
        let config = sled::Config::new().path(directory).flush_every_ms(None);
        let give_up = Instant::now() + LOCK_PATIENCE;
        loop {
            match config.open() {
                Ok(tree) => {
                    let file =
                        File::open(directory.join("db")).map_err(|e| StoreError::Read(e.to_string()))?;
                    return Ok(Self { tree: Some(tree), file });
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
}

impl Sled {
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let opened = Arc::new(Opened::open(directory)?);
        Ok(Self { directory: directory.to_owned(), opened: RwLock::new(Some(opened)) })
    }

    fn opened(&self) -> std::result::Result<Arc<Opened>, String> {
        let opened = locks::read(&self.opened);
        opened.clone().ok_or_else(|| "an earlier write failed".to_owned())
    }

    fn close(&self) {
        let opened = locks::write(&self.opened).take();
        drop(opened);
    }
}

fn write(opened: &Opened, batch: &Batch) -> Result<()> {
    let mut changes = sled::Batch::default();
    for (space, key, change) in batch.iter() {
        match change {
            Change::Put(value) => changes.insert(tagged(space, key), value.as_slice()),
            Change::Remove => changes.remove(tagged(space, key)),
        }
    }
    // Readers may see the batch between the two steps: they trust the log's bounds in memory, not the engine.
    let flushed = opened.tree().apply_batch(changes).and_then(|()| opened.tree().flush());
    flushed.and_then(|_| Ok(opened.file.sync_data()?)).map_err(|error| StoreError::Write(error.to_string()))
}

impl Drop for Opened {
    /// The last handle syncs the file, and panics when the disk refuses that.
    fn drop(&mut self) {
        let tree = self.tree.take();
        if catch_unwind(AssertUnwindSafe(|| drop(tree))).is_err() {
            tracing::warn!("sled could not sync its file while it was closed");
        }
    }
}

/// sled asserts where a disk has failed before. What it had in memory then is of no use any more, whatever state it is in.
fn unless_it_panics<T>(failed: fn(String) -> StoreError, act: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| Err(failed("the engine has panicked".to_owned())))
}

/// What an iterator gives up to its first error, be that a panic.
struct UntilItFails<I> {
    records: I,
    is_over: bool,
}

impl<T, I: Iterator<Item = Result<T>>> UntilItFails<I> {
    fn step(&mut self, step: impl FnOnce(&mut I) -> Option<Result<T>>) -> Option<Result<T>> {
        if self.is_over {
            return None;
        }
        let next = unless_it_panics(StoreError::Read, || step(&mut self.records).transpose());
        self.is_over = next.is_err();
        next.transpose()
    }
}

impl<T, I: Iterator<Item = Result<T>>> Iterator for UntilItFails<I> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(I::next)
    }
}

impl<T, I: DoubleEndedIterator<Item = Result<T>>> DoubleEndedIterator for UntilItFails<I> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(I::next_back)
    }
}

impl Engine for Sled {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let opened = self.opened().map_err(StoreError::Read)?;
        unless_it_panics(StoreError::Read, || {
            let value = opened.tree().get(tagged(space, key)).map_err(|e| read_error(&e))?;
            Ok(value.map(|value| Bytes::copy_from_slice(&value)))
        })
    }

    fn scan(&self, space: Space, keys: &Keys) -> Scan<'_> {
        let opened = match self.opened() {
            Ok(opened) => opened,
            Err(reason) => return Box::new(std::iter::once(Err(StoreError::Read(reason)))),
        };
        let from = tagged(space, &keys.from);
        let to = keys.to.as_ref().map_or_else(|| vec![space.tag() + 1], |to| tagged(space, to));
        if to <= from {
            return Box::new(std::iter::empty());
        }
        let range = match unless_it_panics(StoreError::Read, || Ok(opened.tree().range(from..to))) {
            Ok(range) => range,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let records = range.map(move |record| {
            // As long as anybody reads, the last handle of the tree is the one that can be dropped whatever the disk does.
            let _ = &opened;
            let (key, value) = record.map_err(|e| read_error(&e))?;
            Ok((Bytes::copy_from_slice(&key[1..]), Bytes::copy_from_slice(&value)))
        });
        Box::new(UntilItFails { records, is_over: false })
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        let opened = self.opened().map_err(StoreError::Write)?;
        let outcome = unless_it_panics(StoreError::Write, || write(&opened, batch));
        drop(opened);
        if outcome.is_err() {
            self.close();
        }
        outcome
    }

    fn recover(&self) -> Result<()> {
        self.close();
        let opened = unless_it_panics(StoreError::Write, || Opened::open(&self.directory))?;
        *locks::write(&self.opened) = Some(Arc::new(opened));
        Ok(())
    }

    fn disk_size(&self) -> Result<u64> {
        let opened = self.opened().map_err(StoreError::Read)?;
        unless_it_panics(StoreError::Read, || opened.tree().size_on_disk().map_err(|e| read_error(&e)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_panics_while_it_reads_gives_an_error_and_takes_no_thread_along() {
        let records = (0..9).map(|number| if number < 2 { Ok(number) } else { panic!("a disk has failed") });
        let read: Vec<Result<i32>> = UntilItFails { records, is_over: false }.collect();
        assert!(matches!(read[..], [Ok(0), Ok(1), Err(StoreError::Read(_))]), "{read:?}");
        let one: Result<()> = unless_it_panics(StoreError::Read, || panic!("a disk has failed"));
        assert!(matches!(one, Err(StoreError::Read(_))), "{one:?}");
    }
}
