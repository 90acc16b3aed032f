//! Searching subscriptions for the operator, without keeping them in memory.

use super::codec;
use super::engine::{Keys, Space};
use super::key;
use super::layout::with_callback;
use super::shared::Shared;
use crate::store::{Result, Search, SearchResult, Shard, SubscriptionId, TopicId};

impl Shared {
    /// Searches a range of subscriptions.
    pub(super) fn search(&self, range: &Keys, search: &Search) -> Result<SearchResult> {
        let (keys, mut result) = (self.keys(), SearchResult::default());
        for record in self.engine.scan(Space::Subscriptions, range) {
            let (key, value) = record?;
            let (summary, callback) =
                codec::open_beginning(&keys, Space::Subscriptions, &key, &value, with_callback)?;
            let place = (summary.topic, summary.id);
            let is_sought = search.topics.contains(&summary.topic)
                || summary.origin.contains(&*search.origin)
                || callback == search.callback.as_bytes();
            result.looked_at += 1;
            if is_sought {
                result.found.push(summary);
            }
            if result.found.len() >= search.most || result.looked_at >= search.look_at {
                result.stopped_at = Some(place);
                break;
            }
        }
        Ok(result)
    }

    /// How many subscriptions each of these topics has.
    pub(super) fn subscribers(&self, of: &[TopicId]) -> Vec<u64> {
        let topics = self.topics();
        of.iter().map(|topic| topics.subscriptions(*topic)).collect()
    }
}

/// Everything of a range behind this subscription.
pub(super) fn behind(mut range: Keys, shard: Shard, after: Option<(TopicId, SubscriptionId)>) -> Keys {
    if let Some((topic, id)) = after {
        let next = SubscriptionId(id.0.saturating_add(1));
        range.from = range.from.max(key::subscription(shard, topic, next));
    }
    range
}
