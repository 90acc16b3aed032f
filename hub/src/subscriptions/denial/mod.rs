//! Denials: a subscription that is not accepted, or no longer, ends at once, and its callback is notified (W-098 to W-102).

mod notifier;

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use tracing::{error, info, warn};

pub use self::notifier::DenialNotifier;
use crate::concurrency::Permit;
use crate::store::{
    Denial, DenialId, NewDenial, Shard, Store, StoreError, SubscriptionId, SubscriptionKey, TopicId,
};
use crate::waiting_work::JobQueues;

/// Stops deliveries to subscriptions that have ended.
#[async_trait]
pub trait StopDeliveries: std::fmt::Debug + Send + Sync + 'static {
    /// Returns when no delivery is under way any more to a subscription whose end is durable, and none will be.
    ///
    /// # Errors
    /// [`NotOwned`]: another hub delivers for the shard, and has not said that it has ended what was under way.
    async fn halt(&self, shard: Shard, subscription: SubscriptionId) -> Result<(), NotOwned>;
}

/// This hub does not deliver for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this hub does not deliver for shard {}", .0.0)]
pub struct NotOwned(pub Shard);

/// Denies subscriptions.
#[derive(Clone, Debug)]
pub struct Denials {
    store: Arc<dyn Store>,
    halts: Arc<dyn StopDeliveries>,
    notifier: JobQueues<PendingDenial>,
}

/// A denial whose callback is not notified yet.
#[derive(Debug)]
pub enum PendingDenial {
    /// A new one, whose texts are at hand.
    New(NewlyDenied),
    /// One that waited in a shard that was taken over.
    Recovered(DenialId, SubscriptionKey),
}

/// A new denial.
#[derive(Debug)]
pub struct NewlyDenied {
    denial: Denial,
    /// The client whose request was denied: the notification counts for it. An operator has none.
    client: Option<IpAddr>,
    /// That of the denied request: what waits to be notified counts with what waits to be verified.
    waiting: Option<Permit>,
}

impl Denials {
    /// `notifier` gets each denial of this hub's shards once it is durable.
    pub fn new(
        store: Arc<dyn Store>,
        halts: Arc<dyn StopDeliveries>,
        notifier: JobQueues<PendingDenial>,
    ) -> Self {
        Self { store, halts, notifier }
    }

    /// Denies a subscription in force, or a request that waits. When this returns true, the subscription gets nothing any more,
    /// a crash does not bring it back, and its callback will be notified. False: there was nothing to deny.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made durable; then nothing has changed.
    pub async fn deny(&self, denial: NewDenial) -> Result<bool, StoreError> {
        let Some(denial) = self.put(denial).await? else { return Ok(false) };
        self.notify(denial, None, None);
        Ok(true)
    }

    /// Ends a subscription whose record cannot be read: it gets nothing any more and does not prevent a new one, but its
    /// callback is unknown and cannot be notified. False: there is no such subscription, or it can be read.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made durable; then nothing has changed.
    pub async fn end_unreadable(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<bool, StoreError> {
        let ended = self.store.end_unreadable(shard, topic, id).await?;
        if ended {
            self.halt(shard, id).await;
            warn!(
                topic = format!("{:016x}", topic.0),
                subscription = id.0,
                "denied and removed; its record cannot be read, so its callback is not notified"
            );
        }
        Ok(ended)
    }

    /// Denies, and leaves the notification to the caller.
    pub(super) async fn put(&self, denial: NewDenial) -> Result<Option<Denial>, StoreError> {
        let Some(denial) = self.store.deny(denial).await? else { return Ok(None) };
        if let Some((shard, _, subscription)) = denial.ended {
            self.halt(shard, subscription).await;
        }
        info!(
            topic = denial.topic.as_str(),
            origin = denial.callback.origin(),
            reason = denial.reason,
            "denied"
        );
        Ok(Some(denial))
    }

    /// The subscription has ended, whatever comes of this. Where another hub that owns its shard does not answer, nobody can say whether
    /// something is still under way.
    async fn halt(&self, shard: Shard, subscription: SubscriptionId) {
        if let Err(error) = self.halts.halt(shard, subscription).await {
            error!(%error, subscription = subscription.0, "a subscription has ended, and what is under way to it was not stopped");
        }
    }

    /// Has the callback notified; this counts for the client. `waiting` is kept until then.
    pub(super) fn notify(&self, denial: Denial, client: Option<IpAddr>, waiting: Option<Permit>) {
        let shard = Shard::of(&denial.callback, self.store.shards());
        self.notifier.send(shard, PendingDenial::New(NewlyDenied { denial, client, waiting }));
    }
}
