//! A copy that stays in step by itself: discover, subscribe, synchronise at the start and on every
//! notification.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use crate::callback::{Callback, CallbackOptions};
use crate::discover::{DiscoverError, Set, discover};
use crate::fetch::{Client, ClientOptions, FetchError};
use crate::inbox::{Deliveries, Delivery, Receipt};
use crate::notification::{Meaning, meaning};
use crate::server::Server;
use crate::state::{STATE_FOLDER, StateError, SubscriptionId, Subscriptions};
use crate::subscriber::{SubscribeError, Subscriber, SubscriberOptions};
use crate::sync::{Report, SyncError, SyncOptions, Target, baseline};

/// How long the first synchronisation waits for the subscription, so that one look serves both.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// The pause after the first synchronisation that failed; doubled after each further one.
const FIRST_RETRY: Duration = Duration::from_secs(2);

/// The longest pause between two tries.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// How many notifications wait for one synchronisation; more stay in the callback's channel, and when that is
/// full the hub waits.
const MAX_WAITING: usize = 4096;

/// How long leaving may take.
const UNSUBSCRIBE_PATIENCE: Duration = Duration::from_secs(15);

/// What [`listen`] is to do.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Any URL of the Source, see [`discover`].
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
            sync: SyncOptions::default(),
            callback: CallbackOptions::default(),
            client: ClientOptions::default(),
        }
    }
}

/// What happens while listening.
#[derive(Clone, Debug)]
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
    /// A synchronisation could not be done; it will be tried again.
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
    /// The state can no longer be kept.
    #[error(transparent)]
    State(#[from] StateError),
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
/// [`ListenError`]: what stands in the way of beginning, or a hub that refuses for good. Whatever may mend is
/// tried again.
pub async fn listen(
    options: ListenOptions,
    mut events: impl FnMut(Event) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ListenError> {
    tokio::pin!(shutdown);
    let mut mirror = tokio::select! {
        found = Mirror::find(&options) => found?,
        () = &mut shutdown => return Ok(()),
    };
    let (topic, hub) = mirror.channel()?;
    let state = options.state.clone().unwrap_or_else(|| options.into.join(STATE_FOLDER));
    let subscriptions = Subscriptions::open(&state).map_err(ListenError::OpenState)?;
    mirror.target = mirror.target.with_state(&state);

    let bind_error = |source| ListenError::Bind { address: options.listen, source };
    let server = Server::bind(options.listen).await.map_err(bind_error)?;
    let address = server.address().map_err(bind_error)?;
    events(Event::Listening { address });
    let prefix = match &options.callback_url {
        Some(url) => url.clone(),
        None => own_url(address),
    };

    let (callback, deliveries) = Callback::new(&subscriptions, options.callback.clone());
    let id = subscriptions.add(&topic, &hub).await?;
    let subscriber_options = SubscriberOptions { lease: options.lease, ..SubscriberOptions::new(prefix) };
    let subscriber = Subscriber::new(mirror.client.clone(), subscriptions.clone(), subscriber_options);

    let work = Work::new(mirror, subscriptions, topic, &options);
    let result = tokio::select! {
        () = server.run(callback.clone()) => Ok(()),
        result = work.run(&subscriber, &id, deliveries, &mut events) => result,
        () = &mut shutdown => Ok(()),
    };
    if result.is_ok() && options.unsubscribe_on_exit {
        tokio::select! {
            () = server.run(callback) => {}
            () = leave(&subscriber, &id) => {}
        }
    }
    server.shut_down().await;
    result
}

async fn leave(subscriber: &Subscriber, id: &SubscriptionId) {
    match tokio::time::timeout(UNSUBSCRIBE_PATIENCE, subscriber.unsubscribe(id)).await {
        Ok(Ok(())) => tracing::info!("unsubscribed"),
        Ok(Err(error)) => tracing::warn!(%error, "not unsubscribed; the lease will run out"),
        Err(_elapsed) => tracing::warn!("not unsubscribed in time; the lease will run out"),
    }
}

/// A server on all addresses is reached over loopback, until a `--callback-url` says better.
fn own_url(address: SocketAddr) -> Url {
    let mut host = address;
    if address.ip().is_unspecified() {
        host.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    Url::parse(&format!("http://{host}/")).expect("an address and a port make a URL")
}

/// The copy and what it is a copy of.
#[derive(Clone, Debug)]
struct Mirror {
    client: Client,
    source: String,
    wanted_set: Option<String>,
    set: Set,
    list: Url,
    target: Target,
    options: SyncOptions,
}

impl Mirror {
    async fn find(options: &ListenOptions) -> Result<Self, ListenError> {
        let client = Client::new(options.client.clone())?;
        let source = discover(&client, &options.source).await?;
        let set = source.choose(options.set.as_deref())?.clone();
        let list = list_of(&set)?;
        let base = options.base.clone().unwrap_or_else(|| source.base.clone());
        let no_directory = |source| ListenError::Directory { directory: options.into.clone(), source };
        let target = Target::open(&options.into, base).map_err(no_directory)?;
        let (source, wanted_set) = (options.source.clone(), options.set.clone());
        Ok(Self { client, source, wanted_set, set, list, target, options: options.sync.clone() })
    }

    fn channel(&self) -> Result<(TopicUrl, Url), ListenError> {
        let channel = self.set.framework_channel.as_ref();
        let found = channel.and_then(|channel| Some((channel.topic.clone(), channel.hub()?.clone())));
        found.ok_or_else(|| ListenError::NoChannel { set: self.set.name() })
    }

    /// Where the lists are may have changed; while that cannot be found out, the known ones are used.
    async fn find_again(&mut self) {
        let found = discover(&self.client, &self.source).await;
        let found = found.and_then(|source| source.choose(self.wanted_set.as_deref()).cloned());
        let found = found.map_err(ListenError::from).and_then(|set| Ok((list_of(&set)?, set)));
        match found {
            Ok((list, set)) => {
                if set.framework_channel != self.set.framework_channel {
                    tracing::warn!("the Source changed its framework channel: start again to follow it");
                }
                (self.list, self.set) = (list, set);
            }
            Err(error) => tracing::warn!(%error, "the Source could not be looked at again"),
        }
    }
}

fn list_of(set: &Set) -> Result<Url, ListenError> {
    set.resource_list.clone().ok_or_else(|| ListenError::NoResourceList { set: set.name() })
}

/// A synchronisation that is running. It gives the mirror back.
type Running = Pin<Box<dyn Future<Output = (Mirror, Result<Report, SyncError>)> + Send>>;

/// What is to be done and what is being done.
struct Work {
    mirror: Mirror,
    subscriptions: Subscriptions,
    topic: TopicUrl,
    poll: Duration,
    /// When the next synchronisation is due, if any is.
    due: Option<Instant>,
    discover_again: bool,
    /// Notifications that the next synchronisation handles.
    waiting: Vec<Receipt>,
    /// Notifications that the running one handles.
    handled: Vec<Receipt>,
    running: Option<Running>,
    failures: u32,
    active_until: Option<DateTime>,
}

impl Work {
    fn new(mirror: Mirror, subscriptions: Subscriptions, topic: TopicUrl, options: &ListenOptions) -> Self {
        Self {
            mirror,
            subscriptions,
            topic,
            poll: options.poll,
            due: Some(Instant::now() + FIRST_PATIENCE),
            discover_again: false,
            waiting: Vec::new(),
            handled: Vec::new(),
            running: None,
            failures: 0,
            active_until: None,
        }
    }

    async fn run(
        mut self,
        subscriber: &Subscriber,
        id: &SubscriptionId,
        mut deliveries: Deliveries,
        events: &mut (impl FnMut(Event) + Send),
    ) -> Result<(), ListenError> {
        let (granted, mut leases) = mpsc::unbounded_channel();
        let keep = subscriber.keep(id, move |until| {
            // The receiver lives as long as this loop.
            let _ = granted.send(until);
        });
        tokio::pin!(keep);
        let mut next_poll = Instant::now() + self.poll;
        loop {
            tokio::select! {
                result = &mut keep => match result { Err(error) => return Err(error.into()), Ok(never) => match never {} },
                Some(until) = leases.recv() => self.subscribed(until, events),
                Some(delivery) = deliveries.next(), if self.waiting.len() < MAX_WAITING => {
                    self.take(delivery, events).await?;
                }
                (mirror, result) = finished(&mut self.running) => {
                    self.mirror = mirror;
                    self.running = None;
                    self.ended(result, events).await?;
                }
                () = at(self.due), if self.running.is_none() => self.start(),
                () = tokio::time::sleep_until(next_poll), if !self.poll.is_zero() => {
                    next_poll = Instant::now() + self.poll;
                    self.discover_again = true;
                    self.due = Some(Instant::now());
                }
            }
        }
    }

    /// What changed while no lease ran was not told, so a new beginning asks for a look; a renewal does not.
    fn subscribed(&mut self, until: DateTime, events: &mut (impl FnMut(Event) + Send)) {
        if self.active_until.is_none_or(|before| before <= DateTime::now()) {
            self.due = Some(Instant::now());
        }
        self.active_until = Some(until);
        events(Event::Subscribed { topic: self.topic.clone(), until });
    }

    async fn take(
        &mut self,
        delivery: Delivery,
        events: &mut (impl FnMut(Event) + Send),
    ) -> Result<(), StateError> {
        match meaning(delivery.body.body(), &self.mirror.set) {
            Ok(Meaning::NotUsed) => {
                tracing::info!("a notification about documents that are not used here");
                return delivery.done().await;
            }
            Err(error) => {
                tracing::warn!(%error, "a notification that cannot be understood is left aside");
                return delivery.done().await;
            }
            Ok(meaning) => self.discover_again |= meaning == Meaning::DiscoverAgain,
        }
        self.waiting.push(delivery.receipt);
        self.due = Some(Instant::now());
        events(Event::Notified);
        Ok(())
    }

    fn start(&mut self) {
        self.due = None;
        self.handled.append(&mut self.waiting);
        let mut mirror = self.mirror.clone();
        let again = std::mem::take(&mut self.discover_again);
        self.running = Some(Box::pin(async move {
            if again {
                mirror.find_again().await;
            }
            let result = baseline(&mirror.client, &mirror.list, &mirror.target, &mirror.options).await;
            (mirror, result)
        }));
    }

    async fn ended(
        &mut self,
        result: Result<Report, SyncError>,
        events: &mut (impl FnMut(Event) + Send),
    ) -> Result<(), StateError> {
        let in_step = result.as_ref().is_ok_and(Report::in_step);
        self.failures = if in_step { 0 } else { self.failures.saturating_add(1) };
        let retry_in =
            FIRST_RETRY.saturating_mul(1 << self.failures.saturating_sub(1).min(16)).min(LONGEST_RETRY);
        if !in_step {
            // A notification that came meanwhile asks for an earlier look.
            self.due = self.due.or(Some(Instant::now() + retry_in));
        }
        match result {
            Ok(report) => {
                Receipt::all_done(std::mem::take(&mut self.handled)).await?;
                self.subscriptions.remember_sync(report.clone()).await?;
                events(Event::Synchronised(report));
            }
            // The notifications stay in `handled`, unacknowledged, for the next try.
            Err(error) => events(Event::SyncFailed { cause: error.to_string(), retry_in }),
        }
        Ok(())
    }
}

async fn finished(running: &mut Option<Running>) -> (Mirror, Result<Report, SyncError>) {
    match running {
        Some(running) => running.await,
        None => std::future::pending().await,
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_reached_over_loopback() {
        let own = |address: &str| own_url(address.parse().unwrap()).to_string();
        assert_eq!(own("0.0.0.0:81"), "http://127.0.0.1:81/");
        assert_eq!(own("[::]:81"), "http://[::1]:81/");
        assert_eq!(own("10.1.2.3:81"), "http://10.1.2.3:81/");
    }
}
