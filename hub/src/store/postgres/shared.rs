//! What everything that speaks with the database shares: its connections, the caches, and who listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::documents::Documents;
use super::events::{Events, Happened};
use super::fetches::{PutPing, RemovePing};
use super::group::{self, Answer, Asker, Group, Grouped};
use super::hints::Hints;
use super::keys::Keys;
use super::known_hubs::KnownHubs;
use super::line::{Common, DEADLINE, Line};
use super::requests::PutRequest;
use super::rows::{Fields, Param, params, the_only};
use super::seen::Seen;
use super::subscriptions::Activate;
use super::turns::Turns;
use super::usage::{self, KnownUsage};
use super::word::Word;
use crate::config::DatabaseConfig;
use crate::store::cache::{Notifications, Recipients};
use crate::store::{Keyring, Meters, Result, Shard, StoreError, StoreEvent, Usage, WallClock};

const READERS: usize = 3;
/// Each checkpoint is a statement of its own. One for several shards would have to tell apart what it saves of each, and take nothing of one that
/// has a newer owner without failing for the others; and it would hold them all until the slowest is saved. Shards without progress save nothing:
/// a third of 64 busy ones, at 10 ms for a commit, take these two as long as there is from one checkpoint to the next.
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
    /// When the feed is read.
    pub(super) turns: Turns,
    /// Whether other hubs hear of what this one does before they look.
    pub(super) hints: Arc<Hints>,
    pub(super) documents: Documents,
    pub(super) hubs: KnownHubs,
    pub(super) meters: Meters,
    pub(super) clock: WallClock,
    /// That this hub is up.
    pub(super) word: Word,
    /// Whether it leaves its shards to others.
    is_drained: AtomicBool,
    usage: KnownUsage,
    readers: [Line; READERS],
    next_reader: AtomicUsize,
    /// For what reads much at once, in turns.
    pub(super) bulk: Mutex<Line>,
    /// One statement at a time, in the order in which they are given.
    commands: Mutex<Line>,
    pub(super) requests: Group<PutRequest>,
    pub(super) activations: Group<Activate>,
    pub(super) pings: Group<PutPing>,
    pub(super) ended_pings: Group<RemovePing>,
    /// Progress of shards; that of one shard always through the same, in the order in which it is saved.
    savers: [Mutex<Line>; SAVERS],
    pub(super) retention: Line,
    pub(super) heartbeat: Line,
}

impl Shared {
    pub(super) fn new(common: Common, config: DatabaseConfig, keys: Keyring, shards: u16) -> Self {
        let common = Arc::new(common);
        let line = || Line::new(&common);
        let clock = WallClock::default();
        Self {
            config,
            node: common.node,
            keys: Keys::new(keys),
            notifications: Notifications::default(),
            recipients: Recipients::new(shards),
            events: Events::default(),
            turns: Turns::new(),
            hints: Arc::default(),
            documents: Documents::default(),
            hubs: KnownHubs::default(),
            meters: Meters::default(),
            word: Word::by(clock.clone()),
            clock,
            is_drained: AtomicBool::new(false),
            usage: KnownUsage::unknown(),
            readers: std::array::from_fn(|_| line()),
            next_reader: AtomicUsize::new(0),
            bulk: Mutex::new(line()),
            commands: Mutex::new(line()),
            requests: Group::new(),
            activations: Group::new(),
            pings: Group::new(),
            ended_pings: Group::new(),
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

    /// Whether this hub leaves its shards to others.
    pub(super) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed)
    }

    /// The next heartbeat says so to all.
    pub(super) fn set_drained(&self, is_drained: bool) {
        self.is_drained.store(is_drained, Ordering::Relaxed);
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

    /// Changes something of which nobody here hears.
    pub(super) async fn command<T, F>(
        &self,
        statement: &'static str,
        parameters: &[Param],
        read: F,
    ) -> Result<T>
    where
        F: FnOnce(&[Row]) -> Result<T>,
    {
        self.health()?;
        let line = self.commands.lock().await;
        let began = Instant::now();
        let rows = line.write(statement, &borrowed(parameters), DEADLINE).await;
        drop(line);
        self.meters.committed(1, began.elapsed());
        let value = read(&rows?)?;
        self.hints.give();
        Ok(value)
    }

    /// Changes something of which everybody here is told before this returns; while the feed cannot be read, as soon as it can be again.
    pub(super) async fn told_command<T, F>(
        &self,
        statement: &'static str,
        parameters: &[Param],
        read: F,
    ) -> Result<T>
    where
        F: FnOnce(&[Row]) -> Result<T>,
    {
        let value = self.command(statement, parameters, read).await?;
        self.tell().await;
        Ok(value)
    }

    /// Returns when everybody here was told of all that is committed; while the feed cannot be read, they are as soon as it can be again.
    pub(super) async fn tell(&self) {
        let told = self.turns.ask();
        if timeout(DEADLINE, self.turns.done(told)).await.is_err() {
            tracing::debug!("what was committed is not told before the feed can be read again");
        }
    }

    /// Carries this out together with what waits of its kind.
    pub(super) async fn grouped<C: Grouped>(&self, group: &Group<C>, command: C) -> Result<Answer> {
        self.health()?;
        let mut answered = group.add(command);
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => return answer.map_err(|_| StoreError::Closed)?,
                line = self.commands.lock() => {
                    let (commands, askers) = group.take();
                    self.carry_out(&line, &commands, askers).await;
                }
            }
        }
    }

    async fn carry_out<C: Grouped>(&self, line: &Line, commands: &[C], askers: Vec<Asker>) {
        if commands.is_empty() {
            return;
        }
        let outcome = self.write_all(line, commands).await;
        if commands.len() > 1 && matches!(outcome, Err(StoreError::Write(_))) {
            // One that the database refuses must not take the others with it; if it is away, they need not find out one by one.
            let mut askers = askers.into_iter();
            for command in commands.chunks(1) {
                let outcome = self.write_all(line, command).await;
                match outcome {
                    Ok(_) | Err(StoreError::Write(_)) => group::answer(askers.by_ref().take(1), outcome),
                    Err(_) => return group::answer(askers, outcome),
                }
            }
        } else {
            group::answer(askers, outcome);
        }
    }

    async fn write_all<C: Grouped>(&self, line: &Line, commands: &[C]) -> Result<Vec<Answer>> {
        let mut parameters = params![self.node];
        parameters.extend(C::columns(commands));
        let began = Instant::now();
        let rows = line.write(C::STATEMENT, &borrowed(&parameters), DEADLINE).await;
        self.meters.committed(commands.len(), began.elapsed());
        let rows = rows?;
        self.hints.give();
        Fields::of("answers", the_only(&rows)?).get("answers")
    }

    /// Saves progress of a shard.
    pub(super) async fn save(
        &self,
        shard: Shard,
        statement: &'static str,
        parameters: &[Param],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        let line = self.saver(shard).await;
        self.save_by(&line, statement, parameters, deadline).await
    }

    /// What saves progress of this shard, once it is done with what came before.
    pub(super) async fn saver(&self, shard: Shard) -> MutexGuard<'_, Line> {
        self.savers[usize::from(shard.0) % SAVERS].lock().await
    }

    /// Saves progress by the [saver](Self::saver) of its shard.
    pub(super) async fn save_by(
        &self,
        line: &Line,
        statement: &'static str,
        parameters: &[Param],
        deadline: Duration,
    ) -> Result<Vec<Row>> {
        let began = Instant::now();
        let rows = line.write(statement, &borrowed(parameters), deadline).await;
        self.meters.committed(1, began.elapsed());
        rows
    }

    /// Memory follows what was read in the feed up to this transaction; only then it is told.
    pub(super) fn follow(&self, seen: Seen, last: i64, happened: &[(i64, Happened)]) {
        let changed = happened.iter().filter_map(|(_, what)| match what {
            Happened::Event(StoreEvent::Subscribed { shard, slot, .. }) => {
                Some((*shard, slot.topic, slot.id))
            }
            Happened::Event(StoreEvent::Unsubscribed { shard, topic, id }) => Some((*shard, *topic, *id)),
            _ => None,
        });
        self.recipients.forget(&changed.collect::<Vec<_>>());
        self.events.follow(seen, last, happened);
    }

    /// The feed of a server of this timeline is read from there on, and nobody knows what has happened before.
    pub(super) fn begin_at(&self, timeline: u32, seen: Seen, kept: i64) {
        self.recipients.forget_all();
        self.events.begin_at(timeline, seen, kept);
    }
}

/// Parameters as the driver takes them.
pub(super) fn borrowed(parameters: &[Param]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect()
}
