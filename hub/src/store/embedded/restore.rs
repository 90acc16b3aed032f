//! Making a store anew from a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use resync_core::datetime::DateTime;
use resync_core::lock::FileLock;

use super::closed::Closed;
use super::engine::{Batch, Engine, Space};
use super::{check, directory, widen};
use crate::store::backup::{Content, Credentials, Reader};
use crate::store::encoding::layout::{Empty, Encryption, Floor, LogRecord, TopicState, TopicWatermark};
use crate::store::encoding::{FORMAT, codec, key};
use crate::store::{self, BackupError, Copied, Findings, Header, Keyring, Laggard, StoreError, Watermark};

type Result<T> = std::result::Result<T, BackupError>;
/// What is read is written in commits of about so many bytes.
const COMMIT: usize = 4 * 1024 * 1024;
/// What comes in a stream is kept by so many bytes at a time.
const AT_A_TIME: usize = 1024 * 1024;

/// Reads a whole backup and restores nothing.
///
/// # Errors
/// [`BackupError`] when it could not be restored.
pub fn verify(backup: impl Read) -> Result<(Header, Copied)> {
    // What every restore refuses, whatever becomes of the credentials.
    read_from(backup, |content| match content {
        Content::File { name, .. } => Credentials::Restored.admit(&name).map(drop),
        Content::Changes(_) => Ok(()),
    })
}

/// Makes the store in `directory` anew from a backup, whatever engine that comes from. The whole backup is read before anything is
/// written, and again while it is written. A restore that was not finished leaves a folder that no hub opens. Beside the store it makes
/// files of [`BESIDE`](crate::store::BESIDE) only.
///
/// # Errors
/// [`BackupError`]; [`BackupError::NotEmpty`] where there is something already, [`StoreError::SecretsKey`] where a key that the
/// secrets need is not given.
pub fn restore(
    engine: store::Engine,
    directory: &Path,
    keys: &Keyring,
    credentials: Credentials,
    backup: &Path,
) -> Result<(Header, Findings)> {
    make(engine, directory, (keys, credentials), backup)?.finish()
}

/// As [`restore`], from what can be read once only. A part of a backup leaves nothing.
///
/// # Errors
/// As [`restore`].
pub fn restore_stream(
    engine: store::Engine,
    directory: &Path,
    keys: &Keyring,
    credentials: Credentials,
    backup: impl Read,
) -> Result<(Header, Findings)> {
    make_of_stream(engine, directory, (keys, credentials), backup)?.finish()
}

/// A store that was made of a backup, in a folder that no hub opens until this is finished.
pub(in crate::store) struct Made {
    pub(in crate::store) records: Box<dyn Engine>,
    engine: store::Engine,
    directory: PathBuf,
    header: Header,
    found: Findings,
    _lock: FileLock,
}

impl Made {
    /// The folder is that of a store from now on.
    fn finish(self) -> Result<(Header, Findings)> {
        drop(self.records);
        directory::settle(self.engine, &self.directory)?;
        directory::finish(self.engine, &self.directory)?;
        Ok((self.header, self.found))
    }

    /// Its records went elsewhere: the folder is that of a hub whose store is there.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn finish_elsewhere(self, to: store::Engine) -> Result<(Header, Findings)> {
        drop(self.records);
        // First, so that a hub opens the other one whatever becomes of what is left of this one.
        directory::finish(to, &self.directory)?;
        let folder = self.directory.join(self.engine.name());
        fs::remove_dir_all(&folder).map_err(|error| output(&folder, &error))?;
        Ok((self.header, self.found))
    }
}

/// As [`restore`], but not finished.
pub(in crate::store) fn make(
    engine: store::Engine,
    directory: &Path,
    with: (&Keyring, Credentials),
    backup: &Path,
) -> Result<Made> {
    refuse_what_is_there(directory, |_| true)?;
    refuse_from_within(directory, backup)?;
    make_anew(engine, directory, with, || File::open(backup).map_err(|error| input(backup, &error)))
}

/// As [`restore_stream`], but not finished.
pub(in crate::store) fn make_of_stream(
    engine: store::Engine,
    directory: &Path,
    with: (&Keyring, Credentials),
    backup: impl Read,
) -> Result<Made> {
    refuse_what_is_there(directory, |_| true)?;
    let is_there = directory.exists();
    directory::make(directory).map_err(|error| output(directory, &error))?;
    let made = keep(directory, backup)
        .and_then(|kept| make_anew(engine, directory, with, || from_its_beginning(&kept)));
    if made.is_err() && !is_there {
        // It is not empty where a restore was begun, and stays.
        let _ = fs::remove_dir(directory);
    }
    made
}

/// Keeps it in the directory, where there is room for what is made of it; under no name, so that nothing of it stays, however this ends.
fn keep(directory: &Path, backup: impl Read) -> Result<File> {
    let unkept = |error: io::Error| {
        BackupError::Input(format!("it cannot be kept in {} meanwhile: {error}", directory.display()))
    };
    let mut kept = tempfile::tempfile_in(directory).map_err(unkept)?;
    let mut backup = BufReader::with_capacity(AT_A_TIME, backup);
    loop {
        let some = match backup.fill_buf() {
            Ok([]) => return Ok(kept),
            Ok(some) => some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(BackupError::Input(error.to_string())),
        };
        kept.write_all(some).map_err(unkept)?;
        let bytes = some.len();
        backup.consume(bytes);
    }
}

fn from_its_beginning(kept: &File) -> Result<File> {
    let again = kept.try_clone().and_then(|mut again| again.rewind().map(|()| again));
    again.map_err(|error| BackupError::Input(error.to_string()))
}

fn make_anew(
    engine: store::Engine,
    directory: &Path,
    (keys, credentials): (&Keyring, Credentials),
    open: impl Fn() -> Result<File>,
) -> Result<Made> {
    // All of it is read before the first byte is written, and the keys are asked for before that, too.
    let (mut encryption, mut beside) = (None, BTreeSet::new());
    read_from(open()?, |content| {
        let changes = match content {
            Content::Changes(changes) => changes,
            Content::File { name, .. } => {
                if credentials.admit(&name)? {
                    beside.insert(OsString::from(name));
                }
                return Ok(());
            }
        };
        let said = changes
            .into_iter()
            .rfind(|(space, key, _)| *space == Space::Meta.tag() && key[..] == *key::ENCRYPTION);
        encryption = said.map_or(encryption.take(), |(_, _, value)| value);
        Ok(())
    })?;
    if let Some(kept) = encryption {
        widen(&codec::open::<Encryption>(keys, key::ENCRYPTION, &kept)?, keys)?;
    }

    let lock = directory::lock(directory)?;
    // Another restore may have finished meanwhile.
    let is_beside = |name: &OsStr| beside.contains(name);
    refuse_what_is_there(directory, is_beside)?;
    directory::begin_to_restore(directory, is_beside)?;
    let opened = super::open_engine(engine, directory)?;
    let (mut batch, mut bytes, mut began) = (Batch::default(), 0, BTreeSet::new());
    let (header, _) = read_from(open()?, |content| {
        match content {
            Content::Changes(changes) => {
                for (space, key, value) in changes {
                    bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
                    change(&mut batch, space, &key, value)?;
                }
            }
            Content::File { name, bytes } if credentials.admit(&name)? => {
                put_file(directory, &name, &bytes, began.contains(&name))?;
                began.insert(name);
            }
            Content::File { .. } => {}
        }
        if bytes >= COMMIT {
            opened.commit(&std::mem::take(&mut batch))?;
            bytes = 0;
        }
        Ok(())
    })?;
    opened.commit(&batch)?;
    leap(opened.as_ref(), keys)?;
    let found = check::findings(opened.as_ref(), keys)?;
    Ok(Made { records: opened, engine, directory: directory.to_owned(), header, found, _lock: lock })
}

/// Leaves places free in every log: the hub from which the backup comes may have given out those behind its end meanwhile, and who has
/// seen their names would take other notifications under them for repetitions. Who had got everything has passed them.
fn leap(engine: &dyn Engine, keys: &Keyring) -> store::Result<()> {
    let mut ends = BTreeMap::new();
    let mut records = Closed::new(engine, keys);
    for record in records.each::<TopicState>() {
        let (key, mut state) = record?;
        let topic = &mut state.topic;
        let mut end = topic.head;
        // A topic that does not know the whole of its log is repaired later.
        while records.value(Space::Log, &key::log(topic.id, end.next()))?.is_some() {
            end = end.next();
        }
        let to = end.leap();
        let hole = LogRecord::hole(to.0 - end.0, Empty::Leapt, DateTime::now());
        if topic.first > end {
            state.oldest = Some(hole.received_at);
        }
        topic.head = to;
        ends.insert(topic.id, (end, to));
        records.put(key::log(topic.id, end.next()), &hole)?;
        records.put(key.to_vec(), &state)?;
    }
    let passed = |topic, done| ends.get(&topic).filter(|(end, _)| *end == done).map(|(_, to)| *to);
    for record in records.each() {
        let (key, TopicWatermark(topic, mark)) = record?;
        if let (Some(done), None) = (passed(topic, mark.done), mark.sweep) {
            records.put(key.to_vec(), &TopicWatermark(topic, Watermark { done, sweep: None }))?;
        }
    }
    for record in records.each::<Laggard>() {
        let (key, laggard) = record?;
        if let Some(cursor) = passed(laggard.topic, laggard.cursor) {
            records.put(key.to_vec(), &Laggard { cursor, ..laggard })?;
        }
    }
    // Also where no topic had been forgotten: those that were made after the backup are.
    let Floor(floor) = records.get(key::FLOOR)?.unwrap_or_default();
    records.put(key::FLOOR.to_vec(), &Floor(floor.leap()))?;
    records.finish()
}

/// Hands over everything that is in a backup, in its order.
fn read_from(backup: impl Read, mut take: impl FnMut(Content) -> Result<()>) -> Result<(Header, Copied)> {
    let mut reader = Reader::open(BufReader::with_capacity(1024 * 1024, backup))?;
    let found = reader.header().store;
    if found != FORMAT {
        return Err(BackupError::Format { found, supported: FORMAT });
    }
    while let Some(content) = reader.next()? {
        take(content)?;
    }
    Ok((reader.header().clone(), reader.copied()))
}

fn change(batch: &mut Batch, space: u8, key: &[u8], value: Option<Bytes>) -> Result<()> {
    let space = Space::ALL.into_iter().find(|known| known.tag() == space);
    let space = space.ok_or(BackupError::Damaged { at: 0, reason: "a record is of an unknown kind" })?;
    match value {
        Some(value) => batch.put(space, key.to_vec(), value.to_vec()),
        None => batch.remove(space, key.to_vec()),
    }
    Ok(())
}

/// Nothing is written over but what a restore has left that was not finished: its engine, and those files beside it.
fn refuse_what_is_there(directory: &Path, is_beside: impl Fn(&OsStr) -> bool) -> Result<()> {
    let found = directory::foreign(directory, is_beside).map_err(|error| output(directory, &error))?;
    match found {
        Some(found) => Err(BackupError::NotEmpty { path: directory.display().to_string(), found }),
        None => Ok(()),
    }
}

/// What is in the folder may be removed, and a backup must not be.
fn refuse_from_within(directory: &Path, backup: &Path) -> Result<()> {
    let Ok(within) = fs::canonicalize(directory) else { return Ok(()) };
    let backup = fs::canonicalize(backup).map_err(|error| input(backup, &error))?;
    if !backup.starts_with(&within) {
        return Ok(());
    }
    let (backup, within) = (backup.display(), within.display());
    Err(BackupError::Input(format!("{backup} is in {within}, which is to be made anew: put it elsewhere")))
}

/// Puts a file of a known name beside the store, where there is none, for the hub's user only; or what follows in one that was begun.
fn put_file(directory: &Path, name: &str, bytes: &[u8], began: bool) -> Result<()> {
    let path = directory.join(name);
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(!began)
        .mode(0o600)
        .open(&path)
        .map_err(|error| output(&path, &error))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| output(&path, &error))
}

fn input(path: &Path, error: &io::Error) -> BackupError {
    BackupError::Input(format!("{}: {error}", path.display()))
}

fn output(path: &Path, error: &io::Error) -> BackupError {
    BackupError::Store(StoreError::Write(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backup::{VERSION, Writer};

    /// Comes so far, and breaks.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("whoever wrote this is gone"))
        }
    }

    #[test]
    fn a_backup_of_another_format_of_the_store_is_refused() {
        for store in [0, FORMAT + 1] {
            let begun = DateTime::now().to_string();
            let header = Header { version: VERSION, store, begun, hub: "0.0.0".to_owned() };
            let mut backup = Vec::new();
            Writer::begin(&mut backup, &header).unwrap().finish().unwrap();
            let error = verify(&backup[..]).unwrap_err();
            assert!(
                matches!(error, BackupError::Format { found, supported: 1 } if found == store),
                "{error}"
            );
        }
    }

    #[test]
    fn where_what_comes_breaks_off_the_folder_is_not_blamed() {
        let folder = tempfile::tempdir().unwrap();
        let error = keep(folder.path(), b"some".chain(Broken)).unwrap_err().to_string();
        assert!(error.contains("is gone") && !error.contains("cannot be kept"), "{error}");
        let missing = folder.path().join("missing");
        let error = keep(&missing, b"some".as_slice()).unwrap_err().to_string();
        assert!(error.contains("it cannot be kept in"), "{error}");
    }
}
