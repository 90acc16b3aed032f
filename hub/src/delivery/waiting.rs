//! Subscriptions that wait for one host: those of each topic in the order in which they came, and the topics in turn.
//!
//! A topic of a hundred thousand subscriptions at one host must not hold up another's ten.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Instant;

use super::hosts::Waiter;
use crate::store::{SubscriptionId, TopicId};

/// A queue that is fair to topics. Where never more than one waits, as at most hosts, it takes no memory but its own.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The only one, and since when.
    alone: Option<(Waiter, Instant)>,
    /// Where there were more: who waits, and since when. No entry is empty.
    by_topic: BTreeMap<TopicId, VecDeque<(SubscriptionId, Instant)>>,
    /// Whose turn it was last.
    turn: TopicId,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { alone: None, by_topic: BTreeMap::new(), turn: TopicId(0) }
    }

    /// Puts a subscription behind the others of its topic.
    pub(super) fn push(&mut self, waiter: Waiter, now: Instant) {
        if self.is_empty() {
            self.alone = Some((waiter, now));
            return;
        }
        for ((topic, id), since) in self.alone.take().into_iter().chain([(waiter, now)]) {
            self.by_topic.entry(topic).or_default().push_back((id, since));
        }
    }

    /// The first of the topic whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        let first = match self.alone.take() {
            Some((waiter, _)) => waiter,
            None => self.pop_of_many()?,
        };
        self.turn = first.0;
        Some(first)
    }

    fn pop_of_many(&mut self) -> Option<Waiter> {
        let later = self.by_topic.range((Bound::Excluded(self.turn), Bound::Unbounded)).next();
        let topic = *later.or_else(|| self.by_topic.first_key_value())?.0;
        let queue = self.by_topic.get_mut(&topic)?;
        let (id, _) = queue.pop_front()?;
        if queue.is_empty() {
            self.by_topic.remove(&topic);
        }
        Some((topic, id))
    }

    /// Takes this one out of the queue, wherever it stands; tells whether it stood there.
    pub(super) fn remove(&mut self, waiter: Waiter) -> bool {
        if self.alone.take_if(|(alone, _)| *alone == waiter).is_some() {
            return true;
        }
        let (topic, id) = waiter;
        let Some(queue) = self.by_topic.get_mut(&topic) else { return false };
        let place = queue.iter().position(|(waiting, _)| *waiting == id);
        let removed = place.and_then(|place| queue.remove(place)).is_some();
        if queue.is_empty() {
            self.by_topic.remove(&topic);
        }
        removed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alone.is_none() && self.by_topic.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.alone.is_some()) + self.by_topic.values().map(VecDeque::len).sum::<usize>()
    }

    /// How many have come before this moment and still wait.
    pub(super) fn since(&self, moment: Instant) -> usize {
        let before = |queue: &VecDeque<_>| queue.partition_point(|(_, come)| *come < moment);
        let alone = self.alone.is_some_and(|(_, come)| come < moment);
        usize::from(alone) + self.by_topic.values().map(before).sum::<usize>()
    }

    pub(super) fn clear(&mut self) {
        self.alone = None;
        self.by_topic.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn topics_take_turns_and_each_keeps_its_order() {
        let (mut waiting, now) = (Waiting::new(), Instant::now());
        for id in 1..=5 {
            waiting.push((TopicId(1), SubscriptionId(id)), now);
        }
        for id in 6..=7 {
            waiting.push((TopicId(2), SubscriptionId(id)), now);
        }
        assert_eq!(waiting.len(), 7);
        let order: Vec<_> = std::iter::from_fn(|| waiting.pop()).map(|(_, id)| id.0).collect();
        assert_eq!(order, [1, 6, 2, 7, 3, 4, 5]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn one_that_is_taken_out_leaves_the_others_in_their_order() {
        let (mut waiting, now) = (Waiting::new(), Instant::now());
        let waiter = |id| (TopicId(1), SubscriptionId(id));
        waiting.push(waiter(1), now);
        assert!(!waiting.remove(waiter(2)));
        assert!(waiting.remove(waiter(1)) && waiting.is_empty());
        (1..=3).for_each(|id| waiting.push(waiter(id), now));
        assert!(waiting.remove(waiter(2)) && !waiting.remove(waiter(2)));
        assert_eq!([waiting.pop(), waiting.pop(), waiting.pop()], [Some(waiter(1)), Some(waiter(3)), None]);
    }

    #[test]
    fn those_who_have_waited_long_are_counted_and_nobody_else() {
        let (mut waiting, begun) = (Waiting::new(), Instant::now());
        for number in 0..100 {
            let come = begun + Duration::from_secs(number);
            waiting.push((TopicId(number % 3), SubscriptionId(number)), come);
        }
        let late = begun + Duration::from_secs(60);
        assert_eq!((waiting.since(begun), waiting.since(late)), (0, 60));
        for _ in 0..30 {
            waiting.pop().unwrap();
        }
        assert_eq!(waiting.since(late), 30);
    }
}
