//! Gives shards up in the store, so that other hubs may claim them at once. Otherwise they do when they take this one for dead.

use std::time::Duration;

use resync_common::backoff::Backoff;
use tracing::warn;

use super::Shared;
use crate::store::{Epoch, Shard, StoreError};

/// The pause after a release that failed, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Shared {
    /// Releases a shard for which this hub delivers no more. Returns whether that is settled.
    pub(super) async fn release(&self, shard: Shard, epoch: Epoch) -> bool {
        match self.store.release(shard, epoch).await {
            // Fenced: somebody has taken it over by now.
            Ok(()) | Err(StoreError::Fenced) => true,
            Err(error) => {
                warn!(shard = shard.0, %error, "shard not released: no other hub delivers for it before that has succeeded");
                false
            }
        }
    }

    /// Goes on with a release that has failed until it is settled, or delivery stops. A later claim by this hub makes it void.
    pub(super) async fn release_again(&self, shard: Shard, epoch: Epoch) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while self.background.pause(backoff.after_failure()).await {
            if matches!(self.store.release(shard, epoch).await, Ok(()) | Err(StoreError::Fenced)) {
                return;
            }
        }
    }
}
