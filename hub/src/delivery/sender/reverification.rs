//! Has unconfirmed addresses re-verified before they are sent deliveries ([`Reverifier`]).

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::warn;

use super::meters::Meters;
use crate::delivery::scheduler::{Attempt, HostId};
use crate::egress::{Reverification, Reverified, Reverifier};
use crate::store::{Shard, Store};

/// The way to a worker for hosts that have confirmed.
pub(super) type Confirmations = mpsc::UnboundedSender<(Shard, HostId)>;

/// Re-verifies the callbacks of attempts.
#[derive(Debug)]
pub(super) struct AttemptReverifier {
    pub(super) store: Arc<dyn Store>,
    pub(super) reverifier: Reverifier,
    pub(super) meters: Meters,
    pub(super) confirmations: Confirmations,
}

impl AttemptReverifier {
    /// Asks for the subscription of this attempt; `None` where it has ended. If the address confirms, what waits for its host goes out.
    pub(super) async fn verify(
        &self,
        shard: Shard,
        attempt: &Attempt,
        reverification: Reverification,
    ) -> Option<Reverified> {
        let found = self.store.subscription(shard, attempt.topic, attempt.subscription).await;
        let subscription = match found {
            Ok(Some(subscription)) => subscription,
            Ok(None) => {
                reverification.withdraw();
                return None;
            }
            Err(error) => {
                warn!(%error, subscription = attempt.subscription.0, "address not re-verified: the subscription cannot be read");
                reverification.withdraw();
                return Some(Reverified::NotSent);
            }
        };
        let reverified = self.reverifier.ask(&subscription, reverification).await;
        self.meters.reverified(reverified);
        if let Reverified::Confirmed(_) = reverified {
            // A worker that has gone needs to know nothing.
            let _ = self.confirmations.send((shard, attempt.host));
        }
        Some(reverified)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use resync_core::datetime::DateTime;
    use resync_core::websub::SignatureMethod;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::config::{Prefixes, SignatureConfig};
    use crate::delivery::{AttemptOutcome, BreakerPolicy, Delivery, RetryPolicy, Settings, TestSender};
    use crate::egress::{ConfirmedAddresses, Guard};
    use crate::store::VerifiedSubscription;
    use crate::store::{self, Engine, Intent, Keyring, NewRequest};
    use crate::telemetry::Tracer;

    /// Takes whatever it is sent, and echoes the challenge to who asks.
    async fn subscriber() -> (String, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let (seen, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, seen.clone()));
            }
        });
        (url, log)
    }

    async fn serve(mut stream: TcpStream, seen: mpsc::UnboundedSender<String>) {
        let mut buffer = vec![0; 8_192];
        while let Ok(read) = stream.read(&mut buffer).await
            && read > 0
        {
            let request = String::from_utf8_lossy(&buffer[..read]).into_owned();
            let challenge = request.split_once("hub.challenge=").map_or("", |(_, rest)| &rest[..64]);
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
        let (callback, mut log) = subscriber().await;
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
        let (callback, mut log) = subscriber().await;
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topic = "http://source.example/t".parse().unwrap();
        let (_, subscription) = store::subscribe(&*store, &topic, &callback.parse().unwrap()).await;
        let (guard, meters) = (Guard::open_to(&["127.0.0.0/8", "::1/128"]), Meters::default());
        let tests = TestSender::new(guard, &settings(), meters);
        for asked in [true, false] {
            let sent = tests.send(&subscription, "https://hub.example/").await;
            assert_eq!(sent.outcome, AttemptOutcome::Delivered);
            if asked {
                assert!(log.recv().await.unwrap().starts_with("GET"));
            }
            assert!(log.recv().await.unwrap().starts_with("POST"), "it has confirmed");
        }
    }
}
