//! A database that was restored to an earlier point, without the hub's doing.

use std::time::Duration;

use super::apart::{apart, session};
use super::rows::{Fields, the_only};
use super::{durability, schema};
use crate::config::DatabaseConfig;
use crate::store::{Keyring, Result, StoreError};

const DEADLINE: Duration = Duration::from_secs(30);
const RESTORED: &str = "SELECT hub.restored_1() AS is_done";

/// Lets all logs and epochs of the store leap, and returns whether that is done: it is not while hubs are up.
///
/// # Errors
/// What keeps the database from being used.
pub(in crate::store) fn restored(config: &DatabaseConfig, keys: &Keyring) -> Result<bool> {
    apart(|| async move {
        let session = session(config).await?;
        durability::check(session.state(), config.durability)?;
        schema::prepare(&session, keys).await?;
        let rows = session.query(RESTORED, &[], DEADLINE).await;
        let rows = rows.map_err(|failure| StoreError::Away(failure.told()))?;
        Fields::of("store", the_only(&rows)?).flag("is_done")
    })
}
