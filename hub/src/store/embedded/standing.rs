//! How far the subscriptions of a topic are with one notification, counted from the records.

use std::collections::{HashMap, HashSet};

use super::engine::{Keys, Space};
use super::shared::Shared;
use crate::store::encoding::codec::{self, Fields as _};
use crate::store::encoding::key;
use crate::store::encoding::layout::TopicWatermark;
use crate::store::{
    Laggard, NotificationProgress, Offset, Result, Shard, Skip, SubscriptionId, SubscriptionSummary, Sweep,
    TopicId, Watermark,
};

/// Commits may pass while it counts: a subscription that moves meanwhile is counted before or after its step.
pub(super) fn standing(
    shared: &Shared,
    shards: u16,
    topic: TopicId,
    offset: Offset,
) -> Result<NotificationProgress> {
    let mut standing = NotificationProgress::default();
    for shard in (0..shards).map(Shard) {
        count(shared, shard, topic, offset, &mut standing)?;
    }
    Ok(standing)
}

fn count(
    shared: &Shared,
    shard: Shard,
    topic: TopicId,
    offset: Offset,
    standing: &mut NotificationProgress,
) -> Result<()> {
    let range = Keys::prefix(key::shard_topic(shard, topic));
    let given_up = Keys::prefix(key::skips_from(shard, topic, offset));
    let skipped = shared
        .list::<Skip>(&given_up)
        .map(|skip| Ok(skip?.subscription))
        .collect::<Result<HashSet<SubscriptionId>>>()?;
    let cursors = shared
        .list::<Laggard>(&range)
        .map(|laggard| laggard.map(|laggard| (laggard.subscription, laggard.cursor)))
        .collect::<Result<HashMap<_, _>>>()?;
    let watermark = shared.get(&key::shard_topic(shard, topic))?;
    let watermark = watermark.map_or_else(Watermark::default, |TopicWatermark(_, watermark)| watermark);
    let keys = shared.keys();
    for record in shared.engine.scan(Space::Subscriptions, &range) {
        let (key, value) = record?;
        let slot =
            codec::open_beginning(&keys, Space::Subscriptions, &key, &value, SubscriptionSummary::decode)?;
        if slot.start >= offset {
            continue;
        }
        let cursor = cursors.get(&slot.id).copied().unwrap_or_else(|| implied(&watermark, &slot));
        if skipped.contains(&slot.id) {
            standing.skipped += 1;
        } else if cursor >= offset {
            standing.delivered += 1;
        } else {
            standing.owing += 1;
        }
    }
    Ok(())
}

/// Where a subscription without a record of its own is.
fn implied(watermark: &Watermark, slot: &SubscriptionSummary) -> Offset {
    match watermark.sweep {
        Some(Sweep { target, through }) if slot.id <= through => target,
        Some(_) | None => watermark.done,
    }
}
