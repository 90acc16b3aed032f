//! A copy that stays in step by itself: discover, subscribe, synchronise at the start and on every
//! notification.

mod chain;
mod mirror;
mod retry_schedule;
mod work;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use tokio::sync::mpsc;
use url::Url;

use crate::discover::DiscoverError;
use crate::fetch::{Client, FetchError};
use crate::inbox::Deliveries;
use crate::service::{Party, Service, ServiceOptions};
use crate::state::{STATE_FOLDER, StateError, Subscriptions};
use crate::subscriber::SubscribeError;
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
    /// How often to synchronise without being told; zero for never.
    pub poll: Duration,
    /// How to synchronise.
    pub sync: SyncOptions,
    /// How hubs reach this Destination. Its hook hears every notification once the copy is in step with it.
    pub service: ServiceOptions,
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
            poll: Duration::from_secs(3600),
            sync: SyncOptions::default(),
            service: ServiceOptions::default(),
        }
    }

    fn state_folder(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| self.into.join(STATE_FOLDER))
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
    /// Change Notifications before one that came are missing (CN-016): it is found out from the Change List what they
    /// would have told.
    Gap {
        /// Up to when changes were told.
        known_until: DateTime,
        /// Since when they were told again.
        from: DateTime,
    },
    /// A synchronisation ended.
    Synchronised(Report),
    /// The hook has dealt with a notification.
    HookDone,
    /// The hook failed; the notification stays open and the first, and the hook is run for it again.
    HookFailed {
        /// Why.
        cause: String,
        /// After how long that is.
        retry_in: Duration,
    },
    /// The copy cannot be kept any longer; others go on.
    Stopped {
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

impl Event {
    /// Its name, which programs may rely on.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Listening { .. } => "listening",
            Self::Subscribed { .. } => "subscribed",
            Self::Notified => "notified",
            Self::Gap { .. } => "gap",
            Self::Synchronised(_) => "synchronised",
            Self::HookDone => "command-done",
            Self::HookFailed { .. } => "command-failed",
            Self::Stopped { .. } => "stopped",
            Self::SyncFailed { .. } => "sync-failed",
        }
    }
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
    /// The set has nothing to make a copy from.
    #[error("the set {set} has no usable Resource List or Resource Dump, so there is nothing to copy")]
    NothingOffered {
        /// The set.
        set: String,
    },
    /// The Source no longer names the set that the directory is a copy of.
    #[error(
        "{} is a copy of the set {set}, which the Source no longer lists; it lists:\n  {}\nuse another directory for another set",
        directory.display(),
        sets.join("\n  ")
    )]
    OtherSet {
        /// The directory.
        directory: PathBuf,
        /// The set that it is a copy of.
        set: String,
        /// The sets that can be read.
        sets: Vec<String>,
        /// Whether it may be one that cannot be read at this moment.
        retry_may_help: bool,
    },
    /// The set has no framework channel.
    #[error(
        "the set {set} has no notification channel with a hub; run `resync-destination sync` from a timer instead"
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
    let service = options.service.clone();
    listen_all(vec![options], &service, move |_, event| events(event), shutdown).await
}

/// Keeps several directories in step, each with a Source of its own, behind one callback server: `service` counts, and not
/// the ones in the options. `events` hears what happens to which directory.
///
/// # Errors
/// As for [`listen`]. A copy that cannot go on does not end the others; the first such error is given when all have ended.
pub async fn listen_all(
    copies: Vec<ListenOptions>,
    service: &ServiceOptions,
    mut events: impl FnMut(&Path, Event) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ListenError> {
    let client = Client::new(service.client.clone())?;
    let sources: Vec<String> = copies.iter().map(|copy| copy.source.clone()).collect();
    let clients = client.for_each(&sources)?;
    let mut states = Vec::new();
    for (copy, client) in copies.iter().zip(&clients) {
        let no_directory = |source| ListenError::Directory { directory: copy.into.clone(), source };
        std::fs::create_dir_all(&copy.into).map_err(no_directory)?;
        let state = Subscriptions::open(&copy.state_folder()).map_err(ListenError::OpenState)?;
        states.push((state, client.clone()));
    }
    let bind_error = |source| ListenError::Bind { address: service.listen, source };
    let (bound, parties) = Service::bind(service, states).await.map_err(bind_error)?;
    if let Some(first) = copies.first() {
        events(&first.into, Event::Listening { address: bound.address });
    }
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut keeping: FuturesUnordered<_> = (copies.into_iter().zip(parties).zip(clients))
        .map(|((mut copy, (party, deliveries)), client)| {
            copy.service = service.clone();
            let (tell, into) = (tell.clone(), copy.into.clone());
            // Who is told lives as long as these.
            let mut events = move |event| drop(tell.send((into.clone(), event)));
            Box::pin(async move {
                let result = keep(&copy, client, &party, deliveries, &mut events).await;
                if let Err(error) = &result {
                    events(Event::Stopped { cause: error.to_string() });
                }
                result
            })
        })
        .collect();
    let work = async {
        let mut first = Ok(());
        loop {
            tokio::select! {
                Some((directory, event)) = told.recv() => events(&directory, event),
                ended = keeping.next() => match ended {
                    Some(result) => first = first.and(result),
                    None => return first,
                },
            }
        }
    };
    bound.run(pin!(work), shutdown, service.unsubscribe_on_exit).await
}

/// One copy, for as long as it can be kept.
async fn keep(
    options: &ListenOptions,
    client: Client,
    party: &Party,
    deliveries: Deliveries,
    events: &mut (impl FnMut(Event) + Send),
) -> Result<(), ListenError> {
    let Party { subscriptions, subscriber } = party;
    let state = options.state_folder();
    let mirror = Mirror::find_with_retries(options, client, subscriptions, &state, events).await?;
    Work::new(mirror, subscriptions.clone(), options)?.run(subscriber, deliveries, events).await
}
