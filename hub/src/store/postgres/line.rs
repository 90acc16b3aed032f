//! A connection with one purpose, made anew whenever it was lost.
//!
//! Each begins with a commit of its own. That is the proof that the server still acknowledges, before anything is read from it: what a commit
//! that waits for its standby has written is not seen, but would be after a crash, although no standby has it. And from then on the
//! database refuses whatever was sent through the connection before: a command whose outcome was not known is carried out by then, or
//! never will be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::ToSql;

use super::durability;
use super::health::Health;
use super::history::{self, History};
use super::rows::{Fields, random_id};
use super::server::Server;
use super::session::{Failure, Session, words_of};
use crate::config::{DatabaseConfig, Durability};
use crate::store::{Result, StoreError};

/// For an answer. A commit that takes longer waits for a standby that is away, or for a server that is.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);
/// For a connection with its first commit.
const OPENING: Duration = Duration::from_secs(4);
/// How often a command is tried that others stood in the way of.
const TRIES: usize = 4;

const OPEN: &str = "SELECT generation, xid FROM hub.open_line_1($1, $2, $3)";
/// What our functions answer by a refusal.
const MADE_ANEW: &str = "HB001";
const FENCED: &str = "HB002";
const TOO_MANY: &str = "HB003";
const WITHOUT_STANDBY: &str = "HB004";

/// What all connections share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) server: Server,
    pub(super) durability: Durability,
    pub(super) node: i64,
    pub(super) health: Health,
    pub(super) history: History,
}

impl Common {
    /// Those of a hub that nobody knows yet.
    pub(super) fn new(server: Server, config: &DatabaseConfig) -> Self {
        let history = History::of(&config.data_dir);
        Self { server, durability: config.durability, node: random_id(), health: Health::unknown(), history }
    }

    /// Remembers for the next start how far the database is.
    pub(super) async fn save_history(self: &Arc<Self>) {
        let common = Arc::clone(self);
        // It has said itself what went wrong.
        let _ = spawn_blocking(move || common.history.save()).await;
    }
}

/// A connection with one purpose. Who uses it in turns finds what was done in the order of the turns.
#[derive(Debug)]
pub(super) struct Line {
    common: Arc<Common>,
    id: i64,
    current: Mutex<Option<Arc<Open>>>,
}

/// What is known of the database.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// Nothing is sent while it is away.
    Heeded,
    Ignored,
}

/// The connection as it is now.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) session: Session,
    generation: i64,
    /// The transaction that it began with: all that it writes has a later one.
    pub(super) xid: i64,
}

impl Line {
    pub(super) fn new(common: &Arc<Common>) -> Self {
        Self { common: Arc::clone(common), id: random_id(), current: Mutex::default() }
    }

    /// The connection, which is made if need be.
    ///
    /// # Errors
    /// [`StoreError::Away`], [`StoreError::NotDurable`] and [`StoreError::EarlierPoint`]: at once while that is known.
    pub(super) async fn open(&self) -> Result<Arc<Open>> {
        self.opened(Known::Heeded).await
    }

    /// The same whatever is known of the database.
    pub(super) async fn open_now(&self) -> Result<Arc<Open>> {
        self.opened(Known::Ignored).await
    }

    async fn opened(&self, known: Known) -> Result<Arc<Open>> {
        self.heed(known)?;
        let mut current = self.current.lock().await;
        if let Some(open) = current.as_ref().filter(|open| !open.session.is_closed() && self.is_newest(open))
        {
            return Ok(Arc::clone(open));
        }
        // Who was before this one may have found out that it is away.
        self.heed(known)?;
        *current = None;
        let late = |_| StoreError::Away(format!("no answer within {OPENING:?}"));
        let open = Arc::new(timeout(OPENING, self.connect()).await.map_err(late)??);
        *current = Some(Arc::clone(&open));
        Ok(open)
    }

    fn heed(&self, known: Known) -> Result<()> {
        match known {
            Known::Heeded => self.common.health.get(),
            Known::Ignored => Ok(()),
        }
    }

    /// Whether the server at the other end was not replaced, as far as anybody here knows. One that was, and does not know it, may still answer:
    /// that counts for nothing.
    pub(super) fn is_newest(&self, open: &Open) -> bool {
        open.session.timeline() >= self.common.server.timeline()
    }

    /// Runs one statement there.
    pub(super) async fn ask(
        &self,
        open: &Open,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> std::result::Result<Vec<Row>, Failure> {
        let answer = open.session.query(statement, parameters, deadline).await;
        match answer {
            Ok(_) | Err(Failure::Refused(_)) if !self.is_newest(open) => {
                Err(Failure::Lost("the server was replaced by another".to_owned()))
            }
            answer => answer,
        }
    }

    async fn connect(&self) -> Result<Open> {
        let session = self.common.server.connect().await.map_err(StoreError::Away)?;
        durability::check(session.state(), self.common.durability)?;
        let is_proven = self.common.durability == Durability::Proven;
        let seen = self.common.history.seen();
        let rows = session.query(OPEN, &[&self.id, &self.common.node, &is_proven], OPENING).await;
        let rows = rows.map_err(|failure| StoreError::Away(failure.told()))?;
        // Only now: that commit may have leaped.
        let found = session.query(history::LOOK, &[&self.common.history.folder()], OPENING).await;
        let found = found.map_err(|failure| StoreError::Away(failure.told()))?;
        if let Err(error) = self.common.history.check(seen.as_ref(), &found) {
            self.common.save_history().await;
            return Err(error);
        }
        let row = rows.first().ok_or_else(|| StoreError::Away("no answer to the first commit".to_owned()))?;
        let fields = Fields::of("lines", row);
        Ok(Open { generation: fields.get("generation")?, xid: fields.get("xid")?, session })
    }

    /// From now on it is made anew, unless that was done already.
    pub(super) async fn give_up(&self, open: &Arc<Open>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, open)) {
            *current = None;
        }
    }

    /// Runs a statement that only reads.
    ///
    /// # Errors
    /// As [`Line::open`], and [`StoreError::Read`] where the database refuses.
    pub(super) async fn read(
        &self,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        self.read_as(Known::Heeded, statement, parameters, deadline).await
    }

    /// The same whatever is known of the database.
    pub(super) async fn read_now(
        &self,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        self.read_as(Known::Ignored, statement, parameters, deadline).await
    }

    async fn read_as(
        &self,
        known: Known,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let open = self.opened(known).await?;
            match self.ask(&open, statement, parameters, deadline).await {
                Ok(rows) => return Ok(rows),
                Err(Failure::Refused(error)) if tries < TRIES && passes(&error) => {}
                Err(Failure::Refused(error)) => return Err(StoreError::Read(words_of(&error))),
                Err(Failure::NotSent(reason) | Failure::Lost(reason)) => {
                    self.give_up(&open).await;
                    // It may have ended while nobody used it; nothing was changed by asking.
                    if tries > 1 {
                        return Err(StoreError::Away(reason));
                    }
                }
            }
        }
    }

    /// Runs a statement whose function changes something, and takes this line and its generation before these parameters.
    ///
    /// # Errors
    /// As [`Line::open`]; [`StoreError::Unknown`] where the connection was lost: then nothing is sent through this line before the database
    /// refuses what it has not carried out by then. [`StoreError::Fenced`], and [`StoreError::Write`] where the database refuses.
    pub(super) async fn write(
        &self,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        self.write_as(Known::Heeded, statement, parameters, deadline).await
    }

    /// The same whatever is known of the database.
    pub(super) async fn write_now(
        &self,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        self.write_as(Known::Ignored, statement, parameters, deadline).await
    }

    async fn write_as(
        &self,
        known: Known,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let open = self.opened(known).await?;
            let fence: [&(dyn ToSql + Sync); 2] = [&self.id, &open.generation];
            let all: Vec<_> = fence.into_iter().chain(parameters.iter().copied()).collect();
            match self.ask(&open, statement, &all, deadline).await {
                Ok(rows) => return Ok(rows),
                Err(Failure::Refused(error)) if error.code().code() == FENCED => {
                    return Err(StoreError::Fenced);
                }
                Err(Failure::Refused(error)) if error.code().code() == TOO_MANY => {
                    return Err(StoreError::Busy);
                }
                Err(Failure::Refused(error)) if error.code().code() == WITHOUT_STANDBY => {
                    return Err(StoreError::NotDurable(durability::NO_STANDBY.to_owned()));
                }
                Err(Failure::Refused(error)) if error.code().code() == MADE_ANEW => {
                    self.give_up(&open).await;
                    if tries == TRIES {
                        return Err(StoreError::Away(words_of(&error)));
                    }
                }
                Err(Failure::Refused(error)) if tries < TRIES && passes(&error) => {}
                // It was replaced by another server, and knows it.
                Err(Failure::Refused(error)) if *error.code() == SqlState::READ_ONLY_SQL_TRANSACTION => {
                    self.give_up(&open).await;
                    return Err(StoreError::Away(words_of(&error)));
                }
                Err(Failure::Refused(error)) => return Err(StoreError::Write(words_of(&error))),
                Err(Failure::NotSent(reason)) => {
                    self.give_up(&open).await;
                    if tries > 1 {
                        return Err(StoreError::Away(reason));
                    }
                }
                Err(Failure::Lost(reason)) => {
                    self.give_up(&open).await;
                    return Err(StoreError::Unknown(reason));
                }
            }
        }
    }
}

impl Failure {
    pub(super) fn told(self) -> String {
        match self {
            Self::Refused(error) => words_of(&error),
            Self::NotSent(reason) | Self::Lost(reason) => reason,
        }
    }
}

/// Whether the same statement may succeed at once: others stood in its way.
fn passes(error: &DbError) -> bool {
    [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(error.code())
}
