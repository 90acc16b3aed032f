//! Whether each record is what its place says: its checksum, its version, its fields.

use bytes::Bytes;

use crate::store::embedded::codec::{self, Record};
use crate::store::embedded::engine::{Engine, Keys, Space};
use crate::store::embedded::key;
use crate::store::embedded::layout::{
    Address, Counters, Encryption, Expiry, Floor, Foundation, LogRecord, Part, PausedTopic, Remembered,
    Stated, TopicState, TopicWatermark,
};
use crate::store::{
    Chain, Denial, Epoch, Fault, Gap, Keyring, Laggard, PendingRequest, Ping, Result, Skip, StoreError,
    Subscription, Uptime,
};

/// Returns how many records there are.
pub(super) fn check(engine: &dyn Engine, keys: &Keyring, faults: &mut Vec<Fault>) -> Result<u64> {
    let mut records = 0;
    for space in Space::ALL {
        for record in engine.scan(space, &Keys::all()) {
            let outcome = record.and_then(|(key, value)| {
                records += 1;
                read(space, keys, &key, &value)
            });
            if let Err(error) = outcome {
                let is_whole_space = !matches!(error, StoreError::Damaged { .. });
                let reason = match error {
                    StoreError::Damaged { reason, .. } => reason,
                    other => format!("{other}; what comes after it was not looked at"),
                };
                faults.push(Fault::Unreadable { space: space.name(), reason });
                if is_whole_space {
                    break;
                }
            }
        }
    }
    if engine.get(Space::Meta, key::FOUNDATION)?.is_none() {
        faults.push(Fault::NoFoundation);
    }
    Ok(records)
}

/// Whether this record is what its place says.
pub(in crate::store::embedded) fn read(
    space: Space,
    keys: &Keyring,
    key: &[u8],
    value: &Bytes,
) -> Result<()> {
    match space {
        Space::Meta => read_meta(keys, key, value),
        Space::Topics => open::<TopicState>(keys, key, value),
        Space::Log => open::<LogRecord>(keys, key, value),
        Space::Bodies => open::<Part>(keys, key, value),
        Space::Requests => open::<PendingRequest>(keys, key, value),
        Space::Subscriptions => open::<Subscription>(keys, key, value),
        Space::SubscriptionIndex => open::<Address>(keys, key, value),
        Space::Pings => open::<Ping>(keys, key, value),
        Space::Watermarks => open::<TopicWatermark>(keys, key, value),
        Space::Laggards => open::<Laggard>(keys, key, value),
        Space::Skips => open::<Skip>(keys, key, value),
        Space::Idempotency => open::<Remembered>(keys, key, value),
        Space::IdempotencyExpiry => open::<Expiry>(keys, key, value),
        Space::Chains => open::<Chain>(keys, key, value),
        Space::Validators => open::<Stated>(keys, key, value),
        Space::Gaps => open::<Gap>(keys, key, value),
        Space::Denials => open::<Denial>(keys, key, value),
    }
}

fn read_meta(keys: &Keyring, key: &[u8], value: &Bytes) -> Result<()> {
    match key {
        key::FOUNDATION => open::<Foundation>(keys, key, value),
        key::COUNTERS => open::<Counters>(keys, key, value),
        key::ENCRYPTION => open::<Encryption>(keys, key, value),
        key::FLOOR => open::<Floor>(keys, key, value),
        key::UPTIME => open::<Uptime>(keys, key, value),
        key if key.starts_with(key::PAUSED) => open::<PausedTopic>(keys, key, value),
        _ => open::<Epoch>(keys, key, value),
    }
}

fn open<R: Record>(keys: &Keyring, key: &[u8], value: &Bytes) -> Result<()> {
    codec::open::<R>(keys, key, value).map(drop)
}
