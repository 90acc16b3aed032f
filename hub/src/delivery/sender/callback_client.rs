//! Sends requests to callbacks; unconfirmed addresses are re-verified first ([`Reverifier`]).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tracing::warn;

use super::meters::Meters;
use super::operator::Operator;
use super::prepared::InvalidCallback;
use crate::config::SignatureConfig;
use crate::egress::{
    Answer, EgressClient, EgressError, ReadLimit, Reverification, Reverified, Reverifier, Route, Target,
    Withheld,
};
use crate::store::{StoreError, Subscription, SubscriptionId};

/// More of an answer is not even read (W-156).
const ANSWER_READ: ReadLimit = ReadLimit::Discard(16 * 1024);
/// A name has several addresses at most, each of which may need re-verification.
const REVERIFICATIONS: usize = 4;

/// When a request was sent, and the answer.
pub(super) type Sent = (Instant, Result<Answer, EgressError>);

/// Sends requests to callbacks.
#[derive(Clone, Debug)]
pub(super) struct CallbackClient {
    client: EgressClient,
    reverifier: Reverifier,
    meters: Meters,
    operator: Operator,
}

impl CallbackClient {
    /// Re-verifications are counted by `meters`; deliveries of `operator` that wait for one go out when it is confirmed.
    pub(super) fn new(
        client: EgressClient,
        signature: Arc<SignatureConfig>,
        meters: Meters,
        operator: Operator,
    ) -> Self {
        Self { reverifier: Reverifier::new(client.clone(), signature), client, meters, operator }
    }

    /// Makes the request and sends it; `None` where the subscription has ended meanwhile. An unconfirmed address is re-verified first: for
    /// that `find` reads the subscription. One that refuses gets the request within its rate limit, and one that does not answer gets
    /// nothing. `reached` becomes the address that it was sent to.
    pub(super) async fn send<F>(
        &self,
        id: SubscriptionId,
        target: &Target,
        request: impl Fn() -> Result<Request<Full<Bytes>>, http::Error>,
        find: impl Fn() -> F,
        reached: &mut Option<IpAddr>,
    ) -> Result<Option<Sent>, InvalidCallback>
    where
        F: Future<Output = Result<Option<Subscription>, StoreError>>,
    {
        let mut route = Route::Reverify(id.0);
        for _ in 0..=REVERIFICATIONS {
            let request = request()?;
            let begun = Instant::now();
            let sent = self.client.send_to(target, request, ANSWER_READ, route, reached).await;
            let reverification = match sent {
                Err(EgressError::ReverifyFirst(reverification)) => reverification,
                answer => return Ok(Some((begun, answer))),
            };
            // Seldom: boxed, it takes no memory in every delivery under way.
            match Box::pin(self.reverify(id, find(), reverification)).await {
                Some(Reverified::Confirmed(address)) => route = Route::Pinned(address),
                Some(Reverified::Refused | Reverified::Unreachable) => {}
                Some(Reverified::NotSent) => break,
                None => return Ok(None),
            }
        }
        Ok(Some((Instant::now(), Err(EgressError::Unconfirmed(Withheld::AwaitingReverification)))))
    }

    /// Asks the address for this subscription; `None` where that has ended. If the address confirms, what waits for its host goes out.
    async fn reverify(
        &self,
        id: SubscriptionId,
        found: impl Future<Output = Result<Option<Subscription>, StoreError>>,
        reverification: Reverification,
    ) -> Option<Reverified> {
        let subscription = match found.await {
            Ok(Some(subscription)) => subscription,
            Ok(None) => {
                reverification.withdraw();
                return None;
            }
            Err(error) => {
                warn!(%error, subscription = id.0, "address not re-verified: the subscription cannot be read");
                reverification.withdraw();
                return Some(Reverified::NotSent);
            }
        };
        let reverified = self.reverifier.ask(&subscription, reverification).await;
        self.meters.reverified(reverified);
        if let Reverified::Confirmed(_) = reverified {
            self.operator.confirmed(&subscription.callback.origin());
        }
        Some(reverified)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use resync_core::datetime::DateTime;

    use super::super::testing::{Subscriber, settings};
    use super::*;
    use crate::delivery::{AttemptOutcome, Delivery, TestSender};
    use crate::egress::Guard;
    use crate::store::VerifiedSubscription;
    use crate::store::{self, Engine, Intent, Keyring, NewRequest};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn w062_a_subscription_of_before_is_confirmed_at_its_first_delivery_and_otherwise_stays_as_it_is() {
        let mut subscriber = Subscriber::start().await;
        let callback = &subscriber.url;
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let (topic, now) = ("http://source.example/t".parse().unwrap(), DateTime::now());
        let request = NewRequest {
            client: None,
            topic,
            callback: callback.parse().unwrap(),
            intent: Intent::Subscribe { lease: None, secret: None },
            verify_token: None,
            received_at: now,
        };
        let request = store.put_request(request).await.unwrap();
        let (topic, callback) = (request.topic.clone(), request.callback.clone());
        let hour = Duration::from_secs(3_600);
        store.activate(VerifiedSubscription::assumed(request, hour, now).without_address()).await.unwrap();
        let before = store.find_subscription(&topic, &callback).await.unwrap().unwrap();
        assert_eq!(before.address, None);

        let guard = Guard::open_to(&["127.0.0.0/8", "::1/128"]);
        let delivery = Delivery::start(Arc::clone(&store), guard, settings()).await.unwrap();
        let delivery = delivery.take_all(Vec::new()).await.unwrap();
        for number in 0..10 {
            store.append(store::posted(&topic, number.to_string()), Duration::ZERO).await.unwrap();
        }
        let mut seen = Vec::new();
        while seen.iter().filter(|line: &&String| line.starts_with("POST")).count() < 10 {
            seen.push(subscriber.next().await);
        }
        let asked: Vec<_> = seen.iter().filter(|line| line.starts_with("GET")).collect();
        assert_eq!(asked.len(), 1, "{seen:?}");
        let lease = asked[0].split_once("hub.lease_seconds=").unwrap().1;
        let lease: u64 = lease.split([' ', '&']).next().unwrap().parse().unwrap();
        assert!((3_500..3_600).contains(&lease), "what is left of it: {lease}");
        assert_eq!(store.find_subscription(&topic, &callback).await.unwrap().unwrap(), before);
        delivery.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn w065_a_test_delivery_to_a_subscriber_that_moved_asks_the_address_first_as_deliveries_do() {
        let mut subscriber = Subscriber::start().await;
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topic = "http://source.example/t".parse().unwrap();
        let (_, subscription) = store::subscribe(&*store, &topic, &subscriber.callback("")).await;
        let (guard, meters) = (Guard::open_to(&["127.0.0.0/8", "::1/128"]), Meters::default());
        let tests = TestSender::new(guard, &settings(), meters, Operator::of_nobody());
        for asked in [true, false] {
            let sent = tests.send(&subscription, "https://hub.example/").await;
            assert_eq!(sent.outcome, AttemptOutcome::Delivered);
            if asked {
                assert!(subscriber.next().await.starts_with("GET"));
            }
            assert!(subscriber.next().await.starts_with("POST"), "it has confirmed");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn w065_what_waits_for_a_confirmation_goes_out_when_a_test_delivery_brings_it() {
        let mut subscriber = Subscriber::start().await;
        subscriber.agrees(false);
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topics =
            ["http://source.example/t", "http://source.example/quiet"].map(|url| url.parse().unwrap());
        store::subscribe(&*store, &topics[0], &subscriber.callback("waits")).await;
        let (_, other) = store::subscribe(&*store, &topics[1], &subscriber.callback("tests")).await;

        let guard = Guard::open_to(&["127.0.0.0/8", "::1/128"]);
        let delivery = Delivery::start(Arc::clone(&store), guard, settings()).await.unwrap();
        let delivery = delivery.take_all(Vec::new()).await.unwrap();
        for number in 0..5 {
            store.append(store::posted(&topics[0], number.to_string()), Duration::ZERO).await.unwrap();
        }
        assert!(subscriber.next().await.starts_with("GET /waits?"));
        for _ in 0..3 {
            assert!(
                subscriber.next().await.starts_with("POST /waits "),
                "the rate limit allows three an hour"
            );
        }
        subscriber.agrees(true);
        let sent = delivery.test_sender().send(&other, "https://hub.example/").await;
        assert_eq!(sent.outcome, AttemptOutcome::Delivered);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let line = subscriber.next().await;
            seen.push(line.split([' ', '?']).take(2).collect::<Vec<_>>().join(" "));
        }
        // What was confirmed lets them go out at once.
        seen.sort();
        assert_eq!(seen, ["GET /tests", "POST /tests", "POST /waits", "POST /waits"]);
        delivery.stop().await;
        assert_eq!(subscriber.seen(), None, "and nothing else");
    }
}
