//! What an operator may see and do: subscriptions that are late, hosts that are left alone; retry, skip, replay.

use std::iter::Sum;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use tokio::sync::{mpsc, oneshot};

pub use super::hosts::OpenHost;
use crate::store::{FailureClass, Offset, SubscriptionId, TopicId};
use crate::topics::Subscribers;

/// What the operator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Subscriptions that wait for another attempt get it now, and hosts that are left alone a probe.
    Retry(Which),
    /// The next notification is given up for this subscription and recorded as skipped. Not while it is on its way.
    Skip(SubscriptionId),
    /// Notifications from this offset on are delivered once more, as far as the log still holds them and they are younger than
    /// the subscription.
    Replay {
        /// The topic.
        topic: TopicId,
        /// One of its subscriptions; `None`: all of them.
        subscription: Option<SubscriptionId>,
        /// The first one.
        from: Offset,
    },
}

/// Whom an act is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All late subscriptions of a topic.
    Topic(TopicId),
    /// This one.
    Subscription(SubscriptionId),
    /// All late subscriptions with this origin.
    Host(String),
}

/// A subscription that is behind, or whose last delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateSubscription {
    /// Its topic.
    pub topic: TopicId,
    /// Which one.
    pub subscription: SubscriptionId,
    /// Where its deliveries go.
    pub origin: String,
    /// It is done through here …
    pub cursor: Offset,
    /// … and this is the newest notification.
    pub head: Offset,
    /// Failed attempts at the next notification.
    pub attempts: u16,
    /// Why the last attempt failed.
    pub class: FailureClass,
    /// When the present row of failures began.
    pub failing_since: Option<DateTime>,
    /// When it is tried again; `None`: it is under way, or waits for its host.
    pub next_attempt_in: Option<Duration>,
    /// Nothing of its topic is delivered for now.
    pub paused: bool,
}

/// How far one subscription is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// It is done through here …
    pub cursor: Offset,
    /// … and this is the newest notification.
    pub head: Offset,
    /// Failed attempts at the next notification.
    pub attempts: u16,
    /// When the present row of failures began.
    pub failing_since: Option<DateTime>,
    /// Why the last attempt failed.
    pub class: FailureClass,
    /// What it waits for.
    pub waits: Waits,
    /// Its host is left alone for so long.
    pub left_alone_for: Option<Duration>,
    /// Nothing of its topic is delivered for now.
    pub paused: bool,
}

/// What a subscription waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Everything was delivered to it, or given up.
    Nothing,
    /// Its turn in a sweep.
    Turn,
    /// A place at its host.
    Host,
    /// An answer.
    UnderWay,
    /// The time of its next attempt.
    Attempt(Duration),
}

/// How the subscriptions of a topic stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicStanding {
    /// How many are in force.
    pub subscriptions: usize,
    /// How many of them are behind the others.
    pub late: usize,
}

impl Sum for TopicStanding {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            subscriptions: sum.subscriptions + part.subscriptions,
            late: sum.late + part.late,
        })
    }
}

/// How many subscriptions have not got everything yet that is in the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Sweeps have still to serve them.
    pub in_turn: usize,
    /// Sweeps have passed them by: they wait for another attempt, for their host or for an answer.
    pub behind: usize,
    /// So many of both wait for their topic to be resumed.
    pub paused: usize,
}

impl Sum for Owed {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            in_turn: sum.in_turn + part.in_turn,
            behind: sum.behind + part.behind,
            paused: sum.paused + part.paused,
        })
    }
}

/// Delivery has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("delivery has stopped")]
pub struct Stopped;

/// A page of late subscriptions: after this one, at most so many.
pub(super) type Page = (Option<(TopicId, SubscriptionId)>, usize);

/// What a worker is asked.
#[derive(Debug)]
pub(super) enum Order {
    /// Answered at once.
    Answer(oneshot::Sender<()>),
    Late(Page, oneshot::Sender<Vec<LateSubscription>>),
    Hosts(oneshot::Sender<Vec<OpenHost>>),
    KnowsHost(String, oneshot::Sender<bool>),
    TopicOf(SubscriptionId, oneshot::Sender<Option<TopicId>>),
    Subscriptions(TopicId, oneshot::Sender<usize>),
    Topic(TopicId, oneshot::Sender<TopicStanding>),
    Progress(TopicId, SubscriptionId, oneshot::Sender<Option<Progress>>),
    /// Answered with all that was durable before.
    Owed(oneshot::Sender<Owed>),
    /// Answered once it is durable.
    Act(Act, oneshot::Sender<usize>),
}

/// The operator's handle on the running delivery.
#[derive(Clone, Debug)]
pub struct Operator {
    workers: Arc<[mpsc::UnboundedSender<Order>]>,
}

impl Operator {
    pub(super) fn new(workers: Vec<mpsc::UnboundedSender<Order>>) -> Self {
        Self { workers: workers.into() }
    }

    /// Returns when every worker has found time to answer.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn answers(&self) -> Result<(), Stopped> {
        self.ask(Order::Answer).await.map(drop)
    }

    /// At most `limit` subscriptions that are behind, after this one, in the order of topics and ids.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn late(
        &self,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<LateSubscription>, Stopped> {
        let mut found: Vec<_> =
            self.ask(|reply| Order::Late((after, limit), reply)).await?.into_iter().flatten().collect();
        found.sort_unstable_by_key(|late| (late.topic, late.subscription));
        found.truncate(limit);
        Ok(found)
    }

    /// The hosts that are left alone, by their origins.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn open_hosts(&self) -> Result<Vec<OpenHost>, Stopped> {
        let mut found: Vec<_> = self.ask(Order::Hosts).await?.into_iter().flatten().collect();
        found.sort_unstable_by(|one, other| one.origin.cmp(&other.origin));
        Ok(found)
    }

    /// Whether any subscription has this origin.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn knows_host(&self, origin: &str) -> Result<bool, Stopped> {
        let known = self.ask(|reply| Order::KnowsHost(origin.to_owned(), reply)).await?;
        Ok(known.contains(&true))
    }

    /// The topic of a subscription in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn topic_of(&self, id: SubscriptionId) -> Result<Option<TopicId>, Stopped> {
        Ok(self.ask(|reply| Order::TopicOf(id, reply)).await?.into_iter().flatten().next())
    }

    /// How many subscriptions of this topic are in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn subscriptions(&self, topic: TopicId) -> Result<usize, Stopped> {
        Ok(self.ask(|reply| Order::Subscriptions(topic, reply)).await?.into_iter().sum())
    }

    /// How many subscriptions a topic has.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn topic(&self, topic: TopicId) -> Result<TopicStanding, Stopped> {
        Ok(self.ask(|reply| Order::Topic(topic, reply)).await?.into_iter().sum())
    }

    /// How far a subscription of this topic is; `None` when it is not in force.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn progress(&self, topic: TopicId, id: SubscriptionId) -> Result<Option<Progress>, Stopped> {
        Ok(self.ask(|reply| Order::Progress(topic, id, reply)).await?.into_iter().flatten().next())
    }

    /// How many subscriptions have not got everything yet that was durable before this was asked. Takes time in proportion to
    /// the subscriptions of topics that a sweep is about.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn owed(&self) -> Result<Owed, Stopped> {
        Ok(self.ask(Order::Owed).await?.into_iter().sum())
    }

    /// Does it; returns, once that is durable, how many subscriptions it concerns.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn act(&self, act: &Act) -> Result<usize, Stopped> {
        Ok(self.ask(|reply| Order::Act(act.clone(), reply)).await?.into_iter().sum())
    }

    /// Asks every worker.
    async fn ask<T>(&self, order: impl Fn(oneshot::Sender<T>) -> Order) -> Result<Vec<T>, Stopped> {
        let mut replies = Vec::with_capacity(self.workers.len());
        for worker in self.workers.iter() {
            let (reply, answer) = oneshot::channel();
            worker.send(order(reply)).map_err(|_| Stopped)?;
            replies.push(answer);
        }
        let mut answers = Vec::with_capacity(replies.len());
        for reply in replies {
            answers.push(reply.await.map_err(|_| Stopped)?);
        }
        Ok(answers)
    }
}

#[async_trait]
impl Subscribers for Operator {
    /// When delivery has stopped, so does the hub: then there are none.
    async fn of(&self, topic: TopicId) -> usize {
        self.subscriptions(topic).await.unwrap_or_default()
    }
}

#[cfg(test)]
impl Operator {
    /// Of a delivery that has stopped.
    pub(crate) fn of_nobody() -> Self {
        Self::new(Vec::new())
    }
}
