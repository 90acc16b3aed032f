//! A database that was restored to an earlier point, without the hub's doing.

use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;

use super::apart::{apart, session};
use super::history::{self, History};
use super::rows::{Fields, the_only};
use super::session::{Failure, Session};
use super::word::LASTS;
use super::{durability, schema};
use crate::config::DatabaseConfig;
use crate::store::{Keyring, Result, SaidRestored, StoreError};

const DEADLINE: Duration = Duration::from_secs(30);
const RESTORED: &str = "SELECT is_done, now, names, alive_until FROM hub.restored_2($1, $2)";
/// Hubs that are named.
const MOST: i64 = 20;

/// Lets all logs and epochs of the store leap, unless hubs are up.
///
/// # Errors
/// What keeps the database from being used.
pub(in crate::store) fn restored(config: &DatabaseConfig, keys: &Keyring) -> Result<SaidRestored> {
    apart(|| async move {
        let session = session(config).await?;
        durability::check(session.state(), config.durability)?;
        schema::prepare(&session, keys).await?;
        leap(&session, &History::of(&config.data_dir)).await
    })
}

async fn leap(session: &Session, history: &History) -> Result<SaidRestored> {
    let away = |failure: Failure| StoreError::Away(failure.told());
    let found = session.query(history::LOOK, &[&history.folder()], DEADLINE).await.map_err(away)?;
    let at_least = history.next_era(&found)?;
    let rows = session.query(RESTORED, &[&at_least, &MOST], DEADLINE).await.map_err(away)?;
    let fields = Fields::of("nodes", the_only(&rows)?);
    let names = fields.get::<Option<Vec<String>>>("names")?.unwrap_or_default();
    let until = fields.get::<Option<Vec<SystemTime>>>("alive_until")?.unwrap_or_default();
    // Each word was given so long before its end.
    let given = until.into_iter().map(|until| until.checked_sub(LASTS).unwrap_or(until));
    let hubs = names.into_iter().zip(given.map(DateTime::from_system_time)).collect();
    Ok(SaidRestored { is_done: fields.flag("is_done")?, at: fields.moment("now")?, hubs })
}
