//! The default engine: fjall 3, a keyspace per space, one journal for all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::{Database, DatabaseBuilder, Keyspace, KeyspaceCreateOptions, PersistMode};
use resync_common::locks;

use super::engine::{Batch, Change, Engine, Keys, Scan, Space};
use super::journals;
use crate::store::{Result, StoreError};

// A keyspace keeps the four bounds below as it was made with them: one of an earlier version has its own until it is restored from a backup.

/// Bytes of a keyspace that are held in memory until they are written as a table. An entry takes about three times its own
/// size there, so what fjall takes by itself (64 MiB for each keyspace) would be most of a hub's memory.
const CONTENT_MEMTABLE: u64 = 8 * 1024 * 1024;
/// The same for small records. Some are written over and over, all the old ones stay until then, and each keyspace fills at a pace of its
/// own: with as much as content has, a hub would grow for an hour until the slowest is full for the first time.
const RECORD_MEMTABLE: u64 = 1024 * 1024;
/// Bytes of a table on the disk. Four of them are the first level, with all of which what was in memory is merged: fjall's own 64 MiB would
/// have four small tables rewrite up to 256 MiB. A compaction holds the keys' filter of the table that it writes in memory.
const CONTENT_TABLE: u64 = 16 * 1024 * 1024;
const RECORD_TABLE: u64 = 4 * 1024 * 1024;
/// Bytes of tables that are kept as they were read. What delivery needs again and again has caches of its own.
const BLOCK_CACHE: u64 = 16 * 1024 * 1024;
/// Bytes of full journals at which the oldest is flushed out; the least that fjall takes. A full one counts as much, or a little less
/// after a restart, so that there are one or two of them beside the one that is written. A start has to read them.
const JOURNALS: u64 = 64 * 1024 * 1024;

/// Threads that write and merge tables. With more than one, the first leaves merging to the others and keeps a core busy with handing
/// it on for as long as it takes: deliveries would wait for both.
const WORKERS: usize = 1;

pub(super) struct Fjall {
    directory: PathBuf,
    /// `None` while it is being opened anew.
    opened: RwLock<Option<Arc<Opened>>>,
    /// Since it was opened last: then it is not closed in good order.
    has_failed: AtomicBool,
}

struct Opened {
    database: Database,
    /// In the order of [`Space::ALL`].
    keyspaces: Vec<Keyspace>,
}

impl Opened {
    fn open(directory: &Path) -> Result<Self> {
        journals::undo_unfinished(directory).map_err(|error| StoreError::Read(error.to_string()))?;
        let unwritten = |error: io::Error| StoreError::Write(error.to_string());
        journals::rewrite_unclosed(directory).map_err(unwritten)?;
        journals::mark_open(directory).map_err(unwritten)?;
        let database = match builder(directory).open() {
            Err(fjall::Error::JournalRecovery(_)) => open_without_last(directory)?,
            opened => opened.map_err(|error| open_error(directory, &error))?,
        };
        let keyspaces = Space::ALL
            .iter()
            .map(|space| database.keyspace(space.name(), || options(*space)).map_err(|e| write_error(&e)))
            .collect::<Result<_>>()?;
        Ok(Self { database, keyspaces })
    }

    fn keyspace(&self, space: Space) -> &Keyspace {
        &self.keyspaces[usize::from(space.tag()) - 1]
    }
}

impl Fjall {
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let opened = Arc::new(Opened::open(directory)?);
        let (directory, opened) = (directory.to_owned(), RwLock::new(Some(opened)));
        Ok(Self { directory, opened, has_failed: AtomicBool::new(false) })
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let opened = locks::read(&self.opened);
        opened.clone().ok_or_else(|| StoreError::Read("it is being opened anew after a failed write".into()))
    }
}

impl Drop for Fjall {
    fn drop(&mut self) {
        // Its own files come first.
        let was_open = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner).take().is_some();
        if was_open
            && !self.has_failed.load(Ordering::Relaxed)
            && let Err(error) = journals::mark_closed(&self.directory)
        {
            tracing::debug!(%error, "the next start writes the journals anew");
        }
    }
}

impl Engine for Fjall {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.opened()?.keyspace(space).get(key).map_err(|e| read_error(&e))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, space: Space, keys: &Keys) -> Scan<'_> {
        let opened = match self.opened() {
            Ok(opened) => opened,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let keyspace = opened.keyspace(space);
        let records = match &keys.to {
            Some(to) if *to <= keys.from => return Box::new(std::iter::empty()),
            Some(to) => keyspace.range(keys.from.as_slice()..to.as_slice()),
            None => keyspace.range(keys.from.as_slice()..),
        };
        Box::new(records.map(|record| {
            let (key, value) = record.into_inner().map_err(|e| read_error(&e))?;
            Ok((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)))
        }))
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        let opened = self.opened().map_err(|error| StoreError::Write(error.to_string()))?;
        let mut changes = fjall::OwnedWriteBatch::with_capacity(opened.database.clone(), batch.len())
            .durability(Some(PersistMode::SyncAll));
        for (space, key, change) in batch.iter() {
            match change {
                Change::Put(value) => changes.insert(opened.keyspace(space), key, value.as_slice()),
                Change::Remove => changes.remove(opened.keyspace(space), key),
            }
        }
        // fjall makes a batch visible after it is synced, and refuses every later write once a write or a sync has failed.
        changes.commit().map_err(|error| {
            self.has_failed.store(true, Ordering::Relaxed);
            write_error(&error)
        })
    }

    fn recover(&self) -> Result<()> {
        let mut opened = locks::write(&self.opened);
        // The old one has to let go of its files first. A reader that still holds it makes the new one fail for now.
        *opened = None;
        *opened = Some(Arc::new(Opened::open(&self.directory)?));
        self.has_failed.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn disk_size(&self) -> Result<u64> {
        self.opened()?.database.disk_space().map_err(|e| read_error(&e))
    }
}

fn options(space: Space) -> KeyspaceCreateOptions {
    let (held_in_memory, table) = match space {
        Space::Log | Space::Bodies => (CONTENT_MEMTABLE, CONTENT_TABLE),
        _ => (RECORD_MEMTABLE, RECORD_TABLE),
    };
    let levels = Leveled::default().with_table_target_size(table);
    KeyspaceCreateOptions::default().max_memtable_size(held_in_memory).compaction_strategy(Arc::new(levels))
}

fn builder(directory: &Path) -> DatabaseBuilder<Database> {
    Database::builder(directory).max_journaling_size(JOURNALS).cache_size(BLOCK_CACHE).worker_threads(WORKERS)
}

/// Opens a journal whose last batch is torn; if another one is damaged, nothing is changed.
fn open_without_last(directory: &Path) -> Result<Database> {
    let failed = |error: io::Error| StoreError::Read(error.to_string());
    let invalidated = journals::invalidate_last(directory).map_err(failed)?;
    match builder(directory).open() {
        Ok(database) => {
            if let Some(invalidated) = invalidated {
                invalidated.keep().map_err(failed)?;
            }
            tracing::warn!(
                "the last write before a crash is incomplete and dropped; it was never acknowledged"
            );
            Ok(database)
        }
        Err(error) => {
            if let Some(invalidated) = invalidated {
                invalidated.undo().map_err(failed)?;
            }
            Err(open_error(directory, &error))
        }
    }
}

fn open_error(directory: &Path, error: &fjall::Error) -> StoreError {
    match error {
        fjall::Error::Locked => StoreError::Locked { path: directory.display().to_string() },
        error => read_error(error),
    }
}

fn read_error(error: &fjall::Error) -> StoreError {
    StoreError::Read(error.to_string())
}

fn write_error(error: &fjall::Error) -> StoreError {
    StoreError::Write(match error {
        fjall::Error::Poisoned => "an earlier write failed".to_owned(),
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_that_was_committed_waits_in_memory_and_is_no_table_yet() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Fjall::open(directory.path()).unwrap();
        for number in 0..100 {
            let mut batch = Batch::default();
            for space in Space::ALL {
                batch.put(space, vec![number], vec![0; 100]);
            }
            engine.commit(&batch).unwrap();
        }
        let opened = engine.opened().unwrap();
        for space in Space::ALL {
            let keyspace = opened.keyspace(space);
            assert_eq!((keyspace.sealed_memtable_count(), keyspace.table_count()), (0, 0), "{space:?}");
        }
    }
}
