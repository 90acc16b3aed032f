//! Looking at every record of a store: whether it can be read, and whether records that speak of each other agree.

mod logs;
mod numbers;
pub(super) mod readable;
mod subscriptions;

#[cfg(test)]
pub(super) mod tests;

use std::path::Path;

use bytes::Bytes;

pub(super) use self::numbers::used as used_numbers;
pub(super) use self::subscriptions::{address, pair};
use super::engine::{Engine, Keys, Space};
use super::{memory, widen};
use crate::store::{self, Fault, Findings, Keyring, Result};

/// Looks at the store in `directory`, which no hub may be using.
pub(in crate::store) fn check(engine: store::Engine, directory: &Path, keys: &Keyring) -> Result<Findings> {
    let (_lock, opened) = super::open_stopped(engine, directory)?;
    look(opened.as_ref(), keys)
}

pub(super) fn look(engine: &dyn Engine, keys: &Keyring) -> Result<Findings> {
    // Without the right keys every secret would look damaged.
    widen(&memory::encryption(engine)?, keys)?;
    let mut faults = Vec::new();
    let records = readable::check(engine, keys, &mut faults)?;
    numbers::check(engine, keys, &mut faults)?;
    let topics = logs::topics(engine, keys);
    logs::check(engine, keys, &topics, &mut faults)?;
    subscriptions::check(engine, keys, &topics, &mut faults)?;
    Ok(Findings { records, faults })
}

/// A number of eight bytes in a key, by its place.
pub(super) fn number(key: &[u8], place: usize) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(place..place + 8)?.try_into().ok()?))
}

fn stray(space: Space, key: &[u8]) -> Fault {
    Fault::Stray { space: space.name(), key: hex::encode(key) }
}

/// Every record of a space up to one that the engine itself cannot read, which is told of once.
fn every(engine: &dyn Engine, space: Space) -> impl Iterator<Item = (Bytes, Bytes)> {
    engine.scan(space, &Keys::all()).map_while(Result::ok)
}
