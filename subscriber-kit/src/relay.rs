//! Notifications without a copy: subscribes to any WebSub topics, of several Sources and at several hubs, and hands what
//! they send to whoever wants it, one after another.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

use crate::channel::Wanted;
use crate::discover::DiscoverError;
use crate::fetch::{Client, FetchError};
use crate::hook::Notification;
use crate::hook_queue::{HookQueue, HookResult};
use crate::inbox::{Deliveries, Receipt};
use crate::service::{Party, Service, ServiceOptions, leave_each};
use crate::state::{StateError, Subscriptions};
use crate::topic::{TopicError, TopicEvent, keep_one_of};

/// How many notifications wait for a hook; more stay in the callback's channel, and when that is full the hub waits.
const MAX_WAITING: usize = 4096;

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
    /// The hook failed; the notification stays open and the first, and the hook is run for it again.
    HookFailed {
        /// Why.
        cause: String,
        /// After how long that is.
        retry_in: Duration,
    },
    /// A topic was not found, or its hubs refuse; it is tried again, and others go on.
    TopicFailed {
        /// What was asked for.
        topic: String,
        /// Why.
        cause: String,
        /// After how long it is tried again.
        retry_in: Duration,
    },
}

/// Why relaying could not begin or had to end.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// No topic can be subscribed to, and none of them may mend by itself.
    #[error(transparent)]
    Topic(#[from] TopicError),
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
    /// Nobody hears what happens.
    #[error("cannot write output: {0}")]
    Output(std::io::Error),
}

impl RelayError {
    /// Whether the settings are at fault, so that starting again will not help.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Bind { .. } | Self::State(_))
            || matches!(
                self,
                Self::Topic(TopicError::Discover(
                    DiscoverError::Url { .. } | DiscoverError::Fetch(FetchError::Scheme(_))
                ))
            )
    }
}

/// Subscribes to all topics and hands over their notifications until `shutdown` ends. `events` hears what happens; where
/// there is no hook, a notification is done when it has heard of it, and open when it could not.
///
/// Each topic is kept by itself (see [`keep_topic`](crate::topic::keep_topic)): one that is away, or whose hubs refuse, is told
/// of and tried again. Once all are found, what the state still holds of others is unsubscribed.
///
/// # Errors
/// [`RelayError`]: a topic that is no URL; when no topic can be subscribed to and none may mend by itself; and when `events`
/// fails.
pub async fn relay(
    options: RelayOptions,
    mut events: impl FnMut(Relayed) -> io::Result<()> + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), RelayError> {
    for topic in &options.topics {
        let no_url = |reason| DiscoverError::Url { text: topic.clone(), reason };
        Url::parse(topic).map_err(|reason| TopicError::from(no_url(reason)))?;
    }
    let client = Client::new(options.service.client.clone())?;
    let subscriptions = Subscriptions::open(&options.state)?;
    let bind_error = |source| RelayError::Bind { address: options.service.listen, source };
    let states = [(subscriptions, client.clone())];
    let (service, mut parties) = Service::bind(&options.service, states).await.map_err(bind_error)?;
    events(Relayed::Listening { address: service.address }).map_err(RelayError::Output)?;
    // One state was given.
    let Some((party, deliveries)) = parties.pop() else { return Ok(()) };
    let (mut keeping, topic_events) = keep_all(&options.topics, &client, &party)?;
    let work = async {
        let hooks = HookQueue::new(options.service.hook.clone());
        let work = Work { topics: &options.topics, refused: BTreeMap::new(), hooks };
        work.run(topic_events, deliveries, &mut events).await.map(|never| match never {})
    };
    let result = service.run(pin!(work), shutdown, options.service.unsubscribe_on_exit).await;
    // They hold the state, which whoever begins next asks for.
    keeping.shutdown().await;
    result
}

/// Ends every subscription of a state that nothing works with, one of [`listen`](crate::listen) too. For the hubs the callback
/// must be where it was. It was Sources that named the hubs: that one of them is near opens nothing to another. Gives the topics of those that could not be ended, which last as long as their leases.
///
/// # Errors
/// [`RelayError`] when nobody could be asked.
pub async fn unsubscribe(state: &Path, service: &ServiceOptions) -> Result<Vec<TopicUrl>, RelayError> {
    let client = Client::new(service.client.clone())?;
    let subscriptions = Subscriptions::open(state)?;
    let bind_error = |source| RelayError::Bind { address: service.listen, source };
    let states = [(subscriptions.clone(), client.clone())];
    let (server, mut parties) = Service::bind(service, states).await.map_err(bind_error)?;
    // One state was given.
    let Some((party, _deliveries)) = parties.pop() else { return Ok(Vec::new()) };
    let ids = subscriptions.active();
    let hub_of = |id| subscriptions.get(id).map(|one| one.hub).unwrap_or_default();
    // With those of all others, so that none of these takes what another one opens for its own.
    let others = subscriptions.list().into_iter().map(|one| one.hub);
    let hubs: Vec<String> = ids.iter().map(hub_of).chain(others).collect();
    let each = ids.into_iter().zip(client.for_each(&hubs)?);
    let leaving = each.map(|(id, client)| (party.subscriber.with_client(client), id));
    let work = async {
        leave_each(leaving).await;
        Ok::<_, RelayError>(())
    };
    server.run(work, std::future::pending(), false).await?;
    let left = subscriptions.active().into_iter();
    Ok(left.filter_map(|id| subscriptions.get(&id)).map(|left| left.topic).collect())
}

/// What is new of a topic, by its number.
type TopicEvents = mpsc::UnboundedReceiver<(usize, TopicEvent)>;

/// Each topic by itself, until the tasks are dropped.
fn keep_all(
    topics: &[String],
    client: &Client,
    party: &Party,
) -> Result<(JoinSet<Infallible>, TopicEvents), FetchError> {
    let (tell, topic_events) = mpsc::unbounded_channel();
    let mut keeping = JoinSet::new();
    let wanted = Arc::new(Wanted::by_all(&party.subscriber, &party.subscriptions, topics.len()));
    for (number, (topic, client)) in topics.iter().cloned().zip(client.for_each(topics)?).enumerate() {
        let subscriber = party.subscriber.with_client(client.clone());
        let (subscriptions, tell, wanted) = (party.subscriptions.clone(), tell.clone(), Arc::clone(&wanted));
        keeping.spawn(async move {
            // Who hears of it ends with these tasks.
            let mut tell = |event| drop(tell.send((number, event)));
            keep_one_of(&client, &subscriber, &subscriptions, &topic, (&wanted, number), &mut tell).await
        });
    }
    Ok((keeping, topic_events))
}

/// Of a notification that is not done: how it is done, and how many before it did not come.
type Open = (Receipt, u64);

/// What is under way.
struct Work<'o> {
    topics: &'o [String],
    /// Those that will not mend by themselves, and why.
    refused: BTreeMap<usize, TopicError>,
    /// What a hook is to hear of.
    hooks: HookQueue<Open>,
}

impl Work<'_> {
    async fn run(
        mut self,
        mut topic_events: TopicEvents,
        mut deliveries: Deliveries,
        events: &mut (impl FnMut(Relayed) -> io::Result<()> + Send),
    ) -> Result<Infallible, RelayError> {
        loop {
            tokio::select! {
                Some((number, event)) = topic_events.recv() => self.topic(number, event, events)?,
                Some(delivery) = deliveries.next(), if self.hooks.len() < MAX_WAITING => {
                    let skipped = delivery.skipped;
                    let (receipt, notification) = delivery.into_notification();
                    if self.hooks.has_hook() {
                        self.hooks.push((receipt, skipped), notification);
                    } else {
                        hand_over((receipt, skipped), notification, events).await?;
                    }
                }
                result = self.hooks.next() => hook_ended(result, events).await?,
            }
        }
    }

    fn topic(
        &mut self,
        number: usize,
        event: TopicEvent,
        events: &mut impl FnMut(Relayed) -> io::Result<()>,
    ) -> Result<(), RelayError> {
        match event {
            TopicEvent::Subscribed { topic, until } => {
                self.refused.remove(&number);
                events(Relayed::Subscribed { topic, until }).map_err(RelayError::Output)
            }
            TopicEvent::Failed { error, retry_in } => {
                let (topic, cause) = (self.topics[number].clone(), error.to_string());
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
                events(Relayed::TopicFailed { topic, cause, retry_in }).map_err(RelayError::Output)
            }
        }
    }
}

async fn hook_ended(
    result: HookResult<Open>,
    events: &mut (impl FnMut(Relayed) -> io::Result<()> + Send),
) -> Result<(), RelayError> {
    let event = match result {
        HookResult::Done((receipt, skipped), notification) => {
            done(receipt).await;
            relayed(notification, skipped)
        }
        HookResult::Failed { error, retry_in } => Relayed::HookFailed { cause: error.to_string(), retry_in },
    };
    events(event).map_err(RelayError::Output)
}

/// Without a hook a notification is dealt with when it was told.
async fn hand_over(
    (receipt, skipped): Open,
    notification: Notification,
    events: &mut (impl FnMut(Relayed) -> io::Result<()> + Send),
) -> Result<(), RelayError> {
    events(relayed(notification, skipped)).map_err(RelayError::Output)?;
    done(receipt).await;
    Ok(())
}

fn relayed(Notification { id, topic, content_type, body }: Notification, skipped: u64) -> Relayed {
    Relayed::Notification { id, topic, content_type, body, skipped }
}

async fn done(receipt: Receipt) {
    if let Err(error) = receipt.done().await {
        tracing::error!(%error, "cannot record that a notification is done; it is handed over again after a restart");
    }
}
