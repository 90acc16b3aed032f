//! How far delivery is.

use resync_core::datetime::DateTime;

use super::Mender;
use crate::store::embedded::engine::Space;
use crate::store::embedded::key;
use crate::store::embedded::layout::{TopicState, TopicWatermark};
use crate::store::{FailureClass, Laggard, Offset, Result, Subscription, Watermark};

impl Mender<'_> {
    pub(super) fn delivery(&mut self) -> Result<()> {
        self.catch_ups()?;
        self.laggards()?;
        self.watermarks()
    }

    /// Laggards whose records could not be read: they get again what the log holds.
    fn catch_ups(&mut self) -> Result<()> {
        for key in self.damaged::<Laggard>()? {
            let subscription: Option<Subscription> = self.get(&key)?;
            let owed = subscription.map(|subscription| {
                Ok((self.get::<TopicState>(&key::topic(subscription.topic))?, subscription))
            });
            let Some((Some(state), subscription)) = owed.transpose()? else {
                self.remove(Space::Laggards, &key)?;
                continue;
            };
            let (topic, id) = (subscription.topic, subscription.id);
            let cursor = before(&state).max(subscription.start).min(state.topic.head);
            let laggard = Laggard {
                topic,
                subscription: id,
                cursor,
                attempts: 0,
                next_attempt: DateTime::now(),
                failing_since: None,
                class: FailureClass::Slow,
            };
            self.put(key.to_vec(), &laggard)?;
            self.rebuilt(format!(
                "how far subscription {} of topic {} was: it gets again what its log holds",
                id.0,
                state.topic.url.as_str()
            ));
        }
        self.done()
    }

    fn laggards(&mut self) -> Result<()> {
        let mut strays = 0_u64;
        for (key, _) in self.each::<Laggard>()? {
            if self.engine.get(Space::Subscriptions, &key)?.is_none() {
                strays += 1;
                self.remove(Space::Laggards, &key)?;
            }
        }
        if strays > 0 {
            self.rebuilt(format!("who is late, without {strays} subscriptions that are gone"));
        }
        self.done()
    }

    /// Without its watermark a topic would be taken to begin at the first notification that ever was.
    fn watermarks(&mut self) -> Result<()> {
        for (key, TopicWatermark(topic, _)) in self.each::<TopicWatermark>()? {
            if self.get::<TopicState>(&key::topic(topic))?.is_none() {
                self.remove(Space::Watermarks, &key)?;
                self.rebuilt(format!(
                    "delivery, without what was noted of topic {:016x} that is gone",
                    topic.0
                ));
            }
        }
        for key in self.damaged::<TopicWatermark>()? {
            let topic = key::topic_of_subscription(&key);
            let state = topic.map(|topic| self.get::<TopicState>(&key::topic(topic))).transpose()?.flatten();
            let Some(state) = state else {
                self.remove(Space::Watermarks, &key)?;
                continue;
            };
            let mark = Watermark { done: before(&state), sweep: None };
            self.put(key.to_vec(), &TopicWatermark(state.topic.id, mark))?;
            self.rebuilt(format!(
                "how far delivery of topic {} was in a part of its subscriptions: they get again what its log holds",
                state.topic.url.as_str()
            ));
        }
        self.done()
    }
}

/// Everything before the log is done.
fn before(state: &TopicState) -> Offset {
    Offset(state.topic.first.0.saturating_sub(1))
}
