//! Where several hubs share a store, each owns its share of the shards: it takes what is free, also that of hubs that are dead, and lets go what
//! it has too much when another hub comes.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use resync_common::backoff::Backoff;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{NotTaken, Owner};
use crate::store::{Epoch, Shard, Spread, StoreError};

/// How often it is looked how the shards are spread, where no other hub says that this changes.
pub(super) const EVERY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1_000 });
/// The least pause between two looks: a hub that stops releases its shards one after the other.
const LEAST: Duration = Duration::from_millis(20);

impl Owner {
    /// Keeps this hub's share until delivery stops, and looks at least `every` so often.
    pub(super) fn balance(&self, every: Duration) {
        let (owner, mut changes) = (self.clone(), self.0.store.watch_spread());
        // The store may be long in answering a look.
        self.0.background.spawn_until_stopped(async move {
            let mut backoff = Backoff::new(LEAST, every);
            while owner.until_next_look(&mut changes, &mut backoff, every).await {
                if !owner.look().await {
                    return;
                }
            }
        });
    }

    /// Waits until another hub says that the spread changes, until one was faster with a shard, or for as long as may be. Each time that one was
    /// faster it waits longer: where the store goes on refusing what it calls free, that must not keep it busy. Returns whether delivery goes on.
    async fn until_next_look(
        &self,
        changes: &mut watch::Receiver<()>,
        backoff: &mut Backoff,
        every: Duration,
    ) -> bool {
        let background = &self.0.background;
        if !background.pause(LEAST).await {
            return false;
        }
        let mut is_refused = false;
        let event = async {
            tokio::select! {
                () = changed(changes) => {}
                () = self.0.was_refused.notified() => is_refused = true,
            }
        };
        let goes_on = background.pause_until(event, every).await;
        if is_refused {
            goes_on && background.pause_until(changed(changes), backoff.after_failure()).await
        } else {
            backoff.reset();
            goes_on
        }
    }

    /// Looks how the shards are spread, and has this hub follow; what takes long goes on beside it. Returns whether others share them.
    async fn look(&self) -> bool {
        // However long no shard is taken over: later it would pass for a jump if the clocks just run differently.
        self.0.look_at_clock();
        // Only what is read after this tells what was lost by it.
        let lapse = self.0.store.lapse();
        let (takings, owned) = self.here();
        let spread = match self.0.store.spread().await {
            Ok(Some(spread)) => spread,
            Ok(None) => return false,
            Err(error) => {
                // What else fails says so.
                debug!(%error, "how the shards are spread over the hubs cannot be read");
                return true;
            }
        };
        self.0.settings.hubs.set(spread.sharing);
        self.0.counters.set_hubs(spread.hubs);
        let mut lost = self.lost(owned, &spread);
        self.release_unknown(&spread);
        if lapse.is_some() {
            lost.extend(self.call_off_lost(takings, &spread));
        }
        let are_let_go = self.let_lost_go(lost).await;
        if let Some(lapse) = lapse.filter(|_| are_let_go) {
            self.0.store.settle(lapse);
        }
        self.follow(&spread).await;
        true
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
    fn here(&self) -> (Vec<Shard>, BTreeMap<Shard, Epoch>) {
        let takings = self.0.takings();
        (takings.keys().copied().collect(), self.0.workers.owned())
    }

    /// Those of these that were claimed or released since by somebody else, as the store says.
    fn lost(&self, owned: BTreeMap<Shard, Epoch>, spread: &Spread) -> Vec<Shard> {
        // What this hub has let go itself meanwhile, and perhaps taken again, is none of them.
        let now = self.0.workers.owned();
        let is_lost = |of: &(Shard, Epoch)| !spread.own.contains(of) && now.get(&of.0) == Some(&of.1);
        owned.into_iter().filter(is_lost).map(|(shard, _)| shard).collect()
    }

    /// Releases what this hub owns without knowing: a claim was carried out late, and no other hub may take the shard. What is on its way out is
    /// released once more, which changes nothing.
    fn release_unknown(&self, spread: &Spread) {
        let here = self.0.workers.all_assigned();
        let unknown: Vec<_> = spread.own.iter().copied().filter(|(shard, _)| !here.contains(shard)).collect();
        if unknown.is_empty() {
            return;
        }
        let owner = Arc::clone(&self.0);
        self.0.background.spawn(async move {
            for (shard, epoch) in unknown {
                // Where that fails, the next look finds it again.
                let _ = owner.release(shard, epoch).await;
            }
        });
    }

    /// Ends the takings of those of these that are other hubs' by now, although they may have been claimed. Returns those that have come here
    /// meanwhile.
    fn call_off_lost(&self, takings: Vec<Shard>, spread: &Spread) -> Vec<Shard> {
        // What was called off is never handed over, so nobody need wait for the end of it.
        let mut lost = takings;
        lost.retain(|shard| !spread.free.contains(shard) && self.0.call_off(*shard).is_none());
        lost
    }

    /// Lets these go. Where there is progress to save, that says that they are lost; but where nothing happens, this hub would begin the next
    /// delivery as well as their owner. Returns whether their workers have given them up.
    async fn let_lost_go(&self, lost: Vec<Shard>) -> bool {
        let told = |shards: usize| {
            warn!(shards, "shards let go: the database does not count them as this hub's any more");
        };
        self.let_all_go(lost, told).await
    }

    async fn follow(&self, spread: &Spread) {
        if self.is_stopping() {
            return;
        }
        let (here, hubs) = (self.0.workers.all_assigned(), spread.hubs);
        let surplus = here.len().saturating_sub(spread.share(usize::from(self.0.store.shards())));
        if surplus > 0 {
            let leaving = here.into_iter().rev().take(surplus).filter(|shard| !self.0.is_called_off(*shard));
            let told = move |shards: usize| info!(shards, hubs, "shards let go for other hubs");
            self.let_all_go(leaving.collect(), told).await;
            return;
        }
        let wanted = self.wanted(spread);
        if wanted.is_empty() {
            return;
        }
        // To read one may take a minute.
        let owner = self.clone();
        self.0.background.spawn(async move {
            let taken = join_all(wanted.into_iter().map(|shard| owner.take_free(shard))).await;
            let shards = taken.into_iter().filter(|is_taken| *is_taken).count();
            if shards > 0 {
                info!(shards, hubs, "shards taken over");
            }
        });
    }

    /// Lets these go, and tells how many were here. Returns whether that is done; where it takes longer than a look may, it goes on.
    async fn let_all_go(&self, shards: Vec<Shard>, told: impl FnOnce(usize) + Send + 'static) -> bool {
        if shards.is_empty() {
            return true;
        }
        let (owner, (done, ended)) = (self.clone(), oneshot::channel());
        self.0.background.spawn(async move {
            let left = join_all(shards.into_iter().map(|shard| owner.let_go(shard))).await;
            let shards = left.iter().filter(|how| how.is_ok()).count();
            if shards > 0 {
                told(shards);
            }
            // Nobody may wait any more.
            let _ = done.send(());
        });
        matches!(timeout(EVERY, ended).await, Ok(Ok(())))
    }

    /// Returns whether it was taken.
    async fn take_free(&self, shard: Shard) -> bool {
        match self.take(shard).await {
            Ok(()) => true,
            // Another hub was faster: meanwhile this one may have left others to somebody who did not come.
            Err(NotTaken::Store(StoreError::Owned)) => {
                self.0.was_refused.notify_one();
                false
            }
            // It was taken or let go here, or delivery stops.
            Err(NotTaken::Here(_) | NotTaken::CalledOff(_) | NotTaken::Stopped(_)) => false,
            Err(NotTaken::Store(error)) => {
                warn!(shard = shard.0, %error, "shard not taken over: trying again");
                false
            }
        }
    }
}

/// Returns when another hub has said so; never where the store has no others.
async fn changed(changes: &mut watch::Receiver<()>) {
    if changes.changed().await.is_err() {
        pending::<()>().await;
    }
}
