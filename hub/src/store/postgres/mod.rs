//! The store in a PostgreSQL database.
//!
//! Every command is one statement, or has its place in one: a function of the database with arrays, so no hub ever keeps a transaction open. The
//! database is the only place where hubs meet: what others did comes from there.
//!
//! | file | subject |
//! |---|---|
//! | `schema.sql`, `schema` | the tables; making them, and the functions of this version |
//! | `lines.sql`, `log.sql`, … | the functions, each file beside that of its callers |
//! | `server`, `tls`, `session` | hosts; TLS; one connection |
//! | `line` | a connection with one purpose, made anew when it was lost |
//! | `feed`, `seen`, `turns`, `hints` | reading what commits of all hubs have to tell |
//! | `heartbeat`, `word`, `health`, `durability` | a hub's word that it is up; what is known of the database; whether it keeps what it acknowledges |
//! | `shared`, `events`, `usage`, `keys`, `threads` | what all callers share |
//! | `group` | commands that share a statement |
//! | `history`, `restored` | whether the database is as far as it was; what is done where it is not |
//! | `hubs`, `known_hubs` | which hubs are up, and who owns what; as it was found last |
//! | `registry`, `documents` | tokens, keys and the log of commands |
//! | `append`, `batch`, `notification` | posts on their way into the log; how they are kept |
//! | `doubts` | where posts are in the log whose answer was lost |
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
pub(super) mod documents;
mod doubts;
mod durability;
mod events;
mod feed;
mod fetches;
mod fill;
mod group;
mod health;
mod heartbeat;
mod hints;
mod history;
mod hubs;
mod keys;
mod known_hubs;
mod line;
mod log;
mod notification;
mod orders;
mod progress;
mod registry;
mod requests;
mod restore;
mod restored;
mod retention;
mod rows;
mod schema;
mod secrets;
mod seen;
mod server;
mod session;
mod shared;
mod snapshot;
mod subscriptions;
mod tables;
mod threads;
mod tls;
mod turns;
mod usage;
mod word;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use resync_core::lock::FileLock;
use tokio::sync::{mpsc, watch};
use tokio_postgres::Row;

use self::append::{Appender, Writer};
pub(super) use self::backup::back_up;
pub(super) use self::check::check;
use self::feed::Feed;
use self::health::PanicReport;
use self::heartbeat::Heartbeat;
use self::line::Common;
use self::registry::InDatabase;
pub(super) use self::restore::{restore, restore_stream};
pub(super) use self::restored::restored;
use self::rows::Param;
use self::schema::Foundation;
use self::server::Server;
use self::shared::Shared;
use self::threads::Threads;
use super::embedded::directory;
use super::{Clock, Engine, Keyring, Registry, Result, Store, StoreError, WallClock};
use crate::config::DatabaseConfig;

/// For what was accepted, when a store is closed.
const CLOSING: Duration = Duration::from_secs(10);

/// Opens the store in a database, and makes it if need be. Secrets are written with the first of `keys`, and read with all of them.
///
/// # Errors
/// [`StoreError::Away`], [`StoreError::NotDurable`] and [`StoreError::EarlierPoint`], which say why the database cannot be used;
/// [`StoreError::Locked`] when another process has the hub's folder; [`StoreError::Format`], [`StoreError::Unfinished`],
/// [`StoreError::SecretsKey`] and [`StoreError::KeyElsewhere`].
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

/// The documents and the log of commands in a database of which nobody here has the store open. The store is made if need be.
///
/// # Errors
/// As [`open`], but hubs may be using it.
pub(super) fn registry(config: &DatabaseConfig, keys: Keyring) -> Result<Arc<dyn Registry>> {
    let server = Server::new(config)?;
    let runtime = Threads::start()?;
    let (known, handle) = (config.clone(), runtime.handle());
    let opened: Result<Arc<Shared>> = apart::apart(|| async move {
        let opening = handle.spawn(async move {
            let Foundation { shards, .. } = found(&server, &known, &keys).await?;
            let common = Common::new(server, &known);
            let shared = Arc::new(Shared::new(common, known, keys, shards));
            registry::refresh(&shared).await?;
            Ok::<_, StoreError>(shared)
        });
        opening.await.map_err(|_| StoreError::Closed)?
    });
    Ok(Arc::new(InDatabase::alone(opened?, runtime)))
}

/// Makes the store in a database if need be, and makes sure that every secret in it can be read.
async fn found(server: &Server, config: &DatabaseConfig, keys: &Keyring) -> Result<Foundation> {
    let session = server.connect().await.map_err(StoreError::Away)?;
    durability::check(session.state(), config.durability)?;
    let foundation = schema::prepare(&session, keys).await?;
    foundation.encryption.require(keys)?;
    Ok(foundation)
}

impl PostgresStore {
    async fn open(config: &DatabaseConfig, keys: Keyring) -> Result<Self> {
        let server = Server::new(config)?;
        let lock = directory::take(Engine::Postgres, &config.data_dir)?;
        let runtime = Threads::start()?;
        let (known, known_keys) = (config.clone(), keys.clone());
        let founding = async move {
            let foundation = found(&server, &known, &known_keys).await?;
            Ok::<_, StoreError>((server, foundation))
        };
        let (server, Foundation { shards, .. }) = runtime.run(founding).await?;
        let common = Common::new(server, config);
        let node = common.node;
        let shared = Arc::new(Shared::new(common, config.clone(), keys, shards));
        let opening = Arc::clone(&shared);
        let (heartbeat, feed) = runtime
            .run(async move {
                let mut heartbeat = Heartbeat::new(&opening);
                heartbeat.beat().await?;
                opening.refresh_usage().await?;
                let feed = Feed::begin(&opening).await?;
                Ok((heartbeat, feed))
            })
            .await?;
        let (appender, writers) = Appender::new(&shared);
        let (stop, stopped) = watch::channel(false);
        let (command_token, commands) = mpsc::channel(1);
        let (close, closed) = sync_channel(1);
        let ending = Ending { _stop: stop.clone(), commands, lock, close };
        runtime.spawn(ending.run(Arc::clone(&shared), writers, (heartbeat, feed), stopped));
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

    /// Carries out one statement, whose function takes the line and its generation before these parameters. Also where nobody waits for it
    /// any more.
    async fn command<T, F>(&self, statement: &'static str, parameters: Vec<Param>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&[Row]) -> Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.see_through(async move { shared.command(statement, &parameters, read).await }).await
    }

    /// Carries out one statement in that way which writes something into the feed: when this returns everybody here was told of it.
    async fn told_command<T, F>(&self, statement: &'static str, parameters: Vec<Param>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&[Row]) -> Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.see_through(async move { shared.told_command(statement, &parameters, read).await }).await
    }

    async fn see_through<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (shared, token) = (Arc::clone(&self.shared), self.command_token.clone());
        let work = async move {
            let _report = PanicReport(&shared.common.health);
            let done = work.await;
            drop(token);
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

/// What has to be seen through when a store is closed.
struct Ending {
    /// So that the other one is not the last.
    _stop: watch::Sender<bool>,
    commands: mpsc::Receiver<()>,
    lock: FileLock,
    close: SyncSender<()>,
}

impl Ending {
    async fn run(
        mut self,
        shared: Arc<Shared>,
        writers: Vec<Writer>,
        (heartbeat, feed): (Heartbeat, Feed),
        mut stopped: watch::Receiver<bool>,
    ) {
        let (end, ended) = watch::channel(false);
        let (beaten, until) = (Arc::clone(&shared), ended.clone());
        let beating = tokio::spawn(async move {
            let _report = PanicReport(&beaten.common.health);
            heartbeat.keep(until).await;
        });
        let (hints, common) = (Arc::clone(&shared.hints), Arc::clone(&shared.common));
        let hinting = tokio::spawn(hints::keep(hints, common, ended.clone()));
        let reading = tokio::spawn(async move {
            let _report = PanicReport(&shared.common.health);
            feed.keep(ended).await;
        });
        let writing: Vec<_> = writers.into_iter().map(|writer| tokio::spawn(writer.run())).collect();
        // It fails only where there is no sender.
        let _ = stopped.wait_for(|stopped| *stopped).await;
        for writer in writing {
            // One that panicked has reported that itself.
            let _ = writer.await;
        }
        while self.commands.recv().await.is_some() {}
        end.send_replace(true);
        let _ = reading.await;
        let _ = hinting.await;
        let _ = beating.await;
        let Self { lock, close, .. } = self;
        drop(lock);
        // Whoever closed the store may have gone on.
        let _ = close.try_send(());
    }
}
