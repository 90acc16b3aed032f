//! Denials: a subscription that is not accepted, or no longer, ends at once, and its callback is told (W-098 to W-102).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::websub;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::queues::Queues;
use super::verification::Ways;
use crate::delivery::Halts;
use crate::egress::{self, EgressError, ReadLimit};
use crate::places::{self, Asker, Place};
use crate::store::{Denial, NewDenial, Shard, Store, StoreError, SubscriptionId, TopicId};

/// An answer means nothing, so little of it is read.
const ANSWER_READ: usize = 4 * 1024;
/// Pauses before a callback that could not be reached is told again (D-08).
const AGAIN_AFTER: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1_800),
];
/// A callback that never confirmed anything is not asked for more than a verification would (B-33).
const AGAIN_WHERE_NEVER_CONFIRMED: usize = 1;
/// Callbacks of one kind that are told, or wait to be told again, at once; others wait before.
const AT_ONCE: usize = 4_096;
/// When the store does not answer, it is asked again.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Denies subscriptions.
#[derive(Clone, Debug)]
pub struct Denials {
    store: Arc<dyn Store>,
    halts: Halts,
    telling: mpsc::UnboundedSender<ToTell>,
}

/// A denial on its way to its callback.
#[derive(Debug)]
pub struct ToTell {
    denial: Denial,
    /// Who asked for what was denied: it is told by that client's share. An operator and a restart have none.
    client: Option<IpAddr>,
    /// That of the request that was denied: what waits to be told counts with what waits to be verified.
    _place: Option<Place>,
}

impl ToTell {
    /// A denial that an earlier life left untold.
    pub fn left(denial: Denial) -> Self {
        Self { denial, client: None, _place: None }
    }
}

impl Denials {
    /// `telling` gets each denial once it is durable.
    pub fn new(store: Arc<dyn Store>, halts: Halts, telling: mpsc::UnboundedSender<ToTell>) -> Self {
        Self { store, halts, telling }
    }

    /// Denies a subscription in force, or a request that waits. When this returns true, the subscription gets nothing any more,
    /// a crash does not bring it back, and its callback is going to be told. False: there was nothing to deny.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made durable; then nothing has changed.
    pub async fn deny(&self, denial: NewDenial) -> Result<bool, StoreError> {
        self.deny_for(None, denial, &mut None).await
    }

    /// Ends a subscription whose record cannot be read, as far as that goes: it gets nothing any more, and is not in the way of a new one,
    /// but nobody knows any more who has to be told. False: there is no such subscription, or it can be read.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made durable; then nothing has changed.
    pub async fn end_unreadable(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<bool, StoreError> {
        let ended = self.store.end_unreadable(shard, topic, id).await?;
        if ended {
            self.halts.halt(shard, id).await;
            warn!(
                topic = format!("{:016x}", topic.0),
                subscription = id.0,
                "denied, but its record cannot be read: it is removed, and its callback is not told"
            );
        }
        Ok(ended)
    }

    /// Denies for a request of this client, whose place is kept until its callback was told.
    pub(super) async fn deny_for(
        &self,
        client: Option<IpAddr>,
        denial: NewDenial,
        place: &mut Option<Place>,
    ) -> Result<bool, StoreError> {
        let Some(denial) = self.store.deny(denial).await? else { return Ok(false) };
        if let Some((shard, _, subscription)) = denial.ended {
            self.halts.halt(shard, subscription).await;
        }
        info!(
            topic = denial.topic.as_str(),
            origin = denial.callback.origin(),
            reason = denial.reason,
            "denied"
        );
        // At shutdown nobody listens any more; the denial is durable and waits for the next start.
        let _ = self.telling.send(ToTell { denial, client, _place: place.take() });
        Ok(true)
    }
}

/// Tells callbacks that they were denied, many at once, but those that never confirmed apart from those that had a subscription:
/// strangers hold up no operator.
#[derive(Clone, Debug)]
pub struct Telling {
    store: Arc<dyn Store>,
    ways: Ways,
    queues: Queues,
}

/// What is told, and what waits for that.
#[derive(Debug, Default)]
struct Lane {
    tasks: JoinSet<()>,
    backlog: VecDeque<ToTell>,
}

impl Telling {
    pub(super) fn new(store: Arc<dyn Store>, ways: Ways, queues: Queues) -> Self {
        Self { store, ways, queues }
    }

    /// Tells whatever comes, until `stop` turns true. What is not told by then waits in the store for the next start.
    pub async fn run(self, denials: mpsc::UnboundedReceiver<ToTell>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.tell_all(denials) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// The channel closes when the hub stops; what waits then, waits in the store.
    async fn tell_all(&self, mut denials: mpsc::UnboundedReceiver<ToTell>) {
        let (mut ended, mut refused) = (Lane::default(), Lane::default());
        loop {
            let lane = tokio::select! {
                told = denials.recv() => {
                    let Some(to_tell) = told else { break };
                    let lane = if to_tell.denial.ended.is_some() { &mut ended } else { &mut refused };
                    lane.backlog.push_back(to_tell);
                    lane
                }
                Some(_) = ended.tasks.join_next() => &mut ended,
                Some(_) = refused.tasks.join_next() => &mut refused,
            };
            lane.fill(self);
        }
        while ended.tasks.join_next().await.is_some() {}
        while refused.tasks.join_next().await.is_some() {}
    }

    async fn tell(&self, denial: &Denial, client: Option<IpAddr>) {
        let again = if denial.ended.is_some() { AGAIN_AFTER.len() } else { AGAIN_WHERE_NEVER_CONFIRMED };
        let mut pauses = AGAIN_AFTER.iter().take(again);
        while self.is_true_still(denial).await {
            let Err(why) = self.tell_once(denial, client).await else { break };
            let origin = denial.callback.origin();
            let Some(pause) = pauses.next() else {
                warn!(
                    topic = denial.topic.as_str(),
                    origin, why, "denied, but the callback could not be told"
                );
                break;
            };
            debug!(topic = denial.topic.as_str(), origin, why, "the callback is told again later");
            sleep(*pause).await;
        }
        while let Err(error) = self.store.remove_denial(denial).await {
            tracing::error!(%error, "the store does not take that a denial was told, trying again");
            sleep(STORE_AGAIN_AFTER).await;
        }
    }

    /// Whoever has subscribed anew since must not be told that it has been denied.
    async fn is_true_still(&self, denial: &Denial) -> bool {
        loop {
            match self.store.find_subscription(&denial.topic, &denial.callback).await {
                Ok(subscription) => return subscription.is_none(),
                Err(error) => tracing::error!(%error, "a denial waits for the store"),
            }
            sleep(STORE_AGAIN_AFTER).await;
        }
    }

    /// Any answer will do (D-08); otherwise why there was none.
    async fn tell_once(&self, denial: &Denial, client: Option<IpAddr>) -> Result<(), String> {
        let request = match telling(denial) {
            Ok(request) => request,
            Err(error) => {
                warn!(origin = denial.callback.origin(), %error, "the callback is no target of a request");
                return Ok(());
            }
        };
        let lane = if denial.ended.is_some() { places::Lane::Known } else { places::Lane::Stranger };
        let mut place = self.queues.place(Asker { client, lane }, &denial.callback).await;
        loop {
            match self.ways.of(lane).send(request.clone(), ReadLimit::Discard(ANSWER_READ)).await {
                Ok(_) => return Ok(()),
                Err(EgressError::Forbidden(forbidden)) => {
                    warn!(origin = denial.callback.origin(), %forbidden, "the callback is not told");
                    return Ok(());
                }
                // Nothing was asked, so it is no failure of the callback's.
                Err(EgressError::Crowded(wait)) => place.step_aside(wait.max(AGAIN_AFTER[0])).await,
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Lane {
    fn fill(&mut self, telling: &Telling) {
        while self.tasks.len() < AT_ONCE
            && let Some(next) = self.backlog.pop_front()
        {
            let telling = telling.clone();
            self.tasks.spawn(async move {
                // Its place is free once it is told, and not before.
                let ToTell { denial, client, _place } = next;
                telling.tell(&denial, client).await;
            });
        }
    }
}

fn telling(denial: &Denial) -> Result<Request<Full<Bytes>>, http::Error> {
    let denied = websub::Verification::Denied {
        topic: denial.topic.as_str().to_owned(),
        reason: Some(denial.reason.clone()).filter(|reason| !reason.is_empty()),
    };
    Request::get(denied.to_url(&denial.callback))
        .header(USER_AGENT, egress::USER_AGENT)
        .body(Full::new(Bytes::new()))
}
