//! All copies of a measurement: whether each subscriber got each notification of its topic once, as it was posted, and in one order.

use std::collections::HashMap;
use std::time::Instant;

use serde::Serialize;

use super::{Copy, is_signed};
use crate::stamp::Stamp;

/// Examples that are told.
const EXAMPLES: usize = 5;

/// What came of the copies.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Copies {
    /// Each of them was checked.
    pub checked: u64,
    /// To the wrong callback, with other links, another type, body or topic, or not signed with the subscriber's secret.
    pub flawed: u64,
    /// That came after a notification which they precede, or which other subscribers got after them.
    pub disordered: u64,
    /// Subscriptions that did not get each notification of their topic exactly once.
    pub uneven: u64,
    /// All of that: 0 is as it must be.
    pub wrong: u64,
    /// Some of it.
    pub examples: Vec<String>,
}

impl Copies {
    /// Of several measurements.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.checked += other.checked;
        self.flawed += other.flawed;
        self.disordered += other.disordered;
        self.uneven += other.uneven;
        self.wrong += other.wrong;
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES);
        self
    }

    fn blame(&mut self, of: fn(&mut Self) -> &mut u64, example: impl FnOnce() -> String) {
        *of(self) += 1;
        self.wrong += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// A notification that was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) topic: usize,
    pub(crate) stamp: Stamp,
    pub(crate) bytes: u32,
    pub(crate) sent: Instant,
    /// `None`: not yet, or never.
    pub(crate) acknowledged: Option<Instant>,
}

/// Judges copies of what was posted by this measurement; `owed`: whether a subscriber, of so many, was to get all of it, where that
/// is to be judged at all. `topic`: of a subscriber.
pub(crate) fn judge(
    mut copies: Vec<Copy>,
    posts: &HashMap<u32, Known>,
    topic: impl Fn(u32) -> usize,
    secret: impl Fn(u32) -> String,
    owed: Option<(u32, &dyn Fn(u32) -> bool)>,
) -> Copies {
    let mut found = Copies { checked: copies.len() as u64, ..Copies::default() };
    let bodies: HashMap<u32, Vec<u8>> =
        posts.iter().map(|(number, post)| (*number, post.stamp.body(post.bytes))).collect();
    for copy in &copies {
        let subscriber = copy.subscriber;
        let flaw = match copy.flaw {
            Some(flaw) => Some(flaw.words()),
            None => difference(copy, posts, &bodies, topic(subscriber), &secret(subscriber)),
        };
        if let Some(flaw) = flaw {
            found.blame(|found| &mut found.flawed, || format!("to subscriber {subscriber}: {flaw}"));
        }
    }
    if let Some((subscribers, owed)) = owed {
        copies.sort_unstable_by_key(|copy| (copy.subscriber, copy.turn));
        sequences(&copies, posts, topic, subscribers, owed, &mut found);
    }
    found
}

/// What is not as it was posted.
fn difference(
    copy: &Copy,
    posts: &HashMap<u32, Known>,
    bodies: &HashMap<u32, Vec<u8>>,
    topic: usize,
    secret: &str,
) -> Option<&'static str> {
    let known = copy.stamp.and_then(|stamp| posts.get(&stamp.post).filter(|post| post.stamp == stamp));
    let Some(post) = known else { return Some("a body that nobody posted") };
    if post.topic != topic {
        return Some("a notification of another topic");
    }
    if copy.bytes != post.bytes {
        return Some("a body that is shorter or longer than what was posted");
    }
    (!is_signed(secret, &bodies[&post.stamp.post], &copy.signature)).then_some("a wrong signature")
}

/// In the order of subscribers and of their turns. The order of a topic is that of the first one who is owed all of it: there, what was
/// acknowledged before another was sent must come first.
fn sequences(
    copies: &[Copy],
    posts: &HashMap<u32, Known>,
    topic: impl Fn(u32) -> usize,
    subscribers: u32,
    owed: &dyn Fn(u32) -> bool,
    found: &mut Copies,
) {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for post in posts.values() {
        *counts.entry(post.topic).or_default() += 1;
    }
    let mut rest = copies;
    let own: Vec<&[Copy]> = (0..subscribers)
        .map(|subscriber| {
            let (own, others) = rest.split_at(rest.partition_point(|copy| copy.subscriber <= subscriber));
            rest = others;
            own
        })
        .collect();
    let posts_of = |own: &[Copy]| own.iter().filter_map(|copy| Some(copy.stamp?.post)).collect::<Vec<_>>();
    // By topic: the place of each post.
    let mut orders: HashMap<usize, HashMap<u32, usize>> = HashMap::new();
    for (subscriber, own) in (0..).zip(&own).filter(|(subscriber, _)| owed(*subscriber)) {
        orders.entry(topic(subscriber)).or_insert_with(|| order(&posts_of(own), posts, found));
    }
    for (subscriber, own) in (0..).zip(own) {
        let (topic, sequence) = (topic(subscriber), posts_of(own));
        let Some(order) = orders.get(&topic) else { continue };
        let count = counts.get(&topic).copied().unwrap_or(0);
        let (mut came, mut last) = (vec![0_u32; count.max(order.len())], None);
        for post in &sequence {
            // What the first subscriber did not get has no place, and makes this one uneven, too.
            let Some(place) = order.get(post).copied() else { continue };
            came[place] += 1;
            if last.is_some_and(|last| place < last) {
                found.blame(
                    |found| &mut found.disordered,
                    || format!("#{post} came to subscriber {subscriber} later than to others"),
                );
            }
            last = last.max(Some(place));
        }
        let is_right = if owed(subscriber) {
            sequence.len() == count && came.iter().all(|times| *times == 1)
        } else {
            came.iter().all(|times| *times <= 1)
        };
        if !is_right {
            found.blame(
                |found| &mut found.uneven,
                || format!("subscriber {subscriber} got {} copies of {count} notifications", sequence.len()),
            );
        }
    }
}

fn order(sequence: &[u32], posts: &HashMap<u32, Known>, found: &mut Copies) -> HashMap<u32, usize> {
    let mut order = HashMap::new();
    let mut newest: Option<(Instant, u32)> = None;
    for post in sequence {
        let place = order.len();
        if *order.entry(*post).or_insert(place) != place {
            continue;
        }
        let Some(known) = posts.get(post) else { continue };
        if let Some((_, later)) =
            newest.filter(|(sent, _)| known.acknowledged.is_some_and(|acknowledged| acknowledged < *sent))
        {
            found.blame(|found| &mut found.disordered, || format!("#{post} came after #{later}"));
        }
        if newest.is_none_or(|(sent, _)| known.sent > sent) {
            newest = Some((known.sent, *post));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ring::hmac::{HMAC_SHA256, Key, sign};

    use super::*;

    fn secret(subscriber: u32) -> String {
        format!("secret of {subscriber}")
    }

    /// So many, one after the other, to one topic.
    fn posts(count: u32) -> HashMap<u32, Known> {
        let began = Instant::now();
        let at = |number: u32, millis| began + Duration::from_millis(u64::from(10 * number + millis));
        let post = |number| Known {
            topic: 0,
            stamp: Stamp { run: 1, post: number, due: Duration::ZERO },
            bytes: 64,
            sent: at(number, 0),
            acknowledged: Some(at(number, 1)),
        };
        (0..count).map(|number| (number, post(number))).collect()
    }

    fn copy(subscriber: u32, turn: u32, post: u32) -> Copy {
        let stamp = Stamp { run: 1, post, due: Duration::ZERO };
        let key = Key::new(HMAC_SHA256, secret(subscriber).as_bytes());
        let signature = sign(&key, &stamp.body(64)).as_ref().try_into().unwrap();
        Copy { subscriber, turn, stamp: Some(stamp), bytes: 64, signature, flaw: None }
    }

    /// What each subscriber got of three notifications.
    fn judged(came: &[&[u32]]) -> (u64, u64, u64) {
        judged_after(came, |_| {})
    }

    fn judged_after(came: &[&[u32]], change: impl Fn(&mut Copy)) -> (u64, u64, u64) {
        let copies = (0..).zip(came).flat_map(|(subscriber, came)| {
            (0..).zip(*came).map(move |(turn, post)| copy(subscriber, turn, *post))
        });
        let mut copies: Vec<_> = copies.collect();
        copies.iter_mut().for_each(change);
        let all = u32::try_from(came.len()).unwrap();
        let found = judge(copies, &posts(3), |_| 0, secret, Some((all, &|one| one < 10)));
        assert_eq!(found.wrong, found.flawed + found.disordered + found.uneven);
        (found.flawed, found.disordered, found.uneven)
    }

    #[test]
    fn each_copy_once_in_the_order_of_the_posts_is_right() {
        assert_eq!(judged(&[&[0, 1, 2], &[0, 1, 2]]), (0, 0, 0));
    }

    #[test]
    fn what_is_missing_repeated_or_in_another_order_is_found() {
        assert_eq!(judged(&[&[0, 1, 2], &[0, 2]]), (0, 0, 1));
        assert_eq!(judged(&[&[0, 1, 2], &[]]), (0, 0, 1));
        assert_eq!(judged(&[&[0, 1, 2], &[0, 1, 1, 2]]), (0, 0, 1));
        assert_eq!(judged(&[&[0, 1, 2], &[0, 1, 1]]), (0, 0, 1));
        assert_eq!(judged(&[&[0, 1, 2], &[1, 0, 2]]), (0, 1, 0));
        assert_eq!(judged(&[&[0, 2, 1], &[0, 2, 1]]), (0, 1, 0), "#1 was acknowledged before #2 was sent");
        assert_eq!(judged(&[&[0, 1], &[0, 1, 2]]).2, 1 + 1, "the first one lacks what gives the order");
    }

    #[test]
    fn a_copy_of_something_else_or_with_the_signature_of_another_is_found() {
        let one = &[&[0, 1, 2][..]];
        assert_eq!(judged_after(one, |copy| copy.signature[31] ^= 1).0, 3);
        assert_eq!(judged_after(one, |copy| copy.bytes = 63).0, 3);
        assert_eq!(judged_after(one, |copy| copy.stamp.as_mut().unwrap().run = 2).0, 3);
        let two = &[&[0, 1, 2][..], &[0, 1, 2]];
        let of_the_other = |one: &mut Copy| one.signature = copy(1 - one.subscriber, 0, 0).signature;
        assert_eq!(judged_after(two, of_the_other).0, 6);
    }
}
