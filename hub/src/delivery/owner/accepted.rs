//! Takes up what other hubs have accepted for this one's shards.

use std::pin::pin;

use tracing::warn;

use super::Owner;
use crate::store::{Accepted, Shard};

impl Owner {
    /// Does so until delivery stops.
    pub(in crate::delivery) fn follow_accepted(&self) {
        let (owner, mut accepted) = (self.clone(), self.0.store.watch_accepted());
        self.0.background.spawn(async move {
            let mut stopped = pin!(owner.0.background.stopped());
            loop {
                tokio::select! {
                    next = accepted.recv() => match next {
                        Some((shard, accepted)) => owner.take_up_accepted(shard, accepted).await,
                        None => return,
                    },
                    () = &mut stopped => return,
                }
            }
        });
    }

    async fn take_up_accepted(&self, shard: Shard, accepted: Accepted) {
        // Where it is only just taken over, all that waits there is read, or was.
        if self.0.workers.worker_of(shard).is_err() {
            return;
        }
        for waiting in self.0.workers.waiting_work() {
            if let Err(error) = waiting.take_up(shard, accepted).await {
                warn!(shard = shard.0, %error, "what another hub has accepted waits until the shard is read again");
            }
        }
    }
}
