//! Whose sweep is next: topics in turn, each with an equal share of bytes (deficit round-robin).
//!
//! In its turn a topic gets credit, and takes up subscriptions for as long as that lasts. So a topic of
//! large bodies cannot hold up topics of small ones, whatever the number of its subscriptions. Turns go by the ids of the
//! topics, which is the order of the store: where thousands wait, a read for one is a read for the next ones too.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::store::TopicId;

/// What a request costs beside its body: about the time in which so many bytes can be signed and sent.
const REQUEST: u64 = 8 * 1024;
/// What a topic gets in its turn: for small bodies that is a dozen subscriptions, whose records stand together in the store.
const CREDIT: u64 = 128 * 1024;

/// From so many topics on, those after the present one are about to be read.
const MANY_TOPICS: usize = 32;

/// The topics whose sweep can take up more, with what is left of their credit.
#[derive(Debug)]
pub(super) struct RoundRobin {
    credits: BTreeMap<TopicId, u64>,
    /// Whose turn it is, or was.
    turn: TopicId,
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self { credits: BTreeMap::new(), turn: TopicId(0) }
    }
}

impl RoundRobin {
    /// Lets a topic take part.
    pub(super) fn join(&mut self, id: TopicId) {
        self.credits.entry(id).or_insert(CREDIT);
    }

    /// The topic that may send a body now. It stays until it leaves, and `bytes` tells how large its bodies are.
    pub(super) fn next(&mut self, bytes: impl Fn(TopicId) -> u64) -> Option<TopicId> {
        let mut begin = Bound::Included(self.turn);
        loop {
            let later = self.credits.range_mut((begin, Bound::Unbounded)).next();
            let Some((id, credit)) = later else {
                if self.credits.is_empty() {
                    return None;
                }
                begin = Bound::Unbounded;
                continue;
            };
            let cost = REQUEST + bytes(*id);
            if *credit >= cost {
                *credit -= cost;
                self.turn = *id;
                return Some(*id);
            }
            *credit += CREDIT;
            begin = Bound::Excluded(*id);
        }
    }

    /// The topic whose turn it is has nothing to take up.
    pub(super) fn leave(&mut self) {
        self.credits.remove(&self.turn);
    }

    /// The topic whose turn it is has used it up, although it sent nothing.
    pub(super) fn pass(&mut self) {
        if let Some(credit) = self.credits.get_mut(&self.turn) {
            *credit = 0;
        }
    }

    /// Whether the topics after this one have their turns soon.
    pub(super) fn has_many(&self) -> bool {
        self.credits.len() >= MANY_TOPICS
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: TopicId = TopicId(1);
    const LARGE: TopicId = TopicId(2);
    const MEBIBYTE: u64 = 1024 * 1024;

    fn bytes(id: TopicId) -> u64 {
        if id == LARGE { MEBIBYTE } else { 1_000 }
    }

    #[test]
    fn topics_share_bytes_and_not_turns() {
        let mut round = RoundRobin::default();
        round.join(LARGE);
        round.join(SMALL);
        let taken: Vec<_> = std::iter::from_fn(|| round.next(bytes)).take(10_000).collect();
        let large = taken.iter().filter(|id| **id == LARGE).count();
        let fair = 10_000 * (REQUEST + 1_000) / (2 * REQUEST + 1_000 + MEBIBYTE);
        assert!((large as u64).abs_diff(fair) <= 2, "{large} large ones, {fair} would be fair");
    }

    #[test]
    fn topics_of_one_size_take_turns() {
        let mut round = RoundRobin::default();
        (1..=3).for_each(|id| round.join(TopicId(id)));
        let taken: Vec<_> =
            std::iter::from_fn(|| round.next(|_| CREDIT - REQUEST)).map(|id| id.0).take(6).collect();
        assert_eq!(taken, [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn a_topic_that_has_used_up_its_turn_comes_after_the_others() {
        let mut round = RoundRobin::default();
        (1..=3).for_each(|id| round.join(TopicId(id)));
        let taken: Vec<_> = (0..4)
            .filter_map(|_| {
                let id = round.next(|_| 0);
                round.pass();
                id
            })
            .collect();
        assert_eq!(taken, [1, 2, 3, 1].map(TopicId));
    }

    #[test]
    fn who_joins_twice_takes_part_once_and_who_leaves_not_at_all() {
        let mut round = RoundRobin::default();
        round.join(SMALL);
        round.join(SMALL);
        assert_eq!(round.next(bytes), Some(SMALL));
        round.leave();
        assert_eq!(round.next(bytes), None);
    }

    #[test]
    fn a_topic_of_large_bodies_has_its_turn_also_alone() {
        let mut round = RoundRobin::default();
        round.join(LARGE);
        assert_eq!(round.next(bytes), Some(LARGE));
    }
}
