//! Shards that another hub owns: this one tries to take them again until that has released them, and delivers for its others meanwhile.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use resync_common::backoff::Backoff;
use resync_common::locks::lock;
use tracing::{info, warn};

use super::{NotTaken, Owner, Shared};
use crate::store::{Shard, StoreError};

/// The pause before such shards are tried again, and the longest one. In tests so short that nobody waits for it.
const FIRST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1_000 });
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

impl Owner {
    /// Takes these over as soon as that is possible, unless they are let go.
    pub(super) fn take_later(&self, refused: Vec<Shard>) {
        if refused.is_empty() {
            return;
        }
        warn!(
            shards = refused.len(),
            "another hub delivers for some shards: this one takes them over when they are released"
        );
        self.want(refused);
    }

    /// Takes these over as soon as that is possible, for whatever reason it is not now. One at a time tries them all.
    pub(super) fn want(&self, shards: Vec<Shard>) {
        self.0.refused().extend(shards);
        if self.0.is_trying.swap(true, Ordering::SeqCst) {
            return;
        }
        let owner = self.clone();
        self.0.background.spawn(async move {
            let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            loop {
                while owner.0.has_refused() {
                    if !owner.0.background.pause(backoff.after_failure()).await {
                        return;
                    }
                    if owner.take_refused().await {
                        backoff.reset();
                    }
                }
                owner.0.is_trying.store(false, Ordering::SeqCst);
                // Who has added one just now may have seen that somebody tries.
                if !owner.0.has_refused() || owner.0.is_trying.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        });
    }

    /// Tries each; returns whether any of them was taken.
    pub(super) async fn take_refused(&self) -> bool {
        let (shards, mut is_any_taken) = (self.0.refused().clone(), false);
        for shard in shards {
            match self.take_wanted(shard).await {
                Err(NotTaken::Store(StoreError::Owned)) => continue,
                Err(NotTaken::Store(error)) => {
                    warn!(shard = shard.0, %error, "shard not taken over: trying again");
                    continue;
                }
                Ok(()) => {
                    info!(shard = shard.0, "shard taken over at last");
                    is_any_taken = true;
                }
                // Somebody else has taken it here or let it go, or delivery stops.
                Err(NotTaken::Here(_) | NotTaken::CalledOff(_) | NotTaken::Stopped(_)) => {}
            }
            self.0.refused().remove(&shard);
        }
        is_any_taken
    }

    async fn take_wanted(&self, shard: Shard) -> Result<(), NotTaken> {
        let taking = self.expect(shard).await?;
        // Who lets it go finds this taking, or is found here.
        let is_wanted = self.0.refused().contains(&shard);
        if is_wanted { self.complete(taking).await } else { Err(NotTaken::CalledOff(shard)) }
    }
}

impl Shared {
    fn has_refused(&self) -> bool {
        !self.refused().is_empty()
    }

    pub(super) fn refused(&self) -> MutexGuard<'_, BTreeSet<Shard>> {
        // What it guards is complete between any two statements.
        lock(&self.refused)
    }
}
