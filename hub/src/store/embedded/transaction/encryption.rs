//! Commands that change under which keys secrets are kept.

use bytes::Bytes;

use super::Transaction;
use crate::store::embedded::engine::{Keys, Space};
use crate::store::encoding::codec;
use crate::store::encoding::key;
use crate::store::encoding::layout::Encryption;
use crate::store::{PendingRequest, Result, Subscription};

/// What one command has rewritten.
#[derive(Debug)]
pub(in super::super) struct Resealed {
    pub(in super::super) secrets: u64,
    /// Where the next command goes on; `None` at the end of the space.
    pub(in super::super) next: Option<Vec<u8>>,
}

impl Transaction<'_> {
    pub(in super::super) fn set_encryption(&mut self, encryption: &Encryption) {
        self.put(key::ENCRYPTION.to_vec(), encryption);
    }

    /// Rewrites secrets that are not under the first key, looking at no more than `limit` requests or subscriptions.
    pub(in super::super) fn reseal(&mut self, space: Space, from: Vec<u8>, limit: usize) -> Result<Resealed> {
        let mut resealed = Resealed { secrets: 0, next: None };
        let mut changed = Vec::new();
        for (seen, record) in self.engine.scan(space, &Keys { from, to: None }).enumerate() {
            let (key, value) = record?;
            if seen == limit {
                resealed.next = Some(key.to_vec());
                break;
            }
            // What an earlier command of this group has put or removed is not what the engine says.
            if self.batch.change(space, &key).is_none()
                && let Some(value) = self.resealed(space, &key, &value)?
            {
                changed.push((key.to_vec(), value));
            }
        }
        resealed.secrets = changed.len() as u64;
        for (key, value) in changed {
            self.batch.put(space, key, value);
        }
        Ok(resealed)
    }

    fn resealed(&self, space: Space, key: &[u8], value: &Bytes) -> Result<Option<Vec<u8>>> {
        match space {
            Space::Requests => codec::reseal::<PendingRequest>(self.keys, key, value),
            Space::Subscriptions => codec::reseal::<Subscription>(self.keys, key, value),
            _ => Ok(None),
        }
    }
}
