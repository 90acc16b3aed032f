//! What a Destination remembers: its subscriptions, in one JSON file that is replaced atomically.
//!
//! The file survives a crash at any moment: it is written beside the old one, synced, renamed over it, and
//! the directory is synced.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resync_core::datetime::DateTime;
use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::{CallbackUrl, TopicUrl};
use resync_core::websub::secret::Secret;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use url::Url;

use crate::inbox::Window;
use crate::subscription::Subscription;
use crate::sync::Report;

/// The name of the state folder inside a copy's directory.
pub const STATE_FOLDER: &str = ".resync-destination";

const FILE_NAME: &str = "state.json";
const LOCK_NAME: &str = "lock";
const FORMAT: u32 = 1;

/// Why the state cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The folder or a file in it cannot be used.
    #[error(
        "the state in {path} cannot be {doing} ({source}): check that the folder exists and may be written"
    )]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// "read", "written" or "locked".
        doing: &'static str,
        /// What the file system said.
        source: io::Error,
    },
    /// The file is not what this program writes.
    #[error("{path} is not a state file of this program ({reason}): move it away to start afresh")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process uses the same state.
    #[error("{path} is in use by another resync-destination: stop it, or choose another --state")]
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
    /// What it did.
    pub report: Report,
}

/// Everything that is remembered; also the form on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Book {
    format: u32,
    pub(crate) subscriptions: Vec<Record>,
    pub(crate) last_sync: Option<LastSync>,
}

impl Default for Book {
    fn default() -> Self {
        Self { format: FORMAT, subscriptions: Vec::new(), last_sync: None }
    }
}

/// What was asked of the hub and not yet confirmed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Subscribe,
    Unsubscribe,
}

/// A request to the hub that may be verified until `until`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) mode: Mode,
    pub(crate) until_unix_millis: i64,
    /// A hub whose answer got lost may ask again within the time that is left.
    pub(crate) confirmed: bool,
}

/// One subscription as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The unguessable last segment of the callback (W-045).
    pub(crate) token: String,
    #[serde(with = "text::topic")]
    pub(crate) topic: TopicUrl,
    pub(crate) hub: String,
    #[serde(with = "text::secret")]
    pub(crate) secret: Secret,
    pub(crate) callback: Option<String>,
    pub(crate) pending: Option<Pending>,
    pub(crate) lease_seconds: Option<u64>,
    pub(crate) expires_unix_millis: Option<i64>,
    pub(crate) ended: bool,
    pub(crate) denied: Option<String>,
    /// The last notification that was handled, with all before it.
    last: Option<String>,
    #[serde(skip)]
    pub(crate) window: Window,
}

impl Record {
    pub(crate) fn last(&self) -> Option<NotificationId> {
        self.last.as_deref().and_then(|id| id.parse().ok())
    }

    pub(crate) fn set_last(&mut self, id: NotificationId) {
        self.last = Some(id.to_string());
    }
}

/// The subscriptions of a Destination with their durable state. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Subscriptions {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    folder: Option<PathBuf>,
    changed: watch::Sender<()>,
    /// Held as long as the state is in use.
    _lock: Option<File>,
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
        let mut book = read(folder)?.unwrap_or_default();
        for record in &mut book.subscriptions {
            record.window = Window::resume(record.last());
        }
        Ok(Self::new(book, Some(folder.to_owned()), Some(lock)))
    }

    /// Subscriptions that are forgotten with the process, for a Destination that keeps its state elsewhere or
    /// not at all.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Book::default(), None, None)
    }

    fn new(book: Book, folder: Option<PathBuf>, lock: Option<File>) -> Self {
        let changed = watch::Sender::new(());
        Self { shared: Arc::new(Shared { book: Mutex::new(book), folder, changed, _lock: lock }) }
    }

    /// The subscription to `topic` at `hub`: the one there is, with its secret and callback, or a new one.
    ///
    /// # Errors
    /// [`StateError`] when a new one cannot be kept.
    pub async fn add(&self, topic: &TopicUrl, hub: &Url) -> Result<SubscriptionId, StateError> {
        let (topic, hub) = (topic.clone(), hub.to_string());
        self.update(move |book| {
            let known =
                book.subscriptions.iter_mut().find(|record| record.topic == topic && record.hub == hub);
            if let Some(record) = known {
                // A topic may be written anew, and the hub will repeat what it is sent.
                record.topic = topic;
                return SubscriptionId(record.token.as_str().into());
            }
            let record = Record::new(topic, hub);
            let id = SubscriptionId(record.token.as_str().into());
            book.subscriptions.push(record);
            id
        })
        .await
    }

    /// Changes the state: the change counts, and this returns, once it is durable.
    pub(crate) async fn update<R, F>(&self, change: F) -> Result<R, StateError>
    where
        F: FnOnce(&mut Book) -> R + Send + 'static,
        R: Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let task = tokio::task::spawn_blocking(move || {
            let mut book = shared.lock();
            let mut next = book.clone();
            let result = change(&mut next);
            if let Some(folder) = &shared.folder {
                write(folder, &next)?;
            }
            *book = next;
            drop(book);
            shared.changed.send_replace(());
            Ok(result)
        });
        task.await.expect("changing the state does not panic, and its task is never aborted")
    }

    /// Looks at one record, and may move what is not durable in it.
    pub(crate) fn with<R>(&self, token: &str, look: impl FnOnce(&mut Record) -> R) -> Option<R> {
        let mut book = self.shared.lock();
        book.subscriptions.iter_mut().find(|record| record.token == token).map(look)
    }

    pub(crate) fn with_book<R>(&self, look: impl FnOnce(&Book) -> R) -> R {
        look(&self.shared.lock())
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
        let last = LastSync { at_unix_millis: DateTime::now().unix_millis(), report };
        self.update(move |book| book.last_sync = Some(last)).await
    }
}

impl Shared {
    /// The book is replaced as a whole, so a panic elsewhere cannot leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn new(topic: TopicUrl, hub: String) -> Self {
        let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        Self {
            token,
            topic,
            hub,
            secret: Secret::random(),
            callback: None,
            pending: None,
            lease_seconds: None,
            expires_unix_millis: None,
            ended: false,
            denied: None,
            last: None,
            window: Window::default(),
        }
    }

    /// The callback under the public `prefix`.
    pub(crate) fn callback_under(&self, prefix: &Url) -> String {
        format!("{}/{}", prefix.as_str().trim_end_matches('/'), self.token)
    }

    pub(crate) fn callback(&self) -> Option<CallbackUrl> {
        self.callback.as_deref().and_then(|url| CallbackUrl::parse(url).ok())
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
    let book = read(folder)?;
    Ok(book.map(|book| Status { subscriptions: book.subscriptions(), last_sync: book.last_sync }))
}

/// Reads the state in `folder` without locking it; `None` where there is none.
fn read(folder: &Path) -> Result<Option<Book>, StateError> {
    let path = folder.join(FILE_NAME);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(&path, "read")(error)),
    };
    let content = |reason: String| StateError::Content { path: path.clone(), reason };
    let book: Book = serde_json::from_slice(&bytes).map_err(|error| content(error.to_string()))?;
    if book.format != FORMAT {
        return Err(content(format!("format {}, this program knows {FORMAT}", book.format)));
    }
    Ok(Some(book))
}

fn write(folder: &Path, book: &Book) -> Result<(), StateError> {
    let path = folder.join(FILE_NAME);
    let replace = || -> io::Result<()> {
        // A new temporary file can only be read by its owner, as is right for secrets.
        let mut file = tempfile::Builder::new().prefix(".state-").tempfile_in(folder)?;
        serde_json::to_writer_pretty(&mut file, book)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        File::open(folder)?.sync_all()
    };
    replace().map_err(io_error(&path, "written"))
}

fn lock(folder: &Path) -> Result<File, StateError> {
    let path = folder.join(LOCK_NAME);
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(io_error(&path, "locked"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StateError::InUse { path }),
        Err(std::fs::TryLockError::Error(error)) => Err(io_error(&path, "locked")(error)),
    }
}

fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

fn io_error(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io { path: path.clone(), doing, source }
}

/// Values of core as JSON strings, checked again when they are read.
mod text {
    macro_rules! as_text {
        ($name:ident, $type:ty, $write:expr, $read:expr) => {
            pub(super) mod $name {
                use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

                pub(crate) fn serialize<S: Serializer>(value: &$type, to: S) -> Result<S::Ok, S::Error> {
                    to.serialize_str(&$write(value))
                }

                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                    $read(String::deserialize(from)?).map_err(D::Error::custom)
                }
            }
        };
    }
    use resync_core::websub::{key::TopicUrl, secret::Secret};

    as_text!(topic, super::TopicUrl, |value: &super::TopicUrl| value.as_str().to_owned(), |text: String| {
        super::TopicUrl::parse(&text)
    });
    as_text!(
        secret,
        super::Secret,
        |value: &super::Secret| String::from_utf8_lossy(value.as_bytes()).into_owned(),
        super::Secret::new
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicUrl {
        TopicUrl::parse("http://source.example/topic").unwrap()
    }

    fn hub() -> Url {
        Url::parse("http://hub.example/websub/").unwrap()
    }

    #[tokio::test]
    async fn w045_two_subscriptions_never_share_a_callback_or_a_secret() {
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
        first
            .update(|book| book.subscriptions[0].set_last(NotificationId { topic: 7, offset: 9 }))
            .await
            .unwrap();
        let secret = first.with(&id.0, |record| record.secret.as_bytes().to_vec());
        drop(first);

        let second = Subscriptions::open(folder.path()).unwrap();
        assert_eq!(second.add(&topic(), &hub()).await.unwrap(), id);
        assert_eq!(second.with(&id.0, |record| record.secret.as_bytes().to_vec()), secret);
        assert_eq!(second.with(&id.0, |record| record.last().unwrap().offset), Some(9));
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
