//! Requests to subscribe and unsubscribe: checked, made durable, acknowledged, and only then acted upon (W-085, W-090).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Subscribe, TopicUrl, Unsubscribe};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::resting::Resting;
use crate::buckets::network;
use crate::egress::{self, Forbidden, Guard};
use crate::store::{Intent, NewRequest, PendingRequest, Store, StoreError};

/// Requests that may wait for verification; each takes about a kilobyte of memory.
const WAITING: usize = 50_000;

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
    /// More requests wait for verification than the hub can hold.
    #[error("too many requests wait for verification: try again later")]
    Busy,
    /// It could not be made durable, so it is not acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How well the hub knows a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquaintance {
    /// It has a subscription to the topic.
    InForce,
    /// Somebody at its host has confirmed since the start, or has renewed.
    KnownHost,
    /// Not at all.
    Stranger,
}

/// Takes requests in and hands them over to verification.
#[derive(Clone, Debug)]
pub struct Requests {
    store: Arc<dyn Store>,
    guard: Guard,
    resting: Resting,
    verification: mpsc::UnboundedSender<Waiting>,
    places: Arc<Semaphore>,
}

/// A request on its way to verification.
#[derive(Debug)]
pub struct Waiting {
    pub(super) request: PendingRequest,
    /// Whose request it is; forgotten by a restart.
    pub(super) client: Option<IpAddr>,
    /// What an earlier life left undone came in before there were places.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl Waiting {
    /// A request that an earlier life left undone.
    pub fn left(request: PendingRequest) -> Self {
        Self { request, client: None, place: None }
    }
}

impl Requests {
    /// `verification` gets each request once it is durable.
    pub fn new(
        store: Arc<dyn Store>,
        guard: Guard,
        resting: Resting,
        verification: mpsc::UnboundedSender<Waiting>,
    ) -> Self {
        Self { store, guard, resting, verification, places: Arc::new(Semaphore::new(WAITING)) }
    }

    /// How well the hub knows this callback.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be read.
    pub async fn acquaintance(
        &self,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<Acquaintance, StoreError> {
        if self.store.find_subscription(topic, callback).await?.is_some() {
            self.resting.in_force(callback);
            return Ok(Acquaintance::InForce);
        }
        let known = self.resting.is_known(callback);
        Ok(if known { Acquaintance::KnownHost } else { Acquaintance::Stranger })
    }

    /// Accepts a subscribe request of this client. When this returns, a crash no longer loses it.
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn subscribe(&self, client: IpAddr, request: Subscribe) -> Result<(), NotAccepted> {
        let intent = Intent::Subscribe { lease: request.lease, secret: request.secret };
        self.accept(client, request.topic, request.callback, intent).await
    }

    /// Accepts an unsubscribe request, also for a pair that nobody knows: the answer must not tell who is subscribed (D-07).
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn unsubscribe(&self, client: IpAddr, request: Unsubscribe) -> Result<(), NotAccepted> {
        self.accept(client, request.topic, request.callback, Intent::Unsubscribe).await
    }

    async fn accept(
        &self,
        client: IpAddr,
        topic: TopicUrl,
        callback: CallbackUrl,
        intent: Intent,
    ) -> Result<(), NotAccepted> {
        self.guard.check_literal(callback.url())?;
        egress::target(&callback).map_err(|_| NotAccepted::Target)?;
        // Nobody may keep others from renewing by making their host look bad.
        let client = Some(network(client));
        if let Some(wait) = self.resting.wait(client, &callback, Instant::now())
            && self.acquaintance(&topic, &callback).await? != Acquaintance::InForce
        {
            return Err(NotAccepted::Resting { wait });
        }
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| NotAccepted::Busy)?;
        let request = NewRequest { topic, callback, intent, received_at: DateTime::now() };
        let pending = self.store.put_request(request).await?;
        // At shutdown nobody listens any more; the request is durable and waits for the next start.
        let _ = self.verification.send(Waiting { request: pending, client, place: Some(place) });
        Ok(())
    }
}
