//! Test deliveries, which a subscriber asks for to see what its callback answers. They go out like all others, by a client of their
//! own, and ask unconfirmed addresses first as these do: nothing waits for them, nothing is recorded of them, and no progress moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use resync_core::datetime::DateTime;

use super::attempt_log::AttemptOutcome;
use super::delivery_request::test_request;
use super::meters::Meters;
use super::prepared::{InvalidCallback, PreparedRecipient};
use super::send::REVERIFICATIONS;
use super::settings::Settings;
use crate::config::SignatureConfig;
use crate::egress::{
    Answer, EgressClient, EgressError, Guard, ReadLimit, Reverified, Reverifier, Route, Withheld,
};
use crate::store::{ContentKind, Notification, NotificationLinks, Offset, Recipient, Subscription, TopicId};

/// More of an answer is not even read (W-156).
const ANSWER_READ: ReadLimit = ReadLimit::Discard(16 * 1024);
/// Connections that are kept for tests.
const CONNECTIONS: usize = 16;

/// Sends test deliveries.
#[derive(Clone, Debug)]
pub struct TestSender {
    client: EgressClient,
    signature: Arc<SignatureConfig>,
    reverifier: Reverifier,
    meters: Meters,
}

/// What came of a test delivery.
#[derive(Clone, Copy, Debug)]
pub struct TestDelivery {
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What was answered.
    pub status: Option<StatusCode>,
    /// How long the answer took.
    pub took: Duration,
}

impl TestSender {
    /// Sends behind the same guard, within the same times and with the same signatures as deliveries. Re-verifications are counted here.
    pub(crate) fn new(guard: Guard, settings: &Settings, meters: Meters) -> Self {
        let client = EgressClient::new(guard, settings.connect_timeout, settings.timeout, 1)
            .limiting_unconfirmed(settings.confirmed.clone())
            .with_connections(CONNECTIONS);
        Self::by(client, Arc::clone(&settings.signature), meters)
    }

    fn by(client: EgressClient, signature: Arc<SignatureConfig>, meters: Meters) -> Self {
        let reverifier = Reverifier::new(client.clone(), Arc::clone(&signature));
        Self { client, signature, reverifier, meters }
    }

    /// Sends one to the callback of this subscription; `hub` is the hub's URL.
    pub async fn send(&self, to: &Subscription, hub: &str) -> TestDelivery {
        let begun = Instant::now();
        let (outcome, status) = match self.attempt(to, hub).await {
            Ok(sent) => (AttemptOutcome::of(&sent), sent.ok().map(|answer| answer.status)),
            Err(error) => {
                tracing::warn!(subscription = to.id.0, %error, "test delivery cannot be expressed as a request");
                (AttemptOutcome::Unreachable, None)
            }
        };
        let took = begun.elapsed();
        tracing::debug!(subscription = to.id.0, ?outcome, ?took, "test delivery");
        TestDelivery { outcome, status, took }
    }

    /// An unconfirmed address is re-verified first, as for a delivery.
    async fn attempt(
        &self,
        to: &Subscription,
        hub: &str,
    ) -> Result<Result<Answer, EgressError>, InvalidCallback> {
        let recipient = Arc::new(Recipient {
            id: to.id,
            topic: to.topic,
            callback: Bytes::copy_from_slice(to.callback.as_str().as_bytes()),
            topic_url: to.topic_url.clone(),
            secret: to.secret.clone(),
        });
        let prepared = PreparedRecipient::new(&recipient, &self.signature)?;
        let request = test_request(&content(to, hub), prepared.key.as_ref())?;
        let mut route = Route::Reverify(to.id.0);
        for _ in 0..=REVERIFICATIONS {
            let sent =
                self.client.send_to(&prepared.target, request.clone(), ANSWER_READ, route, &mut None).await;
            let reverification = match sent {
                Err(EgressError::ReverifyFirst(reverification)) => reverification,
                answer => return Ok(answer),
            };
            let reverified = self.reverifier.ask(to, reverification).await;
            self.meters.reverified(reverified);
            match reverified {
                Reverified::Confirmed(address) => route = Route::Pinned(address),
                Reverified::Refused | Reverified::Unreachable => {}
                Reverified::NotSent => break,
            }
        }
        Ok(Err(EgressError::Unconfirmed(Withheld::AwaitingReverification)))
    }
}

/// Like a notification, but of no log.
fn content(to: &Subscription, hub: &str) -> Notification {
    let topic = to.topic_url.as_str();
    let body = format!(
        "This is a test delivery, which the subscriber asked for. It is no notification: ignore it.\nTopic: {topic}\nHub: {hub}\n"
    );
    Notification {
        topic: TopicId(0),
        offset: Offset(0),
        content_type: Bytes::from_static(b"text/plain; charset=utf-8"),
        links: NotificationLinks {
            hubs: vec![hub.to_owned()],
            canonical: topic.to_owned(),
            resourcesync: None,
        },
        body: Bytes::from(body),
        kind: ContentKind::Posted,
        received_at: DateTime::now(),
        trace: None,
    }
}

#[cfg(test)]
impl TestSender {
    /// One that may contact nobody.
    pub(crate) fn of_nobody() -> Self {
        use resync_core::websub::SignatureMethod;

        let second = Duration::from_secs(1);
        let client = EgressClient::new(Guard::open_to(&[]), second, second, 1);
        let signature = Arc::new(SignatureConfig::always(SignatureMethod::Sha256));
        Self::by(client, signature, Meters::default())
    }
}
