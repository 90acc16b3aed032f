//! Stays subscribed to the topic at a URL: finds it again before each renewal (W-134), and follows it when it moves.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_common::backoff::Backoff;
use resync_common::words::Lasting;
use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use url::Url;

use super::channels::{SharedChannels, keep_at_some_hub};
use super::{Lease, SubscribeError, Subscriber};
use crate::discover::{Channel, DiscoverError, channel_at, channels};
use crate::fetch::FetchError;
use crate::timing::{LONGEST_RETRY, at, ended, pauses, sooner};

/// Why a topic is not subscribed to.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// It was not found.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// All its hubs refuse for good.
    #[error("{topic}: {source}")]
    Subscribe {
        /// The topic.
        topic: String,
        /// Why.
        source: Box<SubscribeError>,
    },
}

impl TopicError {
    /// Whether the same may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Discover(error) => error.is_transient(),
            Self::Subscribe { source, .. } => source.is_transient(),
        }
    }

    /// The sentence for who has just read the URL `known` of the topic.
    pub(crate) fn about(&self, known: &str) -> String {
        match self {
            Self::Discover(DiscoverError::Fetch(error)) => error.about(known),
            Self::Subscribe { topic, source } if topic == known => source.to_string(),
            Self::Discover(_) | Self::Subscribe { .. } => self.to_string(),
        }
    }
}

/// What happens to a topic that is kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum TopicEvent {
    /// A hub granted a lease.
    Subscribed {
        /// The topic.
        topic: TopicUrl,
        /// When the lease ends.
        until: DateTime,
    },
    /// It was not found, or its hubs refuse; it is tried again.
    Failed {
        /// Why.
        error: TopicError,
        /// After how long it is tried again.
        retry_in: Duration,
    },
}

impl fmt::Display for TopicEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subscribed { topic, until } => write!(f, "subscribed to {} until {until}", topic.as_str()),
            Self::Failed { error, retry_in } => {
                write!(f, "not subscribed: {error}; next try in {}", Lasting(*retry_in))
            }
        }
    }
}

/// Stays subscribed to the topic at `url`, or to every channel of the Source there (see [`channels`]).
///
/// Before each renewal the topic is discovered again (W-134), so that it is followed when it moves or names another hub. If
/// that fails, the known subscription is renewed. Every failure is an event, and is tried again.
pub async fn keep_topic(
    subscriber: &Subscriber,
    url: &str,
    mut events: impl FnMut(TopicEvent) + Send,
) -> Infallible {
    let shared = SharedChannels::of_some(subscriber, 1);
    keep_one(&Topic { subscriber, url, hub: None }, 0, &shared, &mut events).await
}

/// As [`keep_topic`] for a topic that names no hub: subscribes at this one (see [`channel_at`]).
pub async fn keep_topic_at(
    subscriber: &Subscriber,
    url: &str,
    hub: &Url,
    mut events: impl FnMut(TopicEvent) + Send,
) -> Infallible {
    let shared = SharedChannels::of_some(subscriber, 1);
    keep_one(&Topic { subscriber, url, hub: Some(hub) }, 0, &shared, &mut events).await
}

/// Events of several topics, each with the number of its topic.
pub(crate) type TopicEvents = mpsc::UnboundedReceiver<(usize, TopicEvent)>;

/// As [`keep_topic`], or with a hub as [`keep_topic_at`], for several topics, each in a task of its own until the tasks are dropped. Once all are found,
/// subscriptions to anything else are ended.
///
/// # Errors
/// When an HTTP client cannot be set up.
pub(crate) fn keep_topics(
    subscriber: &Subscriber,
    urls: &[String],
    hub: Option<&Url>,
) -> Result<(JoinSet<Infallible>, TopicEvents), FetchError> {
    let (sender, events) = mpsc::unbounded_channel();
    let mut keeping = JoinSet::new();
    let shared = Arc::new(SharedChannels::of_all(subscriber, urls.len()));
    for (number, (url, client)) in urls.iter().cloned().zip(subscriber.client().for_each(urls)?).enumerate() {
        let (subscriber, sender) = (subscriber.with_client(client), sender.clone());
        let (shared, hub) = (Arc::clone(&shared), hub.cloned());
        keeping.spawn(async move {
            // The receiver lives as long as these tasks.
            let mut send = |event| drop(sender.send((number, event)));
            let topic = Topic { subscriber: &subscriber, url: &url, hub: hub.as_ref() };
            keep_one(&topic, number, &shared, &mut send).await
        });
    }
    Ok((keeping, events))
}

async fn keep_one(
    topic: &Topic<'_>,
    number: usize,
    shared: &SharedChannels,
    events: &mut (impl FnMut(TopicEvent) + Send),
) -> Infallible {
    let mut pause = pauses(LONGEST_RETRY);
    let mut now = topic.find_with_retries(&mut pause, events).await;
    loop {
        shared.set(number, &now).await;
        now = topic.keep(&now, &mut pause, events).await;
    }
}

struct Topic<'t> {
    subscriber: &'t Subscriber,
    url: &'t str,
    /// The hub to subscribe at, whatever the topic names.
    hub: Option<&'t Url>,
}

impl Topic<'_> {
    async fn find(&self) -> Result<Vec<Channel>, DiscoverError> {
        let client = self.subscriber.client();
        match self.hub {
            None => channels(client, self.url).await,
            Some(hub) => channel_at(client, self.url, hub).await.map(|channel| vec![channel]),
        }
    }

    async fn find_with_retries(
        &self,
        pause: &mut Backoff,
        events: &mut (impl FnMut(TopicEvent) + Send),
    ) -> Vec<Channel> {
        loop {
            let error = match self.find().await {
                Ok(found) => return found,
                Err(error) => error.into(),
            };
            let retry_in = pause.after_failure();
            events(TopicEvent::Failed { error, retry_in });
            tokio::time::sleep(retry_in).await;
        }
    }

    /// Keeps these channels until others are found, or until a refused one is to be tried again. Returns the channels to
    /// continue with.
    async fn keep(
        &self,
        known: &[Channel],
        pause: &mut Backoff,
        events: &mut (impl FnMut(TopicEvent) + Send),
    ) -> Vec<Channel> {
        let (granted, mut leases) = mpsc::unbounded_channel();
        let mut keeping: FuturesUnordered<_> = known
            .iter()
            .map(|channel| {
                let granted = granted.clone();
                // The receiver lives as long as this.
                let on_lease =
                    move |topic: &TopicUrl, lease: Lease| drop(granted.send((topic.clone(), lease.until)));
                async move {
                    let result = keep_at_some_hub(self.subscriber, channel, on_lease).await;
                    (channel.topic.as_str().to_owned(), result)
                }
            })
            .collect();
        let mut has_failed = false;
        let mut next_discovery = None;
        let mut discovery: Option<Pin<Box<dyn Future<Output = _> + Send + '_>>> = None;
        loop {
            tokio::select! {
                Some((topic, until)) = leases.recv() => {
                    let before_renewal = Instant::now() + before_renewal(until, DateTime::now());
                    next_discovery = Some(sooner(next_discovery, before_renewal));
                    events(TopicEvent::Subscribed { topic, until });
                }
                Some((topic, Err(error))) = keeping.next() => {
                    has_failed = true;
                    let retry_in = pause.after_failure();
                    next_discovery = Some(sooner(next_discovery, Instant::now() + retry_in));
                    let error = TopicError::Subscribe { topic, source: Box::new(error) };
                    events(TopicEvent::Failed { error, retry_in });
                }
                () = at(next_discovery), if discovery.is_none() => {
                    next_discovery = None;
                    discovery = Some(Box::pin(self.find()));
                }
                found = ended(&mut discovery) => {
                    discovery = None;
                    let found = found.unwrap_or_else(|error: DiscoverError| {
                        tracing::warn!(%error, url = self.url, "discovery of a topic failed; keeping the known channel");
                        known.to_vec()
                    });
                    if has_failed || found != known {
                        return found;
                    }
                    pause.reset();
                }
            }
        }
    }
}

/// A random time before the lease is renewed.
fn before_renewal(until: DateTime, now: DateTime) -> Duration {
    let left = u64::try_from(until.unix_millis() - now.unix_millis()).unwrap_or(0);
    Duration::from_millis(left * fastrand::u64(60..75) / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_just_read_the_topic_does_not_read_it_again_before_what_its_hub_says() {
        let topic = "http://a.example/feed";
        let error =
            TopicError::Subscribe { topic: topic.to_owned(), source: Box::new(SubscribeError::Unknown) };
        assert_eq!(error.about(topic), "no such subscription");
        assert_eq!(error.about("http://a.example/"), "http://a.example/feed: no such subscription");
    }

    #[test]
    fn w134_a_topic_is_looked_for_before_its_lease_is_renewed() {
        let now = DateTime::now();
        let until = DateTime::from_unix_millis(now.unix_millis() + 1_000_000).unwrap();
        for _ in 0..1000 {
            assert!((600..750).contains(&before_renewal(until, now).as_secs()));
        }
        assert_eq!(before_renewal(now, until), Duration::ZERO);
    }
}
