//! Keys: big-endian, so that their order is the order of the numbers in them.
//!
//! Pairs and idempotency keys are stored as SHA-256, which bounds their length. All of this is the data format: changing it
//! means a new version.

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use sha2::{Digest as _, Sha256};

use super::space::Space;
use crate::store::{self, Gap, Offset, RequestId, Shard, SubscriptionId, TopicId};

/// The bytes of a [subscription key](store::SubscriptionKey) (W-073).
pub(in crate::store) type Pair = [u8; 32];

pub(in crate::store) fn pair(topic: &TopicUrl, callback: &CallbackUrl) -> Pair {
    *store::SubscriptionKey::of(topic, callback).as_bytes()
}

/// What was decided when the store was made.
pub(in crate::store) const FOUNDATION: &[u8] = b"foundation";
pub(in crate::store) const COUNTERS: &[u8] = b"counters";
/// Under which keys secrets are stored.
pub(in crate::store) const ENCRYPTION: &[u8] = b"encryption";

/// Behind which the logs of new topics begin.
pub(in crate::store) const FLOOR: &[u8] = b"floor";

/// When the hub was up.
pub(in crate::store) const UPTIME: &[u8] = b"uptime";

/// Who owns a shard.
pub(in crate::store) const EPOCH: &[u8] = b"epoch/";

pub(in crate::store) fn epoch(shard: Shard) -> Vec<u8> {
    [EPOCH, &shard.0.to_be_bytes()].concat()
}

/// Topics of which nothing is delivered for now.
pub(in crate::store) const PAUSED: &[u8] = b"paused/";

pub(in crate::store) fn paused(topic: TopicId) -> Vec<u8> {
    [PAUSED, &topic.0.to_be_bytes()].concat()
}

pub(in crate::store) fn topic(id: TopicId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

pub(in crate::store) fn log(topic: TopicId, offset: Offset) -> Vec<u8> {
    [topic.0.to_be_bytes(), offset.0.to_be_bytes()].concat()
}

/// What the key of a notification says.
pub(in crate::store) fn place_of_log(key: &[u8]) -> Option<(TopicId, Offset)> {
    let place = (TopicId(number(key, 0)?), Offset(number(key, 8)?));
    (key.len() == 16).then_some(place)
}

pub(in crate::store) fn body(topic: TopicId, offset: Offset, part: u64) -> Vec<u8> {
    [topic.0.to_be_bytes(), offset.0.to_be_bytes(), part.to_be_bytes()].concat()
}

/// What the key of a part of a body says.
pub(in crate::store) fn place_of_body(key: &[u8]) -> Option<(TopicId, Offset, u64)> {
    let (topic, offset) = place_of_log(key.get(..16)?)?;
    Some((topic, offset, number(key, 16).filter(|_| key.len() == 24)?))
}

pub(in crate::store) fn ping(topic: &TopicUrl) -> Vec<u8> {
    digest(&[topic.key().as_bytes()]).to_vec()
}

pub(in crate::store) fn request(id: RequestId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

pub(in crate::store) fn shard(shard: Shard) -> Vec<u8> {
    shard.0.to_be_bytes().to_vec()
}

/// A topic within a shard: watermarks, and the beginning of its subscriptions, laggards and skips.
pub(in crate::store) fn shard_topic(shard: Shard, topic: TopicId) -> Vec<u8> {
    [shard.0.to_be_bytes().as_slice(), &topic.0.to_be_bytes()].concat()
}

/// Subscriptions and laggards.
pub(in crate::store) fn subscription(shard: Shard, topic: TopicId, id: SubscriptionId) -> Vec<u8> {
    [shard.0.to_be_bytes().as_slice(), &topic.0.to_be_bytes(), &id.0.to_be_bytes()].concat()
}

/// What the key of a subscription or a laggard says.
pub(in crate::store) fn place_of_subscription(key: &[u8]) -> Option<(Shard, TopicId, SubscriptionId)> {
    let shard = Shard(u16::from_be_bytes(*key.first_chunk()?));
    Some((shard, topic_in_shard(key)?, SubscriptionId(number(key, 10)?)))
}

/// The topic in any key that begins with a shard.
pub(in crate::store) fn topic_in_shard(key: &[u8]) -> Option<TopicId> {
    number(key, 2).map(TopicId)
}

/// The topic that a record is about, where its key begins with that, or with a shard and that.
pub(in crate::store) fn topic_of(space: Space, key: &[u8]) -> Option<TopicId> {
    match space {
        Space::Topics
        | Space::Log
        | Space::Bodies
        | Space::Idempotency
        | Space::Chains
        | Space::Validators => number(key, 0).map(TopicId),
        Space::Subscriptions | Space::Watermarks | Space::Laggards | Space::Skips => topic_in_shard(key),
        _ => None,
    }
}

/// The offset before the subscription, so that retention removes a range.
pub(in crate::store) fn skip(shard: Shard, topic: TopicId, offset: Offset, id: SubscriptionId) -> Vec<u8> {
    [skips_from(shard, topic, offset).as_slice(), &id.0.to_be_bytes()].concat()
}

pub(in crate::store) fn skips_from(shard: Shard, topic: TopicId, offset: Offset) -> Vec<u8> {
    [shard.0.to_be_bytes().as_slice(), &topic.0.to_be_bytes(), &offset.0.to_be_bytes()].concat()
}

/// The moment first, so that retention removes a range.
pub(in crate::store) fn gap(gap: &Gap) -> Vec<u8> {
    let Gap { topic, subscription, from, to: _, at } = gap;
    let place = [topic.0.to_be_bytes(), subscription.0.to_be_bytes(), from.0.to_be_bytes()];
    [expiry_until(*at), place.concat()].concat()
}

/// The subscription in the key of a skip.
pub(in crate::store) fn subscription_of_skip(key: &[u8]) -> Option<SubscriptionId> {
    number(key, 18).map(SubscriptionId)
}

/// The subscription in the key of a gap, behind the moment and the topic.
pub(in crate::store) fn subscription_of_gap(key: &[u8]) -> Option<SubscriptionId> {
    number(key, 16).map(SubscriptionId)
}

pub(in crate::store) fn idempotency(topic: TopicId, key: &str) -> Vec<u8> {
    [topic.0.to_be_bytes().as_slice(), &digest(&[key.as_bytes()])].concat()
}

pub(in crate::store) fn expiry(expires: DateTime, idempotency: &[u8]) -> Vec<u8> {
    [expiry_until(expires).as_slice(), idempotency].concat()
}

/// Everything before this key has expired at `now`, or was found before. Flipping the sign bit sorts moments before 1970 first.
pub(in crate::store) fn expiry_until(now: DateTime) -> Vec<u8> {
    (now.unix_millis() ^ i64::MIN).to_be_bytes().to_vec()
}

/// The idempotency key that an expiry record is about.
pub(in crate::store) fn idempotency_of_expiry(expiry: &[u8]) -> Vec<u8> {
    expiry.iter().skip(size_of::<i64>()).copied().collect()
}

/// A number in a key, by its place.
fn number(key: &[u8], place: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(place..)?.first_chunk()?))
}

/// Length before each part, so that no two lists of parts have the same bytes.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moment() -> impl Strategy<Value = DateTime> {
        (-60_000_000_000_i64..250_000_000_000)
            .prop_map(|seconds| DateTime::from_unix_millis(seconds * 1000).unwrap())
    }

    proptest! {
        #[test]
        fn expiry_keys_are_in_the_order_of_time(a in moment(), b in moment()) {
            prop_assert_eq!(a.cmp(&b), expiry_until(a).cmp(&expiry_until(b)));
            prop_assert_eq!(idempotency_of_expiry(&expiry(a, b"name")), b"name");
        }
    }

    #[test]
    fn w073_a_pair_is_the_same_under_percent_encoded_unreserved_characters() {
        let topic = |text| TopicUrl::parse(text).unwrap();
        let callback = |text| CallbackUrl::parse(text).unwrap();
        let plain = pair(&topic("http://s.example/~t"), &callback("http://d.example/~c"));
        assert_eq!(plain, pair(&topic("HTTP://S.example:80/%7Et"), &callback("http://d.example/%7ec")));
        assert_ne!(plain, pair(&topic("http://s.example/~t"), &callback("http://d.example/~d")));
    }

    #[test]
    fn parts_of_a_list_cannot_be_shifted() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
