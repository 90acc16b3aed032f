//! Whether the numbers that were given out last are at least those that are in use.

use super::every;
use crate::store::embedded::codec::{self, Record};
use crate::store::embedded::engine::Engine;
use crate::store::embedded::key;
use crate::store::embedded::layout::Counters;
use crate::store::{Denial, Fault, Keyring, PendingRequest, Ping, Result, Subscription};

pub(super) fn check(engine: &dyn Engine, keys: &Keyring, faults: &mut Vec<Fault>) -> Result<()> {
    let noted = engine.get(Counters::SPACE, key::COUNTERS)?;
    let noted = noted.and_then(|value| codec::open::<Counters>(keys, key::COUNTERS, &value).ok());
    let noted = noted.unwrap_or_default();
    if used(engine, keys, noted) != noted {
        faults.push(Fault::Numbers);
    }
    Ok(())
}

/// The largest numbers that are in use, or noted to be.
pub(in crate::store::embedded) fn used(engine: &dyn Engine, keys: &Keyring, noted: Counters) -> Counters {
    let mut used = noted;
    each::<Subscription>(engine, keys, |one| used.subscription = used.subscription.max(one.id));
    each::<PendingRequest>(engine, keys, |one| used.request = used.request.max(one.id.0));
    // Requests and denials are counted together.
    each::<Denial>(engine, keys, |one| used.request = used.request.max(one.id.0));
    each::<Ping>(engine, keys, |one| used.ping = used.ping.max(one.id.0));
    used
}

/// Every record of a kind that can be read.
fn each<R: Record>(engine: &dyn Engine, keys: &Keyring, mut see: impl FnMut(R)) {
    for (key, value) in every(engine, R::SPACE) {
        codec::open(keys, &key, &value).into_iter().for_each(&mut see);
    }
}
