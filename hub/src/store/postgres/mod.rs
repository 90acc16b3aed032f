//! The store in a PostgreSQL database.
//!
//! Every command is one statement, a function of the database with arrays, so no hub ever keeps a transaction open. The database is the only
//! place where hubs meet: what others did comes from there.
//!
//! | file | subject |
//! |---|---|
//! | `schema.sql`, `schema` | the tables; making them, and the functions of this version |
//! | `lines.sql`, `log.sql`, … | the functions, each file beside that of its callers |
//! | `server`, `tls`, `session` | hosts; TLS; one connection |
//! | `line` | a connection with one purpose, made anew when it was lost |
//! | `heartbeat`, `health`, `durability` | a hub's word that it is up; what is known of the database; whether it keeps what it acknowledges |
//! | `shared`, `events`, `usage`, `keys`, `threads` | what all callers share |
//! | `append`, `batch`, `notification` | posts on their way into the log; how they are kept |
//! | `doubts` | what became of posts and commands whose answer was lost |
//! | `log`, `retention`, `progress`, … | what each trait of `store/parts` asks for |
//! | `rows`, `secrets` | values of rows; secrets in them |
//! | `apart`, `snapshot`, `backup`, `check` | everything that there is, read as of one moment |
//! | `restore`, `fill`, `tables` | a store that is made of a backup |

mod admin;
mod apart;
mod append;
mod backup;
mod batch;
mod check;
mod doubts;
mod durability;
mod events;
mod fetches;
mod fill;
mod health;
mod heartbeat;
mod keys;
mod line;
mod log;
mod notification;
mod progress;
mod requests;
mod restore;
mod retention;
mod rows;
mod schema;
mod secrets;
mod server;
mod session;
mod shared;
mod snapshot;
mod subscriptions;
mod tables;
mod threads;
mod tls;
mod usage;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use resync_common::backoff::Backoff;
use resync_core::lock::FileLock;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_postgres::Row;

use self::append::{Appender, Writer};
pub(super) use self::backup::back_up;
pub(super) use self::check::check;
use self::health::{Health, PanicReport};
use self::heartbeat::Heartbeat;
use self::line::Common;
pub(super) use self::restore::{restore, restore_stream};
use self::rows::{Param, random_id};
use self::schema::Foundation;
use self::server::Server;
use self::shared::Shared;
use self::threads::Threads;
use super::embedded::directory;
use super::{Clock, Engine, Keyring, Result, Store, StoreError, StoreEvent, WallClock};
use crate::config::DatabaseConfig;

/// For what was accepted, when a store is closed.
const CLOSING: Duration = Duration::from_secs(10);
/// Pauses between looks for what became of a command.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Opens the store in a database, and makes it if need be. Secrets are written with the first of `keys`, and read with all of them.
///
/// # Errors
/// [`StoreError::Away`] and [`StoreError::NotDurable`], which say why the database cannot be used; [`StoreError::Locked`] when another process
/// has the hub's folder; [`StoreError::Format`], [`StoreError::Unfinished`] and [`StoreError::SecretsKey`].
pub(super) async fn open(config: &DatabaseConfig, keys: Keyring) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(PostgresStore::open(config, keys).await?))
}

/// A store that is open.
#[derive(Debug)]
struct PostgresStore {
    shared: Arc<Shared>,
    shards: u16,
    appender: Appender,
    /// Every command has one, so that the last of them is known.
    command_token: mpsc::Sender<()>,
    stop: watch::Sender<bool>,
    closed: Mutex<Receiver<()>>,
    runtime: Threads,
}

/// What a command has changed.
#[derive(Debug)]
struct Told<T> {
    /// What its caller hears.
    value: T,
    /// What everybody hears.
    events: Vec<StoreEvent>,
}

impl<T> Told<T> {
    /// Nobody but the caller hears anything.
    fn quietly(value: T) -> Self {
        Self { value, events: Vec::new() }
    }
}

impl PostgresStore {
    async fn open(config: &DatabaseConfig, keys: Keyring) -> Result<Self> {
        let server = Server::new(config)?;
        let lock = directory::take(Engine::Postgres, &config.data_dir)?;
        let runtime = Threads::start()?;
        let (known, known_keys) = (config.clone(), keys.clone());
        let (server, Foundation { shards, encryption }) = runtime
            .run(async move {
                let session = server.connect().await.map_err(StoreError::Away)?;
                durability::check(session.state(), known.durability)?;
                let foundation = schema::prepare(&session, &known_keys).await?;
                drop(session);
                Ok((server, foundation))
            })
            .await?;
        let missing = encryption.missing(&keys);
        if !missing.is_empty() {
            return Err(StoreError::SecretsKey { missing });
        }
        let (durability, node) = (config.durability, random_id());
        let common = Common { server, durability, node, health: Health::unknown() };
        let shared = Arc::new(Shared::new(common, config.clone(), keys, shards));
        let opening = Arc::clone(&shared);
        let heartbeat = runtime
            .run(async move {
                let mut heartbeat = Heartbeat::new(&opening);
                heartbeat.beat().await?;
                opening.refresh_usage().await?;
                Ok(heartbeat)
            })
            .await?;
        let (appender, writers) = Appender::new(&shared);
        let (stop, stopped) = watch::channel(false);
        let (command_token, commands) = mpsc::channel(1);
        let (close, closed) = sync_channel(1);
        let ending = Ending { _stop: stop.clone(), commands, lock, close };
        runtime.spawn(ending.run(writers, heartbeat, stopped));
        let closed = Mutex::new(closed);
        let store = Self { shared, shards, appender, command_token, stop, closed, runtime };
        store.note_keys().await?;
        tracing::info!(node, shards, topics = store.shared.usage().topics, "store opened");
        Ok(store)
    }

    /// Reads what one statement finds.
    async fn read(&self, statement: &'static str, parameters: Vec<Param>) -> Result<Vec<Row>> {
        let shared = Arc::clone(&self.shared);
        self.runtime.run(async move { shared.read(statement, &parameters).await }).await
    }

    /// Carries out one statement, whose function takes the line and its generation before these parameters. `read` says what it has changed.
    /// Also where nobody waits for it any more: what was begun is told.
    async fn command<T, F>(&self, statement: &'static str, parameters: Vec<Param>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&[Row]) -> Result<Told<T>> + Send + 'static,
    {
        let (shared, token) = (Arc::clone(&self.shared), self.command_token.clone());
        let work = async move {
            let _report = PanicReport(&shared.common.health);
            let done = shared.command(statement, &parameters, read).await;
            drop(token);
            if matches!(done, Err(StoreError::Unknown(_))) {
                tokio::spawn(settle(Arc::clone(&shared)));
            }
            done
        };
        self.runtime.run(work).await
    }
}

impl Clock for PostgresStore {
    fn clock(&self) -> &WallClock {
        &self.shared.clock
    }
}

impl Drop for PostgresStore {
    /// What was accepted is still done. It happens on the store's own threads, so whoever drops it may be on any.
    fn drop(&mut self) {
        self.appender.close();
        let (no_token, _) = mpsc::channel(1);
        self.command_token = no_token;
        self.stop.send_replace(true);
        let closed = self.closed.get_mut().unwrap_or_else(PoisonError::into_inner);
        if closed.recv_timeout(CLOSING).is_err() {
            tracing::warn!("the store was closed before the database had answered");
        }
    }
}

/// Tells what a command has done whose answer was lost, as soon as the database says it: whoever sent it may send no other.
async fn settle(shared: Arc<Shared>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    while let Err(error) = shared.settle_commands().await {
        tracing::debug!(%error, "it is still not known what became of a command");
        sleep(backoff.after_failure()).await;
    }
}

/// What has to be seen through when a store is closed.
struct Ending {
    /// So that the other one is not the last.
    _stop: watch::Sender<bool>,
    commands: mpsc::Receiver<()>,
    lock: FileLock,
    close: SyncSender<()>,
}

impl Ending {
    async fn run(mut self, writers: Vec<Writer>, heartbeat: Heartbeat, mut stopped: watch::Receiver<bool>) {
        let (end_beat, beats) = watch::channel(false);
        let beating = tokio::spawn(heartbeat.keep(beats));
        let writing: Vec<_> = writers.into_iter().map(|writer| tokio::spawn(writer.run())).collect();
        // It fails only where there is no sender.
        let _ = stopped.wait_for(|stopped| *stopped).await;
        for writer in writing {
            // One that panicked has reported that itself.
            let _ = writer.await;
        }
        while self.commands.recv().await.is_some() {}
        end_beat.send_replace(true);
        let _ = beating.await;
        let Self { lock, close, .. } = self;
        drop(lock);
        // Whoever closed the store may have gone on.
        let _ = close.try_send(());
    }
}
