//! Stays subscribed to channels: to each at one of its hubs, and to the new ones when the Source moves them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use resync_common::backoff::jittered;
use resync_common::locks::lock;
use resync_core::websub::key::TopicUrl;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use super::{Lease, SubscribeError, Subscriber};
use crate::discover::Channel;
use crate::state::SubscriptionId;
use crate::timing::LONGEST_RETRY;

/// After how many failures in a row the next hub of a channel is tried, if there is one.
const HUB_TRIES: u32 = 3;

/// After how many failures a subscription is left to the end of its lease.
const UNSUBSCRIBE_TRIES: u32 = 5;

/// Keeps a subscription to each of the channels, and to those that replace them. Ends all other subscriptions, also those of
/// earlier runs. Calls `on_lease` for every lease that is granted.
///
/// # Errors
/// When every hub of every channel refuses for good.
pub(crate) async fn keep_channels(
    subscriber: &Subscriber,
    mut channels: watch::Receiver<Vec<Channel>>,
    on_lease: impl Fn(&TopicUrl, Lease),
) -> Result<Infallible, SubscribeError> {
    let mut ending = JoinSet::new();
    loop {
        let now = channels.borrow_and_update().clone();
        // A subscription that was being ended may be wanted again.
        ending.shutdown().await;
        if let Err(error) = subscriber.subscriptions().forget_outside(&now).await {
            tracing::warn!(%error, "cannot forget subscriptions to former channels");
        }
        for id in subscriber.subscriptions().outside(&now) {
            ending.spawn(end_subscription(subscriber.clone(), id));
        }
        tokio::select! {
            result = keep_each(subscriber, &now, &on_lease) => return result,
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
    channels: &[Channel],
    on_lease: &impl Fn(&TopicUrl, Lease),
) -> Result<Infallible, SubscribeError> {
    let refused = &Refused::default();
    let keep = |number: usize| {
        let on_lease = move |topic: &TopicUrl, lease| {
            refused.remove(number);
            on_lease(topic, lease);
        };
        keep_at_some_hub(subscriber, &channels[number], on_lease)
    };
    until_all_refuse(channels.len(), keep, refused).await
}

/// The numbers of the channels whose hubs refused the last request.
#[derive(Debug, Default)]
struct Refused(std::sync::Mutex<BTreeSet<usize>>);

impl Refused {
    /// Adds a channel; returns how many there are.
    fn add(&self, number: usize) -> usize {
        let mut numbers = lock(&self.0);
        numbers.insert(number);
        numbers.len()
    }

    fn remove(&self, number: usize) {
        lock(&self.0).remove(&number);
    }
}

/// Keeps `count` channels until all are refused at one time. A refused one is tried again after a pause.
async fn until_all_refuse<E, F: Future<Output = Result<Infallible, E>>>(
    count: usize,
    keep: impl Fn(usize) -> F,
    refused: &Refused,
) -> Result<Infallible, E> {
    let keep_after = |number, pause| {
        let result = keep(number);
        async move {
            tokio::time::sleep(pause).await;
            (number, result.await)
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

/// The channels of several topics. Subscriptions to channels that no topic has any more are ended.
#[derive(Debug)]
pub(super) struct SharedChannels {
    subscriber: Subscriber,
    /// Whether the state is for these topics only.
    are_all: bool,
    topics: Mutex<Topics>,
}

#[derive(Debug)]
struct Topics {
    /// The channels of each topic, once they were found.
    channels: Vec<Option<Vec<Channel>>>,
    /// Channels that a topic had before.
    dropped: Vec<Channel>,
    ending: JoinSet<()>,
}

impl SharedChannels {
    /// For some topics of a state, whose other subscriptions stay as they are.
    pub(super) fn of_some(subscriber: &Subscriber, count: usize) -> Self {
        let topics = Topics { channels: vec![None; count], dropped: Vec::new(), ending: JoinSet::new() };
        Self { subscriber: subscriber.clone(), are_all: false, topics: Mutex::new(topics) }
    }

    /// For all topics of a state. Once all are found, other subscriptions are ended, also those of earlier runs.
    pub(super) fn of_all(subscriber: &Subscriber, count: usize) -> Self {
        Self { are_all: true, ..Self::of_some(subscriber, count) }
    }

    /// Sets the channels of one topic. Afterwards none of them is being unsubscribed any more.
    pub(super) async fn set(&self, number: usize, channels: &[Channel]) {
        let mut topics = self.topics.lock().await;
        let before = topics.channels[number].replace(channels.to_vec());
        topics.dropped.extend(before.unwrap_or_default());
        topics.ending.shutdown().await;
        let wanted: Vec<Channel> = topics.channels.iter().flatten().flatten().cloned().collect();
        topics.dropped.retain(|channel| !wanted.contains(channel));
        let mut unwanted = self.subscriber.subscriptions().outside(&wanted);
        if !(self.are_all && topics.channels.iter().all(Option::is_some)) {
            let kept = self.subscriber.subscriptions().outside(&topics.dropped);
            unwanted.retain(|id| !kept.contains(id));
        }
        for id in unwanted {
            topics.ending.spawn(end_subscription(self.subscriber.clone(), id));
        }
    }
}

/// Keeps a subscription to the channel at one of its hubs, the preferred ones first.
pub(super) async fn keep_at_some_hub(
    subscriber: &Subscriber,
    channel: &Channel,
    on_lease: impl Fn(&TopicUrl, Lease),
) -> Result<Infallible, SubscribeError> {
    let hubs = channel.hubs_by_preference();
    let tries = if hubs.len() > 1 { HUB_TRIES } else { u32::MAX };
    let mut pauses = subscriber.pauses();
    loop {
        let mut last = None;
        let mut all_refuse = true;
        for hub in &hubs {
            let error = match subscriber.subscriptions().add(&channel.topic, hub).await {
                Ok(id) => subscriber.keep_for(&id, tries, |lease| on_lease(&channel.topic, lease)).await,
                Err(error) => error.into(),
            };
            all_refuse &= !error.is_transient();
            tracing::warn!(%hub, %error, "cannot subscribe at this hub");
            last = Some(error);
        }
        match last {
            Some(error) if all_refuse => return Err(error),
            _ => tokio::time::sleep(pauses.after_failure()).await,
        }
    }
}

/// Unsubscribes. Gives up after a few tries; then the lease runs out.
pub(crate) async fn end_subscription(subscriber: Subscriber, id: SubscriptionId) {
    let mut pauses = subscriber.pauses();
    let topic = subscriber.subscriptions().get(&id).map(|one| one.topic);
    let topic = topic.as_ref().map_or("", TopicUrl::as_str);
    for _ in 0..UNSUBSCRIBE_TRIES {
        match subscriber.unsubscribe(&id).await {
            Ok(()) => {
                tracing::info!(topic, "unsubscribed");
                return;
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(topic, %error, "cannot unsubscribe; trying again");
                tokio::time::sleep(pauses.after_failure()).await;
            }
            Err(error) => {
                tracing::warn!(topic, %error, "cannot unsubscribe; the lease will run out");
                return;
            }
        }
    }
    tracing::warn!(topic, "cannot unsubscribe, since the hub does not answer; the lease will run out");
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
