//! Staying subscribed to channels: each at one of its hubs, whichever serves, and at its new place when it moves.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_common::backoff::jittered;
use resync_core::datetime::DateTime;
use resync_core::websub::key::TopicUrl;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::discover::Channel;
use crate::pause::LONGEST_RETRY;
use crate::state::{SubscriptionId, Subscriptions};
use crate::subscriber::{SubscribeError, Subscriber};

/// How often a hub is asked in vain before the next one is, if there is a next one.
const HUB_TRIES: u32 = 3;

/// How often a hub is asked in vain to end a subscription, before that is left to the lease.
const LEAVE_TRIES: u32 = 5;

/// Keeps a subscription to each of the channels, and to those they become: subscriptions to what is no part of them any
/// more are ended, also those of a run before. `on_lease` hears of every lease that was granted.
///
/// # Errors
/// When every hub of every channel refuses for good.
pub(crate) async fn follow(
    subscriber: &Subscriber,
    subscriptions: &Subscriptions,
    mut channels: watch::Receiver<Vec<Channel>>,
    on_lease: impl Fn(&TopicUrl, DateTime),
) -> Result<Infallible, SubscribeError> {
    let mut leaving = JoinSet::new();
    loop {
        let now = channels.borrow_and_update().clone();
        // One that was being left may be wanted again.
        leaving.shutdown().await;
        for id in subscriptions.not_of(&now) {
            leaving.spawn(leave(subscriber.clone(), id));
        }
        tokio::select! {
            result = keep_each(subscriber, subscriptions, &now, &on_lease) => return result,
            Ok(()) = channels.changed() => {
                let topics: Vec<_> = channels.borrow().iter().map(|one| one.topic.as_str().to_owned()).collect();
                tracing::info!(?topics, "the Source moved its channels; subscribing to the new ones");
            }
        }
    }
}

/// Keeps each of the channels. One whose hubs refuse for good is tried again as long as there are others.
async fn keep_each(
    subscriber: &Subscriber,
    subscriptions: &Subscriptions,
    channels: &[Channel],
    on_lease: &impl Fn(&TopicUrl, DateTime),
) -> Result<Infallible, SubscribeError> {
    let refused = &Refused::default();
    let keep = |number: usize| {
        let on_lease = move |topic: &TopicUrl, until| {
            refused.remove(number);
            on_lease(topic, until);
        };
        keep_at_some_hub(subscriber, subscriptions, &channels[number], on_lease)
    };
    until_all_refuse(channels.len(), keep, refused).await
}

/// The numbers of the channels whose hubs refused when they were asked last.
#[derive(Debug, Default)]
struct Refused(std::sync::Mutex<BTreeSet<usize>>);

impl Refused {
    /// One more; gives how many there are.
    fn add(&self, number: usize) -> usize {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.insert(number);
        numbers.len()
    }

    fn remove(&self, number: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

/// Keeps so many channels, each again some time after it was refused, until all are refused at one time.
async fn until_all_refuse<E, F: Future<Output = Result<Infallible, E>>>(
    count: usize,
    keep: impl Fn(usize) -> F,
    refused: &Refused,
) -> Result<Infallible, E> {
    let keep_after = |number, pause| {
        let kept = keep(number);
        async move {
            tokio::time::sleep(pause).await;
            (number, kept.await)
        }
    };
    let mut keeping: FuturesUnordered<_> =
        (0..count).map(|number| keep_after(number, Duration::ZERO)).collect();
    loop {
        match keeping.next().await {
            Some((number, Err(error))) => {
                if refused.add(number) == count {
                    return Err(error);
                }
                keeping.push(keep_after(number, jittered(LONGEST_RETRY)));
            }
            Some((_, Ok(never))) => match never {},
            // There are no channels.
            None => std::future::pending().await,
        }
    }
}

/// Which channels several topics want, so that what none of them wants is left, and nothing else.
#[derive(Debug)]
pub(crate) struct Wanted {
    subscriber: Subscriber,
    subscriptions: Subscriptions,
    /// Whether these topics are all that the state is for.
    are_all: bool,
    topics: Mutex<Topics>,
}

#[derive(Debug)]
struct Topics {
    /// Of each topic, once it was found.
    channels: Vec<Option<Vec<Channel>>>,
    /// What one of them wanted before.
    dropped: Vec<Channel>,
    leaving: JoinSet<()>,
}

impl Wanted {
    /// One topic, beside others of which nothing is known here.
    pub(crate) fn by_one(subscriber: &Subscriber, subscriptions: &Subscriptions) -> Self {
        Self::new(subscriber, subscriptions, 1, false)
    }

    /// So many topics: once all are found, everything else in the state is of a run before, and left too.
    pub(crate) fn by_all(subscriber: &Subscriber, subscriptions: &Subscriptions, topics: usize) -> Self {
        Self::new(subscriber, subscriptions, topics, true)
    }

    fn new(subscriber: &Subscriber, subscriptions: &Subscriptions, topics: usize, are_all: bool) -> Self {
        let (subscriber, subscriptions) = (subscriber.clone(), subscriptions.clone());
        let channels = vec![None; topics];
        let topics = Topics { channels, dropped: Vec::new(), leaving: JoinSet::new() };
        Self { subscriber, subscriptions, are_all, topics: Mutex::new(topics) }
    }

    /// The topic of this number wants these channels from now on. None of them is being left any more when this returns.
    pub(crate) async fn set(&self, number: usize, channels: &[Channel]) {
        let mut topics = self.topics.lock().await;
        let before = topics.channels[number].replace(channels.to_vec());
        topics.dropped.extend(before.unwrap_or_default());
        topics.leaving.shutdown().await;
        let wanted: Vec<Channel> = topics.channels.iter().flatten().flatten().cloned().collect();
        topics.dropped.retain(|channel| !wanted.contains(channel));
        let unwanted = if self.are_all && topics.channels.iter().all(Option::is_some) {
            self.subscriptions.not_of(&wanted)
        } else {
            self.subscriptions.only_of(&topics.dropped, &wanted)
        };
        for id in unwanted {
            topics.leaving.spawn(leave(self.subscriber.clone(), id));
        }
    }
}

/// Keeps a subscription to the channel at one of its hubs, the preferred ones first.
pub(crate) async fn keep_at_some_hub(
    subscriber: &Subscriber,
    subscriptions: &Subscriptions,
    channel: &Channel,
    on_lease: impl Fn(&TopicUrl, DateTime),
) -> Result<Infallible, SubscribeError> {
    let hubs = channel.hubs_by_preference();
    let tries = if hubs.len() > 1 { HUB_TRIES } else { u32::MAX };
    let mut pauses = subscriber.pauses();
    loop {
        let mut refused = None;
        let mut all_refuse = true;
        for hub in &hubs {
            let error = match subscriptions.add(&channel.topic, hub).await {
                Ok(id) => subscriber.keep_for(&id, tries, |until| on_lease(&channel.topic, until)).await,
                Err(error) => error.into(),
            };
            all_refuse &= !error.is_transient();
            tracing::warn!(%hub, %error, "cannot subscribe at this hub");
            refused = Some(error);
        }
        match refused {
            Some(error) if all_refuse => return Err(error),
            _ => tokio::time::sleep(pauses.after_failure()).await,
        }
    }
}

/// Ends one subscription, without insisting.
pub(crate) async fn leave(subscriber: Subscriber, id: SubscriptionId) {
    let mut pauses = subscriber.pauses();
    for _ in 0..LEAVE_TRIES {
        match subscriber.unsubscribe(&id).await {
            Ok(()) => {
                tracing::info!("unsubscribed");
                return;
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "not unsubscribed yet");
                tokio::time::sleep(pauses.after_failure()).await;
            }
            Err(error) => {
                tracing::warn!(%error, "not unsubscribed; the lease will run out");
                return;
            }
        }
    }
    tracing::warn!("not unsubscribed, since the hub does not answer; the lease will run out");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The first channel is refused at once and, if so, accepted when asked again; the second is refused a day later.
    async fn kept(first_is_accepted: bool) -> Result<Infallible, usize> {
        let (refused, asked) = (Refused::default(), AtomicU32::new(0));
        let keep = async |number: usize| {
            if number == 1 {
                tokio::time::sleep(Duration::from_secs(86_400)).await;
            } else if asked.fetch_add(1, Ordering::Relaxed) > 0 && first_is_accepted {
                refused.remove(number);
                std::future::pending::<()>().await;
            }
            Err(number)
        };
        until_all_refuse(2, keep, &refused).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_was_refused_and_then_accepted_counts_as_kept() {
        let days = Duration::from_secs(5 * 86_400);
        assert!(tokio::time::timeout(days, kept(true)).await.is_err(), "the first one is still kept");
        assert_eq!(tokio::time::timeout(days, kept(false)).await, Ok(Err(1)));
    }
}
