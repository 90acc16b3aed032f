//! A hub that stops hands its shards over while others are up: each is let go as soon as nothing is under way in it, and taken over at once.
//! Where nobody would take them they stay until the workers end, which gives requests under way more time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::join;
use tokio::time::timeout;
use tracing::{info, warn};

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
        self.0.is_stopping.store(true, Ordering::SeqCst);
        let handing_over = self.hand_over(self.0.workers.all_assigned().into_iter().collect());
        if timeout(LONGEST, handing_over).await.is_err() {
            let shards = self.0.workers.all_assigned().len();
            warn!(
                shards,
                "shards not handed over in time: other hubs take them over when this one has ended"
            );
        }
    }

    async fn has_successors(&self) -> bool {
        let spread = timeout(ASKING, self.0.store.spread()).await;
        matches!(spread, Ok(Ok(Some(spread))) if spread.is_shared_by_others())
    }

    async fn hand_over(&self, shards: Vec<Shard>) {
        let announce = async {
            if let Err(error) = self.0.store.announce_stop().await {
                warn!(%error, "other hubs were not told that this one stops: they take its shards over within 5 seconds of its end");
            }
        };
        let ((), let_go) = join!(announce, join_all(shards.into_iter().map(|shard| self.let_go(shard))));
        let count = |outcome: LetGo| let_go.iter().filter(|how| **how == Ok(outcome)).count();
        info!(shards = count(LetGo::Saved), "shards handed over to other hubs");
        let shards = count(LetGo::Unsaved);
        if shards > 0 {
            warn!(
                shards,
                "shards handed over without their last progress: other hubs repeat some deliveries"
            );
        }
    }

    /// Whether this hub hands its shards over, and takes none.
    pub(super) fn is_stopping(&self) -> bool {
        self.0.is_stopping.load(Ordering::SeqCst)
    }
}
