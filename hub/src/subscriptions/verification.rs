//! Verification of intent: asking the callback whether its owner meant the request (WebSub section 5.3).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{Request, Uri};
use http_body_util::Full;
use resync_core::datetime::DateTime;
use resync_core::websub::{self, Challenge};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::lease::LeasePolicy;
use super::verified::{VerifiedSubscription, VerifiedUnsubscription};
use crate::egress::{self, EgressClient, ReadLimit};
use crate::store::{Activation, Intent, PendingRequest, Store, StoreError};

/// A challenge is 64 characters; whoever answers more than this is not confirming.
const ANSWER_READ: usize = 4 * 1024;
/// Verifications at once.
const AT_ONCE: usize = 256;
/// An unreachable callback is asked once more after this pause; an answer, whatever it says, is final (C-08).
const SECOND_TRY_AFTER: Duration = Duration::from_secs(5);
/// When the store does not take the result, it is offered again.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What the callback said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Confirmed,
    Refused(String),
    Unreachable(String),
}

/// Verifies pending requests, many at once.
#[derive(Clone, Debug)]
pub struct Verification {
    store: Arc<dyn Store>,
    client: EgressClient,
    leases: LeasePolicy,
}

impl Verification {
    /// `client` is the one way out.
    pub fn new(store: Arc<dyn Store>, client: EgressClient, leases: LeasePolicy) -> Self {
        Self { store, client, leases }
    }

    /// Verifies `waiting` and then whatever comes, until `stop` turns true. Requests that are under way then stay pending in
    /// the store and are verified at the next start.
    pub async fn run(
        self,
        waiting: Vec<PendingRequest>,
        requests: mpsc::UnboundedReceiver<PendingRequest>,
        mut stop: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.verify_all(waiting, requests) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn verify_all(
        &self,
        waiting: Vec<PendingRequest>,
        mut requests: mpsc::UnboundedReceiver<PendingRequest>,
    ) {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        let mut waiting = waiting.into_iter();
        loop {
            let next = match waiting.next() {
                Some(request) => Some(request),
                None => requests.recv().await,
            };
            let Some(request) = next else { break };
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { break };
            let verification = self.clone();
            tasks.spawn(async move {
                verification.verify(request).await;
                drop(permit);
            });
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn verify(&self, request: PendingRequest) {
        let lease = match &request.intent {
            Intent::Subscribe { lease, .. } => Some(self.leases.grant(*lease)),
            Intent::Unsubscribe => None,
        };
        let mut asked_at = DateTime::now();
        let mut reply = self.ask(&request, lease).await;
        if matches!(reply, Reply::Unreachable(_)) {
            sleep(SECOND_TRY_AFTER).await;
            asked_at = DateTime::now();
            reply = self.ask(&request, lease).await;
        }
        let origin = request.callback.origin();
        match reply {
            Reply::Confirmed => self.put_in_force(request, lease, asked_at).await,
            Reply::Refused(why) | Reply::Unreachable(why) => {
                warn!(topic = %request.topic.as_str(), origin, why, "request not verified: nothing changes");
                self.until_stored(|| self.store.remove_request(&request)).await;
            }
        }
    }

    /// One verification request with a challenge of its own (W-186).
    async fn ask(&self, request: &PendingRequest, lease: Option<Duration>) -> Reply {
        let challenge = Challenge::random();
        let uri: Uri = match url(request, lease, &challenge).parse() {
            Ok(uri) => uri,
            Err(error) => return Reply::Refused(format!("the callback cannot be asked: {error}")),
        };
        let asking = Request::get(uri).header(USER_AGENT, egress::USER_AGENT).body(Full::new(Bytes::new()));
        let asking = match asking {
            Ok(asking) => asking,
            Err(error) => return Reply::Refused(format!("the callback cannot be asked: {error}")),
        };
        match self.client.send(asking, ReadLimit::Keep(ANSWER_READ)).await {
            Ok(answer) if !answer.status.is_success() => {
                Reply::Refused(format!("the callback answered {} instead of 2xx", answer.status.as_u16()))
            }
            Ok(answer) if answer.body != challenge.as_str().as_bytes() => {
                Reply::Refused("the callback's answer is not the challenge".to_owned())
            }
            Ok(_) => Reply::Confirmed,
            Err(error @ (egress::EgressError::Forbidden(_) | egress::EgressError::TooLarge(_))) => {
                Reply::Refused(error.to_string())
            }
            Err(error) => Reply::Unreachable(error.to_string()),
        }
    }

    async fn put_in_force(&self, request: PendingRequest, lease: Option<Duration>, asked_at: DateTime) {
        let (topic, origin) = (request.topic.as_str().to_owned(), request.callback.origin());
        let activation = if let Some(lease) = lease {
            let verified = VerifiedSubscription::new(request, lease, asked_at);
            self.until_stored(|| self.store.activate(verified.clone())).await
        } else {
            let verified = VerifiedUnsubscription::new(request);
            self.until_stored(|| self.store.deactivate(verified.clone())).await
        };
        match (activation, lease) {
            (Activation::Done, Some(lease)) => {
                info!(topic, origin, lease = lease.as_secs(), "subscription in force");
            }
            (Activation::Done, None) => info!(topic, origin, "subscription ended on request"),
            (Activation::Superseded, _) => {
                debug!(topic, origin, "a newer request for the same pair is under way");
            }
        }
    }

    /// The subscriber has confirmed: that must not be lost because the disk is full for a moment.
    async fn until_stored<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        mut operation: impl FnMut() -> F,
    ) -> T {
        loop {
            match operation().await {
                Ok(done) => return done,
                Err(error) => {
                    tracing::error!(%error, "the result of a verification is not stored, trying again");
                    sleep(STORE_AGAIN_AFTER).await;
                }
            }
        }
    }
}

fn url(request: &PendingRequest, lease: Option<Duration>, challenge: &Challenge) -> String {
    let (topic, challenge) = (request.topic.as_str().to_owned(), challenge.clone());
    let verification = match lease {
        Some(lease) => websub::Verification::Subscribe { topic, challenge, lease: lease.as_secs() },
        None => websub::Verification::Unsubscribe { topic, challenge, lease: None },
    };
    verification.to_url(&request.callback)
}
