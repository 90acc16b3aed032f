//! Subscriptions that wait for one host: those of each topic in the order in which they came, and the topics in turn.
//!
//! A topic of a hundred thousand subscriptions at one host must not hold up another's ten.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::hosts::Waiter;
use crate::store::{SubscriptionId, TopicId};

/// A queue that is fair to topics. Empty, it takes no memory but its own.
#[derive(Debug)]
pub(super) struct Waiting {
    /// No entry is empty.
    by_topic: BTreeMap<TopicId, VecDeque<SubscriptionId>>,
    /// Whose turn it was last.
    turn: TopicId,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { by_topic: BTreeMap::new(), turn: TopicId(0) }
    }

    /// Puts a subscription behind the others of its topic.
    pub(super) fn push(&mut self, (topic, id): Waiter) {
        self.by_topic.entry(topic).or_default().push_back(id);
    }

    /// The first of the topic whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        let later = self.by_topic.range((Bound::Excluded(self.turn), Bound::Unbounded)).next();
        let topic = *later.or_else(|| self.by_topic.first_key_value())?.0;
        let queue = self.by_topic.get_mut(&topic)?;
        let id = queue.pop_front()?;
        if queue.is_empty() {
            self.by_topic.remove(&topic);
        }
        self.turn = topic;
        Some((topic, id))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_topic.values().map(VecDeque::len).sum()
    }

    pub(super) fn clear(&mut self) {
        self.by_topic.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_take_turns_and_each_keeps_its_order() {
        let mut waiting = Waiting::new();
        for id in 1..=5 {
            waiting.push((TopicId(1), SubscriptionId(id)));
        }
        for id in 6..=7 {
            waiting.push((TopicId(2), SubscriptionId(id)));
        }
        assert_eq!(waiting.len(), 7);
        let order: Vec<_> = std::iter::from_fn(|| waiting.pop()).map(|(_, id)| id.0).collect();
        assert_eq!(order, [1, 6, 2, 7, 3, 4, 5]);
        assert!(waiting.is_empty());
    }
}
