//! The one thread that changes the store.
//!
//! It takes the first command, then whatever waits behind it, applies them in order to one batch, commits once, and only
//! then lets memory follow, tells the events, and answers. So hundreds of publishers share one sync of the disk.
//!
//! When a commit fails, every command is refused until the engine has been recovered and has taken a write again, which is
//! tried again and again. When the disk is nearly full, commands that make the store grow are refused, the others are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::{mpsc, oneshot};

use super::engine::Batch;
use super::memory::Ledger;
use super::reserve::DiskReserve;
use super::shared::Shared;
use super::transaction::{Pending, Staged, Transaction};
use crate::store::{Result, StoreError};

/// Commands that may wait.
const WAITING: usize = 8_192;
/// Places among them that commands which make the store grow leave free for the others.
const RESERVED: usize = 1_024;
/// Bytes of growing commands that may wait.
const WAITING_BYTES: usize = 64 * 1024 * 1024;
/// Commands and bytes of one commit.
const GROUP_COMMANDS: usize = 1024;
const GROUP_BYTES: usize = 8 * 1024 * 1024;
/// How often a store in trouble looks for commands, and for the end of its trouble.
const POLL: Duration = Duration::from_millis(20);
const RECOVER_EVERY: Duration = Duration::from_millis(500);

/// Whether a command may wait for better times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It brings something new into the store: refused while there is no room, and while too much waits.
    Growing,
    /// What is in the store already goes its way, or leaves it.
    Essential,
}

#[derive(Debug)]
pub(super) struct Writer {
    /// `None` once the store is being dropped.
    commands: Option<mpsc::Sender<Command>>,
    shared: Arc<Shared>,
    waiting_bytes: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

struct Command {
    kind: Kind,
    /// About how many bytes it writes.
    bytes: usize,
    apply: Box<Apply>,
}

/// Changes the store, or hears why that is not possible.
type Apply = dyn FnOnce(Result<&mut Transaction<'_>>) -> Answer + Send;

/// Tells the caller how the command went, given how the commit went.
type Answer = Box<dyn FnOnce(&Result<()>) + Send>;

impl Writer {
    pub(super) fn start(
        shared: Arc<Shared>,
        ledger: Ledger,
        shards: u16,
        reserve: DiskReserve,
    ) -> Result<Self> {
        let (commands, waiting) = mpsc::channel(WAITING);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let thread_state = WriterThread {
            shared: Arc::clone(&shared),
            ledger,
            shards,
            reserve,
            waiting_bytes: Arc::clone(&waiting_bytes),
            failure: None,
            short: false,
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let _report = PanicReport(Arc::clone(&thread_state.shared));
                thread_state.run(waiting);
            })
            .map_err(|error| StoreError::Write(format!("cannot start the writer: {error}")))?;
        Ok(Self { commands: Some(commands), shared, waiting_bytes, thread: Some(thread) })
    }

    /// Runs `command` on the writer's thread; returns once what it did is durable.
    pub(super) async fn run<T, F>(&self, kind: Kind, bytes: usize, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let apply = Box::new(move |transaction: Result<&mut Transaction<'_>>| -> Answer {
            let outcome = transaction.and_then(command);
            Box::new(move |commit| {
                // A caller that has gone away does not want to know.
                let _ = caller.send(commit.clone().and(outcome));
            })
        });
        self.hand_over(Command { kind, bytes, apply }).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Waits its turn and changes nothing: a writer in trouble refuses it, which is an answer too.
    pub(super) async fn answers(&self) -> Result<()> {
        match self.run(Kind::Essential, 0, |_| Ok(())).await {
            Err(StoreError::Closed) => Err(StoreError::Closed),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn hand_over(&self, command: Command) -> Result<()> {
        let commands = self.commands.as_ref().ok_or(StoreError::Closed)?;
        if command.kind == Kind::Essential {
            return commands.send(command).await.map_err(|_| StoreError::Closed);
        }
        self.shared.health()?;
        let (bytes, waiting) = (command.bytes, self.waiting_bytes.load(Ordering::Relaxed));
        if commands.capacity() <= RESERVED || (waiting > 0 && waiting + bytes > WAITING_BYTES) {
            return Err(StoreError::Busy);
        }
        // Counted before it is there, since the writer may take it at once; and never across a wait, in which a caller that
        // goes away would leave it counted for ever.
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        commands.try_send(command).map_err(|error| {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            match error {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Closed(_) => StoreError::Closed,
            }
        })
    }
}

impl Drop for Writer {
    /// What waits is still done.
    fn drop(&mut self) {
        self.commands = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's writer has panicked");
        }
    }
}

/// Reports to the store's health, and to who waits for its end, that the thread has panicked.
struct PanicReport(Arc<Shared>);

impl Drop for PanicReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_broken();
        }
    }
}

/// What the thread owns.
struct WriterThread {
    shared: Arc<Shared>,
    ledger: Ledger,
    shards: u16,
    reserve: DiskReserve,
    waiting_bytes: Arc<AtomicUsize>,
    failure: Option<Failure>,
    short: bool,
}

/// A commit that failed, and nobody knows yet whether the disk has it.
struct Failure {
    error: StoreError,
    batch: Batch,
    staged: Staged,
    recover_at: Instant,
}

impl Failure {
    /// What callers get while this obstacle keeps the store from recovering.
    fn still(&self, obstacle: &StoreError) -> StoreError {
        let first = match &self.error {
            StoreError::Write(reason) => reason.clone(),
            error => error.to_string(),
        };
        StoreError::Write(format!("{first}; the store has not recovered yet: {obstacle}"))
    }
}

impl WriterThread {
    fn run(mut self, mut waiting: mpsc::Receiver<Command>) {
        loop {
            let first = if self.failure.is_none() && !self.short {
                match waiting.blocking_recv() {
                    Some(command) => Some(command),
                    None => return,
                }
            } else {
                match waiting.try_recv() {
                    Ok(command) => Some(command),
                    Err(TryRecvError::Empty) => {
                        std::thread::sleep(POLL);
                        None
                    }
                    Err(TryRecvError::Disconnected) => return,
                }
            };
            self.recover();
            match first {
                Some(first) => self.take(gather(first, &mut waiting)),
                None => {
                    self.check_reserve(0);
                }
            }
        }
    }

    fn take(&mut self, group: Vec<Command>) {
        let growing = || group.iter().filter(|command| command.kind == Kind::Growing);
        let grows_by = growing().map(|command| command.bytes).sum();
        self.waiting_bytes.fetch_sub(grows_by, Ordering::Relaxed);
        if let Some(failure) = &self.failure {
            return refuse(group, &failure.error);
        }
        let short = self.check_reserve(grows_by);
        // Read after the group is complete: a command that follows a change of keys writes with the new ones.
        let (topics, keys) = (self.shared.topics(), self.shared.keys());
        let engine = self.shared.engine.as_ref();
        let mut transaction = Transaction::new(engine, &topics, &self.ledger, &keys, self.shards);
        let apply = |command: Command| match &short {
            Some(short) if command.kind == Kind::Growing => (command.apply)(Err(short.clone())),
            Some(_) | None => (command.apply)(Ok(&mut transaction)),
        };
        let commands = group.len();
        let answers: Vec<Answer> = group.into_iter().map(apply).collect();
        let (batch, mut staged) = transaction.finish();
        drop(topics);
        let outcome = self.shared.commit(&batch, &mut staged, commands);
        match &outcome {
            Ok(()) => follow(&mut self.ledger, staged),
            Err(error) => self.fail(error, batch, staged),
        }
        for answer in answers {
            answer(&outcome);
        }
    }

    fn fail(&mut self, error: &StoreError, batch: Batch, staged: Staged) {
        tracing::error!(%error, "the store cannot write: nothing is accepted until it can");
        let recover_at = Instant::now() + RECOVER_EVERY;
        self.failure = Some(Failure { error: error.clone(), batch, staged, recover_at });
        self.shared.set_trouble(Some(error.clone()));
    }

    /// Tries to get out of a failure, unless that was tried a moment ago or there is no room yet.
    fn recover(&mut self) {
        if self.failure.as_ref().is_none_or(|failure| failure.recover_at > Instant::now()) {
            return;
        }
        let full = self.reserve.check(0);
        let Some(failure) = &mut self.failure else { return };
        failure.recover_at = Instant::now() + RECOVER_EVERY;
        if full.is_some() {
            return;
        }
        match self.shared.recover(&failure.batch, &mut failure.staged) {
            Ok(in_force) => {
                let staged = self.failure.take().map(|failure| failure.staged);
                if let Some(staged) = staged.filter(|_| in_force) {
                    follow(&mut self.ledger, staged);
                }
                self.shared.set_trouble(None);
                tracing::warn!("the store takes writes again");
            }
            Err(error) => {
                tracing::debug!(%error, "the store has not recovered yet");
                self.shared.set_trouble(Some(failure.still(&error)));
            }
        }
    }

    /// Why nothing may grow now.
    fn check_reserve(&mut self, bytes: usize) -> Option<StoreError> {
        let full = self.reserve.check(bytes);
        if self.failure.is_none() && self.short != full.is_some() {
            self.short = full.is_some();
            self.shared.set_trouble(full.clone());
            if let Some(error) = &full {
                tracing::error!(%error, "nothing new is accepted");
            } else {
                tracing::warn!("the disk has space again: everything is accepted");
            }
        }
        full
    }
}

/// The first command with whatever waits behind it, up to the size of a group.
fn gather(first: Command, waiting: &mut mpsc::Receiver<Command>) -> Vec<Command> {
    let mut bytes = first.bytes;
    let mut group = vec![first];
    while group.len() < GROUP_COMMANDS && bytes < GROUP_BYTES {
        let Ok(command) = waiting.try_recv() else { break };
        bytes = bytes.saturating_add(command.bytes);
        group.push(command);
    }
    group
}

fn refuse(group: Vec<Command>, error: &StoreError) {
    for command in group {
        (command.apply)(Err(error.clone()))(&Ok(()));
    }
}

fn follow(ledger: &mut Ledger, staged: Staged) {
    if let Some(counters) = staged.counters {
        ledger.counters = counters;
    }
    ledger.epochs.extend(staged.epochs);
    ledger.floor = staged.floor.unwrap_or(ledger.floor);
    for (request, client) in staged.pending {
        match client {
            Pending::Of(client) => ledger.pending.insert(request, client),
            Pending::No => ledger.pending.remove(&request),
        };
    }
}
