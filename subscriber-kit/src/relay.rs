//! Notifications without a copy: subscribes to any WebSub topics, of several Sources and at several hubs, and hands what
//! they send to whoever wants it, one after another.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::channel::keep_at_some_hub;
use crate::discover::{Channel, DiscoverError, channels};
use crate::fetch::{Client, FetchError};
use crate::hook::{Heard, Hook};
use crate::inbox::{Deliveries, Receipt};
use crate::service::{Party, Service, ServiceOptions};
use crate::state::{StateError, Subscriptions};
use crate::subscriber::{SubscribeError, Subscriber, jittered};

/// How often the hook is run for one notification, before that is left for the next start.
const HOOK_TRIES: u32 = 5;

/// The pause after the first failure of a hook; doubled after each further one.
const HOOK_PAUSE: Duration = Duration::from_secs(1);

/// What [`relay`] is to do.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Topics, or Sources, of which every channel is taken.
    pub topics: Vec<String>,
    /// Where the state is kept.
    pub state: PathBuf,
    /// How hubs reach this Destination. Without a hook every notification is done when it was told as an event.
    pub service: ServiceOptions,
}

impl RelayOptions {
    /// The usual: a callback server on a free loopback port.
    #[must_use]
    pub fn new(topics: Vec<String>, state: impl Into<PathBuf>) -> Self {
        Self { topics, state: state.into(), service: ServiceOptions::default() }
    }
}

/// What happens meanwhile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Relayed {
    /// The callback server is up.
    Listening {
        /// Its address.
        address: SocketAddr,
    },
    /// A hub granted a lease.
    Subscribed {
        /// The topic.
        topic: TopicUrl,
        /// When the lease ends.
        until: DateTime,
    },
    /// A notification came, and the hook, if there is one, has dealt with it.
    Notification {
        /// Which, if the hub says so.
        id: Option<NotificationId>,
        /// Its topic.
        topic: TopicUrl,
        /// What is in it.
        content_type: Option<String>,
        /// The body, its signature checked.
        body: Vec<u8>,
        /// How many before it did not come.
        skipped: u64,
    },
    /// The hook failed for good; the notification is handed over again at the next start.
    HookFailed {
        /// Why.
        cause: String,
    },
}

/// Why relaying could not begin or had to end.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A topic was not found.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// The HTTP client could not be set up.
    #[error(transparent)]
    Client(#[from] FetchError),
    /// The callback server cannot listen.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The state cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// A subscription failed for good.
    #[error("{topic}: {source}")]
    Subscribe {
        /// The topic.
        topic: String,
        /// Why.
        source: Box<SubscribeError>,
    },
}

impl RelayError {
    /// Whether the settings are at fault, so that starting again will not help.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Bind { .. } | Self::State(_))
            || matches!(
                self,
                Self::Discover(DiscoverError::Url { .. } | DiscoverError::Fetch(FetchError::Scheme(_)))
            )
    }
}

/// Subscribes to all topics and hands over their notifications until `shutdown` ends. `events` hears what happens.
///
/// # Errors
/// [`RelayError`]: a topic that is not found, or one whose hubs all refuse for good. A hub that is away is asked again.
pub async fn relay(
    options: RelayOptions,
    mut events: impl FnMut(Relayed) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), RelayError> {
    let client = Client::new(options.service.client.clone())?;
    let subscriptions = Subscriptions::open(&options.state)?;
    let bind_error = |source| RelayError::Bind { address: options.service.listen, source };
    let bound = Service::bind(&options.service, &client, [subscriptions]).await.map_err(bind_error)?;
    let (service, mut parties) = bound;
    events(Relayed::Listening { address: service.address });
    let work = async {
        // One state was given.
        let Some((Party { subscriptions, subscriber }, deliveries)) = parties.pop() else { return Ok(()) };
        let mut found = Vec::new();
        for topic in &options.topics {
            found.extend(channels(&client, topic).await?);
        }
        run(found, &subscriber, &subscriptions, deliveries, options.service.hook.as_ref(), &mut events).await
    };
    service.run(pin!(work), shutdown, options.service.unsubscribe_on_exit).await
}

async fn run(
    channels: Vec<Channel>,
    subscriber: &Subscriber,
    subscriptions: &Subscriptions,
    mut deliveries: Deliveries,
    hook: Option<&Hook>,
    events: &mut (impl FnMut(Relayed) + Send),
) -> Result<(), RelayError> {
    let (granted, mut leases) = mpsc::unbounded_channel();
    let mut keeping = JoinSet::new();
    for channel in channels {
        let (subscriber, subscriptions, granted) =
            (subscriber.clone(), subscriptions.clone(), granted.clone());
        keeping.spawn(async move {
            let tell = |topic: &TopicUrl, until| {
                // The receiver lives as long as this task.
                let _ = granted.send((topic.clone(), until));
            };
            let result = keep_at_some_hub(&subscriber, &subscriptions, &channel, tell).await;
            (channel.topic, result)
        });
    }
    loop {
        tokio::select! {
            Some((topic, until)) = leases.recv() => events(Relayed::Subscribed { topic, until }),
            Some(Ok((topic, Err(source)))) = keeping.join_next() => {
                let topic = topic.as_str().to_owned();
                return Err(RelayError::Subscribe { topic, source: Box::new(source) });
            }
            Some(delivery) = deliveries.next() => {
                let skipped = delivery.skipped;
                let (receipt, heard) = delivery.into_heard();
                hand_over(receipt, heard, skipped, hook, events).await;
            }
            else => return Ok(()),
        }
    }
}

/// One after another, so that the order is kept.
async fn hand_over(
    receipt: Receipt,
    heard: Heard,
    skipped: u64,
    hook: Option<&Hook>,
    events: &mut (impl FnMut(Relayed) + Send),
) {
    if let Some(hook) = hook
        && let Err(cause) = insist(hook, &heard).await
    {
        events(Relayed::HookFailed { cause });
        return;
    }
    let Heard { id, topic, content_type, body } = heard;
    events(Relayed::Notification { id, topic, content_type, body, skipped });
    if let Err(error) = receipt.done().await {
        tracing::error!(%error, "that a notification is done is not kept: it is handed over again after a restart");
    }
}

async fn insist(hook: &Hook, heard: &Heard) -> Result<(), String> {
    let mut pause = HOOK_PAUSE;
    let mut tries = HOOK_TRIES;
    loop {
        tries -= 1;
        match hook.run(heard).await {
            Ok(()) => return Ok(()),
            Err(error) if tries == 0 => return Err(error.to_string()),
            Err(error) => {
                tracing::warn!(%error, ?pause, "the command is run again");
                tokio::time::sleep(jittered(pause)).await;
                pause *= 2;
            }
        }
    }
}
