//! Verification of intent: each request waits for its permits, is judged by policy, and then its callback is asked (WebSub
//! section 5.3).
//!
//! This file is the queue of what waits; `policy` says which topics may be subscribed to, and `callback` asks over HTTP.

mod callback;
mod policy;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

use super::bounds::Bounds;
use super::breaker::VerificationBreaker;
use super::callback_clients::CallbackClients;
use super::denial::{DenialNotifier, Denials};
use super::lease::LeasePolicy;
use super::limits;
use super::meters::VerificationMeters;
use super::requests::{Requester, ToVerify};
use super::store_retry::{may_pass, until_stored};
use super::wait_queue::{Event, WaitQueue};
use crate::concurrency::{Limiter, Permit};
use crate::store::{Accepted, Denial, PendingRequest, RequestId, Shard, Store, StoreError};
use crate::topics::TopicPolicy;
use crate::waiting_work::{JobQueues, JobRunner, WaitingWork};

/// The pause before something is tried again: an unreachable callback once (an answer, whatever it says, is final, C-08), and a
/// topic that could not be looked at.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Renewals whose topics are judged at once. Beyond that a renewal is accepted without it.
const RENEWALS_JUDGED: usize = 1_024;

/// Bytes of a waiting request in this queue; the limiter ([`crate::concurrency`]) and the store take as much again.
const ENTRY_BYTES: usize = 48;
const _: () = assert!(size_of::<(u64, Entry)>() <= ENTRY_BYTES);

/// Who sent a request that waited in a shard that was taken over, until it is read.
const UNKNOWN: Requester = Requester { client: None, in_force: false, confirmed: false };

/// Verifies pending requests, many at once.
#[derive(Clone, Debug)]
pub struct Verification {
    store: Arc<dyn Store>,
    clients: CallbackClients,
    leases: LeasePolicy,
    breaker: VerificationBreaker,
    policy: Arc<dyn TopicPolicy>,
    bounds: Bounds,
    /// Limits requests to callbacks.
    callbacks: Limiter,
    /// Limits DNS lookups of topics' hosts.
    lookups: Limiter,
    /// Limits reads from the store.
    reading: Limiter,
    /// Limits how much may wait in all.
    waiting: Limiter,
    renewals: Arc<Semaphore>,
    meters: VerificationMeters,
    pause: Duration,
}

/// A request that waits: all that is kept of it in memory.
#[derive(Debug)]
struct Entry {
    task: Task,
    /// Its share of what may wait.
    waiting: Permit,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
struct Task {
    who: Requester,
    step: Step,
    /// How often this step failed.
    tries: u8,
}

/// The steps of a verification, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Read the request from the store.
    Read,
    /// Read the request and who sent it: it waited in a shard that was taken over.
    Recover,
    /// Resolve the host of its topic.
    Resolve,
    /// Look at its topic.
    CheckTopic,
    /// Ask its callback.
    AskCallback,
}

/// What follows from a step.
#[derive(Debug)]
enum Next {
    /// Nothing: the request no longer waits.
    Done,
    /// The store could not read the request: it queues again to be read.
    Unread,
    /// This step, for a request to this peer. `waiting` replaces a permit that did not know the client.
    Step { who: Requester, step: Step, peer: String, waiting: Option<Permit> },
    /// This step again after a pause, with what is kept of the permit. A shortage of the hub's does not count as a try.
    Again { pause: Duration, permit: Permit, counts: bool },
    /// The callback is notified that it was denied.
    Notify(Denial),
}

type Waiters = WaitQueue<Entry, Next>;

impl Verification {
    /// With `by_client` each client has a limit of its own.
    pub fn new(
        store: Arc<dyn Store>,
        clients: CallbackClients,
        leases: LeasePolicy,
        breaker: VerificationBreaker,
        policy: Arc<dyn TopicPolicy>,
        bounds: Bounds,
        by_client: bool,
    ) -> Self {
        Self {
            store,
            clients,
            leases,
            breaker,
            policy,
            bounds,
            callbacks: limits::callbacks(by_client),
            lookups: limits::callbacks(by_client),
            reading: limits::reading(),
            waiting: limits::waiting(by_client),
            renewals: Arc::new(Semaphore::new(RENEWALS_JUDGED)),
            meters: VerificationMeters::default(),
            pause: RETRY_AFTER,
        }
    }

    /// Counts how verifications end.
    pub fn meters(&self) -> VerificationMeters {
        self.meters.clone()
    }

    /// What notifies callbacks of denials, within the same limits.
    pub fn denial_notifier(&self) -> DenialNotifier {
        let (clients, callbacks) = (self.clients.clone(), self.callbacks.clone());
        DenialNotifier::new(Arc::clone(&self.store), clients, callbacks, self.waiting.clone())
    }

    /// Limits how much may wait.
    pub fn waiting(&self) -> Limiter {
        self.waiting.clone()
    }

    /// Verifies each request in the shards of this hub, which come by these queues; what policy refuses goes to `denials`.
    pub fn in_shards(self, denials: Denials, queues: JobQueues<ToVerify>) -> Arc<dyn WaitingWork> {
        queues.run_by(Verifier { verification: self, denials })
    }

    /// A request that waited in a shard that was taken over. It counts with what waits from then on, so that restarts do not raise the
    /// limit.
    fn recovered(&self, id: RequestId) -> ToVerify {
        ToVerify { id, who: None, permit: self.waiting.force_acquire(UNKNOWN.client(), "") }
    }

    /// A request that got its 202 is verified, however long that takes (W-097). Per client a few are under way at once, so that
    /// each client makes progress.
    async fn verify_all(&self, requests: mpsc::UnboundedReceiver<ToVerify>, denials: &Denials) {
        Waiters::serve(
            requests,
            |request, queue| self.take_in(request, queue),
            |event, queue| self.handle(event, queue, denials),
        )
        .await;
    }

    /// Reads nothing: a store that does not answer must not hold up the others.
    fn take_in(&self, ToVerify { id, who, permit }: ToVerify, queue: &mut Waiters) {
        let step = if who.is_some() { Step::Read } else { Step::Recover };
        let task = Task { who: who.unwrap_or(UNKNOWN), step, tries: 0 };
        if queue.insert(id.0, Entry { task, waiting: permit }) {
            self.enqueue(id.0, task, "", queue);
        }
    }

    /// Queues for the permit that a step needs.
    fn enqueue(&self, number: u64, task: Task, peer: &str, queue: &Waiters) {
        let limiter = match (task.step, self.policy.limiter()) {
            (Step::Read | Step::Recover, _) => &self.reading,
            (Step::CheckTopic, Some(limiter)) => limiter,
            (Step::CheckTopic, None) | (Step::Resolve, _) => &self.lookups,
            (Step::AskCallback, _) => &self.callbacks,
        };
        limiter.enqueue(task.who.client(), limiter.peer(peer), &queue.grants, number);
    }

    fn handle(&self, event: Event<Next>, queue: &mut Waiters, denials: &Denials) {
        match event {
            Event::Granted(number, permit) => {
                let Some(Entry { task, .. }) = queue.entries.get(&number) else { return };
                let (verification, denials, task) = (self.clone(), denials.clone(), *task);
                let work = async move { verification.step(RequestId(number), task, permit, &denials).await };
                queue.run(number, work);
            }
            Event::PauseOver(number, Some(permit)) => permit.requeue(&queue.grants, number),
            Event::Finished(number, Some(Next::Step { who, step, peer, waiting })) => {
                let Some(entry) = queue.entries.get_mut(&number) else { return };
                entry.task = Task { who, step, tries: 0 };
                if let Some(waiting) = waiting {
                    entry.waiting = waiting;
                }
                let task = entry.task;
                self.enqueue(number, task, &peer, queue);
            }
            Event::Finished(number, Some(Next::Unread)) => {
                let Some(Entry { task, .. }) = queue.entries.get(&number) else { return };
                self.enqueue(number, *task, "", queue);
            }
            Event::Finished(number, Some(Next::Again { pause, permit, counts })) => {
                if let Some(entry) = queue.entries.get_mut(&number) {
                    entry.task.tries += u8::from(counts);
                }
                queue.pause(number, pause, Some(permit));
            }
            Event::Finished(number, Some(Next::Notify(denial))) => {
                // Its permit goes with it: what waits to be notified counts with what waits to be verified.
                if let Some(Entry { task, waiting }) = queue.forget(number) {
                    denials.notify(denial, task.who.client, Some(waiting));
                }
            }
            // After a panic it stays in the store for the next owner.
            Event::Finished(number, Some(Next::Done) | None) | Event::PauseOver(number, None) => {
                queue.forget(number);
            }
        }
    }

    /// Does one step. A request that a newer one of the same client for the same pair replaced is no longer in the store.
    async fn step(&self, id: RequestId, task: Task, permit: Permit, denials: &Denials) -> Next {
        if matches!(task.step, Step::Read | Step::Recover) {
            return self.read(id, task, permit).await;
        }
        let Some(found) = until_stored(|| self.store.request(id)).await else { return Next::Done };
        let Some(request) = found else {
            debug!(id = id.0, "request replaced by a newer one for the same topic and callback");
            return Next::Done;
        };
        match task.step {
            Step::AskCallback => self.ask_callback(request, task, permit, denials).await,
            _ => self.check_topic(request, task, permit, denials).await,
        }
    }

    /// After a failure of the store the permit is kept over the pause, so that it is read only a few times a second, whatever
    /// waits. Then the request queues at the end, so that one that cannot be read holds up no other.
    async fn read(&self, id: RequestId, task: Task, _permit: Permit) -> Next {
        match self.first_step(id, task).await {
            Ok(first) => first,
            Err(error) => {
                if may_pass(&error).await {
                    Next::Unread
                } else {
                    Next::Done
                }
            }
        }
    }

    /// Who sent a request that another hub has accepted, or that waited in a shard that was taken over.
    async fn requester(&self, request: &PendingRequest) -> Result<Requester, StoreError> {
        let found = self.store.find_subscription(&request.topic, &request.callback).await?;
        let confirmed = self.breaker.has_confirmed(request.client, &request.callback);
        Ok(Requester { client: request.client, in_force: found.is_some(), confirmed })
    }
}

/// Verifies what comes in one shard.
#[derive(Clone, Debug)]
struct Verifier {
    verification: Verification,
    denials: Denials,
}

#[async_trait]
impl JobRunner for Verifier {
    type Job = ToVerify;

    fn run(&self, requests: mpsc::UnboundedReceiver<ToVerify>) -> BoxFuture<'static, ()> {
        let Self { verification, denials } = self.clone();
        Box::pin(async move { verification.verify_all(requests, &denials).await })
    }

    async fn enqueue_waiting(
        &self,
        shards: &[Shard],
        queues: &JobQueues<ToVerify>,
    ) -> Result<(), StoreError> {
        for (shard, id) in self.verification.store.request_ids(shards).await? {
            queues.send(shard, self.verification.recovered(id));
        }
        Ok(())
    }

    /// Each is read when its turn comes.
    async fn jobs(&self, _: Shard, accepted: &[Accepted]) -> Result<Vec<ToVerify>, StoreError> {
        let requests = accepted.iter().filter_map(|accepted| match accepted {
            Accepted::Request(id) => Some(*id),
            Accepted::Denial(_) | Accepted::Ping(_) => None,
        });
        Ok(requests.map(|id| self.verification.recovered(id)).collect())
    }
}
