//! What policy and limits say of a request: before its callback is asked, and once more before what it confirmed comes into force.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use tracing::debug;

use super::{Next, Step, Task, Verification};
use crate::concurrency::Permit;
use crate::store::{DenialScope, Intent, NewDenial, PendingRequest, RequestId, StoreError};
use crate::subscriptions::bounds::Full;
use crate::subscriptions::denial::Denials;
use crate::subscriptions::meters::Ending;
use crate::subscriptions::requests::Requester;
use crate::subscriptions::store_retry::until_stored;
use crate::topics::Verdict;

/// How often the topic of a client that confirmed before is looked at. After that the request counts as not verified.
const TOPIC_TRIES: u8 = 3;
/// How long a renewal waits for policy. Its topic was accepted when it began, so no verdict means no refusal.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(30);

/// Why a confirmed request is denied all the same.
pub(super) struct DenialCause {
    pub(super) reason: String,
    pub(super) scope: DenialScope,
}

impl Verification {
    /// Policy comes first: a callback whose topic is refused is not asked but notified (W-097, W-098). Two exceptions: everybody
    /// may unsubscribe, and a renewal asks its callback first. Only the subscriber makes the hub look at the topic again, and
    /// only the subscriber can end a subscription by a request (W-062, W-102).
    pub(super) async fn first_step(&self, id: RequestId, task: Task) -> Result<Next, StoreError> {
        let Some(request) = self.store.request(id).await? else { return Ok(Next::Done) };
        let host = request.callback.url().host_str().unwrap_or_default();
        let (who, waiting) = if task.step == Step::Recover {
            let who = self.requester(&request).await?;
            (who, Some(self.waiting.force_acquire(who.client(), host)))
        } else {
            (task.who, None)
        };
        let is_accepted =
            || self.policy.known_verdict(&request.topic, who.client()) == Some(Verdict::Accepted);
        let (step, peer) = if who.in_force || request.intent == Intent::Unsubscribe || is_accepted() {
            (Step::AskCallback, request.callback.origin())
        } else {
            (Step::Resolve, request.topic.url().host_str().unwrap_or_default().to_owned())
        };
        Ok(Next::Step { who, step, peer, waiting })
    }

    /// Judges the topic, or finds the peer at which a permit is needed for that.
    pub(super) async fn check_topic(
        &self,
        request: PendingRequest,
        task: Task,
        mut permit: Permit,
        denials: &Denials,
    ) -> Next {
        let topic = &request.topic;
        let next = |step, peer| Next::Step { who: task.who, step, peer, waiting: None };
        let verdict = match (self.policy.known_verdict(topic, task.who.client()), task.step) {
            (Some(verdict), _) => verdict,
            (None, Step::Resolve) if self.policy.limiter().is_some() => {
                return next(Step::CheckTopic, self.policy.peer(topic).await);
            }
            (None, _) => self.policy.look(topic, task.who.client(), Some(&mut permit)).await,
        };
        match verdict {
            Verdict::Accepted => next(Step::AskCallback, request.callback.origin()),
            Verdict::Unknown if task.who.confirmed && task.tries + 1 < TOPIC_TRIES => {
                permit.release_shared();
                Next::Again { pause: self.pause, permit, counts: true }
            }
            Verdict::Unknown => {
                self.meters.ended(Ending::Topic);
                self.give_up(&request, "its topic could not be looked at").await;
                Next::Done
            }
            Verdict::Refused(reason) => self.refuse(request, task.who, reason, denials).await,
        }
    }

    async fn refuse(
        &self,
        request: PendingRequest,
        who: Requester,
        reason: String,
        denials: &Denials,
    ) -> Next {
        let PendingRequest { id, topic, callback, .. } = request;
        debug!(topic = topic.as_str(), origin = callback.origin(), reason, "request refused by policy");
        self.meters.ended(Ending::Topic);
        let denial = NewDenial { topic, callback: callback.clone(), reason, scope: DenialScope::Request(id) };
        match until_stored(|| denials.put(denial.clone())).await.flatten() {
            Some(denial) => {
                // Nobody there confirmed anything, so it counts for the circuit breaker like a failed verification.
                self.breaker.failed(who.client, &callback, Instant::now());
                Next::Notify(denial)
            }
            None => Next::Done,
        }
    }

    /// Why a request that its subscriber has just confirmed is denied all the same.
    pub(super) async fn denies(
        &self,
        request: &PendingRequest,
        who: Requester,
        permit: &Permit,
    ) -> Option<DenialCause> {
        if let Some(reason) = self.ends_renewal(request, who, permit).await {
            return Some(DenialCause { reason, scope: DenialScope::Confirmed(request.id) });
        }
        let full = self.is_beyond_bounds(request).await?;
        debug!(topic = request.topic.as_str(), origin = request.callback.origin(), %full, "confirmed, but a limit is reached");
        Some(DenialCause { reason: full.to_string(), scope: DenialScope::Request(request.id) })
    }

    /// The limits allowed one more subscription when the request came in. By now many others that waited may be in force.
    async fn is_beyond_bounds(&self, request: &PendingRequest) -> Option<Full> {
        let PendingRequest { topic, callback, client, .. } = request;
        if request.intent == Intent::Unsubscribe {
            return None;
        }
        match self.store.find_subscription(topic, callback).await {
            Ok(None) => self.bounds.check(self.store.as_ref(), *client, topic, callback).await.ok().flatten(),
            // A renewal adds nothing. If the store cannot tell, it cannot put anything in force either.
            Ok(Some(_)) | Err(_) => None,
        }
    }

    /// Why a renewal that its subscriber has just confirmed ends the subscription instead.
    async fn ends_renewal(
        &self,
        request: &PendingRequest,
        who: Requester,
        permit: &Permit,
    ) -> Option<String> {
        if !who.in_force || request.intent == Intent::Unsubscribe {
            return None;
        }
        let Ok(_judged) = self.renewals.try_acquire() else { return None };
        // A slow topic must not hold up other callbacks.
        permit.release_shared();
        match timeout(RENEWAL_PATIENCE, self.policy.judge(&request.topic, who.client())).await {
            Ok(Verdict::Refused(reason)) => Some(reason),
            Ok(Verdict::Accepted | Verdict::Unknown) | Err(_) => None,
        }
    }
}
