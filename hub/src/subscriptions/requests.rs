//! Requests to subscribe and unsubscribe: checked, made durable, acknowledged, and only then acted upon (W-085, W-090).

use std::sync::Arc;

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Subscribe, TopicUrl, Unsubscribe};
use tokio::sync::mpsc;

use crate::egress::{self, Forbidden, Guard};
use crate::store::{Intent, NewRequest, PendingRequest, Store, StoreError};

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
    /// It could not be made durable, so it is not acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes requests in and hands them over to verification.
#[derive(Clone, Debug)]
pub struct Requests {
    store: Arc<dyn Store>,
    guard: Guard,
    verification: mpsc::UnboundedSender<PendingRequest>,
}

impl Requests {
    /// `verification` gets each request once it is durable.
    pub fn new(
        store: Arc<dyn Store>,
        guard: Guard,
        verification: mpsc::UnboundedSender<PendingRequest>,
    ) -> Self {
        Self { store, guard, verification }
    }

    /// Accepts a subscribe request. When this returns, a crash no longer loses it.
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn subscribe(&self, request: Subscribe) -> Result<(), NotAccepted> {
        let intent = Intent::Subscribe { lease: request.lease, secret: request.secret };
        self.accept(request.topic, request.callback, intent).await
    }

    /// Accepts an unsubscribe request, also for a pair that nobody knows: the answer must not tell who is subscribed (D-07).
    ///
    /// # Errors
    /// [`NotAccepted`], which leaves nothing behind.
    pub async fn unsubscribe(&self, request: Unsubscribe) -> Result<(), NotAccepted> {
        self.accept(request.topic, request.callback, Intent::Unsubscribe).await
    }

    async fn accept(
        &self,
        topic: TopicUrl,
        callback: CallbackUrl,
        intent: Intent,
    ) -> Result<(), NotAccepted> {
        self.guard.check_literal(callback.url())?;
        egress::target(&callback).map_err(|_| NotAccepted::Target)?;
        let request = NewRequest { topic, callback, intent, received_at: DateTime::now() };
        let pending = self.store.put_request(request).await?;
        // At shutdown nobody listens any more; the request is durable and waits for the next start.
        let _ = self.verification.send(pending);
        Ok(())
    }
}
