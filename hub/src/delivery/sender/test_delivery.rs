//! Test deliveries, which a subscriber asks for to see what its callback answers. They go out like all others, by a client of their
//! own: nothing waits for them, nothing is recorded of them, and no progress moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use resync_core::datetime::DateTime;

use super::attempt_log::AttemptOutcome;
use super::callback_client::{CallbackClient, Sent};
use super::delivery_request::test_request;
use super::meters::Meters;
use super::operator::Operator;
use super::prepared::{InvalidCallback, PreparedRecipient};
use super::settings::Settings;
use crate::config::SignatureConfig;
use crate::egress::{EgressClient, Guard};
use crate::store::{ContentKind, Notification, NotificationLinks, Offset, Recipient, Subscription, TopicId};

/// Connections that are kept for tests.
const CONNECTIONS: usize = 16;

/// Sends test deliveries.
#[derive(Clone, Debug)]
pub struct TestSender {
    callbacks: CallbackClient,
    signature: Arc<SignatureConfig>,
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
    /// Sends behind the same guard, within the same times and with the same signatures as deliveries. Re-verifications are counted here,
    /// and what waits for one is delivered by `operator`.
    pub(crate) fn new(guard: Guard, settings: &Settings, meters: Meters, operator: Operator) -> Self {
        let client = EgressClient::new(guard, settings.connect_timeout, settings.timeout, 1)
            .limiting_unconfirmed(settings.confirmed.clone())
            .with_connections(CONNECTIONS);
        Self::by(client, Arc::clone(&settings.signature), meters, operator)
    }

    fn by(client: EgressClient, signature: Arc<SignatureConfig>, meters: Meters, operator: Operator) -> Self {
        let callbacks = CallbackClient::new(client, Arc::clone(&signature), meters, operator);
        Self { callbacks, signature }
    }

    /// Sends one to the callback of this subscription; `hub` is the hub's URL.
    pub async fn send(&self, to: &Subscription, hub: &str) -> TestDelivery {
        let begun = Instant::now();
        let (outcome, status) = match self.attempt(to, hub).await {
            // It is as it was read, even if it has ended meanwhile.
            Ok(None) => (AttemptOutcome::Unreachable, None),
            Ok(Some((_, sent))) => (AttemptOutcome::of(&sent), sent.ok().map(|answer| answer.status)),
            Err(error) => {
                tracing::warn!(subscription = to.id.0, %error, "test delivery cannot be expressed as a request");
                (AttemptOutcome::Unreachable, None)
            }
        };
        let took = begun.elapsed();
        tracing::debug!(subscription = to.id.0, ?outcome, ?took, "test delivery");
        TestDelivery { outcome, status, took }
    }

    async fn attempt(&self, to: &Subscription, hub: &str) -> Result<Option<Sent>, InvalidCallback> {
        let recipient = Arc::new(Recipient {
            id: to.id,
            topic: to.topic,
            callback: Bytes::copy_from_slice(to.callback.as_str().as_bytes()),
            topic_url: to.topic_url.clone(),
            secret: to.secret.clone(),
        });
        let prepared = PreparedRecipient::new(&recipient, &self.signature)?;
        let content = content(to, hub);
        let request = || test_request(&content, prepared.key.as_ref());
        let find = || std::future::ready(Ok(Some(to.clone())));
        self.callbacks.send(to.id, &prepared.target, request, find, &mut None).await
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
        Self::by(client, signature, Meters::default(), Operator::of_nobody())
    }
}
