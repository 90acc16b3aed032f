//! Asking the callback over HTTP, and what follows from its reply.

use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;
use resync_core::websub::Challenge;
use tracing::{debug, info, warn};

use super::policy::DenialCause;
use super::{Next, Task, Verification};
use crate::concurrency::Permit;
use crate::egress::{self, Answer, EgressError, NotSent, REPLY_READ, Reply};
use crate::store::{
    Activation, Confirmation, Intent, NewDenial, PendingRequest, VerifiedSubscription, VerifiedUnsubscription,
};
use crate::subscriptions::denial::Denials;
use crate::subscriptions::meters::Ending;
use crate::subscriptions::requests::Requester;
use crate::subscriptions::store_retry::until_stored;

impl Verification {
    /// Asks the callback, and acts upon its reply.
    pub(super) async fn ask_callback(
        &self,
        request: PendingRequest,
        task: Task,
        permit: Permit,
        denials: &Denials,
    ) -> Next {
        let who = task.who;
        let lease = match &request.intent {
            Intent::Subscribe { lease, .. } => Some(self.leases.grant(*lease)),
            Intent::Unsubscribe => None,
        };
        let asked_at = self.store.now();
        let again = |pause, counts, permit: Permit| {
            permit.release_shared();
            Next::Again { pause, permit, counts }
        };
        let reply = match self.ask(&request, who, lease, &permit).await {
            Ok(Reply::Unreachable(_)) if task.tries == 0 => return again(self.pause, true, permit),
            Ok(reply) => reply,
            // The hub lacks something, so this does not count as the callback's answer.
            Err(NotSent::NoFileDescriptors) => {
                warn!(
                    "verification waits: no file descriptor is left; raise the limit (LimitNOFILE, ulimit -n)"
                );
                return again(self.pause, false, permit);
            }
            Err(NotSent::RateLimited(wait)) => return again(wait.max(self.pause), false, permit),
        };
        self.meters.ended(Ending::of(&reply));
        match reply {
            Reply::Confirmed(confirmation) => {
                self.breaker.confirmed(who.client, &request.callback);
                let Some(DenialCause { reason, scope }) = self.denies(&request, who, &permit).await else {
                    self.put_in_force(request, lease, asked_at, confirmation).await;
                    return Next::Done;
                };
                let PendingRequest { topic, callback, .. } = request;
                let denial = NewDenial { topic, callback, reason, scope };
                until_stored(|| denials.put(denial.clone())).await.flatten().map_or(Next::Done, Next::Notify)
            }
            Reply::Refused(why) | Reply::Unreachable(why) => {
                self.breaker.failed(who.client, &request.callback, Instant::now());
                self.give_up(&request, &why).await;
                Next::Done
            }
        }
    }

    /// Forgets a request that was not verified.
    pub(super) async fn give_up(&self, request: &PendingRequest, why: &str) {
        let (topic, origin) = (request.topic.as_str(), request.callback.origin());
        warn!(topic, origin, why, "request not verified: nothing changes");
        until_stored(|| self.store.remove_request(request)).await;
    }

    /// One verification request with a challenge of its own (W-186).
    async fn ask(
        &self,
        request: &PendingRequest,
        who: Requester,
        lease: Option<Duration>,
        permit: &Permit,
    ) -> Result<Reply, NotSent> {
        let challenge = Challenge::random();
        let token = request.verify_token.as_ref();
        let question = egress::verification(&request.topic, &request.callback, lease, &challenge, token);
        let question = match question {
            Ok(question) => question,
            Err(error) => {
                return Ok(Reply::Refused(format!("hub.callback is no target of an HTTP request: {error}")));
            }
        };
        let answer = self.clients.of(who.client().class).send(question, REPLY_READ).await;
        note_slowness(&answer, permit);
        egress::verification_reply(answer, &challenge)
    }

    async fn put_in_force(
        &self,
        request: PendingRequest,
        lease: Option<Duration>,
        asked_at: DateTime,
        confirmation: Confirmation,
    ) {
        let (topic, origin) = (request.topic.as_str().to_owned(), request.callback.origin());
        let activation = if let Some(lease) = lease {
            let verified = VerifiedSubscription::new(request, lease, asked_at, confirmation);
            until_stored(|| self.store.activate(verified.clone())).await
        } else {
            let verified = VerifiedUnsubscription::new(request, confirmation);
            until_stored(|| self.store.deactivate(verified.clone())).await
        };
        match (activation, lease) {
            (Some(Activation::Done), Some(lease)) => {
                info!(topic, origin, lease = lease.as_secs(), "subscription in force");
            }
            (Some(Activation::Done), None) => info!(topic, origin, "subscription ended on request"),
            (Some(Activation::Superseded), _) => {
                debug!(topic, origin, "request replaced by a newer one for the same topic and callback");
            }
            (None, _) => {}
        }
    }
}

/// Remembers whether the callback timed out. If nothing was sent or nobody listened, it was neither slow nor quick.
pub(super) fn note_slowness(answer: &Result<Answer, EgressError>, permit: &Permit) {
    match answer {
        Ok(_) => permit.set_slow(false),
        Err(EgressError::Timeout(_)) => {
            permit.set_slow(true);
            permit.set_client_slow();
        }
        Err(_) => {}
    }
}
