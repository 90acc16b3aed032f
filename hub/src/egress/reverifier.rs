//! Asks an unconfirmed address over HTTP whether it wants the subscription that is in force (W-065).
//!
//! Only the challenge is a confirmation. Any other answer changes nothing: subscription, secret and lease stay (W-062).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use resync_core::datetime::DateTime;
use resync_core::websub::{Challenge, SigningKey, X_HUB_QUERY_SIGNATURE, sign_query};
use tracing::debug;

use super::client::{EgressClient, EgressError};
use super::rebinding::Reverification;
use super::verification::{NotSent, REPLY_READ, Reply, verification, verification_reply};
use crate::config::SignatureConfig;
use crate::store::Subscription;

const SIGNATURE: HeaderName = HeaderName::from_static(X_HUB_QUERY_SIGNATURE);

/// What came of a re-verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reverified {
    /// The address confirmed: it may be sent everything.
    Confirmed(IpAddr),
    /// It gave another answer.
    Refused,
    /// Nobody was reached.
    Unreachable,
    /// It was not asked, for a reason that is the hub's.
    NotSent,
}

/// Asks unconfirmed addresses.
#[derive(Clone, Debug)]
pub(crate) struct Reverifier {
    client: EgressClient,
    signature: Arc<SignatureConfig>,
}

impl Reverifier {
    pub(crate) fn new(client: EgressClient, signature: Arc<SignatureConfig>) -> Self {
        Self { client, signature }
    }

    /// Asks the address of this re-verification whether it wants this subscription, and remembers what it said.
    pub(crate) async fn ask(
        &self,
        subscription: &Subscription,
        mut reverification: Reverification,
    ) -> Reverified {
        let challenge = Challenge::random();
        let Some(request) = self.request(subscription, &challenge, reverification.now()) else {
            reverification.withdraw();
            return Reverified::NotSent;
        };
        let answer = self.client.send_reverification(&mut reverification, request, REPLY_READ).await;
        let is_ours = matches!(answer, Err(EgressError::NoRoute(_)));
        let reply = match verification_reply(answer, &challenge) {
            Ok(reply) if !is_ours => reply,
            Ok(_) | Err(NotSent::NoFileDescriptors | NotSent::RateLimited(_)) => {
                reverification.withdraw();
                return Reverified::NotSent;
            }
        };
        let address = reverification.address();
        debug!(subscription = subscription.id.0, %address, ?reply, "unconfirmed address re-verified");
        match reply {
            Reply::Confirmed(_) => {
                reverification.confirmed(subscription.lease_end);
                Reverified::Confirmed(address)
            }
            Reply::Refused(_) => {
                reverification.refused();
                Reverified::Refused
            }
            Reply::Unreachable(_) => {
                reverification.unreachable();
                Reverified::Unreachable
            }
        }
    }

    /// The request with what is left of the lease (W-111); `None` if nothing is left.
    fn request(
        &self,
        subscription: &Subscription,
        challenge: &Challenge,
        now: DateTime,
    ) -> Option<Request<Full<Bytes>>> {
        let Subscription { topic_url, callback, lease_end, secret, .. } = subscription;
        let left = lease_end.to_system_time().duration_since(now.to_system_time()).ok();
        let left = left.filter(|left| *left >= Duration::from_secs(1))?;
        let mut request = verification(topic_url, callback, Some(left), challenge, None).ok()?;
        if let Some(secret) = secret {
            let host = callback.url().host_str().unwrap_or_default();
            let key = SigningKey::new(self.signature.method_for(host), secret);
            let signature = sign_query(&key, request.uri().query().unwrap_or_default()).to_string();
            let signature = HeaderValue::from_maybe_shared(Bytes::from(signature)).ok()?;
            request.headers_mut().insert(SIGNATURE, signature);
        }
        Some(request)
    }
}
