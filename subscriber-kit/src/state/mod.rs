//! What a Destination saves: its subscriptions, the notifications they received, and what it found and did last.
//!
//! A change counts once it is durable. Reading never waits for the disk.

mod files;
mod journal;
mod state_file;
mod subscription;
mod unfinished;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use resync_common::locks;
use resync_core::datetime::DateTime;
use resync_core::lock::FileLock;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::signature::SignedBody;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use url::Url;

pub use crate::state_folder::STATE_FOLDER;

use crate::blocking::blocking;
use crate::discover::SavedSource;
use crate::disk_error::is_of_the_path;
use crate::state_folder;
use crate::sync::{CopiedSource, Report};
use files::{
    io_error, is_being_synchronised, is_in_use, lock, read, read_sync_record, sweep, write, write_sync_record,
};
use journal::Journal;
pub(crate) use journal::{Arrival, Then};
use state_file::StateFile;
pub(crate) use state_file::{Mode, Record};
pub use subscription::{Phase, Subscription};
pub(crate) use subscription::{Rotation, VerificationAnswer};
pub(crate) use unfinished::Unfinished;
pub use window::REMEMBERED;
pub(crate) use window::{Identity, Stage, Window};

/// Why the state cannot be read or saved.
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

impl StateError {
    /// Whether another folder must be named, or somebody must mend this one.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_of_the_path(source),
            Self::Content { .. } | Self::InUse { .. } => true,
        }
    }
}

/// The last synchronisation that ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastSync {
    /// When it ended (milliseconds since 1970).
    pub at_unix_millis: i64,
    /// What it did; empty if it failed as a whole.
    pub report: Report,
    /// Why it failed as a whole, if so.
    pub failed: Option<String>,
}

impl LastSync {
    /// One that ends now; the cause if it failed as a whole.
    pub(crate) fn now(result: Result<Report, String>) -> Self {
        let (report, failed) = match result {
            Ok(report) => (report, None),
            Err(cause) => (Report::default(), Some(cause)),
        };
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
    /// As it is on disk.
    state_file: Mutex<StateFile>,
    /// By the subscription's token; newer than the state file, and saved with it.
    windows: Mutex<HashMap<String, Window>>,
    /// Held while the next state file is written, so that one change follows another. Readers do not wait for it.
    writing: Mutex<()>,
    folder: Option<PathBuf>,
    changed: watch::Sender<()>,
    /// `None` if the state is kept in memory only.
    journal: Option<Mutex<Journal>>,
    /// What an earlier run left, until it is handed over.
    unfinished: Mutex<Vec<Unfinished>>,
    /// How many bytes of notifications are not handled.
    waiting: AtomicU64,
    /// Held as long as the state is in use.
    _lock: Option<FileLock>,
}

/// Identifies a subscription; from [`Subscriptions::add`]. Its `Debug` shows only a beginning, since the whole is the capability.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SubscriptionId(pub(crate) Arc<str>);

impl std::fmt::Debug for SubscriptionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SubscriptionId({}…)", self.0.get(..6).unwrap_or_default())
    }
}

impl Subscriptions {
    /// Opens the state in `folder`, which is made if it is missing, and locks it for this process.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(folder: &Path) -> Result<Self, StateError> {
        state_folder::make(folder).map_err(io_error(folder, "written"))?;
        let lock = lock(folder)?;
        sweep(folder);
        let mut state_file = read(folder)?.unwrap_or_default();
        let path = folder.join(journal::FILE_NAME);
        let (opened, events) = Journal::open(folder).map_err(io_error(&path, "read"))?;
        let is_new = events.is_empty();
        let (mut windows, mut unfinished) = unfinished::resume(&state_file.subscriptions, events);
        let dropped =
            unfinished.extract_if(.., |one| state_file.record(&one.arrival.token).is_none()).count();
        if dropped > 0 {
            tracing::warn!(dropped, "dropped notifications of unknown subscriptions");
        }
        state_file.set_handled(&windows);
        let is_needed = |token: &str| windows.get(token).is_some_and(Window::has_unhandled);
        let forgotten = state_file.forget(DateTime::now(), is_needed);
        windows.retain(|token, _| state_file.record(token).is_some());
        if !is_new || forgotten > 0 {
            write(folder, &state_file)?;
        }
        let open: Vec<u64> = unfinished.iter().map(|one| one.arrival.number).collect();
        let mut journal = Ok(None);
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let weak = shared.clone();
            let before = move || weak.upgrade().is_none_or(|shared| shared.change(|_| ()).is_ok());
            journal = opened.start(&open, Box::new(before)).map(Some);
            Shared {
                windows: Mutex::new(windows),
                folder: Some(folder.to_owned()),
                journal: journal.as_mut().ok().and_then(Option::take).map(Mutex::new),
                waiting: AtomicU64::new(unfinished.iter().map(Unfinished::bytes).sum()),
                unfinished: Mutex::new(unfinished),
                _lock: Some(lock),
                ..Shared::in_memory(state_file)
            }
        });
        journal.map_err(io_error(&path, "written"))?;
        Ok(Self { shared })
    }

    /// Subscriptions that are lost with the process, for a Destination that keeps its state elsewhere or not at all.
    /// Notifications that are not handled are lost too.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { shared: Arc::new(Shared::in_memory(StateFile::default())) }
    }

    /// The subscription to `topic` at `hub`: the known one, with its secret and callback, or a new one.
    ///
    /// # Errors
    /// [`StateError`] when a new one cannot be saved.
    pub async fn add(&self, topic: &TopicUrl, hub: &Url) -> Result<SubscriptionId, StateError> {
        let (topic, hub) = (topic.clone(), hub.to_string());
        let shared = Arc::clone(&self.shared);
        self.update(move |state_file| {
            let known =
                state_file.subscriptions.iter_mut().find(|record| record.topic == topic && record.hub == hub);
            if let Some(record) = known {
                // The same topic may be spelled differently, and the hub repeats the spelling that it gets.
                record.topic = topic;
                return record.id();
            }
            // A Source may name other topics and hubs every time.
            state_file.forget(DateTime::now(), |token| !shared.close_window(token));
            let record = Record::new(topic, hub);
            let id = record.id();
            state_file.subscriptions.push(record);
            id
        })
        .await
    }

    /// Changes the state; returns once the change is durable.
    pub(crate) async fn update<R, F>(&self, change: F) -> Result<R, StateError>
    where
        F: FnOnce(&mut StateFile) -> R + Send + 'static,
        R: Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.change(change)).await
    }

    /// Reads one record.
    pub(crate) fn with<R>(&self, token: &str, read: impl FnOnce(&Record) -> R) -> Option<R> {
        let state_file = self.shared.lock();
        state_file.subscriptions.iter().find(|record| record.token == token).map(read)
    }

    /// Changes the window of one subscription. The journal makes this durable, or else the next change of the state.
    pub(crate) fn with_window<R>(&self, token: &str, change: impl FnOnce(&mut Window) -> R) -> R {
        change(self.shared.windows().entry(token.to_owned()).or_default())
    }

    /// As [`Self::with_window`] for a new notification; `None` if the subscription is unknown or being forgotten.
    pub(crate) fn with_open_window<R>(
        &self,
        token: &str,
        change: impl FnOnce(&mut Window) -> R,
    ) -> Option<R> {
        let mut windows = self.shared.windows();
        // Looked up under this lock, under which records are forgotten.
        self.with(token, |_| ())?;
        let window = windows.entry(token.to_owned()).or_default();
        if window.is_closed() { None } else { Some(change(window)) }
    }

    /// Makes the whole state durable.
    pub(crate) async fn save(&self) -> Result<(), StateError> {
        self.update(|_| ()).await
    }

    pub(crate) fn with_state_file<R>(&self, read: impl FnOnce(&StateFile) -> R) -> R {
        read(&self.shared.lock())
    }

    /// Notifies of every durable change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }
}

/// What `listen` saves.
impl Subscriptions {
    pub(crate) async fn save_last_sync(&self, last: LastSync) -> Result<(), StateError> {
        self.update(move |state_file| state_file.last_sync = Some(last)).await
    }

    pub(crate) async fn save_source(&self, source: SavedSource) -> Result<(), StateError> {
        if self.saved_source().as_ref() == Some(&source) {
            return Ok(());
        }
        self.update(move |state_file| state_file.source = Some(source)).await
    }

    /// What the last discovery found.
    pub(crate) fn saved_source(&self) -> Option<SavedSource> {
        self.with_state_file(|state_file| state_file.source.clone())
    }

    /// Saves the time up to which all changes are known from notifications, and were handled.
    pub(crate) async fn save_notified_until(&self, until: Option<DateTime>) -> Result<(), StateError> {
        if self.notified_until() == until {
            return Ok(());
        }
        self.update(move |state_file| state_file.notified_until = until).await
    }

    pub(crate) fn notified_until(&self) -> Option<DateTime> {
        self.with_state_file(|state_file| state_file.notified_until)
    }
}

/// What a forwarder saves.
impl Subscriptions {
    /// Saves why a topic is not subscribed to, or that it is.
    pub(crate) async fn save_topic(&self, topic: &str, failure: Option<String>) -> Result<(), StateError> {
        let is_known = |file: &StateFile| file.not_subscribed.get(topic) == failure.as_ref();
        if self.with_state_file(is_known) {
            return Ok(());
        }
        let topic = topic.to_owned();
        self.update(move |state_file| match failure {
            Some(cause) => drop(state_file.not_subscribed.insert(topic, cause)),
            None => drop(state_file.not_subscribed.remove(&topic)),
        })
        .await
    }

    /// Forgets why other topics than these are not subscribed to.
    pub(crate) async fn forget_other_topics(&self, topics: &[String]) -> Result<(), StateError> {
        if self.with_state_file(|file| file.not_subscribed.keys().all(|topic| topics.contains(topic))) {
            return Ok(());
        }
        let topics = topics.to_vec();
        self.update(move |state_file| state_file.not_subscribed.retain(|topic, _| topics.contains(topic)))
            .await
    }
}

/// What the inbox needs.
impl Subscriptions {
    /// The number of the next notification in the journal; `None` without a journal.
    pub(crate) fn journal_number(&self) -> Option<u64> {
        self.shared.journal().map(|mut journal| journal.number())
    }

    pub(crate) fn journal_append(&self, arrival: Arrival, body: &SignedBody, then: Then) {
        match self.shared.journal() {
            Some(journal) => journal.append(arrival, body, then),
            None => then(Ok(())),
        }
    }

    /// Records durably that these are handled.
    pub(crate) async fn journal_done(&self, numbers: Vec<u64>) -> Result<(), StateError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let (send, result) = oneshot::channel();
        match self.shared.journal() {
            Some(journal) => journal.done(numbers, Box::new(move |result| drop(send.send(result)))),
            None => return Ok(()),
        }
        let ended = || Err(io::Error::other("its thread has ended"));
        let path = self.shared.folder.clone().unwrap_or_default().join(journal::FILE_NAME);
        result.await.unwrap_or_else(|_| ended()).map_err(io_error(&path, "written"))
    }

    /// Reserves memory for a notification that waits; whether there is enough below `max`.
    pub(crate) fn try_reserve(&self, bytes: u64, max: u64) -> bool {
        let more = |waiting: u64| waiting.checked_add(bytes).filter(|sum| *sum <= max || waiting == 0);
        self.shared.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What an earlier run left, in the order of arrival; only the first call returns it.
    pub(crate) fn take_unfinished(&self) -> Vec<Unfinished> {
        std::mem::take(&mut *locks::lock(&self.shared.unfinished))
    }
}

impl Shared {
    fn in_memory(state_file: StateFile) -> Self {
        Self {
            state_file: Mutex::new(state_file),
            windows: Mutex::default(),
            writing: Mutex::new(()),
            folder: None,
            changed: watch::Sender::new(()),
            journal: None,
            unfinished: Mutex::default(),
            waiting: AtomicU64::new(0),
            _lock: None,
        }
    }

    /// Changes the state file; the change counts once it is durable.
    fn change<R>(&self, change: impl FnOnce(&mut StateFile) -> R) -> Result<R, StateError> {
        let _one = locks::lock(&self.writing);
        let mut next = self.lock().clone();
        let result = change(&mut next);
        next.set_handled(&self.windows());
        let written = self.folder.as_ref().map_or(Ok(()), |folder| write(folder, &next));
        let mut windows = self.windows();
        if let Err(error) = written {
            windows.values_mut().for_each(Window::reopen);
            return Err(error);
        }
        // With their records, in one step for `with_open_window`.
        windows.retain(|_, window| !window.is_closed());
        *self.lock() = next;
        drop(windows);
        self.changed.send_replace(());
        Ok(result)
    }

    /// The state file is replaced as a whole, so a panic elsewhere cannot leave it half changed.
    fn lock(&self) -> MutexGuard<'_, StateFile> {
        locks::lock(&self.state_file)
    }

    /// Takes nothing more for this subscription until the change has ended, which removes the window if it succeeds; `false` if a
    /// notification waits.
    fn close_window(&self, token: &str) -> bool {
        self.windows().entry(token.to_owned()).or_default().close()
    }

    /// Not to be called while the state file is locked: that lock is the inner one.
    fn windows(&self) -> MutexGuard<'_, HashMap<String, Window>> {
        locks::lock(&self.windows)
    }

    fn journal(&self) -> Option<MutexGuard<'_, Journal>> {
        self.journal.as_ref().map(locks::lock)
    }
}

/// The state of a Destination, which may be running.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whether a process uses the state now. Only then is a notification received.
    pub is_running: bool,
    /// Whether the copy in whose directory this state is is being synchronised now.
    pub is_synchronising: bool,
    /// Whether it is that of a copy, or may become one. Otherwise its notifications are only forwarded.
    pub has_copy: bool,
    /// Its subscriptions.
    pub subscriptions: Vec<Subscription>,
    /// Topics of a forwarder, as they were given, that could not be subscribed to when that was tried last, and why.
    pub not_subscribed: BTreeMap<String, String>,
    /// For a copy of the past: of when it is (MEM-063).
    pub at: Option<DateTime>,
    /// Its last synchronisation.
    pub last_sync: Option<LastSync>,
}

/// Reads the state in `folder`, which a process may be using; `None` where there is none. A process that has only begun has saved
/// nothing yet.
///
/// # Errors
/// [`StateError`] when there is one that cannot be read.
pub fn status(folder: &Path) -> Result<Option<Status>, StateError> {
    let (is_running, is_synchronising) = (is_in_use(folder)?, is_being_synchronised(folder)?);
    let (state_file, single_run) = (read(folder)?, read_sync_record(folder));
    let is_in_copy = folder.file_name().is_some_and(|name| name == STATE_FOLDER);
    let at = folder.parent().filter(|_| is_in_copy).and_then(CopiedSource::moment_of);
    if state_file.is_none() && single_run.is_none() && at.is_none() && !is_running && !is_synchronising {
        return Ok(None);
    }
    let mut state_file = state_file.unwrap_or_default();
    let events = journal::read_events(folder).map_err(io_error(&folder.join(journal::FILE_NAME), "read"))?;
    let (windows, _) = unfinished::resume(&state_file.subscriptions, events);
    state_file.set_handled(&windows);
    let subscriptions = state_file.subscriptions.iter().map(Record::summary).collect();
    let single_run = single_run.map(|record| record.last);
    let last_sync = state_file.last_sync.into_iter().chain(single_run).max_by_key(|last| last.at_unix_millis);
    let at = at.or(last_sync.as_ref().and_then(|last| last.report.at));
    let not_subscribed = state_file.not_subscribed;
    let has_topics = !state_file.subscriptions.is_empty() || !not_subscribed.is_empty();
    // Before the Source is found for the first time, nothing is saved by which a copy could be told.
    let has_copy = state_file.source.is_some() || last_sync.is_some() || is_in_copy || !has_topics;
    Ok(Some(Status { is_running, is_synchronising, has_copy, subscriptions, not_subscribed, at, last_sync }))
}

/// Saves for [`status`] what a single synchronisation did, or why it failed as a whole. Does not lock the state, which a running
/// Destination may hold.
///
/// # Errors
/// [`StateError`] when the folder cannot be written.
pub fn record_sync(folder: &Path, result: Result<Report, String>) -> Result<(), StateError> {
    state_folder::make(folder).map_err(io_error(folder, "written"))?;
    sweep(folder);
    write_sync_record(folder, LastSync::now(result))
}

#[cfg(test)]
mod tests {
    use super::files::FILE_NAME;
    use super::*;
    use resync_core::websub::identity::NotificationId;

    fn topic() -> TopicUrl {
        TopicUrl::parse("http://source.example/topic").unwrap()
    }

    fn hub() -> Url {
        Url::parse("http://hub.example/websub/").unwrap()
    }

    #[tokio::test]
    async fn w045_w076_two_hubs_never_share_a_callback_or_a_secret() {
        let subscriptions = Subscriptions::in_memory();
        let one = subscriptions.add(&topic(), &hub()).await.unwrap();
        let other = Url::parse("http://other.example/").unwrap();
        let two = subscriptions.add(&topic(), &other).await.unwrap();
        assert_ne!(one, two);
        let secret =
            |id: &SubscriptionId| subscriptions.with(&id.0, |r| r.secret.as_bytes().to_vec()).unwrap();
        assert_ne!(secret(&one), secret(&two));
    }

    /// The bits of 64 hexadecimal digits.
    fn bits(text: &str) -> Vec<bool> {
        assert_eq!(text.len(), 64);
        let digits = text.chars().map(|digit| digit.to_digit(16).unwrap());
        digits.flat_map(|digit| (0..4).map(move |bit| digit >> bit & 1 == 1)).collect()
    }

    /// How many bits are set in about every second one.
    fn random_bits(samples: &[Vec<bool>]) -> usize {
        let by_chance = samples.len() * 2 / 5..=samples.len() * 3 / 5;
        let is_random = |bit: &usize| by_chance.contains(&samples.iter().filter(|one| one[*bit]).count());
        (0..256).filter(is_random).count()
    }

    #[test]
    fn w045_w054_w074_w183_of_256_bits_of_a_callback_or_secret_all_but_12_are_as_likely_set_as_not() {
        let records: Vec<_> = (0..4096).map(|_| Record::new(topic(), hub().to_string())).collect();
        let secret = |record: &Record| bits(std::str::from_utf8(record.secret.as_bytes()).unwrap());
        let callbacks: Vec<_> = records.iter().map(|record| bits(&record.token)).collect();
        for mut all in [callbacks, records.iter().map(secret).collect()] {
            assert_eq!(random_bits(&all), 256 - 12);
            // Nor does one tell anything of the next.
            let differ = |pair: &[Vec<bool>]| -> Vec<bool> {
                pair[0].iter().zip(&pair[1]).map(|(one, next)| one != next).collect()
            };
            assert_eq!(random_bits(&all.windows(2).map(differ).collect::<Vec<_>>()), 256 - 12);
            // Of so many, no two begin with the same 48 bits.
            all.sort();
            assert!(all.windows(2).all(|pair| pair[0][..48] != pair[1][..48]));
        }
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
    async fn a_new_subscription_takes_the_place_of_those_that_are_long_over_and_have_nothing_to_handle() {
        let subscriptions = Subscriptions::in_memory();
        for (topic, days) in [("http://a.example/", 29), ("http://b.example/", 31), ("http://c.example/", 31)]
        {
            let id = subscriptions.add(&TopicUrl::parse(topic).unwrap(), &hub()).await.unwrap();
            if topic.contains("//c.") {
                subscriptions.with_window(&id.0, Window::add_unhandled);
            }
            let ended = DateTime::now().unix_millis() - days * 24 * 3_600_000;
            let age = move |state_file: &mut StateFile| {
                state_file.record(&id.0).unwrap().expires_unix_millis = Some(ended);
            };
            subscriptions.update(age).await.unwrap();
        }
        subscriptions.add(&topic(), &hub()).await.unwrap();
        let topics = subscriptions.with_state_file(|state_file| {
            state_file.subscriptions.iter().map(|one| one.topic.to_string()).collect::<Vec<_>>()
        });
        assert_eq!(topics, ["http://a.example/", "http://c.example/", "http://source.example/topic"]);
    }

    /// A subscription that is long over, with a window in which one notification was handled.
    async fn over_for_long(subscriptions: &Subscriptions) -> SubscriptionId {
        let id = subscriptions.add(&TopicUrl::parse("http://old.example/").unwrap(), &hub()).await.unwrap();
        let identity = Identity { id: NotificationId { topic: 7, offset: 9 }, body: 1 };
        subscriptions.with_window(&id.0, |window| {
            let number = window.push(identity, Stage::Open);
            window.done(number);
        });
        let token = Arc::clone(&id.0);
        let age = move |state_file: &mut StateFile| {
            state_file.record(&token).unwrap().expires_unix_millis = Some(0);
        };
        subscriptions.update(age).await.unwrap();
        id
    }

    #[tokio::test]
    async fn the_window_of_a_subscription_is_forgotten_with_it_and_a_late_notification_makes_none() {
        let subscriptions = Subscriptions::in_memory();
        let old = over_for_long(&subscriptions).await;
        let has_window = || subscriptions.shared.windows().contains_key(&*old.0);
        assert!(subscriptions.with_open_window(&old.0, |_| ()).is_some() && has_window());
        subscriptions.add(&topic(), &hub()).await.unwrap();
        assert!(subscriptions.with(&old.0, |_| ()).is_none() && !has_window());
        assert!(subscriptions.with_open_window(&old.0, |_| ()).is_none() && !has_window());
    }

    #[tokio::test]
    async fn nothing_is_taken_for_a_subscription_while_it_is_being_forgotten() {
        let subscriptions = Subscriptions::in_memory();
        let old = over_for_long(&subscriptions).await;
        let (writing, token) = (subscriptions.clone(), Arc::clone(&old.0));
        let is_taken = subscriptions.update(move |_| {
            assert!(writing.shared.close_window(&token));
            writing.with_open_window(&token, |_| ()).is_some()
        });
        assert!(!is_taken.await.unwrap());
    }

    #[tokio::test]
    async fn a_subscription_that_could_not_be_forgotten_takes_notifications_again_and_knows_the_old_ones() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("state");
        let subscriptions = Subscriptions::open(&folder).unwrap();
        let old = over_for_long(&subscriptions).await;
        // Its files cannot be replaced in a folder of another name.
        std::fs::rename(&folder, above.path().join("moved")).unwrap();
        assert!(subscriptions.add(&topic(), &hub()).await.is_err());
        let last = subscriptions.with_open_window(&old.0, |window| window.last());
        assert_eq!(last.unwrap().unwrap().offset, 9);
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
    async fn two_processes_cannot_use_one_state_and_status_tells_whether_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let first = Subscriptions::open(folder.path()).unwrap();
        assert!(matches!(Subscriptions::open(folder.path()), Err(StateError::InUse { .. })));
        first.save().await.unwrap();
        let is_running = || status(folder.path()).unwrap().unwrap().is_running;
        assert!(is_running());
        drop(first);
        assert!(!is_running());
        assert!(Subscriptions::open(folder.path()).is_ok(), "status holds no lock");
    }

    #[tokio::test]
    async fn what_has_only_begun_is_told_and_is_not_taken_for_a_forwarder() {
        let copy = tempfile::tempdir().unwrap();
        let [inside, elsewhere] = [STATE_FOLDER, "state"].map(|name| copy.path().join(name));
        assert!(status(&inside).unwrap().is_none());
        let has_copy = |folder: &Path| {
            let status = status(folder).unwrap().unwrap();
            assert!(status.is_running && !status.is_synchronising && status.last_sync.is_none());
            status.has_copy
        };
        for (folder, of_subscribed) in [(&inside, true), (&elsewhere, false)] {
            let subscriptions = Subscriptions::open(folder).unwrap();
            assert!(has_copy(folder), "nothing is saved yet");
            subscriptions.add(&topic(), &hub()).await.unwrap();
            assert_eq!(has_copy(folder), of_subscribed, "{}", folder.display());
        }
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
        record_sync(folder.path(), Ok(Report::default())).unwrap();
        let last = || status(folder.path()).unwrap().and_then(|status| status.last_sync);
        assert!(last().unwrap().in_step());
        assert!(!left.exists() && folder.path().join(".state-now").exists(), "{now:?} is being written");
        record_sync(folder.path(), Err("it is away".to_owned())).unwrap();
        assert!(!last().unwrap().in_step());

        let later = std::fs::read_to_string(&alone).unwrap().replace("\"format\": 1", "\"format\": 2");
        for unknown in [later.as_str(), "{\"at_unix", ""] {
            std::fs::write(&alone, unknown).unwrap();
            assert!(last().is_none(), "{unknown}");
        }
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
