//! What everything that speaks with the database shares: its connections, the caches, and who listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::events::Events;
use super::keys::Keys;
use super::line::{Common, DEADLINE, Line};
use super::rows::Param;
use super::usage::{self, KnownUsage};
use super::{Told, doubts};
use crate::config::DatabaseConfig;
use crate::store::cache::{Notifications, Recipients};
use crate::store::{Keyring, Meters, Result, Shard, StoreError, StoreEvent, Usage, WallClock};

const READERS: usize = 3;
const SAVERS: usize = 2;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) common: Arc<Common>,
    pub(super) config: DatabaseConfig,
    /// What this hub is called in the database.
    pub(super) node: i64,
    pub(super) keys: Keys,
    pub(super) notifications: Notifications,
    pub(super) recipients: Recipients,
    pub(super) events: Events,
    pub(super) meters: Meters,
    pub(super) clock: WallClock,
    usage: KnownUsage,
    readers: [Line; READERS],
    next_reader: AtomicUsize,
    /// For what reads much at once, in turns.
    pub(super) bulk: Mutex<Line>,
    /// One command at a time: what they tell is told in the order of their commits.
    commands: Mutex<Commands>,
    /// Progress of shards; that of one shard always through the same, in the order in which it is saved.
    savers: [Mutex<Line>; SAVERS],
    pub(super) retention: Line,
    pub(super) heartbeat: Line,
}

/// The connection for commands.
#[derive(Debug)]
struct Commands {
    line: Line,
    /// The answer to a command was lost, which was sent after this transaction: what it has done is not told yet.
    in_doubt_since: Option<i64>,
}

impl Shared {
    pub(super) fn new(common: Common, config: DatabaseConfig, keys: Keyring, shards: u16) -> Self {
        let common = Arc::new(common);
        let line = || Line::new(&common);
        Self {
            config,
            node: common.node,
            keys: Keys::new(keys),
            notifications: Notifications::default(),
            recipients: Recipients::new(shards),
            events: Events::default(),
            meters: Meters::default(),
            clock: WallClock::default(),
            usage: KnownUsage::unknown(),
            readers: std::array::from_fn(|_| line()),
            next_reader: AtomicUsize::new(0),
            bulk: Mutex::new(line()),
            commands: Mutex::new(Commands { line: line(), in_doubt_since: None }),
            savers: std::array::from_fn(|_| Mutex::new(line())),
            retention: line(),
            heartbeat: line(),
            common,
        }
    }

    /// The keys of secrets, as they are now.
    pub(super) fn keys(&self) -> Keyring {
        self.keys.now()
    }

    /// What the store holds. Asks nobody.
    pub(super) fn usage(&self) -> Usage {
        self.usage.get()
    }

    /// This hub has changed that.
    pub(super) fn change_usage(&self, change: impl FnOnce(&mut Usage)) {
        self.usage.change(change);
    }

    pub(super) fn known_usage(&self) -> &KnownUsage {
        &self.usage
    }

    /// Looks at what the store holds.
    pub(super) async fn refresh_usage(&self) -> Result<()> {
        self.usage.take(&self.retention.read(usage::LOOK, &[], DEADLINE).await?)
    }

    /// Whether the store takes everything that is asked of it.
    pub(super) fn health(&self) -> Result<()> {
        self.common.health.get()
    }

    pub(super) async fn broken(&self) {
        self.common.health.broken().await;
    }

    /// Reads through whichever connection is next.
    pub(super) async fn read(&self, statement: &'static str, parameters: &[Param]) -> Result<Vec<Row>> {
        let next = self.next_reader.fetch_add(1, Ordering::Relaxed) % READERS;
        self.readers[next].read(statement, &borrowed(parameters), DEADLINE).await
    }

    /// Changes something that others hear of.
    pub(super) async fn command<T, F>(
        &self,
        statement: &'static str,
        parameters: &[Param],
        read: F,
    ) -> Result<T>
    where
        F: FnOnce(&[Row]) -> Result<Told<T>>,
    {
        self.health()?;
        let mut commands = self.commands.lock().await;
        self.settle(&mut commands).await?;
        let since = commands.line.open().await?.xid;
        let under_way = self.events.begin();
        let began = Instant::now();
        let rows = commands.line.write(statement, &borrowed(parameters), DEADLINE).await;
        self.meters.committed(1, began.elapsed());
        if matches!(rows, Err(StoreError::Unknown(_))) {
            commands.in_doubt_since = Some(since);
        }
        let Told { value, events } = read(&rows?)?;
        self.tell(events);
        drop(under_way);
        Ok(value)
    }

    /// Tells what the command has done whose answer was lost, if there is one. Nothing else is sent before.
    ///
    /// # Errors
    /// The database cannot say it yet.
    pub(super) async fn settle_commands(&self) -> Result<()> {
        self.settle(&mut *self.commands.lock().await).await
    }

    async fn settle(&self, commands: &mut Commands) -> Result<()> {
        let Some(since) = commands.in_doubt_since else { return Ok(()) };
        let under_way = self.events.begin();
        self.tell(doubts::told_last(&commands.line, since, self.node).await?);
        drop(under_way);
        commands.in_doubt_since = None;
        Ok(())
    }

    /// Saves progress of a shard.
    pub(super) async fn save(
        &self,
        shard: Shard,
        statement: &'static str,
        parameters: &[Param],
    ) -> Result<Vec<Row>> {
        let line = self.savers[usize::from(shard.0) % SAVERS].lock().await;
        let began = Instant::now();
        let rows = line.write(statement, &borrowed(parameters), DEADLINE).await;
        self.meters.committed(1, began.elapsed());
        rows
    }

    /// Memory follows what was committed; only then it is told.
    pub(super) fn tell(&self, events: Vec<StoreEvent>) {
        let changed = events.iter().filter_map(|event| match event {
            StoreEvent::Subscribed { shard, slot, .. } => Some((*shard, slot.topic, slot.id)),
            StoreEvent::Unsubscribed { shard, topic, id } => Some((*shard, *topic, *id)),
            _ => None,
        });
        self.recipients.forget(&changed.collect::<Vec<_>>());
        self.events.tell(events);
    }
}

/// Parameters as the driver takes them.
pub(super) fn borrowed(parameters: &[Param]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect()
}
