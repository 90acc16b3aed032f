//! One connection to the database.
//!
//! A command that is not answered in time is given up with its connection, and never by a request to cancel it: the server would answer one
//! that waits for its standby with success. Such answers, which a termination causes too, are known by the warnings before them.

use std::collections::HashMap;
use std::error::Error as _;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use resync_common::locks::lock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, Row, Statement};

/// What every connection asks first.
const STATE: &str = "
SELECT pg_is_in_recovery() AS recovers, current_setting('server_version_num')::integer AS version,
    current_setting('fsync') = 'on' AS syncs, current_setting('full_page_writes') = 'on' AS whole_pages,
    current_setting('synchronous_standby_names') <> '' AS names_standbys,
    CASE WHEN pg_is_in_recovery() THEN 0
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer END AS timeline,
    to_regclass('hub.store') IS NOT NULL AS is_made";
/// What must not depend on who made the role or the database. A commit waits for its standby, and nothing else for a time.
const SETTINGS: &str = "
SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET client_min_messages = warning; SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
SET idle_session_timeout = 0; SET jit = off; SET TimeZone = 'UTC'";
/// The oldest version that is supported.
const VERSION: i32 = 140_000;
/// What warns long before transactions run out, with each that is begun.
const OF_NUMBERS: &str = "GetNewTransactionId";

/// A connection that takes commands. It ends when this is dropped.
pub(super) struct Session {
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    /// What the server says without being asked.
    heard: Arc<Heard>,
    driver: AbortHandle,
    state: State,
}

/// What the server says without being asked.
#[derive(Debug, Default)]
struct Heard {
    /// How many answers of success were none.
    doubts: AtomicU64,
    /// A hint has come since somebody waited for one.
    hinted: Notify,
    /// Hints that are signed so are not meant for this connection.
    own_signature: OnceLock<String>,
}

/// What a server says of itself.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting by itself")]
pub(super) struct State {
    pub(super) timeline: u32,
    pub(super) syncs: bool,
    pub(super) whole_pages: bool,
    pub(super) names_standbys: bool,
    pub(super) is_made: bool,
}

/// Why a command was not carried out, or may not have been.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database refused it; nothing was done.
    Refused(Box<DbError>),
    /// It was not sent; the connection is of no use any more.
    NotSent(String),
    /// Nobody knows, and the connection is of no use any more.
    Lost(String),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Has the connection driven, and finds out what is at its other end.
    ///
    /// # Errors
    /// Why a hub cannot use that.
    pub(super) async fn begin<S, T>(client: Client, connection: Connection<S, T>) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let heard = Arc::<Heard>::default();
        let driver = tokio::spawn(drive(connection, Arc::clone(&heard))).abort_handle();
        let mut session =
            Self { client, statements: Mutex::default(), heard, driver, state: State::unknown() };
        let told = |error: tokio_postgres::Error| words(&error);
        let row = session.only_row(STATE).await.map_err(told)?;
        session.state = State::of(&row).map_err(told)??;
        session.client.batch_execute(SETTINGS).await.map_err(told)?;
        Ok(session)
    }

    /// Boxed, so that the compiler sees that what waits for it may go to another thread.
    fn only_row(&self, statement: &'static str) -> BoxFuture<'_, Result<Row, tokio_postgres::Error>> {
        Box::pin(self.client.query_one(statement, &[]))
    }

    pub(super) fn timeline(&self) -> u32 {
        self.state.timeline
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// For what is no single statement: copies, and the making of a store.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Listens to hints of others than who signs so.
    ///
    /// # Errors
    /// Why none will come: behind some poolers nobody can listen.
    pub(super) async fn listen(&self, channel: &str, own_signature: String) -> Result<(), String> {
        // Where it is done twice, by the same.
        let _ = self.heard.own_signature.set(own_signature);
        let listen = format!("LISTEN {channel}");
        self.client.batch_execute(&listen).await.map_err(|error| words(&error))
    }

    /// Returns when a hint has come since the last call.
    pub(super) async fn hinted(&self) {
        self.heard.hinted.notified().await;
    }

    /// Runs one statement, which is prepared once for each connection.
    pub(super) async fn query(
        &self,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let (began, before) = (Instant::now(), self.heard.doubts.load(Ordering::Acquire));
        let prepared = match timeout(deadline, self.prepared(statement)).await {
            Ok(prepared) => prepared.map_err(Failure::of_preparing)?,
            Err(_) => return Err(Failure::NotSent(format!("no answer within {deadline:?}"))),
        };
        let left = deadline.saturating_sub(began.elapsed());
        let rows = match timeout(left, self.client.query(&prepared, parameters)).await {
            Ok(rows) => rows.map_err(Failure::of_running)?,
            Err(_) => return Err(Failure::Lost(format!("no answer within {deadline:?}"))),
        };
        if self.heard.doubts.load(Ordering::Acquire) == before {
            Ok(rows)
        } else {
            Err(Failure::Lost("the wait for a standby was cancelled".to_owned()))
        }
    }

    async fn prepared(&self, statement: &'static str) -> Result<Statement, tokio_postgres::Error> {
        let known = self.statements().get(statement).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let prepared = self.client.prepare(statement).await?;
        self.statements().insert(statement, prepared.clone());
        Ok(prepared)
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<&'static str, Statement>> {
        // What it guards is complete between any two statements.
        lock(&self.statements)
    }
}

impl State {
    /// Until the server has said something.
    pub(super) fn unknown() -> Self {
        Self { timeline: 0, syncs: false, whole_pages: false, names_standbys: false, is_made: false }
    }

    /// Within the result: why the server cannot be used.
    fn of(row: &Row) -> Result<Result<Self, String>, tokio_postgres::Error> {
        if row.try_get("recovers")? {
            return Ok(Err("it is a standby".to_owned()));
        }
        let version: i32 = row.try_get("version")?;
        if version < VERSION {
            let (major, least) = (version / 10_000, VERSION / 10_000);
            return Ok(Err(format!("it is PostgreSQL {major}, and a hub needs at least {least}")));
        }
        Ok(Ok(Self {
            timeline: row.try_get::<_, i32>("timeline")?.cast_unsigned(),
            syncs: row.try_get("syncs")?,
            whole_pages: row.try_get("whole_pages")?,
            names_standbys: row.try_get("names_standbys")?,
            is_made: row.try_get("is_made")?,
        }))
    }
}

impl Failure {
    fn of_preparing(error: tokio_postgres::Error) -> Self {
        match Self::of_running(error) {
            Self::Lost(reason) => Self::NotSent(reason),
            other => other,
        }
    }

    fn of_running(error: tokio_postgres::Error) -> Self {
        let told = words(&error);
        let refused = error
            .into_source()
            .and_then(|source| source.downcast::<DbError>().ok())
            .filter(|db| db.parsed_severity().is_none_or(|severity| severity == Severity::Error));
        refused.map_or(Self::Lost(told), Self::Refused)
    }
}

/// What an error of the driver says.
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(refusal), _) => words_of(refusal),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

/// What the database says against something. Not its details: there may be values of a row in them, a subscriber's secret too.
pub(super) fn words_of(refusal: &DbError) -> String {
    format!("{} ({})", refusal.message(), refusal.code().code())
}

/// Whether an answer of success behind such a notice may be none: the wait for a standby was cancelled, or the connection was terminated in it.
/// The code says so only of some of these, and the words are in any language.
fn is_doubt(severity: Option<Severity>, routine: Option<&str>) -> bool {
    severity.is_none_or(|severity| severity == Severity::Warning) && routine != Some(OF_NUMBERS)
}

/// Keeps the connection going until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, heard: Arc<Heard>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                if is_doubt(notice.parsed_severity(), notice.routine()) {
                    heard.doubts.fetch_add(1, Ordering::Release);
                }
                tracing::debug!(code = notice.code().code(), "the database says: {}", notice.message());
            }
            Ok(AsyncMessage::Notification(hint)) => {
                if heard.own_signature.get().is_none_or(|own| own != hint.payload()) {
                    heard.hinted.notify_one();
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(error = words(&error), "a connection to the database has ended");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_warning_puts_an_answer_in_doubt_but_the_one_that_numbers_run_out() {
        for (severity, routine, expected) in [
            (Some(Severity::Warning), Some("SyncRepWaitForLSN"), true),
            (Some(Severity::Warning), None, true),
            (None, None, true),
            (Some(Severity::Warning), Some(OF_NUMBERS), false),
            (Some(Severity::Notice), Some("DropErrorMsgNonExistent"), false),
        ] {
            assert_eq!(is_doubt(severity, routine), expected, "{severity:?} {routine:?}");
        }
    }
}
