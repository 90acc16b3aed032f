//! A hub that stops hands its shards over while others are up: each is let go as soon as nothing is under way in it, and taken over at once.
//! Where nobody would take them they stay until the workers end, which gives requests under way more time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::join;
use tokio::time::timeout;
use tracing::{debug, info};

use super::{LetGo, Owner};
use crate::store::Shard;

/// For the store's word that there are other hubs.
const ASKING: Duration = Duration::from_secs(1);
/// For all of it, a second more than a shard takes at most. What takes longer ends with the workers.
const LONGEST: Duration = Duration::from_secs(4);

impl Owner {
    /// Hands all shards over, if another hub takes them. From then on this one takes none.
    pub(in crate::delivery) async fn hand_over_all(&self) {
        if !self.has_successors().await {
            return;
        }
        // Those that are being taken over are let go too, and none begins after this.
        self.0.is_leaving.store(true, Ordering::SeqCst);
        let shards = self.0.workers.all_assigned();
        let (all, handing_over) = (shards.len(), self.hand_over(shards.into_iter().collect()));
        if let Ok(saved) = timeout(LONGEST, handing_over).await {
            info!(shards = all, saved, "shards handed over to other hubs");
        } else {
            debug!(shards = all, "shards not handed over in time: they are when the workers end");
        }
    }

    async fn has_successors(&self) -> bool {
        let spread = timeout(ASKING, self.0.store.spread()).await;
        matches!(spread, Ok(Ok(Some(spread))) if spread.is_shared_by_others())
    }

    /// Returns of how many all progress is saved.
    async fn hand_over(&self, shards: Vec<Shard>) -> usize {
        let leave = async {
            if let Err(error) = self.0.store.announce_stop().await {
                debug!(%error, "other hubs were not told that this one stops");
            }
        };
        let ((), left) = join!(leave, join_all(shards.into_iter().map(|shard| self.let_go(shard))));
        left.into_iter().filter(|how| matches!(how, Ok(LetGo::Saved))).count()
    }

    /// Whether this hub hands its shards over, and takes none.
    pub(super) fn is_leaving(&self) -> bool {
        self.0.is_leaving.load(Ordering::SeqCst)
    }
}
