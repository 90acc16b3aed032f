//! Asking whoever answers under a callback's name now whether it wants the subscription that is in force (W-065).
//!
//! A name leads elsewhere because its subscriber has moved or has many addresses, or because somebody means harm. One small
//! question tells them apart. It is a verification like that of a renewal, with what is left of the lease (W-111), and only the
//! challenge is a yes. Anything else changes nothing: subscription, secret and lease stay as they are (W-062).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use resync_core::websub::Challenge;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::attempt::Attempt;
use super::hosts::HostId;
use super::meters::Meters;
use crate::egress::{EgressClient, Question};
use crate::store::{Shard, Store, StoreError, Subscription};
use crate::subscriptions::{self, NotAsked, Reply};

/// Tells a worker which hosts have confirmed.
pub(super) type Confirmations = mpsc::UnboundedSender<(Shard, HostId)>;

/// Asks callbacks.
#[derive(Debug)]
pub(super) struct Asking {
    store: Arc<dyn Store>,
    client: EgressClient,
    meters: Meters,
    confirmations: Confirmations,
}

impl Asking {
    pub(super) fn new(
        store: Arc<dyn Store>,
        client: EgressClient,
        meters: Meters,
        confirmations: Confirmations,
    ) -> Self {
        Self { store, client, meters, confirmations }
    }

    /// Puts the question for the subscription of this attempt. Where it was answered with the challenge, what is held back for
    /// its host goes out, and the attempt's delivery may be sent to this address.
    pub(super) async fn ask(&self, shard: Shard, attempt: &Attempt, question: Question) -> Option<IpAddr> {
        let address = question.address();
        let subscription = match self.subscription(shard, attempt).await {
            Ok(Some(subscription)) => subscription,
            Ok(None) => {
                question.withdraw();
                return None;
            }
            Err(error) => {
                warn!(%error, subscription = attempt.subscription.0, "nobody is asked: store unreadable");
                question.withdraw();
                return None;
            }
        };
        let confirmed = self.put(&subscription, question).await;
        if confirmed {
            // A worker that has gone needs to know nothing.
            let _ = self.confirmations.send((shard, attempt.host));
        }
        confirmed.then_some(address)
    }

    async fn subscription(
        &self,
        shard: Shard,
        attempt: &Attempt,
    ) -> Result<Option<Subscription>, StoreError> {
        self.store.subscription(shard, attempt.topic, attempt.subscription).await
    }

    async fn put(&self, subscription: &Subscription, question: Question) -> bool {
        let Subscription { topic_url, callback, lease_end, .. } = subscription;
        let challenge = Challenge::random();
        let left = lease_end.to_system_time().duration_since(SystemTime::now()).unwrap_or_default();
        let request = subscriptions::asking(topic_url, callback, Some(left), &challenge);
        let (Ok(request), true) = (request, left >= Duration::from_secs(1)) else {
            question.withdraw();
            return false;
        };
        let answer = self.client.ask(&question, request, subscriptions::ANSWER_READ).await;
        let reply = match subscriptions::reply(answer, &challenge) {
            Ok(reply) => reply,
            Err(NotAsked::Exhausted | NotAsked::Crowded(_)) => {
                question.withdraw();
                return false;
            }
        };
        let (id, address) = (subscription.id.0, question.address());
        debug!(subscription = id, %address, ?reply, "a callback was asked where its name leads now");
        self.meters.asked(&reply);
        match reply {
            Reply::Confirmed(_) => {
                question.confirmed(*lease_end);
                true
            }
            Reply::Refused(_) | Reply::Unreachable(_) => {
                question.refused();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;
    use resync_core::websub::SignatureMethod;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::delivery::{BreakerPolicy, Delivery, RetryPolicy, Settings};
    use crate::egress::{Confirmed, Guard};
    use crate::store::{self, Engine, Intent, Keyring, NewRequest};
    use crate::subscriptions::VerifiedSubscription;
    use crate::topics::Prefixes;

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
            confirmed: Confirmed::new(true, "1/h, burst 3".parse().unwrap()),
            signature: SignatureMethod::Sha256,
            entry_diff: Prefixes::default(),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn w062_a_subscription_of_before_is_confirmed_at_its_first_delivery_and_otherwise_stays_as_it_is() {
        let (callback, mut log) = subscriber().await;
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let (topic, now) = ("http://source.example/t".parse().unwrap(), DateTime::now());
        let request = NewRequest {
            topic,
            callback: callback.parse().unwrap(),
            intent: Intent::Subscribe { lease: None, secret: None },
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
}
