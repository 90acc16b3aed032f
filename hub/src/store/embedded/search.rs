//! Searching subscriptions for the operator, without keeping them in memory.

use super::engine::{Keys, Space};
use super::shared::Shared;
use crate::store::encoding::codec;
use crate::store::encoding::key;
use crate::store::encoding::layout::with_callback;
use crate::store::{Result, Search, SearchResult, Shard, SubscriptionId, TopicId};

impl Shared {
    /// Searches a range of subscriptions.
    pub(super) fn search(&self, range: &Keys, search: &Search) -> Result<SearchResult> {
        let (keys, mut result) = (self.keys(), SearchResult::default());
        let mut last = None;
        for record in self.engine.scan(Space::Subscriptions, range) {
            let (key, value) = record?;
            let (summary, callback) =
                codec::open_beginning(&keys, Space::Subscriptions, &key, &value, with_callback)?;
            let place = (summary.topic, summary.id);
            // The subscriptions of a topic stand together.
            let is_of_sought = match last {
                Some((topic, is_sought)) if topic == summary.topic => is_sought,
                _ => self.is_part_of_url(summary.topic, &search.part),
            };
            last = Some((summary.topic, is_of_sought));
            let is_sought = is_of_sought
                || summary.origin.contains(&*search.part)
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

    /// Whether the URL of this topic has this part, but for upper case.
    fn is_part_of_url(&self, topic: TopicId, part: &str) -> bool {
        let topics = self.topics();
        topics.get(topic).is_some_and(|state| state.topic.url.as_str().to_ascii_lowercase().contains(part))
    }

    /// How many subscriptions each of these topics has.
    pub(super) fn subscribers(&self, of: &[TopicId]) -> Vec<u64> {
        let topics = self.topics();
        of.iter().map(|topic| topics.subscriptions(*topic)).collect()
    }
}

/// What a shard has, or one topic in it, behind this subscription.
pub(super) fn part_of_shard(
    shard: Shard,
    of: Option<TopicId>,
    after: Option<(TopicId, SubscriptionId)>,
) -> Keys {
    let within = of.map_or_else(|| key::shard(shard), |topic| key::shard_topic(shard, topic));
    behind(Keys::prefix(within), shard, after)
}

/// Everything of a range behind this subscription.
fn behind(mut range: Keys, shard: Shard, after: Option<(TopicId, SubscriptionId)>) -> Keys {
    if let Some((topic, id)) = after {
        let next = SubscriptionId(id.0.saturating_add(1));
        range.from = range.from.max(key::subscription(shard, topic, next));
    }
    range
}
