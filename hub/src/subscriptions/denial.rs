//! Denials: a subscription that is not accepted, or no longer, ends at once, and its callback is told (W-098 to W-102).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::websub;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::queues::Queues;
use crate::delivery::Halts;
use crate::egress::{self, EgressClient, EgressError, ReadLimit};
use crate::store::{Denial, NewDenial, Store, StoreError};

/// An answer means nothing, so little of it is read.
const ANSWER_READ: usize = 4 * 1024;
/// Pauses before a callback that could not be reached is told again (D-08).
const AGAIN_AFTER: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1_800),
];
/// A callback that never confirmed anything is not asked for more than a verification would (B-33).
const AGAIN_WHERE_NEVER_CONFIRMED: usize = 1;
/// When the store does not answer, it is asked again.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Denies subscriptions.
#[derive(Clone, Debug)]
pub struct Denials {
    store: Arc<dyn Store>,
    halts: Halts,
    telling: mpsc::UnboundedSender<Denial>,
}

impl Denials {
    /// `telling` gets each denial once it is durable.
    pub fn new(store: Arc<dyn Store>, halts: Halts, telling: mpsc::UnboundedSender<Denial>) -> Self {
        Self { store, halts, telling }
    }

    /// Denies a subscription in force, or a request that waits. When this returns true, the subscription gets nothing any more,
    /// a crash does not bring it back, and its callback is going to be told. False: there was nothing to deny.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made durable; then nothing has changed.
    pub async fn deny(&self, denial: NewDenial) -> Result<bool, StoreError> {
        let Some(denial) = self.store.deny(denial).await? else { return Ok(false) };
        if let Some((shard, _, subscription)) = denial.ended {
            self.halts.halt(shard, subscription).await;
        }
        info!(
            topic = denial.topic.as_str(),
            origin = denial.callback.origin(),
            reason = denial.reason,
            "denied"
        );
        // At shutdown nobody listens any more; the denial is durable and waits for the next start.
        let _ = self.telling.send(denial);
        Ok(true)
    }
}

/// Tells callbacks that they were denied, many at once.
#[derive(Clone, Debug)]
pub struct Telling {
    store: Arc<dyn Store>,
    client: EgressClient,
    queues: Queues,
}

impl Telling {
    pub(super) fn new(store: Arc<dyn Store>, client: EgressClient, queues: Queues) -> Self {
        Self { store, client, queues }
    }

    /// Tells whatever comes, until `stop` turns true. What is not told by then waits in the store for the next start.
    pub async fn run(self, denials: mpsc::UnboundedReceiver<Denial>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.tell_all(denials) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn tell_all(&self, mut denials: mpsc::UnboundedReceiver<Denial>) {
        let mut tasks = JoinSet::new();
        while let Some(denial) = denials.recv().await {
            let telling = self.clone();
            tasks.spawn(async move { telling.tell(&denial).await });
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn tell(&self, denial: &Denial) {
        let again = if denial.ended.is_some() { AGAIN_AFTER.len() } else { AGAIN_WHERE_NEVER_CONFIRMED };
        let mut pauses = AGAIN_AFTER.iter().take(again);
        while self.is_true_still(denial).await {
            let Err(why) = self.tell_once(denial).await else { break };
            let origin = denial.callback.origin();
            let Some(pause) = pauses.next() else {
                warn!(
                    topic = denial.topic.as_str(),
                    origin, why, "denied, but the callback could not be told"
                );
                break;
            };
            debug!(topic = denial.topic.as_str(), origin, why, "the callback is told again later");
            sleep(*pause).await;
        }
        while let Err(error) = self.store.remove_denial(denial).await {
            tracing::error!(%error, "the store does not take that a denial was told, trying again");
            sleep(STORE_AGAIN_AFTER).await;
        }
    }

    /// Whoever has subscribed anew since must not be told that it has been denied.
    async fn is_true_still(&self, denial: &Denial) -> bool {
        loop {
            match self.store.find_subscription(&denial.topic, &denial.callback).await {
                Ok(subscription) => return subscription.is_none(),
                Err(error) => tracing::error!(%error, "a denial waits for the store"),
            }
            sleep(STORE_AGAIN_AFTER).await;
        }
    }

    /// Any answer will do (D-08); otherwise why there was none.
    async fn tell_once(&self, denial: &Denial) -> Result<(), String> {
        let request = match telling(denial) {
            Ok(request) => request,
            Err(error) => {
                warn!(origin = denial.callback.origin(), %error, "the callback is no target of a request");
                return Ok(());
            }
        };
        let _turn = self.queues.place(&denial.callback).await;
        match self.client.send(request, ReadLimit::Discard(ANSWER_READ)).await {
            Ok(_) => Ok(()),
            Err(EgressError::Forbidden(forbidden)) => {
                warn!(origin = denial.callback.origin(), %forbidden, "the callback is not told");
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn telling(denial: &Denial) -> Result<Request<Full<Bytes>>, http::Error> {
    let denied = websub::Verification::Denied {
        topic: denial.topic.as_str().to_owned(),
        reason: Some(denial.reason.clone()).filter(|reason| !reason.is_empty()),
    };
    Request::get(denied.to_url(&denial.callback))
        .header(USER_AGENT, egress::USER_AGENT)
        .body(Full::new(Bytes::new()))
}
