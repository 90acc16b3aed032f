//! What an operator sees of the deliveries of a shard: what is late, how far a subscription is, what is owed.

use std::iter::Sum;
use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;

use super::Scheduler;
use super::active::Phase;
use super::clock::Now;
use super::hosts::OpenHost;
use super::topic::TopicState;
use crate::store::{FailureClass, Offset, Shard, SubscriptionId, TopicId};

/// A subscription that is behind, or whose last delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaggardProgress {
    /// Its topic.
    pub topic: TopicId,
    /// Which one.
    pub subscription: SubscriptionId,
    /// Where its deliveries go.
    pub origin: String,
    /// When its lease ends.
    pub lease_end: DateTime,
    /// It is done through here.
    pub cursor: Offset,
    /// The newest notification.
    pub head: Offset,
    /// Failed attempts since something was delivered to it or given up.
    pub streak_failures: u16,
    /// Why the last attempt failed.
    pub class: FailureClass,
    /// Since when there are only failures.
    pub failing_since: Option<DateTime>,
    /// When it is tried again; `None`: it is under way, or waits for its host.
    pub next_attempt_in: Option<Duration>,
    /// Nothing of its topic is delivered for now.
    pub paused: bool,
}

/// How far one subscription is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// It is done through here.
    pub cursor: Offset,
    /// The newest notification.
    pub head: Offset,
    /// Failed attempts since something was delivered to it or given up.
    pub streak_failures: u16,
    /// Since when there are only failures.
    pub failing_since: Option<DateTime>,
    /// Why the last attempt failed.
    pub class: FailureClass,
    /// What it waits for.
    pub waits: WaitsFor,
    /// The circuit breaker of its host is open for so long.
    pub breaker_open_for: Option<Duration>,
    /// Nothing of its topic is delivered for now.
    pub paused: bool,
}

/// What a subscription waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Everything was delivered to it, or given up.
    Nothing,
    /// A sweep that has not taken it up yet.
    Sweep,
    /// A permit of its host.
    Host,
    /// An answer.
    UnderWay,
    /// The time of its next attempt.
    Attempt(Duration),
}

/// The subscriptions of a topic in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicCounts {
    /// How many are in force.
    pub subscriptions: usize,
    /// How many of them are behind the others.
    pub laggards: usize,
}

impl Sum for TopicCounts {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            subscriptions: sum.subscriptions + part.subscriptions,
            laggards: sum.laggards + part.laggards,
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

impl Scheduler {
    /// At most `limit` subscriptions that are behind, in the order of topics and ids.
    pub(crate) fn laggards(
        &self,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
        now: Now,
    ) -> Vec<LaggardProgress> {
        let (from, behind) = after.unwrap_or((TopicId(0), SubscriptionId(0)));
        let laggards = self.topics.range(from..).flat_map(|(topic, state)| {
            let behind = if *topic == from { behind } else { SubscriptionId(0) };
            state.laggards(behind).filter_map(|(id, active)| {
                let entry = state.table.get(id).filter(|entry| entry.is_in_force(now))?;
                Some(LaggardProgress {
                    topic: *topic,
                    subscription: id,
                    origin: self.hosts.origin(entry.host).to_owned(),
                    lease_end: entry.lease_end,
                    cursor: active.cursor,
                    head: state.head,
                    streak_failures: active.streak_failures,
                    class: active.class,
                    failing_since: active.failing.map(|failing| failing.since),
                    next_attempt_in: match active.phase {
                        Phase::Backoff(due) | Phase::Remembered(due) => {
                            Some(due.saturating_duration_since(now.monotonic))
                        }
                        Phase::Waiting | Phase::InFlight | Phase::Parked => None,
                    },
                    paused: self.paused.contains(topic),
                })
            })
        });
        laggards.take(limit).collect()
    }

    /// How far a subscription in force is.
    pub(crate) fn progress(&self, topic: TopicId, id: SubscriptionId, now: Now) -> Option<Progress> {
        let state = self.topics.get(&topic)?;
        let entry = state.table.get(id).filter(|entry| entry.is_in_force(now))?;
        let breaker_open_for = self.hosts.open_for(entry.host, now.monotonic);
        let (head, paused) = (state.head, self.paused.contains(&topic));
        let at = |cursor, waits| Progress {
            cursor,
            head,
            streak_failures: 0,
            failing_since: None,
            class: FailureClass::NotFailed,
            waits,
            breaker_open_for,
            paused,
        };
        let Some(active) = state.active.get(&id) else {
            let done = state.done_of(id).max(entry.start);
            return Some(at(done, if done < head { WaitsFor::Sweep } else { WaitsFor::Nothing }));
        };
        let waits = match active.phase {
            Phase::Backoff(due) => WaitsFor::Attempt(due.saturating_duration_since(now.monotonic)),
            Phase::InFlight => WaitsFor::UnderWay,
            Phase::Waiting => WaitsFor::Host,
            Phase::Parked | Phase::Remembered(_) if active.cursor < head => WaitsFor::Sweep,
            Phase::Parked | Phase::Remembered(_) => WaitsFor::Nothing,
        };
        let (streak_failures, class) = (active.streak_failures, active.class);
        let failing_since = active.failing.map(|failing| failing.since);
        Some(Progress { streak_failures, failing_since, class, ..at(active.cursor, waits) })
    }

    /// This shard, and the topic of a subscription in force that it has.
    pub(crate) fn place_of(&self, id: SubscriptionId, now: Now) -> Option<(Shard, TopicId)> {
        Some((self.shard, self.topic_of(id, now)?))
    }

    pub(super) fn topic_of(&self, id: SubscriptionId, now: Now) -> Option<TopicId> {
        let has_it = |state: &TopicState| state.table.get(id).is_some_and(|entry| entry.is_in_force(now));
        self.topics.iter().find(|(_, state)| has_it(state)).map(|(topic, _)| *topic)
    }

    /// How many subscriptions are in force. Only those are looked at that may be over.
    pub(crate) fn in_force(&self, now: Now) -> usize {
        let over: usize = self.expiring(now).map(|(_, state)| state.table.over(now).count()).sum();
        self.subscriptions - over
    }

    /// Whether any subscription has this origin.
    pub(crate) fn knows_host(&self, origin: &str) -> bool {
        self.hosts.find(origin).is_some()
    }

    /// The subscriptions in force of a topic in numbers. Only those are looked at that may be over.
    pub(crate) fn topic_counts(&self, topic: TopicId, now: Now) -> TopicCounts {
        let Some(state) = self.topics.get(&topic) else { return TopicCounts::default() };
        let over = state.table.over(now).filter(|(id, _)| state.is_laggard(*id)).count();
        TopicCounts { subscriptions: state.table.in_force(now), laggards: state.laggard_count() - over }
    }

    /// What is owed to the subscriptions of this shard.
    pub(crate) fn owed(&self, now: Now) -> Owed {
        let topics = self.topics.iter().map(|(topic, state)| {
            let (in_turn, behind) = state.owed(now);
            let paused = if self.paused.contains(topic) { in_turn + behind } else { 0 };
            Owed { in_turn, behind, paused }
        });
        topics.sum()
    }

    /// The hosts whose circuit breakers are open.
    pub(crate) fn open_hosts(&self, now: Instant) -> Vec<OpenHost> {
        self.hosts.open_breakers(now)
    }
}
