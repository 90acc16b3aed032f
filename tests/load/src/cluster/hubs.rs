//! Several hubs over one database: started by this tool over servers of its own, or there already.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_postgres::Row;

use super::database::Database;
use crate::Failure;
use crate::stage::{Entrance, usage};
use resync_harness::{HubProcess, PATIENCE, Replicated, happens_within};

/// All of them read each other's secrets.
pub(super) const KEY: (&str, &str) =
    ("SECRETS_KEY", "5d0f6a39c1e84b7296f03ad8e57bc41e8f2196a07bd35cc4e1902f6d48ab7350");
/// Between two looks at hubs or at their database.
const AGAIN: Duration = Duration::from_millis(50);
/// Of each hub that is up how many shards it owns; no row says so of those without such an owner.
const OWNERS: &str = "
SELECT n.id IS NOT NULL, count(*) FROM hub.shard s
LEFT JOIN hub.node n ON n.id = s.owner AND n.alive_until > clock_timestamp() GROUP BY n.id";
const FORGET: &str = "DROP SCHEMA IF EXISTS hub CASCADE";

/// The database, and hubs over it that others have started.
pub(super) struct Laboratory {
    /// Three of them, started by this tool; `None` where the hubs are those of others, or while somebody has taken them.
    pub(super) servers: Option<Replicated>,
    pub(super) database: Arc<Database>,
    theirs: Vec<Entrance>,
    folder: PathBuf,
}

impl Laboratory {
    /// Servers of its own; data of hubs go below this folder.
    ///
    /// # Errors
    /// When there is no PostgreSQL.
    pub(super) async fn start(folder: &Path) -> Result<Self, Failure> {
        let servers = spawn_blocking(Replicated::start_on_disk).await?;
        let servers =
            servers.ok_or("there is no PostgreSQL that can be run (Debian's package is postgresql)")?;
        let database = Arc::new(Database::new(&Replicated::url(&servers.addresses()))?);
        Ok(Self { servers: Some(servers), database, theirs: Vec::new(), folder: folder.to_owned() })
    }

    /// Hubs that run already, and their database.
    ///
    /// # Errors
    /// When a URL cannot be used.
    pub(super) fn of_others(hubs: &[String], store: &str, folder: &Path) -> Result<Self, Failure> {
        let theirs = hubs.iter().map(|url| Entrance::at(url)).collect::<Result<_, _>>()?;
        let database = Arc::new(Database::new(store)?);
        Ok(Self { servers: None, database, theirs, folder: folder.to_owned() })
    }

    /// Where to post: to the hubs of others, or to so many new ones, which share the shards.
    pub(super) async fn hubs_or_theirs(&self, count: usize) -> Result<Hubs, Failure> {
        if self.theirs.is_empty() {
            return self.hubs(count, &[]).await;
        }
        let entrances = self.theirs.clone();
        Ok(Hubs {
            entrances,
            nodes: Vec::new(),
            folders: Vec::new(),
            keys: Vec::new(),
            beside: PathBuf::new(),
        })
    }

    /// So many new hubs over an empty store with these keys of the configuration, which share the shards.
    pub(super) async fn hubs(&self, count: usize, keys: &[(&str, &str)]) -> Result<Hubs, Failure> {
        let servers =
            self.servers.as_ref().ok_or("this needs hubs that this tool starts: leave out --hub")?;
        self.database.connect().await?.client().batch_execute(FORGET).await?;
        let url = Replicated::url(&servers.addresses());
        let own = [("STORE_ENGINE", "postgres"), ("STORE_URL", url.as_str()), KEY];
        let all = [&own[..], keys].concat();
        let keys = all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let (nodes, folders, beside) = (Vec::new(), Vec::new(), self.folder.clone());
        let mut hubs = Hubs { entrances: Vec::new(), nodes, folders, keys, beside };
        for _ in 0..count {
            hubs.add().await?;
        }
        hubs.until_shared(&self.database).await?;
        Ok(hubs)
    }
}

/// Hubs over one database.
pub(super) struct Hubs {
    /// Where they take requests.
    pub(super) entrances: Vec<Entrance>,
    /// Their processes, in the same order; none of hubs that others have started.
    pub(super) nodes: Vec<HubProcess>,
    folders: Vec<TempDir>,
    keys: Vec<(String, String)>,
    beside: PathBuf,
}

/// What hubs have done since each was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) laggards: u64,
    /// Those that they deliver to.
    pub(super) subscriptions: u64,
}

impl Hubs {
    /// One more.
    pub(super) async fn add(&mut self) -> Result<(), Failure> {
        let folder = tempfile::tempdir_in(&self.beside)?;
        let keys: Vec<_> = self.keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let mut hub = HubProcess::prepare(folder.path(), &keys);
        start(&mut hub).await?;
        self.entrances.push(Entrance::of(&hub));
        self.nodes.push(hub);
        self.folders.push(folder);
        Ok(())
    }

    /// The URLs of their endpoints.
    pub(super) fn urls(&self) -> Vec<String> {
        self.entrances.iter().map(|hub| hub.url.clone()).collect()
    }

    /// Waits until each shard is owned by a hub that is up, and each of so many as there are has its share.
    pub(super) async fn until_shared(&self, database: &Database) -> Result<(), Failure> {
        let count = self.nodes.len();
        let are_shared = || async {
            sleep(AGAIN).await;
            are_shared_by(database, count).await.unwrap_or(false)
        };
        if happens_within(PATIENCE, are_shared).await {
            return Ok(());
        }
        Err(format!("{count} hubs do not share the shards").into())
    }

    /// Waits until they deliver to so many subscriptions together.
    pub(super) async fn until_subscribed(&self, count: usize) -> Result<(), Failure> {
        let are_subscribed = || async {
            sleep(AGAIN).await;
            self.totals().await.is_ok_and(|totals| totals.subscriptions == count as u64)
        };
        if happens_within(PATIENCE, are_subscribed).await {
            return Ok(());
        }
        let found = self.totals().await?.subscriptions;
        Err(format!("the hubs deliver to {found} subscriptions, and {count} were made").into())
    }

    /// What all of them say.
    pub(super) async fn totals(&self) -> Result<Totals, Failure> {
        let all = try_join_all(self.nodes.iter().map(totals)).await?;
        Ok(all.into_iter().fold(Totals::default(), |sum, one| Totals {
            delivered: sum.delivered + one.delivered,
            failed: sum.failed + one.failed,
            laggards: sum.laggards + one.laggards,
            subscriptions: sum.subscriptions + one.subscriptions,
        }))
    }

    /// Resident bytes of all.
    pub(super) fn memory(&mut self) -> Result<u64, Failure> {
        self.nodes.iter_mut().map(|hub| usage(hub).map(|(memory, _)| memory)).sum()
    }

    /// Starts all at once that were stopped, and waits until each says that it is ready.
    pub(super) async fn start_all(&mut self) -> Result<(), Failure> {
        try_join_all(self.nodes.iter_mut().map(start)).await?;
        join_all(self.nodes.iter().map(HubProcess::until_ready)).await;
        Ok(())
    }

    /// Stops all at once, in order.
    pub(super) async fn stop_all(&mut self) {
        join_all(self.nodes.iter_mut().map(HubProcess::stop)).await;
    }

    /// Stops all but the first, in order and at once.
    pub(super) async fn remove_all_but_one(&mut self) {
        self.entrances.truncate(1);
        let mut others = self.nodes.split_off(1);
        join_all(others.iter_mut().map(HubProcess::stop)).await;
        self.folders.truncate(1);
    }

    /// Kills all: what is left to do need not be waited for.
    pub(super) async fn end(mut self) {
        join_all(self.nodes.iter_mut().map(HubProcess::kill)).await;
    }
}

/// Starts a hub that does not run.
pub(super) async fn start(hub: &mut HubProcess) -> Result<(), Failure> {
    Ok(hub.try_restart().await.map_err(|said| format!("a hub did not come up; it said:\n{said}"))?)
}

/// What a hub says of itself.
pub(super) async fn totals(hub: &HubProcess) -> Result<Totals, Failure> {
    let status: Value = serde_json::from_slice(&hub.admin("/api/v1/status").await.body)?;
    let count = |pointer: &str| {
        let found = status.pointer(pointer).and_then(Value::as_u64);
        found.ok_or_else(|| format!("the status of a hub has no {pointer}"))
    };
    Ok(Totals {
        delivered: count("/deliveries/delivered")?,
        failed: count("/deliveries/failed")?,
        laggards: count("/deliveries/laggards")?,
        subscriptions: count("/subscriptions")?,
    })
}

async fn are_shared_by(database: &Database, hubs: usize) -> Result<bool, Failure> {
    let rows = database.connect().await?.rows(OWNERS).await?;
    let owners = rows.iter().map(owner).collect::<Result<Vec<_>, _>>()?;
    Ok(is_fair(&owners, hubs))
}

fn owner(row: &Row) -> Result<(bool, i64), tokio_postgres::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// Whether nothing is without an owner, and none of so many owners has more than its share.
fn is_fair(owners: &[(bool, i64)], hubs: usize) -> bool {
    let Ok(count) = i64::try_from(hubs) else { return false };
    let all: i64 = owners.iter().map(|(_, shards)| shards).sum();
    owners.len() == hubs && owners.iter().all(|(is_up, shards)| *is_up && (shards - 1) * count < all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_shared_when_each_has_an_owner_and_no_hub_more_than_its_share() {
        assert!(is_fair(&[(true, 22), (true, 21), (true, 21)], 3) && is_fair(&[(true, 64)], 1));
        assert!(!is_fair(&[(true, 23), (true, 21), (true, 20)], 3));
        assert!(!is_fair(&[(true, 32), (true, 32)], 3), "one has none yet");
        assert!(!is_fair(&[(true, 32), (true, 31), (false, 1)], 3), "one has no owner");
    }
}
