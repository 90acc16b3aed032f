//! Whether each record is what its place says: its checksum, its version, its fields.

use bytes::Bytes;

use super::{Check, Fault};
use crate::store::embedded::engine::Space;
use crate::store::encoding::codec::{self, Record};
use crate::store::encoding::key;
use crate::store::encoding::layout::{
    Address, Counters, Encryption, Expiry, Floor, Foundation, IdempotencyRecord, LogRecord, Part,
    PausedTopic, StoredValidators, TopicState, TopicWatermark,
};
use crate::store::{
    Chain, Denial, Epoch, Gap, Keyring, Laggard, PendingRequest, Ping, Result, Skip, StoreError,
    Subscription, Uptime,
};

impl Check<'_> {
    /// Returns how many records there are.
    pub(super) fn check_records(&mut self) -> Result<u64> {
        let mut count = 0;
        for space in Space::ALL {
            for record in self.records.all(space) {
                let (key, value) = match record {
                    Ok(record) => record,
                    Err(error) => {
                        self.faults.push(Fault::Engine { space, reason: error.to_string() });
                        break;
                    }
                };
                count += 1;
                if let Err(error) = read(space, self.records.keys(), &key, &value) {
                    let reason = match error {
                        StoreError::Damaged { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    self.faults.push(Fault::Unreadable { space, key, reason });
                }
            }
        }
        if self.records.value(Space::Meta, key::FOUNDATION)?.is_none() {
            self.faults.push(Fault::NoFoundation);
        }
        Ok(count)
    }
}

fn read(space: Space, keys: &Keyring, key: &[u8], value: &Bytes) -> Result<()> {
    let read = match space {
        Space::Meta => match key {
            key::FOUNDATION => open::<Foundation>,
            key::COUNTERS => open::<Counters>,
            key::ENCRYPTION => open::<Encryption>,
            key::FLOOR => open::<Floor>,
            key::UPTIME => open::<Uptime>,
            key if key.starts_with(key::PAUSED) => open::<PausedTopic>,
            _ => open::<Epoch>,
        },
        Space::Topics => open::<TopicState>,
        Space::Log => open::<LogRecord>,
        Space::Bodies => open::<Part>,
        Space::Requests => open::<PendingRequest>,
        Space::Subscriptions => open::<Subscription>,
        Space::SubscriptionIndex => open::<Address>,
        Space::Pings => open::<Ping>,
        Space::Watermarks => open::<TopicWatermark>,
        Space::Laggards => open::<Laggard>,
        Space::Skips => open::<Skip>,
        Space::Idempotency => open::<IdempotencyRecord>,
        Space::IdempotencyExpiry => open::<Expiry>,
        Space::Chains => open::<Chain>,
        Space::Validators => open::<StoredValidators>,
        Space::Gaps => open::<Gap>,
        Space::Denials => open::<Denial>,
    };
    read(keys, key, value)
}

fn open<R: Record>(keys: &Keyring, key: &[u8], value: &Bytes) -> Result<()> {
    codec::open::<R>(keys, key, value).map(drop)
}
