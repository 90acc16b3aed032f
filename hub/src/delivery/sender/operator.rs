//! The operator's handle on the running delivery: queries and commands, answered by all workers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use tokio::sync::oneshot;

use super::owned_shard::OwnedShard;
use super::partial_answer::PartialAnswer;
use super::workers::{Query, Stopped, WorkerMessage, Workers};
use crate::delivery::scheduler::{
    Command, LaggardProgress, Now, OpenHost, Owed, Progress, Scheduler, TopicCounts,
};
use crate::store::{Epoch, Shard, SubscriptionId, TopicId};
use crate::subscriptions::{NotOwned, StopDeliveries};

/// Why a shard gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Delivery has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// This hub does not deliver for it.
    #[error(transparent)]
    NotOwned(#[from] NotOwned),
}

/// The operator's handle on the running delivery.
#[derive(Clone, Debug)]
pub struct Operator {
    workers: Workers,
}

impl Operator {
    pub(crate) fn new(workers: Workers) -> Self {
        Self { workers }
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
        for worker in self.workers.senders() {
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
    ) -> Result<PartialAnswer<Vec<LaggardProgress>>, Stopped> {
        let laggards = self.query(move |shard, now| shard.laggards(after, limit, now)).await?;
        Ok(laggards.map(|laggards| {
            let mut found: Vec<_> = laggards.into_iter().flatten().collect();
            found.sort_unstable_by_key(|laggard| (laggard.topic, laggard.subscription));
            found.truncate(limit);
            found
        }))
    }

    /// The hosts whose circuit breakers are open, by their origins.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn open_hosts(&self) -> Result<PartialAnswer<Vec<OpenHost>>, Stopped> {
        let hosts = self.query(|shard, now| shard.open_hosts(now.monotonic)).await?;
        Ok(hosts.map(|hosts| {
            let mut found: Vec<_> = hosts.into_iter().flatten().collect();
            found.sort_unstable_by(|one, other| one.origin.cmp(&other.origin));
            found
        }))
    }

    /// Whether any subscription of this shard has this origin.
    ///
    /// # Errors
    /// [`NoAnswer`]
    pub async fn knows_host(&self, shard: Shard, origin: String) -> Result<bool, NoAnswer> {
        self.query_one(shard, move |shard, _| shard.knows_host(&origin)).await
    }

    /// The shard and the topic of a subscription in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn place_of(
        &self,
        id: SubscriptionId,
    ) -> Result<PartialAnswer<Option<(Shard, TopicId)>>, Stopped> {
        let places = self.query(move |shard, now| shard.place_of(id, now)).await?;
        Ok(places.map(|places| places.into_iter().flatten().next()))
    }

    /// How many subscriptions are in force, without looking at each.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn in_force(&self) -> Result<PartialAnswer<usize>, Stopped> {
        Ok(self.query(Scheduler::in_force).await?.map(|numbers| numbers.into_iter().sum()))
    }

    /// The subscriptions in force of a topic in numbers, without looking at each.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn topic(&self, topic: TopicId) -> Result<PartialAnswer<TopicCounts>, Stopped> {
        let counts = self.query(move |shard, now| shard.topic_counts(topic, now)).await?;
        Ok(counts.map(|counts| counts.into_iter().sum()))
    }

    /// How far a subscription of this shard and topic is; `None` when it is not in force.
    ///
    /// # Errors
    /// [`NoAnswer`]
    pub async fn progress(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Option<Progress>, NoAnswer> {
        self.query_one(shard, move |shard, now| shard.progress(topic, id, now)).await
    }

    /// How far each of these subscriptions is that is in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn progress_of(
        &self,
        of: Arc<[(TopicId, SubscriptionId)]>,
    ) -> Result<PartialAnswer<HashMap<SubscriptionId, Progress>>, Stopped> {
        let found = self.query(move |shard, now| -> Vec<_> {
            let known = of.iter().map(|(topic, id)| Some((*id, shard.progress(*topic, *id, now)?)));
            known.flatten().collect()
        });
        Ok(found.await?.map(|found| found.into_iter().flatten().collect()))
    }

    /// How many subscriptions have not got everything yet that was durable before this was asked. Takes time in proportion to
    /// the subscriptions of topics that a sweep is about.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn owed(&self) -> Result<PartialAnswer<Owed>, Stopped> {
        let owed = self.query_by(WorkerMessage::UpToDateQuery, Scheduler::owed).await?;
        Ok(owed.map(|owed| owed.into_iter().sum()))
    }

    /// Carries out a command in the shards that this hub owns; returns, once that is durable, how many subscriptions it concerns in each.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn execute(&self, command: &Command) -> Result<PartialAnswer<Vec<(Shard, usize)>>, Stopped> {
        self.ask(|reply| WorkerMessage::Command(command.clone(), None, reply)).await
    }

    /// Carries out a command in this shard alone, which has all that the command is about; returns, once that is durable, how many
    /// subscriptions it concerns.
    ///
    /// # Errors
    /// [`NoAnswer`]
    pub async fn execute_in(&self, shard: Shard, command: Command) -> Result<usize, NoAnswer> {
        let message = |reply| WorkerMessage::Command(command, Some(shard), reply);
        let concerned: Vec<(Shard, usize)> = self.ask_one(shard, message).await?;
        let concerned = concerned.first().map(|(_, subscriptions)| *subscriptions);
        concerned.ok_or_else(|| NotOwned(shard).into())
    }

    /// With which epoch this hub owns a shard.
    ///
    /// # Errors
    /// [`NoAnswer`]
    pub(crate) async fn epoch_of(&self, shard: Shard) -> Result<Epoch, NoAnswer> {
        self.look_at(shard, |owned, _| owned.ownership.epoch).await
    }

    /// The answer of this shard.
    async fn query_one<T: Send + 'static>(
        &self,
        shard: Shard,
        answer: impl FnOnce(&Scheduler, Now) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        self.look_at(shard, |owned, now| answer(&owned.scheduler, now)).await
    }

    async fn look_at<T: Send + 'static>(
        &self,
        shard: Shard,
        answer: impl FnOnce(&OwnedShard, Now) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let query = |reply: oneshot::Sender<Option<T>>| {
            WorkerMessage::Query(Box::new(move |owned: &[OwnedShard], now: Now| {
                let found = owned.iter().find(|owned| owned.ownership.shard == shard);
                // A caller that is gone needs no answer.
                let _ = reply.send(found.map(|owned| answer(owned, now)));
            }))
        };
        self.ask_one(shard, query).await?.ok_or_else(|| NotOwned(shard).into())
    }

    /// Asks the worker that has this shard.
    async fn ask_one<T>(
        &self,
        shard: Shard,
        message: impl FnOnce(oneshot::Sender<T>) -> WorkerMessage,
    ) -> Result<T, NoAnswer> {
        let worker = self.workers.worker_of(shard)?;
        let (reply, answer) = oneshot::channel();
        self.workers.send(worker, message(reply))?;
        Ok(answer.await.map_err(|_| Stopped)?)
    }

    /// The answers of the shards.
    async fn query<T: Send + 'static>(
        &self,
        answer: impl Fn(&Scheduler, Now) -> T + Clone + Send + 'static,
    ) -> Result<PartialAnswer<Vec<T>>, Stopped> {
        self.query_by(WorkerMessage::Query, answer).await
    }

    async fn query_by<T: Send + 'static>(
        &self,
        message: fn(Query) -> WorkerMessage,
        answer: impl Fn(&Scheduler, Now) -> T + Clone + Send + 'static,
    ) -> Result<PartialAnswer<Vec<T>>, Stopped> {
        let query = move |reply: oneshot::Sender<Vec<T>>| {
            let answer = answer.clone();
            message(Box::new(move |owned: &[OwnedShard], now: Now| {
                // A caller that is gone needs no answer.
                let _ = reply.send(owned.iter().map(|owned| answer(&owned.scheduler, now)).collect());
            }))
        };
        self.ask(query).await
    }

    /// Has all workers cancel what they have under way to a subscription: what was begun before somebody else took its shard may be with any.
    /// Returns where they answer.
    fn cancel_everywhere(
        &self,
        shard: Shard,
        subscription: SubscriptionId,
    ) -> Vec<oneshot::Receiver<Result<(), NotOwned>>> {
        let cancelled = self.workers.senders().iter().filter_map(|worker| {
            let (reply, cancelled) = oneshot::channel();
            worker.send(WorkerMessage::Cancel(shard, subscription, reply)).ok()?;
            Some(cancelled)
        });
        cancelled.collect()
    }

    /// Asks every worker, each of which answers for its shards.
    async fn ask<T>(
        &self,
        message: impl Fn(oneshot::Sender<Vec<T>>) -> WorkerMessage,
    ) -> Result<PartialAnswer<Vec<T>>, Stopped> {
        let sent: Result<Vec<_>, Stopped> = self
            .workers
            .senders()
            .iter()
            .map(|worker| {
                let (reply, answer) = oneshot::channel();
                worker.send(message(reply)).map_err(|_| Stopped)?;
                Ok(answer)
            })
            .collect();
        let by_worker = try_join_all(sent?).await.map_err(|_| Stopped)?;
        let answers: Vec<_> = by_worker.into_iter().flatten().collect();
        let elsewhere = usize::from(self.workers.shards()).saturating_sub(answers.len());
        Ok(PartialAnswer::new(answers, elsewhere))
    }
}

#[async_trait]
impl StopDeliveries for Operator {
    async fn halt(&self, shard: Shard, subscription: SubscriptionId) -> Result<(), NotOwned> {
        let cancel = move |reply| WorkerMessage::Cancel(shard, subscription, reply);
        match self.ask_one(shard, cancel).await {
            // A worker that has ended, or ends, takes what was under way with it.
            Ok(Ok(())) | Err(NoAnswer::Stopped(_)) => Ok(()),
            Ok(Err(not_owned)) | Err(NoAnswer::NotOwned(not_owned)) => {
                let cancelled = join_all(self.cancel_everywhere(shard, subscription)).await;
                // It may have come meanwhile.
                let is_here = cancelled.into_iter().flatten().any(|cancelled| cancelled.is_ok());
                if is_here { Ok(()) } else { Err(not_owned) }
            }
        }
    }
}

#[cfg(test)]
impl Operator {
    /// Of a delivery that has stopped.
    pub(crate) fn of_nobody() -> Self {
        Self::new(Workers::new(Vec::new(), 0))
    }
}

#[cfg(test)]
mod tests {
    use tokio::join;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_was_begun_before_somebody_else_took_the_shard_is_cancelled_too() {
        let (worker, mut messages) = mpsc::unbounded_channel();
        let operator = Operator::new(Workers::new(vec![worker], 16));
        // Nothing more can come once this has ended.
        let halting = async move { operator.halt(Shard(3), SubscriptionId(7)).await };
        let cancelling = async {
            let Some(WorkerMessage::Cancel(shard, subscription, reply)) = messages.recv().await else {
                panic!("the worker is not asked")
            };
            reply.send(Err(NotOwned(shard))).unwrap();
            (shard, subscription)
        };
        let (halted, cancelled) = join!(halting, cancelling);
        assert_eq!(halted, Err(NotOwned(Shard(3))));
        assert_eq!(cancelled, (Shard(3), SubscriptionId(7)));
    }
}
