//! What one subscription has missed. The keys say whose a record is, so that those of others are not even decoded.

use super::codec::{self, Record};
use super::engine::Keys;
use super::key;
use super::shared::Shared;
use crate::store::{Missed, Result, Shard, SubscriptionId, TopicId};

/// Looks at no more than so many records of either kind.
pub(super) fn missed(
    shared: &Shared,
    shard: Shard,
    topic: TopicId,
    id: SubscriptionId,
    limit: usize,
) -> Result<Missed> {
    let of_topic = Keys::prefix(key::shard_topic(shard, topic));
    let (skips, all_skips) =
        found(shared, &of_topic, limit, |key| key::subscription_of_skip(key) == Some(id))?;
    let (gaps, all_gaps) =
        found(shared, &Keys::all(), limit, |key| key::subscription_of_gap(key) == Some(id))?;
    Ok(Missed { skips, gaps, all: all_skips && all_gaps })
}

/// The records of a range whose keys are wanted, and whether the whole range was looked at.
fn found<R: Record>(
    shared: &Shared,
    range: &Keys,
    limit: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<(Vec<R>, bool)> {
    let (keyring, mut found) = (shared.keys(), Vec::new());
    for (number, record) in shared.engine.scan(R::SPACE, range).enumerate() {
        if number == limit {
            return Ok((found, false));
        }
        let (key, value) = record?;
        if wanted(&key) {
            found.push(codec::open(&keyring, &key, &value)?);
        }
    }
    Ok((found, true))
}
