//! The one thread that changes the store.
//!
//! It takes the first command, then whatever waits behind it, applies them in order to one batch, commits once, and only
//! then lets memory follow, tells the events, and answers. So hundreds of publishers share one sync of the disk.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::memory::Ledger;
use super::shared::Shared;
use super::transaction::{Staged, Transaction};
use crate::store::{Result, StoreError};

/// Commands that may wait.
const WAITING: usize = 1024;
/// Commands and bytes of one commit.
const GROUP_COMMANDS: usize = 1024;
const GROUP_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Writer {
    /// `None` once the store is being dropped.
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

struct Command {
    /// About how many bytes it writes.
    bytes: usize,
    apply: Box<dyn FnOnce(&mut Transaction<'_>) -> Answer + Send>,
}

/// Tells the caller how the command went, given how the commit went.
type Answer = Box<dyn FnOnce(&Result<()>) + Send>;

impl Writer {
    pub(super) fn start(shared: Arc<Shared>, ledger: Ledger, shards: u16) -> Result<Self> {
        let (commands, waiting) = mpsc::channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || run(waiting, &shared, ledger, shards))
            .map_err(|error| StoreError::Write(format!("cannot start the writer: {error}")))?;
        Ok(Self { commands: Some(commands), thread: Some(thread) })
    }

    /// Runs `command` on the writer's thread; returns once what it did is durable.
    pub(super) async fn run<T, F>(&self, bytes: usize, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        let apply = Box::new(move |transaction: &mut Transaction<'_>| -> Answer {
            let outcome = command(transaction);
            Box::new(move |commit| {
                // A caller that has gone away does not want to know.
                let _ = caller.send(commit.clone().and(outcome));
            })
        });
        let commands = self.commands.as_ref().ok_or(StoreError::Closed)?;
        commands.send(Command { bytes, apply }).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
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

fn run(mut waiting: mpsc::Receiver<Command>, shared: &Shared, mut ledger: Ledger, shards: u16) {
    while let Some(group) = next_group(&mut waiting) {
        // Read after the group is complete: a command that follows a change of keys writes with the new ones.
        let (topics, keys) = (shared.topics(), shared.keys());
        let mut transaction = Transaction::new(shared.engine.as_ref(), &topics, &ledger, &keys, shards);
        let answers: Vec<Answer> =
            group.into_iter().map(|command| (command.apply)(&mut transaction)).collect();
        let (batch, mut staged) = transaction.finish();
        drop(topics);
        let outcome = shared.commit(&batch, &mut staged);
        match &outcome {
            Ok(()) => follow(&mut ledger, staged),
            Err(error) => tracing::error!(%error, commands = answers.len(), "the store could not commit"),
        }
        for answer in answers {
            answer(&outcome);
        }
    }
}

fn next_group(waiting: &mut mpsc::Receiver<Command>) -> Option<Vec<Command>> {
    let mut group = vec![waiting.blocking_recv()?];
    let mut bytes = group[0].bytes;
    while group.len() < GROUP_COMMANDS && bytes < GROUP_BYTES {
        let Ok(command) = waiting.try_recv() else { break };
        bytes = bytes.saturating_add(command.bytes);
        group.push(command);
    }
    Some(group)
}

fn follow(ledger: &mut Ledger, staged: Staged) {
    if let Some(counters) = staged.counters {
        ledger.counters = counters;
    }
    ledger.epochs.extend(staged.epochs);
    for (pair, request) in staged.pending {
        match request {
            Some(id) => ledger.pending.insert(pair, id),
            None => ledger.pending.remove(&pair),
        };
    }
}
