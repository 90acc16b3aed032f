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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use resync_core::datetime::DateTime;
    use resync_core::websub::SignatureMethod;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::config::Prefixes;
    use crate::delivery::{AttemptOutcome, BreakerPolicy, Delivery, RetryPolicy, Settings, TestSender};
    use crate::egress::{ConfirmedAddresses, Guard};
    use crate::store::VerifiedSubscription;
    use crate::store::{self, Engine, Intent, Keyring, NewRequest};
    use crate::telemetry::Tracer;

    /// Takes whatever it is sent, and echoes the challenge to who asks, while it agrees.
    async fn subscriber(agrees: &'static AtomicBool) -> (String, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let (seen, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, agrees, seen.clone()));
            }
        });
        (url, log)
    }

    async fn serve(mut stream: TcpStream, agrees: &'static AtomicBool, seen: mpsc::UnboundedSender<String>) {
        let mut buffer = vec![0; 8_192];
        while let Ok(read) = stream.read(&mut buffer).await
            && read > 0
        {
            let request = String::from_utf8_lossy(&buffer[..read]).into_owned();
            let asked = request.split_once("hub.challenge=").filter(|_| agrees.load(Ordering::Relaxed));
            let challenge = asked.map_or("", |(_, rest)| &rest[..64]);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{challenge}", challenge.len());
            let _ = stream.write_all(answer.as_bytes()).await;
            // The test may be over.
            let _ = seen.send(request.lines().next().unwrap_or_default().to_owned());
        }
    }

    fn settings() -> Settings {
        let minute = Duration::from_secs(60);
        Settings {
            retry: RetryPolicy { trouble: vec![minute], refused: vec![minute], gone_confirm_after: minute },
            breaker: BreakerPolicy { failures: 5, open: minute, open_max: minute },
            connect_timeout: minute,
            timeout: minute,
            max_in_flight: 16,
            per_host: 1,
            max_connections: 16,
            confirmed: ConfirmedAddresses::new(true, "1/h, burst 3".parse().unwrap()),
            signature: Arc::new(SignatureConfig::always(SignatureMethod::Sha256)),
            entry_diff: Prefixes::default(),
            tracer: Tracer::default(),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn w062_a_subscription_of_before_is_confirmed_at_its_first_delivery_and_otherwise_stays_as_it_is() {
        static AGREES: AtomicBool = AtomicBool::new(true);
        let (callback, mut log) = subscriber(&AGREES).await;
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
        for number in 0..10 {
            store.append(store::posted(&topic, number.to_string()), Duration::ZERO).await.unwrap();
        }
        let mut seen = Vec::new();
        while seen.iter().filter(|line: &&String| line.starts_with("POST")).count() < 10 {
            seen.push(log.recv().await.unwrap());
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
        static AGREES: AtomicBool = AtomicBool::new(true);
        let (callback, mut log) = subscriber(&AGREES).await;
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topic = "http://source.example/t".parse().unwrap();
        let (_, subscription) = store::subscribe(&*store, &topic, &callback.parse().unwrap()).await;
        let (guard, meters) = (Guard::open_to(&["127.0.0.0/8", "::1/128"]), Meters::default());
        let tests = TestSender::new(guard, &settings(), meters, Operator::of_nobody());
        for asked in [true, false] {
            let sent = tests.send(&subscription, "https://hub.example/").await;
            assert_eq!(sent.outcome, AttemptOutcome::Delivered);
            if asked {
                assert!(log.recv().await.unwrap().starts_with("GET"));
            }
            assert!(log.recv().await.unwrap().starts_with("POST"), "it has confirmed");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn w065_what_waits_for_a_confirmation_goes_out_when_a_test_delivery_brings_it() {
        static AGREES: AtomicBool = AtomicBool::new(false);
        let (callback, mut log) = subscriber(&AGREES).await;
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topics =
            ["http://source.example/t", "http://source.example/quiet"].map(|url| url.parse().unwrap());
        let callback = |name: &str| format!("{callback}{name}").parse().unwrap();
        store::subscribe(&*store, &topics[0], &callback("waits")).await;
        let (_, other) = store::subscribe(&*store, &topics[1], &callback("tests")).await;

        let guard = Guard::open_to(&["127.0.0.0/8", "::1/128"]);
        let delivery = Delivery::start(Arc::clone(&store), guard, settings()).await.unwrap();
        for number in 0..5 {
            store.append(store::posted(&topics[0], number.to_string()), Duration::ZERO).await.unwrap();
        }
        let mut next =
            async || timeout(Duration::from_secs(60), log.recv()).await.expect("it comes").unwrap();
        assert!(next().await.starts_with("GET /waits?"));
        for _ in 0..3 {
            assert!(next().await.starts_with("POST /waits "), "the rate limit allows three an hour");
        }
        AGREES.store(true, Ordering::Relaxed);
        let sent = delivery.test_sender().send(&other, "https://hub.example/").await;
        assert_eq!(sent.outcome, AttemptOutcome::Delivered);
        let mut seen = Vec::new();
        while seen.iter().filter(|line: &&String| line.starts_with("POST /waits ")).count() < 2 {
            seen.push(next().await);
        }
        let of_test = seen.iter().filter(|line| line.contains("/tests")).count();
        assert_eq!((of_test, seen.len()), (2, 4), "{seen:?}");
        delivery.stop().await;
    }
}
