//! Whether each subscription can be found, and whether the state of delivery is that of subscriptions.

use super::logs::Topics;
use super::{every, number, stray};
use crate::store::embedded::codec::{self, Record};
use crate::store::embedded::engine::{Engine, Space};
use crate::store::embedded::key;
use crate::store::embedded::layout::{Address, TopicWatermark};
use crate::store::{Fault, Keyring, Laggard, Result, Shard, Subscription, SubscriptionId, TopicId};

pub(super) fn check(
    engine: &dyn Engine,
    keys: &Keyring,
    topics: &Topics,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    check_subscriptions(engine, keys, topics, faults)?;
    check_index(engine, keys, faults)?;
    check_laggards(engine, keys, topics, faults)?;
    check_watermarks(engine, keys, topics, faults);
    Ok(())
}

fn check_subscriptions(
    engine: &dyn Engine,
    keys: &Keyring,
    topics: &Topics,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    for (key, value) in every(engine, Space::Subscriptions) {
        let Ok(subscription) = codec::open::<Subscription>(keys, &key, &value) else { continue };
        let own = address(&key).filter(|own| (own.topic, own.id) == (subscription.topic, subscription.id));
        let Some(own) = own else {
            faults.push(stray(Space::Subscriptions, &key));
            continue;
        };
        if !topics.contains_key(&subscription.topic) {
            faults.push(Fault::NoTopic { subscription: subscription.id });
        }
        let indexed: Option<Address> = get(engine, keys, &pair(&subscription))?;
        if indexed != Some(own) {
            faults.push(Fault::Unindexed { subscription: subscription.id });
        }
    }
    Ok(())
}

fn check_index(engine: &dyn Engine, keys: &Keyring, faults: &mut Vec<Fault>) -> Result<()> {
    for (key, value) in every(engine, Space::SubscriptionIndex) {
        let Ok(Address { shard, topic, id }) = codec::open(keys, &key, &value) else { continue };
        let subscription = get::<Subscription>(engine, keys, &key::subscription(shard, topic, id))?;
        if subscription.is_none_or(|subscription| pair(&subscription) != key[..]) {
            faults.push(stray(Space::SubscriptionIndex, &key));
        }
    }
    Ok(())
}

fn check_laggards(
    engine: &dyn Engine,
    keys: &Keyring,
    topics: &Topics,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    for (key, value) in every(engine, Space::Laggards) {
        let Ok(laggard) = codec::open::<Laggard>(keys, &key, &value) else { continue };
        let state = topics.get(&laggard.topic);
        if engine.get(Space::Subscriptions, &key)?.is_none() {
            faults.push(stray(Space::Laggards, &key));
        } else if let Some(state) = state.filter(|state| laggard.cursor > state.topic.head) {
            faults.push(Fault::Ahead { topic: state.topic.url.as_str().to_owned() });
        }
    }
    Ok(())
}

/// A watermark beyond the end of a log would swallow the notifications that come next.
fn check_watermarks(engine: &dyn Engine, keys: &Keyring, topics: &Topics, faults: &mut Vec<Fault>) {
    for (key, value) in every(engine, Space::Watermarks) {
        let Ok(TopicWatermark(topic, mark)) = codec::open(keys, &key, &value) else { continue };
        let Some(state) = topics.get(&topic) else {
            faults.push(stray(Space::Watermarks, &key));
            continue;
        };
        if mark.furthest() > state.topic.head {
            faults.push(Fault::Ahead { topic: state.topic.url.as_str().to_owned() });
        }
    }
}

/// Where a record of a subscription is by its key.
pub(in crate::store::embedded) fn address(key: &[u8]) -> Option<Address> {
    let shard = u16::from_be_bytes(key.get(..2)?.try_into().ok()?);
    Some(Address {
        shard: Shard(shard),
        topic: TopicId(number(key, 2)?),
        id: SubscriptionId(number(key, 10)?),
    })
}

/// By what a subscription is found.
pub(in crate::store::embedded) fn pair(subscription: &Subscription) -> key::Pair {
    key::pair(&subscription.topic_url, &subscription.callback)
}

fn get<R: Record>(engine: &dyn Engine, keys: &Keyring, key: &[u8]) -> Result<Option<R>> {
    Ok(engine.get(R::SPACE, key)?.and_then(|value| codec::open(keys, key, &value).ok()))
}
