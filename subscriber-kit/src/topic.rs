//! Staying subscribed to what a URL stands for: it is found anew before each renewal (W-134), and followed when it moves.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_common::backoff::Backoff;
use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::channel::{Wanted, keep_at_some_hub};
use crate::discover::{Channel, DiscoverError, channels};
use crate::fetch::Client;
use crate::pause::{LONGEST_RETRY, at, ended, pauses, sooner};
use crate::state::Subscriptions;
use crate::subscriber::{SubscribeError, Subscriber};

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
    /// Whether asking again a little later is worth while.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Discover(error) => error.is_transient(),
            Self::Subscribe { source, .. } => source.is_transient(),
        }
    }
}

/// What becomes of a topic that is kept.
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
                write!(f, "not subscribed: {error}; next try in {retry_in:.0?}")
            }
        }
    }
}

/// Stays subscribed to the topic at `url`, or to every channel of the Source there (see [`channels`]). Before each renewal
/// it is looked for anew (W-134), so that a topic that moves, or names another hub, is followed; where it cannot be found
/// at that moment, what was found before is renewed. Whatever fails is told and tried again.
pub async fn keep_topic(
    client: &Client,
    subscriber: &Subscriber,
    subscriptions: &Subscriptions,
    url: &str,
    mut events: impl FnMut(TopicEvent) + Send,
) -> Infallible {
    let wanted = Wanted::by_one(subscriber, subscriptions);
    keep_one_of(client, subscriber, subscriptions, url, (&wanted, 0), &mut events).await
}

/// As [`keep_topic`], for one of several topics that may want the same channels.
pub(crate) async fn keep_one_of(
    client: &Client,
    subscriber: &Subscriber,
    subscriptions: &Subscriptions,
    url: &str,
    (wanted, number): (&Wanted, usize),
    events: &mut (impl FnMut(TopicEvent) + Send),
) -> Infallible {
    let topic = Topic { client, subscriber, subscriptions, url };
    let mut pause = pauses(LONGEST_RETRY);
    let mut now = topic.find_with_retries(&mut pause, events).await;
    loop {
        wanted.set(number, &now).await;
        now = topic.keep(&now, &mut pause, events).await;
    }
}

struct Topic<'t> {
    client: &'t Client,
    subscriber: &'t Subscriber,
    subscriptions: &'t Subscriptions,
    url: &'t str,
}

impl Topic<'_> {
    async fn find_with_retries(
        &self,
        pause: &mut Backoff,
        events: &mut (impl FnMut(TopicEvent) + Send),
    ) -> Vec<Channel> {
        loop {
            let error = match channels(self.client, self.url).await {
                Ok(found) => return found,
                Err(error) => error.into(),
            };
            let retry_in = pause.after_failure();
            events(TopicEvent::Failed { error, retry_in });
            tokio::time::sleep(retry_in).await;
        }
    }

    /// Keeps these channels until there are others, or one of them has to be asked for again; gives the ones to go on with.
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
                let tell = move |topic: &TopicUrl, until| drop(granted.send((topic.clone(), until)));
                async move {
                    let kept = keep_at_some_hub(self.subscriber, self.subscriptions, channel, tell).await;
                    (channel.topic.as_str().to_owned(), kept)
                }
            })
            .collect();
        let mut has_failed = false;
        let mut look_again = None;
        let mut looking: Option<Pin<Box<dyn Future<Output = _> + Send + '_>>> = None;
        loop {
            tokio::select! {
                Some((topic, until)) = leases.recv() => {
                    look_again = Some(sooner(look_again, Instant::now() + before_renewal(until, DateTime::now())));
                    events(TopicEvent::Subscribed { topic, until });
                }
                Some((topic, Err(error))) = keeping.next() => {
                    has_failed = true;
                    let retry_in = pause.after_failure();
                    look_again = Some(sooner(look_again, Instant::now() + retry_in));
                    let error = TopicError::Subscribe { topic, source: Box::new(error) };
                    events(TopicEvent::Failed { error, retry_in });
                }
                () = at(look_again), if looking.is_none() => {
                    look_again = None;
                    looking = Some(Box::pin(channels(self.client, self.url)));
                }
                found = ended(&mut looking) => {
                    looking = None;
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

/// A random moment before the one at which a lease is renewed.
fn before_renewal(until: DateTime, now: DateTime) -> Duration {
    let left = u64::try_from(until.unix_millis() - now.unix_millis()).unwrap_or(0);
    Duration::from_millis(left * fastrand::u64(60..75) / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

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
