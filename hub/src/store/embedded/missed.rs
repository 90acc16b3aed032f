//! What one subscription has missed, the newest first. The keys say whose a record is, so that those of others are not even decoded.

use std::time::Duration;

use resync_core::datetime::DateTime;

use super::engine::Keys;
use super::shared::Shared;
use crate::store::encoding::codec::{self, Record};
use crate::store::encoding::key;
use crate::store::{Missed, Result, Shard, Subscription, SubscriptionId};

const SET_BACK: Duration = Duration::from_secs(24 * 3_600);

/// Where records about one subscription can be.
#[derive(Debug)]
pub(super) struct MissedQuery {
    id: SubscriptionId,
    skips: Keys,
    gaps: Keys,
}

impl MissedQuery {
    /// Before it began it was owed nothing, and can have missed nothing; a day more allows for a clock that was set back since.
    pub(super) fn new(shard: Shard, of: &Subscription) -> Self {
        let Subscription { id, topic, start, created_at, .. } = of;
        let begun = DateTime::from_system_time(created_at.to_system_time() - SET_BACK);
        Self {
            id: *id,
            skips: Keys {
                from: key::skips_from(shard, *topic, start.next()),
                to: Keys::prefix(key::shard_topic(shard, *topic)).to,
            },
            gaps: Keys { from: key::expiry_until(begun), to: None },
        }
    }

    /// Looks at no more than so many records of either kind.
    pub(super) fn missed(&self, shared: &Shared, limit: usize) -> Result<Missed> {
        let is_own_skip = |key: &[u8]| key::subscription_of_skip(key) == Some(self.id);
        let is_own_gap = |key: &[u8]| key::subscription_of_gap(key) == Some(self.id);
        let (skips, all_skips) = found(shared, &self.skips, limit, is_own_skip)?;
        let (gaps, all_gaps) = found(shared, &self.gaps, limit, is_own_gap)?;
        Ok(Missed { skips, gaps, all: all_skips && all_gaps })
    }
}

/// The records of a range whose keys are wanted, from its end, and whether the whole range was looked at.
fn found<R: Record>(
    shared: &Shared,
    range: &Keys,
    limit: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<(Vec<R>, bool)> {
    let (keyring, mut found) = (shared.keys(), Vec::new());
    for (number, record) in shared.engine.scan(R::SPACE, range).rev().enumerate() {
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
