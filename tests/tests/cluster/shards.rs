//! Who owns which shard, as the database has it.

use std::collections::BTreeMap;

use resync_harness::Rows;

/// Of each shard its epoch, and the hub that owns it if that is up.
pub(crate) const QUERY: &str = "
SELECT s.epoch, n.id FROM hub.shard s
LEFT JOIN hub.node n ON n.id = s.owner AND hub.is_up_1(n.alive_until) ORDER BY s.shard";

/// All shards at one moment.
#[derive(Debug)]
pub(crate) struct Shards(Vec<(u64, Option<String>)>);

impl Shards {
    /// What [`QUERY`] has answered.
    pub(crate) fn of(rows: Rows) -> Self {
        let shard = |row: Vec<Option<String>>| {
            let mut columns = row.into_iter();
            let epoch = columns.next().flatten().and_then(|epoch| epoch.parse().ok());
            (epoch.expect("a shard has an epoch"), columns.next().flatten())
        };
        Self(rows.into_iter().map(shard).collect())
    }

    /// How many each hub owns that is up.
    fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for owner in self.0.iter().filter_map(|(_, owner)| owner.as_deref()) {
            *counts.entry(owner).or_insert(0) += 1;
        }
        counts
    }

    /// Whether each shard is owned, by so many hubs together, none of which has more than its share.
    pub(crate) fn are_shared_by(&self, hubs: usize) -> bool {
        let counts = self.counts();
        let share = self.0.len().div_ceil(hubs);
        self.are_owned() && counts.len() == hubs && counts.values().all(|count| *count <= share)
    }

    /// Whether each shard is owned by a hub that is up.
    pub(crate) fn are_owned(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|(_, owner)| owner.is_some())
    }

    /// Whether no epoch is smaller than it was.
    pub(crate) fn follow(&self, before: &Self) -> bool {
        self.0.len() == before.0.len()
            && self.0.iter().zip(&before.0).all(|((now, _), (then, _))| now >= then)
    }
}
