//! Subscriptions that wait for one host: those of each topic in the order in which they came, and the topics in turn (round-robin).
//!
//! A topic of a hundred thousand subscriptions at one host must not hold up another's ten.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Instant;

use crate::store::{SubscriptionId, TopicId};

/// A subscription that waits for its host.
pub(super) type Waiter = (TopicId, SubscriptionId);

/// What the last attempt for a subscription says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LastAttempt {
    /// It was delivered: the subscription is *proven*.
    Proven,
    /// There was none yet.
    Untried,
    /// It failed, or nothing could be sent.
    Failed,
}

/// A queue that is fair to topics. Where never more than one waits, as at most hosts, it takes no memory but its own.
#[derive(Debug)]
pub(super) struct WaitQueue {
    /// The only one, and since when.
    alone: Option<(Waiter, Instant)>,
    /// Where there were more: what waits, and since when. Proven ones come first. No entry is empty.
    by_topic: BTreeMap<(LastAttempt, TopicId), VecDeque<(SubscriptionId, Instant)>>,
    /// Whose turn it was last.
    turn: TopicId,
    /// What the last attempt said of the one whose turn that was.
    turn_last: LastAttempt,
    /// Whose turn it was last when only proven ones were wanted: the others' turn stays.
    turn_proven: TopicId,
    alone_last: LastAttempt,
}

impl WaitQueue {
    pub(super) fn new() -> Self {
        Self {
            alone: None,
            by_topic: BTreeMap::new(),
            turn: TopicId(0),
            turn_last: LastAttempt::Proven,
            turn_proven: TopicId(0),
            alone_last: LastAttempt::Untried,
        }
    }

    /// Puts a subscription behind the others of its topic whose last attempt ended the same way.
    pub(super) fn push(&mut self, waiter: Waiter, last: LastAttempt, now: Instant) {
        if self.is_empty() {
            self.alone = Some((waiter, now));
            self.alone_last = last;
            return;
        }
        let alone = self.alone.take().map(|(waiter, since)| (waiter, self.alone_last, since));
        for ((topic, id), last, since) in alone.into_iter().chain([(waiter, last, now)]) {
            self.by_topic.entry((last, topic)).or_default().push_back((id, since));
        }
    }

    /// The first of the topic whose turn it is, and what the last attempt says of it.
    pub(super) fn pop(&mut self) -> Option<(Waiter, LastAttempt)> {
        if let Some((waiter, _)) = self.alone.take() {
            (self.turn_last, self.turn) = (self.alone_last, waiter.0);
            return Some((waiter, self.alone_last));
        }
        let turn = (self.turn_last, self.turn);
        let later = self.by_topic.range((Bound::Excluded(turn), Bound::Unbounded)).next();
        let key = *later.or_else(|| self.by_topic.first_key_value())?.0;
        (self.turn_last, self.turn) = key;
        self.pop_from(key)
    }

    /// The first of the topic whose turn it is among proven ones.
    pub(super) fn pop_proven(&mut self) -> Option<(Waiter, LastAttempt)> {
        if !self.has_proven() {
            return None;
        }
        if let Some((waiter, _)) = self.alone.take() {
            self.turn_proven = waiter.0;
            return Some((waiter, self.alone_last));
        }
        let last = (LastAttempt::Proven, self.turn_proven);
        let end = (LastAttempt::Untried, TopicId(0));
        let later = self.by_topic.range((Bound::Excluded(last), Bound::Excluded(end))).next();
        let key = *later.or_else(|| self.by_topic.first_key_value())?.0;
        self.turn_proven = key.1;
        self.pop_from(key)
    }

    fn pop_from(&mut self, key: (LastAttempt, TopicId)) -> Option<(Waiter, LastAttempt)> {
        let queue = self.by_topic.get_mut(&key)?;
        let (id, _) = queue.pop_front()?;
        if queue.is_empty() {
            self.by_topic.remove(&key);
        }
        Some(((key.1, id), key.0))
    }

    /// Whether a proven one waits.
    pub(super) fn has_proven(&self) -> bool {
        match self.alone {
            Some(_) => self.alone_last == LastAttempt::Proven,
            None => self.by_topic.keys().next().is_some_and(|(last, _)| *last == LastAttempt::Proven),
        }
    }

    /// Takes this one out of the queue, wherever it stands; returns what the last attempt says of it, if it stood there.
    pub(super) fn remove(&mut self, waiter: Waiter) -> Option<LastAttempt> {
        if self.alone.take_if(|(alone, _)| *alone == waiter).is_some() {
            return Some(self.alone_last);
        }
        let kinds = [LastAttempt::Proven, LastAttempt::Untried, LastAttempt::Failed];
        kinds.into_iter().find(|last| self.remove_from((*last, waiter.0), waiter.1))
    }

    fn remove_from(&mut self, key: (LastAttempt, TopicId), id: SubscriptionId) -> bool {
        let Some(queue) = self.by_topic.get_mut(&key) else { return false };
        let index = queue.iter().position(|(waiting, _)| *waiting == id);
        let removed = index.and_then(|index| queue.remove(index)).is_some();
        if queue.is_empty() {
            self.by_topic.remove(&key);
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
        let (mut queue, now) = (WaitQueue::new(), Instant::now());
        for id in 1..=5 {
            queue.push((TopicId(1), SubscriptionId(id)), LastAttempt::Untried, now);
        }
        for id in 6..=7 {
            queue.push((TopicId(2), SubscriptionId(id)), LastAttempt::Untried, now);
        }
        assert_eq!(queue.len(), 7);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|((_, id), _)| id.0).collect();
        assert_eq!(order, [1, 6, 2, 7, 3, 4, 5]);
        assert!(queue.is_empty());
    }

    #[test]
    fn one_that_is_taken_out_leaves_the_others_in_their_order() {
        let (mut queue, now) = (WaitQueue::new(), Instant::now());
        let waiter = |id| (TopicId(1), SubscriptionId(id));
        queue.push(waiter(1), LastAttempt::Untried, now);
        assert_eq!(queue.remove(waiter(2)), None);
        assert!(queue.remove(waiter(1)).is_some() && queue.is_empty());
        (1..=3).for_each(|id| queue.push(waiter(id), LastAttempt::Untried, now));
        let removed = [queue.remove(waiter(2)), queue.remove(waiter(2))];
        assert_eq!(removed, [Some(LastAttempt::Untried), None]);
        let left: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(waiter, _)| waiter).collect();
        assert_eq!(left, [waiter(1), waiter(3)]);
    }

    #[test]
    fn those_whose_last_attempt_was_delivered_are_found_at_once_and_keep_nobody_else_out() {
        let (mut queue, now) = (WaitQueue::new(), Instant::now());
        let waiter = |topic| (TopicId(topic), SubscriptionId(topic));
        queue.push(waiter(9), LastAttempt::Proven, now);
        assert!(queue.has_proven());
        let delivered = |topic| Some((waiter(topic), LastAttempt::Proven));
        assert_eq!([queue.pop_proven(), queue.pop_proven()], [delivered(9), None]);
        queue.push(waiter(1), LastAttempt::Untried, now);
        assert!(!queue.has_proven());
        assert_eq!(queue.pop_proven(), None);
        (2..=5).for_each(|topic| queue.push(waiter(topic), LastAttempt::Untried, now));
        (6..=9).for_each(|topic| queue.push(waiter(topic), LastAttempt::Proven, now));
        assert_eq!([queue.pop_proven(), queue.pop_proven()], [delivered(6), delivered(7)]);
        assert_eq!(queue.remove(waiter(8)), Some(LastAttempt::Proven));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|((topic, _), _)| topic.0).collect();
        assert_eq!(order, [9, 1, 2, 3, 4, 5]);
        assert_eq!(queue.pop_proven(), None);
    }

    #[test]
    fn a_proven_subscription_with_a_backlog_never_takes_the_turn_of_the_others() {
        for backlogs in 1..=3 {
            let (mut queue, now) = (WaitQueue::new(), Instant::now());
            let of = |topic, id| (TopicId(topic), SubscriptionId(id));
            (1..=backlogs).for_each(|topic| {
                (0..40).for_each(|id| queue.push(of(topic, id), LastAttempt::Proven, now));
            });
            (11..=13).for_each(|topic| queue.push(of(topic, 0), LastAttempt::Untried, now));
            let mut others = Vec::new();
            for _ in 0..=2 * backlogs + 3 {
                queue.pop_proven().unwrap();
                let ((topic, _), last) = queue.pop().unwrap();
                others.extend((last == LastAttempt::Untried).then_some(topic.0));
            }
            assert_eq!(others, [11, 12, 13], "beside {backlogs} topics with a backlog");
        }
    }

    #[test]
    fn those_who_have_waited_long_are_counted_and_nobody_else() {
        let (mut queue, begun) = (WaitQueue::new(), Instant::now());
        for number in 0..100 {
            let come = begun + Duration::from_secs(number);
            queue.push((TopicId(number % 3), SubscriptionId(number)), LastAttempt::Untried, come);
        }
        let late = begun + Duration::from_secs(60);
        assert_eq!((queue.since(begun), queue.since(late)), (0, 60));
        for _ in 0..30 {
            queue.pop().unwrap();
        }
        assert_eq!(queue.since(late), 30);
    }
}
