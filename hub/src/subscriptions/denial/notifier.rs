//! Notifies callbacks of denials, many at once. Those that never confirmed anything wait apart from those that had a
//! subscription, so that strangers hold up no operator.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::websub;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::{NewlyDenied, PendingDenial};
use crate::concurrency::{Client, ClientClass, Limiter, Peer, Permit};
use crate::egress::{self, EgressError, ReadLimit};
use crate::store::{Accepted, Denial, DenialId, Shard, Store, StoreError, SubscriptionKey, WaitingDenial};
use crate::subscriptions::callback_clients::CallbackClients;
use crate::subscriptions::limits;
use crate::subscriptions::store_retry::{may_pass, until_stored};
use crate::subscriptions::wait_queue::{Event, WaitQueue};
use crate::waiting_work::{JobQueues, JobRunner, WaitingWork};

/// The answer means nothing, so little of it is read.
const ANSWER_READ: usize = 4 * 1024;
/// Pauses before a callback that could not be reached is notified again (D-08).
const RETRY_AFTER: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1_800),
];
/// Retries at a callback that never confirmed anything: no more than a verification has (B-33).
const RETRIES_IF_NEVER_CONFIRMED: usize = 1;

/// Bytes of a waiting denial in this queue; the limiter ([`crate::concurrency`]) takes as much again.
const ENTRY_BYTES: usize = 88;
const _: () = assert!(size_of::<(u64, Entry)>() <= ENTRY_BYTES);

/// Notifies callbacks that they were denied.
#[derive(Clone, Debug)]
pub struct DenialNotifier {
    store: Arc<dyn Store>,
    clients: CallbackClients,
    /// Limits requests to callbacks.
    callbacks: Limiter,
    /// Limits reads from the store.
    reading: Limiter,
    /// Limits how much may wait in all.
    waiting: Limiter,
}

/// A denial that waits: all that is kept of it in memory, by its identity.
#[derive(Debug)]
struct Entry {
    key: SubscriptionKey,
    /// Whether it was read. One that waited in a shard that was taken over was not.
    is_read: bool,
    client: Client,
    peer: Peer,
    /// How often its callback could not be reached.
    failures: u8,
    _waiting: Option<Permit>,
}

/// The client that a notification counts for, and the peer that it goes to.
#[derive(Clone, Copy, Debug)]
struct Origin {
    client: Client,
    peer: Peer,
}

/// What follows from a step.
#[derive(Debug)]
enum Next {
    /// It was read; `waiting` is its share of what may wait, if it counts there.
    Found { from: Origin, waiting: Option<Permit> },
    /// The store could not read it: it queues again to be read.
    Unread,
    /// Nothing: its callback was notified, or never will be.
    Done,
    /// This step again after a pause. Without a permit the callback failed; with one it was not asked.
    Again(Duration, Option<Permit>),
}

type Waiters = WaitQueue<Entry, Next>;

impl DenialNotifier {
    pub(in crate::subscriptions) fn new(
        store: Arc<dyn Store>,
        clients: CallbackClients,
        callbacks: Limiter,
        waiting: Limiter,
    ) -> Self {
        Self { store, clients, callbacks, reading: limits::reading(), waiting }
    }

    /// Notifies the callbacks of all denials in the shards of this hub, which come by these queues.
    pub fn in_shards(self, queues: JobQueues<PendingDenial>) -> Arc<dyn WaitingWork> {
        queues.run_by(self)
    }

    async fn notify_all(self, denials: mpsc::UnboundedReceiver<PendingDenial>) {
        Waiters::serve(
            denials,
            |denial, queue| self.take_in(denial, queue),
            |event, queue| self.handle(event, queue),
        )
        .await;
    }

    /// Reads nothing: a store that does not answer must not hold up the others.
    fn take_in(&self, denial: PendingDenial, queue: &mut Waiters) {
        let (DenialId(number), entry) = match denial {
            PendingDenial::New(NewlyDenied { denial, client, waiting }) => {
                let key = SubscriptionKey::of(&denial.topic, &denial.callback);
                let Origin { client, peer } = self.origin(&denial, client);
                (denial.id, Entry { key, is_read: true, client, peer, failures: 0, _waiting: waiting })
            }
            PendingDenial::Recovered(id, key) => {
                let client = Client { network: None, class: ClientClass::Stranger };
                let peer = self.reading.peer("");
                (id, Entry { key, is_read: false, client, peer, failures: 0, _waiting: None })
            }
        };
        if queue.insert(number, entry) {
            self.enqueue(number, queue);
        }
    }

    fn origin(&self, denial: &Denial, client: Option<IpAddr>) -> Origin {
        let client = Client { network: client, class: class(denial) };
        Origin { client, peer: self.callbacks.peer(&denial.callback.origin()) }
    }

    fn enqueue(&self, number: u64, queue: &Waiters) {
        let Some(Entry { is_read, client, peer, .. }) = queue.entries.get(&number) else { return };
        let limiter = if *is_read { &self.callbacks } else { &self.reading };
        limiter.enqueue(*client, *peer, &queue.grants, number);
    }

    fn handle(&self, event: Event<Next>, queue: &mut Waiters) {
        match event {
            Event::Granted(number, permit) => {
                let Some(Entry { key, is_read, failures, .. }) = queue.entries.get(&number) else { return };
                let (notifier, id) = (self.clone(), DenialId(number));
                let (key, is_read, failures) = (*key, *is_read, *failures);
                queue.run(number, async move {
                    if is_read {
                        notifier.notify(id, key, failures, permit).await
                    } else {
                        notifier.find(id, key, permit).await
                    }
                });
            }
            Event::Finished(number, Some(Next::Found { from: Origin { client, peer }, waiting })) => {
                let Some(entry) = queue.entries.get_mut(&number) else { return };
                *entry = Entry { is_read: true, client, peer, _waiting: waiting, ..*entry };
                self.enqueue(number, queue);
            }
            Event::Finished(number, Some(Next::Unread)) | Event::PauseOver(number, None) => {
                self.enqueue(number, queue);
            }
            Event::Finished(number, Some(Next::Again(pause, permit))) => {
                if let (Some(entry), None) = (queue.entries.get_mut(&number), &permit) {
                    entry.failures += 1;
                }
                queue.pause(number, pause, permit);
            }
            Event::PauseOver(number, Some(permit)) => permit.requeue(&queue.grants, number),
            // After a panic it stays in the store for the next owner.
            Event::Finished(number, Some(Next::Done) | None) => {
                queue.forget(number);
            }
        }
    }

    /// Reads a denial that waited in a shard that was taken over. After a failure of the store the permit is kept over the pause, and the
    /// denial queues at the end, as in verification.
    async fn find(&self, id: DenialId, key: SubscriptionKey, _permit: Permit) -> Next {
        let denial = match self.store.denial(key).await {
            Ok(Some(denial)) if denial.id == id => denial,
            // A newer one of the pair comes in like any other.
            Ok(_) => return Next::Done,
            Err(error) => return if may_pass(&error).await { Next::Unread } else { Next::Done },
        };
        let from = self.origin(&denial, None);
        // The denial of a request counts with what waits, as with the owner before. There are no more of those left than may wait,
        // since they counted then too; new requests count beside them as soon as these are read.
        let host = denial.callback.url().host_str().unwrap_or_default();
        let is_request = from.client.class == ClientClass::Stranger;
        let waiting = is_request.then(|| self.waiting.force_acquire(from.client, host));
        Next::Found { from, waiting }
    }

    /// Notifies the callback, unless a newer denial of the same pair will.
    async fn notify(&self, id: DenialId, key: SubscriptionKey, failures: u8, permit: Permit) -> Next {
        let newest = until_stored(|| self.store.denial(key)).await.flatten();
        let Some(denial) = newest.filter(|denial| denial.id == id) else { return Next::Done };
        let find = || self.store.find_subscription(&denial.topic, &denial.callback);
        let Some(is_in_force) = until_stored(find).await.map(|found| found.is_some()) else {
            return Next::Done;
        };
        // A callback that was subscribed anew since must not learn that it was denied.
        if !is_in_force {
            let retries = if denial.ended.is_some() { RETRY_AFTER.len() } else { RETRIES_IF_NEVER_CONFIRMED };
            match self.send(&denial).await {
                Ok(()) => {}
                Err(NotNotified::RateLimited(pause)) => {
                    permit.release_shared();
                    return Next::Again(pause, Some(permit));
                }
                Err(NotNotified::Failed(why)) => {
                    let (topic, origin) = (denial.topic.as_str(), denial.callback.origin());
                    if let Some(pause) = RETRY_AFTER[..retries].get(usize::from(failures)) {
                        let retry_in = pause.as_secs();
                        debug!(
                            topic,
                            origin, why, retry_in, "denied, but the callback could not be notified"
                        );
                        return Next::Again(*pause, None);
                    }
                    warn!(topic, origin, why, "denied, but the callback could not be notified: given up");
                }
            }
        }
        until_stored(|| self.store.remove_denial(&denial)).await;
        Next::Done
    }

    /// Any answer will do (D-08); without one, why there is none.
    async fn send(&self, denial: &Denial) -> Result<(), NotNotified> {
        let origin = denial.callback.origin();
        let request = match request(denial) {
            Ok(request) => request,
            Err(error) => {
                warn!(origin, %error, "callback not notified of its denial: it is no target of an HTTP request");
                return Ok(());
            }
        };
        match self.clients.of(class(denial)).send(request, ReadLimit::Discard(ANSWER_READ)).await {
            Ok(_) => Ok(()),
            Err(EgressError::Forbidden(forbidden)) => {
                warn!(origin, %forbidden, "callback not notified of its denial");
                Ok(())
            }
            Err(EgressError::RateLimited(wait)) => Err(NotNotified::RateLimited(wait.max(RETRY_AFTER[0]))),
            Err(error) => Err(NotNotified::Failed(error.to_string())),
        }
    }
}

#[async_trait]
impl JobRunner for DenialNotifier {
    type Job = PendingDenial;

    fn run(&self, denials: mpsc::UnboundedReceiver<PendingDenial>) -> BoxFuture<'static, ()> {
        Box::pin(self.clone().notify_all(denials))
    }

    async fn enqueue_waiting(
        &self,
        shards: &[Shard],
        queues: &JobQueues<PendingDenial>,
    ) -> Result<(), StoreError> {
        for WaitingDenial { shard, id, key } in self.store.denied(shards).await? {
            queues.send(shard, PendingDenial::Recovered(id, key));
        }
        Ok(())
    }

    async fn jobs(&self, shard: Shard, accepted: &[Accepted]) -> Result<Vec<PendingDenial>, StoreError> {
        let denials = accepted.iter().filter_map(|accepted| match accepted {
            Accepted::Denial(id) => Some(*id),
            Accepted::Request(_) | Accepted::Ping(_) => None,
        });
        let sought: HashSet<DenialId> = denials.collect();
        if sought.is_empty() {
            return Ok(Vec::new());
        }
        let denied = self.store.denied(&[shard]).await?;
        let found = denied.into_iter().filter(|denial| sought.contains(&denial.id));
        Ok(found.map(|WaitingDenial { id, key, .. }| PendingDenial::Recovered(id, key)).collect())
    }
}

/// What ends a subscription need not wait behind what never was one.
fn class(denial: &Denial) -> ClientClass {
    if denial.ended.is_some() { ClientClass::Trusted } else { ClientClass::Stranger }
}

/// Why a callback was not notified.
enum NotNotified {
    /// Nothing was sent, so the callback did not fail.
    RateLimited(Duration),
    Failed(String),
}

fn request(denial: &Denial) -> Result<Request<Full<Bytes>>, http::Error> {
    let denied = websub::Verification::Denied {
        topic: denial.topic.as_str().to_owned(),
        reason: Some(denial.reason.clone()).filter(|reason| !reason.is_empty()),
    };
    Request::get(denied.to_url(&denial.callback))
        .header(USER_AGENT, egress::USER_AGENT)
        .body(Full::new(Bytes::new()))
}
