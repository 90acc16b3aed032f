//! One attempt, from the records to the outcome: find what to send, send it, say what the answer means.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use tracing::{debug, warn};

use super::attempt_log::{AttemptLog, AttemptOutcome, RecordedAttempt};
use super::bodies::SubscriberBodies;
use super::callback_client::{CallbackClient, Sent};
use super::delivery_request::{Content, SharedHeaders, retry_after};
use super::large_bodies::LargeBodies;
use super::lookup::{LoggedOnce, Looked, Lookup};
use super::meters::Meters;
use super::operator::Operator;
use super::prepared::{self, InvalidCallback, PreparedRecipients};
use super::spans::describe;
use crate::config::{Prefixes, SignatureConfig};
use crate::delivery::scheduler::{Attempt, DeliveryOutcome, Finished, Lane};
use crate::egress::{self, EgressClient, EgressError, Withheld};
use crate::store::{Notification, Recipient, Shard, Store, StoreError, SubscriptionId, WallClock};
use crate::telemetry::{SpanKind, Tracer};

/// Makes the attempts of one worker.
#[derive(Debug)]
pub(super) struct Sender {
    store: Arc<dyn Store>,
    clock: WallClock,
    callbacks: CallbackClient,
    lookup: Lookup,
    recipients: PreparedRecipients,
    bodies: SubscriberBodies,
    headers: SharedHeaders,
    large: LargeBodies,
    meters: Meters,
    unreadable: LoggedOnce<SubscriptionId>,
    log: AttemptLog,
    tracer: Tracer,
}

/// What all workers' senders share: where attempts are counted, recorded and traced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observers {
    pub(crate) meters: Meters,
    pub(crate) log: AttemptLog,
    pub(crate) tracer: Tracer,
}

impl Sender {
    pub(super) fn new(
        store: Arc<dyn Store>,
        client: EgressClient,
        signature: Arc<SignatureConfig>,
        entry_diff: Prefixes,
        Observers { meters, log, tracer }: Observers,
        operator: Operator,
        large: LargeBodies,
    ) -> Self {
        Self {
            lookup: Lookup::new(Arc::clone(&store)),
            clock: store.clock().clone(),
            store,
            callbacks: CallbackClient::new(client, Arc::clone(&signature), meters.clone(), operator),
            recipients: PreparedRecipients::new(signature),
            bodies: SubscriberBodies::new(entry_diff),
            headers: SharedHeaders::new(),
            large,
            meters,
            unreadable: LoggedOnce::new(),
            log,
            tracer,
        }
    }

    /// Makes the attempt; returns what became of it, and where it was sent to if it got that far.
    pub(super) async fn send(&self, shard: Shard, attempt: &Attempt) -> (Finished, Option<IpAddr>) {
        let mut reached = None;
        match self.try_send(shard, attempt, &mut reached).await {
            Ok(finished) => (finished, reached),
            Err(error) => {
                warn!(%error, topic = attempt.topic.0, offset = attempt.offset.0, "delivery postponed: store unreadable");
                (Finished::Postponed, reached)
            }
        }
    }

    async fn try_send(
        &self,
        shard: Shard,
        attempt: &Attempt,
        reached: &mut Option<IpAddr>,
    ) -> Result<Finished, StoreError> {
        let Attempt { topic, subscription, ahead, keep, .. } = *attempt;
        let recipient = match self.store.recipient(shard, topic, subscription, ahead, keep).await {
            Ok(Some(recipient)) => recipient,
            Ok(None) => return Ok(Finished::SubscriptionEnded),
            Err(error @ StoreError::Damaged { .. }) => {
                if self.unreadable.is_first(topic, subscription) {
                    warn!(%error, topic = topic.0, subscription = subscription.0, "subscription cannot be read and gets nothing: deny it, so that it can be made again, or repair the store");
                }
                return Ok(Finished::Unreadable);
            }
            Err(error) => return Err(error),
        };
        // First attempts find theirs in memory mostly. What found no room is read again only when there is some.
        if attempt.charge.lane != Lane::First
            && self.large.refuses(topic, attempt.sought(), attempt.charge.lane)
        {
            return Ok(Finished::Postponed);
        }
        let notification = match self.lookup.owed(&recipient.topic_url, attempt).await? {
            Looked::Found(notification) => notification,
            Looked::Without(finished) => return Ok(finished),
        };
        // Until it is answered.
        let Some(_reservation) = self.large.reserve(&notification, attempt.charge.lane) else {
            debug!(id = %notification.id(), subscription = subscription.0, "delivery postponed: other large notifications are under way");
            return Ok(Finished::Postponed);
        };
        let body = self.bodies.body(self.store.as_ref(), &recipient, &notification).await?;
        // To read all that may have taken long, or this hub was paused.
        if !self.store.may_begin() {
            debug!(id = %notification.id(), subscription = subscription.0, "delivery postponed: other hubs may take this one for dead");
            return Ok(Finished::Postponed);
        }
        Ok(self.post(shard, attempt, &recipient, &notification, body, reached).await)
    }

    async fn post(
        &self,
        shard: Shard,
        attempt: &Attempt,
        recipient: &Arc<Recipient>,
        notification: &Notification,
        body: Bytes,
        reached: &mut Option<IpAddr>,
    ) -> Finished {
        let number = attempt.number;
        let answered = |outcome| Finished::Answered { offset: notification.offset, outcome };
        let mut span = self.tracer.begin_below(notification.trace, "deliver", SpanKind::Client);
        let content = Content { notification, body, trace: span.passed_on() };
        let (begun, answer) = match self.request_from(shard, attempt, recipient, content, reached).await {
            Ok(Some(sent)) => sent,
            Ok(None) => return Finished::SubscriptionEnded,
            Err(error) => {
                let id = notification.id();
                warn!(%id, subscription = recipient.id.0, %error, "delivery cannot be expressed as a request");
                span.fail(|| error.to_string());
                span.end();
                return answered(DeliveryOutcome::unreachable());
            }
        };
        let finished = match &answer {
            Ok(answer) => {
                if answer.status.is_success() {
                    self.bodies.acknowledge(recipient, notification);
                }
                answered(DeliveryOutcome::of_status(answer.status, retry_after(&answer.headers)))
            }
            // For want of something on this side.
            Err(EgressError::NoFileDescriptors) => Finished::Postponed,
            Err(EgressError::Unconfirmed(Withheld::RateLimit(wait))) => Finished::RateLimited(*wait),
            Err(EgressError::Unconfirmed(Withheld::AwaitingReverification)) => Finished::Reverifying,
            Err(EgressError::Interrupted(_)) => answered(DeliveryOutcome::cut()),
            Err(_) => answered(DeliveryOutcome::unreachable()),
        };
        // A clock that was set back makes no negative times.
        let age = self.clock.system_time().duration_since(notification.received_at.to_system_time());
        self.meters.attempted(&answer, begun.elapsed(), age.unwrap_or_default(), number);
        describe(span, &answer, recipient, notification, number);
        log(&answer, recipient, notification, number);
        if let Some(attempt) = to_record(&answer, notification, number, &self.clock) {
            self.log.put(recipient.id, attempt);
        }
        finished
    }

    async fn request_from(
        &self,
        shard: Shard,
        attempt: &Attempt,
        recipient: &Arc<Recipient>,
        content: Content<'_>,
        reached: &mut Option<IpAddr>,
    ) -> Result<Option<Sent>, InvalidCallback> {
        let Attempt { topic, subscription, keep, number, .. } = *attempt;
        let prepared = self.recipients.of(recipient, keep)?;
        let request = || self.headers.request(content.clone(), prepared.key.as_ref(), number);
        let find = || self.store.subscription(shard, topic, subscription);
        self.callbacks.send(recipient.id, &prepared.target, request, find, reached).await
    }
}

/// What the operator may want to see: a failure, and a success after one.
fn to_record(
    answer: &Result<egress::Answer, EgressError>,
    notification: &Notification,
    attempt: u16,
    clock: &WallClock,
) -> Option<RecordedAttempt> {
    let failure = match answer {
        Ok(answer) if answer.status.is_success() && attempt <= 1 => return None,
        Ok(answer) if answer.status.is_success() => None,
        Ok(answer) => Some(format!("the callback answered {}", answer.status)),
        Err(error) => Some(error.to_string()),
    };
    let (at, outcome) = (clock.now(), AttemptOutcome::of(answer));
    Some(RecordedAttempt { at, notification: notification.id(), attempt, failure, outcome })
}

fn log(
    answer: &Result<egress::Answer, EgressError>,
    recipient: &Recipient,
    notification: &Notification,
    number: u16,
) {
    let (id, subscriber) = (notification.id(), recipient.id.0);
    match answer {
        Ok(answer) if answer.status.is_success() => {
            debug!(%id, subscription = subscriber, attempt = number, status = answer.status.as_u16(), "delivered");
        }
        Ok(answer) => {
            warn!(%id, subscription = subscriber, attempt = number, status = answer.status.as_u16(), "delivery refused");
        }
        // An attacker who rebinds names causes many of these: they are counted (`unconfirmed_address`).
        Err(error @ EgressError::Unconfirmed(_)) => {
            debug!(%id, subscription = subscriber, attempt = number, %error, "delivery held back: unconfirmed address");
        }
        Err(error) => {
            let origin = prepared::read(&recipient.callback).map(|callback| callback.origin()).ok();
            warn!(%id, subscription = subscriber, attempt = number, origin, %error, "delivery failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use resync_core::websub::TopicUrl;

    use resync_core::websub::SignatureMethod;

    use super::*;
    use crate::egress::Guard;
    use crate::store::{self, Engine, Keyring, Offset, Subscription};

    fn sender(store: Arc<dyn Store>) -> Sender {
        let second = Duration::from_secs(1);
        let client = EgressClient::new(Guard::open_to(&[]), second, second, 1);
        let signature = Arc::new(SignatureConfig::always(SignatureMethod::Sha256));
        Sender::new(
            store,
            client,
            signature,
            Prefixes::default(),
            Observers::default(),
            Operator::of_nobody(),
            LargeBodies::default(),
        )
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_subscription_that_cannot_be_read_is_not_asked_for_every_second() {
        let directory = tempfile::tempdir().unwrap();
        let open = || store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topic: TopicUrl = "http://source.example/framework/".parse().unwrap();
        let callback = "http://destination.example/d".parse().unwrap();
        let store = open();
        let (shard, Subscription { topic, id, .. }) = store::subscribe(&*store, &topic, &callback).await;
        drop(store);
        store::damage_subscription(directory.path());
        let sender = sender(open());
        let attempt = Attempt { subscription: id, ..Attempt::first(topic, Offset(1)) };
        assert_eq!(sender.send(shard, &attempt).await, (Finished::Unreadable, None));
        assert!(!sender.unreadable.is_first(topic, id), "it was logged");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_read_is_not_sent_once_other_hubs_may_take_this_one_for_dead() {
        let (store, memory) = store::in_memory();
        let topic: TopicUrl = "http://source.example/framework/".parse().unwrap();
        let callback = "http://127.0.0.1/d".parse().unwrap();
        let (shard, Subscription { topic: of, id, .. }) = store::subscribe(&*store, &topic, &callback).await;
        store.append(store::posted(&topic, "changed"), Duration::ZERO).await.unwrap();
        let attempt = Attempt { subscription: id, ..Attempt::first(of, Offset(1)) };
        let sender = sender(store);
        memory.lapse();
        assert_eq!(sender.send(shard, &attempt).await, (Finished::Postponed, None));
    }
}
