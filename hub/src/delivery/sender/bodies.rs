//! Per-subscriber bodies: all of a notification, or of a feed only what is new to this subscriber (W-143).
//!
//! Something is left out only against a version that this process knows the subscriber to have acknowledged. After a restart
//! the first delivery is whole again, as that to a new subscriber is.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use bytes::Bytes;
use lru::LruCache;
use resync_common::locks::lock;
use resync_core::media_type::is_any_xml;

use super::feed::without_known_entries;
use crate::config::Prefixes;
use crate::store::{
    ContentKind, Notification, Offset, Recipient, Store, StoreError, SubscriptionId, TopicId,
};
use crate::weighted_cache::WeightedCache;

/// Subscriptions whose last version is remembered, some dozen bytes each; all others get the whole.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(100_000).expect("a hundred thousand is not zero");
/// Bytes of shortened bodies that are kept, since most subscribers of a topic need the same.
const KEPT: usize = 4 * 1024 * 1024;

/// Makes the bodies. Nothing in here can panic half-way.
pub(super) struct SubscriberBodies {
    shortened: Prefixes,
    acknowledged: Mutex<LruCache<(TopicId, SubscriptionId), Offset>>,
    /// By topic, version that is known, and version to be sent.
    made: Mutex<WeightedCache<(TopicId, Offset, Offset), Bytes>>,
}

impl SubscriberBodies {
    /// Feeds of topics below `shortened` are sent without known entries.
    pub(super) fn new(shortened: Prefixes) -> Self {
        // A bounded one would take the memory of all its entries at once; `acknowledge` keeps this one within bounds.
        let (acknowledged, made) = (LruCache::unbounded(), WeightedCache::new(KEPT));
        Self { shortened, acknowledged: Mutex::new(acknowledged), made: Mutex::new(made) }
    }

    /// The body for this subscriber.
    pub(super) async fn body(
        &self,
        store: &dyn Store,
        recipient: &Recipient,
        notification: &Notification,
    ) -> Result<Bytes, StoreError> {
        let whole = || notification.body.clone();
        if !self.concerns(recipient, notification) {
            return Ok(whole());
        }
        let known = lock(&self.acknowledged).get(&(recipient.topic, recipient.id)).copied();
        // What is replayed is sent whole.
        let Some(known) = known.filter(|known| *known < notification.offset) else { return Ok(whole()) };
        let key = (recipient.topic, known, notification.offset);
        if let Some(made) = lock(&self.made).get(&key) {
            return Ok(made.clone());
        }
        let before = match store.notification_from(recipient.topic, known).await {
            // What cannot be read cannot be compared, and never will be.
            Err(StoreError::Damaged { .. }) => None,
            read => read?,
        };
        let body = before
            .filter(|before| before.offset == known)
            .and_then(|before| without_known_entries(&before.body, &notification.body))
            .map_or_else(whole, Bytes::from);
        // It may be the whole after all, which is a part of the notification's record.
        let weight = usize::try_from(notification.weight()).unwrap_or(usize::MAX);
        lock(&self.made).put(key, body.clone(), weight);
        Ok(body)
    }

    /// The subscriber has this version now.
    pub(super) fn acknowledge(&self, recipient: &Recipient, notification: &Notification) {
        if !self.concerns(recipient, notification) {
            return;
        }
        let mut acknowledged = lock(&self.acknowledged);
        acknowledged.put((recipient.topic, recipient.id), notification.offset);
        if acknowledged.len() > REMEMBERED.get() {
            acknowledged.pop_lru();
        }
    }

    fn concerns(&self, recipient: &Recipient, notification: &Notification) -> bool {
        notification.kind == ContentKind::Fetched
            // What is not declared as XML is no feed, whatever it looks like (W-016).
            && is_any_xml(&notification.content_type)
            && self.shortened.cover(&recipient.topic_url)
    }
}

impl fmt::Debug for SubscriberBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriberBodies").field("shortened", &self.shortened).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::store::{self, Engine, Keyring, NewNotification};

    const TOPIC: &str = "http://source.example/feed";

    fn recipient(topic: TopicId) -> Recipient {
        Recipient {
            id: SubscriptionId(7),
            topic,
            callback: Bytes::from_static(b"http://destination.example/cb"),
            topic_url: TOPIC.parse().unwrap(),
            secret: None,
        }
    }

    async fn version(store: &dyn Store, entries: &str) -> Arc<Notification> {
        let posted = store::posted(&TOPIC.parse().unwrap(), format!("<feed>{entries}</feed>"));
        let content_type = Bytes::from_static(b"application/atom+xml");
        let new = NewNotification { content_type, kind: ContentKind::Fetched, ..posted };
        let id = store.append(new, Duration::ZERO).await.unwrap().id();
        store.notification_from(TopicId(id.topic), Offset(id.offset)).await.unwrap().unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_replayed_is_whole_and_what_is_new_is_shortened() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let first = version(&*store, "<entry>1</entry>").await;
        let second = version(&*store, "<entry>2</entry><entry>1</entry>").await;
        let recipient = recipient(first.topic);
        let bodies = SubscriberBodies::new(Prefixes::parse(&["http://source.example/".to_owned()]).unwrap());
        let body = async |version: &Notification| bodies.body(&*store, &recipient, version).await.unwrap();
        assert_eq!(body(&first).await, first.body, "nothing is known yet");
        bodies.acknowledge(&recipient, &first);
        assert_eq!(body(&second).await, "<feed><entry>2</entry></feed>");
        bodies.acknowledge(&recipient, &second);
        for replayed in [&second, &first] {
            assert_eq!(body(replayed).await, replayed.body);
        }
    }
}
