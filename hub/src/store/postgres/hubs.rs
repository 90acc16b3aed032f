//! Which hubs share the database, and what is known of that.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;
use tokio_postgres::Row;

use super::line::Common;
use super::rows::{Fields, params};
use super::shared::Shared;
use super::word::LASTS;
use super::{PostgresStore, durability};
use crate::store::{DatabaseState, Hubs, KnownHub, Result, Shard};

/// Laggards of one shard that are counted.
const COUNTED: i64 = 10_000;
/// Hubs that are looked at. One that ends without a word is there until it owns nothing and some minutes are over.
const MOST: i64 = 200;

/// Owners with their shards, and shards whose owner is none: there `id` is NULL.
const HUBS: &str = "
WITH late AS (
    SELECT s.shard, s.owner,
        (SELECT count(*) FROM (SELECT FROM hub.laggard l WHERE l.shard = s.shard LIMIT $1) c) AS laggards
    FROM hub.shard s
), owned AS (
    SELECT n.id, array_agg(l.shard ORDER BY l.shard) AS shards, sum(l.laggards)::bigint AS laggards
    FROM late l LEFT JOIN hub.node n ON n.id = l.owner GROUP BY n.id
)
SELECT n.id, n.name, n.version, n.started_at, n.alive_until, hub.is_up_1(n.alive_until) AS is_up, o.shards, o.laggards,
    clock_timestamp() AS now
FROM hub.node n FULL JOIN owned o ON o.id = n.id
WHERE o.shards IS NOT NULL OR n.alive_until > clock_timestamp() - interval '10 minutes'
ORDER BY n.id IS NOT NULL, n.name, n.started_at LIMIT $2";

impl PostgresStore {
    /// The hubs that share this store, as they were a moment ago.
    pub(super) async fn look_at_hubs(&self) -> Result<Hubs> {
        let shared = Arc::clone(&self.shared);
        let fresh = shared.config.limits.hubs_fresh;
        // Also where nobody waits for it any more: whoever asks next finds the answer.
        self.runtime.run(async move { shared.hubs.get(fresh, || ask(&shared)).await }).await
    }
}

/// What is known of the database without asking it.
pub(super) fn known(common: &Common) -> DatabaseState {
    DatabaseState {
        away_for: common.health.away_for(),
        host: common.server.host_in_use(),
        timeline: common.server.timeline(),
        durability: durability::known(common.durability, &common.health.get()),
    }
}

async fn ask(shared: &Shared) -> Result<Hubs> {
    let rows = shared.read(HUBS, &params![COUNTED, MOST]).await?;
    let mut found = Hubs::default();
    for row in &rows {
        let fields = Fields::of("nodes", row);
        let (shards, laggards) = (shards_of(row)?, fields.maybe_number("laggards")?.unwrap_or_default());
        if let Some(id) = fields.get::<Option<i64>>("id")? {
            found.hubs.push(hub(fields, id == shared.node, shards, laggards)?);
        } else {
            (found.unowned, found.unowned_laggards) = (shards, laggards);
        }
    }
    Ok(found)
}

fn hub(fields: Fields<'_>, is_this: bool, shards: Vec<Shard>, laggards: u64) -> Result<KnownHub> {
    let (now, alive_until) = (fields.get::<SystemTime>("now")?, fields.get::<SystemTime>("alive_until")?);
    Ok(KnownHub {
        name: fields.text("name")?,
        version: fields.text("version")?,
        started_at: fields.moment("started_at")?,
        alive_until: DateTime::from_system_time(alive_until),
        is_up: fields.flag("is_up")?,
        heartbeat_age: age(now, alive_until),
        shards,
        laggards,
        is_this,
    })
}

/// Each heartbeat lasts as long.
fn age(now: SystemTime, alive_until: SystemTime) -> Duration {
    (now + LASTS).duration_since(alive_until).unwrap_or_default()
}

fn shards_of(row: &Row) -> Result<Vec<Shard>> {
    let shards: Option<Vec<i16>> = Fields::of("shards", row).get("shards")?;
    Ok(shards.unwrap_or_default().into_iter().map(|shard| Shard(shard.unsigned_abs())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_as_old_as_the_time_of_it_that_is_over() {
        let now = SystemTime::now();
        let second = Duration::from_secs(1);
        assert_eq!(age(now, now + LASTS), Duration::ZERO);
        assert_eq!(age(now, now + LASTS - second), second);
        assert_eq!(age(now, now - second), LASTS + second);
        assert_eq!(age(now, now + LASTS + second), Duration::ZERO, "the clock was set back");
    }
}
