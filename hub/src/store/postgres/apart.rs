//! What is done in one go on a connection of its own, whoever asks: a command line, or a hub that runs.

use std::future::Future;
use std::panic;
use std::thread;

use tokio::runtime::Builder;

use super::schema;
use super::server::Server;
use super::session::Session;
use crate::config::DatabaseConfig;
use crate::store::{Keyring, Result, StoreError};

/// Runs this on a thread of its own and waits for it, whether the caller is in a runtime or not.
pub(super) fn apart<T, E, F>(work: impl FnOnce() -> F + Send) -> std::result::Result<T, E>
where
    T: Send,
    E: From<StoreError> + Send,
    F: Future<Output = std::result::Result<T, E>>,
{
    thread::scope(|scope| {
        scope.spawn(|| alone(work)).join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    })
}

/// Runs this here, where no runtime is.
pub(super) fn alone<T, E, F>(work: impl FnOnce() -> F) -> std::result::Result<T, E>
where
    E: From<StoreError>,
    F: Future<Output = std::result::Result<T, E>>,
{
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| StoreError::Read(error.to_string()))?.block_on(work())
}

/// A connection to the database in which there is a store.
pub(super) async fn session(config: &DatabaseConfig) -> Result<Session> {
    let session = any_session(config).await?;
    if session.state().is_made {
        Ok(session)
    } else {
        Err(StoreError::Read("there is no store in the database: look at [store] url".to_owned()))
    }
}

/// A connection to the database, whatever is in it.
pub(super) async fn any_session(config: &DatabaseConfig) -> Result<Session> {
    Server::new(config)?.connect().await.map_err(StoreError::Away)
}

/// From now on no day's table is dropped: it could be once all in it was set aside, and whoever sees the store as it was before that would miss
/// these notifications.
const STAND_STILL: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE hub.notification IN ACCESS SHARE MODE";

/// Everything that is read from now on is as of this moment.
pub(super) async fn stand_still(session: &Session) -> Result<()> {
    execute(session, STAND_STILL).await
}

/// Makes sure that this version can read the store, and every secret with these keys.
pub(super) async fn require(session: &Session, keys: &Keyring) -> Result<()> {
    schema::look(session).await?.encryption.require(keys)
}

/// Runs statements that give nothing.
pub(super) async fn execute(session: &Session, statements: &str) -> Result<()> {
    session.client().batch_execute(statements).await.map_err(|error| refused(&error))
}

/// What the database has said against it, word by word.
pub(super) fn refused(error: &tokio_postgres::Error) -> StoreError {
    let reason = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
    StoreError::Read(reason)
}
