//! Verification of intent: asking the callback whether its owner meant the request (WebSub section 5.3).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::datetime::DateTime;
use resync_core::websub::{self, Challenge};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::denial::{Denials, Telling};
use super::lease::LeasePolicy;
use super::policy::{TopicPolicy, Verdict};
use super::queues::Queues;
use super::requests::Waiting;
use super::resting::Resting;
use super::verified::{VerifiedSubscription, VerifiedUnsubscription};
use crate::egress::{self, EgressClient, EgressError, ReadLimit};
use crate::store::{Activation, Intent, NewDenial, PendingRequest, Store, StoreError};

/// A challenge is 64 characters; whoever answers more than this is not confirming.
const ANSWER_READ: usize = 4 * 1024;
/// An unreachable callback is asked once more after this pause; an answer, whatever it says, is final (C-08).
const SECOND_TRY_AFTER: Duration = Duration::from_secs(5);
/// How often a topic is looked at, with that pause between, before what cannot be told counts as not verified.
const POLICY_TRIES: usize = 3;
/// How often a stranger's request waits for its turn at a crowded network before it is dropped.
const CROWDED_TRIES: usize = 30;
/// When the store does not take the result, it is offered again.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What the callback said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Confirmed,
    Refused(String),
    Unreachable(String),
    /// Others kept it from being asked, so that nothing is held against it or its client.
    Crowded,
}

/// Nothing was asked, for reasons that lie here.
enum NotAsked {
    /// No file descriptor is left.
    Exhausted,
    /// Strangers have asked for too much at the callback's network.
    Crowded(Duration),
}

/// Verifies pending requests, many at once.
#[derive(Clone, Debug)]
pub struct Verification {
    store: Arc<dyn Store>,
    client: EgressClient,
    strangers: EgressClient,
    leases: LeasePolicy,
    resting: Resting,
    policy: Arc<dyn TopicPolicy>,
    queues: Queues,
}

impl Verification {
    /// `client` is the one way out, `strangers` the same for callbacks that nobody knows.
    pub fn new(
        store: Arc<dyn Store>,
        (client, strangers): (EgressClient, EgressClient),
        leases: LeasePolicy,
        resting: Resting,
        policy: Arc<dyn TopicPolicy>,
    ) -> Self {
        Self { store, client, strangers, leases, resting, policy, queues: Queues::default() }
    }

    /// What tells callbacks about denials, in the same queues.
    pub fn telling(&self) -> Telling {
        let clients = (self.client.clone(), self.strangers.clone());
        Telling::new(Arc::clone(&self.store), clients, self.queues.clone())
    }

    /// Verifies whatever comes, until `stop` turns true; what policy refuses goes to `denials`. Requests that are under way then stay pending in
    /// the store and are verified at the next start.
    pub async fn run(
        self,
        requests: mpsc::UnboundedReceiver<Waiting>,
        denials: Denials,
        mut stop: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.verify_all(requests, &denials) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn verify_all(&self, mut requests: mpsc::UnboundedReceiver<Waiting>, denials: &Denials) {
        let mut tasks = JoinSet::new();
        while let Some(waiting) = requests.recv().await {
            self.queues.newest(&waiting.request);
            let (verification, denials) = (self.clone(), denials.clone());
            tasks.spawn(async move { verification.judge(waiting, &denials).await });
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Policy first: whoever is not accepted is not asked but told (W-097, W-098). Everybody may unsubscribe.
    async fn judge(&self, waiting: Waiting, denials: &Denials) {
        let Waiting { request, client, mut place } = waiting;
        let in_force =
            || self.until_stored(|| self.store.find_subscription(&request.topic, &request.callback));
        let reason = match self.verdict(&request).await {
            Verdict::Accepted => return self.verify(request, client, None).await,
            // Its topic was accepted when it began, and a Source that is away for a while is when a hub is needed.
            Verdict::Unknown if in_force().await.is_some() => {
                return self.verify(request, client, None).await;
            }
            Verdict::Refused(reason) => reason,
            Verdict::Unknown => {
                self.queues.done(&request);
                return self.give_up(&request, "the topic cannot be judged").await;
            }
        };
        let (topic, origin) = (request.topic.as_str(), request.callback.origin());
        debug!(topic, origin, reason, "request refused by policy");
        if in_force().await.is_some() {
            return self.verify(request, client, Some((reason, denials))).await;
        }
        self.queues.done(&request);
        let PendingRequest { id, topic, callback, .. } = request;
        let denial = NewDenial { topic, callback: callback.clone(), reason, request: Some(id) };
        let mut told = false;
        while let Err(error) = denials.deny_in(denial.clone(), &mut place).await.map(|denied| told = denied) {
            self.store_again(&error).await;
        }
        if told {
            // Nobody there has confirmed anything, and it is asked for nothing more often than a verification would.
            self.resting.failed(client, &callback, Instant::now());
        }
    }

    async fn verdict(&self, request: &PendingRequest) -> Verdict {
        if request.intent == Intent::Unsubscribe {
            return Verdict::Accepted;
        }
        for _ in 1..POLICY_TRIES {
            match self.policy.judge(&request.topic).await {
                Verdict::Unknown if self.queues.is_newest(request) => sleep(SECOND_TRY_AFTER).await,
                verdict => return verdict,
            }
        }
        self.policy.judge(&request.topic).await
    }

    /// Asks the callback, and acts upon what it says. A renewal that policy refuses comes here too: only its subscriber can end
    /// a subscription in force by a request, and then it is told why (W-062, W-098, W-102).
    async fn verify(
        &self,
        request: PendingRequest,
        client: Option<IpAddr>,
        refused: Option<(String, &Denials)>,
    ) {
        let lease = match &request.intent {
            Intent::Subscribe { lease, .. } => Some(self.leases.grant(*lease)),
            Intent::Unsubscribe => None,
        };
        let Some((asked_at, reply)) = self.ask_patiently(&request, lease).await else {
            return debug!(topic = request.topic.as_str(), "a newer request for the same pair has come in");
        };
        self.queues.done(&request);
        match reply {
            Reply::Confirmed => {
                self.resting.confirmed(client, &request.callback);
                match refused {
                    None => self.put_in_force(request, lease, asked_at).await,
                    Some((reason, denials)) => {
                        let PendingRequest { topic, callback, .. } = request;
                        let denial = NewDenial { topic, callback, reason, request: None };
                        self.until_stored(|| denials.deny(denial.clone())).await;
                    }
                }
            }
            Reply::Crowded => {
                self.give_up(&request, "strangers ask for too much at the callback's network").await;
            }
            Reply::Refused(why) | Reply::Unreachable(why) => {
                self.resting.failed(client, &request.callback, Instant::now());
                self.give_up(&request, &why).await;
            }
        }
    }

    async fn give_up(&self, request: &PendingRequest, why: &str) {
        let (topic, origin) = (request.topic.as_str(), request.callback.origin());
        warn!(topic, origin, why, "request not verified: nothing changes");
        self.until_stored(|| self.store.remove_request(request)).await;
    }

    /// Asks when it is this origin's turn, and an unreachable callback once more. `None`: a newer request for the same pair has
    /// come in, which is asked about instead.
    async fn ask_patiently(
        &self,
        request: &PendingRequest,
        lease: Option<Duration>,
    ) -> Option<(DateTime, Reply)> {
        let (mut first, mut crowded) = (true, 0);
        let by = self.way_out(request).await;
        loop {
            let turn = self.queues.turn(request).await?;
            let asked_at = DateTime::now();
            let reply = self.ask(by, request, lease).await;
            drop(turn);
            match reply {
                Ok(Reply::Unreachable(_)) if first => first = false,
                Ok(reply) => return Some((asked_at, reply)),
                // The shortage is here, so it does not count as the callback's answer.
                Err(NotAsked::Exhausted) => warn!("verification waits: no file descriptor is left"),
                Err(NotAsked::Crowded(wait)) if crowded < CROWDED_TRIES => {
                    crowded += 1;
                    sleep(wait).await;
                }
                Err(NotAsked::Crowded(_)) => {
                    return Some((asked_at, Reply::Crowded));
                }
            }
            sleep(SECOND_TRY_AFTER).await;
        }
    }

    /// Whoever has a subscription, or neighbours that have one, is not held up by strangers.
    async fn way_out(&self, request: &PendingRequest) -> &EgressClient {
        let known = self.resting.is_known(&request.callback)
            || matches!(self.store.find_subscription(&request.topic, &request.callback).await, Ok(Some(_)));
        if known { &self.client } else { &self.strangers }
    }

    /// One verification request with a challenge of its own (W-186).
    async fn ask(
        &self,
        by: &EgressClient,
        request: &PendingRequest,
        lease: Option<Duration>,
    ) -> Result<Reply, NotAsked> {
        let challenge = Challenge::random();
        let asking = match asking(request, lease, &challenge) {
            Ok(asking) => asking,
            Err(error) => return Ok(Reply::Refused(format!("the callback cannot be asked: {error}"))),
        };
        Ok(match by.send(asking, ReadLimit::Keep(ANSWER_READ)).await {
            Ok(answer) if !answer.status.is_success() => {
                Reply::Refused(format!("the callback answered {} instead of 2xx", answer.status.as_u16()))
            }
            Ok(answer) if answer.body != challenge.as_str().as_bytes() => {
                Reply::Refused("the callback's answer is not the challenge".to_owned())
            }
            Ok(_) => Reply::Confirmed,
            Err(EgressError::Exhausted) => return Err(NotAsked::Exhausted),
            Err(EgressError::Crowded(wait)) => return Err(NotAsked::Crowded(wait)),
            Err(error @ (EgressError::Forbidden(_) | EgressError::TooLarge(_) | EgressError::Compressed)) => {
                Reply::Refused(error.to_string())
            }
            Err(error) => Reply::Unreachable(error.to_string()),
        })
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
                Err(error) => self.store_again(&error).await,
            }
        }
    }

    async fn store_again(&self, error: &StoreError) {
        tracing::error!(%error, "the result of a verification is not stored, trying again");
        sleep(STORE_AGAIN_AFTER).await;
    }
}

fn asking(
    request: &PendingRequest,
    lease: Option<Duration>,
    challenge: &Challenge,
) -> Result<Request<Full<Bytes>>, http::Error> {
    Request::get(url(request, lease, challenge))
        .header(USER_AGENT, egress::USER_AGENT)
        .body(Full::new(Bytes::new()))
}

fn url(request: &PendingRequest, lease: Option<Duration>, challenge: &Challenge) -> String {
    let (topic, challenge) = (request.topic.as_str().to_owned(), challenge.clone());
    let verification = match lease {
        Some(lease) => websub::Verification::Subscribe { topic, challenge, lease: lease.as_secs() },
        None => websub::Verification::Unsubscribe { topic, challenge, lease: None },
    };
    verification.to_url(&request.callback)
}
