//! Re-verification: asking an unconfirmed address whether it wants the subscription that is in force (W-065).
//!
//! A name leads to another address because its subscriber has moved or has many addresses, or because somebody attacks by DNS rebinding.
//! One small request tells them apart. It is a verification like that of a renewal, with what is left of the lease (W-111), and only the
//! challenge confirms. Any other answer changes nothing: subscription, secret and lease stay as they are (W-062). The request is signed
//! with the subscription's secret, so that a subscriber can tell it from that of a foreign hub, which would start a new subscription.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use resync_core::websub::{Challenge, SignatureMethod, SigningKey, X_HUB_QUERY_SIGNATURE, sign_query};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::meters::Meters;
use crate::delivery::scheduler::{Attempt, HostId};
use crate::egress::{EgressClient, EgressError, Question};
use crate::store::{Shard, Store, Subscription};
use crate::subscriptions::{self, NotAsked, Reply};

/// The way to a worker for hosts that have confirmed.
pub(super) type Confirmations = mpsc::UnboundedSender<(Shard, HostId)>;

const SIGNATURE: HeaderName = HeaderName::from_static(X_HUB_QUERY_SIGNATURE);

/// The result of a re-verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reverified {
    /// It was answered with the challenge: deliveries may be sent to this address.
    Confirmed(IpAddr),
    /// It was answered otherwise, or nobody was there.
    NotConfirmed,
    /// It was not asked, for a reason of this side.
    NotAsked,
    /// Its subscription has ended.
    SubscriptionEnded,
}

/// Re-verifies callbacks.
#[derive(Debug)]
pub(super) struct Reverification {
    pub(super) store: Arc<dyn Store>,
    pub(super) client: EgressClient,
    pub(super) method: SignatureMethod,
    pub(super) meters: Meters,
    pub(super) confirmations: Confirmations,
}

impl Reverification {
    /// Asks for the subscription of this attempt. Where the answer is the challenge, what waits for its host's confirmation goes out.
    pub(super) async fn verify(&self, shard: Shard, attempt: &Attempt, question: Question) -> Reverified {
        let found = self.store.subscription(shard, attempt.topic, attempt.subscription).await;
        let subscription = match found {
            Ok(Some(subscription)) => subscription,
            Ok(None) => {
                question.withdraw();
                return Reverified::SubscriptionEnded;
            }
            Err(error) => {
                warn!(%error, subscription = attempt.subscription.0, "no re-verification: store unreadable");
                question.withdraw();
                return Reverified::NotAsked;
            }
        };
        let reverified = self.ask(&subscription, question).await;
        if let Reverified::Confirmed(_) = reverified {
            // A worker that has gone needs to know nothing.
            let _ = self.confirmations.send((shard, attempt.host));
        }
        reverified
    }

    async fn ask(&self, subscription: &Subscription, mut question: Question) -> Reverified {
        let challenge = Challenge::random();
        let Some(request) = self.request(subscription, &challenge) else {
            question.withdraw();
            return Reverified::NotAsked;
        };
        let answer = self.client.ask(&mut question, request, subscriptions::ANSWER_READ).await;
        let is_ours = matches!(answer, Err(EgressError::NoWay(_)));
        let reply = match subscriptions::reply(answer, &challenge) {
            Ok(reply) if !is_ours => reply,
            Ok(_) | Err(NotAsked::Exhausted | NotAsked::Crowded(_)) => {
                question.withdraw();
                return Reverified::NotAsked;
            }
        };
        let (id, address) = (subscription.id.0, question.address());
        debug!(subscription = id, %address, ?reply, "an unconfirmed address was re-verified");
        self.meters.reverified(&reply);
        match reply {
            Reply::Confirmed(_) => {
                question.confirmed(subscription.lease_end);
                return Reverified::Confirmed(address);
            }
            Reply::Refused(_) => question.refused(),
            Reply::Unreachable(_) => question.missed(),
        }
        Reverified::NotConfirmed
    }

    /// The request, while anything is left of the lease.
    fn request(&self, subscription: &Subscription, challenge: &Challenge) -> Option<Request<Full<Bytes>>> {
        let Subscription { topic_url, callback, lease_end, secret, .. } = subscription;
        let left = lease_end.to_system_time().duration_since(SystemTime::now()).ok();
        let left = left.filter(|left| *left >= Duration::from_secs(1))?;
        let mut request = subscriptions::asking(topic_url, callback, Some(left), challenge).ok()?;
        if let Some(secret) = secret {
            let key = SigningKey::new(self.method, secret);
            let signature = sign_query(&key, request.uri().query().unwrap_or_default()).to_string();
            request
                .headers_mut()
                .insert(SIGNATURE, HeaderValue::from_maybe_shared(Bytes::from(signature)).ok()?);
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::config::Prefixes;
    use crate::delivery::{BreakerPolicy, Delivery, RetryPolicy, Settings};
    use crate::egress::{Confirmed, Guard};
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
            confirmed: Confirmed::new(true, "1/h, burst 3".parse().unwrap()),
            signature: SignatureMethod::Sha256,
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
