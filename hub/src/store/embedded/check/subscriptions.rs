//! Whether each subscription can be found, and whether the progress of delivery is that of subscriptions and logs.

use std::collections::BTreeMap;

use super::logs::Topics;
use super::{Check, Fault};
use crate::store::embedded::engine::Space;
use crate::store::encoding::key;
use crate::store::encoding::layout::{Address, TopicWatermark};
use crate::store::{Laggard, Offset, Result, Subscription, TopicId};

impl Check<'_> {
    pub(super) fn check_subscriptions(&mut self, topics: &Topics) -> Result<()> {
        let mut without_topic = BTreeMap::<TopicId, Fault>::new();
        for (key, subscription) in self.each::<Subscription>() {
            let (id, topic) = (subscription.id, subscription.topic);
            let address = match key::place_of_subscription(&key) {
                Some((shard, of, own)) if (of, own) == (topic, id) => Address { shard, topic, id },
                _ => {
                    self.stray(Space::Subscriptions, key);
                    continue;
                }
            };
            let pair = pair(&subscription);
            if self.records.get(&pair)? != Some(address) {
                self.faults.push(Fault::Unindexed { pair, address });
            }
            if !topics.contains_key(&topic) {
                let (url, start) = (subscription.topic_url, subscription.start);
                let missing = without_topic.entry(topic).or_insert(Fault::NoTopic { topic, url, start });
                if let Fault::NoTopic { start: newest, .. } = missing {
                    *newest = start.max(*newest);
                }
            }
        }
        self.faults.extend(without_topic.into_values());
        self.check_index()?;
        self.check_progress(topics)
    }

    fn check_index(&mut self) -> Result<()> {
        for (key, Address { shard, topic, id }) in self.each() {
            let subscription = self.records.get::<Subscription>(&key::subscription(shard, topic, id))?;
            if subscription.is_none_or(|subscription| pair(&subscription) != key[..]) {
                self.stray(Space::SubscriptionIndex, key);
            }
        }
        Ok(())
    }

    fn check_progress(&mut self, topics: &Topics) -> Result<()> {
        let mut furthest = BTreeMap::<TopicId, Offset>::new();
        let mut reached = |topic, offset: Offset| {
            let known = furthest.entry(topic).or_default();
            *known = offset.max(*known);
        };
        for (key, laggard) in self.each::<Laggard>() {
            match self.records.value(Space::Subscriptions, &key)? {
                Some(_) => reached(laggard.topic, laggard.cursor),
                None => self.stray(Space::Laggards, key),
            }
        }
        for (key, TopicWatermark(topic, watermark)) in self.each() {
            match topics.get(&topic) {
                Some(_) => reached(topic, watermark.furthest()),
                None => self.stray(Space::Watermarks, key),
            }
        }
        let ahead = |(topic, offset)| {
            let state = topics.get(&topic).filter(|state| offset > state.topic.head)?;
            Some(Fault::ReadAhead(Box::new(state.clone()), offset))
        };
        self.faults.extend(furthest.into_iter().filter_map(ahead));
        Ok(())
    }
}

/// By what a subscription is found.
pub(in crate::store::embedded) fn pair(subscription: &Subscription) -> key::Pair {
    key::pair(&subscription.topic_url, &subscription.callback)
}
