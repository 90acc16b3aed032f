//! The documents and the log of commands that the hubs of a database share.
//!
//! Whoever changes a document holds it for a few seconds at most: a hub that stops in between holds up nobody for longer, and finds at the end
//! that somebody else was faster.

use std::future::Future;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resync_common::locks::lock;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;

use super::documents::{self, LOG};
use super::rows::{Fields, Param, micros, params, random_id, the_only};
use super::shared::Shared;
use super::threads::Threads;
use crate::store::{Change, Document, DocumentVersion, Registry, Result, StoreError};

/// For so long a document may be held that somebody changes.
const HELD: Duration = Duration::from_secs(5);
/// How often it is looked whether it is held no longer.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// How often something is sent of which nobody knows whether it was carried out.
const TRIES: usize = 3;
/// Bytes of the log above which its older half is dropped while hubs run.
const LONGEST_LOG: i64 = 16 * 1024 * 1024;

const NEWER: &str = "SELECT d.kind, d.version, d.content FROM hub.document d WHERE d.version > coalesce(($1::bigint[])[d.kind], 0)";
const BEGIN_CHANGE: &str = "SELECT version, content FROM hub.begin_change_1($1, $2, $3, $4, $5)";
const END_CHANGE: &str = "SELECT hub.end_change_1($1, $2, $3, $4, $5, $6, $7) AS version";
const APPEND: &str = "SELECT hub.append_audit_1($1, $2, $3, $4)";
const SHORTEN: &str = "SELECT hub.shorten_audit_1($1, $2, $3)";

/// Them in a database.
#[derive(Debug)]
pub(super) struct InDatabase {
    shared: Arc<Shared>,
    handle: Handle,
    /// Held while a document is changed here.
    changing: Mutex<()>,
    /// Where no store is open.
    _threads: Option<Threads>,
}

impl InDatabase {
    /// That of a store that is open. It does not keep it open.
    pub(super) fn of(shared: &Arc<Shared>, threads: &Threads) -> Self {
        let (shared, handle) = (Arc::clone(shared), threads.handle());
        Self { shared, handle, changing: Mutex::default(), _threads: None }
    }

    /// That of a database in which nobody here has a store open.
    pub(super) fn alone(shared: Arc<Shared>, threads: Threads) -> Self {
        let handle = threads.handle();
        Self { shared, handle, changing: Mutex::default(), _threads: Some(threads) }
    }

    /// Does this on the threads of the store, and waits for it here: whoever changes something knows that it may have to.
    fn wait<T, F>(&self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (done, answer) = sync_channel(1);
        self.handle.spawn(async move {
            // Who asked waits for it.
            let _ = done.send(work.await);
        });
        answer.recv().map_err(|_| io::Error::other(StoreError::Closed))?.map_err(io::Error::other)
    }

    fn command(&self, statement: &'static str, parameters: Vec<Param>) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.wait(async move { shared.command(statement, &parameters, |_| Ok(())).await })
    }
}

/// Reads those documents that others have changed.
pub(super) async fn refresh(shared: &Shared) -> Result<()> {
    let rows = shared.read(NEWER, &params![shared.documents.versions()]).await?;
    let keys = shared.keys();
    rows.iter().try_for_each(|row| shared.documents.take(&keys, Fields::of("documents", row)))
}

/// Reads all of them: another server may have older versions. Until they are read those that were known hold.
pub(super) async fn read_again(shared: &Shared) -> Result<()> {
    loop {
        let changes = shared.documents.changes();
        let rows = shared.read(NEWER, &params![Vec::<i64>::new()]).await?;
        let rows = rows.iter().map(|row| Fields::of("documents", row));
        if shared.documents.replace(changes, &shared.keys(), rows)? {
            return Ok(());
        }
    }
}

impl Registry for InDatabase {
    fn place(&self, of: Document) -> String {
        format!("{} in the database", documents::name(of))
    }

    fn version(&self, of: Document) -> Option<DocumentVersion> {
        let version = self.shared.documents.version(of);
        (version > 0).then_some(DocumentVersion([version.unsigned_abs(), 0, 0]))
    }

    fn read(&self, of: Document) -> io::Result<Option<Vec<u8>>> {
        self.shared.documents.content(of)
    }

    fn change(&self, of: Document, change: &mut Change<'_>) -> io::Result<()> {
        let _changing = lock(&self.changing);
        let (shared, by) = (Arc::clone(&self.shared), random_id());
        let Held { version, content } = self.wait(async move { hold(&shared, of, by).await })?;
        let written = change(content);
        let shared = Arc::clone(&self.shared);
        self.wait(async move { let_go(&shared, of, by, version, written).await })
    }

    fn log_place(&self) -> String {
        format!("{LOG} in the database")
    }

    /// It was made with the store, and its lines are whole.
    fn open_log(&self) -> io::Result<()> {
        Ok(())
    }

    fn shorten_log(&self, longest: u64) -> io::Result<()> {
        self.command(SHORTEN, params![i64::try_from(longest).unwrap_or(i64::MAX)])
    }

    fn append_to_log(&self, line: &[u8]) -> io::Result<()> {
        self.command(APPEND, params![line.to_vec(), LONGEST_LOG])
    }

    fn read_log(&self) -> io::Result<Vec<u8>> {
        let shared = Arc::clone(&self.shared);
        self.wait(async move { documents::log_of(&shared.read(documents::LINES, &[]).await?) })
    }
}

/// A document that nobody else changes for now.
struct Held {
    version: i64,
    content: Option<Vec<u8>>,
}

/// Waits until nobody else changes it.
async fn hold(shared: &Shared, of: Document, by: i64) -> Result<Held> {
    let give_up_at = Instant::now() + HELD + Duration::from_secs(1);
    let parameters = params![documents::number(of), by, micros(HELD)];
    loop {
        let rows = again(shared, BEGIN_CHANGE, &parameters).await?;
        if let Some(row) = rows.first() {
            let fields = Fields::of("documents", row);
            let kept = fields.maybe_bytes("content")?;
            let content = kept.map(|kept| documents::open(&shared.keys(), of, &kept)).transpose()?;
            return Ok(Held { version: fields.get("version")?, content });
        }
        if Instant::now() >= give_up_at {
            return Err(StoreError::Busy);
        }
        sleep(TRY_EVERY).await;
    }
}

/// Writes what it is from now on, if anything, and lets others change it.
async fn let_go(
    shared: &Shared,
    of: Document,
    by: i64,
    version: i64,
    written: Option<Vec<u8>>,
) -> Result<()> {
    let sealing = shared.keys.sealing().await;
    let kept = written.as_ref().map(|written| documents::seal(&sealing, of, written)).transpose()?;
    let rows =
        again(shared, END_CHANGE, &params![shared.node, documents::number(of), by, version, kept]).await?;
    drop(sealing);
    let fields = Fields::of("documents", the_only(&rows)?);
    match (fields.get::<Option<i64>>("version")?, written) {
        (Some(version), Some(written)) => shared.documents.put(of, version, Some(written)),
        (Some(_), None) => {}
        (None, _) => {
            return Err(StoreError::Write("it took so long that somebody else has changed it".to_owned()));
        }
    }
    Ok(())
}

/// Sends it once more where nobody knows whether it was carried out: carried out twice it does nothing more.
async fn again(shared: &Shared, statement: &'static str, parameters: &[Param]) -> Result<Vec<Row>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let rows = shared.command(statement, parameters, |rows| Ok(rows.to_vec())).await;
        match rows {
            Err(StoreError::Unknown(_)) if tries < TRIES => {}
            rows => return rows,
        }
    }
}
