//! Records of how far delivery is: watermarks, laggards, what was given up and what was lost.

use std::time::Duration;

use resync_core::datetime::DateTime;

use super::{Epoch, Offset, Shard, SubscriptionId, SubscriptionSummary, Topic, TopicId};

/// How far one shard of a topic is: every subscription is done through `done`, except the laggards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Everything up to here is done.
    pub done: Offset,
    /// The sweep that was under way.
    pub sweep: Option<Sweep>,
}

impl Watermark {
    /// How far delivery may have been for anybody.
    pub fn furthest(&self) -> Offset {
        self.sweep.map_or(self.done, |sweep| self.done.max(sweep.target))
    }
}

/// A pass over the subscriptions of a topic in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The pass brings every subscription up to here.
    pub target: Offset,
    /// All subscriptions with ids up to this one are there already, except the laggards.
    pub through: SubscriptionId,
}

/// Why the last attempt failed, as far as the schedule cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Nothing failed: it is only slower than the others.
    NotFailed,
    /// 3xx and 4xx: perhaps this very message is refused.
    Refused,
    /// 408, 425, 429, 5xx, network, TLS, DNS: the host is in trouble.
    Trouble,
    /// 410: the subscriber says that the subscription is gone; it is asked once more.
    Gone,
    /// Nothing failed and nothing was sent: the name leads to where nobody has confirmed under it.
    Unsent,
}

/// A subscription whose place is not the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laggard {
    /// The topic.
    pub topic: TopicId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// It is done through this offset.
    pub cursor: Offset,
    /// How many attempts have failed since something was delivered to it or given up.
    pub streak_failures: u16,
    /// Not before this moment (wall clock) …
    pub next_attempt: DateTime,
    /// … nor later than so long after the hub is up again: the clock may have been set since.
    pub pause: Duration,
    /// The present row of failures.
    pub failing: Option<Failing>,
    /// Why the last attempt failed.
    pub class: FailureClass,
}

/// A row of failures without a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// When it began (wall clock).
    pub since: DateTime,
    /// How long it had lasted when this was written down, of the time in which the hub was up. A clock that is set makes it no longer.
    pub lasted: Duration,
}

/// A notification that was given up for one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The topic.
    pub topic: TopicId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The notification.
    pub offset: Offset,
    /// When it was given up.
    pub at: DateTime,
    /// Why.
    pub class: FailureClass,
    /// The last status, if there was an answer.
    pub status: Option<u16>,
}

/// Notifications that were no longer in the log, or could not be read there, before a subscription had got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The topic.
    pub topic: TopicId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The first of them …
    pub from: Offset,
    /// … and the last.
    pub to: Offset,
    /// When that was found.
    pub at: DateTime,
}

/// What one subscription has not got, and will not get unless it is replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Given up for it, the newest first.
    pub skips: Vec<Skip>,
    /// Gone before it got them, the newest first.
    pub gaps: Vec<Gap>,
    /// Whether everything was looked at; otherwise there may be older ones.
    pub all: bool,
}

/// A shard as it was left.
#[derive(Clone, Debug, Default)]
pub struct ShardState {
    /// The subscriptions, in any order.
    pub slots: Vec<SubscriptionSummary>,
    /// The topics that these subscriptions are of, and no others.
    pub topics: Vec<Topic>,
    /// The watermarks of these topics, as far as there are any.
    pub watermarks: Vec<(TopicId, Watermark)>,
    /// The laggards.
    pub laggards: Vec<Laggard>,
    /// All topics of which nothing is delivered for now.
    pub paused: Vec<TopicId>,
}

/// Progress to save.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// New watermarks.
    pub watermarks: Vec<(TopicId, Watermark)>,
    /// New states of laggards.
    pub laggards: Vec<Laggard>,
    /// Laggards that are at the watermark again.
    pub caught_up: Vec<(TopicId, SubscriptionId)>,
    /// Notifications given up.
    pub skips: Vec<Skip>,
    /// Notifications lost.
    pub gaps: Vec<Gap>,
    /// What is owed once more: what was given up of it before is given up no longer.
    pub replayed: Vec<Replayed>,
}

/// Notifications that are to be delivered once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The topic.
    pub topic: TopicId,
    /// One of its subscriptions; `None`: all of them.
    pub subscription: Option<SubscriptionId>,
    /// The first of them.
    pub from: Offset,
}

impl Replayed {
    /// Whether this is owed again by it.
    pub fn covers(&self, skip: &Skip) -> bool {
        skip.topic == self.topic
            && skip.offset >= self.from
            && self.subscription.is_none_or(|id| id == skip.subscription)
    }
}

impl Checkpoint {
    /// Whether there is nothing to save.
    pub fn is_empty(&self) -> bool {
        self.watermarks.is_empty()
            && self.laggards.is_empty()
            && self.caught_up.is_empty()
            && self.skips.is_empty()
            && self.gaps.is_empty()
            && self.replayed.is_empty()
    }
}

/// How the shards are spread over the hubs of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Hubs that are up, this one among them.
    pub hubs: usize,
    /// Those of them that share the shards: all but the drained ones, or all where every one is drained; none that stops.
    pub sharing: usize,
    /// Whether this hub is one of these.
    pub shares: bool,
    /// Shards that this hub may claim: those that nobody owns, those that it owns already, and those whose owner is taken for dead.
    pub free: Vec<Shard>,
    /// Shards that this hub owns by the word of the store, each with its newest epoch.
    pub own: Vec<(Shard, Epoch)>,
}

impl Spread {
    /// That of a hub beside these others.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn beside(others: Others, is_drained: bool) -> Self {
        let Others { up, staying, undrained } = others;
        let (sharing, shares) = match (undrained, is_drained) {
            // Somebody has to.
            (0, true) => (staying + 1, true),
            (_, true) => (undrained, false),
            (_, false) => (undrained + 1, true),
        };
        Self { hubs: up + 1, sharing, shares, free: Vec::new(), own: Vec::new() }
    }

    /// How many of so many shards this hub is to own at most.
    pub fn share(&self, shards: usize) -> usize {
        if self.shares { shards.div_ceil(self.sharing.max(1)) } else { 0 }
    }

    /// Whether other hubs take over what this one lets go.
    pub fn is_shared_by_others(&self) -> bool {
        self.sharing > usize::from(self.shares)
    }
}

/// The other hubs of a store.
#[cfg(feature = "postgres")]
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Others {
    /// Those that are up.
    pub(in crate::store) up: usize,
    /// Of these, those that do not stop.
    pub(in crate::store) staying: usize,
    /// Of these again, those that are not drained.
    pub(in crate::store) undrained: usize,
}

/// A time in which other hubs may have taken this one for dead, and its shards over. It is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lapse(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_hubs_are_enough_for_all_shards_and_differ_as_little_as_may_be() {
        let share = |hubs, shards| {
            let (free, own) = (Vec::new(), Vec::new());
            Spread { hubs, sharing: hubs, shares: true, free, own }.share(shards)
        };
        assert_eq!([1, 2, 3, 64, 65].map(|hubs| share(hubs, 64)), [64, 32, 22, 1, 1]);
        assert_eq!(share(0, 16), 16, "who asks is up");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_drained_hub_has_all_shards_where_the_only_other_one_stops() {
        let beside = |staying| Spread::beside(Others { up: 1, staying, undrained: 0 }, true);
        assert_eq!([0, 1].map(|staying| beside(staying).share(64)), [64, 32]);
    }

    #[test]
    fn a_hub_that_stops_hands_over_where_another_one_takes_part() {
        let hands_over = |sharing, shares| {
            Spread { hubs: 3, sharing, shares, free: Vec::new(), own: Vec::new() }.is_shared_by_others()
        };
        assert_eq!([1, 2].map(|sharing| hands_over(sharing, true)), [false, true]);
        assert!(hands_over(1, false), "it is drained, and the other one is not");
    }
}
