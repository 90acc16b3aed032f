//! A copy that stays in step by itself: discover, subscribe, synchronise at the start and on every
//! notification.

mod mirror;
mod pause;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use url::Url;

use crate::callback::CallbackOptions;
use crate::discover::DiscoverError;
use crate::fetch::{Client, ClientOptions, FetchError};
use crate::hook::Hook;
use crate::service::{Service, ServiceOptions};
use crate::state::{STATE_FOLDER, StateError, Subscriptions};
use crate::subscriber::{ROTATE_AFTER, SubscribeError};
use crate::sync::{Report, SyncOptions};
use mirror::Mirror;
use work::Work;

/// What [`listen`] is to do.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Any URL of the Source, see [`discover`](crate::discover::discover).
    pub source: String,
    /// Which set, if there are several.
    pub set: Option<String>,
    /// The directory that is kept in step.
    pub into: PathBuf,
    /// What the directory stands for; [`Source::base`](crate::discover::Source::base) if not given.
    pub base: Option<Url>,
    /// Where the state is kept; in the copy's directory if not given.
    pub state: Option<PathBuf>,
    /// Where the callback server listens.
    pub listen: SocketAddr,
    /// How hubs reach that server; its address if not given.
    pub callback_url: Option<Url>,
    /// The lease to ask for.
    pub lease: Option<Duration>,
    /// How often to synchronise without being told; zero for never.
    pub poll: Duration,
    /// Whether to unsubscribe at the end.
    pub unsubscribe_on_exit: bool,
    /// What hears every notification, once the copy is in step with it.
    pub hook: Option<Hook>,
    /// After what time a renewal asks for a new secret; `None` for never.
    pub rotate_secret_after: Option<Duration>,
    /// How to synchronise.
    pub sync: SyncOptions,
    /// The callback's bounds.
    pub callback: CallbackOptions,
    /// The HTTP client's bounds.
    pub client: ClientOptions,
}

impl ListenOptions {
    /// The usual: a callback server on a free loopback port, a safety look every hour.
    #[must_use]
    pub fn new(source: impl Into<String>, into: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            set: None,
            into: into.into(),
            base: None,
            state: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            callback_url: None,
            lease: None,
            poll: Duration::from_secs(3600),
            unsubscribe_on_exit: false,
            hook: None,
            rotate_secret_after: Some(ROTATE_AFTER),
            sync: SyncOptions::default(),
            callback: CallbackOptions::default(),
            client: ClientOptions::default(),
        }
    }
}

/// What happens while listening.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The callback server is up.
    Listening {
        /// Its address.
        address: SocketAddr,
    },
    /// The hub granted a lease.
    Subscribed {
        /// The topic.
        topic: TopicUrl,
        /// When the lease ends.
        until: DateTime,
    },
    /// A notification asks for a synchronisation.
    Notified,
    /// A synchronisation ended.
    Synchronised(Report),
    /// The hook failed; the notification stays open, and is handed over again at the next start.
    HookFailed {
        /// Why.
        cause: String,
    },
    /// A synchronisation could not be done, or not even begun because the Source is away; it will be tried
    /// again.
    SyncFailed {
        /// Why.
        cause: String,
        /// After how long it is tried again.
        retry_in: Duration,
    },
}

/// Why listening could not begin or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The Source was not found.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// The HTTP client could not be set up.
    #[error(transparent)]
    Client(#[from] FetchError),
    /// The set has no Resource List.
    #[error("the set {set} has no Resource List, so there is nothing to synchronise from")]
    NoResourceList {
        /// The set.
        set: String,
    },
    /// The set has no framework channel.
    #[error(
        "the set {set} has no framework notification channel with a hub: use `resync-destination sync` from a timer instead"
    )]
    NoChannel {
        /// The set.
        set: String,
    },
    /// The callback server cannot listen.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The directory cannot be used.
    #[error("cannot use the directory {}: {source}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The state cannot be opened.
    #[error(transparent)]
    OpenState(StateError),
    /// The subscription failed for good.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

impl ListenError {
    /// Whether the settings are at fault, so that starting again will not help.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Client(_)
                | Self::Bind { .. }
                | Self::Directory { .. }
                | Self::OpenState(_)
                | Self::Subscribe(SubscribeError::Callback { .. })
                | Self::Discover(DiscoverError::Url { .. } | DiscoverError::Fetch(FetchError::Scheme(_)))
        )
    }
}

/// Keeps a directory in step with a Source until `shutdown` ends. `events` hears what happens.
///
/// The first synchronisation follows the subscription, or does not wait longer than a few seconds for it.
/// Notifications that came while one was running are one further synchronisation; they count as handled once
/// it ended.
///
/// # Errors
/// [`ListenError`]: what stands in the way of beginning, or hubs that all refuse for good. Whatever may mend is
/// tried again with growing pauses: a Source that is away, also at the start; a hub that is away; a state that
/// cannot be written.
pub async fn listen(
    options: ListenOptions,
    mut events: impl FnMut(Event) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ListenError> {
    let client = Client::new(options.client.clone())?;
    let no_directory = |source| ListenError::Directory { directory: options.into.clone(), source };
    std::fs::create_dir_all(&options.into).map_err(no_directory)?;
    let state = options.state.clone().unwrap_or_else(|| options.into.join(STATE_FOLDER));
    let subscriptions = Subscriptions::open(&state).map_err(ListenError::OpenState)?;

    let service_options = ServiceOptions {
        listen: options.listen,
        callback_url: options.callback_url.clone(),
        lease: options.lease,
        rotate_secret_after: options.rotate_secret_after,
        callback: options.callback.clone(),
    };
    let bind_error = |source| ListenError::Bind { address: options.listen, source };
    let (service, deliveries) =
        Service::bind(service_options, client.clone(), subscriptions.clone()).await.map_err(bind_error)?;
    events(Event::Listening { address: service.address });
    let subscriber = service.subscriber.clone();
    let keeping = async {
        let mirror = Mirror::find_patiently(&options, client, &subscriptions, &state, &mut events).await?;
        Work::new(mirror, subscriptions.clone(), &options)?.run(&subscriber, deliveries, &mut events).await
    };
    service.run(pin!(keeping), shutdown, options.unsubscribe_on_exit).await
}
