//! Hubs that share a database, as an operator sees them.

use std::time::Duration;

use resync_core::datetime::DateTime;
use tokio::time::timeout;
use tracing::debug;

use super::AdminService;
use super::responses::{Cluster, Database, Owner, Owners};
use crate::store::{DatabaseState, Hubs, KnownDurability, KnownHub, StoreError, WallClock};

/// For an answer of the database: what is known without it is shown all the same.
const PATIENCE: Duration = Duration::from_secs(1);

impl AdminService {
    /// The hubs of the database and that itself; `None` where the store is the hub's own.
    pub(super) async fn cluster(&self) -> Option<Cluster> {
        let database = database(self.store.database()?, self.store.clock());
        let found = timeout(PATIENCE, self.store.hubs()).await;
        let found = found.unwrap_or_else(|late| Err(StoreError::Away(late.to_string())));
        let owners = found.inspect_err(|error| debug!(%error, "which hubs share the database is not known"));
        Some(Cluster { database, owners: owners.ok().map(owners_of) })
    }
}

fn database(state: DatabaseState, clock: &WallClock) -> Database {
    let since = |away_for| clock.now().to_system_time().checked_sub(away_for);
    let away_since = state.away_for.and_then(since);
    Database {
        away_since: away_since.map(|since| DateTime::from_system_time(since).to_string()),
        host: state.host,
        timeline: state.timeline,
        durability: match state.durability {
            KnownDurability::Proven => "proven",
            KnownDurability::Declared => "declared",
            KnownDurability::Missing => "missing",
        },
    }
}

fn owners_of(found: Hubs) -> Owners {
    Owners {
        hubs: found.hubs.into_iter().map(owner).collect(),
        shards_without_owner: found.unowned.into_iter().map(|shard| shard.0).collect(),
        laggards_without_owner: found.unowned_laggards,
    }
}

fn owner(hub: KnownHub) -> Owner {
    Owner {
        name: hub.name,
        version: hub.version,
        this: hub.is_this,
        up: hub.is_up,
        started_at: hub.started_at.to_string(),
        alive_until: hub.alive_until.to_string(),
        heartbeat_age_ms: u64::try_from(hub.heartbeat_age.as_millis()).unwrap_or(u64::MAX),
        shards: hub.shards.into_iter().map(|shard| shard.0).collect(),
        laggards: hub.laggards,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_away_says_since_when_by_the_clock_of_the_store() {
        let clock = WallClock::default();
        clock.put_ahead(Duration::from_secs(86_400));
        let state = |away_for| DatabaseState {
            away_for,
            host: Some("db1.example:5432".to_owned()),
            timeline: 3,
            durability: KnownDurability::Missing,
        };
        let well = database(state(None), &clock);
        assert_eq!((well.away_since, well.durability), (None, "missing"));
        let before = clock.now();
        let away_since = database(state(Some(Duration::from_secs(60))), &clock).away_since.unwrap();
        let tomorrow: DateTime = away_since.parse().unwrap();
        assert!(tomorrow < before && tomorrow > DateTime::now());
    }
}
