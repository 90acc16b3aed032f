//! The operator's handle on the running delivery: queries and commands, answered by all workers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use tokio::sync::{mpsc, oneshot};

use super::owned::Owned;
use crate::delivery::scheduler::{
    Command, LaggardProgress, Now, OpenHost, Owed, Progress, Scheduler, TopicCounts,
};
use crate::store::{Shard, SubscriptionId, TopicId};
use crate::subscriptions::StopDeliveries;

/// Delivery has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("delivery has stopped")]
pub struct Stopped;

/// What a worker is asked for.
pub(crate) enum WorkerMessage {
    /// To be answered at once.
    Query(Query),
    /// To be answered with all that was durable before.
    UpToDateQuery(Query),
    /// To be answered once it is durable, with the number of subscriptions that it concerns.
    Command(Command, oneshot::Sender<usize>),
    /// To be answered once nothing is under way to this subscription, which has ended.
    Cancel(Shard, SubscriptionId, oneshot::Sender<()>),
    /// The address to which the name of this origin leads now was confirmed.
    Confirmed(Arc<str>),
}

/// Looks at the shards of a worker and answers.
type Query = Box<dyn FnOnce(&[Owned]) + Send>;

/// The operator's handle on the running delivery.
#[derive(Clone, Debug)]
pub struct Operator {
    workers: Arc<[mpsc::UnboundedSender<WorkerMessage>]>,
}

impl Operator {
    pub(crate) fn new(workers: Vec<mpsc::UnboundedSender<WorkerMessage>>) -> Self {
        Self { workers: workers.into() }
    }

    /// Returns when every worker has found time to answer.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn answers(&self) -> Result<(), Stopped> {
        self.query(|_, _| ()).await.map(drop)
    }

    /// The address to which the name of this origin leads now was confirmed: what waits for that goes out.
    pub(super) fn confirmed(&self, origin: &str) {
        let origin = Arc::<str>::from(origin);
        for worker in self.workers.iter() {
            // A worker that has gone needs to know nothing.
            let _ = worker.send(WorkerMessage::Confirmed(Arc::clone(&origin)));
        }
    }

    /// At most `limit` subscriptions that are behind, after this one, in the order of topics and ids.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn laggards(
        &self,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<LaggardProgress>, Stopped> {
        let laggards = self.query(move |shard, now| shard.laggards(after, limit, now)).await?;
        let mut found: Vec<_> = laggards.into_iter().flatten().collect();
        found.sort_unstable_by_key(|laggard| (laggard.topic, laggard.subscription));
        found.truncate(limit);
        Ok(found)
    }

    /// The hosts whose circuit breakers are open, by their origins.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn open_hosts(&self) -> Result<Vec<OpenHost>, Stopped> {
        let mut found: Vec<_> =
            self.query(|shard, now| shard.open_hosts(now.monotonic)).await?.into_iter().flatten().collect();
        found.sort_unstable_by(|one, other| one.origin.cmp(&other.origin));
        Ok(found)
    }

    /// Whether any subscription has this origin.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn knows_host(&self, origin: &str) -> Result<bool, Stopped> {
        let origin = origin.to_owned();
        let known = self.query(move |shard, _| shard.knows_host(&origin)).await?;
        Ok(known.contains(&true))
    }

    /// The topic of a subscription in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn topic_of(&self, id: SubscriptionId) -> Result<Option<TopicId>, Stopped> {
        Ok(self.query(move |shard, now| shard.topic_of(id, now)).await?.into_iter().flatten().next())
    }

    /// How many subscriptions are in force, without looking at each.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn in_force(&self) -> Result<usize, Stopped> {
        Ok(self.query(Scheduler::in_force).await?.into_iter().sum())
    }

    /// The subscriptions in force of a topic in numbers, without looking at each.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn topic(&self, topic: TopicId) -> Result<TopicCounts, Stopped> {
        Ok(self.query(move |shard, now| shard.topic_counts(topic, now)).await?.into_iter().sum())
    }

    /// How far a subscription of this topic is; `None` when it is not in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn progress(&self, topic: TopicId, id: SubscriptionId) -> Result<Option<Progress>, Stopped> {
        Ok(self.query(move |shard, now| shard.progress(topic, id, now)).await?.into_iter().flatten().next())
    }

    /// How far each of these subscriptions is that is in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn progress_of(
        &self,
        of: Arc<[(TopicId, SubscriptionId)]>,
    ) -> Result<HashMap<SubscriptionId, Progress>, Stopped> {
        let found = self.query(move |shard, now| -> Vec<_> {
            let known = of.iter().map(|(topic, id)| Some((*id, shard.progress(*topic, *id, now)?)));
            known.flatten().collect()
        });
        Ok(found.await?.into_iter().flatten().collect())
    }

    /// How many subscriptions have not got everything yet that was durable before this was asked. Takes time in proportion to
    /// the subscriptions of topics that a sweep is about.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn owed(&self) -> Result<Owed, Stopped> {
        Ok(self.query_by(WorkerMessage::UpToDateQuery, Scheduler::owed).await?.into_iter().sum())
    }

    /// Carries out a command; returns, once that is durable, how many subscriptions it concerns.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn execute(&self, command: &Command) -> Result<usize, Stopped> {
        Ok(self.ask(|reply| WorkerMessage::Command(command.clone(), reply)).await?.into_iter().sum())
    }

    /// The answers of all shards.
    async fn query<T: Send + 'static>(
        &self,
        answer: impl Fn(&Scheduler, Now) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stopped> {
        self.query_by(WorkerMessage::Query, answer).await
    }

    async fn query_by<T: Send + 'static>(
        &self,
        message: fn(Query) -> WorkerMessage,
        answer: impl Fn(&Scheduler, Now) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stopped> {
        let query = move |reply: oneshot::Sender<Vec<T>>| {
            let answer = answer.clone();
            message(Box::new(move |owned: &[Owned]| {
                let now = Now::read();
                // A caller that is gone needs no answer.
                let _ = reply.send(owned.iter().map(|owned| answer(&owned.scheduler, now)).collect());
            }))
        };
        Ok(self.ask(query).await?.into_iter().flatten().collect())
    }

    /// Asks every worker.
    async fn ask<T>(&self, message: impl Fn(oneshot::Sender<T>) -> WorkerMessage) -> Result<Vec<T>, Stopped> {
        let sent: Result<Vec<_>, Stopped> = self
            .workers
            .iter()
            .map(|worker| {
                let (reply, answer) = oneshot::channel();
                worker.send(message(reply)).map_err(|_| Stopped)?;
                Ok(answer)
            })
            .collect();
        try_join_all(sent?).await.map_err(|_| Stopped)
    }
}

#[async_trait]
impl StopDeliveries for Operator {
    async fn halt(&self, shard: Shard, subscription: SubscriptionId) {
        let Some(worker) = self.workers.get(usize::from(shard.0) % self.workers.len().max(1)) else { return };
        let (reply, cancelled) = oneshot::channel();
        if worker.send(WorkerMessage::Cancel(shard, subscription, reply)).is_ok() {
            // A worker that ends takes what was under way with it.
            let _ = cancelled.await;
        }
    }
}

#[cfg(test)]
impl Operator {
    /// Of a delivery that has stopped.
    pub(crate) fn of_nobody() -> Self {
        Self::new(Vec::new())
    }
}
