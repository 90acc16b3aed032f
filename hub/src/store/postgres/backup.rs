//! Backups of a store in a database: as of the moment when the copying began, while everything else goes on.

use std::ffi::OsStr;
use std::io::Write;
use std::mem;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use resync_core::datetime::DateTime;
use tokio_postgres::Row;

use super::apart::{alone, refused, require, session, stand_still};
use super::documents;
use super::rows::Fields;
use super::session::Session;
use super::snapshot::{self, Sink};
use crate::config::DatabaseConfig;
use crate::store::backup::{Changes, Writer};
use crate::store::encoding::codec::{self, Record};
use crate::store::encoding::key;
use crate::store::encoding::layout::{Empty, LogRecord, TopicState};
use crate::store::{BackupError, Copied, Header, Keyring, Offset, Result, StoreError, Topic};

/// About so many bytes are handed over to be written at once …
const AT_ONCE: usize = 512 * 1024;
/// … while so many wait: whoever takes the backup may be slow, and the database waits for it.
const WAITING: usize = 4;

/// Writes a backup of the store, and of the files `beside` it that exist. Hubs may be using it. Secrets are in it under the first of these
/// keys.
///
/// # Errors
/// [`BackupError`]; [`StoreError::SecretsKey`] where a key that the secrets need is not given.
pub(in crate::store) fn back_up(
    config: &DatabaseConfig,
    keys: &Keyring,
    beside: &[PathBuf],
    out: &mut dyn Write,
) -> std::result::Result<Copied, BackupError> {
    let (mut writer, mut kept) = (Writer::begin(out, &Header::now())?, Vec::new());
    let (parts, waiting) = sync_channel(WAITING);
    thread::scope(|scope| {
        let reader = scope.spawn(move || alone(|| copy(config, keys, parts)));
        // Dropped at its end: where it cannot be written, the reader does not go on.
        let written = waiting.into_iter().try_for_each(|part| match part {
            Part::Records(changes) => writer.changes(&changes),
            Part::File(name, content) => {
                kept.push(name);
                writer.file(name, &content)
            }
        });
        let read: Result<()> = reader.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked));
        written.and(read.map_err(BackupError::from))
    })?;
    // What is in the database counts, and not what may be left of a time before.
    let is_kept = |path: &Path| kept.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
    for path in beside.iter().filter(|path| !is_kept(path)) {
        writer.file_beside(path)?;
    }
    writer.finish()
}

async fn copy(config: &DatabaseConfig, keys: &Keyring, parts: SyncSender<Part>) -> Result<()> {
    let session = session(config).await?;
    stand_still(&session).await?;
    require(&session, keys).await?;
    let mut outgoing = Outgoing { keys, changes: Changes::default(), parts };
    snapshot::read(&session, keys, &mut outgoing).await?;
    outgoing.hand_over()?;
    for (name, content) in beside_it(&session, keys).await? {
        outgoing.parts.send(Part::File(name, content)).map_err(|_| StoreError::Closed)?;
    }
    Ok(())
}

/// What the embedded store has in files beside it.
async fn beside_it(session: &Session, keys: &Keyring) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let mut all = Vec::new();
    for row in ask(session, documents::WRITTEN).await? {
        let fields = Fields::of("documents", &row);
        let Some(of) = documents::of_number(fields.get("kind")?) else { continue };
        all.push((documents::name(of), documents::open(keys, of, fields.get("content")?)?));
    }
    let log = documents::log_of(&ask(session, documents::LINES).await?)?;
    if !log.is_empty() {
        all.push((documents::LOG, log));
    }
    Ok(all)
}

async fn ask(session: &Session, statement: &str) -> Result<Vec<Row>> {
    session.client().query(statement, &[]).await.map_err(|error| refused(&error))
}

/// A part of a backup on its way.
enum Part {
    Records(Changes),
    File(&'static str, Vec<u8>),
}

/// Records on their way to whoever writes them.
struct Outgoing<'a> {
    keys: &'a Keyring,
    changes: Changes,
    parts: SyncSender<Part>,
}

impl Outgoing<'_> {
    fn hand_over(&mut self) -> Result<()> {
        self.parts.send(Part::Records(mem::take(&mut self.changes))).map_err(|_| StoreError::Closed)
    }
}

impl Sink for Outgoing<'_> {
    fn take<R: Record>(&mut self, key: Vec<u8>, record: Result<R>) -> Result<()> {
        let value = codec::seal(self.keys, &key, &record?);
        self.changes.push(R::SPACE.tag(), &key, Some(&value));
        if self.changes.len() >= AT_ONCE { self.hand_over() } else { Ok(()) }
    }

    /// Nobody is owed anything of it.
    fn take_hole(&mut self, topic: &Topic, from: Offset, to: Offset, at: DateTime) -> Result<()> {
        let hole = LogRecord::hole(to.0 - from.0 + 1, Empty::Leapt, at);
        self.take(key::log(topic.id, from), Ok(hole))
    }

    fn take_topic(&mut self, _noted: &TopicState, found: TopicState) -> Result<()> {
        self.take(key::topic(found.topic.id), Ok(found))
    }
}
