//! Notifications without a copy: subscribes to any WebSub topics, and forwards their notifications, one after another, to a
//! command or to the caller.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use url::Url;

use crate::discover::DiscoverError;
use crate::fetch::Client;
use crate::receive::{
    CallbackServer, Deliveries, HookQueue, HookResult, Notification, Receipt, ServiceOptions, StartError,
    end_subscriptions,
};
use crate::state::Subscriptions;
use crate::subscribe::{TopicError, TopicEvent, TopicEvents, keep_topics};

/// How many notifications wait for a hook. More stay in the callback's channel, and when that is full, the hub waits.
const MAX_WAITING: usize = 4096;

/// Options of [`forward`].
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// Topics, or Sources with all their channels.
    pub topics: Vec<String>,
    /// The hub to subscribe at, for topics that name none. Otherwise each is subscribed to at one of the hubs that it names.
    pub hub: Option<Url>,
    /// The folder of the state.
    pub state: PathBuf,
    /// How hubs reach this Destination. Without a hook, a notification is done once its event was handled.
    pub service: ServiceOptions,
}

impl ForwardOptions {
    /// The default: a callback server on a free loopback port.
    #[must_use]
    pub fn new(topics: Vec<String>, state: impl Into<PathBuf>) -> Self {
        Self { topics, hub: None, state: state.into(), service: ServiceOptions::default() }
    }
}

/// What happens while notifications are forwarded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ForwardEvent {
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
    /// A notification arrived, and the hook, if there is one, succeeded.
    Notification {
        /// Which, if the hub says so.
        id: Option<NotificationId>,
        /// Its topic.
        topic: TopicUrl,
        /// Its media type.
        content_type: Option<String>,
        /// The body, its signature checked.
        body: Vec<u8>,
        /// How many are missing before it.
        skipped: u64,
    },
    /// The hook failed; it is run for the same notification again before any other.
    HookFailed {
        /// Why.
        cause: String,
        /// After how long.
        retry_in: Duration,
    },
    /// A topic was not found, or its hubs refuse. It is tried again; the others are not affected.
    TopicFailed {
        /// The topic as given.
        topic: String,
        /// Why.
        cause: String,
        /// After how long it is tried again.
        retry_in: Duration,
    },
}

/// Why forwarding could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No topic can be subscribed to, and that is not temporary.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The callback server cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An event could not be handled.
    #[error("cannot write output: {0}")]
    Output(std::io::Error),
}

impl ForwardError {
    /// Whether the settings are wrong, so that a restart does not help.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Start(error) => error.is_configuration(),
            Self::Topic(TopicError::Discover(error)) => error.is_configuration(),
            _ => false,
        }
    }
}

/// Subscribes to all topics and forwards their notifications until `shutdown` ends. `events` is called for everything that
/// happens. Without a hook, a notification is done when that returned, and stays open if it failed.
///
/// Each topic is kept independently (see [`keep_topic`](crate::subscribe::keep_topic)). One that is unreachable, or whose hubs
/// refuse, is reported and tried again. Once all are found, the state's subscriptions to other topics are ended.
///
/// # Errors
/// [`ForwardError`]: a topic that is not a URL; if no topic can be subscribed to and that is not temporary; if `events` fails.
pub async fn forward(
    options: ForwardOptions,
    mut events: impl FnMut(ForwardEvent) -> io::Result<()> + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ForwardError> {
    for topic in &options.topics {
        let not_a_url = |reason| DiscoverError::Url { text: topic.clone(), reason };
        Url::parse(topic).map_err(|reason| TopicError::from(not_a_url(reason)))?;
    }
    let client = Client::new(options.service.client.clone()).map_err(StartError::Client)?;
    let subscriptions = Subscriptions::open(&options.state).map_err(StartError::State)?;
    subscriptions.forget_other_topics(&options.topics).await.map_err(StartError::State)?;
    let states = [(subscriptions.clone(), client)];
    let (server, mut receivers) = CallbackServer::bind(&options.service, states).await?;
    events(ForwardEvent::Listening { address: server.address }).map_err(ForwardError::Output)?;
    // One state was given.
    let Some((subscriber, deliveries)) = receivers.pop() else { return Ok(()) };
    let (mut keeping, topic_events) =
        keep_topics(&subscriber, &options.topics, options.hub.as_ref()).map_err(StartError::Client)?;
    let work = async {
        let hooks = HookQueue::new(options.service.hook.clone());
        let work = Forwarder { topics: &options.topics, refused: BTreeMap::new(), subscriptions, hooks };
        work.run(topic_events, deliveries, &mut events).await.map(|never| match never {})
    };
    let result = server.run(pin!(work), shutdown, options.service.unsubscribe_on_exit).await;
    // They hold the state, which the next call may open.
    keeping.shutdown().await;
    result
}

/// Ends every subscription of a state that no process uses, also of one of [`listen`](crate::listen). The callback must be at the
/// same URL as before. Returns the topics of the subscriptions that could not be ended; they last until their leases end.
///
/// Sources have named the hubs, so the network of one hub must not open addresses to another.
///
/// # Errors
/// [`StartError`] when no request could be sent.
pub async fn unsubscribe(state: &Path, service: &ServiceOptions) -> Result<Vec<TopicUrl>, StartError> {
    let client = Client::new(service.client.clone())?;
    let subscriptions = Subscriptions::open(state)?;
    // No topic is wanted any more.
    subscriptions.forget_other_topics(&[]).await?;
    let states = [(subscriptions.clone(), client.clone())];
    let (server, mut receivers) = CallbackServer::bind(service, states).await?;
    // One state was given.
    let Some((subscriber, _deliveries)) = receivers.pop() else { return Ok(Vec::new()) };
    let ids = subscriptions.active();
    let hub_of = |id| subscriptions.get(id).map(|one| one.hub).unwrap_or_default();
    // Together with the hubs of all other subscriptions, so that each keeps to its own network.
    let others = subscriptions.list().into_iter().map(|one| one.hub);
    let hubs: Vec<String> = ids.iter().map(hub_of).chain(others).collect();
    let each = ids.into_iter().zip(client.for_each(&hubs)?);
    let ending = each.map(|(id, client)| (subscriber.with_client(client), id));
    let work = async {
        end_subscriptions(ending).await;
        Ok::<_, StartError>(())
    };
    server.run(work, std::future::pending(), false).await?;
    let remaining = subscriptions.active().into_iter();
    Ok(remaining.filter_map(|id| subscriptions.get(&id)).map(|one| one.topic).collect())
}

/// A notification that is not done.
struct Open {
    receipt: Receipt,
    /// How many notifications are missing before it.
    skipped: u64,
}

/// The topics and notifications in progress.
struct Forwarder<'o> {
    topics: &'o [String],
    /// Topics, by their numbers, that failed for reasons that are not temporary.
    refused: BTreeMap<usize, TopicError>,
    subscriptions: Subscriptions,
    hooks: HookQueue<Open>,
}

impl Forwarder<'_> {
    async fn run(
        mut self,
        mut topic_events: TopicEvents,
        mut deliveries: Deliveries,
        events: &mut (impl FnMut(ForwardEvent) -> io::Result<()> + Send),
    ) -> Result<Infallible, ForwardError> {
        loop {
            let event = tokio::select! {
                Some((number, event)) = topic_events.recv() => {
                    let topic = &self.topics[number];
                    let failure = failure_of(&event, topic);
                    record(&self.subscriptions, topic, failure).await;
                    self.topic_event(number, event)?
                }
                Some(delivery) = deliveries.next(), if self.hooks.len() < MAX_WAITING => {
                    let skipped = delivery.skipped;
                    let (receipt, notification) = delivery.into_notification();
                    let open = Open { receipt, skipped };
                    if self.hooks.has_hook() {
                        self.hooks.push(open, notification);
                    } else {
                        // Done only once the event was handled.
                        events(forwarded(notification, &open)).map_err(ForwardError::Output)?;
                        done(open.receipt).await;
                    }
                    continue;
                }
                result = self.hooks.next() => match result {
                    HookResult::Done(open, notification) => {
                        let event = forwarded(notification, &open);
                        done(open.receipt).await;
                        event
                    }
                    HookResult::Failed { error, retry_in } => {
                        ForwardEvent::HookFailed { cause: error.to_string(), retry_in }
                    }
                },
            };
            events(event).map_err(ForwardError::Output)?;
        }
    }

    /// Fails once every topic failed for reasons that are not temporary.
    fn topic_event(&mut self, number: usize, event: TopicEvent) -> Result<ForwardEvent, ForwardError> {
        match event {
            TopicEvent::Subscribed { topic, until } => {
                self.refused.remove(&number);
                Ok(ForwardEvent::Subscribed { topic, until })
            }
            TopicEvent::Failed { error, retry_in } => {
                let topic = self.topics[number].clone();
                let cause = error.about(&topic);
                if error.is_transient() {
                    self.refused.remove(&number);
                } else {
                    self.refused.insert(number, error);
                }
                if self.refused.len() == self.topics.len()
                    && let Some((_, first)) = self.refused.pop_first()
                {
                    return Err(first.into());
                }
                Ok(ForwardEvent::TopicFailed { topic, cause, retry_in })
            }
        }
    }
}

/// Why the topic, as it was given, is not subscribed to, if so.
fn failure_of(event: &TopicEvent, topic: &str) -> Option<String> {
    match event {
        TopicEvent::Subscribed { .. } => None,
        TopicEvent::Failed { error, .. } => Some(error.about(topic)),
    }
}

/// Records that for `status`.
async fn record(subscriptions: &Subscriptions, topic: &str, failure: Option<String>) {
    if let Err(error) = subscriptions.save_topic(topic, failure).await {
        tracing::warn!(%error, topic, "cannot record whether a topic is subscribed to");
    }
}

fn forwarded(notification: Notification, open: &Open) -> ForwardEvent {
    let Notification { id, topic, content_type, body } = notification;
    ForwardEvent::Notification { id, topic, content_type, body, skipped: open.skipped }
}

async fn done(receipt: Receipt) {
    if let Err(error) = receipt.done().await {
        tracing::error!(%error, "cannot record that a notification is done; it is handed over again after a restart");
    }
}
