//! Requests to subscribe and unsubscribe: checked, made durable, acknowledged, and only then acted upon (W-085, W-090).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resync_core::address::customer;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Subscribe, TopicUrl, Unsubscribe};
use tokio::sync::mpsc;

use super::bounds::{Bounds, Full};
use super::resting::Resting;
use crate::buckets::network;
use crate::egress::{self, Forbidden, Guard};
use crate::places::{Asker, Lane, Place, Places};
use crate::store::{Intent, NewRequest, RequestId, Store, StoreError};

/// What a request takes on its way to verification. Each has a place to wait, so that there are no more of them than of those.
const ON_ITS_WAY_BYTES: usize = 48;
const _: () = assert!(size_of::<Waiting>() <= ON_ITS_WAY_BYTES);

/// Why a well-formed request is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum NotAccepted {
    /// The callback names an address that this hub does not contact (W-089, D-20).
    #[error("hub.callback cannot be used: {0}")]
    Callback(#[from] Forbidden),
    /// The callback is no target of an HTTP request.
    #[error(
        "hub.callback cannot be used: it is no target of an HTTP request; percent-encode what is not allowed in a URL"
    )]
    Target,
    /// Too many verifications at the callback's host have failed of late.
    #[error("callbacks on this host have not confirmed anything for {FAILURES} times in a row: it is asked again after the seconds in Retry-After", FAILURES = super::resting::FAILURES)]
    Resting {
        /// How much longer it is left alone.
        wait: Duration,
    },
    /// More requests wait for verification than the hub can hold, at all or for this client or host.
    #[error("too many requests wait for verification: try again later")]
    Busy,
    /// The client, or all clients, have as much as the hub keeps for them.
    #[error(transparent)]
    Full(#[from] Full),
    /// It could not be made durable, so it is not acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who asks, and how well the hub knows it. This is settled once, when the request comes in, and decides by whose share of
/// everything it is counted from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquaintance {
    /// The client's network.
    pub client: Option<IpAddr>,
    /// The request is about a subscription in force.
    pub in_force: bool,
    /// Of what this client has asked for on the callback's host, something was confirmed since the start. A subscriber renews
    /// from where it subscribed, so what others do in its name is not held against it.
    pub confirmed: bool,
}

impl Acquaintance {
    /// Among whom the request waits.
    pub(super) fn asker(&self) -> Asker {
        let lane = if self.in_force || self.confirmed { Lane::Known } else { Lane::Stranger };
        Asker { client: self.client, lane }
    }
}

/// Takes requests in and hands them over to verification.
#[derive(Clone, Debug)]
pub struct Requests {
    store: Arc<dyn Store>,
    guard: Guard,
    resting: Resting,
    bounds: Bounds,
    verification: mpsc::UnboundedSender<Waiting>,
    places: Places,
}

/// A request on its way to verification, whose texts are in the store.
#[derive(Debug)]
pub struct Waiting {
    pub(super) id: RequestId,
    /// `None`: an earlier life left it undone.
    pub(super) who: Option<Acquaintance>,
    /// That of what waits in all.
    pub(super) place: Place,
}

impl Requests {
    /// `verification` gets each request once it is durable, and `places` are those of what may wait for it.
    pub fn new(
        store: Arc<dyn Store>,
        guard: Guard,
        resting: Resting,
        bounds: Bounds,
        verification: mpsc::UnboundedSender<Waiting>,
        places: Places,
    ) -> Self {
        Self { store, guard, resting, bounds, verification, places }
    }

    /// How well the hub knows this client as one who asks about this callback.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be read.
    pub async fn acquaintance(
        &self,
        client: IpAddr,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<Acquaintance, StoreError> {
        let client = Some(network(client));
        let in_force = self.store.find_subscription(topic, callback).await?.is_some();
        if in_force {
            self.resting.in_force(client, callback);
        }
        Ok(Acquaintance { client, in_force, confirmed: self.resting.has_confirmed(client, callback) })
    }

    /// Accepts a subscribe request. When this returns, a crash no longer loses it.
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn subscribe(&self, who: Acquaintance, request: Subscribe) -> Result<(), NotAccepted> {
        let intent = Intent::Subscribe { lease: request.lease, secret: request.secret };
        self.accept(who, request.topic, request.callback, intent).await
    }

    /// Accepts an unsubscribe request, also for a pair that nobody knows: the answer must not tell who is subscribed (D-07).
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn unsubscribe(&self, who: Acquaintance, request: Unsubscribe) -> Result<(), NotAccepted> {
        self.accept(who, request.topic, request.callback, Intent::Unsubscribe).await
    }

    async fn accept(
        &self,
        who: Acquaintance,
        topic: TopicUrl,
        callback: CallbackUrl,
        intent: Intent,
    ) -> Result<(), NotAccepted> {
        self.guard.check_literal(callback.url())?;
        egress::target(&callback).map_err(|_| NotAccepted::Target)?;
        // Nobody may keep others from renewing by making their host look bad.
        if !who.in_force
            && let Some(wait) = self.resting.wait(who.client, &callback, Instant::now())
        {
            return Err(NotAccepted::Resting { wait });
        }
        if !who.in_force && intent != Intent::Unsubscribe {
            self.bounds.check(self.store.as_ref(), who.client, &topic, &callback)?;
        }
        let host = callback.url().host_str().unwrap_or_default();
        let place = self.places.try_place(who.asker(), host).ok_or(NotAccepted::Busy)?;
        let client = who.client.map(customer);
        let request = NewRequest { topic, callback, intent, received_at: DateTime::now(), client };
        let request = self.store.put_request(request).await?;
        // At shutdown nobody listens any more; the request is durable and waits for the next start.
        let _ = self.verification.send(Waiting { id: request.id, who: Some(who), place });
        Ok(())
    }
}
