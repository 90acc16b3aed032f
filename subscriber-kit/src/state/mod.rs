//! What a Destination remembers: its subscriptions, what came for them, what it found and did last.
//!
//! A change counts once it is durable. Whoever only looks never waits for the disk.

mod disk;
mod journal;
mod state_file;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use resync_core::datetime::DateTime;
use resync_core::lock::FileLock;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::signature::SignedBody;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use url::Url;

use crate::discover::{Followed, KnownSource};
use crate::inbox::{Delivery, Unfinished, Window, resume};
use crate::subscription::Subscription;
use crate::sync::Report;
use disk::{io_error, lock, read, read_sync_record, sweep, write, write_sync_record};
pub(crate) use disk::{is_state_folder, make_private_folder, mark};
use journal::Journal;
pub(crate) use journal::{Event, Taken, Then};
use state_file::note_handled;
pub(crate) use state_file::{KeptSecret, Mode, Pending, Record, StateFile};

/// The name of the state folder inside a copy's directory.
pub const STATE_FOLDER: &str = ".resync-destination";

/// Why the state cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The folder or a file in it cannot be used.
    #[error("the state in {path} cannot be {doing} ({source}); check that the folder exists and is writable")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// "read", "written" or "locked".
        doing: &'static str,
        /// What the file system said.
        source: io::Error,
    },
    /// The file is not what this program writes.
    #[error("{path} is not a state file of this program ({reason}); move it away to start anew")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process uses the same state.
    #[error("{path} is in use by another resync-destination; stop it, or choose another --state")]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
}

/// The last synchronisation that ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastSync {
    /// When it ended (milliseconds since 1970).
    pub at_unix_millis: i64,
    /// What it did; nothing if it failed as a whole.
    pub report: Report,
    /// Why it failed as a whole, if so.
    #[serde(default)]
    pub failed: Option<String>,
}

impl LastSync {
    fn now(report: Report, failed: Option<String>) -> Self {
        Self { at_unix_millis: DateTime::now().unix_millis(), report, failed }
    }

    /// Whether it did not fail, and left the copy in step.
    #[must_use]
    pub fn in_step(&self) -> bool {
        self.failed.is_none() && self.report.in_step()
    }
}

/// The subscriptions of a Destination with their durable state. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Subscriptions {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What is durable.
    state_file: Mutex<StateFile>,
    /// What came, by the subscription's token; moves faster than the disk.
    windows: Mutex<HashMap<String, Window>>,
    /// Held while the next book is made and written, so that one change follows another. Readers do not wait
    /// for it.
    writing: Mutex<()>,
    folder: Option<PathBuf>,
    changed: watch::Sender<()>,
    /// What was taken and not handled, on disk; none where there is no folder.
    journal: Option<Mutex<Journal>>,
    /// What an earlier run left open, until it is handed over.
    left: Mutex<Vec<Unfinished>>,
    /// How many bytes of bodies were taken and not handled.
    waiting: AtomicU64,
    /// Held as long as the state is in use.
    _lock: Option<FileLock>,
}

/// Which subscription; given by [`Subscriptions::add`]. Its `Debug` shows only a beginning, since the whole
/// is the capability.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SubscriptionId(pub(crate) Arc<str>);

impl std::fmt::Debug for SubscriptionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SubscriptionId({}…)", self.0.get(..6).unwrap_or_default())
    }
}

impl Subscriptions {
    /// Opens the state in `folder`, made if it is missing, and locks it for this process.
    ///
    /// # Errors
    /// [`StateError`], named by what is to be done.
    pub fn open(folder: &Path) -> Result<Self, StateError> {
        make_private_folder(folder).map_err(io_error(folder, "written"))?;
        let lock = lock(folder)?;
        sweep(folder);
        mark(folder).map_err(io_error(folder, "written"))?;
        let mut state_file = read(folder)?.unwrap_or_default();
        let path = folder.join(journal::FILE_NAME);
        let (opened, events) = Journal::open(folder).map_err(io_error(&path, "read"))?;
        let is_new = events.is_empty();
        let (windows, mut left) = resume(&state_file.subscriptions, events);
        let is_known =
            |one: &Unfinished| state_file.subscriptions.iter().any(|record| record.token == one.token());
        let closed = left.extract_if(.., |one| !is_known(one)).count();
        if closed > 0 {
            tracing::warn!(closed, "dropped notifications of unknown subscriptions");
        }
        note_handled(&windows, &mut state_file);
        let forgotten =
            state_file.forget(DateTime::now(), |token| left.iter().any(|one| one.token() == token));
        if !is_new || forgotten > 0 {
            write(folder, &state_file)?;
        }
        let open: Vec<u64> = left.iter().map(Unfinished::number).collect();
        let mut journal = Ok(None);
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let keeper = shared.clone();
            let before = move || keeper.upgrade().is_none_or(|shared| shared.change(|_| ()).is_ok());
            journal = opened.start(&open, Box::new(before)).map(Some);
            let journal = journal.as_mut().ok().and_then(Option::take);
            Shared::new(state_file, windows, Some(folder.to_owned()), Some(lock), journal, left)
        });
        journal.map_err(io_error(&path, "written"))?;
        Ok(Self { shared })
    }

    /// Subscriptions that are forgotten with the process, for a Destination that keeps its state elsewhere or
    /// not at all. What was taken and not handled is then lost with it too.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            shared: Arc::new(Shared::new(StateFile::default(), HashMap::new(), None, None, None, Vec::new())),
        }
    }

    /// The subscription to `topic` at `hub`: the one there is, with its secret and callback, or a new one.
    ///
    /// # Errors
    /// [`StateError`] when a new one cannot be kept.
    pub async fn add(&self, topic: &TopicUrl, hub: &Url) -> Result<SubscriptionId, StateError> {
        let (topic, hub) = (topic.clone(), hub.to_string());
        self.update(move |state_file| {
            let known =
                state_file.subscriptions.iter_mut().find(|record| record.topic == topic && record.hub == hub);
            if let Some(record) = known {
                // A topic may be written anew, and the hub will repeat what it is sent.
                record.topic = topic;
                return SubscriptionId(record.token.as_str().into());
            }
            let record = Record::new(topic, hub);
            let id = SubscriptionId(record.token.as_str().into());
            state_file.subscriptions.push(record);
            id
        })
        .await
    }

    /// Changes the state: the change counts, and this returns, once it is durable.
    pub(crate) async fn update<R, F>(&self, change: F) -> Result<R, StateError>
    where
        F: FnOnce(&mut StateFile) -> R + Send + 'static,
        R: Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let task = tokio::task::spawn_blocking(move || shared.change(change));
        task.await.expect("changing the state does not panic, and its task is never aborted")
    }

    /// Looks at one record.
    pub(crate) fn with<R>(&self, token: &str, read: impl FnOnce(&Record) -> R) -> Option<R> {
        let state_file = self.shared.lock();
        state_file.subscriptions.iter().find(|record| record.token == token).map(read)
    }

    /// Changes what came for one subscription. It is durable by the journal, and with the next change of the state.
    pub(crate) fn with_window<R>(&self, token: &str, change: impl FnOnce(&mut Window) -> R) -> R {
        change(self.shared.windows().entry(token.to_owned()).or_default())
    }

    /// Makes the whole state durable.
    pub(crate) async fn save(&self) -> Result<(), StateError> {
        self.update(|_| ()).await
    }

    pub(crate) fn with_state_file<R>(&self, read: impl FnOnce(&StateFile) -> R) -> R {
        read(&self.shared.lock())
    }

    /// Told of every durable change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// Remembers what the last synchronisation did.
    ///
    /// # Errors
    /// [`StateError`] when it cannot be kept.
    pub async fn remember_sync(&self, report: Report) -> Result<(), StateError> {
        let last = LastSync::now(report, None);
        self.update(move |state_file| state_file.last_sync = Some(last)).await
    }
}

impl Subscriptions {
    /// Remembers what a discovery found.
    pub(crate) async fn remember_discovery(&self, known: KnownSource) -> Result<(), StateError> {
        if self.with_state_file(|state_file| state_file.known.as_ref() == Some(&known)) {
            return Ok(());
        }
        self.update(move |state_file| state_file.known = Some(known)).await
    }

    /// Remembers up to when Change Notifications told and were dealt with.
    pub(crate) async fn save_notified_until(&self, until: Option<DateTime>) -> Result<(), StateError> {
        let until = until.map(DateTime::unix_millis);
        if self.with_state_file(|state_file| state_file.notified_until == until) {
            return Ok(());
        }
        self.update(move |state_file| state_file.notified_until = until).await
    }

    /// See [`save_notified_until`](Self::remember_told).
    pub(crate) fn notified_until(&self) -> Option<DateTime> {
        self.with_state_file(|state_file| state_file.notified_until)
            .and_then(|millis| DateTime::from_unix_millis(millis).ok())
    }

    /// What the last discovery found.
    pub(crate) fn known_discovery(&self) -> Option<KnownSource> {
        self.with_state_file(|state_file| state_file.known.clone())
    }
}

/// What the inbox needs of the state.
impl Subscriptions {
    /// The number of the next notification in the journal; `None` without a journal.
    pub(crate) fn journal_number(&self) -> Option<u64> {
        self.shared.journal().map(|mut journal| journal.number())
    }

    pub(crate) fn journal_take(&self, taken: Taken, body: &SignedBody, then: Then) {
        match self.shared.journal() {
            Some(journal) => journal.take(taken, body, then),
            None => then(Ok(())),
        }
    }

    /// Notes durably that these are handled.
    pub(crate) async fn journal_done(&self, numbers: Vec<u64>) -> Result<(), StateError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let (tell, told) = oneshot::channel();
        match self.shared.journal() {
            Some(journal) => journal.done(numbers, Box::new(move |result| drop(tell.send(result)))),
            None => return Ok(()),
        }
        let ended = || Err(io::Error::other("its thread has ended"));
        let path = self.shared.folder.clone().unwrap_or_default().join(journal::FILE_NAME);
        told.await.unwrap_or_else(|_| ended()).map_err(io_error(&path, "written"))
    }

    /// Whether a body of so many bytes may wait too; it then does.
    pub(crate) fn try_reserve(&self, bytes: u64, max: u64) -> bool {
        let more = |waiting: u64| waiting.checked_add(bytes).filter(|sum| *sum <= max || waiting == 0);
        self.shared.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What an earlier run left open, in the order in which it came; the first who asks gets it.
    pub(crate) fn unfinished(&self) -> Vec<Delivery> {
        let left = std::mem::take(&mut *self.shared.left.lock().unwrap_or_else(PoisonError::into_inner));
        left.into_iter().filter_map(|one| one.deliver(self)).collect()
    }
}

impl Shared {
    fn new(
        state_file: StateFile,
        windows: HashMap<String, Window>,
        folder: Option<PathBuf>,
        lock: Option<FileLock>,
        journal: Option<Journal>,
        left: Vec<Unfinished>,
    ) -> Self {
        Self {
            state_file: Mutex::new(state_file),
            windows: Mutex::new(windows),
            writing: Mutex::new(()),
            folder,
            changed: watch::Sender::new(()),
            journal: journal.map(Mutex::new),
            waiting: AtomicU64::new(left.iter().map(Unfinished::bytes).sum()),
            left: Mutex::new(left),
            _lock: lock,
        }
    }

    /// Changes the book; the change counts once it is durable.
    fn change<R>(&self, change: impl FnOnce(&mut StateFile) -> R) -> Result<R, StateError> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = self.lock().clone();
        let result = change(&mut next);
        note_handled(&self.windows(), &mut next);
        if let Some(folder) = &self.folder {
            write(folder, &next)?;
        }
        *self.lock() = next;
        self.changed.send_replace(());
        Ok(result)
    }

    /// The book is replaced as a whole, so a panic elsewhere cannot leave it half changed.
    fn lock(&self) -> MutexGuard<'_, StateFile> {
        self.state_file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn windows(&self) -> MutexGuard<'_, HashMap<String, Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journal(&self) -> Option<MutexGuard<'_, Journal>> {
        self.journal.as_ref().map(|journal| journal.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A look at the state of a Destination that may be running.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Its subscriptions.
    pub subscriptions: Vec<Subscription>,
    /// Its last synchronisation.
    pub last_sync: Option<LastSync>,
}

/// Looks at the state in `folder` without taking it; `None` where there is none.
///
/// # Errors
/// [`StateError`] when there is one that cannot be read.
pub fn status(folder: &Path) -> Result<Option<Status>, StateError> {
    let (state_file, alone) = (read(folder)?, read_sync_record(folder));
    if state_file.is_none() && alone.is_none() {
        return Ok(None);
    }
    let mut state_file = state_file.unwrap_or_default();
    let events = journal::read_events(folder).map_err(io_error(&folder.join(journal::FILE_NAME), "read"))?;
    note_handled(&resume(&state_file.subscriptions, events).0, &mut state_file);
    let subscriptions =
        state_file.subscriptions().into_iter().map(|(_, subscription)| subscription).collect();
    let alone = alone.map(|alone| alone.last);
    let last_sync = state_file.last_sync.into_iter().chain(alone).max_by_key(|last| last.at_unix_millis);
    Ok(Some(Status { subscriptions, last_sync }))
}

/// Of which set the last synchronisation by itself was, as far as the URL itself told that.
#[must_use]
pub fn followed_by_sync(folder: &Path) -> Option<Followed> {
    read_sync_record(folder)?.followed
}

/// Keeps for [`status`] what a synchronisation by itself did, or why it failed as a whole, and for [`followed_by_sync`] of which set
/// it was. The state in `folder` is not taken, which a Destination that runs may hold.
///
/// # Errors
/// [`StateError`] when the folder cannot be written.
pub fn record_sync(
    folder: &Path,
    did: Result<Report, String>,
    followed: Option<Followed>,
) -> Result<(), StateError> {
    let made = make_private_folder(folder).and_then(|()| mark(folder));
    made.map_err(io_error(folder, "written"))?;
    sweep(folder);
    let (report, failed) = match did {
        Ok(report) => (report, None),
        Err(cause) => (Report::default(), Some(cause)),
    };
    write_sync_record(folder, LastSync::now(report, failed), followed)
}

#[cfg(test)]
mod tests {
    use super::disk::FILE_NAME;
    use super::*;
    use crate::inbox::{Identity, Stage};
    use resync_core::websub::identity::NotificationId;

    fn topic() -> TopicUrl {
        TopicUrl::parse("http://source.example/topic").unwrap()
    }

    fn hub() -> Url {
        Url::parse("http://hub.example/websub/").unwrap()
    }

    #[tokio::test]
    async fn w045_w074_w183_two_subscriptions_never_share_a_callback_or_a_secret() {
        let subscriptions = Subscriptions::in_memory();
        let one = subscriptions.add(&topic(), &hub()).await.unwrap();
        let other = Url::parse("http://other.example/").unwrap();
        let two = subscriptions.add(&topic(), &other).await.unwrap();
        assert_ne!(one, two);
        assert_eq!(one.0.len(), 64);
        let secret =
            |id: &SubscriptionId| subscriptions.with(&id.0, |r| r.secret.as_bytes().to_vec()).unwrap();
        assert_ne!(secret(&one), secret(&two));
    }

    #[tokio::test]
    async fn a_restart_finds_the_same_secret_callback_and_last_notification() {
        let folder = tempfile::tempdir().unwrap();
        let first = Subscriptions::open(folder.path()).unwrap();
        let id = first.add(&topic(), &hub()).await.unwrap();
        let identity = Identity { id: NotificationId { topic: 7, offset: 9 }, body: 1 };
        first.with_window(&id.0, |window| {
            let number = window.push(identity, Stage::Open);
            window.done(number);
        });
        first.save().await.unwrap();
        let secret = first.with(&id.0, |record| record.secret.as_bytes().to_vec());
        drop(first);

        let second = Subscriptions::open(folder.path()).unwrap();
        assert_eq!(second.add(&topic(), &hub()).await.unwrap(), id);
        assert_eq!(second.with(&id.0, |record| record.secret.as_bytes().to_vec()), secret);
        assert_eq!(second.get(&id).unwrap().last.unwrap().offset, 9);
        assert!(second.with_window(&id.0, |window| window.stage(identity).is_some()));
    }

    #[tokio::test]
    async fn a_subscription_that_is_long_over_is_forgotten_and_one_that_may_be_made_again_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let first = Subscriptions::open(folder.path()).unwrap();
        let day = 24 * 3_600_000;
        let ages = [("http://a.example/", 29), ("http://b.example/", 31)];
        for (topic, days) in ages {
            let id = first.add(&TopicUrl::parse(topic).unwrap(), &hub()).await.unwrap();
            let ended = DateTime::now().unix_millis() - days * day;
            let age = move |state_file: &mut StateFile| {
                state_file.record(&id.0).unwrap().expires_unix_millis = Some(ended);
            };
            first.update(age).await.unwrap();
        }
        drop(first);
        let second = Subscriptions::open(folder.path()).unwrap();
        let topics = |state_file: &StateFile| {
            state_file.subscriptions.iter().map(|one| one.topic.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(second.with_state_file(topics), [ages[0].0]);
    }

    #[tokio::test]
    async fn a_slow_disk_does_not_hold_up_who_only_looks() {
        let subscriptions = Subscriptions::in_memory();
        let id = subscriptions.add(&topic(), &hub()).await.unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let writing = subscriptions.clone();
        let task = tokio::spawn(async move {
            writing
                .update(move |state_file| {
                    state_file.subscriptions[0].ended = true;
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                })
                .await
        });
        tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
        assert_eq!(subscriptions.with(&id.0, |record| record.ended), Some(false), "not durable yet");
        end.send(()).unwrap();
        task.await.unwrap().unwrap();
        assert_eq!(subscriptions.with(&id.0, |record| record.ended), Some(true));
    }

    #[tokio::test]
    async fn two_processes_cannot_use_one_state() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Subscriptions::open(folder.path()).unwrap();
        assert!(matches!(Subscriptions::open(folder.path()), Err(StateError::InUse { .. })));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn only_the_owner_can_read_the_secrets() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let subscriptions = Subscriptions::open(folder.path()).unwrap();
        subscriptions.add(&topic(), &hub()).await.unwrap();
        let mode = std::fs::metadata(folder.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }

    #[test]
    fn what_a_sync_by_itself_did_is_told_and_is_in_nobodys_way_if_it_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let (alone, left) = (folder.path().join("last-sync.json"), folder.path().join(".state-left"));
        let now = std::fs::File::create(folder.path().join(".state-now")).unwrap();
        let old = std::fs::File::create(&left).unwrap();
        old.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(7200)).unwrap();
        record_sync(folder.path(), Ok(Report::default()), None).unwrap();
        let last = || status(folder.path()).unwrap().and_then(|status| status.last_sync);
        assert!(last().unwrap().in_step());
        assert!(!left.exists() && folder.path().join(".state-now").exists(), "{now:?} is being written");
        record_sync(folder.path(), Err("it is away".to_owned()), None).unwrap();
        assert!(!last().unwrap().in_step());

        let later = std::fs::read_to_string(&alone).unwrap().replace("\"format\": 1", "\"format\": 2");
        for unknown in [later.as_str(), "{\"at_unix", ""] {
            std::fs::write(&alone, unknown).unwrap();
            assert!(last().is_none(), "{unknown}");
        }
    }

    #[test]
    fn the_state_of_an_earlier_version_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let report = r#"{"resources":2,"created":2,"updated":0,"deleted":0,"unchanged":0,"failed":0,"bytes_fetched":2,"failures":[]}"#;
        let last = format!(r#"{{"at_unix_millis":1795000000000,"report":{report}}}"#);
        let state_file = format!(r#"{{"format":1,"subscriptions":[],"last_sync":{last}}}"#);
        std::fs::write(folder.path().join(FILE_NAME), state_file).unwrap();
        let last = status(folder.path()).unwrap().unwrap().last_sync.unwrap();
        assert_eq!((last.in_step(), last.report.gaps.count), (true, 0));
    }

    #[tokio::test]
    async fn a_foreign_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE_NAME);
        let torn = br#"{"format":1,"subscr"#;
        std::fs::write(&file, torn).unwrap();
        assert!(matches!(Subscriptions::open(folder.path()), Err(StateError::Content { .. })));
        assert_eq!(std::fs::read(file).unwrap(), torn);
    }
}
