//! The records of a store that no hub is using: reading those that can be read, and writing some at a time.

use bytes::Bytes;

use super::engine::{Batch, Engine, Keys, Space};
use crate::store::encoding::codec::{self, Record};
use crate::store::{Keyring, Result};

/// Changes that are committed at once.
const AT_ONCE: usize = 1024;

pub(super) struct Closed<'a> {
    engine: &'a dyn Engine,
    keys: &'a Keyring,
    batch: Batch,
    at_once: usize,
}

impl<'a> Closed<'a> {
    pub(super) fn new(engine: &'a dyn Engine, keys: &'a Keyring) -> Self {
        Self { engine, keys, batch: Batch::default(), at_once: AT_ONCE }
    }

    /// Every change in a commit of its own.
    #[cfg(test)]
    pub(super) fn one_at_a_time(self) -> Self {
        Self { at_once: 1, ..self }
    }

    /// Every record of a space.
    pub(super) fn all(&self, space: Space) -> impl Iterator<Item = Result<(Bytes, Bytes)>> + use<'a> {
        self.engine.scan(space, &Keys::all())
    }

    /// Every record of a kind that can be decoded, with its key.
    pub(super) fn each<R: Record>(&self) -> impl Iterator<Item = Result<(Bytes, R)>> + use<'a, R> {
        let keys = self.keys;
        self.all(R::SPACE).filter_map(move |record| match record {
            Ok((key, value)) => codec::open(keys, &key, &value).ok().map(|record| Ok((key, record))),
            Err(error) => Some(Err(error)),
        })
    }

    /// A record, if it is there and can be decoded.
    pub(super) fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        Ok(self.value(R::SPACE, key)?.and_then(|value| codec::open(self.keys, key, &value).ok()))
    }

    /// The bytes of a record.
    pub(super) fn value(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.engine.get(space, key)
    }

    pub(super) fn engine(&self) -> &'a dyn Engine {
        self.engine
    }

    pub(super) fn keys(&self) -> &'a Keyring {
        self.keys
    }

    pub(super) fn put<R: Record>(&mut self, key: Vec<u8>, record: &R) -> Result<()> {
        let value = codec::seal(self.keys, &key, record);
        self.batch.put(R::SPACE, key, value);
        self.commit_if(self.at_once)
    }

    pub(super) fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.batch.remove(space, key.to_vec());
        self.commit_if(self.at_once)
    }

    /// Commits what is left: what is read after that includes all changes.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.commit_if(1)
    }

    fn commit_if(&mut self, changes: usize) -> Result<()> {
        if self.batch.len() < changes {
            return Ok(());
        }
        self.engine.commit(&std::mem::take(&mut self.batch))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fragile;
    use super::*;

    #[test]
    fn changes_are_committed_many_at_a_time_and_the_last_of_them_at_the_end() {
        let (engine, keys) = (Fragile::default(), Keyring::none());
        let mut records = Closed::new(&engine, &keys);
        for number in 0..=AT_ONCE {
            records.remove(Space::Log, &number.to_be_bytes()).unwrap();
        }
        assert_eq!(engine.commits(), 1);
        for _ in 0..2 {
            records.finish().unwrap();
            assert_eq!(engine.commits(), 2);
        }
    }
}
