//! Mending a store: records that cannot be read go, what follows from others is made anew, and what is lost by that is said.
//!
//! The steps build on each other: what a step makes is right for those after it. Everything is written in small commits, and what
//! a crash interrupts is found by the next repair: a damaged record from whose place something follows stays until it is written over.

mod delivery;
mod logs;
mod records;
mod subscriptions;

#[cfg(test)]
mod tests;

use std::path::Path;

use bytes::Bytes;

use super::codec::{self, Record};
use super::engine::{Batch, Engine, Keys, Space};
use super::layout::Foundation;
use super::{SHARDS, check, directory, key, memory, weights, widen};
use crate::store::{self, Keyring, Mended, Repaired, Result, Shard, StoreError};

/// Changes that are committed at once.
const AT_ONCE: usize = 1024;

/// Mends the store in `directory`, which no hub may be using.
pub(in crate::store) fn repair(engine: store::Engine, directory: &Path, keys: &Keyring) -> Result<Repaired> {
    let (_lock, opened) = super::open_stopped(engine, directory)?;
    let found = check::look(opened.as_ref(), keys)?;
    if found.faults.is_empty() {
        return Ok(Repaired { mended: Vec::new(), left: found });
    }
    // What is made anew is of this version, which hubs of before cannot read.
    directory::migrate(engine, directory)?;
    mend(opened.as_ref(), keys, AT_ONCE)
}

fn mend(engine: &dyn Engine, keys: &Keyring, at_once: usize) -> Result<Repaired> {
    // Without the right keys every secret would look damaged.
    widen(&memory::encryption(engine)?, keys)?;
    let mut mender =
        Mender { engine, keys, batch: Batch::default(), at_once, mended: Vec::new(), unreadable_entries: 0 };
    mender.foundation()?;
    mender.unreadable()?;
    mender.topics()?;
    weights::weigh(engine, keys)?;
    mender.logs()?;
    mender.subscriptions()?;
    mender.delivery()?;
    mender.numbers()?;
    mender.floor()?;
    let mended = mender.mended;
    Ok(Repaired { mended, left: check::look(engine, keys)? })
}

/// A repair under way.
struct Mender<'a> {
    engine: &'a dyn Engine,
    keys: &'a Keyring,
    batch: Batch,
    /// Changes that are committed at once.
    at_once: usize,
    mended: Vec<Mended>,
    /// Entries of the index of subscriptions that could not be read.
    unreadable_entries: u64,
}

impl<'a> Mender<'a> {
    /// Something is gone.
    fn lost(&mut self, what: impl Into<String>) {
        self.mended.push(Mended::Lost(what.into()));
    }

    /// Something was made anew, and nothing is gone by it.
    fn rebuilt(&mut self, what: impl Into<String>) {
        self.mended.push(Mended::Rebuilt(what.into()));
    }

    fn put<R: Record>(&mut self, key: Vec<u8>, record: &R) -> Result<()> {
        let value = codec::seal(self.keys, &key, record);
        self.batch.put(R::SPACE, key, value);
        self.settle(self.at_once)
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.batch.remove(space, key.to_vec());
        self.settle(self.at_once)
    }

    /// The end of a step: the next one reads what it has written.
    fn done(&mut self) -> Result<()> {
        self.settle(1)
    }

    fn settle(&mut self, at: usize) -> Result<()> {
        if self.batch.len() < at {
            return Ok(());
        }
        self.engine.commit(&std::mem::take(&mut self.batch))
    }

    /// Every record of a space.
    ///
    /// # Errors
    /// [`StoreError::Read`] where the engine cannot read its own files: nothing of ours helps then.
    fn all(&self, space: Space) -> impl Iterator<Item = Result<(Bytes, Bytes)>> + use<'a> {
        self.engine.scan(space, &Keys::all()).map(|record| {
            record.map_err(|error| {
                StoreError::Read(format!("{error}; the engine's own files are damaged: restore a backup"))
            })
        })
    }

    /// Every record of a kind that can be read, with its key.
    fn each<R: Record>(&self) -> Result<Vec<(Bytes, R)>> {
        let mut found = Vec::new();
        for record in self.all(R::SPACE) {
            let (key, value) = record?;
            found.extend(codec::open(self.keys, &key, &value).ok().map(|record| (key, record)));
        }
        Ok(found)
    }

    /// The keys of every record of a kind that cannot be read.
    fn damaged<R: Record>(&self) -> Result<Vec<Bytes>> {
        let mut damaged = Vec::new();
        for record in self.all(R::SPACE) {
            let (key, value) = record?;
            if codec::open::<R>(self.keys, &key, &value).is_err() {
                damaged.push(key);
            }
        }
        Ok(damaged)
    }

    fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        Ok(self.engine.get(R::SPACE, key)?.and_then(|value| codec::open(self.keys, key, &value).ok()))
    }

    fn foundation(&mut self) -> Result<()> {
        if self.get::<Foundation>(key::FOUNDATION)?.is_none() {
            self.put(key::FOUNDATION.to_vec(), &Foundation { shards: SHARDS })?;
            self.rebuilt("what was decided when the store was made");
        }
        self.done()
    }

    fn shards(&self) -> Result<impl Iterator<Item = Shard> + use<>> {
        let shards = self.get::<Foundation>(key::FOUNDATION)?.map_or(SHARDS, |foundation| foundation.shards);
        Ok((0..shards).map(Shard))
    }
}
