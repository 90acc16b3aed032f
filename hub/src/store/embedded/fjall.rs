//! The default engine: fjall 3, a keyspace per space, one journal for all of them.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::engine::{Batch, Change, Engine, Keys, Scan, Space};
use crate::store::{Result, StoreError};

pub(super) struct Fjall {
    database: Database,
    /// In the order of [`Space::ALL`].
    keyspaces: Vec<Keyspace>,
}

impl Fjall {
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let database = Database::builder(directory).open().map_err(|error| match error {
            fjall::Error::Locked => StoreError::Locked { path: directory.display().to_string() },
            error => read_error(&error),
        })?;
        let keyspaces = Space::ALL
            .iter()
            .map(|space| {
                database.keyspace(space.name(), KeyspaceCreateOptions::default).map_err(|e| write_error(&e))
            })
            .collect::<Result<_>>()?;
        Ok(Self { database, keyspaces })
    }

    fn keyspace(&self, space: Space) -> &Keyspace {
        &self.keyspaces[usize::from(space.tag()) - 1]
    }
}

impl Engine for Fjall {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.keyspace(space).get(key).map_err(|e| read_error(&e))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, space: Space, keys: &Keys) -> Scan<'_> {
        let keyspace = self.keyspace(space);
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
        let mut changes = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), batch.len())
            .durability(Some(PersistMode::SyncAll));
        for (space, key, change) in batch.iter() {
            match change {
                Change::Put(value) => changes.insert(self.keyspace(space), key, value.as_slice()),
                Change::Remove => changes.remove(self.keyspace(space), key),
            }
        }
        // fjall makes a batch visible after it is synced, and refuses every later write once a sync has failed.
        changes.commit().map_err(|e| write_error(&e))
    }

    fn disk_size(&self) -> Result<u64> {
        self.database.disk_space().map_err(|e| read_error(&e))
    }
}

impl fmt::Debug for Fjall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fjall").finish_non_exhaustive()
    }
}

fn read_error(error: &fjall::Error) -> StoreError {
    StoreError::Read(error.to_string())
}

fn write_error(error: &fjall::Error) -> StoreError {
    StoreError::Write(match error {
        fjall::Error::Poisoned => "an earlier write failed: free disk space, then restart the hub".to_owned(),
        error => error.to_string(),
    })
}
