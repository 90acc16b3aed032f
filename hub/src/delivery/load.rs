//! Loads a shard that this hub takes over.

use std::time::Instant;

use super::scheduler::{self, Clock, Limits, Now, Scheduler, WorkerState};
use super::sender::{OwnedShard, Ownership, Settings};
use crate::store::{Store, StoreError, SubscriptionSummary, Uptime};

/// Subscriptions of one topic and shard that a sweep has on their way at once.
const WINDOW: usize = 1_024;

/// Subscriptions that a shard looks at before the other shards are asked: for some tens of microseconds.
const STEPS: usize = 256;

/// Checkpoints of a span. With the interval of checkpoints that is half a second.
const SPAN_CHECKPOINTS: u32 = 4;

/// Subscriptions of one topic and shard that may wait without a record after the sweep has passed them by.
const MOST_PASSED_BY: usize = 8_192;

/// Until when no lease ends in a shard that is taken over now, where by what the store knows the wall clock cannot be believed yet.
pub(super) async fn doubt(store: &dyn Store) -> Result<Option<Instant>, StoreError> {
    let now = Now::read(store.clock());
    // What other hubs have seen pass was no jump.
    let others = store.others_seen().await?;
    let known = match store.uptime().await {
        Ok(known) => known.map(|uptime| uptime.with(others)),
        Err(StoreError::Damaged { .. }) => None,
        Err(error) => return Err(error),
    };
    let known = known.or_else(|| others.map(|seen| Uptime { seen, clock_jumps: Vec::new() }));
    match known {
        Some(uptime) => Ok(scheduler::doubt_at_start(&uptime, now)),
        // A store that is new has nobody whose lease could end.
        None if store.topics(None, 1).await?.is_empty() => Ok(None),
        None => Ok(Some(scheduler::doubt(now))),
    }
}

/// Reads the state of a shard that was claimed. `worker` is what the shards of the worker have in common that will deliver for it.
pub(super) async fn load(
    store: &dyn Store,
    ownership: Ownership,
    settings: &Settings,
    doubted_until: Option<Instant>,
    worker: WorkerState,
) -> Result<OwnedShard, StoreError> {
    let shard = ownership.shard;
    let state = store.load_shard(shard).await?;
    for SubscriptionSummary { origin, address, lease_end, .. } in &state.slots {
        settings.confirmed.remember(origin, *address, *lease_end);
    }
    let limits = Limits {
        per_host: settings.per_host,
        window: WINDOW,
        retry: settings.retry.clone(),
        breaker: settings.breaker,
        steps: STEPS,
        span: SPAN_CHECKPOINTS,
        passed_by: MOST_PASSED_BY,
    };
    let now = Now::read(store.clock());
    let scheduler = Scheduler::new(shard, limits, worker, state, Clock::new(now, doubted_until), now);
    Ok(OwnedShard::new(ownership, scheduler))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::{self, Engine, Keyring};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_clock_is_in_doubt_where_it_is_not_known_when_the_hub_was_up() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        assert_eq!(doubt(store.as_ref()).await.unwrap(), None, "nobody has subscribed");
        let posted = store::posted(&"https://source.example/t".parse().unwrap(), "");
        store.append(posted, Duration::ZERO).await.unwrap();
        assert!(doubt(store.as_ref()).await.unwrap().is_some(), "it may have been down for days");
        store.put_uptime(Uptime { seen: DateTime::now(), clock_jumps: Vec::new() }).await.unwrap();
        assert_eq!(doubt(store.as_ref()).await.unwrap(), None);
    }
}
