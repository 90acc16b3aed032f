//! Shards that their workers give up because something that has happened may never be told: they are taken over again, and so read again.

use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{NotTaken, Owner};
use crate::delivery::sender::{GivenUp, LetGo};
use crate::store::{Epoch, Shard, StoreError};

impl Owner {
    /// Takes over again what is given up, until delivery stops.
    pub(super) fn take_again(&self, mut given_up: mpsc::UnboundedReceiver<GivenUp>) {
        let owner = self.clone();
        self.0.background.spawn_until_stopped(async move {
            while let Some((shard, how)) = given_up.recv().await {
                let again = owner.clone();
                owner.0.background.spawn(async move {
                    // Where somebody else has taken it over, or its worker has ended, it is not this hub's any more.
                    if let Ok(Ok((LetGo::Saved | LetGo::Unsaved, epoch))) = how.await {
                        again.read_again(shard, epoch).await;
                    }
                });
            }
        });
    }

    /// `epoch` is that with which it was owned.
    async fn read_again(&self, shard: Shard, epoch: Epoch) {
        match self.take(shard).await {
            Ok(()) => info!(shard = shard.0, "shard read again: what has happened to it was not known"),
            Err(NotTaken::Stopped(_)) => drop(self.0.release(shard, epoch).await),
            // Another hub has it, or it is here already, or is let go.
            Err(NotTaken::Store(StoreError::Owned) | NotTaken::Here(_) | NotTaken::CalledOff(_)) => {}
            Err(NotTaken::Store(error)) => {
                warn!(shard = shard.0, %error, "shard not read again: trying until that has succeeded");
                self.want(vec![shard]);
            }
        }
    }
}
