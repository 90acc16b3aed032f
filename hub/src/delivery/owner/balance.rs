//! Where several hubs share a store, each owns its share of the shards: it takes what is free, also that of hubs that are dead, and lets go what
//! it has too much when another hub comes.

use std::time::Duration;

use futures_util::future::join_all;
use tracing::{debug, info, warn};

use super::{NotTaken, Owner};
use crate::store::{Shard, Spread, StoreError};

/// How often it is looked how the shards are spread.
const EVERY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1_000 });

impl Owner {
    /// Keeps this hub's share until delivery stops.
    pub(super) fn balance(&self) {
        let owner = self.clone();
        self.0.background.spawn(async move {
            while owner.0.background.pause(EVERY).await {
                // Only what is read after this tells what was lost by it.
                let lapse = owner.0.store.lapse();
                let (takings, owned) = owner.here();
                match owner.0.store.spread().await {
                    Ok(Some(spread)) => {
                        let mut lost = lost(owned, &spread);
                        if let Some(lapse) = lapse {
                            lost.extend(owner.call_off_lost(takings, &spread));
                            owner.leave_lost(lost).await;
                            owner.0.store.settle(lapse);
                        } else {
                            owner.leave_lost(lost).await;
                        }
                        owner.follow(&spread).await;
                    }
                    Ok(None) => return,
                    // What else fails says so.
                    Err(error) => debug!(%error, "how the shards are spread over the hubs cannot be read"),
                }
            }
        });
    }

    /// The shards that this hub is to take now, in a random order: who looks at the same time takes others.
    pub(super) fn wanted(&self, spread: &Spread) -> Vec<Shard> {
        let here = self.0.workers.all_assigned();
        let share = spread.share(usize::from(self.0.store.shards()));
        let mut free: Vec<_> = spread.free.iter().copied().filter(|shard| !here.contains(shard)).collect();
        fastrand::shuffle(&mut free);
        free.truncate(share.saturating_sub(here.len()));
        free
    }

    /// The shards that are being taken over, and those that are here.
    fn here(&self) -> (Vec<Shard>, Vec<Shard>) {
        let takings = self.0.takings();
        self.0.workers.all_assigned().into_iter().partition(|shard| takings.contains_key(shard))
    }

    /// Ends the takings of those of these that are other hubs' by now, although they may have been claimed. Returns those that have come here
    /// meanwhile.
    fn call_off_lost(&self, takings: Vec<Shard>, spread: &Spread) -> Vec<Shard> {
        let mut lost = lost(takings, spread);
        // What was called off is never handed over, so nobody need wait for the end of it.
        lost.retain(|shard| self.0.call_off(*shard).is_none());
        lost
    }

    /// Lets these go. Where there is progress to save, that says that they are lost; but where nothing happens, this hub would begin the next
    /// delivery as well as their owner.
    async fn leave_lost(&self, lost: Vec<Shard>) {
        let left = join_all(lost.into_iter().map(|shard| self.let_go(shard))).await;
        let shards = left.iter().filter(|how| how.is_ok()).count();
        if shards > 0 {
            warn!(shards, "other hubs have taken over shards of this one, which they took for dead");
        }
    }

    async fn follow(&self, spread: &Spread) {
        let here = self.0.workers.all_assigned();
        let surplus = here.len().saturating_sub(spread.share(usize::from(self.0.store.shards())));
        if surplus > 0 {
            let leaving = here.into_iter().rev().take(surplus);
            let let_go = join_all(leaving.map(|shard| self.let_go(shard))).await;
            let shards = let_go.iter().filter(|how| how.is_ok()).count();
            info!(shards, hubs = spread.hubs, "shards let go for other hubs");
            return;
        }
        let wanted = self.wanted(spread);
        let taken = join_all(wanted.iter().map(|shard| self.take_free(*shard))).await;
        let shards = taken.into_iter().filter(|is_taken| *is_taken).count();
        if shards > 0 {
            info!(shards, hubs = spread.hubs, "shards taken over");
        }
    }

    /// Returns whether it was taken.
    async fn take_free(&self, shard: Shard) -> bool {
        match self.take(shard).await {
            Ok(()) => true,
            // Somebody else has taken it, or let it go here, or delivery stops.
            Err(
                NotTaken::Store(StoreError::Owned)
                | NotTaken::Here(_)
                | NotTaken::CalledOff(_)
                | NotTaken::Stopped(_),
            ) => false,
            Err(NotTaken::Store(error)) => {
                warn!(shard = shard.0, %error, "shard not taken over: trying again");
                false
            }
        }
    }
}

/// Those of these that are other hubs' by now.
fn lost(mut shards: Vec<Shard>, spread: &Spread) -> Vec<Shard> {
    shards.retain(|shard| !spread.free.contains(shard));
    shards
}
