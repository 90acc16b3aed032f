//! The operator's hand on one shard: what is late, and what to do about it.

use std::time::Instant;

use super::super::hosts::OpenHost;
use super::{Machine, Now};
use crate::delivery::member::Phase;
use crate::delivery::operator::{Act, LateSubscription, Owed, Progress, TopicStanding, Waits, Which};
use crate::delivery::schedule::GivenUp;
use crate::delivery::waiting::LastAttempt;
use crate::store::{FailureClass, Offset, Replayed, Skip, SubscriptionId, TopicId};

impl Machine {
    /// Does what the operator wants; returns how many subscriptions of this shard that concerns.
    pub(in super::super) fn act(&mut self, act: &Act, now: Now) -> usize {
        match act {
            Act::Retry(which) => self.retry(which),
            Act::Skip(id) => self.topic_of(*id).map_or(0, |topic| usize::from(self.give_up(topic, *id, now))),
            Act::Replay { topic, subscription: Some(id), from } => {
                usize::from(self.replay(*topic, *id, *from, now))
            }
            Act::Replay { topic, subscription: None, from } => self.replay_topic(*topic, *from, now),
        }
    }

    /// The topic of a subscription of this shard.
    pub(in super::super) fn topic_of(&self, id: SubscriptionId) -> Option<TopicId> {
        self.topics.iter().find(|(_, state)| state.slot(id).is_some()).map(|(topic, _)| *topic)
    }

    /// At most `limit` subscriptions that are behind, in the order of topics and ids.
    pub(in super::super) fn late(
        &self,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
        now: Instant,
    ) -> Vec<LateSubscription> {
        let (from, behind) = after.unwrap_or((TopicId(0), SubscriptionId(0)));
        let late = self.topics.range(from..).flat_map(|(topic, state)| {
            let behind = if *topic == from { behind } else { SubscriptionId(0) };
            state.late(behind).filter_map(|(id, member)| {
                Some(LateSubscription {
                    topic: *topic,
                    subscription: id,
                    origin: self.hosts.origin(state.slot(id)?.host).to_owned(),
                    cursor: member.cursor,
                    head: state.head(),
                    attempts: member.attempts,
                    class: member.class,
                    failing_since: member.failing.map(|failing| failing.since),
                    next_attempt_in: match member.phase {
                        Phase::Backoff(due) | Phase::Resting(due) => Some(due.saturating_duration_since(now)),
                        Phase::Waiting | Phase::InFlight | Phase::Parked => None,
                    },
                    paused: self.paused.contains(topic),
                })
            })
        });
        late.take(limit).collect()
    }

    /// Whether any subscription has this origin.
    pub(in super::super) fn knows_host(&self, origin: &str) -> bool {
        self.hosts.find(origin).is_some()
    }

    /// How the subscriptions of a topic stand.
    pub(in super::super) fn topic_standing(&self, topic: TopicId) -> TopicStanding {
        self.topics.get(&topic).map_or_else(TopicStanding::default, |state| TopicStanding {
            subscriptions: state.subscriptions(),
            late: state.late_count(),
        })
    }

    /// What is owed to the subscriptions of this shard.
    pub(in super::super) fn owed(&self) -> Owed {
        let topics = self.topics.iter().map(|(topic, state)| {
            let (in_turn, behind) = state.owed();
            let paused = if self.paused.contains(topic) { in_turn + behind } else { 0 };
            Owed { in_turn, behind, paused }
        });
        topics.sum()
    }

    /// How far a subscription is.
    pub(in super::super) fn progress(
        &self,
        topic: TopicId,
        id: SubscriptionId,
        now: Instant,
    ) -> Option<Progress> {
        let state = self.topics.get(&topic)?;
        let slot = state.slot(id)?;
        let left_alone_for = self.hosts.left_alone(slot.host, now);
        let (head, paused) = (state.head(), self.paused.contains(&topic));
        let at = |cursor, waits| Progress {
            cursor,
            head,
            attempts: 0,
            failing_since: None,
            class: FailureClass::Slow,
            waits,
            left_alone_for,
            paused,
        };
        let Some(member) = state.member_of(id) else {
            let done = state.done_of(id).max(slot.start);
            return Some(at(done, if done < head { Waits::Turn } else { Waits::Nothing }));
        };
        let waits = match member.phase {
            Phase::Backoff(due) => Waits::Attempt(due.saturating_duration_since(now)),
            Phase::InFlight => Waits::UnderWay,
            Phase::Waiting => Waits::Host,
            Phase::Parked | Phase::Resting(_) if member.cursor < head => Waits::Turn,
            Phase::Parked | Phase::Resting(_) => Waits::Nothing,
        };
        let (attempts, class) = (member.attempts, member.class);
        let failing_since = member.failing.map(|failing| failing.since);
        Some(Progress { attempts, failing_since, class, ..at(member.cursor, waits) })
    }

    /// The hosts that are left alone.
    pub(in super::super) fn open_hosts(&self, now: Instant) -> Vec<OpenHost> {
        self.hosts.open(now)
    }

    fn retry(&mut self, which: &Which) -> usize {
        let host = match which {
            Which::Host(origin) => self.hosts.find(origin),
            Which::Topic(_) | Which::Subscription(_) => None,
        };
        let (mut concerned, mut left_alone) = (Vec::new(), Vec::new());
        for (topic, state) in &mut self.topics {
            let chosen = |id, of| match which {
                Which::Host(_) => Some(of) == host,
                Which::Topic(wanted) => wanted == topic,
                Which::Subscription(wanted) => *wanted == id,
            };
            let (hurried, waiting) = state.hurry(chosen);
            concerned.extend(hurried.into_iter().map(|(of, id)| (of, (*topic, id))));
            left_alone.extend(waiting.into_iter().filter(|of| self.hosts.is_left_alone(*of)));
        }
        if let Some(host) = host {
            self.hosts.probe_now(host);
        }
        for (of, waiter) in &concerned {
            self.hosts.wait(*of, *waiter, LastAttempt::Failed);
            self.hosts.probe_now(*of);
            self.touched.insert(waiter.0);
        }
        for of in &left_alone {
            self.hosts.probe_now(*of);
        }
        concerned.len() + left_alone.len()
    }

    fn give_up(&mut self, topic: TopicId, id: SubscriptionId, now: Now) -> bool {
        let Some(state) = self.topics.get_mut(&topic) else { return false };
        let goal = state.goal();
        let Some(member) = state.member(id) else { return false };
        if member.phase == Phase::InFlight || member.cursor >= goal {
            return false;
        }
        let offset = member.cursor.next();
        let class = member.class;
        member.passed(offset);
        member.suspect = None;
        let skip = Skip { topic, subscription: id, offset, at: now.wall, class, status: None };
        self.skip(skip, GivenUp::Operator);
        self.go_on(topic, id, now);
        true
    }

    fn replay(&mut self, topic: TopicId, id: SubscriptionId, from: Offset, now: Now) -> bool {
        let Some(state) = self.topics.get_mut(&topic) else { return false };
        let Some(slot) = state.slot(id).copied().filter(|slot| slot.lease_end > now.wall) else {
            return false;
        };
        let rewound = state.rewind(id, from);
        if rewound {
            self.owe_again(Replayed { topic, subscription: Some(id), from });
            self.hosts.wait(slot.host, (topic, id), LastAttempt::Failed);
            self.settle(topic);
        }
        rewound
    }

    /// What was given up is owed again.
    fn owe_again(&mut self, replayed: Replayed) {
        self.skips.retain(|skip| !replayed.covers(skip));
        self.replayed.push(replayed);
    }

    fn replay_topic(&mut self, topic: TopicId, from: Offset, now: Now) -> usize {
        let Some(state) = self.topics.get_mut(&topic).filter(|state| from <= state.head()) else { return 0 };
        for (host, id) in state.rewind_all(from) {
            self.hosts.wait(host, (topic, id), LastAttempt::Failed);
        }
        let concerned = state.slots().filter(|(_, slot)| slot.lease_end > now.wall).count();
        self.owe_again(Replayed { topic, subscription: None, from });
        self.settle(topic);
        concerned
    }
}
