//! Takes up what other hubs have accepted for this one's shards.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use resync_common::backoff::Backoff;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::Owner;
use crate::store::{Accepted, Shard, StoreError};

/// So much is taken up at once: what waits in a shard is read once for all of it that is there.
const BATCH: usize = 1_024;
/// The pause before shards are read once more in which something could not be read, and the longest one. In tests so short that nobody waits for it.
const FIRST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1_000 });
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 30_000 });

impl Owner {
    /// Does so until delivery stops.
    pub(in crate::delivery) fn follow_accepted(&self) {
        let (owner, accepted) = (self.clone(), self.0.store.watch_accepted());
        self.0.background.spawn_until_stopped(async move { owner.take_up_accepted(accepted).await });
    }

    /// Does so until nothing comes any more. Where it cannot be read, all that waits in its shard is read until that has succeeded.
    pub(super) async fn take_up_accepted(&self, mut accepted: mpsc::UnboundedReceiver<(Shard, Accepted)>) {
        let (mut batch, mut unread) = (Vec::new(), BTreeSet::<Shard>::new());
        let (mut backoff, mut due) = (Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), Instant::now());
        loop {
            tokio::select! {
                taken = accepted.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        return;
                    }
                    let failed = self.take_up_batch(mem::take(&mut batch)).await;
                    if unread.is_empty() && !failed.is_empty() {
                        warn!(shards = failed.len(), "what other hubs have accepted cannot be read: trying until that has succeeded");
                        due = Instant::now() + backoff.after_failure();
                    }
                    unread.extend(failed);
                }
                () = sleep_until(due), if !unread.is_empty() => {
                    unread = self.take_up_all(unread).await;
                    if unread.is_empty() {
                        info!("what other hubs have accepted is read");
                        backoff.reset();
                    } else {
                        due = Instant::now() + backoff.after_failure();
                    }
                }
            }
        }
    }

    /// Returns the shards of which it could not be read.
    async fn take_up_batch(&self, batch: Vec<(Shard, Accepted)>) -> BTreeSet<Shard> {
        let mut by_shard = BTreeMap::<Shard, Vec<Accepted>>::new();
        for (shard, accepted) in batch {
            by_shard.entry(shard).or_default().push(accepted);
        }
        let mut unread = BTreeSet::new();
        for (shard, accepted) in by_shard {
            // Where it is only just taken over, all that waits there is read, or was.
            if !self.is_here(shard) {
                continue;
            }
            for waiting in self.0.workers.waiting_work() {
                if !is_read(shard, &waiting.take_up(shard, &accepted).await) {
                    unread.insert(shard);
                }
            }
        }
        unread
    }

    /// Takes up all that waits in these shards. Returns those of which it could not be read.
    async fn take_up_all(&self, shards: BTreeSet<Shard>) -> BTreeSet<Shard> {
        let mut unread = BTreeSet::new();
        for shard in shards {
            if !self.is_here(shard) {
                continue;
            }
            for waiting in self.0.workers.waiting_work() {
                if !is_read(shard, &waiting.take_up_all(shard).await) {
                    unread.insert(shard);
                }
            }
        }
        unread
    }

    fn is_here(&self, shard: Shard) -> bool {
        self.0.workers.worker_of(shard).is_ok()
    }
}

fn is_read(shard: Shard, read: &Result<(), StoreError>) -> bool {
    if let Err(error) = read {
        debug!(shard = shard.0, %error, "what another hub has accepted cannot be read");
    }
    read.is_ok()
}
